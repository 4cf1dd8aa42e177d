"""Llama, a language model of decoder blocks, with the names of transformers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from .. import nn
from ..functions.creation.factories import tensor
from ..functions.creation.ranges import arange
from ..functions.shapes.copies import cat
from ..nn import functional

if TYPE_CHECKING:
    from ..tensor import Tensor

__all__ = ["Llama", "LlamaBlock"]


def _frequencies(size: int, base: float, scaling: dict[str, Any] | None) -> list[float]:
    """Radians per place, for each pair of a head's numbers; with `scaling`, those of Llama 3.1."""
    plain = [base ** (-2 * i / size) for i in range(size // 2)]
    if scaling is None:
        return plain
    if scaling.get("rope_type", scaling.get("type")) != "llama3":
        raise ValueError(f"Llama: got rope_scaling {scaling}, want the rope_type 'llama3', or None")
    factor, low, high = (scaling[k] for k in ("factor", "low_freq_factor", "high_freq_factor"))
    length = scaling["original_max_position_embeddings"]
    scaled = []
    for frequency in plain:
        turns = length * frequency / (2 * math.pi)
        share = min(max((turns - low) / (high - low), 0.0), 1.0)
        scaled.append(share * frequency + (1 - share) * frequency / factor)
    return scaled


def _turned(x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """Pairs of numbers, half a head apart, turned by the angles of their places."""
    first, second = x.chunk(2, -1)
    return x * cosines + cat([-second, first], -1) * sines


class _Attention(nn.Module):
    """Causal attention with turned queries and keys, of which several heads may share the keys."""

    def __init__(self, width: int, heads: int, groups: int, size: int) -> None:
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, size
        self.q_proj = nn.Linear(width, heads * size, bias=False)
        self.k_proj = nn.Linear(width, groups * size, bias=False)
        self.v_proj = nn.Linear(width, groups * size, bias=False)
        self.o_proj = nn.Linear(heads * size, width, bias=False)

    def forward(self, x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
        count, length, _ = x.shape

        def heads_of(y: Tensor) -> Tensor:
            return y.reshape(count, length, -1, self.size).transpose(1, 2)

        q = _turned(heads_of(self.q_proj(x)), cosines, sines)
        k = _turned(heads_of(self.k_proj(x)), cosines, sines)
        y = functional.scaled_dot_product_attention(
            q, k, heads_of(self.v_proj(x)), is_causal=True, enable_gqa=self.groups != self.heads
        )
        return self.o_proj(y.transpose(1, 2).reshape(count, length, self.heads * self.size))


class _GatedMlp(nn.Module):
    """down(silu(gate(x)) * up(x)): SwiGLU, https://arxiv.org/abs/2002.05202."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(width, hidden, bias=False)
        self.up_proj = nn.Linear(width, hidden, bias=False)
        self.down_proj = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))


class LlamaBlock(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x))."""

    def __init__(
        self, width: int, hidden: int, heads: int, groups: int, size: int, eps: float
    ) -> None:
        super().__init__()
        self.self_attn = _Attention(width, heads, groups, size)
        self.mlp = _GatedMlp(width, hidden)
        self.input_layernorm = nn.RMSNorm(width, eps)
        self.post_attention_layernorm = nn.RMSNorm(width, eps)

    def forward(self, x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cosines, sines)
        return x + self.mlp(self.post_attention_layernorm(x))


class Llama(nn.Module):
    """Llama, https://arxiv.org/abs/2302.13971: tokens (N, L) to scores (N, L, vocab_size).

    The arguments are those of a `config.json` of transformers; by default Llama 2's with 7 billion
    parameters. `load_state_dict` takes such a model's files.

    Args:
        vocab_size: how many different tokens there are.
        hidden_size, intermediate_size: widths of the blocks, and inside of their mlp.
        num_hidden_layers, num_attention_heads: of the blocks.
        num_key_value_heads: how many of them there are, if fewer than heads.
        head_dim: numbers of a head, hidden_size / num_attention_heads by default.
        rms_norm_eps: of the norms.
        rope_theta, rope_scaling: angles of the places; scaling is None or Llama 3.1's, a dict.
        tie_word_embeddings: whether the scores are products with the embeddings of the tokens.

    >>> import cugrad as torch
    >>> from cugrad.models import Llama
    >>> net = Llama(65, 32, 64, 2, 4, 2)
    >>> net(torch.zeros(2, 16, dtype=torch.int64)).shape
    torch.Size([2, 16, 65])
    """

    def __init__(
        self, vocab_size: int = 32000, hidden_size: int = 4096, intermediate_size: int = 11008,
        num_hidden_layers: int = 32, num_attention_heads: int = 32,
        num_key_value_heads: int | None = None, *, head_dim: int | None = None,
        rms_norm_eps: float = 1e-5, rope_theta: float = 10000.0,
        rope_scaling: dict[str, Any] | None = None, tie_word_embeddings: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        size = hidden_size // num_attention_heads if head_dim is None else head_dim
        groups = num_attention_heads if num_key_value_heads is None else num_key_value_heads
        how = (hidden_size, intermediate_size, num_attention_heads, groups, size, rms_norm_eps)
        self.frequencies, self.tied = (
            _frequencies(size, rope_theta, rope_scaling),
            tie_word_embeddings,
        )
        self.model = nn.ModuleDict({
            "embed_tokens": nn.Embedding(vocab_size, hidden_size),
            "layers": nn.ModuleList([LlamaBlock(*how) for _ in range(num_hidden_layers)]),
            "norm": nn.RMSNorm(hidden_size, rms_norm_eps),
        })  # fmt: skip
        self.lm_head = nn.Linear(hidden_size, vocab_size, bias=False)
        for weight in self.parameters():
            if weight.dim() > 1:
                nn.init.normal_(weight, 0.0, 0.02)
        if tie_word_embeddings:
            self.lm_head.weight = self.model["embed_tokens"].weight
        self.register_load_state_dict_pre_hook(_without_what_is_computed)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.model["embed_tokens"](tokens)
        places = arange(tokens.shape[-1], device=x.device)
        angles = places[:, None] * tensor(self.frequencies, device=x.device)
        angles = cat([angles, angles], -1)
        cosines, sines = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        for block in self.model["layers"]:
            x = block(x, cosines, sines)
        return self.lm_head(self.model["norm"](x))


def _without_what_is_computed(module: Any, state: dict[str, Any], prefix: str, *rest: Any) -> None:
    """Takes out the angles that older files have, and puts in scores that are embeddings."""
    for key in [key for key in state if key.endswith("rotary_emb.inv_freq")]:
        del state[key]
    table = state.get(prefix + "model.embed_tokens.weight")
    if module.tied and table is not None:
        state.setdefault(prefix + "lm_head.weight", table)
