"""Residual networks for images: ResNet-18 to ResNet-152, parameter for parameter torchvision's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import nn

if TYPE_CHECKING:
    from ..tensor import Tensor

__all__ = ["BasicBlock", "Bottleneck", "ResNet", "resnet18", "resnet34", "resnet50", "resnet101",
           "resnet152"]  # fmt: skip


def _conv(channels: int, out_channels: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    """A convolution that keeps the size but for its stride; batch norm has the bias."""
    return nn.Conv2d(channels, out_channels, kernel, stride, kernel // 2, bias=False)


class BasicBlock(nn.Module):
    """relu(x + two 3x3 convolutions of x): the block of ResNet-18 and ResNet-34.

    `stride` is that of the first convolution. Where it or the channels change the shape, x itself
    passes a 1x1 convolution.
    """

    expansion = 1

    def __init__(self, channels: int, planes: int, stride: int = 1, inplace: bool = True) -> None:
        super().__init__()
        self.conv1 = _conv(channels, planes, 3, stride)
        self.bn1 = nn.BatchNorm2d(planes)
        self.relu = nn.ReLU(inplace)
        self.conv2 = _conv(planes, planes, 3)
        self.bn2 = nn.BatchNorm2d(planes)
        self.downsample = _downsample(channels, planes, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        y += x if self.downsample is None else self.downsample(x)
        return self.relu(y)


class Bottleneck(nn.Module):
    """relu(x + convolutions of x, 1x1 to `planes`, 3x3, and 1x1 to four times as many).

    `stride` is that of the 3x3 convolution, as torchvision has it ("ResNet v1.5").
    """

    expansion = 4

    def __init__(self, channels: int, planes: int, stride: int = 1, inplace: bool = True) -> None:
        super().__init__()
        out_channels = planes * self.expansion
        self.conv1 = _conv(channels, planes, 1)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = _conv(planes, planes, 3, stride)
        self.bn2 = nn.BatchNorm2d(planes)
        self.conv3 = _conv(planes, out_channels, 1)
        self.bn3 = nn.BatchNorm2d(out_channels)
        self.relu = nn.ReLU(inplace)
        self.downsample = _downsample(channels, out_channels, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        y += x if self.downsample is None else self.downsample(x)
        return self.relu(y)


def _downsample(channels: int, out_channels: int, stride: int) -> nn.Sequential | None:
    if stride == 1 and channels == out_channels:
        return None
    return nn.Sequential(_conv(channels, out_channels, 1, stride), nn.BatchNorm2d(out_channels))


class ResNet(nn.Module):
    """Deep residual learning, https://arxiv.org/abs/1512.03385: images to scores of classes.

    Args:
        block: BasicBlock or Bottleneck.
        layers: the number of blocks in each of the four stages.
        num_classes: scores per image.
        in_channels: channels of the images.
        width: channels of the first convolution; each later stage has twice as many.
        inplace: whether ReLU writes into its input, as torchvision's does.
        zero_init_residual: begin with each block as the identity.

    Input (N, in_channels, H, W), output (N, num_classes).

    >>> import cugrad as torch
    >>> from cugrad.models import BasicBlock, ResNet
    >>> ResNet(BasicBlock, [1, 1, 1, 1], 10, width=4)(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """

    def __init__(
        self,
        block: type[BasicBlock | Bottleneck],
        layers: list[int],
        num_classes: int = 1000,
        *,
        in_channels: int = 3,
        width: int = 64,
        inplace: bool = True,
        zero_init_residual: bool = False,
    ) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, width, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        channels, stages = width, []
        for number, count in enumerate(layers):
            planes, blocks = width << number, []
            for index in range(count):
                stride = 2 if number and not index else 1
                blocks.append(block(channels, planes, stride, inplace))
                channels = planes * block.expansion
            stages.append(nn.Sequential(*blocks))
        self.layer1, self.layer2, self.layer3, self.layer4 = stages
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(channels, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            elif zero_init_residual and isinstance(module, (BasicBlock, Bottleneck)):
                last = module.bn3 if isinstance(module, Bottleneck) else module.bn2
                nn.init.zeros_(last.weight)

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(self.avgpool(x).flatten(1))


def resnet18(
    num_classes: int = 1000, *, in_channels: int = 3, width: int = 64, inplace: bool = True,
    zero_init_residual: bool = False,
) -> ResNet:  # fmt: skip
    """ResNet-18: 11.7 million parameters. `ResNet` says what the arguments are.

    >>> from cugrad import models
    >>> net = models.resnet18(width=4)
    >>> net.layer4[1].conv2.weight.shape
    torch.Size([32, 32, 3, 3])
    """
    return ResNet(
        BasicBlock, [2, 2, 2, 2], num_classes, in_channels=in_channels, width=width,
        inplace=inplace, zero_init_residual=zero_init_residual,
    )  # fmt: skip


def resnet34(
    num_classes: int = 1000, *, in_channels: int = 3, width: int = 64, inplace: bool = True,
    zero_init_residual: bool = False,
) -> ResNet:  # fmt: skip
    """ResNet-34: 21.8 million parameters. `ResNet` says what the arguments are."""
    return ResNet(
        BasicBlock, [3, 4, 6, 3], num_classes, in_channels=in_channels, width=width,
        inplace=inplace, zero_init_residual=zero_init_residual,
    )  # fmt: skip


def resnet50(
    num_classes: int = 1000, *, in_channels: int = 3, width: int = 64, inplace: bool = True,
    zero_init_residual: bool = False,
) -> ResNet:  # fmt: skip
    """ResNet-50: 25.6 million parameters. `ResNet` says what the arguments are."""
    return ResNet(
        Bottleneck, [3, 4, 6, 3], num_classes, in_channels=in_channels, width=width,
        inplace=inplace, zero_init_residual=zero_init_residual,
    )  # fmt: skip


def resnet101(
    num_classes: int = 1000, *, in_channels: int = 3, width: int = 64, inplace: bool = True,
    zero_init_residual: bool = False,
) -> ResNet:  # fmt: skip
    """ResNet-101: 44.5 million parameters. `ResNet` says what the arguments are."""
    return ResNet(
        Bottleneck, [3, 4, 23, 3], num_classes, in_channels=in_channels, width=width,
        inplace=inplace, zero_init_residual=zero_init_residual,
    )  # fmt: skip


def resnet152(
    num_classes: int = 1000, *, in_channels: int = 3, width: int = 64, inplace: bool = True,
    zero_init_residual: bool = False,
) -> ResNet:  # fmt: skip
    """ResNet-152: 60.2 million parameters. `ResNet` says what the arguments are."""
    return ResNet(
        Bottleneck, [3, 8, 36, 3], num_classes, in_channels=in_channels, width=width,
        inplace=inplace, zero_init_residual=zero_init_residual,
    )  # fmt: skip
