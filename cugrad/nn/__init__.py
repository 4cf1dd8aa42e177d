"""Neural networks: layers, losses, and the Module that holds them.

`modules` holds the layers and `functional` what they compute, `init` the initial values of their
parameters (`parameter`), `utils` what is done to gradients, `stateless` calls of a module with
other parameters, `parallel` those on several devices; `base` is what Module is made of. From
outside one imports `nn.NAME` and PyTorch's paths. Begin with `modules.linear`, then read
`modules.module` and `base`.
"""

import typing as _typing
from importlib import import_module as _import_module

from ..absent import listed as _listed
from ..absent import missing as _missing
from . import functional as functional
from . import init as init
from . import modules as modules
from . import stateless as stateless
from .modules import *
from .parameter import Buffer as Buffer
from .parameter import Parameter as Parameter

if not _typing.TYPE_CHECKING:  # type checkers can not follow it, and take what is imported above
    __all__ = modules.__all__ + ["Buffer", "Parameter", "functional", "init", "stateless"]


def __getattr__(name: str) -> _typing.Any:
    """`attention`, `parallel`, `utils` and DataParallel are imported when they are asked for."""
    if name in ("attention", "parallel", "utils"):
        return _import_module(f".{name}", __name__)
    if name == "DataParallel":
        return _import_module(".parallel", __name__).DataParallel
    raise _missing(__name__, name)


def __dir__() -> list[str]:
    return _listed(__name__, "DataParallel", "attention", "parallel", "utils")
