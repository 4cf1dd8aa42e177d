"""Vision transformers, parameter for parameter torchvision's."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from .. import nn
from ..functions.creation.factories import zeros
from ..functions.shapes.copies import cat

if TYPE_CHECKING:
    from ..tensor import Tensor

__all__ = ["VisionTransformer", "vit_b_16", "vit_b_32", "vit_h_14", "vit_l_16", "vit_l_32"]


class _Mlp(nn.Sequential):
    """Two layers with GELU and dropout."""

    def __init__(self, width: int, hidden: int, dropout: float) -> None:
        super().__init__(
            nn.Linear(width, hidden), nn.GELU(), nn.Dropout(dropout), nn.Linear(hidden, width),
            nn.Dropout(dropout),
        )  # fmt: skip
        for layer in (self[0], self[3]):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.normal_(layer.bias, std=1e-6)


class _EncoderBlock(nn.Module):
    """x + attention(ln_1(x)), then x + mlp(ln_2(x))."""

    def __init__(
        self, heads: int, width: int, hidden: int, dropout: float, attention_dropout: float
    ) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(width, eps=1e-6)
        self.self_attention = nn.MultiheadAttention(
            width, heads, dropout=attention_dropout, batch_first=True
        )
        self.dropout = nn.Dropout(dropout)
        self.ln_2 = nn.LayerNorm(width, eps=1e-6)
        self.mlp = _Mlp(width, hidden, dropout)

    def forward(self, x: Tensor) -> Tensor:
        y = self.ln_1(x)
        y, _ = self.self_attention(y, y, y, need_weights=False)
        x = x + self.dropout(y)
        return x + self.mlp(self.ln_2(x))


class _Encoder(nn.Module):
    """Places added to patches, blocks, and a norm."""

    def __init__(self, length: int, layers: int, width: int, dropout: float, *how: Any) -> None:
        super().__init__()
        self.pos_embedding = nn.Parameter(zeros(1, length, width))
        nn.init.normal_(self.pos_embedding, std=0.02)
        self.dropout = nn.Dropout(dropout)
        blocks = [(f"encoder_layer_{n}", _EncoderBlock(*how)) for n in range(layers)]
        self.layers = nn.Sequential(OrderedDict(blocks))
        self.ln = nn.LayerNorm(width, eps=1e-6)

    def forward(self, x: Tensor) -> Tensor:
        return self.ln(self.layers(self.dropout(x + self.pos_embedding)))


class VisionTransformer(nn.Module):
    """An Image is Worth 16x16 Words, https://arxiv.org/abs/2010.11929: images to classes.

    Args:
        image_size: rows and columns of the images.
        patch_size: those of a patch.
        num_layers, num_heads, hidden_dim, mlp_dim: of the blocks.
        dropout, attention_dropout: the probabilities with which elements are dropped.
        num_classes: scores per image.

    Input (N, 3, image_size, image_size), output (N, num_classes). ValueError for another size.

    >>> import cugrad as torch
    >>> from cugrad.models import VisionTransformer
    >>> VisionTransformer(16, 8, 1, 2, 8, 16, num_classes=10)(torch.zeros(2, 3, 16, 16)).shape
    torch.Size([2, 10])
    """

    def __init__(
        self, image_size: int, patch_size: int, num_layers: int, num_heads: int, hidden_dim: int,
        mlp_dim: int, dropout: float = 0.0, attention_dropout: float = 0.0, num_classes: int = 1000,
    ) -> None:  # fmt: skip
        super().__init__()
        if image_size % patch_size:
            raise ValueError(
                f"VisionTransformer: got image_size {image_size} and patch_size {patch_size}, want "
                "a multiple"
            )
        self.image_size = image_size
        self.class_token = nn.Parameter(zeros(1, 1, hidden_dim))
        self.conv_proj = nn.Conv2d(3, hidden_dim, patch_size, patch_size)
        self.encoder = _Encoder(
            (image_size // patch_size) ** 2 + 1, num_layers, hidden_dim, dropout, num_heads,
            hidden_dim, mlp_dim, dropout, attention_dropout,
        )  # fmt: skip
        self.heads = nn.Sequential(OrderedDict(head=nn.Linear(hidden_dim, num_classes)))
        fan_in = 3 * patch_size**2
        nn.init.trunc_normal_(self.conv_proj.weight, std=fan_in**-0.5)
        nn.init.zeros_(self.conv_proj.bias)
        nn.init.zeros_(self.heads[0].weight)
        nn.init.zeros_(self.heads[0].bias)

    def forward(self, x: Tensor) -> Tensor:
        if tuple(x.shape[-2:]) != (self.image_size, self.image_size):
            raise ValueError(
                f"VisionTransformer: got images of {tuple(x.shape[-2:])}, want image_size = "
                f"{self.image_size}"
            )
        patches = self.conv_proj(x).flatten(2).transpose(1, 2)
        token = self.class_token.expand(x.shape[0], -1, -1)
        return self.heads(self.encoder(cat([token, patches], 1))[:, 0])


def vit_b_16(image_size: int = 224, num_classes: int = 1000, **options: Any) -> VisionTransformer:
    """ViT-B/16: 86.6 million parameters. `VisionTransformer` says what the arguments are."""
    return VisionTransformer(image_size, 16, 12, 12, 768, 3072, num_classes=num_classes, **options)


def vit_b_32(image_size: int = 224, num_classes: int = 1000, **options: Any) -> VisionTransformer:
    """ViT-B/32."""
    return VisionTransformer(image_size, 32, 12, 12, 768, 3072, num_classes=num_classes, **options)


def vit_l_16(image_size: int = 224, num_classes: int = 1000, **options: Any) -> VisionTransformer:
    """ViT-L/16: 304.3 million parameters."""
    return VisionTransformer(image_size, 16, 24, 16, 1024, 4096, num_classes=num_classes, **options)


def vit_l_32(image_size: int = 224, num_classes: int = 1000, **options: Any) -> VisionTransformer:
    """ViT-L/32."""
    return VisionTransformer(image_size, 32, 24, 16, 1024, 4096, num_classes=num_classes, **options)


def vit_h_14(image_size: int = 224, num_classes: int = 1000, **options: Any) -> VisionTransformer:
    """ViT-H/14."""
    return VisionTransformer(image_size, 14, 32, 16, 1280, 5120, num_classes=num_classes, **options)
