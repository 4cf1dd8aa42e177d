"""vmap: a function of one example as a function of many at once."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

from ..autograd.recording.record import recorded
from ..autograd.transforms import active, opened_level
from ..backends.batched.arrays import BatchLevel, levels_of
from ..functions import FUNCTIONS
from ..functions.creation.random import default_generators
from ..tensor import Tensor
from .trees import broadcast, flatten, mismatch, unflatten

__all__ = ["vmap"]

RANDOMNESS = ("error", "different", "same")


def vmap(
    func: Callable[..., Any],
    in_dims: Any = 0,
    out_dims: Any = 0,
    randomness: str = "error",
    *,
    chunk_size: int | None = None,
) -> Callable[..., Any]:
    """`func`, written for one example, as a function that maps over a dimension of its inputs.

    Inside, the mapped dimension is hidden: shapes are those of one example, and every op computes
    all examples at once. Calls nest, and compose with `grad`, `jvp` and plain autograd.

    Args:
        func: takes and returns tensors, or nested tuples, lists and dicts of them.
        in_dims: the dimension to map over, per argument (a tuple) or nested as the arguments are;
            None for what is the same for all examples, as keyword arguments always are.
        out_dims: where the mapped dimension stands in each output.
        randomness: what random functions inside do: "error", "different" by example, or "same".
        chunk_size: examples at once, to bound memory; all of them by default.

    Raises ValueError for inputs without a dimension to map over or of different sizes, and
    RuntimeError for what cannot be batched: `.item()`, a condition on a tensor, an output whose
    shape depends on values, an in-place change of a tensor that is not mapped over.

    >>> import cugrad as torch
    >>> torch.vmap(torch.dot)(torch.ones(2, 3), torch.tensor([[1., 2., 3.], [4., 5., 6.]]))
    tensor([ 6., 15.])
    """
    if randomness not in RANDOMNESS:
        raise RuntimeError(
            f"Only allowed values for randomness are 'error', 'different', or 'same'. "
            f"Got {randomness}"
        )
    if not (chunk_size is None or chunk_size > 0):
        raise ValueError(f"vmap: chunk_size should be None or greater than 0. (got {chunk_size})")

    @functools.wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        _check_out_dims(func, out_dims)
        leaves, form = flatten((args, kwargs))
        dims = _dims(func, in_dims, args, kwargs)
        size = _size(leaves, dims)
        if chunk_size is None:
            return _run(func, leaves, form, dims, out_dims, randomness, size)
        parts = []
        generators = default_generators() if randomness == "same" else []
        before = [generator.get_state() for generator in generators]
        for start in range(0, size, chunk_size) or (0,):
            for generator, drawn_from in zip(generators, before, strict=True):
                generator.set_state(drawn_from)
            count = min(chunk_size, size - start)
            piece = [
                x if d is None else x.narrow(d, start, count)
                for x, d in zip(leaves, dims, strict=True)
            ]
            parts.append(_run(func, piece, form, dims, out_dims, randomness, count))
        return _joined(func, parts, out_dims)

    return wrapped


def _name(func: Any) -> str:
    if hasattr(func, "__name__"):
        return str(func.__name__)
    if isinstance(func, functools.partial):
        return f"functools.partial({_name(func.func)}, ...)"
    return repr(func)


def _dims(func: Any, in_dims: Any, args: Any, kwargs: Any) -> list[int | None]:
    """The dimension mapped over per leaf; keyword arguments are the same for all examples."""
    where = f"vmap({_name(func)}, in_dims={in_dims}, ...)(<inputs>)"
    if not isinstance(in_dims, (int, tuple)):
        raise ValueError(
            f"{where}: expected `in_dims` to be int or a (potentially nested) tuple matching the "
            f"structure of inputs, got: {type(in_dims)}."
        )
    if not args:
        raise ValueError(
            f"vmap({_name(func)})(<inputs>): got no inputs. Maybe you forgot to add inputs, or you "
            "are trying to vmap over a function with no inputs. The latter is unsupported."
        )
    if isinstance(in_dims, tuple) and len(in_dims) != len(args):
        raise ValueError(mismatch(f"{where}: in_dims", in_dims, args, "inputs"))
    dims = broadcast(in_dims, args, f"{where}: in_dims", "inputs")
    dims += [None] * len(flatten(kwargs)[0])
    leaves = flatten((args, kwargs))[0]
    if isinstance(in_dims, int):  # numbers beside tensors are not mapped over, but tensors are
        for x, d in zip(leaves, dims, strict=True):
            if d is not None and not isinstance(x, Tensor):
                raise ValueError(
                    f"{where}: Got in_dim={d} for an input but the input is of type {type(x)}. We "
                    "cannot vmap over non-Tensor arguments, please use None as the respective "
                    "in_dim"
                )
    return [_checked(where, x, d) for x, d in zip(leaves, dims, strict=True)]


def _checked(where: str, x: Any, d: Any) -> int | None:
    if d is None:
        return None
    if not isinstance(d, int) or isinstance(d, bool):
        raise ValueError(
            f"{where}: Got in_dim={d} for an input but in_dim must be either an integer dimension "
            "or None."
        )
    if not isinstance(x, Tensor):
        raise ValueError(
            f"{where}: Got in_dim={d} for an input but the input is of type {type(x)}. We cannot "
            "vmap over non-Tensor arguments, please use None as the respective in_dim"
        )
    if not -x.ndim <= d < x.ndim:
        raise ValueError(
            f"{where}: Got in_dim={d} for some input, but that input is a Tensor of dimensionality "
            f"{x.ndim} so expected in_dim to satisfy -{x.ndim} <= in_dim < {x.ndim}."
        )
    return d % x.ndim


def _size(leaves: list[Any], dims: list[int | None]) -> int:
    sizes = [x.shape[d] for x, d in zip(leaves, dims, strict=True) if d is not None]
    if not sizes:
        raise ValueError("vmap: Expected at least one Tensor to vmap over (all in_dims are None)")
    if any(size != sizes[0] for size in sizes):
        raise ValueError(
            "vmap: Expected all tensors to have the same size in the mapped dimension, got sizes "
            f"{sizes} for the mapped dimension"
        )
    return int(sizes[0])


def _run(
    func: Any, leaves: Any, form: Any, dims: Any, out_dims: Any, randomness: str, size: int
) -> Any:
    level = opened_level(size, randomness)
    inside = [
        x if d is None else recorded.vmap_wrap(x, level, d)
        for x, d in zip(leaves, dims, strict=True)
    ]
    level.mapped = [(weakref.ref(x), d) for x, d in zip(inside, dims, strict=True) if d]
    by_id = {
        id(x): (d, leaf, x._array)
        for x, d, leaf in zip(inside, dims, leaves, strict=True)
        if d is not None
    }
    args, kwargs = unflatten(form, inside)
    with active(level):
        result = func(*args, **kwargs)
    outputs, shape = flatten(result)
    where = _places(func, out_dims, result)

    def out(x: Any, d: Any) -> Any:
        at, leaf, array = by_id.get(id(x), (None, None, None))
        as_it_came = at is not None and d in (at, at - leaf.ndim)
        # Another array is another shape, as after x.unsqueeze_(0), or memory that set_ has put.
        return leaf if as_it_came and x._array is array else _out(func, level, x, d)

    return unflatten(shape, [out(x, d) for x, d in zip(outputs, where, strict=True)])


def _check_out_dims(func: Any, out_dims: Any) -> None:
    """ValueError for what says no dimensions."""
    if not all(isinstance(d, (int, type(None))) for d in flatten(out_dims)[0]):
        raise ValueError(
            f"vmap({_name(func)}, ..., out_dims={out_dims}): `out_dims` must be an int, None or a "
            "python collection of ints representing where in the outputs the vmapped dimension "
            "should appear."
        )


def _places(func: Any, out_dims: Any, result: Any) -> list[int | None]:
    """The dimension per output; a tuple of one will do for a function that returns a tensor."""
    if isinstance(result, Tensor) and isinstance(out_dims, tuple) and len(out_dims) == 1:
        return list(out_dims)
    what = f"vmap({_name(func)}, ..., out_dims={out_dims})(<inputs>): out_dims"
    return broadcast(out_dims, result, what, "outputs")


def _out(func: Any, level: BatchLevel, x: Any, d: Any) -> Any:
    if not isinstance(x, Tensor):
        if d is None:
            return x
        raise ValueError(
            f"vmap({_name(func)}, ...): `{_name(func)}` must only return Tensors, got type "
            f"{type(x)}. Did you mean to set out_dims= to None for output?"
        )
    if d is None:
        if level in levels_of(x._array):
            raise ValueError(
                f"vmap({_name(func)}, ...): `{_name(func)}` can not return a BatchedTensor when "
                "out_dim is None"
            )
        return x
    if level not in levels_of(x._array):
        x = recorded.vmap_lift(x, level)
    span = x.ndim + 1
    if not -span <= d < span:
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-span}, {span - 1}], but got "
            f"{d})"
        )
    return recorded.vmap_unwrap(x, level, d % span)


def _joined(func: Any, parts: list[Any], out_dims: Any) -> Any:
    """The results of chunks, joined where the mapped dimension stands."""
    where = _places(func, out_dims, parts[0])
    form = flatten(parts[0])[1]
    columns = zip(*[flatten(p)[0] for p in parts], strict=True)
    return unflatten(
        form,
        [
            column[0] if d is None else FUNCTIONS["cat"](list(column), d)
            for column, d in zip(columns, where, strict=True)
        ],
    )
