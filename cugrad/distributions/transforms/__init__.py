"""Transforms of random tensors: invertible functions with the logarithm of their Jacobian.

`transform(x)`, `transform.inv(y)` and `log_abs_det_jacobian(x, y)` are what TransformedDistribution
needs. `transform.py` has the class that all derive from: begin there. `elementwise.py` has those of
single elements, `vectors.py` those of vectors and matrices. The laws import from here.
"""

from ...runtime.absent import explain
from .elementwise import (
    AbsTransform,
    AffineTransform,
    CumulativeDistributionTransform,
    ExpTransform,
    PowerTransform,
    SigmoidTransform,
    SoftplusTransform,
    TanhTransform,
)
from .transform import ComposeTransform, Transform, identity_transform
from .vectors import (
    CatTransform,
    CorrCholeskyTransform,
    IndependentTransform,
    LowerCholeskyTransform,
    PositiveDefiniteTransform,
    ReshapeTransform,
    SoftmaxTransform,
    StackTransform,
    StickBreakingTransform,
)

__all__ = [
    "AbsTransform", "AffineTransform", "CatTransform", "ComposeTransform", "CorrCholeskyTransform",
    "CumulativeDistributionTransform", "ExpTransform", "IndependentTransform",
    "LowerCholeskyTransform", "PositiveDefiniteTransform", "PowerTransform", "ReshapeTransform",
    "SigmoidTransform", "SoftplusTransform", "TanhTransform", "SoftmaxTransform", "StackTransform",
    "StickBreakingTransform", "Transform", "identity_transform",
]  # fmt: skip


explain(__name__)
