"""VGG networks for images, parameter for parameter torchvision's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import nn

if TYPE_CHECKING:
    from ..tensor import Tensor

__all__ = ["VGG", "vgg11", "vgg11_bn", "vgg13", "vgg13_bn", "vgg16", "vgg16_bn", "vgg19",
           "vgg19_bn"]  # fmt: skip

# How many convolutions there are before each of the five poolings; and their channels, in widths.
LAYERS = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}
WIDTHS = (1, 2, 4, 8, 8)


class VGG(nn.Module):
    """Very deep convolutional networks, https://arxiv.org/abs/1409.1556: images to classes.

    Args:
        depth: 11, 13, 16 or 19 layers with weights.
        batch_norm: whether each convolution has one behind it.
        num_classes: scores per image.
        in_channels: channels of the images.
        width: channels of the first convolution.
        hidden: width of the two layers before the last.
        dropout: the probability with which these drop an element.

    Input (N, in_channels, H, W), output (N, num_classes).

    >>> import cugrad as torch
    >>> from cugrad.models import VGG
    >>> VGG(11, num_classes=10, width=2, hidden=8)(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """

    def __init__(
        self, depth: int, batch_norm: bool = False, num_classes: int = 1000, *,
        in_channels: int = 3, width: int = 64, hidden: int = 4096, dropout: float = 0.5,
    ) -> None:  # fmt: skip
        super().__init__()
        layers: list[Any] = []
        channels = in_channels
        for count, factor in zip(LAYERS[depth], WIDTHS):
            for _ in range(count):
                layers.append(nn.Conv2d(channels, factor * width, 3, padding=1))
                channels = factor * width
                layers += [nn.BatchNorm2d(channels)] if batch_norm else []
                layers.append(nn.ReLU(True))
            layers.append(nn.MaxPool2d(2, 2))
        self.features = nn.Sequential(*layers)
        self.avgpool = nn.AdaptiveAvgPool2d((7, 7))
        self.classifier = nn.Sequential(
            nn.Linear(channels * 7 * 7, hidden), nn.ReLU(True), nn.Dropout(dropout),
            nn.Linear(hidden, hidden), nn.ReLU(True), nn.Dropout(dropout),
            nn.Linear(hidden, num_classes),
        )  # fmt: skip
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
                nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, 0, 0.01)
                nn.init.zeros_(module.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.avgpool(self.features(x)).flatten(1))


def vgg11(num_classes: int = 1000, **options: Any) -> VGG:
    """VGG-11. `VGG` says what the arguments are."""
    return VGG(11, False, num_classes, **options)


def vgg11_bn(num_classes: int = 1000, **options: Any) -> VGG:
    """VGG-11 with batch norms."""
    return VGG(11, True, num_classes, **options)


def vgg13(num_classes: int = 1000, **options: Any) -> VGG:
    """VGG-13."""
    return VGG(13, False, num_classes, **options)


def vgg13_bn(num_classes: int = 1000, **options: Any) -> VGG:
    """VGG-13 with batch norms."""
    return VGG(13, True, num_classes, **options)


def vgg16(num_classes: int = 1000, **options: Any) -> VGG:
    """VGG-16: 138.4 million parameters."""
    return VGG(16, False, num_classes, **options)


def vgg16_bn(num_classes: int = 1000, **options: Any) -> VGG:
    """VGG-16 with batch norms."""
    return VGG(16, True, num_classes, **options)


def vgg19(num_classes: int = 1000, **options: Any) -> VGG:
    """VGG-19."""
    return VGG(19, False, num_classes, **options)


def vgg19_bn(num_classes: int = 1000, **options: Any) -> VGG:
    """VGG-19 with batch norms."""
    return VGG(19, True, num_classes, **options)
