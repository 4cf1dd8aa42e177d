"""Functions of nn that are functions of torch itself too."""

from __future__ import annotations

from ..functions import accepting
from . import functional
from .functional import (
    adaptive_avg_pool1d,
    avg_pool1d,
    celu,
    celu_,
    conv1d,
    conv2d,
    conv3d,
    conv_tbc,
    conv_transpose1d,
    conv_transpose2d,
    conv_transpose3d,
    cosine_similarity,
    feature_dropout,
    group_norm,
    layer_norm,
    max_pool1d,
    max_pool1d_with_indices,
    max_pool2d,
    max_pool3d,
    pairwise_distance,
    prelu,
    rms_norm,
    rrelu,
    rrelu_,
    selu,
    selu_,
    threshold_,
)

__all__ = [
    "adaptive_avg_pool1d", "avg_pool1d", "celu", "celu_", "conv1d", "conv2d", "conv3d",
    "conv_tbc", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "cosine_similarity",
    "feature_dropout", "group_norm", "layer_norm", "log_softmax", "max_pool1d",
    "max_pool1d_with_indices", "max_pool2d", "max_pool3d", "pairwise_distance", "prelu",
    "rms_norm", "rrelu", "rrelu_", "selu", "selu_", "softmax", "threshold", "threshold_",
]  # fmt: skip

# In torch itself these have out=.
_TAKE_OUT = ("log_softmax", "softmax", "threshold")
log_softmax, softmax, threshold = accepting(
    {name: getattr(functional, name) for name in _TAKE_OUT}, _TAKE_OUT
).values()
