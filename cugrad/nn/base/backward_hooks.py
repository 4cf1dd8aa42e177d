"""Hooks of a module's gradients: identity nodes around its forward tell when they come."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from ...autograd.function import Function
from ...autograd.mode import Level, state
from ...autograd.transforms import running
from ...backends.batched.arrays import BatchLevel
from ...tensor import Tensor

if TYPE_CHECKING:
    from .tree import Tree

__all__ = ["BackwardHooks", "add_plain_hooks"]

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

    def __init__(self, module: Tree, hooks: Iterable[Hook], pre_hooks: Iterable[Hook]) -> None:
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
            changed = hook(self.module, grads)
            if changed is not None and len(changed) != len(grads):
                raise RuntimeError(
                    "Backward pre hook returned an invalid number of grad_output, got "
                    f"{len(changed)}, but expected {len(grads)}"
                )
            grads = grads if changed is None else changed
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
            changed = hook(self.module, (None,) * self.input_count, grads)
            if changed is not None and any(g is not None for g in changed):
                raise RuntimeError(
                    "Backward hook for Modules where no input requires gradient should always "
                    "return None or None for all gradients."
                )

    def _see_inputs(self, of_tensors: Gradients, _: Any) -> Gradients | None:
        if self.grad_outputs is None:  # a gradient that did not come by way of the output
            return None
        places = self.inputs or []
        grads = _spread(places, of_tensors, self.input_count)
        for hook in self.hooks:
            changed = hook(self.module, grads, self.grad_outputs)
            if changed is not None and len(changed) != len(grads):
                raise RuntimeError(
                    "Backward hook returned an invalid number of grad_input, got "
                    f"{len(changed)}, but expected {len(grads)}"
                )
            grads = grads if changed is None else changed
        self.grad_outputs = None
        return tuple([grads[i] for i in places])


def _passed(values: tuple[Any, ...]) -> tuple[tuple[Any, ...], list[int] | None, Any]:
    """The values, their tensors as outputs of one identity node; which are tensors; and the node.

    None for the latter two where no gradient will come.
    """
    places = [i for i, x in enumerate(values) if isinstance(x, Tensor)]
    if running.transforms and isinstance(running.transforms[-1], (BatchLevel, Level)):
        return values, None, None  # no hooks inside vmap and jvp: nothing requires a gradient there
    if not (state.grad_enabled and any(values[i].requires_grad for i in places)):
        return values, None, None
    outputs = BackwardHookFunction.apply(*[values[i] for i in places])
    node = next(x.grad_fn for x in outputs if x.grad_fn is not None)
    passed = list(values)
    for i, x in zip(places, outputs, strict=True):
        passed[i] = x
    if type(values) is tuple:
        return tuple(passed), places, node
    return type(values)(*passed), places, node  # a named tuple


def _spread(places: list[int], grads: Gradients, count: int) -> Gradients:
    """The gradients of tensors among `count` values; None for the others."""
    spread: list[Tensor | None] = [None] * count
    for i, g in zip(places, grads, strict=True):
        spread[i] = g
    return tuple(spread)


class _OfModule:
    """A hook of a node that tells a module's hook."""

    def __init__(self, hook: Hook, module: Tree) -> None:
        self.hook, self.module = hook, module

    def __call__(self, grad_input: Gradients, grad_output: Gradients) -> Any:
        return self.hook(self.module, grad_input, grad_output)


def add_plain_hooks(module: Tree, hooks: list[Hook], args: Any, result: Any) -> None:
    """The hooks of `register_backward_hook`, on the node that made the first tensor of a result."""
    first = result
    while not isinstance(first, Tensor):
        if isinstance(first, dict):
            first = next(value for value in first.values() if isinstance(value, Tensor))
        else:
            first = first[0]
    node = first.grad_fn
    if node is None:
        return
    for hook in hooks:
        node.register_hook(_OfModule(hook, module))
    missed = _what_is_missed(args, result, node)
    if missed is not None:
        warnings.warn(missed, FutureWarning, stacklevel=5)


def _what_is_missed(args: Any, result: Any, node: Any) -> str | None:
    """Why the node does not see the gradients of all inputs and outputs of a module, if so."""
    full = "Please use register_full_backward_hook to get the documented behavior."
    results = (result,) if isinstance(result, Tensor) else result
    if not (isinstance(results, tuple) and all(isinstance(r, Tensor) for r in results)):
        return (
            "Using non-full backward hooks on a Module that does not return a single Tensor or a "
            "tuple of Tensors is deprecated and will be removed in future versions. This hook "
            f"will be missing some of the grad_output. {full}"
        )
    if not all(isinstance(x, Tensor) for x in args):
        return (
            "Using non-full backward hooks on a Module that does not take as input a single Tensor "
            "or a tuple of Tensors is deprecated and will be removed in future versions. This hook "
            f"will be missing some of the grad_input. {full}"
        )
    makers = {r.grad_fn for r in results if r.grad_fn is not None}
    if len(makers) > 1:
        return (
            "Using a non-full backward hook when outputs are generated by different autograd Nodes "
            "is deprecated and will be removed in future versions. This hook will be missing some "
            f"grad_output. {full}"
        )
    if {x.grad_fn for x in args if x.grad_fn is not None} != {n for n, _ in node.next_functions}:
        return (
            "Using a non-full backward hook when the forward contains multiple autograd Nodes is "
            "deprecated and will be removed in future versions. This hook will be missing some "
            f"grad_input. {full}"
        )
    return None
