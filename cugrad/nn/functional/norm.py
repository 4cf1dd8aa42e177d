"""The normalisation functions of nn.functional, over batches, layers, groups and vectors."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from operator import index
from typing import Any

from ...autograd.mode import will_change
from ...autograd.recording.recorded import first_of, recorded
from ...autograd.recording.views import changed
from ...backends import backend_of
from ...backends.batched.arrays import levels_of
from ...backends.moments import RunningStatistics, waiting
from ...backends.several import at_home
from ...dtypes import float32, promote_types
from ...functions.calls.arguments import cast, of_one_dtype, refuse_complex, refuse_whole
from ...functions.creation.factories import full, zeros
from ...functions.queries import finfo
from ...tensor import Tensor

__all__ = [
    "batch_norm", "group_norm", "instance_norm", "layer_norm", "normalize", "rms_norm",
]  # fmt: skip


def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float | Tensor = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Normalise each channel of (N, C, ...), in training with the input's own mean and variance.

    Running statistics of shape (C,) are used when not training, and in training are moved towards
    the input's by `momentum`, in place. Source: https://arxiv.org/abs/1502.03167.
    """
    return counted_batch_norm(
        input, running_mean, running_var, weight, bias, training, momentum, eps, None
    )


def counted_batch_norm(
    input: Tensor, running_mean: Tensor | None, running_var: Tensor | None, weight: Tensor | None,
    bias: Tensor | None, training: bool, momentum: float | Tensor, eps: float,
    batches: Tensor | None,
) -> Tensor:  # fmt: skip
    """`batch_norm`, which in training also adds 1 to `batches`, an int64 tensor of no dims."""
    if eps <= 0 if training else eps < 0:
        want = "positive during training" if training else "non-negative"
        raise ValueError(f"batch_norm eps must be {want}, but got {eps}")
    return _batch_norm(
        input, running_mean, running_var, weight, bias, training, momentum, eps, batches
    )


