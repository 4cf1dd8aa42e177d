"""MobileNetV2, a small network for images, parameter for parameter torchvision's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import nn

if TYPE_CHECKING:
    from ..tensor import Tensor

__all__ = ["InvertedResidual", "MobileNetV2", "mobilenet_v2"]

# Of each stage: how much wider its blocks are inside, channels, blocks, stride of the first.
STAGES = (
    (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2),
    (6, 320, 1, 1),
)  # fmt: skip


def _rounded(channels: float, divisor: int = 8) -> int:
    """The nearest multiple of 8, but no less than nine tenths of `channels`."""
    near = max(divisor, int(channels + divisor / 2) // divisor * divisor)
    return near + divisor if near < 0.9 * channels else near


class _ConvNormActivation(nn.Sequential):
    """A convolution that keeps the size but for its stride, batch norm and ReLU6."""

    def __init__(
        self, channels: int, out_channels: int, kernel: int = 3, stride: int = 1, groups: int = 1
    ) -> None:
        super().__init__(
            nn.Conv2d(channels, out_channels, kernel, stride, kernel // 2, groups=groups,
                      bias=False),
            nn.BatchNorm2d(out_channels),
            nn.ReLU6(True),
        )  # fmt: skip


class InvertedResidual(nn.Module):
    """Wider, each channel on its own, narrow again; plus the input where shapes are the same."""

    def __init__(self, channels: int, out_channels: int, stride: int, expand_ratio: int) -> None:
        super().__init__()
        hidden = channels * expand_ratio
        layers: list[Any] = []
        if expand_ratio != 1:
            layers.append(_ConvNormActivation(channels, hidden, 1))
        layers.append(_ConvNormActivation(hidden, hidden, 3, stride, hidden))
        layers.append(nn.Conv2d(hidden, out_channels, 1, bias=False))
        layers.append(nn.BatchNorm2d(out_channels))
        self.conv = nn.Sequential(*layers)
        self.use_res_connect = stride == 1 and channels == out_channels

    def forward(self, x: Tensor) -> Tensor:
        return x + self.conv(x) if self.use_res_connect else self.conv(x)


class MobileNetV2(nn.Module):
    """MobileNetV2, https://arxiv.org/abs/1801.04381: images to scores of classes.

    Args:
        num_classes: scores per image.
        width_mult: by how much all channels are wider.
        dropout: the probability with which the last layer's input drops an element.
        in_channels: channels of the images.

    Input (N, in_channels, H, W), output (N, num_classes).

    >>> import cugrad as torch
    >>> from cugrad.models import MobileNetV2
    >>> MobileNetV2(10, width_mult=0.1)(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """

    def __init__(
        self, num_classes: int = 1000, width_mult: float = 1.0, dropout: float = 0.2, *,
        in_channels: int = 3,
    ) -> None:  # fmt: skip
        super().__init__()
        channels = _rounded(32 * width_mult)
        self.last_channel = _rounded(1280 * max(1.0, width_mult))
        layers: list[Any] = [_ConvNormActivation(in_channels, channels, 3, 2)]
        for expand_ratio, planes, count, stride in STAGES:
            out_channels = _rounded(planes * width_mult)
            for index in range(count):
                step = stride if index == 0 else 1
                layers.append(InvertedResidual(channels, out_channels, step, expand_ratio))
                channels = out_channels
        layers.append(_ConvNormActivation(channels, self.last_channel, 1))
        self.features = nn.Sequential(*layers)
        last = nn.Linear(self.last_channel, num_classes)
        self.classifier = nn.Sequential(nn.Dropout(dropout), last)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out")
        nn.init.normal_(last.weight, 0, 0.01)
        nn.init.zeros_(last.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.features(x).mean((2, 3)))


def mobilenet_v2(num_classes: int = 1000, width_mult: float = 1.0, **options: Any) -> MobileNetV2:
    """MobileNetV2: 3.5 million parameters. `MobileNetV2` says what the arguments are."""
    return MobileNetV2(num_classes, width_mult, **options)
