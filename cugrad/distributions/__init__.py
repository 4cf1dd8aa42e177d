"""torch.distributions: laws of random tensors, their draws, densities and divergences.

`distribution.py` has what all of them share: begin there. `constraints.py` says where parameters
and events lie, `transforms` maps them, `composite.py` makes laws of others. The laws stand by where
they live, in `real_line.py`, `positive.py`, `unit_interval.py`, `discrete.py`, `categorical.py`,
`transformed.py` and `matrices`. PyTorch's module of each law is one of these.
"""

import sys as _sys

from ..runtime.absent import explain
from . import (
    categorical,
    composite,
    discrete,
    matrices,
    positive,
    real_line,
    transformed,
    unit_interval,
)
from .categorical import (
    Categorical,
    Multinomial,
    OneHotCategorical,
    OneHotCategoricalStraightThrough,
    RelaxedOneHotCategorical,
)
from .composite import Independent, MixtureSameFamily, TransformedDistribution
from .constraint_registry import biject_to, transform_to
from .discrete import Bernoulli, Binomial, Geometric, NegativeBinomial, Poisson, RelaxedBernoulli
from .distribution import Distribution, ExponentialFamily
from .kl import kl_divergence, register_kl
from .matrices import LKJCholesky, LowRankMultivariateNormal, MultivariateNormal, Wishart
from .positive import Chi2, Exponential, FisherSnedecor, Gamma, GeneralizedPareto
from .real_line import Cauchy, Laplace, Normal, StudentT, VonMises
from .transformed import (
    Gumbel,
    HalfCauchy,
    HalfNormal,
    InverseGamma,
    Kumaraswamy,
    LogisticNormal,
    LogNormal,
    Pareto,
    Weibull,
)
from .transforms import *
from .transforms import __all__ as _transforms
from .unit_interval import Beta, ContinuousBernoulli, Dirichlet, Uniform

__all__ = [
    "Bernoulli", "Beta", "Binomial", "Categorical", "Cauchy", "Chi2", "ContinuousBernoulli",
    "Dirichlet", "Distribution", "Exponential", "ExponentialFamily", "FisherSnedecor", "Gamma",
    "GeneralizedPareto", "Geometric", "Gumbel", "HalfCauchy", "HalfNormal", "Independent",
    "InverseGamma", "Kumaraswamy", "LKJCholesky", "Laplace", "LogNormal", "LogisticNormal",
    "LowRankMultivariateNormal", "MixtureSameFamily", "Multinomial", "MultivariateNormal",
    "NegativeBinomial", "Normal", "OneHotCategorical", "OneHotCategoricalStraightThrough", "Pareto",
    "Poisson", "RelaxedBernoulli", "RelaxedOneHotCategorical", "StudentT",
    "TransformedDistribution", "Uniform", "VonMises", "Weibull", "Wishart", "biject_to",
    "kl_divergence", "register_kl", "transform_to",
]  # fmt: skip
__all__ += _transforms

# PyTorch has a module for each law, which programs import: where it stands -> those modules.
for _home, _names in {
    categorical: "multinomial one_hot_categorical relaxed_categorical",
    composite: "independent mixture_same_family transformed_distribution",
    matrices.lkj: "lkj_cholesky",
    matrices.low_rank: "lowrank_multivariate_normal",
    matrices.normal: "multivariate_normal",
    matrices.wishart: "wishart",
    discrete: "bernoulli binomial geometric negative_binomial poisson relaxed_bernoulli",
    positive: "chi2 exponential fishersnedecor gamma generalized_pareto",
    real_line: "cauchy laplace normal studentT von_mises",
    transformed: """gumbel half_cauchy half_normal inverse_gamma kumaraswamy log_normal
                    logistic_normal pareto weibull""",
    unit_interval: "beta continuous_bernoulli dirichlet uniform",
}.items():
    for _name in _names.split():
        globals()[_name] = _sys.modules[f"{__name__}.{_name}"] = _home
globals()["exp_family"] = _sys.modules[__name__ + ".exp_family"] = _sys.modules[
    __name__ + ".distribution"
]

explain(__name__)
