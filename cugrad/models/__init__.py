"""Models with the parameter names of public checkpoints, each an example of how to write one.

ResNet, VGG, MobileNetV2, V3 and ViT are torchvision's, GPT is nanoGPT's and takes files of
transformers, Llama and BERT are those of transformers, U-Net is that of milesial/Pytorch-UNet. A
file has one model, made of `nn` alone, and so runs on PyTorch's modules too. Examples, benchmarks
and tests import them; the library does not. Begin with `gpt.py`.
"""

from .bert import BertForPreTraining, BertForSequenceClassification, BertModel
from .gpt import GPT, MLP, Attention, Block
from .llama import Llama, LlamaBlock
from .mobilenet import (
    InvertedResidual,
    MobileNetV2,
    MobileNetV3,
    MobileNetV3Block,
    mobilenet_v2,
    mobilenet_v3_large,
    mobilenet_v3_small,
)
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
from .vgg import VGG, vgg11, vgg11_bn, vgg13, vgg13_bn, vgg16, vgg16_bn, vgg19, vgg19_bn
from .vit import VisionTransformer, vit_b_16, vit_b_32, vit_h_14, vit_l_16, vit_l_32

__all__ = [
    "GPT", "MLP", "VGG", "Attention", "BasicBlock", "BertForPreTraining",
    "BertForSequenceClassification", "BertModel", "Block", "Bottleneck", "InvertedResidual",
    "Llama", "LlamaBlock", "MobileNetV2", "MobileNetV3", "MobileNetV3Block", "ResNet", "UNet",
    "VisionTransformer", "mobilenet_v2", "mobilenet_v3_large", "mobilenet_v3_small",
    "resnet101", "resnet152", "resnet18", "resnet34", "resnet50", "vgg11", "vgg11_bn", "vgg13",
    "vgg13_bn", "vgg16", "vgg16_bn", "vgg19", "vgg19_bn", "vit_b_16", "vit_b_32", "vit_h_14",
    "vit_l_16", "vit_l_32",
]  # fmt: skip
