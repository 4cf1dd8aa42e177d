"""Hooks of a module's gradients: identity nodes around its forward tell when they come."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from ..autograd.function import Function
from ..autograd.mode import state
from ..tensor import Tensor

if TYPE_CHECKING:
    from .module import Module

__all__ = ["BackwardHooks"]

Gradients = tuple[Tensor | None, ...]
Hook = Callable[..., Any]


class BackwardHookFunction(Function):
    """Passes tensors and their gradients through."""

    @staticmethod
    def forward(ctx: Any, *args: Tensor) -> tuple[Tensor, ...]:
        ctx.mark_non_differentiable(*[x for x in args if not x.requires_grad])
        return args

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:
        return grads


class BackwardHooks:
    """The hooks of one call of a module, between the gradients of its outputs and its inputs."""

    def __init__(self, module: Module, hooks: Iterable[Hook], pre_hooks: Iterable[Hook]) -> None:
        self.module, self.hooks, self.pre_hooks = module, list(hooks), list(pre_hooks)
        self.grad_outputs: Gradients | None = None  # from when they come to when the inputs' do
        self.inputs: list[int] | None = None  # which of so many are tensors; None: none needs grad
        self.input_count = 0

    def around_inputs(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments of forward, whose gradients the hooks will see."""
        self.input_count = len(args)
        args, self.inputs, node = _passed(args)
        if node is not None:
            node.register_hook(self._see_inputs)
        return args

    def around_outputs(self, result: Any) -> Any:
        """The output of forward, or several in a tuple, whose gradients start the hooks."""
        if not isinstance(result, (Tensor, tuple)):
            warnings.warn(
                "For backward hooks to be called, module output should be a Tensor or a tuple of "
                f"Tensors but received {type(result)}",
                stacklevel=4,
            )
            return result
        several = result if isinstance(result, tuple) else (result,)

        outputs, places, node = _passed(several)

        def see(grads: Gradients) -> Gradients:  # as they come: None, and not yet zeros
            return self._see_outputs(_spread(places or [], grads, len(several)), places or [])

        if node is not None:
            node.register_prehook(see)
        return outputs if isinstance(result, tuple) else outputs[0]

    def _see_outputs(self, grads: Gradients, places: list[int]) -> Gradients:
        for hook in self.pre_hooks:
            given = hook(self.module, grads)
            if given is not None and len(given) != len(grads):
                raise RuntimeError(
                    "Backward pre hook returned an invalid number of grad_output, got "
                    f"{len(given)}, but expected {len(grads)}"
                )
            grads = grads if given is None else given
        self.grad_outputs = grads
        if self.inputs is None:
            self._without_inputs(grads)
        return tuple([grads[i] for i in places])

    def _without_inputs(self, grads: Gradients) -> None:
        if self.hooks:
            warnings.warn(
                "Full backward hook is firing when gradients are computed with respect to module "
                "outputs since no inputs require gradients.",
                stacklevel=2,
            )
        self.grad_outputs = None
        for hook in self.hooks:
            given = hook(self.module, (None,) * self.input_count, grads)
            if given is not None and any(g is not None for g in given):
                raise RuntimeError(
                    "Backward hook for Modules where no input requires gradient should always "
                    "return None or None for all gradients."
                )

    def _see_inputs(self, found: Gradients, _: Any) -> Gradients | None:
        if self.grad_outputs is None:  # a gradient that did not come by way of the output
            return None
        places = self.inputs or []
        grads = _spread(places, found, self.input_count)
        for hook in self.hooks:
            given = hook(self.module, grads, self.grad_outputs)
            if given is not None and len(given) != len(grads):
                raise RuntimeError(
                    "Backward hook returned an invalid number of grad_input, got "
                    f"{len(given)}, but expected {len(grads)}"
                )
            grads = grads if given is None else given
        self.grad_outputs = None
        return tuple([grads[i] for i in places])


def _passed(values: tuple[Any, ...]) -> tuple[tuple[Any, ...], list[int] | None, Any]:
    """The values, their tensors as outputs of one identity node; which are tensors; and the node.

    None for the latter two where no gradient will come.
    """
    places = [i for i, x in enumerate(values) if isinstance(x, Tensor)]
    if not (state.grad_enabled and any(values[i].requires_grad for i in places)):
        return values, None, None
    made = BackwardHookFunction.apply(*[values[i] for i in places])
    node = next(x.grad_fn for x in made if x.grad_fn is not None)
    found = list(values)
    for i, x in zip(places, made, strict=True):
        found[i] = x
    if type(values) is tuple:
        return tuple(found), places, node
    return type(values)(*found), places, node  # a named tuple


def _spread(places: list[int], grads: Gradients, count: int) -> Gradients:
    """The gradients of tensors among `count` values; None for the others."""
    found: list[Tensor | None] = [None] * count
    for i, g in zip(places, grads, strict=True):
        found[i] = g
    return tuple(found)
