"""The parameters of a model as one vector, and back."""

from __future__ import annotations

from collections.abc import Iterable

from ...functions import FUNCTIONS
from ...tensor import Tensor
from .clip_grad import several

__all__ = ["parameters_to_vector", "vector_to_parameters"]


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """All parameters, flat, one behind the other: a new tensor, which gradients flow through.

    >>> import cugrad as torch
    >>> torch.nn.utils.parameters_to_vector([torch.zeros(1, 2), torch.ones(1)])
    tensor([0., 0., 1.])
    """
    return FUNCTIONS["cat"]([p.reshape(-1) for p in several("parameters_to_vector", parameters)])


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Gives parameters the elements of a vector, by views of it.

    >>> import cugrad as torch
    >>> w = torch.zeros(1, 2, requires_grad=True)
    >>> torch.nn.utils.vector_to_parameters(torch.tensor([1., 2.]), [w])
    >>> w
    tensor([[1., 2.]], requires_grad=True)
    """
    if not isinstance(vec, Tensor):
        raise TypeError(f"expected torch.Tensor, but got: {type(vec).__name__}")
    at = 0
    for parameter in several("vector_to_parameters", parameters):
        parameter.data = vec[at : at + parameter.numel()].view_as(parameter).data
        at += parameter.numel()
