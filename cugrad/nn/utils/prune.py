"""torch.nn.utils.prune: elements of parameters that are kept at zero by a mask.

A method computes a mask. Its `apply` puts the mask beside the parameter, as the buffer NAME_mask;
the parameter becomes NAME_orig, and NAME their product, made anew before each forward.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from numbers import Integral, Real
from typing import Any, TypeVar

from ...functions.creation.factories import ones_like, zeros_like
from ...functions.creation.random import rand, rand_like
from ...functions.shapes.copies import cat
from ...tensor import Tensor
from ..modules.module import Module

__all__ = [
    "BasePruningMethod", "CustomFromMask", "Identity", "L1Unstructured", "LnStructured",
    "PruningContainer", "RandomStructured", "RandomUnstructured", "custom_from_mask",
    "global_unstructured", "identity", "is_pruned", "l1_unstructured", "ln_structured",
    "random_structured", "random_unstructured", "remove",
]  # fmt: skip

M = TypeVar("M", bound=Module)


def _check_scores(scores: Tensor, of: Tensor, what: str) -> None:
    if not isinstance(of, Tensor):
        raise TypeError(f"prune: {what} must be Tensor, not {type(of).__name__}")
    if scores.shape != of.shape:
        raise AssertionError(
            f"importance_scores should have the same shape as {what}, got {scores.shape} vs "
            f"{of.shape}"
        )


class BasePruningMethod(ABC):
    """Base class of pruning methods: a subclass writes `compute_mask` and says its PRUNING_TYPE.

    "unstructured" methods see the elements that are not pruned yet, "structured" ones the slices
    along `dim` that are not, "global" ones all of the tensor.
    """

    _tensor_name: str
    PRUNING_TYPE: str

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self._tensor_name, self.apply_mask(module))

    @abstractmethod
    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The mask for `t`, or its importances, on top of `default_mask`: 1 keeps an element."""

    def apply_mask(self, module: Module) -> Tensor:
        """The parameter's elements times the mask."""
        original = getattr(module, self._tensor_name + "_orig")
        return getattr(module, self._tensor_name + "_mask").to(original.dtype) * original

    @classmethod
    def _joined(cls, module: Module, name: str, method: BasePruningMethod) -> BasePruningMethod:
        """The method, or a container of the methods that prune this parameter already, and it."""
        before = [(key, hook) for key, hook in _hooks(module) if hook._tensor_name == name]
        if len(before) > 1:
            raise AssertionError(
                f"Avoid adding multiple pruning hooks to the same tensor {name} of module {module}."
                " Use a PruningContainer."
            )
        for key, hook in before:
            del module._forward_pre_hooks[key]
            container = hook if isinstance(hook, PruningContainer) else PruningContainer(hook)
            container.add_pruning_method(method)
            return container
        return method

    @classmethod
    def apply(
        cls, module: Module, name: str, *args: Any, importance_scores: Tensor | None = None,
        **kwargs: Any,
    ) -> Any:  # fmt: skip
        """Prunes the parameter `name` of `module` from now on; the method that does so.

        `args` and `kwargs` are the method's. AssertionError for importance_scores of another shape.
        """
        method: BasePruningMethod = cls(*args, **kwargs)
        method._tensor_name = name
        method = cls._joined(module, name, method)
        original = getattr(module, name)
        scores = original if importance_scores is None else importance_scores
        _check_scores(scores, original, f"parameter {name} of {module}")
        first = not isinstance(method, PruningContainer)
        if first:
            module.register_parameter(name + "_orig", original)
            del module._parameters[name]
            mask = ones_like(original, requires_grad=False)
        else:
            mask = getattr(module, name + "_mask").detach().clone()
        try:
            module.register_buffer(name + "_mask", method.compute_mask(scores.detach(), mask))
            setattr(module, name, method.apply_mask(module))
            module.register_forward_pre_hook(method)
        except Exception:
            if first:
                module.register_parameter(name, original)
                del module._parameters[name + "_orig"]
            raise
        return method

    def prune(
        self, t: Tensor, default_mask: Tensor | None = None, importance_scores: Tensor | None = None
    ) -> Tensor:
        """A tensor times the mask that the method computes for it."""
        scores = t if importance_scores is None else importance_scores
        _check_scores(scores, t, "tensor t")
        mask = ones_like(t) if default_mask is None else default_mask
        return t * self.compute_mask(scores, mask)

    def remove(self, module: Module) -> None:
        """Makes the pruned elements those of the parameter, under its own name again."""
        name = self._tensor_name
        weight = self.apply_mask(module)
        if hasattr(module, name):
            delattr(module, name)
        original: Any = module._parameters[name + "_orig"]
        original.data = weight.data
        del module._parameters[name + "_orig"], module._buffers[name + "_mask"]
        setattr(module, name, original)


