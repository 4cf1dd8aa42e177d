"""torch.nn.functional: losses, convolutions and activations as functions.

Functions of one op are those of `plain_functions`; of the others, whose Python meets an argument
first, an error says which one is wrong.
"""

from __future__ import annotations

from ..absent import explain
from ..functions.mistakes import saying
from . import plain_functions as _plain
from .plain_functions import *  # noqa: F403

_ROOMS = ("attention", "class_losses", "conv", "dropout", "embedding", "grid", "image", "loss",
          "margin_losses", "norm", "pooling", "padding", "arranging", "distances")  # fmt: skip

for _name, _function in vars(_plain).items():
    if callable(_function) and not _name.startswith("_"):
        _room = _function.__module__.rpartition(".")[2].removesuffix("_functions")
        globals()[_name] = saying(_function, __name__) if _room in _ROOMS else _function
for _name in ("explained", "saying", "recorded", "check_reduction", "conv_padding"):
    globals().pop(_name, None)

explain(__name__)
