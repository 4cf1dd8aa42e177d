"""torch.fft: discrete Fourier transforms of complex and real signals, in any number of dims.

`norm` divides by the count of points (or its root) in one direction: "backward", the default, in
the inverse, "forward" in the forward transform, "ortho" by the root in both. Integers become the
default floating-point dtype; float32 gives complex64.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from . import dtypes
from .autograd.mode import state
from .autograd.recording.record import recorded
from .functions.calls.arguments import array_of, cast
from .functions.calls.out import accepting
from .functions.creation import factories as creation
from .functions.shapes.copies import roll
from .ops.dims import canonical_dim, canonical_dims, int_tuple, one_int
from .ops.table import TABLE
from .runtime.absent import explain
from .tensor import Tensor

__all__ = [
    "fft", "fft2", "fftfreq", "fftn", "fftshift", "hfft", "hfft2", "hfftn", "ifft", "ifft2",
    "ifftn", "ifftshift", "ihfft", "ihfft2", "ihfftn", "irfft", "irfft2", "irfftn", "rfft", "rfft2",
    "rfftfreq", "rfftn",
]  # fmt: skip

Shape = tuple[int, ...]

_FORWARD = {None: 0, "backward": 0, "ortho": 1, "forward": 2}
_INVERSE = {None: 2, "backward": 2, "ortho": 1, "forward": 0}


def _normalization(norm: Any, forward: bool) -> int:
    try:
        return (_FORWARD if forward else _INVERSE)[norm]
    except (KeyError, TypeError):
        raise RuntimeError(
            f'Invalid normalization mode: "{norm}"; want "backward", "ortho" or "forward"'
        ) from None


def _prepared(input: Tensor, function: str) -> Tensor:
    """The input in a dtype that has a transform."""
    if state.autocast is not None:
        (input,) = state.autocast(TABLE["fft_c2c"], (input,))
    dtype = array_of(input, function).dtype
    if dtype.kind in "biu":
        return cast(input, dtypes.get_default_dtype())
    if dtype.itemsize == 2:
        raise RuntimeError(f"Unsupported dtype {input.dtype} in {function}; convert it first")
    return input


def _real(input: Tensor, function: str) -> Tensor:
    if array_of(input, function).dtype.kind == "c":
        raise RuntimeError(f"{function} expects a real input tensor, but got {input.dtype}")
    return _prepared(input, function)


def _complex(input: Tensor, function: str) -> Tensor:
    input = _prepared(input, function)
    return cast(input, dtypes.promote_types(input.dtype, dtypes.complex64))


def _one_dim(input: Tensor, n: Any, dim: int) -> tuple[Shape, Shape | None]:
    """`n` and `dim` of a one-dimensional transform as `s` and `dim` of the others."""
    ndim = input._array.ndim
    if not ndim:
        raise IndexError(f"Dimension specified as {dim} but tensor has no dimensions")
    sizes = None if n is None else (one_int(n, "n"),)
    if sizes is not None and sizes[0] < 1:
        raise RuntimeError(f"Invalid number of data points ({sizes[0]}) specified")
    return (canonical_dim(dim, ndim),), sizes


def _many_dims(input: Tensor, s: Any, dim: Any) -> tuple[Shape, Shape | None]:
    """The dims, counted from the front, and the sizes: the last ones where only `s` is given."""
    ndim = input._array.ndim
    sizes = None if s is None else int_tuple(s, "s")
    if dim is not None:
        axes = int_tuple(dim, "dim")
        if axes and not ndim:
            raise IndexError(f"Dimension specified as {axes[0]} but tensor has no dimensions")
        for d in axes:
            canonical_dim(d, ndim)
        try:
            dims = canonical_dims(axes, ndim) if ndim else ()
        except RuntimeError:
            raise RuntimeError(f"FFT dims must be unique, got {axes}") from None
        if sizes is not None and len(sizes) != len(dims):
            raise RuntimeError(
                "When given, dim and shape arguments must have the same length: "
                f"got dim={axes} and s={sizes}"
            )
        return dims, sizes
    if sizes is None:
        return tuple(range(ndim)), None
    if len(sizes) > ndim:
        raise RuntimeError(
            f"Got shape with {len(sizes)} values but input tensor only has {ndim} dimensions."
        )
    return tuple(range(ndim - len(sizes), ndim)), sizes


def _resized(input: Tensor, dims: Shape, sizes: Shape | None) -> Tensor:
    """The input cut or filled up with zeros along `dims`; -1 leaves a size as it is."""
    shape = input._array.shape
    new, index = list(shape), [slice(None)] * len(shape)
    for i, d in enumerate(dims):
        n = shape[d] if sizes is None or sizes[i] == -1 else sizes[i]
        if n < 1:
            raise RuntimeError(f"Invalid number of data points ({n}) specified")
        new[d], index[d] = n, slice(0, min(n, shape[d]))
    if new == list(shape):
        return input
    if any(n < m for n, m in zip(new, shape, strict=True)):
        input = recorded.slice_view(input, tuple(index))
    if tuple(new) == input._array.shape:
        return input
    return recorded.slice_backward(input, tuple(new), tuple(index))


def _transform(
    input: Tensor, dims: Shape, sizes: Shape | None, norm: Any, forward: bool, function: str
) -> Tensor:
    """The transform of complex numbers, or of real ones that the forward one takes as they are."""
    how = _normalization(norm, forward)
    input = _prepared(input, function)
    if not forward or not dims:
        input = _complex(input, function)
    input = _resized(input, dims, sizes)
    if not dims:
        return input
    if input._array.dtype.kind == "c":
        return recorded.fft_c2c(input, dims, how, forward)
    return recorded.fft_r2c(input, dims, how, False)


def _halved(input: Tensor, dims: Shape, sizes: Shape | None, norm: Any, function: str) -> Tensor:
    if not dims:
        raise RuntimeError(f"{function} must transform at least one axis")
    input = _resized(_real(input, function), dims, sizes)
    return recorded.fft_r2c(input, dims, _normalization(norm, True), True)


def _mirrored(
    input: Tensor, dims: Shape, sizes: Shape | None, norm: int, function: str, conjugate: bool
) -> Tensor:
    """From the half of a signal whose other half is its mirror image to real numbers."""
    if not dims:
        raise RuntimeError(f"{function} must transform at least one axis")
    input = _complex(input, function)
    last = 2 * (input._array.shape[dims[-1]] - 1)
    if sizes is not None and sizes[-1] != -1:
        last = sizes[-1]
    if last < 1:
        raise RuntimeError(f"Invalid number of data points ({last}) specified")
    rest = (-1,) * (len(dims) - 1) if sizes is None else sizes[:-1]
    shape = (*rest, last // 2 + 1)
    input = _resized(input, dims, shape)
    return recorded.fft_c2r(recorded.conj(input) if conjugate else input, dims, norm, last)


# One dim ------------------------------------------------------------------------------------------


def fft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The transform along one dim, cut or filled up with zeros to `n` points.

    >>> import cugrad as torch
    >>> torch.fft.fft(torch.tensor([1.0, 2.0, 3.0, 2.0])).real
    tensor([ 8., -2.,  0., -2.])
    """
    return _transform(_prepared(input, "fft"), *_one_dim(input, n, dim), norm, True, "fft")


