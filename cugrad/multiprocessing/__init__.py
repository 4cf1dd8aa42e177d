"""torch.multiprocessing: Python's, whose queues and processes send tensors in shared memory.

`sending.py` says how a tensor gets to another process: begin there. `spawning.py` has `spawn`. The
other names are those of Python's `multiprocessing`.
"""

import multiprocessing as _python
from multiprocessing import *

from .sending import get_all_sharing_strategies, get_sharing_strategy, set_sharing_strategy
from .spawning import (
    ProcessContext,
    ProcessExitedException,
    ProcessRaisedException,
    SpawnContext,
    spawn,
    start_processes,
)

__all__ = [
    *_python.__all__, "ProcessContext", "ProcessExitedException", "ProcessRaisedException",
    "SpawnContext", "get_all_sharing_strategies", "get_sharing_strategy", "set_sharing_strategy",
    "spawn", "start_processes",
]  # fmt: skip
