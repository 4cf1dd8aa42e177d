"""PyTorch's import path `torch.nn.modules` for the layers, and for the classes that they share."""

import sys
from importlib import import_module
from types import ModuleType
from typing import Any

from ...absent import missing
from . import module

# PyTorch's modules of layers, and where those stand here.
ROOMS = {
    "activation": "activation attention", "batchnorm": "norm", "channelshuffle": "upsampling",
    "container": "containers parameter_containers", "conv": "conv", "distance": "loss",
    "dropout": "dropout", "flatten": "shape", "fold": "fold", "instancenorm": "norm",
    "linear": "linear shape", "loss": "loss margins", "normalization": "norm upsampling",
    "padding": "padding", "pixelshuffle": "upsampling", "pooling": "pooling", "sparse": "sparse",
    "upsampling": "upsampling",
}  # fmt: skip

__all__ = ["module", *ROOMS]


class _Room(ModuleType):
    """A module of PyTorch's: its classes are those of our modules of layers."""

    def __getattr__(self, name: str) -> Any:
        for home in ROOMS[self.__name__.rpartition(".")[2]].split():
            found = vars(import_module(f"..{home}", __name__)).get(name)
            if isinstance(found, type):
                return found
        raise missing(self.__name__, name)


for _name in ROOMS:
    _path = f"{__name__}.{_name}"
    globals()[_name] = sys.modules[_path] = _Room(_path, f"PyTorch's import path {_name}.")


def __getattr__(name: str) -> Any:
    from .. import __dict__ as layers

    if name[:1].isupper() and name in layers:
        return layers[name]
    raise missing(__name__, name)
