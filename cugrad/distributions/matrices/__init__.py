"""Laws of vectors that a matrix describes, and of matrices.

`normal.py` has normal vectors and what the others share: begin there. `low_rank.py` has those whose
covariance is a product of thin matrices and a diagonal, `lkj.py` laws of correlations, `wishart.py`
of covariances.
"""

from .lkj import LKJCholesky
from .low_rank import LowRankMultivariateNormal
from .normal import MultivariateNormal
from .wishart import Wishart

__all__ = ["LKJCholesky", "LowRankMultivariateNormal", "MultivariateNormal", "Wishart"]
