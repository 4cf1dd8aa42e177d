"""A softmax over many classes, of which the rare ones are computed in clusters."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from ...dtypes import dtype as DType
from ...functions import FUNCTIONS
from ...functions.shapes.copies import cat
from ...tensor import Tensor
from ..functional import log_softmax
from .container import ModuleList, Sequential
from .linear import Linear
from .module import Module

__all__ = ["AdaptiveLogSoftmaxWithLoss"]

where = FUNCTIONS["where"]


class _ASMoutput(NamedTuple):
    output: Tensor
    loss: Tensor


class AdaptiveLogSoftmaxWithLoss(Module):
    """The log-probability of each target class, and the mean loss; rare ones have less features.

    Classes are numbered from the most frequent on. Those below `cutoffs[0]` are in the head, and so
    is one number for each cluster of those between two cutoffs; the i-th cluster has in_features /
    div_value**(i + 1) features. ValueError for cutoffs that do not rise from 1 to n_classes - 1.
    Source: Grave et al. 2016, https://arxiv.org/abs/1609.04309.

    >>> import cugrad as torch
    >>> m = torch.nn.AdaptiveLogSoftmaxWithLoss(16, 20, cutoffs=[5, 10])
    >>> output, loss = m(torch.randn(3, 16), torch.tensor([0, 7, 19]))
    >>> output.shape, m.log_prob(torch.randn(3, 16)).shape
    (torch.Size([3]), torch.Size([3, 20]))
    """

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        cutoffs: Sequence[int],
        div_value: float = 4.0,
        head_bias: bool = False,
        device: Any = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        cutoffs = list(cutoffs)
        if not cutoffs:
            raise ValueError("cutoffs should be a sequence of length larger than 0")
        rises = cutoffs == sorted(set(cutoffs)) and all(int(c) == c for c in cutoffs)
        if not rises or cutoffs[0] <= 0 or cutoffs[-1] > n_classes - 1:
            raise ValueError(
                "cutoffs should be a sequence of unique, positive integers sorted in an increasing "
                "order, where each value is between 1 and n_classes-1"
            )
        self.in_features, self.n_classes = in_features, n_classes
        self.cutoffs = [*cutoffs, n_classes]
        self.div_value, self.head_bias = div_value, head_bias
        self.shortlist_size, self.n_clusters = cutoffs[0], len(cutoffs)
        self.head_size = self.shortlist_size + self.n_clusters
        how: dict[str, Any] = {"device": device, "dtype": dtype}
        self.head = Linear(in_features, self.head_size, bias=head_bias, **how)
        self.tail = ModuleList()
        for i, (low, high) in enumerate(pairwise(self.cutoffs)):
            features = int(in_features // div_value ** (i + 1))
            self.tail.append(Sequential(
                Linear(in_features, features, bias=False, **how),
                Linear(features, high - low, bias=False, **how),
            ))  # fmt: skip

    def reset_parameters(self) -> None:
        """Draw new initial values."""
        for linear in (self.head, *[part for cluster in self.tail for part in cluster]):
            linear.reset_parameters()

    def forward(self, input_: Tensor, target_: Tensor) -> _ASMoutput:
        """Log-probabilities (N,) of `target_`, for `input_` (N, in_features), and their mean loss.

        Or of one example, without N. RuntimeError for shapes that do not fit, and for targets out
        of range, at which the host looks.
        """
        _check(input_, target_)
        batched = target_.dim() > 0
        input, target = (input_, target_) if batched else (input_[None], target_[None])
        if not bool(((target >= 0) & (target < self.n_classes)).all()):
            raise RuntimeError(
                f"Target values should be in [0, {self.n_classes - 1}], but values in range "
                f"[{target.min().item()}, {target.max().item()}] were found. "
            )
        head, place = log_softmax(self.head(input), 1), target
        rows, parts = [], []
        for i, (low, high) in enumerate(pairwise(self.cutoffs)):
            inside = (target >= low) & (target < high)
            place = where(inside, self.shortlist_size + i, place)
            (row,) = inside.nonzero(as_tuple=True)
            if row.numel():
                scores = log_softmax(self.tail[i](input.index_select(0, row)), 1)
                parts.append(scores.gather(1, (target[row] - low).unsqueeze(1)).squeeze(1))
                rows.append(row)
        output = head.gather(1, place.unsqueeze(1)).squeeze(1)
        if rows:
            output = output.index_add(0, cat(rows), cat(parts))
        loss = -output.mean()
        return _ASMoutput(output if batched else output.squeeze(0), loss)

    def _get_full_log_prob(self, input: Tensor, head_output: Tensor) -> Tensor:
        head = log_softmax(head_output, 1)
        parts = [head[:, : self.shortlist_size]]
        for i, cluster in enumerate(self.tail):
            share = head[:, self.shortlist_size + i].unsqueeze(1)
            parts.append(log_softmax(cluster(input), 1) + share)
        return cat(parts, 1)

    def log_prob(self, input: Tensor) -> Tensor:
        """The log-probabilities (N, n_classes) of all classes."""
        return self._get_full_log_prob(input, self.head(input))

    def predict(self, input: Tensor) -> Tensor:
        """The class (N,) of the highest log-probability; clusters are computed where one leads."""
        head = self.head(input)
        best: Tensor = head.argmax(1)
        rare = best >= self.shortlist_size
        if bool(rare.any()):
            best[rare] = self._get_full_log_prob(input[rare], head[rare]).argmax(1)
        return best


def _check(input: Tensor, target: Tensor) -> None:
    dims = target.dim()
    if dims > 1:
        raise RuntimeError("0D or 1D target tensor expected, multi-target not supported")
    if dims == 1 and input.shape[0] != target.shape[0]:
        raise RuntimeError("Input and target should have the same size in the batch dimension.")
    if input.dim() != dims + 1:
        raise RuntimeError(
            f"{dims}D target tensor expects {dims + 1}D input tensors, but found inputs with size "
            f"{input.shape}"
        )
