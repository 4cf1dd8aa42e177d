"""Windows that fade a signal in and out, of torch itself and of torch.signal.windows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import pi
from operator import index
from typing import Any

import numpy as np

from .. import dtypes
from ..backends import get
from ..backends.tables import table_of
from ..device import default_device
from ..device import device as Device
from ..functions import accepting
from ..functions.calls.out import strided
from ..functions.creation import factories as creation
from ..runtime.absent import explain
from ..tensor import Tensor

__all__ = [
    "bartlett", "bartlett_window", "blackman", "blackman_window", "cosine", "exponential",
    "gaussian", "general_cosine", "general_hamming", "hamming", "hamming_window", "hann",
    "hann_window", "kaiser", "kaiser_window", "nuttall",
]  # fmt: skip

Array = Any


# Shapes of windows, at points n of a period, and with numbers that say more.


def _cosines(xp: Any, n: Array, period: int, *weights: float) -> Array:
    """w0 - w1 cos(2πt) + w2 cos(4πt) - ..., with t the part of the period."""
    t = n / period
    return sum(w * (-1.0) ** k * xp.cos(2 * pi * k * t) for k, w in enumerate(weights))


def _triangle(xp: Any, n: Array, period: int) -> Array:
    return 1 - xp.abs(2 * (n / period) - 1)


def _kaiser(xp: Any, n: Array, period: int, beta: float) -> Array:
    inside = xp.maximum(1 - (2 * (n / period) - 1) ** 2, 0)
    return _bessel(xp, beta * xp.sqrt(inside)) / float(np.i0(beta))


def _bessel(xp: Any, x: Array) -> Array:
    return np.i0(x) if xp is np else xp.special.i0(x)


def _sine(xp: Any, n: Array, period: int, points: int) -> Array:
    return xp.sin(pi * (n + 0.5) / points)


def _bell(xp: Any, n: Array, period: int, middle: float, std: float) -> Array:
    return xp.exp(-(((n - middle) / std) ** 2) / 2)


def _decay(xp: Any, n: Array, period: int, middle: float, tau: float) -> Array:
    return xp.exp(-xp.abs(n - middle) / tau)


Shape = tuple[Any, ...]  # one of these functions and its numbers


def _window(
    name: str, m: int, periodic: bool, shape: Shape, dtype: Any, device: Any, requires_grad: bool,
) -> Tensor:  # fmt: skip
    """A shape at m points of a period; a periodic window leaves out the last of m + 1."""
    kind = dtypes.get_default_dtype() if dtype is None else dtypes.as_dtype(dtype)
    if not kind.is_floating_point:
        raise RuntimeError(f"{name} expects floating point dtypes, got: {kind}")
    m = index(m)
    if m < 0:
        raise RuntimeError(f"{name} requires non-negative window_length, got window_length={m}")
    if m <= 1:
        return creation.ones((m,), dtype=kind, device=device, requires_grad=requires_grad)
    place = default_device() if device is None else Device(device)
    backend, (function, *more) = get(place.type), shape
    period = m if periodic else m - 1
    with backend.use_device(place.index):
        values = table_of(backend, (m,), kind.numpy, function, period, *more)
    return creation._finish(values, requires_grad)


def _signal_window(
    name: str, m: int, sym: bool, shape: Shape, dtype: Any, layout: Any, device: Any,
    requires_grad: bool,
) -> Tensor:  # fmt: skip
    """As `_window`, with the errors of torch.signal.windows."""
    kind = dtypes.get_default_dtype() if dtype is None else dtypes.as_dtype(dtype)
    if kind not in (dtypes.float32, dtypes.float64):
        raise ValueError(f"{name} expects float32 or float64 dtypes, got: {kind}")
    if m < 0:
        raise ValueError(f"{name} requires non-negative window length, got M={m}")
    if layout is not strided:
        raise ValueError(f"{name} is implemented for strided tensors only, got: {layout}")
    return _window(name, m, not sym, shape, kind, device, requires_grad)


def hann_window(
    window_length: int, periodic: bool = True, *, dtype: Any = None, device: Any = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """sin²(πn / N), with N = window_length where `periodic`, else one less.

    >>> import cugrad as torch
    >>> torch.hann_window(4)
    tensor([0.0000, 0.5000, 1.0000, 0.5000])
    """
    weights = (_cosines, 0.5, 0.5)
    return _window("hann_window", window_length, periodic, weights, dtype, device, requires_grad)


def hamming_window(
    window_length: int, periodic: bool = True, alpha: float = 0.54, beta: float = 0.46, *,
    dtype: Any = None, device: Any = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """alpha - beta cos(2πn / N)."""
    weights = (_cosines, alpha, beta)
    return _window("hamming_window", window_length, periodic, weights, dtype, device, requires_grad)


def blackman_window(
    window_length: int, periodic: bool = True, *, dtype: Any = None, device: Any = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """0.42 - 0.5 cos(2πn / N) + 0.08 cos(4πn / N)."""
    shape = (_cosines, 0.42, 0.5, 0.08)
    return _window("blackman_window", window_length, periodic, shape, dtype, device, requires_grad)


def bartlett_window(
    window_length: int, periodic: bool = True, *, dtype: Any = None, device: Any = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """A triangle that is zero at both ends."""
    name, n = "bartlett_window", window_length
    return _window(name, n, periodic, (_triangle,), dtype, device, requires_grad)


def kaiser_window(
    window_length: int, periodic: bool = True, beta: float = 12.0, *, dtype: Any = None,
    device: Any = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """I0(beta sqrt(1 - (2n/N - 1)²)) / I0(beta), with I0 the modified Bessel function."""
    name, n = "kaiser_window", window_length
    return _window(name, n, periodic, (_kaiser, beta), dtype, device, requires_grad)


# torch.signal.windows ---------------------------------------------------------------------------


def general_cosine(
    M: int, *, a: Iterable[float], sym: bool = True, dtype: Any = None, layout: Any = strided,
    device: Any = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """A sum of cosines with the weights `a`, of alternating signs."""
    if not isinstance(a, Iterable):
        raise TypeError("Coefficients must be a list/tuple")
    weights = list(a)
    if not weights:
        raise ValueError("Coefficients cannot be empty")
    shape = (_cosines, *weights)
    return _signal_window("general_cosine", M, sym, shape, dtype, layout, device, requires_grad)


def general_hamming(
    M: int, *, alpha: float = 0.54, sym: bool = True, dtype: Any = None, layout: Any = strided,
    device: Any = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """alpha - (1 - alpha) cos(2πn / N)."""
    shape = (_cosines, alpha, 1 - alpha)
    return _signal_window("general_hamming", M, sym, shape, dtype, layout, device, requires_grad)


def _fixed(name: str, shape: Shape, doc: str) -> Callable[..., Tensor]:
    def window(
        M: int, *, sym: bool = True, dtype: Any = None, layout: Any = strided, device: Any = None,
        requires_grad: bool = False,
    ) -> Tensor:  # fmt: skip
        return _signal_window(name, M, sym, shape, dtype, layout, device, requires_grad)

    window.__name__ = window.__qualname__ = name
    window.__doc__ = doc
    return window


hamming = _fixed("hamming", (_cosines, 0.54, 0.46), "0.54 - 0.46 cos(2πn / N).")
hann = _fixed("hann", (_cosines, 0.5, 0.5), "0.5 - 0.5 cos(2πn / N).")
blackman = _fixed("blackman", (_cosines, 0.42, 0.5, 0.08), "Three cosines: 0.42, 0.5, 0.08.")
bartlett = _fixed("bartlett", (_triangle,), "A triangle that is zero at both ends.")
nuttall = _fixed(
    "nuttall", (_cosines, 0.3635819, 0.4891775, 0.1365995, 0.0106411), "Nuttall's four cosines."
)


def kaiser(
    M: int, *, beta: float = 12.0, sym: bool = True, dtype: Any = None, layout: Any = strided,
    device: Any = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Kaiser's window: `beta` trades the width of its peak for the height of its side lobes."""
    if beta < 0:
        raise ValueError(f"beta must be non-negative, got: {beta} instead.")
    return _signal_window("kaiser", M, sym, (_kaiser, beta), dtype, layout, device, requires_grad)


