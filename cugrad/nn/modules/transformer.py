"""The Transformer, its encoder and decoder, and the layers of those."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

from ...dtypes import dtype as DType
from ...functions.creation.factories import full
from ...functions.shapes.copies import triu
from ...tensor import Tensor
from .. import init
from ..functional import gelu, relu
from ..functional.attention import _canonical_mask
from .activation import GELU, ReLU
from .attention import MultiheadAttention
from .container import ModuleList
from .dropout import Dropout
from .linear import Linear
from .module import Module
from .normalization import LayerNorm

__all__ = [
    "Transformer", "TransformerDecoder", "TransformerDecoderLayer", "TransformerEncoder",
    "TransformerEncoderLayer",
]  # fmt: skip

Activation = str | Callable[[Tensor], Tensor]


def _generate_square_subsequent_mask(
    sz: int, device: Any = None, dtype: DType | None = None
) -> Tensor:
    return triu(full((sz, sz), float("-inf"), dtype=dtype, device=device), 1)


def _get_seq_len(src: Tensor, batch_first: bool) -> int:
    return src.shape[1 if batch_first and src.dim() > 2 else 0]


def _detect_is_causal_mask(
    mask: Tensor | None, is_causal: bool | None = None, size: int | None = None
) -> bool:
    """`is_causal`, if that is known; else whether a mask is the causal one: the host reads it."""
    if is_causal is not None or mask is None:
        return bool(is_causal)
    sz = mask.shape[-2] if size is None else size
    causal = _generate_square_subsequent_mask(sz, mask.device, mask.dtype)
    return mask.shape == causal.shape and bool((mask == causal).all())


def _masks(
    mask: Tensor | None, padding: Tensor | None, name: str, prefix: str, like: Tensor
) -> tuple[Tensor | None, Tensor | None]:
    """Both masks as numbers that are added to the scores."""
    kind = None if mask is None else mask.dtype
    padding = _canonical_mask(padding, f"{prefix}key_padding_mask", kind, name, like.dtype)
    return _canonical_mask(mask, name, None, "", like.dtype, check_other=False), padding


def _get_clones(module: Module, count: int) -> ModuleList:
    return ModuleList([copy.deepcopy(module) for _ in range(count)])


def _get_activation_fn(activation: str) -> Callable[[Tensor], Tensor]:
    functions: dict[str, Callable[[Tensor], Tensor]] = {"relu": relu, "gelu": gelu}
    if activation not in functions:
        raise RuntimeError(f"activation should be relu/gelu, not {activation}")
    return functions[activation]


def _activation(activation: Activation) -> Callable[[Tensor], Tensor]:
    return _get_activation_fn(activation) if isinstance(activation, str) else activation


class _Layer(Module):
    """What the layers of encoder and decoder have in common: attention to itself, two products."""

    _attentions: tuple[str, ...] = ()  # the names of a class's own

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = relu,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        how: dict[str, Any] = {"device": device, "dtype": dtype}
        for name in self._attentions:
            attention = MultiheadAttention(
                d_model, nhead, dropout=dropout, bias=bias, batch_first=batch_first, **how
            )
            setattr(self, name, attention)
        self.linear1 = Linear(d_model, dim_feedforward, bias=bias, **how)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias=bias, **how)
        self.norm_first = norm_first
        blocks = range(1, len(self._attentions) + 2)
        for k in blocks:
            setattr(self, f"norm{k}", LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **how))
        for k in blocks:
            setattr(self, f"dropout{k}", Dropout(dropout))
        self.activation = _activation(activation)
        self.activation_relu_or_gelu = 0
        for k, (function, layer) in enumerate(((relu, ReLU), (gelu, GELU)), 1):
            if self.activation is function or isinstance(self.activation, layer):
                self.activation_relu_or_gelu = k

    def _around(self, norm: Module, x: Tensor, block: Callable[[Tensor], Tensor]) -> Tensor:
        """A block's result added to its input, normed before or after."""
        output: Tensor = x + block(norm(x)) if self.norm_first else norm(x + block(x))
        return output

    def _sa_block(
        self, x: Tensor, attn_mask: Tensor | None, key_padding_mask: Tensor | None,
        is_causal: bool = False,
    ) -> Tensor:  # fmt: skip
        x = self.self_attn(
            x, x, x, attn_mask=attn_mask, key_padding_mask=key_padding_mask, need_weights=False,
            is_causal=is_causal,
        )[0]  # fmt: skip
        return self.dropout1(x)

    def _products(self, x: Tensor) -> Tensor:
        return self.linear2(self.dropout(self.activation(self.linear1(x))))


