"""Models of the examples and benchmarks: ResNet, GPT, U-Net, written with `nn` alone.

Examples, benchmarks and tests import them; the library does not. Begin with `gpt.py`.
"""

from .gpt import GPT, Attention, Block
from .resnet import (
    BasicBlock,
    Bottleneck,
    ResNet,
    resnet18,
    resnet34,
    resnet50,
    resnet101,
    resnet152,
)
from .unet import UNet

__all__ = ["GPT", "Attention", "BasicBlock", "Block", "Bottleneck", "ResNet", "UNet",
           "resnet101", "resnet152", "resnet18", "resnet34", "resnet50"]  # fmt: skip
