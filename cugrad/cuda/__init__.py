"""torch.cuda's face: devices, streams, events and memory statistics of CUDA.

`devices.py` and `streams.py` are what programs use most: begin there. `memory.py` has statistics,
`nvtx.py` ranges, `sanitizer.py` finds races, `index_checks.py` bad indices. It stands below the
functions: it knows backends and devices, no Tensor's maths.
"""

from __future__ import annotations

from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from ..errors import OutOfMemoryError
from ..runtime.lazy import lazily as _lazily
from . import devices, index_checks, memory, seeding, streams
from .devices import *
from .index_checks import *
from .memory import *
from .seeding import *
from .streams import *

if _TYPE_CHECKING:  # what is imported when it is asked for
    from . import graphs, nvtx, profiler, sanitizer
    from .graphs import *

_OF_GRAPHS = (
    "CUDAGraph capture_step graph graph_pool_handle is_current_stream_capturing "
    "make_graphed_callables"
)

__all__ = ["OutOfMemoryError", "graphs", "nvtx", "profiler", "sanitizer"]
__all__ += devices.__all__
__all__ += index_checks.__all__
__all__ += memory.__all__
__all__ += seeding.__all__
__all__ += streams.__all__
__all__ += _OF_GRAPHS.split()


# What few programs want, and amp, which is in a higher room.
_find, __dir__ = _lazily(
    __name__,
    {
        "amp": "amp",
        "nvtx": "nvtx",
        "profiler": "profiler",
        "sanitizer": "sanitizer",
        "graphs": f"graphs {_OF_GRAPHS}",
    },
)


def __getattr__(name: str) -> _Any:
    if name == "_initialized":  # PyTorch's checkpoint asks
        return devices.is_initialized()
    return _find(name)
