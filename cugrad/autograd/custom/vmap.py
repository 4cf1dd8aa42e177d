"""Custom Functions under torch.func: which transform goes first, and the user's vmap."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from ...backends.batched.arrays import BatchLevel, levels_of
from ...tensor import Tensor
from ..forward.dual import below, set_tangent, tangent_of
from ..mode import state
from ..recording.node import edge_of
from ..recording.recorded import recorded
from ..recording.views import rebase
from ..transforms import GRAD, lowered, running

if TYPE_CHECKING:
    from ..function import Function

__all__ = ["VmapInfo", "apply_transformed"]

# The innermost transform that the arguments take part in goes first. Gradients and forward mode
# record one node with the user's own backward and jvp for all such transforms. Its forward is the
# function under the vmaps around it. A vmap calls the user's rule, within which the vmap is no
# longer active.

MORE = "For more details, please see https://pytorch.org/docs/main/notes/extending.func.html"


class VmapInfo(NamedTuple):
    """What the `vmap` staticmethod of a Function gets to know about the vmap that calls it."""

    batch_size: int
    randomness: str


def apply_transformed(
    cls: type[Function], args: tuple[Any, ...], kwargs: dict[str, Any], run: Callable[..., Any]
) -> Any:
    """`run(forward)`, which records a node, or the user's rule: what the active transforms want."""
    transforms = tuple([t for t in running.transforms if getattr(t, "asks_functions", True)])
    if not transforms:
        return run(functools.partial(cls.forward, **kwargs))
    if not cls.has_setup_context():
        raise RuntimeError(
            "In order to use an autograd.Function with functorch transforms (vmap, grad, jvp, "
            f"jacrev, ...), it must override the setup_context staticmethod. {MORE}"
        )
    while transforms:
        innermost, outer = transforms[-1], transforms[:-1]
        if isinstance(innermost, BatchLevel):
            rule = _has_rule(cls)
            if _batched(args, innermost):
                if rule:
                    return _by_rule(cls, args, kwargs, innermost, outer)
                break
        elif _differentiates(args, innermost):
            transforms = outer
            break
        transforms = outer
    return run(functools.partial(_forward, cls, kwargs, transforms))


def _forward(
    cls: type[Function], kwargs: dict[str, Any], transforms: tuple[Any, ...], *args: Any
) -> Any:
    """The forward of a node: the user's, or the user's rule if a vmap around the node needs it."""
    for i, level in reversed(list(enumerate(transforms))):
        if isinstance(level, BatchLevel) and _has_rule(cls) and _batched(args, level):
            return _by_rule(cls, args, kwargs, level, transforms[:i])
    return cls.forward(*args, **kwargs)  # on arrays of a vmap it computes all examples at once


def _has_rule(cls: type[Function]) -> bool:
    """Whether the user wrote a rule; RuntimeError unless exactly one of the two ways is taken."""
    own = cls.has_vmap_rule()
    if cls.generate_vmap_rule and own:
        raise RuntimeError(
            f"You tried to vmap over {cls.__name__}, but it has both generate_vmap_rule=True and "
            "an overridden vmap staticmethod. Please set generate_vmap_rule=False or delete the "
            f"overridden vmap staticmethod to avoid ambiguity. {MORE}"
        )
    if not cls.generate_vmap_rule and not own:
        raise RuntimeError(
            f"You tried to vmap over {cls.__name__}, but it does not have vmap support. Please "
            "override and implement the vmap staticmethod or set generate_vmap_rule=True. "
            f"{MORE}"
        )
    return own


def _batched(value: Any, level: BatchLevel) -> bool:
    """Whether a tensor has this level, or one does in nested tuples, lists and dicts."""
    if isinstance(value, Tensor):
        return level in levels_of(value._array)
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, (tuple, list)):
        return False
    return any(_batched(part, level) for part in value)


def _each(function: Callable[[Any], Any], value: Any) -> Any:
    """`function` of everything in nested tuples, lists and dicts."""
    if isinstance(value, dict):
        return {key: _each(function, part) for key, part in value.items()}
    if not isinstance(value, (tuple, list)):
        return function(value)
    parts = [_each(function, part) for part in value]
    return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)


