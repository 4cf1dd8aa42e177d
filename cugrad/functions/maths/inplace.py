"""Methods that put the result of a function in the place of the tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...autograd.autocast import nothing_cast
from ...autograd.mode import state
from ...autograd.recording.inplace import apply_inplace, put
from ...autograd.recording.record import recorded
from ...dtypes import as_dtype
from ...ops.dims import canonical_dim
from ...ops.table import TABLE
from ...tensor import Tensor
from ..calls.arguments import array_of
from ..calls.mistakes import MISTAKES, explained
from ..indexing import puts, scatter
from ..shapes import copies
from . import arithmetic, composites, reduce, statistics
from . import products as linalg

__all__ = ["METHODS", "in_place"]


CHANGES = {**scatter.CHANGES, **copies.CHANGES}


def in_place(function: Callable[..., Tensor], saves: bool = False) -> Callable[..., Tensor]:
    """The method that puts the function's result in the place of its first argument.

    `saves` says that gradients of the function ask for the value that is lost: they get a copy.
    """
    change = CHANGES.get(function.__name__ + "_")

    def changed(input: Tensor, *args: Any, **options: Any) -> Tensor:
        before = input
        if change is not None and input._array.ndim:
            with nothing_cast():
                result = change(input, *args, **options)
            return result if result is input else put(function.__name__, input, result)
        if (
            saves
            and state.grad_enabled
            and any(
                isinstance(x, Tensor) and x._requires_grad
                for x in (input, *args, *options.values())
            )
        ):
            before = recorded.clone(input)
        with nothing_cast():  # as in PyTorch, autocast lets a change in place be what it is
            result = function(before, *args, **options)
        return put(function.__name__, input, result)

    def call(input: Tensor, *args: Any, **options: Any) -> Tensor:
        try:
            return changed(input, *args, **options)
        except MISTAKES as error:
            raise (explained(error, call.__name__) or error) from None

    call.__name__ = function.__name__ + "_"
    call.__qualname__ = f"Tensor.{call.__name__}"
    call.__doc__ = (
        f"`{function.__name__}` with its result in the place of this tensor, which is returned."
    )
    return call


METHODS: dict[str, Callable[..., Tensor]] = {
    f.__name__ + "_": in_place(f, saves=f in (
        arithmetic.igamma, arithmetic.igammac, composites.mvlgamma, scatter.index_reduce,
        scatter.scatter_reduce, statistics.renorm,
    ))
    for f in (
        copies.masked_fill, copies.tril, copies.triu, scatter.index_add,
        scatter.index_copy, scatter.index_fill, scatter.index_reduce, puts.masked_scatter,
        puts.put, scatter.scatter, scatter.scatter_add, scatter.scatter_reduce, linalg.addbmm,
        linalg.addmm, linalg.addmv, linalg.baddbmm, statistics.renorm,
        composites.mvlgamma, arithmetic.heaviside, arithmetic.igamma, arithmetic.igammac,
    )
}  # fmt: skip


def _running(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """`cumsum_` or `cumprod_`, whose dtype, if one is asked for, is that of the tensor."""
    name = function.__name__

    def call(self: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
        if dtype is not None and as_dtype(dtype) is not self.dtype:
            raise RuntimeError(
                f"Bad in-place call: input tensor dtype {self.dtype} and output tensor dtype "
                f"{dtype} should match"
            )
        ndim = array_of(self, name + "_").ndim
        dim = canonical_dim(dim, ndim)
        if not ndim:  # itself, but a change like any other
            return apply_inplace(TABLE["mul"], (self, 1))
        return apply_inplace(TABLE[name], (self,), {"dim": dim})

    call.__name__, call.__qualname__ = name + "_", f"Tensor.{name}_"
    call.__code__ = call.__code__.replace(co_name=call.__name__)  # which errors are told by
    call.__doc__ = f"`{name}` with its result in the place of this tensor, which is returned."
    return call


METHODS |= {f.__name__ + "_": _running(f) for f in (reduce.cumsum, reduce.cumprod)}
