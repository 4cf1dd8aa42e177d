"""torch.distributed.elastic.multiprocessing: what processes say to who has started them.

`errors.py` is all of it: begin there.
"""

from ....runtime.absent import explain

explain(__name__)
