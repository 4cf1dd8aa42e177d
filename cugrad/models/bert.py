"""BERT, an encoder of texts, with the names of transformers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import nn
from ..functions.creation.ranges import arange
from ..nn import functional

if TYPE_CHECKING:
    from ..tensor import Tensor

__all__ = ["BertForPreTraining", "BertForSequenceClassification", "BertModel"]


class _Embeddings(nn.Module):
    """The sum of what stands for a token, its place and its text, behind a norm."""

    def __init__(
        self, vocabulary: int, width: int, places: int, types: int, dropout: float, eps: float
    ) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(vocabulary, width, padding_idx=0)
        self.position_embeddings = nn.Embedding(places, width)
        self.token_type_embeddings = nn.Embedding(types, width)
        self.LayerNorm = nn.LayerNorm(width, eps)
        self.dropout = nn.Dropout(dropout)

    def forward(self, tokens: Tensor, types: Tensor | None) -> Tensor:
        places = arange(tokens.shape[1], device=tokens.device)
        x = self.word_embeddings(tokens) + self.position_embeddings(places)
        x = x + self.token_type_embeddings(tokens * 0 if types is None else types)
        return self.dropout(self.LayerNorm(x))


class _SelfAttention(nn.Module):
    """Attention of several heads among the tokens of a text."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        count, length, width = x.shape
        q, k, v = (
            layer(x).reshape(count, length, self.heads, -1).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        p = self.dropout if self.training else 0.0
        y = functional.scaled_dot_product_attention(q, k, v, mask, p)
        return y.transpose(1, 2).reshape(count, length, width)


class _Output(nn.Module):
    """norm(dense(x) + what x was made of)."""

    def __init__(self, hidden: int, width: int, dropout: float, eps: float) -> None:
        super().__init__()
        self.dense = nn.Linear(hidden, width)
        self.LayerNorm = nn.LayerNorm(width, eps)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, before: Tensor) -> Tensor:
        return self.LayerNorm(self.dropout(self.dense(x)) + before)


class _BertLayer(nn.Module):
    """Attention and two layers with GELU, with norms behind the sums."""

    def __init__(self, width: int, heads: int, hidden: int, dropout: float, eps: float) -> None:
        super().__init__()
        self.attention = nn.ModuleDict({
            "self": _SelfAttention(width, heads, dropout),
            "output": _Output(width, width, dropout, eps),
        })  # fmt: skip
        self.intermediate = nn.ModuleDict({"dense": nn.Linear(width, hidden)})
        self.output = _Output(hidden, width, dropout, eps)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        x = self.attention["output"](self.attention["self"](x, mask), x)
        return self.output(functional.gelu(self.intermediate["dense"](x)), x)


class BertModel(nn.Module):
    """BERT, https://arxiv.org/abs/1810.04805: tokens (N, L) to vectors of tokens and of texts.

    The arguments are those of a `config.json` of transformers, by default `bert-base-uncased`'s.
    `load_state_dict` takes such a model's files, with or without the prefix `bert.`.

    Args:
        vocab_size: how many different tokens there are; 0 is padding.
        hidden_size, intermediate_size: widths of the layers, and inside of them.
        num_hidden_layers, num_attention_heads: of the layers.
        max_position_embeddings: the longest text.
        type_vocab_size: how many texts there are in one input.
        dropout: the probability with which an element is dropped.
        layer_norm_eps: of the norms.

    The result are (N, L, hidden_size), and (N, hidden_size) of the first token.

    >>> import cugrad as torch
    >>> from cugrad.models import BertModel
    >>> tokens, text = BertModel(50, 16, 1, 2, 32)(torch.ones(3, 7, dtype=torch.int64))
    >>> tokens.shape, text.shape
    (torch.Size([3, 7, 16]), torch.Size([3, 16]))
    """

    def __init__(
        self, vocab_size: int = 30522, hidden_size: int = 768, num_hidden_layers: int = 12,
        num_attention_heads: int = 12, intermediate_size: int = 3072, *,
        max_position_embeddings: int = 512, type_vocab_size: int = 2, dropout: float = 0.1,
        layer_norm_eps: float = 1e-12,
    ) -> None:  # fmt: skip
        super().__init__()
        self.hidden_size, self.layer_norm_eps = hidden_size, layer_norm_eps
        self.embeddings = _Embeddings(
            vocab_size, hidden_size, max_position_embeddings, type_vocab_size, dropout,
            layer_norm_eps,
        )  # fmt: skip
        how = (hidden_size, num_attention_heads, intermediate_size, dropout, layer_norm_eps)
        layers = nn.ModuleList([_BertLayer(*how) for _ in range(num_hidden_layers)])
        self.encoder = nn.ModuleDict({"layer": layers})
        self.pooler = nn.ModuleDict({"dense": nn.Linear(hidden_size, hidden_size)})
        _initialize(self)
        self.register_load_state_dict_pre_hook(_with_names_of_today)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """`attention_mask`, (N, L), is 0 for tokens that count for nothing."""
        mask = None if attention_mask is None else attention_mask[:, None, None, :].bool()
        x = self.embeddings(input_ids, token_type_ids)
        for layer in self.encoder["layer"]:
            x = layer(x, mask)
        return x, self.pooler["dense"](x[:, 0]).tanh()