class PruningContainer(BasePruningMethod):
    """Methods that prune one parameter, one after the other."""

    def __init__(self, *args: BasePruningMethod) -> None:
        self._pruning_methods: tuple[BasePruningMethod, ...] = ()
        if len(args) == 1:
            self._tensor_name = args[0]._tensor_name
        for method in args:
            self.add_pruning_method(method)

    def add_pruning_method(self, method: Any) -> None:
        """Adds a method for the same parameter; TypeError or ValueError for anything else."""
        if not isinstance(method, BasePruningMethod):
            raise TypeError(f"{type(method)} is not a BasePruningMethod subclass")
        if self._tensor_name != method._tensor_name:
            raise ValueError(
                "Can only add pruning methods acting on the parameter named "
                f"'{self._tensor_name}' to PruningContainer {self}. Found '{method._tensor_name}'"
            )
        self._pruning_methods += (method,)

    def __len__(self) -> int:
        return len(self._pruning_methods)

    def __iter__(self) -> Iterator[BasePruningMethod]:
        return iter(self._pruning_methods)

    def __getitem__(self, idx: Any) -> Any:
        return self._pruning_methods[idx]

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The mask of the last method on top of those before it."""
        method, mask = self._pruning_methods[-1], default_mask.to(t.dtype, copy=True)
        index = _still_there(method, t, default_mask)
        part = method.compute_mask(t[index], default_mask=default_mask[index])
        mask[index] = part.to(mask.dtype)
        return mask


def _still_there(method: BasePruningMethod, t: Tensor, mask: Tensor) -> Any:
    """An index of the part of `t` that a method may choose from."""
    if method.PRUNING_TYPE == "unstructured":
        return mask == 1
    if method.PRUNING_TYPE == "global":
        return ...
    if method.PRUNING_TYPE != "structured":
        raise ValueError(f"Unrecognized PRUNING_TYPE {method.PRUNING_TYPE}")
    if not hasattr(method, "dim"):
        raise AttributeError(
            'Pruning methods of PRUNING_TYPE "structured" need to have the attribute `dim` defined.'
        )
    dim = method.dim + t.dim() if method.dim < 0 else method.dim
    if dim < 0:
        raise IndexError(f"Index is out of bounds for tensor with dimensions {t.dim()}")
    kept = mask.sum([d for d in range(t.dim()) if d != dim]) != 0
    return (*[slice(None)] * dim, kept)


# Methods ------------------------------------------------------------------------------------------


class Identity(BasePruningMethod):
    """Prunes nothing, and makes the parameter, its mask and their product all the same."""

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The mask as it is."""
        return default_mask


class _Some(BasePruningMethod):
    """Methods that prune `amount` of the elements or slices: a number, or a share of them."""

    amount: Any

    def __init__(self, amount: float) -> None:
        if not isinstance(amount, Real):
            raise TypeError(f"Invalid type for amount: {amount}. Must be int or float.")
        if amount < 0 or not (isinstance(amount, Integral) or amount <= 1):
            raise ValueError(
                f"amount={amount} should either be a float in the range [0, 1] or a non-negative "
                "integer"
            )
        self.amount = amount

    def _number(self, size: int) -> int:
        """How many of so many are pruned; ValueError for more than there are."""
        number = (
            int(self.amount) if isinstance(self.amount, Integral) else round(self.amount * size)
        )
        if number > size:
            raise ValueError(
                f"amount={number} should be smaller than the number of parameters to prune={size}"
            )
        return number


