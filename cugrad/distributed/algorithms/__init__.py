"""torch.distributed.algorithms: what is built on collectives.

`join.py` has ranks with fewer batches wait for the others, `ddp_comm_hooks` says how gradients are
reduced: begin there. `_checkpoint` wraps layers whose calls are checkpoints.
"""

from ...runtime.absent import explain

explain(__name__)
