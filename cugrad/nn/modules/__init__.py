"""The layers, each in the file where PyTorch has it: `torch.nn.modules.linear.Linear` and its like.

`module.Module` is the base of all; `linear` is a good one to begin with, and `conv` shows how one
class serves one, two and three dims. Layers compute with the functions of `nn.functional`. Users
import layers from `cugrad.nn`, and kinds for `isinstance`, such as `batchnorm._BatchNorm`, from
their files.
"""

import typing as _typing
from types import ModuleType as _ModuleType

from ...runtime.absent import explain as _explain
from ...runtime.absent import listed as _listed
from .activation import *
from .adaptive import *
from .batchnorm import *
from .channelshuffle import *
from .container import *
from .conv import *
from .distance import *
from .dropout import *
from .flatten import *
from .fold import *
from .instancenorm import *
from .linear import *
from .linear_cross_entropy_options import *
from .loss import *
from .module import Module as Module
from .normalization import *
from .padding import *
from .pixelshuffle import *
from .pooling import *
from .rnn import *
from .sparse import *
from .transformer import *
from .upsampling import *

if not _typing.TYPE_CHECKING:  # type checkers can not follow it, and take what is imported above
    __all__ = [_name for _name in globals() if _name[0].isupper()]


def __dir__() -> list[str]:
    files = [name for name, value in globals().items() if isinstance(value, _ModuleType)]
    return _listed(__name__, *files)


_explain(__name__)
