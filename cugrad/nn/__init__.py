"""Neural networks: layers, losses, and the Module that holds them."""

from . import functional, init
from .activation import ReLU
from .containers import ModuleDict, ModuleList, Sequential
from .conv import Conv2d as Conv2d
from .dropout import Dropout
from .linear import Linear
from .loss import CrossEntropyLoss, MSELoss, NLLLoss
from .module import Module
from .norm import BatchNorm2d as BatchNorm2d
from .parameter import Parameter
from .pooling import MaxPool2d as MaxPool2d
from .shape import Flatten, Identity

__all__ = [
    "BatchNorm2d",
    "Conv2d",
    "CrossEntropyLoss",
    "Dropout",
    "Flatten",
    "Identity",
    "Linear",
    "MSELoss",
    "MaxPool2d",
    "Module",
    "ModuleDict",
    "ModuleList",
    "NLLLoss",
    "Parameter",
    "ReLU",
    "Sequential",
    "functional",
    "init",
]
