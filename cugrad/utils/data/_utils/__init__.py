"""What a loader is made of, under the names that PyTorch has for it and programs import.

`fetch` gets the samples of a batch, `collate` makes tensors of them, `pin_memory` page-locks those,
and `ahead` has them come to a device.
`worker` is what a worker process runs, `workforce` starts, asks and ends such processes, `parcels`
moves what they make through shared memory, and `failures` carries their errors. Begin with `fetch`.
"""

from . import collate, failures, fetch, parcels, pin_memory, worker, workforce
from .failures import ExceptionWrapper
from .worker import MP_STATUS_CHECK_INTERVAL

HAS_NUMPY = True

__all__ = [
    "HAS_NUMPY", "MP_STATUS_CHECK_INTERVAL", "ExceptionWrapper", "collate", "failures", "fetch",
    "parcels", "pin_memory", "worker", "workforce",
]  # fmt: skip
