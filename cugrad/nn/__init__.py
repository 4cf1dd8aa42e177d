"""Neural networks: layers, losses, and the Module that holds them.

`modules` holds the layers and `functional` what they compute, `init` the initial values of their
parameters (`parameter`), `utils` what is done to gradients, `stateless` calls of a module with
other parameters, `parallel` those on several devices; `base` is what Module is made of. From
outside one imports `nn.NAME` and PyTorch's paths. Begin with `modules.linear`, then read
`modules.module` and `base`.
"""

import typing as _typing

from ..runtime.lazy import lazily as _lazily
from . import functional as functional
from . import init as init
from . import modules as modules
from . import stateless as stateless
from .modules import *
from .parameter import Buffer as Buffer
from .parameter import Parameter as Parameter
from .parameter import UninitializedBuffer as UninitializedBuffer
from .parameter import UninitializedParameter as UninitializedParameter

if not _typing.TYPE_CHECKING:  # type checkers can not follow it, and take what is imported above
    __all__ = modules.__all__ + [
        "Buffer", "Parameter", "UninitializedBuffer", "UninitializedParameter", "functional",
        "init", "stateless",
    ]  # fmt: skip
else:
    from . import grad as grad


# Imported when they are asked for.
__getattr__, __dir__ = _lazily(
    __name__,
    {
        "attention": "attention",
        "grad": "grad",
        "parallel": "parallel DataParallel",
        "utils": "utils",
    },
)