class _Transform(nn.Module):
    """norm(gelu(dense(x)))."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.dense = nn.Linear(width, width)
        self.LayerNorm = nn.LayerNorm(width, eps)

    def forward(self, x: Tensor) -> Tensor:
        return self.LayerNorm(functional.gelu(self.dense(x)))


class _Predictions(nn.Module):
    """Scores of the tokens that were masked, by their embeddings."""

    def __init__(self, table: Any, eps: float) -> None:
        super().__init__()
        self.transform = _Transform(table.embedding_dim, eps)
        self.decoder = nn.Linear(table.embedding_dim, table.num_embeddings)
        self.decoder.weight = table.weight
        self.bias = self.decoder.bias
        nn.init.zeros_(self.decoder.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.decoder(self.transform(x))


class BertForPreTraining(nn.Module):
    """BERT with the two heads that it was trained with, as the public files have it.

    The arguments are `BertModel`'s. The result are scores (N, L, vocab_size) of the tokens, and
    (N, 2): whether the second text follows the first, or not.

    >>> import cugrad as torch
    >>> from cugrad.models import BertForPreTraining
    >>> net = BertForPreTraining(50, 16, 1, 2, 32)
    >>> [y.shape for y in net(torch.ones(3, 7, dtype=torch.int64))]
    [torch.Size([3, 7, 50]), torch.Size([3, 2])]
    """

    def __init__(self, *config: Any, **options: Any) -> None:
        super().__init__()
        self.bert = BertModel(*config, **options)
        table = self.bert.embeddings.word_embeddings
        self.cls = nn.ModuleDict({
            "predictions": _Predictions(table, self.bert.layer_norm_eps),
            "seq_relationship": nn.Linear(self.bert.hidden_size, 2),
        })  # fmt: skip
        _initialize(self.cls["predictions"].transform)
        self.register_load_state_dict_pre_hook(_with_names_of_today)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        x, pooled = self.bert(input_ids, attention_mask, token_type_ids)
        return self.cls["predictions"](x), self.cls["seq_relationship"](pooled)


class BertForSequenceClassification(nn.Module):
    """BERT with scores of texts, (N, num_labels), to be trained further.

    >>> import cugrad as torch
    >>> from cugrad.models import BertForSequenceClassification
    >>> net = BertForSequenceClassification(3, 50, 16, 1, 2, 32)
    >>> net(torch.ones(4, 7, dtype=torch.int64)).shape
    torch.Size([4, 3])
    """

    def __init__(
        self, num_labels: int = 2, *config: Any, dropout: float = 0.1, **options: Any
    ) -> None:
        super().__init__()
        self.bert = BertModel(*config, dropout=dropout, **options)
        self.dropout = nn.Dropout(dropout)
        self.classifier = nn.Linear(self.bert.hidden_size, num_labels)
        self.register_load_state_dict_pre_hook(_with_names_of_today)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        _, pooled = self.bert(input_ids, attention_mask, token_type_ids)
        return self.classifier(self.dropout(pooled))


def _initialize(module: Any) -> None:
    """Normal weights, no biases; the padding stays zero."""
    for part in module.modules():
        if isinstance(part, (nn.Linear, nn.Embedding)):
            nn.init.normal_(part.weight, 0.0, 0.02)
        if isinstance(part, nn.Linear):
            nn.init.zeros_(part.bias)
        if isinstance(part, nn.Embedding) and part.padding_idx is not None:
            part.weight.data[part.padding_idx].zero_()


def _with_names_of_today(module: Any, state: dict[str, Any], prefix: str, *rest: Any) -> None:
    """Renames what older files call gamma and beta; takes out places, and the prefix of an encoder.

    An encoder alone leaves out what a file has of heads; a head whose weight is the table of tokens
    takes it from there.
    """
    alone = isinstance(module, BertModel)
    for key in [key for key in state if key.startswith(prefix)]:
        name = key.removeprefix(prefix)
        value = state.pop(key)
        name = name.replace("LayerNorm.gamma", "LayerNorm.weight")
        name = name.replace("LayerNorm.beta", "LayerNorm.bias")
        if alone and name.startswith("bert."):
            name = name.removeprefix("bert.")
        elif alone and name.startswith("cls."):
            continue
        if not name.endswith("embeddings.position_ids"):
            state[prefix + name] = value
    table = state.get(prefix + "bert.embeddings.word_embeddings.weight")
    bias = state.get(prefix + "cls.predictions.bias")
    if bias is not None and table is not None:
        state.setdefault(prefix + "cls.predictions.decoder.bias", bias)
        state.setdefault(prefix + "cls.predictions.decoder.weight", table)