class TransformerEncoderLayer(_Layer):
    """Attention of a sequence to itself, then two products: each added to its input, and normed.

    Args:
        d_model: features of input and output.
        nhead: heads of the attention.
        dim_feedforward: features between the two products.
        dropout: the probability to drop an element of a block's result, and of attention weights.
        activation: "relu", "gelu" or a function, between the products.
        layer_norm_eps: the epsilon of the norms.
        batch_first: input and output are (N, S, E) instead of (S, N, E).
        norm_first: blocks norm their input instead of the sum.
        bias: whether products and norms add a bias.

    Source: https://arxiv.org/abs/1706.03762; `norm_first`: https://arxiv.org/abs/2002.04745.

    >>> import cugrad as torch
    >>> layer = torch.nn.TransformerEncoderLayer(d_model=8, nhead=2, dim_feedforward=16)
    >>> layer(torch.rand(5, 3, 8)).shape
    torch.Size([5, 3, 8])
    """

    _attentions = ("self_attn",)

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        """The layer of `src`; masks, and `is_causal`, as MultiheadAttention takes them."""
        mask, padding = _masks(src_mask, src_key_padding_mask, "src_mask", "src_", src)
        x = self._around(self.norm1, src, lambda x: self._sa_block(x, mask, padding, is_causal))
        return self._around(self.norm2, x, self._ff_block)

    def _ff_block(self, x: Tensor) -> Tensor:
        return self.dropout2(self._products(x))


class TransformerDecoderLayer(_Layer):
    """Attention of a sequence to itself, then to what an encoder made, then two products.

    Arguments as of TransformerEncoderLayer.

    >>> import cugrad as torch
    >>> layer = torch.nn.TransformerDecoderLayer(d_model=8, nhead=2, dim_feedforward=16)
    >>> layer(torch.rand(4, 3, 8), memory=torch.rand(5, 3, 8)).shape
    torch.Size([4, 3, 8])
    """

    _attentions = ("self_attn", "multihead_attn")

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """The layer of `tgt`, which attends to itself and to `memory`."""
        own = (tgt_mask, tgt_key_padding_mask, tgt_is_causal)
        other = (memory_mask, memory_key_padding_mask, memory_is_causal)
        x = self._around(self.norm1, tgt, lambda x: self._sa_block(x, *own))
        x = self._around(self.norm2, x, lambda x: self._mha_block(x, memory, *other))
        return self._around(self.norm3, x, self._ff_block)

    def _mha_block(
        self, x: Tensor, mem: Tensor, attn_mask: Tensor | None, key_padding_mask: Tensor | None,
        is_causal: bool = False,
    ) -> Tensor:  # fmt: skip
        x = self.multihead_attn(
            x, mem, mem, attn_mask=attn_mask, key_padding_mask=key_padding_mask,
            need_weights=False, is_causal=is_causal,
        )[0]  # fmt: skip
        return self.dropout2(x)

    def _ff_block(self, x: Tensor) -> Tensor:
        return self.dropout3(self._products(x))


