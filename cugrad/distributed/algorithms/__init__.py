"""torch.distributed.algorithms: what is built on collectives.

`ddp_comm_hooks` is all of it: begin there.
"""

from ...absent import explain

explain(__name__)
