"""Divergences between laws of real numbers, from the averages of one and the density of the other.

The divergence of p from q is -H(p) - E[log q(x)] for draws x of p. A `density` is E[log q(x)], and
the names of its parameters say which averages over p it takes; `AVERAGES` has those of each law. A
pair is there where all are. Where p puts weight outside of q's support the divergence is infinite.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from inspect import signature
from math import inf, log, pi, sqrt
from typing import Any

from ..functions.creation.factories import full_like
from ..tensor import Tensor
from .positive import Exponential, Gamma
from .real_line import Laplace, Normal
from .transformed import Gumbel, Pareto
from .unit_interval import Beta, ContinuousBernoulli, Uniform
from .utils import F

__all__ = ["pairs"]

EULER = 0.57721566490153286060
Law = Any
Average = Callable[..., Tensor]


def _x_log_x(x: Tensor) -> Tensor:
    return F.xlogy(x, x)


def _range(p: Law) -> Tensor:
    return p.high - p.low


def _moved(q: Law, average: Tensor) -> Tensor:
    """`average` of exp((loc - x) / scale), from that of exp(-x / scale)."""
    return F.exp(q.loc / q.scale) * average


def _distance_of_normal(p: Law, loc: Tensor) -> Tensor:
    """That of a folded normal variable."""
    away = (p.loc - loc) / p.scale
    near = sqrt(2 / pi) * F.exp(-0.5 * away.square())
    return p.scale * (near + away * F.erf(sqrt(0.5) * away))


def _distance_of_laplace(p: Law, loc: Tensor) -> Tensor:
    away = (p.loc - loc).abs()
    return away + p.scale * F.exp(-away / p.scale)


# The averages of a law p: of x, of its square's distance from the mean, of log x, of log (1 - x),
# of exp(-x / s), and of |x - l|. What is not there has no closed form, or no one has asked for it.
AVERAGES: dict[type, dict[str, Average]] = {
    Beta: {
        "log_x": lambda p: F.digamma(p.concentration1)
        - F.digamma(p.concentration1 + p.concentration0),
        "log_rest": lambda p: F.digamma(p.concentration0)
        - F.digamma(p.concentration1 + p.concentration0),
    },
    ContinuousBernoulli: {},
    Exponential: {
        "log_x": lambda p: -EULER - F.log(p.rate),
        "decay": lambda p, scale: p.rate / (p.rate + 1 / scale),
    },
    Gamma: {
        "log_x": lambda p: F.digamma(p.concentration) - F.log(p.rate),
        "decay": lambda p, scale: (1 + 1 / (p.rate * scale)) ** -p.concentration,
    },
    Gumbel: {
        "decay": lambda p, scale: F.exp(F.lgamma(1 + p.scale / scale) - p.loc / scale),
    },
    Laplace: {"distance": _distance_of_laplace},
    Normal: {
        "decay": lambda p, scale: F.exp(0.5 * (p.scale / scale).square() - p.loc / scale),
        "distance": _distance_of_normal,
    },
    Pareto: {"log_x": lambda p: F.log(p.scale) + 1 / p.alpha},
    Uniform: {
        "log_x": lambda p: (_x_log_x(p.high) - _x_log_x(p.low)) / _range(p) - 1,
        "log_rest": lambda p: (_x_log_x(1 - p.low) - _x_log_x(1 - p.high)) / _range(p) - 1,
        "decay": lambda p, scale: scale / _range(p)
        * (F.exp(-p.low / scale) - F.exp(-p.high / scale)),
    },
}  # fmt: skip
for _averages in AVERAGES.values():
    _averages.update(mean=lambda p: p.mean, variance=lambda p: p.variance)

# From where to where a law has weight: a number, or the parameter that says it.
Bound = float | str
SUPPORT: dict[type, tuple[Bound, Bound]] = {
    **dict.fromkeys((Beta, ContinuousBernoulli), (0.0, 1.0)),
    **dict.fromkeys((Exponential, Gamma), (0.0, inf)),
    **dict.fromkeys((Gumbel, Laplace, Normal), (-inf, inf)),
    Pareto: ("scale", inf),
    Uniform: ("low", "high"),
}


# ---------------------------------------------------------------------- densities of q

DENSITIES: dict[type, Callable[..., Tensor]] = {}


def _density(kind: type) -> Callable[[Any], Any]:
    def keep(formula: Any) -> Any:
        DENSITIES[kind] = formula
        return formula

    return keep


@_density(Beta)
def _of_beta(q: Law, log_x: Tensor, log_rest: Tensor) -> Tensor:
    a, b = q.concentration1, q.concentration0
    whole = F.lgamma(a + b) - F.lgamma(a) - F.lgamma(b)
    return (a - 1) * log_x + (b - 1) * log_rest + whole


@_density(ContinuousBernoulli)
def _of_continuous_bernoulli(q: Law, mean: Tensor) -> Tensor:
    return mean * q.logits + F.log1p(-q.probs) + q._cont_bern_log_norm()


@_density(Exponential)
def _of_exponential(q: Law, mean: Tensor) -> Tensor:
    return F.log(q.rate) - q.rate * mean


@_density(Gamma)
def _of_gamma(q: Law, mean: Tensor, log_x: Tensor) -> Tensor:
    a = q.concentration
    return a * F.log(q.rate) - F.lgamma(a) + (a - 1) * log_x - q.rate * mean


@_density(Gumbel)
def _of_gumbel(q: Law, mean: Tensor, decay: Average) -> Tensor:
    return -F.log(q.scale) - (mean - q.loc) / q.scale - _moved(q, decay(q.scale))


@_density(Laplace)
def _of_laplace(q: Law, distance: Average) -> Tensor:
    return -F.log(2 * q.scale) - distance(q.loc) / q.scale


@_density(Normal)
def _of_normal(q: Law, mean: Tensor, variance: Tensor) -> Tensor:
    spread = variance + (mean - q.loc).square()
    return -0.5 * log(2 * pi) - F.log(q.scale) - 0.5 * spread / q.scale.square()


@_density(Pareto)
def _of_pareto(q: Law, log_x: Tensor) -> Tensor:
    return F.log(q.alpha) + q.alpha * F.log(q.scale) - (q.alpha + 1) * log_x


@_density(Uniform)
def _of_uniform(q: Law) -> Tensor:
    return -F.log(_range(q))


# ---------------------------------------------------------------------- pairs


def _is_beyond(inner: Bound, outer: Bound, sign: int) -> bool:
    """Whether a bound of p's lies outside of that of q's, whatever their parameters are."""
    if isinstance(inner, str):
        return False
    if isinstance(outer, str):
        return inner == -sign * inf
    return sign * inner < sign * outer


def _infinite(p: Law, q: Law) -> Tensor:
    """For each element of the batch."""
    return full_like(p.mean, inf).expand(F.broadcast_shapes(p.batch_shape, q.batch_shape))


def _divergence(p: Law, q: Law, of: type, by: type) -> Tensor:
    values: dict[str, Any] = {}
    for name in _averages_of(by):
        average = AVERAGES[of][name]
        values[name] = partial(average, p) if name in ("decay", "distance") else average(p)
    result = -p.entropy() - DENSITIES[by](q, **values)
    for inner, outer, sign in zip(SUPPORT[of], SUPPORT[by], (1, -1)):
        if isinstance(inner, str) or isinstance(outer, str):
            first, second = (getattr(law, bound) if isinstance(bound, str) else bound
                             for law, bound in ((p, inner), (q, outer)))  # fmt: skip
            result = F.where(sign * (first - second) >= 0, result, inf)
    return result


def _averages_of(by: type) -> list[str]:
    return list(signature(DENSITIES[by]).parameters)[1:]


def pairs() -> dict[tuple[type, type], Callable[[Law, Law], Tensor]]:
    """The divergence of each pair of these laws that has one, by their classes."""
    formulas: dict[tuple[type, type], Callable[[Law, Law], Tensor]] = {}
    for of, averages in AVERAGES.items():
        for by in DENSITIES:
            bounds = zip(SUPPORT[of], SUPPORT[by], (1, -1))
            if any(_is_beyond(inner, outer, sign) for inner, outer, sign in bounds):
                formulas[of, by] = _infinite
            elif set(_averages_of(by)) <= averages.keys():
                formulas[of, by] = partial(_divergence, of=of, by=by)
    formulas[ContinuousBernoulli, Pareto] = _infinite  # the latter's scale is above 0
    return formulas
