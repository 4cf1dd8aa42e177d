"""torch.utils: what stands beside the library proper.

Most of it is `checkpoint.py`: begin there. `reentrant.py`, `selective.py` and `regions.py` are its
ways. `rerun.py` runs a function a second time, in the surroundings of the first run that
`surroundings.py` has noted; `comparison.py` and `op_log.py` say how the two runs differ.
`benchmark.py` times statements, `flop_counter.py` counts what they compute, and `collect_env.py`
tells of the machine. The room `data` has datasets and loaders, the room `tensorboard` writes what
TensorBoard shows. `weak.py` has dictionaries that do not hold their keys, `swapping.py` makes two
tensors each other. `_pytree.py`, `dlpack.py` and `hooks.py` are PyTorch's import paths for what
lives in lower rooms.
"""

import typing as _typing

from ..runtime.lazy import lazily as _lazily
from . import checkpoint

if _typing.TYPE_CHECKING:  # what is imported when it is asked for
    from . import _pytree as _pytree
    from . import benchmark as benchmark
    from . import collect_env as collect_env
    from . import data as data
    from . import dlpack as dlpack
    from . import flop_counter as flop_counter
    from . import hooks as hooks
    from . import tensorboard as tensorboard
    from . import weak as weak
    from .swapping import swap_tensors as swap_tensors

__all__ = ["checkpoint"]

_MODULES = (
    "_pytree", "benchmark", "collect_env", "data", "dlpack", "flop_counter", "hooks", "tensorboard",
    "weak",
)  # fmt: skip
__getattr__, __dir__ = _lazily(
    __name__, {**{name: name for name in _MODULES}, "swapping": "swap_tensors"}
)