class RandomUnstructured(_Some):
    """Prunes elements at random."""

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The mask without `amount` elements of `t`."""
        number, mask = self._number(t.numel()), default_mask.clone()
        if number:
            mask.view(-1)[rand_like(t).view(-1).topk(number).indices] = 0
        return mask


class L1Unstructured(_Some):
    """Prunes the elements that are smallest."""

    PRUNING_TYPE = "unstructured"

    @classmethod
    def apply(  # type: ignore[override]
        cls, module: Module, name: str, amount: float, importance_scores: Tensor | None = None
    ) -> Any:
        """Prunes the parameter `name` of `module` from now on; the method that does so."""
        return super().apply(module, name, amount, importance_scores=importance_scores)

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The mask without the `amount` elements of least importance `t`."""
        number, mask = self._number(t.numel()), default_mask.clone()
        if number:
            mask.view(-1)[t.abs().reshape(-1).topk(number, largest=False).indices] = 0
        return mask


class _Slices(_Some):
    """Methods that prune whole slices along `dim`."""

    PRUNING_TYPE = "structured"
    dim: int

    def _size(self, t: Tensor) -> int:
        """The number of slices; ValueError or IndexError where there are none."""
        if t.dim() <= 1:
            raise ValueError(
                "Structured pruning can only be applied to multidimensional tensors. Found tensor "
                f"of shape {t.shape} with {t.dim()} dims"
            )
        if self.dim >= t.dim():
            raise IndexError(f"Invalid index {self.dim} for tensor of size {t.shape}")
        return t.shape[self.dim]

    def _keeping(self, t: Tensor, default_mask: Tensor, kept: Tensor) -> Tensor:
        """The mask that keeps, of `default_mask`, these slices."""
        mask = zeros_like(t)
        mask[(*[slice(None)] * (self.dim % t.dim()), kept)] = 1
        return mask * default_mask.to(mask.dtype)


class RandomStructured(_Slices):
    """Prunes slices along `dim` at random."""

    def __init__(self, amount: float, dim: int = -1) -> None:
        super().__init__(amount)
        self.dim = dim

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The mask without `amount` slices of `t`."""
        size = self._size(t)
        number = self._number(size)
        if not number:
            return default_mask
        chances = rand(size, device=t.device)
        return self._keeping(t, default_mask, chances > chances.kthvalue(number).values)


class LnStructured(_Slices):
    """Prunes the slices along `dim` whose n-norms are smallest."""

    @classmethod
    def apply(  # type: ignore[override]
        cls, module: Module, name: str, amount: float, n: Any, dim: int,
        importance_scores: Tensor | None = None,
    ) -> Any:  # fmt: skip
        """Prunes the parameter `name` of `module` from now on; the method that does so."""
        return super().apply(module, name, amount, n, dim, importance_scores=importance_scores)

    def __init__(self, amount: float, n: Any, dim: int = -1) -> None:
        super().__init__(amount)
        self.n, self.dim = n, dim

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The mask without the `amount` slices of least importance `t`."""
        size = self._size(t)
        number = self._number(size)
        if not number:
            return default_mask
        dims = [d for d in range(t.dim()) if d != self.dim % t.dim()]
        kept = t.norm(self.n, dims).topk(size - number).indices
        return self._keeping(t, default_mask, kept)


class CustomFromMask(BasePruningMethod):
    """Prunes by a mask that is given."""

    PRUNING_TYPE = "global"

    def __init__(self, mask: Tensor) -> None:
        self.mask = mask

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """What both masks keep."""
        if default_mask.shape != self.mask.shape:
            raise AssertionError(
                f"default_mask shape {default_mask.shape} must match self.mask shape "
                f"{self.mask.shape}"
            )
        return default_mask * self.mask.to(default_mask.dtype)


# Functions ----------------------------------------------------------------------------------------


def identity(module: M, name: str) -> M:
    """Puts a mask of ones beside the parameter `name` of a module, which is returned."""
    Identity.apply(module, name)
    return module