def ifft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The inverse of `fft`."""
    return _transform(_prepared(input, "ifft"), *_one_dim(input, n, dim), norm, False, "ifft")


def rfft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The first half of `fft` of real numbers; the other half is its mirror image."""
    return _halved(_real(input, "rfft"), *_one_dim(input, n, dim), norm, "rfft")


def irfft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The inverse of `rfft`: real numbers, `n` of them, or 2 (m - 1) for m inputs."""
    dims, sizes = _one_dim(_prepared(input, "irfft"), n, dim)
    return _mirrored(input, dims, sizes, _normalization(norm, False), "irfft", False)


def hfft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """`fft` of a signal that is its own mirror image, of which half is given: real numbers."""
    dims, sizes = _one_dim(_prepared(input, "hfft"), n, dim)
    return _mirrored(input, dims, sizes, _normalization(norm, True), "hfft", True)


def ihfft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The inverse of `hfft`."""
    dims, sizes = _one_dim(_real(input, "ihfft"), n, dim)
    return ihfftn(input, sizes, dims, norm)


# Several dims -------------------------------------------------------------------------------------


def fftn(input: Tensor, s: Any = None, dim: Any = None, norm: str | None = None) -> Tensor:
    """The transform along several dims, by default all of them."""
    return _transform(_prepared(input, "fftn"), *_many_dims(input, s, dim), norm, True, "fftn")


def ifftn(input: Tensor, s: Any = None, dim: Any = None, norm: str | None = None) -> Tensor:
    """The inverse of `fftn`."""
    return _transform(_prepared(input, "ifftn"), *_many_dims(input, s, dim), norm, False, "ifftn")


def rfftn(input: Tensor, s: Any = None, dim: Any = None, norm: str | None = None) -> Tensor:
    """`fftn` of real numbers, with half of the last dim left out."""
    return _halved(_real(input, "rfftn"), *_many_dims(input, s, dim), norm, "rfftn")


