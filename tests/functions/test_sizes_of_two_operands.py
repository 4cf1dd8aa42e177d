"""Functions of two tensors, of any two sizes: which ones they refuse, and what the others give."""

from __future__ import annotations

import warnings
from itertools import product
from operator import attrgetter
from typing import Any

import numpy as np
import pytest

import cugrad

torch = pytest.importorskip("torch", reason="PyTorch, the oracle, is not installed")

pytestmark = pytest.mark.host_only

# `linalg.lstsq` broadcasts more than PyTorch's: docs/torch-compatibility.md
OF_TWO = [
    "allclose", "atan2", "bmm", "broadcast_tensors", "cartesian_prod", "cdist", "complex",
    "copysign", "cross", "cumulative_trapezoid", "dist", "dot", "equal", "heaviside", "hypot",
    "inner", "isclose", "isin", "kron", "linalg.cross", "linalg.householder_product",
    "linalg.matmul", "linalg.solve", "linalg.vecdot", "matmul", "maximum", "meshgrid", "mm",
    "mv", "outer", "polar", "searchsorted", "tensordot", "trapezoid", "vdot", "xlogy",
    "nn.functional.binary_cross_entropy", "nn.functional.binary_cross_entropy_with_logits",
    "nn.functional.cosine_similarity", "nn.functional.hinge_embedding_loss",
    "nn.functional.huber_loss", "nn.functional.kl_div", "nn.functional.l1_loss",
    "nn.functional.linear", "nn.functional.mse_loss",
    "nn.functional.multilabel_soft_margin_loss", "nn.functional.pairwise_distance",
    "nn.functional.poisson_nll_loss", "nn.functional.prelu", "nn.functional.smooth_l1_loss",
    "nn.functional.soft_margin_loss",
]  # fmt: skip
OF_A_LIST = ["cat", "column_stack", "dstack", "hstack", "linalg.multi_dot", "stack", "vstack"]
SHAPES = [(), (0,), (1,), (3,), (4,), (1, 1), (1, 3), (3, 1), (3, 3), (2, 3), (3, 2), (0, 3),
          (2, 3, 3), (2, 1, 3)]  # fmt: skip
NUMBERS = np.random.default_rng(0).uniform(0.1, 0.9, (2, 18))


def answer(lib: Any, name: str, shapes: tuple[Any, ...]) -> Any:
    """What a function makes of tensors of two shapes, or the name of its error."""
    given = [
        lib.tensor(row[: np.prod(shape, dtype=int)].reshape(shape))
        for row, shape in zip(NUMBERS, shapes, strict=True)
    ]
    function = attrgetter(name)(lib)
    try:
        return facts(function(given) if name in OF_A_LIST else function(*given), lib.Tensor)
    except ValueError:
        return "ValueError"
    except (IndexError, RuntimeError):  # of two faults either may be named
        return "an error"


def facts(value: Any, tensor_type: type) -> Any:
    if isinstance(value, (tuple, list)):
        return [facts(x, tensor_type) for x in value]
    return value.numpy() if isinstance(value, tensor_type) else value


def same(want: Any, got: Any) -> bool:
    if isinstance(want, list):
        return isinstance(got, list) and len(want) == len(got) and all(map(same, want, got))
    if isinstance(want, np.ndarray):
        if not isinstance(got, np.ndarray) or (want.shape, want.dtype) != (got.shape, got.dtype):
            return False
        return np.allclose(want, got, equal_nan=True)
    return type(want) is type(got) and want == got


@pytest.mark.parametrize("name", OF_TWO + OF_A_LIST)
def test_what_pytorch_refuses_is_refused_and_the_rest_is_the_same(name: str) -> None:
    for shapes in product(SHAPES, SHAPES):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            want, got = (answer(lib, name, shapes) for lib in (torch, cugrad))
        assert same(want, got), f"{shapes}: want {want}, got {got}"
