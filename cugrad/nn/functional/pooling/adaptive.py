"""Pooling to a size of the result as PyTorch's nn.functional has it: adaptive and fractional."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from ....autograd.autocast import autocasts
from ....autograd.recording.record import recorded
from ....backends.tables import table_beside
from ....backends.windows import Ints, numbers
from ....dtypes import float32, int64
from ....functions.calls.arguments import as_own, refuse_complex, refuse_whole
from ....functions.creation.random import rand
from ....tensor import Tensor, make
from .windows import max_pool

__all__ = [
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d",
    "adaptive_max_pool2d", "adaptive_max_pool3d", "fractional_max_pool2d", "fractional_max_pool3d",
]  # fmt: skip

Sizes = int | None | Sequence[int | None]
Shape = tuple[int, ...]


def along(input: Tensor, dim: int, matrix: Tensor) -> Tensor:
    """Axis `dim` times a matrix (out, size): what separable resampling is made of.

    >>> import cugrad as torch
    >>> along(torch.arange(4.0).reshape(1, 4), 1, torch.full((1, 4), 0.25))
    tensor([[1.5000]])
    """
    shape = tuple(input.shape)
    dim %= len(shape)
    if dim == len(shape) - 1:
        result = recorded.matmul(input.reshape(prod(shape[:-1]), shape[-1]), recorded.mT(matrix))
    else:
        planes = input.reshape(prod(shape[:dim]), shape[dim], prod(shape[dim + 1 :]))
        result = recorded.matmul(matrix, planes)
    return result.reshape(*shape[:dim], matrix.shape[0], *shape[dim + 1 :])


def _mean_weight(xp: Any, out: Any, place: Any, size: int, outputs: int) -> Any:
    """What the mean of the window `out` has of an element."""
    start, stop = xp.floor(out * size / outputs), xp.ceil((out + 1) * size / outputs)
    return xp.where(xp.logical_and(start <= place, place < stop), 1 / (stop - start), 0.0)


def _adaptive_sizes(name: str, n: int, input: Tensor, output_size: Sizes, needed: int) -> Shape:
    """What is wanted of the last n dims; from dim `needed` on all have elements."""
    if n > 1 and not isinstance(output_size, int) and input.dim() <= n:
        raise ValueError(f"Input dimension should be at least {n + 1} ({name})")
    if input.dim() not in (n + 1, n + 2) or 0 in tuple(input.shape[needed:]):
        raise RuntimeError(
            f"{name}: Expected {n + 1}D or {n + 2}D tensor with non-zero size for non-batch "
            f"dimensions, but got {list(input.shape)}"
        )
    requested = tuple(output_size) if isinstance(output_size, Sequence) else (output_size,)
    requested = requested * n if len(requested) == 1 else requested
    if len(requested) != n:
        raise RuntimeError(f"{name}: output_size must be {n} numbers, got {output_size}")
    sizes = tuple([s if w is None else int(w) for w, s in zip(requested, input.shape[-n:])])
    if min(sizes) < 0:
        raise RuntimeError(f"{name}: elements of output_size must be >= 0, got {output_size}")
    return sizes


def _adaptive_avg_pool(n: int, input: Tensor, output_size: Sizes) -> Tensor:
    single = output_size in (1, (1,) * n, [1] * n)  # the mean of nothing is nan
    needed = input.dim() if single else -n if n < 3 else 1
    sizes = _adaptive_sizes(f"adaptive_avg_pool{n}d", n, input, output_size, needed)
    if set(sizes) == {1}:
        return input.mean(tuple(range(-n, 0)), keepdim=True)
    refuse_complex(f"adaptive_avg_pool{n}d", (input,))
    refuse_whole(f"adaptive_avg_pool{n}d", input)
    extents = tuple(input.shape[-n:])
    if 0 not in sizes and not any(s % w for s, w in zip(extents, sizes)):
        kernel = tuple([s // w for s, w in zip(extents, sizes)])
        return getattr(recorded, f"avg_pool{n}d")(input, kernel)
    x = input.to(float32) if input.dtype.itemsize == 2 else input
    for i in range(n):
        shape = sizes[i], extents[i]
        weights = table_beside(x._array, shape, x._array.dtype, _mean_weight, extents[i], sizes[i])
        x = along(x, i - n, make(weights))
    return as_own(x.to(input.dtype), (input,))


def adaptive_avg_pool1d(input: Tensor, output_size: Sizes) -> Tensor:
    """The averages of `output_size` windows that cover (N, C, L) or (C, L).

    >>> import cugrad as torch
    >>> torch.adaptive_avg_pool1d(torch.tensor([[1.0, 2.0, 6.0]]), 2)
    tensor([[1.5000, 4.0000]])
    """
    return _adaptive_avg_pool(1, input, output_size)


def adaptive_avg_pool2d(input: Tensor, output_size: Sizes) -> Tensor:
    """The averages of windows that cover (N, C, H, W) or (C, H, W); None keeps a size."""
    return _adaptive_avg_pool(2, input, output_size)


@autocasts
def adaptive_avg_pool3d(input: Tensor, output_size: Sizes) -> Tensor:
    """The averages of windows that cover (N, C, D, H, W) or (C, D, H, W); None keeps a size."""
    return _adaptive_avg_pool(3, input, output_size)


def _adaptive_max_pool(n: int, input: Tensor, output_size: Sizes, return_indices: bool) -> Any:
    sizes = _adaptive_sizes(f"adaptive_max_pool{n}d", n, input, output_size, -n - 1)
    extents = tuple(input.shape[-n:])
    if 0 not in sizes and not any(s % w for s, w in zip(extents, sizes)):
        kernel = tuple([s // w for s, w in zip(extents, sizes)])
        return max_pool(n, input, kernel, kernel, 0, 1, False, return_indices)
    if 0 in sizes:
        result = input[(..., *[slice(0, w) if not w else slice(0, 1) for w in sizes])]
        result = result.expand(*input.shape[:-n], *sizes).contiguous()
        indices = result.detach().to(int64)
    else:
        result, indices = getattr(recorded, f"adaptive_max_pool{n}d_with_indices")(input, sizes)
        indices = indices.to(int64) if return_indices else None
    return (result, indices) if return_indices else result


def adaptive_max_pool1d(input: Tensor, output_size: Sizes, return_indices: bool = False) -> Any:
    """The maxima of `output_size` windows that cover (N, C, L) or (C, L).

    >>> import cugrad as torch
    >>> torch.nn.functional.adaptive_max_pool1d(torch.tensor([[1.0, 2.0, 6.0]]), 2)
    tensor([[2., 6.]])
    """
    return _adaptive_max_pool(1, input, output_size, return_indices)


def adaptive_max_pool2d(input: Tensor, output_size: Sizes, return_indices: bool = False) -> Any:
    """The maxima of windows that cover (N, C, H, W) or (C, H, W); None keeps a size."""
    return _adaptive_max_pool(2, input, output_size, return_indices)


def adaptive_max_pool3d(input: Tensor, output_size: Sizes, return_indices: bool = False) -> Any:
    """The maxima of windows that cover (N, C, D, H, W) or (C, D, H, W); None keeps a size."""
    return _adaptive_max_pool(3, input, output_size, return_indices)


# Fractional ---------------------------------------------------------------------------------------


def _fractional_max_pool(
    n: int, input: Tensor, kernel_size: Ints, output_size: Ints | None, output_ratio: Any,
    return_indices: bool, samples: Tensor | None,
) -> Any:  # fmt: skip
    name = f"fractional_max_pool{n}d"
    if input.dim() not in (n + 1, n + 2):
        raise RuntimeError(
            f"{name}: Expected {n + 1}D or {n + 2}D tensor, but got: {list(input.shape)}"
        )
    extents, kernel = tuple(input.shape[-n:]), numbers(kernel_size, n)
    if output_size is None:
        if output_ratio is None:
            raise ValueError(f"{name} requires specifying either an output_size or an output_ratio")
        ratios = (output_ratio,) * n if isinstance(output_ratio, float) else tuple(output_ratio)
        output_size = tuple([int(s * ratio) for s, ratio in zip(extents, ratios)])
    outputs = numbers(output_size, n)
    for size, k, out in zip(extents, kernel, outputs):
        if out < 1 or k < 1 or out + k - 1 > size:
            raise RuntimeError(
                f"{name}(): pool size {kernel} too large relative to input size {extents} for "
                f"output size {outputs}"
            )
    lead = tuple(input.shape[:-n])
    planes = lead if len(lead) == 2 else (1, *lead)
    if samples is None:
        samples = rand(*planes, n, dtype=float32, device=input.device)
    # of one image there are the numbers of the first
    samples = samples.reshape(-1, n)[: prod(lead)].reshape(*lead, n)
    pool = getattr(recorded, f"{name}_with_indices")
    result, indices = pool(input, samples, kernel, outputs)
    return (result, indices.to(int64)) if return_indices else result


def fractional_max_pool2d(
    input: Tensor, kernel_size: Ints, output_size: Ints | None = None, output_ratio: Any = None,
    return_indices: bool = False, _random_samples: Tensor | None = None,
) -> Any:  # fmt: skip
    """Maxima of windows at random places, that make `output_size` of (N, C, H, W) or (C, H, W).

    Source: https://arxiv.org/abs/1412.6071.
    """
    how = (output_size, output_ratio, return_indices, _random_samples)
    return _fractional_max_pool(2, input, kernel_size, *how)


def fractional_max_pool3d(
    input: Tensor, kernel_size: Ints, output_size: Ints | None = None, output_ratio: Any = None,
    return_indices: bool = False, _random_samples: Tensor | None = None,
) -> Any:  # fmt: skip
    """Maxima of windows at random places, of (N, C, D, H, W) or (C, D, H, W).

    Source: https://arxiv.org/abs/1412.6071.
    """
    how = (output_size, output_ratio, return_indices, _random_samples)
    return _fractional_max_pool(3, input, kernel_size, *how)