def _differentiates(args: tuple[Any, ...], transform: Any) -> bool:
    if transform is not GRAD:
        return any(tangent_of(a, transform) is not None for a in args)
    return state.grad_enabled and any(isinstance(a, Tensor) and a._requires_grad for a in args)


def _by_rule(
    cls: type[Function], args: tuple[Any, ...], kwargs: dict[str, Any], level: BatchLevel,
    outer: tuple[Any, ...],
) -> Any:  # fmt: skip
    """Calls the user's `vmap` on arguments whose mapped dimension is visible."""
    if any(isinstance(value, Tensor) for value in kwargs.values()):
        raise NotImplementedError(
            "Run vmap on autograd.Function with kwarg-only Tensor args. Please do not pass "
            f"kwarg-only Tensors to autograd.Function. Got: {sorted(kwargs)}"
        )
    pairs: list[tuple[Tensor, Tensor, int]] = []  # what the rule gets, what it was, its version

    def unwrapped(x: Any) -> Any:
        dim = _dim(x, level)
        if dim is not None:
            pairs.append((recorded.vmap_unwrap(x, level, dim), x, x._version))
            return pairs[-1][0]
        if isinstance(x, Tensor):
            pairs.append((x, x, x._version))
        return x

    in_dims = _each(lambda x: _dim(x, level), args)
    inside = _each(unwrapped, args)
    with lowered(outer):
        result = cls.vmap(VmapInfo(level.size, level.randomness), in_dims, *inside, **kwargs)
    message = (
        "Expected the vmap staticmethod to have two returns, an output and out_dims with pytree "
        "structure compatible with the output. "
    )
    if not isinstance(result, tuple):
        raise RuntimeError(f"{message}Got a {type(result)} instead")
    if len(result) != 2:
        raise RuntimeError(f"{message}Got {len(result)} returns instead")

    def wrapped(output: Any, dim: Any) -> Any:
        if isinstance(output, dict):
            by_key = dim if isinstance(dim, dict) else dict.fromkeys(output, dim)
            if by_key.keys() != output.keys():
                raise _incompatible(result)
            return {key: wrapped(output[key], by_key[key]) for key in output}
        if isinstance(output, (tuple, list)):
            dims = dim if isinstance(dim, (tuple, list, dict)) else [dim] * len(output)
            if dims is dim and type(dim) is not type(output) or len(dims) != len(output):
                raise _incompatible(result)
            return type(output)([wrapped(o, d) for o, d in zip(output, dims, strict=True)])
        if isinstance(dim, (tuple, list, dict)):
            raise _incompatible(result)
        if not isinstance(output, Tensor):
            return output
        for argument, original, version in pairs:
            if output is argument:  # changed in place: the argument itself is the result
                if output._version != version:
                    _rewritten(original, output, level, dim)
                return original
        return output if dim is None else recorded.vmap_wrap(output, level, dim % output.ndim)

    return wrapped(*result)


def _incompatible(result: tuple[Any, Any]) -> RuntimeError:
    output, out_dims = result
    form = f"{type(output).__name__} of {len(output)}" if hasattr(output, "_fields") or isinstance(
        output, (tuple, list)) else type(output).__name__  # fmt: skip
    return RuntimeError(
        "The autograd.Function's vmap staticmethod returned an incompatible (output, out_dims) "
        f"tuple. Expected out_dims={out_dims} to be compatible with the structure of `output`. "
        f"Its output is a {form}. {MORE}"
    )


def _dim(x: Any, level: BatchLevel) -> int | None:
    """Where the mapped dimension stood, if `x` is an input of the vmap; else it stands first."""
    if not isinstance(x, Tensor) or level not in levels_of(x._array):
        return None
    return next((d for ref, d in level.mapped if ref() is x), 0)


def _rewritten(original: Tensor, output: Tensor, level: BatchLevel, dim: Any) -> None:
    """Gives an argument whose elements the user's rule changed in place its new history, and its
    new tangents.

    If the rule had a view of it, their common base has done so already.
    """
    if original is output or output._base is not None:
        return
    if output._requires_grad:
        rebase(original, edge_of(recorded.vmap_wrap(output, level, dim)))
    for each, tangent in dict((output._rare and output._rare.tangents) or {}).items():
        if tangent is not None:
            with below(each):
                set_tangent(original, each, recorded.vmap_wrap(tangent, level, dim))
