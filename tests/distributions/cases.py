"""Distributions with parameters to try: the same lines make cugrad's and PyTorch's."""

from __future__ import annotations

from typing import Any

LOC = [[0.5, -1.0, 2.0], [0.0, 1.0, 0.5]]
SYMMETRIC = [[2.0, 0.5, 0.1], [0.5, 1.0, -0.3], [0.1, -0.3, 1.5]]
TRIANGLE = [[1.4, 0.0, 0.0], [0.5, 1.0, 0.0], [0.1, -0.3, 1.2]]
OTHER = [[1.0, 0.0, 0.0], [0.2, 2.0, 0.0], [0.3, 0.1, 0.5]]

# name of the class -> its arguments by name; lists become float64 tensors.
CASES: dict[str, dict[str, Any]] = {
    "Bernoulli": {"probs": [0.2, 0.7]},
    "Bernoulli of logits": {"logits": [-1.0, 0.5]},
    "Beta": {"concentration1": [0.6, 3.0], "concentration0": [2.0, 1.5]},
    "Binomial": {"total_count": 6, "probs": [0.2, 0.7]},
    "Binomial of logits": {"total_count": 6, "logits": [-1.0, 0.5]},
    "Categorical": {"probs": [[0.2, 0.3, 0.5], [1.0, 2.0, 1.0]]},
    "Categorical of logits": {"logits": [[0.2, 0.3, -0.5], [1.0, 2.0, 1.0]]},
    "Cauchy": {"loc": [0.5, -1.0], "scale": [1.0, 2.0]},
    "Chi2": {"df": [3.0, 5.5]},
    "ContinuousBernoulli": {"probs": [0.2, 0.45, 0.8]},
    "ContinuousBernoulli of logits": {"logits": [-1.0, 0.001, 0.8]},
    "Dirichlet": {"concentration": [[0.7, 2.0, 3.0], [1.5, 1.2, 4.0]]},
    "Exponential": {"rate": [0.5, 2.0]},
    "FisherSnedecor": {"df1": [3.0, 5.0], "df2": [9.0, 12.0]},
    "Gamma": {"concentration": [0.6, 3.0], "rate": [2.0, 0.5]},
    "GeneralizedPareto": {"loc": [0.0, 1.0], "scale": [1.0, 2.0], "concentration": [0.2, -0.3]},
    "Geometric": {"probs": [0.3, 0.8]},
    "Geometric of logits": {"logits": [-0.3, 0.8]},
    "Gumbel": {"loc": [0.5, -1.0], "scale": [1.0, 2.0]},
    "HalfCauchy": {"scale": [1.0, 2.0]},
    "HalfNormal": {"scale": [1.0, 2.0]},
    "InverseGamma": {"concentration": [5.0, 6.0], "rate": [2.0, 0.5]},
    "Kumaraswamy": {"concentration1": [1.6, 3.0], "concentration0": [2.0, 1.5]},
    "Laplace": {"loc": [0.5, -1.0], "scale": [1.0, 2.0]},
    "LKJCholesky": {"dim": 3, "concentration": [0.7, 2.5]},
    "LogNormal": {"loc": [0.5, -1.0], "scale": [0.5, 0.3]},
    "LogisticNormal": {"loc": [0.5, -1.0], "scale": [0.5, 0.3]},
    "LowRankMultivariateNormal": {
        "loc": [[0.5, -1.0, 2.0], [0.0, 1.0, 0.5]],
        "cov_diag": [1.0, 2.0, 0.5],
        "cov_factor": [[1.0, 0.5], [-0.3, 2.0], [0.2, 0.1]],
    },
    "Multinomial": {"total_count": 5, "probs": [[0.2, 0.3, 0.5], [0.4, 0.4, 0.2]]},
    "MultivariateNormal": {"loc": LOC, "covariance_matrix": SYMMETRIC},
    "MultivariateNormal of factors": {"loc": [0.5, -1.0, 2.0], "scale_tril": [TRIANGLE, OTHER]},
    "MultivariateNormal of a precision": {"loc": LOC, "precision_matrix": SYMMETRIC},
    "NegativeBinomial": {"total_count": [3.0, 4.5], "probs": [0.2, 0.6]},
    "NegativeBinomial of logits": {"total_count": 3, "logits": [-0.2, 0.6]},
    "Normal": {"loc": [0.5, -1.0], "scale": [1.0, 2.0]},
    "OneHotCategorical": {"probs": [[0.2, 0.3, 0.5], [0.4, 0.4, 0.2]]},
    "OneHotCategoricalStraightThrough": {"logits": [[0.2, 0.3, 0.5], [1.0, 2.0, 1.0]]},
    "Pareto": {"scale": [1.0, 2.0], "alpha": [5.0, 6.0]},
    "Poisson": {"rate": [0.5, 4.0]},
    "RelaxedBernoulli": {"temperature": [0.7], "probs": [0.2, 0.7]},
    "RelaxedOneHotCategorical": {"temperature": [0.7], "logits": [[0.2, 0.3, -0.5]]},
    "StudentT": {"df": [5.0, 8.0], "loc": [0.5, -1.0], "scale": [1.0, 2.0]},
    "Uniform": {"low": [0.0, -1.0], "high": [1.0, 3.0]},
    "VonMises": {"loc": [0.5, -1.0], "concentration": [1.0, 4.0]},
    "Weibull": {"scale": [1.0, 2.0], "concentration": [1.5, 2.5]},
    "Wishart": {"df": [4.0, 6.5], "covariance_matrix": SYMMETRIC},
    "Wishart of a factor": {"df": 5.0, "scale_tril": TRIANGLE},
}


def made(library: Any, name: str, **options: Any) -> Any:
    """The distribution of a line, of cugrad's or of PyTorch's, and its tensors, which want a grad.

    Returns (distribution, tensors by name).
    """
    arguments = {
        key: library.tensor(value, dtype=library.float64, requires_grad=True)
        if isinstance(value, list)
        else value
        for key, value in CASES[name].items()
    }
    law = getattr(library.distributions, name.partition(" ")[0])(**arguments, **options)
    return law, {k: v for k, v in arguments.items() if isinstance(v, library.Tensor)}
