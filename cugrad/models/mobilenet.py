"""MobileNets, small networks for images, parameter for parameter torchvision's."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from .. import nn

if TYPE_CHECKING:
    from ..tensor import Tensor

__all__ = [
    "InvertedResidual", "MobileNetV2", "MobileNetV3", "MobileNetV3Block", "mobilenet_v2",
    "mobilenet_v3_large", "mobilenet_v3_small",
]  # fmt: skip

# Of each stage: how much wider its blocks are inside, channels, blocks, stride of the first.
STAGES = (
    (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2),
    (6, 320, 1, 1),
)  # fmt: skip
# Of each block of V3: size of the kernel, channels inside, channels, whether it has weights of
# channels, whether it has Hardswish and not ReLU, stride. And the channels before the last layer.
SMALL = (
    (3, 16, 16, True, False, 2), (3, 72, 24, False, False, 2), (3, 88, 24, False, False, 1),
    (5, 96, 40, True, True, 2), (5, 240, 40, True, True, 1), (5, 240, 40, True, True, 1),
    (5, 120, 48, True, True, 1), (5, 144, 48, True, True, 1), (5, 288, 96, True, True, 2),
    (5, 576, 96, True, True, 1), (5, 576, 96, True, True, 1),
), 1024  # fmt: skip
LARGE = (
    (3, 16, 16, False, False, 1), (3, 64, 24, False, False, 2), (3, 72, 24, False, False, 1),
    (5, 72, 40, True, False, 2), (5, 120, 40, True, False, 1), (5, 120, 40, True, False, 1),
    (3, 240, 80, False, True, 2), (3, 200, 80, False, True, 1), (3, 184, 80, False, True, 1),
    (3, 184, 80, False, True, 1), (3, 480, 112, True, True, 1), (3, 672, 112, True, True, 1),
    (5, 672, 160, True, True, 2), (5, 960, 160, True, True, 1), (5, 960, 160, True, True, 1),
), 1280  # fmt: skip


def _rounded(channels: float, divisor: int = 8) -> int:
    """The nearest multiple of 8, but no less than nine tenths of `channels`."""
    near = max(divisor, int(channels + divisor / 2) // divisor * divisor)
    return near + divisor if near < 0.9 * channels else near


class _ConvNormActivation(nn.Sequential):
    """A convolution that keeps the size but for its stride, a norm and an activation, or none."""

    def __init__(
        self, channels: int, out_channels: int, kernel: int = 3, stride: int = 1, groups: int = 1,
        norm: Callable[[int], Any] = nn.BatchNorm2d, activation: Any = nn.ReLU6,
    ) -> None:  # fmt: skip
        layers = [
            nn.Conv2d(channels, out_channels, kernel, stride, kernel // 2, groups=groups,
                      bias=False),
            norm(out_channels),
        ]  # fmt: skip
        super().__init__(*layers, *([] if activation is None else [activation(True)]))


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


class _ChannelWeights(nn.Module):
    """The input times a weight for each channel, which a small network makes of their means."""

    def __init__(self, channels: int, squeezed: int) -> None:
        super().__init__()
        self.fc1 = nn.Conv2d(channels, squeezed, 1)
        self.fc2 = nn.Conv2d(squeezed, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        weights = self.fc2(nn.functional.relu(self.fc1(x.mean((2, 3), keepdim=True))))
        return nn.functional.hardsigmoid(weights) * x


_norm = partial(nn.BatchNorm2d, eps=0.001, momentum=0.01)  # of V3


class MobileNetV3Block(nn.Module):
    """As that of V2, with weights of channels inside, and without an activation at the end."""

    def __init__(
        self, channels: int, hidden: int, out_channels: int, kernel: int, weighs: bool, hard: bool,
        stride: int,
    ) -> None:  # fmt: skip
        super().__init__()
        inside = partial(
            _ConvNormActivation, norm=_norm, activation=nn.Hardswish if hard else nn.ReLU
        )
        layers: list[Any] = [] if hidden == channels else [inside(channels, hidden, 1)]
        layers.append(inside(hidden, hidden, kernel, stride, hidden))
        if weighs:
            layers.append(_ChannelWeights(hidden, _rounded(hidden // 4)))
        layers.append(_ConvNormActivation(hidden, out_channels, 1, norm=_norm, activation=None))
        self.block = nn.Sequential(*layers)
        self.use_res_connect = stride == 1 and channels == out_channels

    def forward(self, x: Tensor) -> Tensor:
        return x + self.block(x) if self.use_res_connect else self.block(x)


class MobileNetV3(nn.Module):
    """MobileNetV3, https://arxiv.org/abs/1905.02244: images to scores of classes.

    Args:
        plan: its blocks, and the channels before the last layer: `SMALL` or `LARGE`.
        num_classes: scores per image.
        width_mult: by how much all channels are wider.
        dropout: the probability with which the last layer's input drops an element.
        in_channels: channels of the images.

    Input (N, in_channels, H, W), output (N, num_classes).

    >>> import cugrad as torch
    >>> from cugrad.models import mobilenet_v3_small
    >>> mobilenet_v3_small(10, width_mult=0.1)(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """

    def __init__(
        self, plan: tuple[Any, int] = LARGE, num_classes: int = 1000, width_mult: float = 1.0,
        dropout: float = 0.2, *, in_channels: int = 3,
    ) -> None:  # fmt: skip
        super().__init__()
        channels, activation = _rounded(16 * width_mult), nn.Hardswish
        layers: list[Any] = [
            _ConvNormActivation(in_channels, channels, 3, 2, norm=_norm, activation=activation)
        ]
        for kernel, hidden, planes, *how in plan[0]:
            sizes = _rounded(hidden * width_mult), _rounded(planes * width_mult)
            layers.append(MobileNetV3Block(channels, *sizes, kernel, *how))
            channels = sizes[1]
        wide, last = 6 * channels, _rounded(plan[1] * width_mult)
        layers.append(_ConvNormActivation(channels, wide, 1, norm=_norm, activation=activation))
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(
            nn.Linear(wide, last), nn.Hardswish(True), nn.Dropout(dropout),
            nn.Linear(last, num_classes),
        )  # fmt: skip
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out")
            elif isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, 0, 0.01)
            if isinstance(module, (nn.Conv2d, nn.Linear)) and module.bias is not None:
                nn.init.zeros_(module.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.features(x).mean((2, 3)))


def mobilenet_v3_small(
    num_classes: int = 1000, width_mult: float = 1.0, **options: Any
) -> MobileNetV3:
    """MobileNetV3-Small: 2.5 million parameters. `MobileNetV3` says what the arguments are."""
    return MobileNetV3(SMALL, num_classes, width_mult, **options)


def mobilenet_v3_large(
    num_classes: int = 1000, width_mult: float = 1.0, **options: Any
) -> MobileNetV3:
    """MobileNetV3-Large: 5.5 million parameters. `MobileNetV3` says what the arguments are."""
    return MobileNetV3(LARGE, num_classes, width_mult, **options)
