"""Runs hooks in backward: what they are given, and what they may answer."""

from __future__ import annotations

from typing import Any

from ...backends import backend_of
from ...backends.batched import arrays as batched
from ...tensor import Tensor, make
from ..recording.node import NodeRare
from ..recording.recorded import recorded
from ..transforms import running

__all__ = [
    "as_tensor", "has_hooks", "has_node_hooks", "run_leaf_hooks", "run_post_hooks", "run_pre_hooks",
    "run_tensor_hooks",
]  # fmt: skip

# Gradients are arrays on their way, or Tensors where backward is itself recorded. Hooks get
# Tensors, and None for an output whose gradient is undefined. The hooks that are there when the
# first of them runs all run, each on the answer of the one before, also if one removes another.


def has_node_hooks(rare: NodeRare) -> bool:
    """Whether a node has hooks of its own; PyTorch runs such a node when it accumulates."""
    return bool(rare.pre_hooks or rare.post_hooks)


def has_hooks(leaf: Tensor) -> bool:
    """Whether hooks see the gradient of a leaf, or the leaf once it has it."""
    rare = leaf._rare
    return rare is not None and (rare.leaf is not None or bool(rare.post_hooks))


def as_tensor(g: Any) -> Any:
    """A gradient as hooks get it."""
    return g if g is None or isinstance(g, Tensor) else make(g)


def _as_gradients(values: Any, recording: bool) -> list[Any]:
    return [x if x is None or recording or x.is_sparse else x._array for x in values]


def _in_sight(gradients: Any) -> tuple[list[Any], list[Any]]:
    """Gradients as hooks of nodes get them. If a vmap has ended, its examples are the first dim.
    Also returns which levels were opened for each gradient, to close them in the answer.
    """
    seen, opened = [as_tensor(g) for g in gradients], []
    for i, g in enumerate(seen if batched.HIDING else ()):
        levels = [] if g is None or g.is_sparse else batched.levels_of(g._array)
        closed = [level for level in levels if level not in running.levels]
        for level in closed:
            g = recorded.vmap_unwrap(g, level, 0)
        seen[i] = g
        opened.append(closed)
    return seen, opened


def _hidden_again(gradients: list[Any], opened: list[Any]) -> list[Any]:
    """What hooks made of gradients, with the examples in the hidden dimension again."""
    for i, levels in enumerate(opened):
        for level in reversed(levels if gradients[i] is not None else ()):
            gradients[i] = recorded.vmap_wrap(gradients[i], level, 0)
    return gradients


def run_tensor_hooks(rare: NodeRare, gradients: list[Any], recording: bool) -> list[Any]:
    """Runs the hooks of the tensors that a node made, then stores retained gradients."""
    current = [as_tensor(g) for g in gradients]
    for nr, hooks in list(rare.tensor_hooks.items()):
        for hook in list(hooks.values()):
            answer = hook(current[nr])
            if answer is not None:
                current[nr] = _checked(answer, current[nr], hook)
    for nr, ref in rare.retained.copy().items():
        keeper = ref()
        if keeper is not None and current[nr] is not None:
            g = current[nr]
            before = keeper._grad  # of another shape, if that was changed in place since
            new = before is None or before.shape != g.shape
            keeper._grad = recorded.clone(g, "C") if new else before + g
    return _as_gradients(current, recording)


def run_pre_hooks(rare: NodeRare, gradients: list[Any], recording: bool) -> list[Any]:
    """Runs the hooks before a node, which may replace the gradients that it gets."""
    current, opened = _in_sight(gradients)
    for hook in list(rare.pre_hooks.values()):
        answer = hook(tuple(current))
        if answer is not None:
            current = _all_checked(answer, current, hook)
    return _as_gradients(_hidden_again(current, opened), recording)


def run_post_hooks(
    rare: NodeRare, results: Any, gradients: list[Any], recording: bool
) -> list[Any]:
    """Runs the hooks after a node, which may replace the gradients of its inputs."""
    inputs, opened = _in_sight(results)
    outputs = tuple(_in_sight(gradients)[0])
    for hook in list(rare.post_hooks.values()):
        answer = hook(tuple(inputs), outputs)
        if answer is not None:
            inputs = _all_checked(answer, inputs, hook)
    return _as_gradients(_hidden_again(inputs, opened), recording)


def run_leaf_hooks(leaf: Tensor, g: Any) -> None:
    """Runs the hooks of a leaf after its `.grad` has changed, then those of its node."""
    rare = leaf._rare
    assert rare is not None
    for hook in list((rare.post_hooks or {}).values()):
        answer = hook(leaf)
        if isinstance(answer, Tensor) and answer is not leaf:
            raise RuntimeError("Tensor post accumulate grad hooks should return None.")
        if answer is not None and answer is not leaf:
            raise TypeError(_wanted("Variable", answer))
    if rare.leaf is not None:
        for hook in list(rare.leaf.post_hooks.values()):
            hook((), (as_tensor(g),))


# ---------------------------------------------------------------------- answers


def _wanted(what: str, answer: Any) -> str:
    return f"expected {what}, but hook returned '{type(answer).__name__}'"


def _name(hook: Any) -> str:
    return f"hook '{getattr(hook, '__name__', '<unknown>')}'"


def _checked(answer: Any, gradient: Tensor | None, hook: Any) -> Tensor:
    """A Tensor that replaces a gradient: of its shape and dtype, on its device."""
    if not isinstance(answer, Tensor):
        raise TypeError(_wanted("Variable", answer))
    if gradient is None:
        raise RuntimeError("can't replace a None gradient with a non-None value")
    sparse = answer.is_sparse or gradient.is_sparse
    new, old = (answer, gradient) if sparse else (answer._array, gradient._array)
    if new.dtype != old.dtype or answer.is_sparse != gradient.is_sparse:
        raise RuntimeError(
            f"{_name(hook)} has changed the type of value (was {gradient.type()} got "
            f"{answer.type()})"
        )
    if new.device != old.device if sparse else backend_of(new) is not backend_of(old):
        raise RuntimeError(
            f"{_name(hook)} has changed the type of value (was on {gradient.device} got "
            f"{answer.device})"
        )
    if new.shape != old.shape:
        raise RuntimeError(
            f"{_name(hook)} has changed the size of value (was {list(old.shape)} got "
            f"{list(new.shape)})"
        )
    return answer


def _all_checked(answer: Any, gradients: list[Any], hook: Any) -> list[Any]:
    """The answer of a node's hook: a tuple, with None where there is no gradient."""
    if not isinstance(answer, tuple):
        raise TypeError(_wanted("tuple", answer))
    if len(answer) != len(gradients):
        raise RuntimeError(
            f"{_name(hook)} has returned an incorrect number of values (got {len(answer)}, but "
            f"expected {len(gradients)})"
        )
    return [
        None if y is None else _checked(y, x, hook) for y, x in zip(answer, gradients, strict=True)
    ]
