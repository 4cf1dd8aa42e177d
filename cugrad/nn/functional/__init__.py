"""torch.nn.functional: layers as functions, which are given their weights.

Each file holds one kind, `activation`, `conv`, `pooling`, `norm`, `loss` and so on, and its
`__all__` names the functions that are public. Begin with `conv`, whose functions are a check of
their arguments and one op. Layers (`nn.modules`) import from the files, users from here, where an
error that Python raises for an argument of a wrong type names the argument.
"""

from __future__ import annotations

import typing as _typing

from ...functions.calls.mistakes import saying as _saying
from ...functions.shapes.arranging import channel_shuffle as channel_shuffle
from ...functions.shapes.arranging import pixel_shuffle as pixel_shuffle
from ...functions.shapes.arranging import pixel_unshuffle as pixel_unshuffle
from ...functions.shapes.padding import pad as pad
from ...linalg.distances import bilinear as bilinear
from ...linalg.distances import pdist as pdist
from ...runtime.absent import explain as _explain
from ...tensor import Tensor as Tensor
from .activation import *
from .alignments import *
from .attention import *
from .class_losses import *
from .conv import *
from .dropout import *
from .embedding import *
from .grid import *
from .image import *
from .linear import *
from .linear_cross_entropy import *
from .loss import *
from .margin_losses import *
from .norm import *
from .pooling import *

# The files whose functions do so themselves, as those of one op do.
_SAYING = (f"{__name__}.activation", f"{__name__}.linear")

if not _typing.TYPE_CHECKING:  # type checkers can not follow it, and take what is imported above
    __all__ = [n for n, f in globals().items() if callable(f) and not n.startswith("_")]

    for _name in __all__:
        _function = globals()[_name]
        if _function is not Tensor and _function.__module__ not in _SAYING:
            globals()[_name] = _saying(_function, __name__)

_explain(__name__)
