"""What distributions share: broadcast parameters, probabilities and logits, values made once."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from .. import dtypes, linalg
from ..autograd import enable_grad
from ..backends.batched.arrays import levels_of
from ..functions import FUNCTIONS
from ..functions.creation.factories import full, full_like, ones_like, tensor, zeros_like
from ..functions.creation.random import rand, randn
from ..functions.queries import finfo
from ..nn import functional
from ..tensor import Tensor

__all__ = [
    "F", "allowed_to_read", "broadcast_all", "clamp_probs", "decided", "extremes", "is_number",
    "lazy_property", "logits_to_probs", "normal_like", "probs_to_logits", "sum_rightmost",
    "tril_matrix_to_vec", "uniform_like", "vec_to_tril_matrix",
]  # fmt: skip

# The functions of cugrad, which stand in rooms below or beside this one.
F: Any = SimpleNamespace(
    **{
        **FUNCTIONS,
        **linalg.FUNCTIONS,
        **{name: getattr(functional, name) for name in
           ("softmax", "log_softmax", "softplus", "logsigmoid")},
        "full_like": full_like, "ones_like": ones_like, "zeros_like": zeros_like,
    }
)  # fmt: skip


def is_number(value: Any) -> bool:
    """Whether a value is a Python number, a bool among them."""
    return isinstance(value, (int, float))


def broadcast_all(*values: Any) -> tuple[Tensor, ...]:
    """Tensors and numbers as tensors of one shape; numbers get the dtype of the first tensor.

    Without a tensor they get the default dtype. ValueError for what is neither.

    >>> import cugrad as torch
    >>> [x.shape for x in torch.distributions.utils.broadcast_all(torch.zeros(3), 1.0)]
    [torch.Size([3]), torch.Size([3])]
    """
    if not all(isinstance(value, Tensor) or is_number(value) for value in values):
        kinds = ", ".join(type(value).__name__ for value in values)
        raise ValueError(
            "Input arguments must all be instances of Number, torch.Tensor or objects implementing "
            f"__torch_function__, got {kinds}"
        )
    if not all(isinstance(value, Tensor) for value in values):
        first = next((value for value in values if isinstance(value, Tensor)), None)
        kind = dtypes.get_default_dtype() if first is None else first.dtype
        place = None if first is None else first.device
        values = tuple(
            value if isinstance(value, Tensor) else tensor(value, dtype=kind, device=place)
            for value in values
        )
    return tuple(F.broadcast_tensors(*values))


def extremes(x: Tensor) -> Any:
    """`finfo` of a tensor's dtype."""
    return finfo(x.dtype)


def uniform_like(x: Tensor, shape: Any) -> Tensor:
    """Uniform numbers in [tiny, 1) of the dtype and device of `x`: their logarithm is finite."""
    drawn = rand(tuple(shape), dtype=x.dtype, device=x.device)
    return drawn.clamp(min=extremes(x).tiny)


def normal_like(x: Tensor, shape: Any) -> Tensor:
    """Standard normal numbers of the dtype and device of `x`."""
    return randn(tuple(shape), dtype=x.dtype, device=x.device)


def allowed_to_read(*values: Any) -> bool:
    """Whether values may decide what Python does next: not inside vmap, where there are many."""
    return not any(isinstance(x, Tensor) and levels_of(x._array) for x in values)


def decided(holds: Tensor) -> bool:
    """Whether a condition holds everywhere, as far as one may ask."""
    return not allowed_to_read(holds) or bool(holds.all())


def sum_rightmost(value: Tensor, dims: int) -> Tensor:
    """The sum over the last `dims` dims."""
    return value if dims == 0 else value.reshape(*value.shape[: value.dim() - dims], -1).sum(-1)


def logits_to_probs(logits: Tensor, is_binary: bool = False) -> Tensor:
    """The probabilities of log odds, element by element if binary, else along the last dim."""
    return F.sigmoid(logits) if is_binary else F.softmax(logits, dim=-1)


def clamp_probs(probs: Tensor) -> Tensor:
    """Probabilities kept away from 0 and 1 by the precision of their dtype."""
    eps = extremes(probs).eps
    return probs.clamp(min=eps, max=1 - eps)


def probs_to_logits(probs: Tensor, is_binary: bool = False) -> Tensor:
    """Log odds of probabilities if binary, else their logarithms; finite in any case."""
    kept = clamp_probs(probs)
    return F.log(kept) - F.log1p(-kept) if is_binary else F.log(kept)


class lazy_property:
    """An attribute that a method computes when it is first asked for, with grad mode on."""

    def __init__(self, wrapped: Callable[[Any], Any]) -> None:
        self.wrapped = wrapped
        self.__doc__ = wrapped.__doc__

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self
        with enable_grad():
            value = self.wrapped(instance)
        setattr(instance, self.wrapped.__name__, value)
        return value


def vec_to_tril_matrix(vec: Tensor, diag: int = 0) -> Tensor:
    """Lower triangular matrices whose elements, row by row, are those of vectors.

    `diag` is the last diagonal that is filled, 0 or below. The inverse of `tril_matrix_to_vec`.
    """
    count, n = vec.shape[-1], 0
    while _in_triangle(n, diag) < count:
        n += 1
    if _in_triangle(n, diag) != count:
        raise ValueError(
            f"The size of last dimension is {count} which cannot be expressed as the lower "
            "triangular part of a square D x D matrix."
        )
    matrix = full((*vec.shape[:-1], n * n), 0.0, dtype=vec.dtype, device=vec.device)
    places = _positions(vec, n, diag)
    return F.index_copy(matrix, -1, places, vec).reshape(*vec.shape[:-1], n, n)


def tril_matrix_to_vec(mat: Tensor, diag: int = 0) -> Tensor:
    """The elements of lower triangles up to the diagonal `diag`, row by row."""
    n = mat.shape[-1]
    if not -n <= diag < n:
        raise ValueError(f"diag ({diag}) provided is outside [{-n}, {n - 1}].")
    return mat.reshape(*mat.shape[:-2], n * n)[..., _positions(mat, n, diag)]


def _in_triangle(n: int, diag: int) -> int:
    return sum(min(max(row + diag + 1, 0), n) for row in range(n))


def _positions(like: Tensor, n: int, diag: int) -> Tensor:
    places = [row * n + col for row in range(n) for col in range(min(max(row + diag + 1, 0), n))]
    return tensor(places, dtype=dtypes.int64, device=like.device)


_sum_rightmost = sum_rightmost


def _standard_normal(shape: Any, dtype: Any, device: Any) -> Tensor:
    """Draws of the standard normal law, of a shape; what programs call by PyTorch's name."""
    return randn(tuple(shape), dtype=dtype, device=device)
