"""Weight normalisation: a weight as its length, `name_g`, and its direction, `name_v`."""

from __future__ import annotations

import warnings
from typing import Any, TypeVar

from ...functions.calls.arguments import array_of
from ...linalg import vector_norm
from ...ops.dims import one_int
from ...tensor import Tensor
from ..modules.module import Module
from ..parameter import Parameter

__all__ = ["WeightNorm", "norm_except_dim", "remove_weight_norm", "weight_norm"]

M = TypeVar("M", bound=Module)


def norm_except_dim(v: Tensor, pow: float = 2, dim: int = 0) -> Tensor:
    """Norms of order `pow` of the parts of a tensor along `dim`, which alone keeps its size.

    With `dim` -1 the norm of the whole, of no dimensions.

    >>> import cugrad as torch
    >>> torch.norm_except_dim(torch.tensor([[3.0, 4.0], [0.0, 2.0]]))
    tensor([[5.],
            [2.]])
    """
    array_of(v, "norm_except_dim", "v")
    if one_int(dim, "dim") == -1:
        return vector_norm(v, pow)
    others = tuple([d for d in range(v.dim()) if d != dim])
    return vector_norm(v, pow, others, keepdim=True) if others else v.abs()


def _weight_norm(v: Tensor, g: Tensor, dim: int = 0) -> Tensor:
    """The weight of a direction and a length."""
    return v * (g / norm_except_dim(v, 2, dim))


def keys_of(module: Module, kind: Any, name: str) -> list[Any]:
    """Under which keys a module has hooks of a kind, for a parameter of this name."""
    hooks = [(key, hook) for key, hook in module._forward_pre_hooks.items()]
    return [key for key, call in hooks if isinstance(call, kind) and call.name == name]


class WeightNorm:
    """A hook that computes a weight before each call of its module."""

    def __init__(self, name: str, dim: int | None) -> None:
        self.name, self.dim = name, -1 if dim is None else dim

    def compute_weight(self, module: Module) -> Any:
        """The weight, of its length and its direction."""
        g, v = getattr(module, self.name + "_g"), getattr(module, self.name + "_v")
        return _weight_norm(v, g, self.dim)

    @staticmethod
    def apply(module: Module, name: str, dim: int | None) -> WeightNorm:
        """Puts length and direction in the place of a parameter. RuntimeError for a second time."""
        warnings.warn(
            "`torch.nn.utils.weight_norm` is deprecated in favor of "
            "`torch.nn.utils.parametrizations.weight_norm`.", FutureWarning, stacklevel=3,
        )  # fmt: skip
        if keys_of(module, WeightNorm, name):
            raise RuntimeError(
                f"Cannot register two weight_norm hooks on the same parameter {name}"
            )
        norm = WeightNorm(name, dim)
        weight = getattr(module, name)
        del module._parameters[name]
        length = norm_except_dim(weight, 2, norm.dim).data
        module.register_parameter(name + "_g", Parameter(length))
        module.register_parameter(name + "_v", Parameter(weight.data))
        setattr(module, name, norm.compute_weight(module))
        module.register_forward_pre_hook(norm)
        return norm

    def remove(self, module: Module) -> None:
        """Makes the weight a parameter again."""
        weight = self.compute_weight(module)
        delattr(module, self.name)
        del module._parameters[self.name + "_g"]
        del module._parameters[self.name + "_v"]
        setattr(module, self.name, Parameter(weight.data))

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self.name, self.compute_weight(module))


def weight_norm(module: M, name: str = "weight", dim: int | None = 0) -> M:
    """Learns the length and the direction of a parameter apart; the module.

    `dim` is the dimension along which parts have a length each; None: the whole has one. Deprecated
    in PyTorch: `parametrizations.weight_norm` does the same. Source:
    https://arxiv.org/abs/1602.07868.

    >>> import cugrad as torch, warnings
    >>> with warnings.catch_warnings(action="ignore"):
    ...     layer = torch.nn.utils.weight_norm(torch.nn.Linear(3, 2))
    >>> [name for name, _ in layer.named_parameters()], layer.weight_g.shape
    (['bias', 'weight_g', 'weight_v'], torch.Size([2, 1]))
    """
    WeightNorm.apply(module, name, dim)
    return module


def remove_weight_norm(module: M, name: str = "weight") -> M:
    """Makes the weight a parameter again; ValueError where `weight_norm` was not applied."""
    keys = keys_of(module, WeightNorm, name)
    if not keys:
        raise ValueError(f"weight_norm of '{name}' not found in {module}")
    hooks: dict[Any, Any] = module._forward_pre_hooks
    hooks.pop(keys[0]).remove(module)
    return module