def cosine(
    M: int,
    *,
    sym: bool = True,
    dtype: Any = None,
    layout: Any = strided,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """sin(π (n + 1/2) / M), with one more point in M where not `sym`."""
    shape = (_sine, M + (not sym))
    return _signal_window("cosine", M, sym, shape, dtype, layout, device, requires_grad)


def gaussian(
    M: int, *, std: float = 1.0, sym: bool = True, dtype: Any = None, layout: Any = strided,
    device: Any = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """exp(-x² / 2 std²), with x the distance from the middle in samples."""
    if std <= 0:
        raise ValueError(f"Standard deviation must be positive, got: {std} instead.")
    middle = (M - sym) / 2
    shape = (_bell, middle, std)
    return _signal_window("gaussian", M, sym, shape, dtype, layout, device, requires_grad)


def exponential(
    M: int, *, center: float | None = None, tau: float = 1.0, sym: bool = True, dtype: Any = None,
    layout: Any = strided, device: Any = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """exp(-|x| / tau), with x the distance from `center`, the middle by default."""
    if tau <= 0:
        raise ValueError(f"Tau must be positive, got: {tau} instead.")
    if sym and center is not None:
        raise ValueError("Center must be None for symmetric windows")
    middle = (M - sym) / 2 if center is None else center
    shape = (_decay, middle, tau)
    return _signal_window("exponential", M, sym, shape, dtype, layout, device, requires_grad)


globals().update(accepting({name: globals()[name] for name in __all__}, (), __name__))
explain(__name__)
