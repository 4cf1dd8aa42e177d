"""GPT-2, a language model of decoder blocks: tokens to scores of the next one.

Parameters are named as in nanoGPT; checkpoints of transformers load too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import nn
from ..nn import functional

if TYPE_CHECKING:
    from ..tensor import Tensor

__all__ = ["GPT", "Attention", "Block", "MLP"]


class Attention(nn.Module):
    """Causal attention of several heads: (N, L, width) to (N, L, width)."""

    def __init__(self, width: int, heads: int, dropout: float = 0.0, bias: bool = True) -> None:
        super().__init__()
        if width % heads:
            raise ValueError(f"Attention: got width {width} and {heads} heads, want heads | width")
        self.heads, self.dropout = heads, dropout
        self.c_attn = nn.Linear(width, 3 * width, bias)
        self.c_proj = nn.Linear(width, width, bias)

    def forward(self, x: Tensor) -> Tensor:
        count, length, width = x.shape
        parts = self.c_attn(x).reshape(count, length, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4).unbind(0)
        p = self.dropout if self.training else 0.0
        y = functional.scaled_dot_product_attention(q, k, v, dropout_p=p, is_causal=True)
        return self.c_proj(y.transpose(1, 2).reshape(count, length, width))


class MLP(nn.Module):
    """Two layers with GELU, the first four times as wide."""

    def __init__(self, width: int, bias: bool = True) -> None:
        super().__init__()
        self.c_fc = nn.Linear(width, 4 * width, bias)
        self.gelu = nn.GELU("tanh")
        self.c_proj = nn.Linear(4 * width, width, bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.c_proj(self.gelu(self.c_fc(x)))


class Block(nn.Module):
    """x + attn(ln_1(x)), then x + mlp(ln_2(x))."""

    def __init__(self, width: int, heads: int, dropout: float = 0.0, bias: bool = True) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(width, bias=bias)
        self.attn = Attention(width, heads, dropout, bias)
        self.ln_2 = nn.LayerNorm(width, bias=bias)
        self.mlp = MLP(width, bias)
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.drop(self.attn(self.ln_1(x)))
        return x + self.drop(self.mlp(self.ln_2(x)))


class GPT(nn.Module):
    """Language Models are Unsupervised Multitask Learners (Radford et al., 2019): GPT-2.

    Args:
        vocabulary: how many different tokens there are.
        context: the longest sequence.
        width, heads, layers: of the blocks; GPT-2's smallest by default.
        dropout: the probability with which what a block adds, and attention, drops an element.
        tied: whether the scores are products with the embeddings of the tokens.
        bias: whether layers and norms have one.

    Input (N, L) of integers below `vocabulary`, L at most `context`; output (N, L, vocabulary).
    Raises ValueError for a longer input.

    `load_state_dict` takes nanoGPT's checkpoints, and those of transformers (`gpt2`, `gpt2-xl`).

    >>> import cugrad as torch
    >>> from cugrad.models import GPT
    >>> net = GPT(65, 16, width=32, heads=4, layers=2)
    >>> net(torch.zeros(2, 16, dtype=torch.int64)).shape
    torch.Size([2, 16, 65])
    """

    def __init__(
        self,
        vocabulary: int = 50257,
        context: int = 1024,
        *,
        width: int = 768,
        heads: int = 12,
        layers: int = 12,
        dropout: float = 0.0,
        tied: bool = True,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.context, self.tied = context, tied
        self.transformer = nn.ModuleDict({
            "wte": nn.Embedding(vocabulary, width),
            "wpe": nn.Embedding(context, width),
            "drop": nn.Dropout(dropout),
            "h": nn.ModuleList([Block(width, heads, dropout, bias) for _ in range(layers)]),
            "ln_f": nn.LayerNorm(width, bias=bias),
        })  # fmt: skip
        self.lm_head = nn.Linear(width, vocabulary, bias=False)
        for name, weight in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(weight)
            elif weight.dim() > 1:  # what is added to the residuals is scaled by their number
                is_last = name.endswith("c_proj.weight")
                nn.init.normal_(weight, 0.0, 0.02 / (2 * layers) ** 0.5 if is_last else 0.02)
        if tied:
            self.lm_head.weight = self.transformer["wte"].weight
        self.register_load_state_dict_pre_hook(_with_names_of_nanogpt)

    def forward(self, tokens: Tensor) -> Tensor:
        length = tokens.shape[-1]
        if length > self.context:
            raise ValueError(f"GPT: got {length} tokens, want at most context = {self.context}")
        parts = self.transformer
        x = parts["drop"](parts["wte"](tokens) + parts["wpe"].weight[:length])
        for block in parts["h"]:
            x = block(x)
        return self.lm_head(parts["ln_f"](x))


def _with_names_of_nanogpt(module: Any, state: dict[str, Any], prefix: str, *rest: Any) -> None:
    """Renames, and turns, what another program has saved.

    transformers has no prefix where the model has no head, keeps masks as `attn.bias`, and weights
    of the blocks as (in, out). nanoGPT compiles its model, which adds `_orig_mod`.
    """
    for key in [key for key in state if key.startswith(prefix)]:
        name = key.removeprefix(prefix).removeprefix("_orig_mod.")
        if name.startswith(("wte.", "wpe.", "h.", "ln_f.")):
            name = "transformer." + name
        value = state.pop(key)
        if not name.endswith((".attn.bias", ".attn.masked_bias")):
            state[prefix + name] = value
    first = state.get(prefix + "transformer.h.0.attn.c_attn.weight")
    if first is not None and first.shape[0] < first.shape[1]:
        ends = ("c_attn.weight", "c_proj.weight", "c_fc.weight")
        state.update({key: value.t() for key, value in state.items() if key.endswith(ends)})
    table = state.get(prefix + "transformer.wte.weight")
    if module.tied and table is not None:
        state.setdefault(prefix + "lm_head.weight", table)
