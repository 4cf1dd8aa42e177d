"""Numbers drawn into a tensor's place, and counts: Poisson and binomial."""

from __future__ import annotations

from collections.abc import Callable
from math import pi
from typing import Any

import numpy as np

from ... import dtypes
from ...autograd.recording.inplace import may_be_overwritten
from ...autograd.recording.operands import number
from ...autograd.recording.record import recorded
from ...autograd.recording.views import changed
from ...backends import backend_of
from ...backends.batched.arrays import levels_of
from ...backends.several import cast
from ...ops import random as draw
from ...tensor import Tensor, make
from .random import (
    Generator,
    _float_dtype,
    bernoulli,
    can_be_read,
    check_bounds,
    multinomial,
    source_of,
)

__all__ = ["METHODS", "binomial", "poisson"]


def poisson(input: Tensor, generator: Generator | None = None) -> Tensor:
    """Poisson counts in the shape and dtype of the rates `input`; the gradient is zero.

    RuntimeError for a negative rate, which is looked for in host memory only.

    >>> import cugrad as torch
    >>> torch.poisson(torch.zeros(3))
    tensor([0., 0., 0.])
    """
    kind = _float_dtype("poisson", input.dtype)
    if can_be_read(input) and bool((input._array < 0).any()):
        raise RuntimeError("invalid Poisson rate, expected rate to be non-negative")
    drawn = draw.poisson(source_of(generator), input._array, input.device)
    return _without_gradient(input, make(cast(drawn, kind)))


def binomial(count: Tensor, prob: Tensor, generator: Generator | None = None) -> Tensor:
    """How many of `count` trials succeed with probability `prob`, element by element, broadcast.

    ValueError for integers, RuntimeError unless both have one dtype.
    """
    for name, x in (("count", count), ("prob", prob)):
        if not x.dtype.is_floating_point:
            raise ValueError(
                f"binomial only supports floating-point dtypes for {name}, got: "
                f"{dtypes.type_name(x.dtype)}"
            )
    if count.dtype is not prob.dtype:
        raise RuntimeError(
            f"binomial: Found dtype {dtypes.type_name(count.dtype)} but expected "
            f"{dtypes.type_name(prob.dtype)}; convert one of count and prob"
        )
    drawn = draw.binomial(source_of(generator), count._array, prob._array, count.device)
    return make(cast(drawn, count._array.dtype))


def _without_gradient(input: Tensor, drawn: Tensor) -> Tensor:
    """What was drawn, as an op on `input` whose gradient is zero."""
    return recorded.copy(input, drawn) if input._requires_grad else drawn


# In place -----------------------------------------------------------------------------------------


def overwritten(tensor: Tensor, draw_to: Callable[[Any], Any]) -> Tensor:
    """A tensor with the elements of an array of its shape, cast.

    `draw_to` makes the array; it may write to the one that it is told, and answer with that.
    """
    home = tensor._array if may_be_overwritten(tensor) else None
    array = draw_to(home)
    if array is home:
        changed(tensor)
        return tensor
    if set(levels_of(array)) - set(levels_of(tensor._array)):
        raise RuntimeError(
            "vmap: Cannot ask for different inplace randomness on an unbatched tensor. This will "
            "appear like same randomness. Draw out of place, or ask for randomness='same'."
        )
    return tensor.copy_(make(array))


def _numbers(function: str, **arguments: Any) -> list[Any]:
    """Arguments as Python's numbers; TypeError for a tensor of more than one."""
    return [number(value, function, name.rstrip("_")) for name, value in arguments.items()]


def uniform_(
    self: Tensor, from_: float = 0, to: float = 1, *, generator: Generator | None = None
) -> Tensor:
    """Fills a tensor from the uniform distribution on [from_, to)."""
    from_, to = _numbers("uniform_", from_=from_, to=to)
    if from_ > to:
        raise RuntimeError(
            f"uniform_ expects to return a [from, to) range, but found from={from_} > to={to}"
        )
    told = source_of(generator), self._array.shape, _float_dtype("uniform_", self.dtype)
    return overwritten(self, lambda out: draw.uniform(*told, self.device, from_, to, out))


def normal_(
    self: Tensor, mean: float = 0, std: float = 1, *, generator: Generator | None = None
) -> Tensor:
    """Fills a tensor from the normal distribution; RuntimeError for a negative `std`."""
    mean, std = _numbers("normal_", mean=mean, std=std)
    if std < 0:
        raise RuntimeError(f"normal expects std >= 0.0, but found std {std}")
    told = source_of(generator), self._array.shape, _float_dtype("normal_", self.dtype)
    return overwritten(self, lambda out: draw.normal(*told, self.device, mean, std, out))


def log_normal_(
    self: Tensor, mean: float = 1, std: float = 2, *, generator: Generator | None = None
) -> Tensor:
    """Fills a tensor with exp of normal numbers; `mean` and `std` are those of the normal ones."""
    mean, std = _numbers("log_normal_", mean=mean, std=std)
    if std <= 0:
        raise RuntimeError(f"log_normal_ expects std > 0.0, but found std={std}")
    kind = _drawn_dtype("log_normal_", self)
    return _computed(self, generator, draw.NORMAL, kind, _log_normal, std, mean)


def _log_normal(xp: Any, x: Any, std: float, mean: float) -> Any:
    return xp.exp(x * std + mean)


