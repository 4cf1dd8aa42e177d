"""Kullback-Leibler divergences between pairs of laws, by the classes of both.

E[log p(x) - log q(x)] of draws x of p. Source of the closed forms: Gil, Alajaji & Linder 2013,
doi:10.1016/j.ins.2013.06.018, and the laws' own moments: the expectation of log q is written by
those of p.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

from ..autograd import enable_grad, grad
from ..functions.creation.factories import full_like
from ..tensor import Tensor
from . import crossing
from .categorical import Categorical, OneHotCategorical
from .composite import Independent, TransformedDistribution
from .discrete import Bernoulli, Binomial, Geometric, Poisson
from .distribution import Distribution, ExponentialFamily
from .matrices import LowRankMultivariateNormal, MultivariateNormal
from .positive import Exponential, Gamma
from .real_line import Cauchy, Normal
from .transformed import HalfNormal
from .unit_interval import Beta, Dirichlet
from .utils import F, sum_rightmost

__all__ = ["kl_divergence", "register_kl"]

_FORMULAS: dict[tuple[type, type], Callable[[Any, Any], Tensor]] = {}


def register_kl(type_p: type, type_q: type) -> Callable[[Any], Any]:
    """A decorator: the function says the divergence of a law of one class from one of another.

    Subclasses have it too, unless something nearer is registered; what is registered later wins.
    TypeError for what is no class.
    """
    for kind in (type_p, type_q):
        if not isinstance(kind, type):  # laws of other libraries need not be derived from ours
            raise TypeError(f"Expected type to be a Distribution subclass but got {kind}")

    def register(formula: Any) -> Any:
        _FORMULAS[type_p, type_q] = formula
        return formula

    return register


def _formula(p: type, q: type) -> Callable[[Any, Any], Tensor] | None:
    """That of the nearest classes: nearest to p's first, then to q's."""
    for kind in p.__mro__:
        for other in q.__mro__:
            if (kind, other) in _FORMULAS:
                return _FORMULAS[kind, other]
    return None


def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """The divergence of `p` from `q`, of the shape of their batch.

    NotImplementedError for a pair of classes of which none is registered.

    >>> import cugrad as torch
    >>> from cugrad.distributions import Normal, kl_divergence
    >>> kl_divergence(Normal(1.0, 1.0), Normal(0.0, 1.0))
    tensor(0.5000)
    """
    formula = _formula(type(p), type(q))
    if formula is None:
        raise NotImplementedError(
            f"No KL(p || q) is implemented for p type {type(p).__name__} and q type "
            f"{type(q).__name__}: estimate it by draws, or use register_kl"
        )
    return formula(p, q)


@register_kl(Normal, Normal)
def _normals(p: Any, q: Any) -> Tensor:
    ratio = (p.scale / q.scale).square()
    return 0.5 * (ratio + ((p.loc - q.loc) / q.scale).square() - 1 - F.log(ratio))


@register_kl(Bernoulli, Bernoulli)
def _bernoullis(p: Any, q: Any) -> Tensor:
    """By log odds, and exact where a chance is 0 or 1."""
    yes = p.probs * (F.softplus(-q.logits) - F.softplus(-p.logits))
    no = (1 - p.probs) * (F.softplus(q.logits) - F.softplus(p.logits))
    yes = F.where(p.probs == 0, 0.0, F.where(q.probs == 0, inf, yes))
    no = F.where(p.probs == 1, 0.0, F.where(q.probs == 1, inf, no))
    return yes + no


@register_kl(Categorical, Categorical)
def _categoricals(p: Any, q: Any) -> Tensor:
    each = p.probs * (p.logits - q.logits)
    each = F.where((q.probs == 0).expand(each.shape), inf, each)
    return F.where((p.probs == 0).expand(each.shape), 0.0, each).sum(-1)


@register_kl(OneHotCategorical, OneHotCategorical)
def _one_hots(p: Any, q: Any) -> Tensor:
    return _categoricals(p._categorical, q._categorical)


@register_kl(Beta, Beta)
def _betas(p: Any, q: Any) -> Tensor:
    return _dirichlets(p._dirichlet, q._dirichlet)


@register_kl(Dirichlet, Dirichlet)
def _dirichlets(p: Any, q: Any) -> Tensor:
    a, b = p.concentration, q.concentration
    slopes = F.digamma(a) - F.digamma(a.sum(-1, True))
    return p._log_scale() - q._log_scale() + ((a - b) * slopes).sum(-1)


@register_kl(Gamma, Gamma)
def _gammas(p: Any, q: Any) -> Tensor:
    a, b = p.concentration, q.concentration
    rates = b * F.log(p.rate / q.rate) + a * (q.rate - p.rate) / p.rate
    return rates + F.lgamma(b) - F.lgamma(a) + (a - b) * F.digamma(a)


@register_kl(Exponential, Exponential)
def _exponentials(p: Any, q: Any) -> Tensor:
    ratio = q.rate / p.rate
    return ratio - 1 - F.log(ratio)


@register_kl(Cauchy, Cauchy)
def _cauchys(p: Any, q: Any) -> Tensor:
    """Source: Chyzak & Nielsen 2019, arXiv:1905.10965."""
    square = (p.scale + q.scale).square() + (p.loc - q.loc).square()
    return F.log(square) - F.log(4 * p.scale * q.scale)


@register_kl(HalfNormal, HalfNormal)
def _half_normals(p: Any, q: Any) -> Tensor:
    return _normals(p.base_dist, q.base_dist)


@register_kl(Poisson, Poisson)
def _poissons(p: Any, q: Any) -> Tensor:
    return p.rate * (F.log(p.rate) - F.log(q.rate)) - (p.rate - q.rate)


@register_kl(Geometric, Geometric)
def _geometrics(p: Any, q: Any) -> Tensor:
    return -p.entropy() - F.log1p(-q.probs) / p.probs - q.logits


@register_kl(Binomial, Binomial)
def _binomials(p: Any, q: Any) -> Tensor:
    n = p.total_count
    each = n * (p.probs * (p.logits - q.logits) + F.log1p(-p.probs) - F.log1p(-q.probs))
    return F.where(n > q.total_count, inf, each)


@register_kl(Bernoulli, Poisson)
def _bernoulli_of_poisson(p: Any, q: Any) -> Tensor:
    return -p.entropy() - p.probs * F.log(q.rate) + q.rate


@register_kl(Poisson, Bernoulli)
@register_kl(Poisson, Binomial)
def _beyond(p: Any, q: Any) -> Tensor:
    """Some of p's draws are none of q's."""
    return full_like(p.rate + q.probs, inf).detach()


@register_kl(MultivariateNormal, MultivariateNormal)
@register_kl(MultivariateNormal, LowRankMultivariateNormal)
@register_kl(LowRankMultivariateNormal, MultivariateNormal)
@register_kl(LowRankMultivariateNormal, LowRankMultivariateNormal)
def _normal_vectors(p: Any, q: Any) -> Tensor:
    if p.event_shape != q.event_shape:
        raise ValueError(
            f"KL of normal vectors: got events of shape {tuple(p.event_shape)} and "
            f"{tuple(q.event_shape)}, want one shape"
        )
    spread = sum(q._squares(factor) for factor in p._factors())
    distance = q._squares((q.loc - p.loc).unsqueeze(-1))
    return q._half_log_det() - p._half_log_det() + 0.5 * (spread + distance - p.event_shape[0])


@register_kl(ExponentialFamily, ExponentialFamily)
def _exponential_families(p: Any, q: Any) -> Tensor:
    """The Bregman divergence of the log normalizer, of the natural parameters of one family.

    Source: Nielsen & Nock 2010, doi:10.1109/ICIP.2010.5653054.
    """
    if type(p) is not type(q):
        raise NotImplementedError(
            f"KL of the families {type(p).__name__} and {type(q).__name__}: want one family; "
            "estimate it by draws, or use register_kl"
        )
    with enable_grad():
        # views: one parameter may be made of another, or be the same
        here = [x.view_as(x) if x.requires_grad else x.detach().requires_grad_()
                for x in p._natural_params]  # fmt: skip
        normalizer = p._log_normalizer(*here)
        slopes = grad(normalizer.sum(), here, create_graph=True)
    result = q._log_normalizer(*q._natural_params) - normalizer
    for mine, other, slope in zip(here, q._natural_params, slopes):
        result = result - sum_rightmost((other - mine) * slope, len(q.event_shape))
    return result


@register_kl(Independent, Independent)
def _independents(p: Any, q: Any) -> Tensor:
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotImplementedError("Independent: want as many reinterpreted_batch_ndims in both")
    return sum_rightmost(kl_divergence(p.base_dist, q.base_dist), p.reinterpreted_batch_ndims)


@register_kl(TransformedDistribution, TransformedDistribution)
def _transformed(p: Any, q: Any) -> Tensor:
    """A bijection changes no divergence."""
    if p.transforms != q.transforms or p.event_shape != q.event_shape:
        raise NotImplementedError("TransformedDistribution: want the same transforms in both")
    return kl_divergence(p.base_dist, q.base_dist)


for _pair, _divergence in crossing.pairs().items():
    _FORMULAS.setdefault(_pair, _divergence)