def _batch_norm(
    input: Tensor, running_mean: Tensor | None, running_var: Tensor | None, weight: Tensor | None,
    bias: Tensor | None, training: bool, momentum: float | Tensor, eps: float,
    batches: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """`counted_batch_norm` of any eps, which `instance_norm` takes, too."""
    refuse_complex("batch_norm", (input, running_mean, running_var, weight, bias))
    vectors = {"running_mean": running_mean, "running_var": running_var}
    channels = _channels(input, **vectors, weight=weight, bias=bias)
    count = input.numel() // max(channels, 1)
    if training and count == 1:
        raise ValueError(
            f"Expected more than 1 value per channel when training, got input size {input.shape}"
        )
    of_one_dtype(
        "batch_norm", input, True,
        weight=weight, bias=bias, running_mean=running_mean, running_var=running_var,
    )  # fmt: skip
    if not training:
        if running_mean is None or running_var is None:
            raise RuntimeError(
                "batch_norm: got no running_mean or no running_var, want both when training=False"
            )
        return recorded.batch_norm_inference(input, weight, bias, running_mean, running_var, eps)
    if count == 0:
        return _of_nothing(input, weight, bias, eps, batches)
    statistics = [x for x in (running_mean, running_var) if x is not None]
    for x in statistics:
        _refuse_other_levels(input, x)
    beside = statistics if batches is None else [*statistics, batches]
    for x in beside:
        will_change(x)
    moving = None
    if running_mean is not None and isinstance(momentum, (int, float)):
        mean, var, number = [
            None if x is None else x._array for x in (running_mean, running_var, batches)
        ]
        waiting.now = moving = RunningStatistics(mean, var, number, momentum)
    try:  # a kernel that finds the statistics may move the running ones, too
        result, means, invstd = recorded.native_batch_norm(input, weight, bias, eps)
    finally:
        waiting.now = None
    if moving is not None and moving.moved:
        for x in beside:
            changed(x)
        return result
    with at_home(input):
        if running_mean is not None:
            _move(running_mean, _statistic(input, means), momentum)
        if running_var is not None and count > 1:
            inverse = _statistic(input, invstd)
            _move(running_var, inverse, momentum, eps, count / (count - 1))
    if batches is not None:
        batches.add_(1)
    return result


def _of_nothing(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float, batches: Tensor | None
) -> Tensor:
    """The result of no elements, which have no mean: running statistics stay as they are, and the
    gradients of weight and bias are zero. The batch counts.
    """
    if batches is not None:
        batches.add_(1)
    shape = (input.shape[1],) if input.dim() > 1 else (max(input.numel(), 1),)
    like = input if weight is None else weight
    mean = zeros(shape, dtype=like.dtype, device=input.device)
    var = full(shape, 1.0, dtype=like.dtype, device=input.device)
    return recorded.batch_norm_inference(input, weight, bias, mean, var, eps)


def _channels(input: Tensor, **vectors: Tensor | None) -> int:
    """The number of channels of (N, C, ...); RuntimeError for a vector that has another length."""
    channels = input.shape[1] if input.dim() > 1 else max(input.numel(), 1)
    for name, vector in vectors.items():
        if vector is not None and vector.numel() != channels:
            raise RuntimeError(
                f"batch_norm: {name} should contain {channels} elements not {vector.numel()}: "
                f"one per channel of the input of shape {tuple(input.shape)}"
            )
    return channels


def _statistic(input: Tensor, statistic: Tensor) -> Any:
    """An array that inside vmap differs by example only where the input does, not the weight."""
    array = statistic._array
    for level in levels_of(array):
        if level not in levels_of(input._array):
            array = level.unwrap(array)[0]
    return array


def _refuse_other_levels(input: Tensor, running: Tensor) -> None:
    """RuntimeError where a running statistic is shared by the examples of a vmap."""
    if not set(levels_of(input._array)) <= set(levels_of(running._array)):
        raise RuntimeError(
            "Batch norm got a batched tensor as input while the running_mean or running_var, which "
            "will be updated in place, were not batched.\nIf you are using a module and do not "
            "need eval mode, please set `track_running_stats` to be False, or call "
            "torch.func.replace_all_batch_norm_modules_."
        )


def _move(running: Tensor, statistic: Any, momentum: float | Tensor, *how: float) -> None:
    """Moves a running statistic, which no graph records: see moments.py."""
    share = momentum._array if isinstance(momentum, Tensor) else momentum
    backend_of(running._array).xp.track_moment(running._array, statistic, share, *how)
    changed(running)


def layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Normalise over the last dims, of `normalized_shape`, to mean 0 and variance 1.

    Source: https://arxiv.org/abs/1607.06450.
    """
    shape = _trailing_shape("layer_norm", input, normalized_shape)
    dtype = input._array.dtype
    if (
        weight is not None
        and weight._array.dtype is not dtype
        or (bias is not None and bias._array.dtype is not dtype)
    ):
        of_one_dtype("layer_norm", input, True, weight=weight, bias=bias)
    _check_lies_on("weight", weight, shape)
    _check_lies_on("bias", bias, shape)
    return first_of.native_layer_norm(input, weight, bias, shape, eps)


def _trailing_shape(
    function: str, input: Tensor, normalized_shape: Sequence[int]
) -> tuple[int, ...]:
    """`normalized_shape` as a tuple; RuntimeError where the input's shape does not end in it."""
    trailing = tuple(normalized_shape)
    if not trailing:
        raise RuntimeError(
            "Expected normalized_shape to be at least 1-dimensional, i.e., containing at least "
            f"one element, but got normalized_shape = {list(trailing)} ({function})"
        )
    if input._array.shape[-len(trailing) :] != trailing:
        raise RuntimeError(
            f"Given normalized_shape={list(trailing)}, expected input with shape "
            f"[*, {', '.join(map(str, trailing))}], but got input of size{list(input.shape)}"
        )
    return trailing


def _check_lies_on(name: str, x: Tensor | None, shape: tuple[int, ...]) -> None:
    if x is not None and x._array.shape != shape:
        raise RuntimeError(
            f"Expected {name} to be of same shape as normalized_shape, but got {name} of shape "
            f"{list(x.shape)} and normalized_shape = {list(shape)}"
        )


def rms_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> Tensor:
    """input / √(mean of its squares over the last dims + eps); eps None is the epsilon of the dtype
    in which that is computed: float32 for bfloat16 and float16.

    Source: https://arxiv.org/abs/1910.07467.
    """
    shape = _trailing_shape("rms_norm", input, normalized_shape)
    refuse_whole("rms_norm", input)
    _check_lies_on("weight", weight, shape)
    if eps is None:
        eps = finfo(promote_types(input.dtype, float32)).eps
    if weight is None or weight.dtype is input.dtype:
        return first_of.rms_norm(input, weight, shape, eps)
    wide = promote_types(input.dtype, weight.dtype)
    result = first_of.rms_norm(cast(input, wide), cast(weight, wide), shape, eps)
    return cast(result, input.dtype)


def group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Normalise each of `num_groups` groups of channels of (N, C, ...), for each sample alone.

    Source: https://arxiv.org/abs/1803.08494.
    """
    shape, num_groups = tuple(input.shape), index(num_groups)
    if len(shape) < 2:
        raise RuntimeError(
            f"Expected at least 2 dimensions for input tensor but received {len(shape)}"
        )
    if num_groups < 1 or shape[1] % num_groups:
        raise RuntimeError(
            "Expected number of channels in input to be divisible by num_groups, but got input of "
            f"shape {list(shape)} and num_groups={num_groups}"
        )
    size = prod(shape[1:]) // num_groups
    if shape[0] * size == 1:
        raise ValueError(
            f"Expected more than 1 value per channel when training, got input size {list(shape)}"
        )
    for name, vector in (("weight", weight), ("bias", bias)):
        if vector is not None and tuple(vector.shape) != shape[1:2]:
            raise RuntimeError(
                f"Expected {name} to be a vector of size equal to the number of channels in input, "
                f"but got {name} of shape {list(vector.shape)} and input of shape {list(shape)}"
            )
    of_one_dtype("group_norm", input, True, weight=weight, bias=bias)
    return first_of.native_group_norm(input, weight, bias, num_groups, eps)


def instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Normalise each channel of each example of (N, C, ...), then scale and shift per channel.

    With `use_input_stats` by the example's own mean and variance, of which the averages over the
    batch move the running ones, of shape (C,); else by the running ones. Source: Ulyanov et al.
    2016, https://arxiv.org/abs/1607.08022.
    """
    if not use_input_stats and (running_mean is None or running_var is None):
        raise RuntimeError(
            "Expected running_mean and running_var to be defined when use_input_stats is false"
        )
    if not use_input_stats:
        return _batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
    if input.dim() < 3 or prod(input.shape[2:]) == 1:
        raise ValueError(
            "Expected more than 1 spatial element when training, got input size "
            f"{tuple(input.shape)}"
        )
    count, channels = input.shape[:2]
    one = input.contiguous().reshape(1, count * channels, *input.shape[2:])
    kind = input.dtype if weight is None else weight.dtype
    mean, var, scale, shift = [
        None if x is None else x.repeat(count) for x in (running_mean, running_var, weight, bias)
    ]
    mean, var = [None if x is None else cast(x, kind) for x in (mean, var)]
    result = _batch_norm(one, mean, var, scale, shift, True, momentum, eps).reshape(input.shape)
    for running, moved in ((running_mean, mean), (running_var, var)):
        if running is not None and moved is not None and count:
            running.copy_(moved.reshape(count, channels).mean(0))
    return result


def normalize(
    input: Tensor, p: float = 2.0, dim: Any = 1, eps: float = 1e-12, out: Tensor | None = None
) -> Tensor:
    """input / max(its p-norm along `dim`, eps).

    >>> import cugrad as torch
    >>> torch.nn.functional.normalize(torch.tensor([[3., 4.]]))
    tensor([[0.6000, 0.8000]])
    """
    length = input.norm(p, dim, keepdim=True).clamp(min=eps)
    if out is None:
        return input / length
    return out.copy_(input / length)