def _computed(
    self: Tensor, generator: Generator | None, law: Any, kind: np.dtype[Any], function: Any,
    *numbers: float,
) -> Tensor:  # fmt: skip
    """A tensor filled with a function of numbers of a law, which are drawn in the dtype `kind`."""
    told = source_of(generator), law, self._array.shape, kind, self.device, function, (), numbers
    with backend_of(self._array).quiet():
        return overwritten(self, lambda out: draw.drawn(*told, self._array.dtype, out))


def _drawn_dtype(name: str, tensor: Tensor) -> np.dtype[Any]:
    """float64 for float64, else float32: halves are rounded when all is done."""
    _float_dtype(name, tensor.dtype)
    if tensor.dtype.is_complex:
        raise NotImplementedError(f'"{name}" not implemented for {tensor.dtype}')
    return np.dtype("float64" if tensor.dtype is dtypes.float64 else "float32")


def exponential_(self: Tensor, lambd: float = 1, *, generator: Generator | None = None) -> Tensor:
    """Fills a tensor from the exponential distribution with mean 1 / lambd."""
    (lambd,) = _numbers("exponential_", lambd=lambd)
    if lambd <= 0:
        raise RuntimeError(f"exponential_ expects lambda > 0.0, but found lambda={lambd}")
    _drawn_dtype("exponential_", self)  # which says what has none
    told = source_of(generator), self._array.shape, self._array.dtype
    return overwritten(self, lambda out: draw.exponential(*told, self.device, lambd, out))


def geometric_(self: Tensor, p: float, *, generator: Generator | None = None) -> Tensor:
    """Fills a tensor with the number of trials, 1 or more, up to the first success.

    Source: inversion, ceil(log(1 - u) / log(1 - p)); Devroye 1986, chapter X.2.
    """
    (p,) = _numbers("geometric_", p=p)
    if not 0 < p < 1:
        raise RuntimeError(f"geometric_ expects p to be in (0, 1), but got p={p}")
    if self.is_complex():
        raise NotImplementedError(f'"geometric_" not implemented for {self.dtype}')
    wide = self.dtype is dtypes.float64
    kind = np.dtype("float64" if wide else "float32")
    least, mean = float(np.finfo(kind).eps) / 2, 1.0 / -float(np.log1p(-p))
    return _computed(self, generator, draw.UNIFORM, kind, _geometric, least, mean)


def _geometric(xp: Any, x: Any, least: float, mean: float) -> Any:
    return xp.maximum(xp.ceil(xp.maximum(-xp.log1p(-x), least) * mean), 1)


def cauchy_(
    self: Tensor, median: float = 0, sigma: float = 1, *, generator: Generator | None = None
) -> Tensor:
    """Fills a tensor from the Cauchy distribution: median + sigma tan(pi (u - 1/2))."""
    median, sigma = _numbers("cauchy_", median=median, sigma=sigma)
    if sigma <= 0:
        raise RuntimeError(f"cauchy_ expects sigma > 0.0, but found sigma={sigma}")
    kind = _drawn_dtype("cauchy_", self)
    return _computed(self, generator, draw.UNIFORM, kind, _cauchy, sigma, median)


def _cauchy(xp: Any, x: Any, sigma: float, median: float) -> Any:
    return xp.tan((x - 0.5) * pi) * sigma + median


def bernoulli_(self: Tensor, p: Any = 0.5, *, generator: Generator | None = None) -> Tensor:
    """Fills a tensor with 0s and 1s, 1 with probability `p`, a number or a tensor."""
    chance = p._array if isinstance(p, Tensor) else p
    if not isinstance(p, Tensor) and not 0 <= p <= 1:
        raise RuntimeError(f"bernoulli_ expects p to be in [0, 1], but got p={p}")
    told = source_of(generator), chance, self._array.shape, self.device, self._array.dtype
    return overwritten(self, lambda out: draw.bernoulli(*told, out))


def random_(
    self: Tensor, from_: int | None = None, to: int | None = None, *,
    generator: Generator | None = None,
) -> Tensor:  # fmt: skip
    """Fills a tensor with integers in [from_, to), or [0, from_), or all that the dtype holds.

    `random_(to=5)` and `random_(**{"from": 2, "to": 5})` are understood as well.
    """
    if to is None:
        from_, to = 0, _one_past(self._array.dtype) if from_ is None else from_
    from_, to = _numbers("random_", from_=0 if from_ is None else from_, to=to)
    check_bounds(from_, to, self.dtype)
    told = source_of(generator), from_, to, self._array.shape, self._array.dtype, self.device
    return overwritten(self, lambda out: draw.integers(*told, out))


def _one_past(kind: np.dtype[Any]) -> int:
    """One more than the largest integer up to which all are exact: 2^24 + 1 for float32."""
    if kind.kind == "b":
        return 2
    if kind.kind in "iu":
        return min(int(np.iinfo(kind).max), 2**63 - 1) + (kind.itemsize < 8)
    return 2 ** {"bfloat16": 8, "float16": 11, "float32": 24}.get(kind.name, 53) + 1


METHODS = {
    f.__name__: f
    for f in (bernoulli, bernoulli_, cauchy_, exponential_, geometric_, log_normal_, multinomial,
              normal_, random_, uniform_)
}  # fmt: skip