def random_unstructured(module: M, name: str, amount: float) -> M:
    """Prunes `amount` elements at random: a number of them, or a share from 0 to 1."""
    RandomUnstructured.apply(module, name, amount)
    return module


def l1_unstructured(
    module: M, name: str, amount: float, importance_scores: Tensor | None = None
) -> M:
    """Prunes the `amount` elements that are smallest, or least by `importance_scores`.

    >>> import cugrad as torch
    >>> from cugrad.nn.utils import prune
    >>> layer = torch.nn.Linear(4, 1)
    >>> _ = layer.weight.data.copy_(torch.tensor([[1.0, -4.0, 3.0, -2.0]]))
    >>> prune.l1_unstructured(layer, "weight", 2).weight
    tensor([[ 0., -4.,  3., -0.]], grad_fn=<MulBackward0>)
    """
    L1Unstructured.apply(module, name, amount=amount, importance_scores=importance_scores)
    return module


def random_structured(module: M, name: str, amount: float, dim: int) -> M:
    """Prunes `amount` slices along `dim` at random."""
    RandomStructured.apply(module, name, amount, dim)
    return module


def ln_structured(
    module: M, name: str, amount: float, n: Any, dim: int, importance_scores: Tensor | None = None
) -> M:
    """Prunes the `amount` slices along `dim` whose n-norms are smallest."""
    LnStructured.apply(module, name, amount, n, dim, importance_scores=importance_scores)
    return module


def custom_from_mask(module: M, name: str, mask: Tensor) -> M:
    """Prunes by a mask of the parameter's shape, 0 where an element is pruned."""
    CustomFromMask.apply(module, name, mask)
    return module


def global_unstructured(
    parameters: Any, pruning_method: Any, importance_scores: Any = None, **kwargs: Any
) -> None:
    """Prunes several parameters, pairs (module, name), as if they were one.

    `pruning_method` is a class of unstructured methods, `kwargs` are its arguments, and
    `importance_scores` a dict by pair. TypeError for anything else.
    """
    if not isinstance(parameters, Iterable):
        raise TypeError("global_unstructured(): parameters is not an Iterable")
    scores = {} if importance_scores is None else importance_scores
    if not isinstance(scores, dict):
        raise TypeError("global_unstructured(): importance_scores must be of type dict")
    pairs = [(module, name, getattr(module, name)) for module, name in parameters]
    importances = cat([scores.get((m, n), t).detach().reshape(-1) for m, n, t in pairs])
    masks = [getattr(m, n + "_mask", ones_like(t)).detach().reshape(-1) for m, n, t in pairs]
    method = pruning_method(**kwargs)
    if method.PRUNING_TYPE != "unstructured":
        raise TypeError(
            'Only "unstructured" PRUNING_TYPE supported for the `pruning_method`. Found method '
            f"{pruning_method} of type {method.PRUNING_TYPE}"
        )
    method._tensor_name = "all"
    mask = PruningContainer(method).compute_mask(importances, cat(masks))
    for (module, name, tensor), part in zip(pairs, mask.split([t.numel() for *_, t in pairs])):
        custom_from_mask(module, name, part.reshape(tensor.shape))


def remove(module: M, name: str) -> M:
    """Ends the pruning of a parameter, which keeps its zeros; ValueError where there is none."""
    for key, hook in _hooks(module):
        if hook._tensor_name == name:
            hook.remove(module)
            del module._forward_pre_hooks[key]
            return module
    raise ValueError(
        f"Parameter '{name}' of module {module} has to be pruned before pruning can be removed"
    )


def is_pruned(module: Module) -> bool:
    """Whether a parameter of the module, or of one below it, is being pruned."""
    return any(_hooks(part) for part in module.modules())


def _hooks(module: Module) -> list[tuple[int, BasePruningMethod]]:
    """The pruning methods of a module's parameters, by the numbers of their hooks."""
    hooks = [(key, hook) for key, hook in module._forward_pre_hooks.items()]
    return [(key, call) for key, call in hooks if isinstance(call, BasePruningMethod)]
