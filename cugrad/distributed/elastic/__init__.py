"""torch.distributed.elastic: what scripts that torchrun starts import of it.

`multiprocessing/errors.py` has `record`: begin there. `distributed.run` starts scripts.
"""

from ...runtime.absent import explain

explain(__name__)