def irfftn(input: Tensor, s: Any = None, dim: Any = None, norm: str | None = None) -> Tensor:
    """The inverse of `rfftn`.

    >>> import cugrad as torch
    >>> x = torch.arange(8.0).reshape(2, 4)
    >>> torch.allclose(torch.fft.irfftn(torch.fft.rfftn(x)), x)
    True
    """
    dims, sizes = _many_dims(_prepared(input, "irfftn"), s, dim)
    return _mirrored(input, dims, sizes, _normalization(norm, False), "irfftn", False)


def hfftn(input: Tensor, s: Any = None, dim: Any = None, norm: str | None = None) -> Tensor:
    """`fftn` of a signal with a mirror image, of which half of the last dim is given."""
    dims, sizes = _many_dims(_prepared(input, "hfftn"), s, dim)
    return _mirrored(input, dims, sizes, _normalization(norm, True), "hfftn", True)


def ihfftn(input: Tensor, s: Any = None, dim: Any = None, norm: str | None = None) -> Tensor:
    """The inverse of `hfftn`."""
    dims, sizes = _many_dims(_real(input, "ihfftn"), s, dim)
    if not dims:
        raise RuntimeError("ihfftn must transform at least one axis")
    input = _resized(_prepared(input, "ihfftn"), dims, sizes)
    return recorded.conj(recorded.fft_r2c(input, dims, _normalization(norm, False), True))


def fft2(input: Tensor, s: Any = None, dim: Any = (-2, -1), norm: str | None = None) -> Tensor:
    """`fftn` over two dims."""
    return fftn(input, s, dim, norm)


def ifft2(input: Tensor, s: Any = None, dim: Any = (-2, -1), norm: str | None = None) -> Tensor:
    """`ifftn` over two dims."""
    return ifftn(input, s, dim, norm)


def rfft2(input: Tensor, s: Any = None, dim: Any = (-2, -1), norm: str | None = None) -> Tensor:
    """`rfftn` over two dims."""
    return rfftn(input, s, dim, norm)


def irfft2(input: Tensor, s: Any = None, dim: Any = (-2, -1), norm: str | None = None) -> Tensor:
    """`irfftn` over two dims."""
    return irfftn(input, s, dim, norm)


def hfft2(input: Tensor, s: Any = None, dim: Any = (-2, -1), norm: str | None = None) -> Tensor:
    """`hfftn` over two dims."""
    return hfftn(input, s, dim, norm)


def ihfft2(input: Tensor, s: Any = None, dim: Any = (-2, -1), norm: str | None = None) -> Tensor:
    """`ihfftn` over two dims."""
    return ihfftn(input, s, dim, norm)


# Frequencies --------------------------------------------------------------------------------------


def fftfreq(
    n: int, d: float = 1.0, *, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """The frequencies of the elements of `fft` of `n` points that are `d` apart.

    >>> import cugrad as torch
    >>> torch.fft.fftfreq(5, 0.5)
    tensor([ 0.0000,  0.4000,  0.8000, -0.8000, -0.4000])
    """
    steps = [*range((n + 1) // 2), *range(-(n // 2), 0)]
    return _frequencies(steps, n, d, dtype, device, requires_grad)


def rfftfreq(
    n: int, d: float = 1.0, *, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """The frequencies of the elements of `rfft`, none of them negative."""
    return _frequencies(list(range(n // 2 + 1)), n, d, dtype, device, requires_grad)


def _frequencies(
    steps: list[int], n: int, d: float, dtype: Any, device: Any, requires_grad: bool
) -> Tensor:
    kind = dtypes.get_default_dtype() if dtype is None else dtype
    x = creation.tensor(steps, dtype=kind, device=device) * (1 / (n * d) if n else math.inf)
    return x.requires_grad_(requires_grad)


def fftshift(input: Tensor, dim: Any = None) -> Tensor:
    """The elements rolled so that frequency zero stands in the middle."""
    return _shifted(input, dim, lambda n: n // 2)


def ifftshift(input: Tensor, dim: Any = None) -> Tensor:
    """The inverse of `fftshift`."""
    return _shifted(input, dim, lambda n: (n + 1) // 2)


def _shifted(input: Tensor, dim: Any, by: Any) -> Tensor:
    shape = array_of(input, "fftshift").shape
    dims: Sequence[int] = range(len(shape)) if dim is None else int_tuple(dim, "dim")
    dims = tuple([canonical_dim(d, len(shape)) for d in dims])
    return roll(input, tuple([by(shape[d]) for d in dims]), dims) if dims else input.clone()


_TAKE_OUT = set(__all__) - {"fftshift", "ifftshift"}
globals().update(accepting({n: globals()[n] for n in __all__}, _TAKE_OUT, __name__))


explain(__name__)