def _why_not_nested(layer: Any) -> str:
    """Why PyTorch would not use nested tensors for layers of this kind; "" if it would."""
    name = "encoder_layer"
    if not isinstance(layer, TransformerEncoderLayer):
        return f"{name} was not TransformerEncoderLayer"
    attention = layer.self_attn
    reasons = {
        f"{name}.norm_first was True": layer.norm_first,
        f"{name}.self_attn.batch_first was not True(use batch_first for better inference "
        "performance)": not attention.batch_first,
        f"{name}.self_attn was passed bias=False": attention.in_proj_bias is None,
        f"{name}.activation_relu_or_gelu was not True": not layer.activation_relu_or_gelu,
        f"{name}.norm1.eps was not equal to {name}.norm2.eps": layer.norm1.eps != layer.norm2.eps,
        f"{name}.self_attn.num_heads is odd": attention.num_heads % 2 == 1,
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


class TransformerEncoder(Module):
    """`num_layers` copies of a layer, one on another, and a norm.

    There are no nested tensors: `enable_nested_tensor` and `mask_check` are kept, warn as in
    PyTorch, and change nothing.

    >>> import cugrad as torch
    >>> layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    >>> torch.nn.TransformerEncoder(layer, num_layers=2)(torch.rand(3, 5, 8)).shape
    torch.Size([3, 5, 8])
    """

    def __init__(
        self,
        encoder_layer: Module,
        num_layers: int,
        norm: Module | None = None,
        enable_nested_tensor: bool = True,
        mask_check: bool = True,
    ) -> None:
        super().__init__()
        self.layers, self.num_layers = _get_clones(encoder_layer, num_layers), num_layers
        self.norm, self.mask_check = norm, mask_check
        self.enable_nested_tensor = self.use_nested_tensor = enable_nested_tensor
        why_not = _why_not_nested(encoder_layer)
        if enable_nested_tensor and why_not:
            warnings.warn(
                "enable_nested_tensor is True, but self.use_nested_tensor is False because "
                f"{why_not}", stacklevel=2,
            )  # fmt: skip
            self.use_nested_tensor = False

    def forward(
        self,
        src: Tensor,
        mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool | None = None,
    ) -> Tensor:
        """`src` through all layers. Where `is_causal` is None, the host looks at the mask."""
        mask, padding = _masks(mask, src_key_padding_mask, "mask", "src_", src)
        length = _get_seq_len(src, self.layers[0].self_attn.batch_first)
        causal = _detect_is_causal_mask(mask, is_causal, length)
        for layer in self.layers:
            src = layer(src, src_mask=mask, is_causal=causal, src_key_padding_mask=padding)
        return src if self.norm is None else self.norm(src)


class TransformerDecoder(Module):
    """`num_layers` copies of a layer, one on another, and a norm.

    >>> import cugrad as torch
    >>> layer = torch.nn.TransformerDecoderLayer(8, 2, 16)
    >>> decoder = torch.nn.TransformerDecoder(layer, num_layers=2)
    >>> decoder(torch.rand(4, 3, 8), torch.rand(5, 3, 8)).shape
    torch.Size([4, 3, 8])
    """

    def __init__(self, decoder_layer: Module, num_layers: int, norm: Module | None = None) -> None:
        super().__init__()
        self.layers, self.num_layers = _get_clones(decoder_layer, num_layers), num_layers
        self.norm = norm

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """`tgt` through all layers. Where `tgt_is_causal` is None, the host looks at the mask."""
        length = _get_seq_len(tgt, self.layers[0].self_attn.batch_first)
        causal = _detect_is_causal_mask(tgt_mask, tgt_is_causal, length)
        for layer in self.layers:
            tgt = layer(
                tgt, memory, tgt_mask=tgt_mask, memory_mask=memory_mask,
                tgt_key_padding_mask=tgt_key_padding_mask,
                memory_key_padding_mask=memory_key_padding_mask, tgt_is_causal=causal,
                memory_is_causal=memory_is_causal,
            )  # fmt: skip
        return tgt if self.norm is None else self.norm(tgt)


class Transformer(Module):
    """An encoder of `src`, and a decoder of `tgt` that attends to what the encoder made.

    Arguments as of the layers; `custom_encoder` and `custom_decoder` are modules in their place.
    Matrices start as by Glorot. RuntimeError for other numbers of sequences or features.

    >>> import cugrad as torch
    >>> model = torch.nn.Transformer(8, 2, 1, 1, 16, batch_first=True)
    >>> model(torch.rand(3, 5, 8), torch.rand(3, 4, 8)).shape
    torch.Size([3, 4, 8])
    """

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = relu,
        custom_encoder: Any = None,
        custom_decoder: Any = None,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        of_layers = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps,
                     batch_first, norm_first, bias, device, dtype)  # fmt: skip

        def norm() -> LayerNorm:
            return LayerNorm(d_model, eps=layer_norm_eps, bias=bias, device=device, dtype=dtype)

        if custom_encoder is None:
            layer: Module = TransformerEncoderLayer(*of_layers)
            custom_encoder = TransformerEncoder(layer, num_encoder_layers, norm())
        self.encoder = custom_encoder
        if custom_decoder is None:
            layer = TransformerDecoderLayer(*of_layers)
            custom_decoder = TransformerDecoder(layer, num_decoder_layers, norm())
        self.decoder = custom_decoder
        self._reset_parameters()
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first

    def forward(
        self,
        src: Tensor,
        tgt: Tensor,
        src_mask: Tensor | None = None,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        src_is_causal: bool | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """The decoder's output, in the shape of `tgt`."""
        if src.dim() == 3:
            batch = 0 if self.batch_first else 1
            if src.shape[batch] != tgt.shape[batch]:
                raise RuntimeError("the batch number of src and tgt must be equal")
        if src.shape[-1] != self.d_model or tgt.shape[-1] != self.d_model:
            raise RuntimeError("the feature number of src and tgt must be equal to d_model")
        memory = self.encoder(
            src, mask=src_mask, src_key_padding_mask=src_key_padding_mask, is_causal=src_is_causal
        )
        output: Tensor = self.decoder(
            tgt, memory, tgt_mask=tgt_mask, memory_mask=memory_mask,
            tgt_key_padding_mask=tgt_key_padding_mask,
            memory_key_padding_mask=memory_key_padding_mask, tgt_is_causal=tgt_is_causal,
            memory_is_causal=memory_is_causal,
        )  # fmt: skip
        return output

    @staticmethod
    def generate_square_subsequent_mask(
        sz: int, device: Any = None, dtype: DType | None = None
    ) -> Tensor:
        """The causal mask (sz, sz): 0 up to the diagonal, -inf above it."""
        return _generate_square_subsequent_mask(sz, device, dtype)

    def _reset_parameters(self) -> None:
        for p in self.parameters():
            if p.dim() > 1:
                init.xavier_uniform_(p)
