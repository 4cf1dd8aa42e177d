"""ctc_loss: what all alignments of labels with an input lose."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ... import dtypes
from ...autograd.autocast import autocasts
from ...autograd.engine.differentiate import grad
from ...autograd.function import Function
from ...autograd.mode import enable_grad, state
from ...autograd.recording.record import recorded
from ...autograd.recording.saved import arrays
from ...backends import backend_of
from ...backends.batched.arrays import levels_of
from ...functions import FUNCTIONS
from ...functions.creation.factories import as_tensor, full, zeros
from ...functions.creation.ranges import arange
from ...tensor import Tensor, make
from .dot_product_attention import is_transformed
from .loss import check_reduction

__all__ = ["ctc_loss"]

Host = np.ndarray[Any, Any]


class Lengths(NamedTuple):
    """How many steps and labels each sequence has, and the class that is none of them."""

    inputs: Host
    sizes: Host
    blank: int

    @property
    def longest(self) -> int:
        return int(self.sizes.max(initial=0))

    def starts(self, targets: Tensor) -> Host:
        """Where the labels of each sequence begin."""
        if targets.dim() == 2:
            return np.arange(len(self.sizes)) * targets.shape[1]
        return np.cumsum(self.sizes) - self.sizes

    def table(self, targets: Tensor) -> Host:
        """What a kernel is told: steps, labels, and where they begin."""
        return np.stack([self.inputs, self.sizes, self.starts(targets)])


@autocasts
def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """-log of the probability of each label sequence, over all alignments with the input.

    Source: Graves et al. 2006, Connectionist Temporal Classification, eq. 6-8, in log space.

    Args:
        log_probs: (T, N, C) or (T, C), log-probabilities of C classes, one of them the blank.
        targets: (N, S), padded, or all sequences one behind the other.
        input_lengths, target_lengths: (N,), tensors or tuples.
        zero_infinity: losses that no alignment allows become 0, and their gradients.

    "mean" divides each loss by its target length first.
    """
    check_reduction(reduction)
    if log_probs.dim() not in (2, 3):
        raise RuntimeError(
            f"ctc_loss: got log_probs of {log_probs.dim()} dims, want (T, N, C) or (T, C)"
        )
    single = log_probs.dim() == 2
    if single:
        log_probs = log_probs.unsqueeze(1)
        if targets.dim() == 1:
            targets = targets.unsqueeze(0)
    steps, count, classes = log_probs.shape
    inputs = _lengths(input_lengths, "input_lengths", count)
    sizes = _lengths(target_lengths, "target_lengths", count)
    if not 0 <= blank < classes:
        raise RuntimeError(f"blank must be in label range: got {blank}, want [0, {classes})")
    if len(inputs) and int(inputs.max()) > steps:
        raise RuntimeError(
            f"Expected input_lengths to have value at most {steps}, but got value "
            f"{int(inputs.max())} (while checking arguments for ctc_loss)"
        )
    if len(inputs) and int(inputs.min()) < 0 or len(sizes) and int(sizes.min()) < 0:
        raise RuntimeError("input_lengths and target_lengths must be non-negative")
    _check_targets(targets, sizes)
    losses = _losses(log_probs, targets, Lengths(inputs, sizes, blank))
    if zero_infinity:
        losses = recorded.where(losses == float("inf"), 0.0, losses)
    if reduction == "mean":
        divisor = as_tensor(np.maximum(sizes, 1), device=losses.device).to(losses.dtype)
        return (losses / divisor).mean()
    if reduction == "sum":
        return losses.sum()
    return losses.squeeze(0) if single else losses


def _lengths(lengths: Any, name: str, count: int) -> Host:
    """Lengths on the host, which decides with them what to compute."""
    values = lengths.tolist() if isinstance(lengths, Tensor) else lengths
    if isinstance(lengths, Tensor) and lengths._array.dtype.kind not in "iu":
        raise RuntimeError(f"{name} must be integral")
    array = np.asarray(values, np.int64).reshape(-1)
    if len(array) != count:
        raise RuntimeError(f"{name} must be of size batch_size: got {len(array)}, want {count}")
    return array


def _check_targets(targets: Tensor, sizes: Host) -> None:
    longest = int(sizes.max(initial=0))
    if targets.dim() == 2:
        if targets.shape[0] != len(sizes):
            raise RuntimeError(
                f"Expected tensor to have size {len(sizes)} at dimension 0, but got size "
                f"{targets.shape[0]} for argument #2 'targets' (while checking arguments for "
                "ctc_loss)"
            )
        if targets.shape[1] < longest:
            raise RuntimeError(
                f"Expected tensor to have size at least {longest} at dimension 1, but got size "
                f"{targets.shape[1]} for argument #2 'targets' (while checking arguments for "
                "ctc_loss)"
            )
    elif targets.dim() != 1 or targets.shape[0] < int(sizes.sum()):
        raise RuntimeError(
            f"Expected 1-dimensional targets of at least {int(sizes.sum())} labels, got "
            f"{list(targets.shape)}"
        )


def _losses(log_probs: Tensor, targets: Tensor, how: Lengths) -> Tensor:
    """By a kernel, where a device has one, and else by tensor functions."""
    if backend_of(log_probs._array).ctc_loss is None or is_transformed():
        return _by_ops(log_probs, targets, how)
    table = as_tensor(how.table(targets), device=log_probs.device)
    return CtcLoss.apply(log_probs, targets, table, how)


class CtcLoss(Function):
    """The losses of a kernel as one node."""

    @staticmethod
    def forward(
        ctx: Any, log_probs: Tensor, targets: Tensor, table: Tensor, how: Lengths
    ) -> Tensor:
        """The losses; keeps what it is given, and what leads to each state."""
        operands = log_probs._array, targets._array, table._array
        kernel: Any = backend_of(log_probs._array).ctc_loss
        results = kernel(*operands, how.blank, how.longest)
        ctx.how, ctx.by_kernel = how, results is not None
        if results is None:
            ctx.save_for_backward(log_probs, targets)
            return _by_ops(log_probs, targets, how)
        losses, alphas = map(make, results)
        ctx.save_for_backward(log_probs, targets, table, alphas)
        return losses

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """By a kernel, or by tensor functions, so that it can be differentiated in turn."""
        g, again, how = grads[0], state.grad_enabled, ctx.how
        if ctx.by_kernel and not (again or levels_of(g._array)):
            backward = backend_of(g._array).ctc_loss_backward
            slope = backward(g._array, *arrays(ctx), how.blank, how.longest)
            if slope is not None:
                return make(slope), None, None, None
        log_probs, targets = ctx.saved_tensors[:2]
        with enable_grad():
            # a view: hooks of the tensor itself run in the pass that asks, not in this one, too
            x = log_probs.view_as(log_probs) if again else log_probs.detach().requires_grad_()
            losses = _by_ops(x, targets, how)
        slopes = grad(losses, [x], g, create_graph=again, materialize_grads=True)
        return slopes[0], None, None, None


def _label_rows(targets: Tensor, how: Lengths) -> Tensor:
    """The label sequences as rows (N, S), where padding is blank."""
    sizes, longest = how.sizes, how.longest
    if targets.dim() == 2:
        return targets[:, :longest].to(dtypes.int64)
    place = how.starts(targets)[:, None] + np.arange(longest)
    if not targets.shape[0]:
        shape = len(sizes), longest
        return full(shape, how.blank, dtype=dtypes.int64, device=targets.device)
    index = as_tensor(np.minimum(place, targets.shape[0] - 1), device=targets.device)
    return targets.to(dtypes.int64)[index]


def _by_ops(log_probs: Tensor, targets: Tensor, how: Lengths) -> Tensor:
    """-log p(labels | inputs) by the forward recursion, all examples at once, by tensor functions:
    they say what kernels compute.
    """
    inputs, sizes, blank = how
    labels = _label_rows(targets, how)
    steps, count, _ = log_probs.shape
    longest = labels.shape[1]
    states = 2 * longest + 1
    device = log_probs.device
    path = full((count, states), blank, dtype=dtypes.int64, device=device)
    path[:, 1::2] = labels
    # a label may follow the one before last unless that is the same, or a blank
    skips = zeros((count, states), dtype=dtypes.bool_, device=device)
    if states > 2:
        skips[:, 2:] = (path[:, 2:] != blank) & (path[:, 2:] != path[:, :-2])
    low = float("-inf")
    emitted = log_probs.gather(2, path.unsqueeze(0).expand(steps, count, states))
    if not steps:
        return recorded.where(as_tensor(sizes == 0, device=device), 0.0, float("inf")).to(
            log_probs.dtype
        )
    first = arange(states, device=device) < 2
    alpha = recorded.where(first, emitted[0], low)
    pad = FUNCTIONS["constant_pad_nd"]
    alphas = [alpha]
    for t in range(1, steps):
        one = pad(alpha, (1, 0), low)[:, :states]
        two = recorded.where(skips, pad(alpha, (2, 0), low)[:, :states], low)
        alpha = _log_sum(FUNCTIONS["stack"]([alpha, one, two])) + emitted[t]
        alphas.append(alpha)
    table = FUNCTIONS["stack"](alphas)  # (T, N, states)
    rows = arange(count, device=device)
    last = as_tensor(np.maximum(inputs - 1, 0), device=device)
    final = table[last, rows]  # (N, states)
    end = as_tensor(2 * sizes, device=device).unsqueeze(1)
    ends = final.gather(1, end).squeeze(1)
    before = final.gather(1, (end - 1).clamp(min=0)).squeeze(1)
    before = recorded.where(as_tensor(sizes == 0, device=device), low, before)
    losses = -_log_sum(FUNCTIONS["stack"]([ends, before]))
    nothing = as_tensor(inputs == 0, device=device)
    if not bool((inputs == 0).any()):
        return losses
    empty = as_tensor(np.where(sizes == 0, 0.0, np.inf), device=device).to(losses.dtype)
    return recorded.where(nothing, empty, losses)


def _log_sum(terms: Tensor) -> Tensor:
    """The logarithm of the sum over dim 0, with a zero gradient where all terms are -inf."""
    most = terms.detach().amax(0)
    most = recorded.where(most == float("-inf"), 0.0, most)
    total = (terms - most).exp().sum(0)
    none = total == 0
    return recorded.where(none, float("-inf"), recorded.where(none, 1.0, total).log() + most)
