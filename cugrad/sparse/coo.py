"""SparseTensor: a tensor by the places and values of some of its elements; the others are zero."""

from __future__ import annotations

import builtins
import copy
from collections.abc import Callable
from typing import Any

from .. import dtypes
from ..autograd.mode import state
from ..device import device as Device
from ..dtypes import dtype as DType
from ..functions import FUNCTIONS
from ..functions.calls.out import sparse_coo
from ..functions.creation.factories import zeros
from ..functions.shapes.copies import cat
from ..ops.dims import canonical_dim
from ..runtime.dispatching import plainly
from ..tensor import Size, Tensor, make
from .described import Described
from .gradients import add_hook, add_post_hook, once_a_place, retain, retains, values_at
from .text import text_of

__all__ = ["SparseTensor", "check_layout", "nothing", "places_of"]


class SparseTensor(Described):
    """A tensor with `sparse_dim` sparse dims and dense ones behind them, in coordinate format.

    `indices`, (sparse_dim, nnz) of int64, says where the elements lie, `values`,
    (nnz, *dense dims), what they are; elements that are listed twice count twice, until `coalesce`.
    `sparse_coo_tensor` and `to_sparse` make one. What it has no method for raises
    NotImplementedError: compute with `values()`, or with `to_dense()`.
    """

    __torch_function__ = staticmethod(plainly)
    is_sparse = True
    layout = sparse_coo
    __array_ufunc__ = None  # array + sparse tensor is the tensor's to compute

    def __new__(cls, indices: Tensor, values: Tensor, size: Any, coalesced: bool = False) -> Any:
        self = object.__new__(cls)
        self._requires_grad = False
        self._node = self._grad = self._rare = self._counter = self._form = None
        self._places, self._elements, self._coalesced = indices, values, coalesced
        self._size = Size(size)
        return self

    def _with(self, values: Tensor) -> SparseTensor:
        """The same places with other values."""
        return SparseTensor(self._places, values, self._size, self._coalesced)

    # ------------------------------------------------------------------ what it is

    @property
    def grad(self) -> Tensor | None:
        """The gradient, at the same places, each once; None before the first backward."""
        g = self._elements.grad
        return None if g is None else self.gradient(g)

    @grad.setter
    def grad(self, value: Any) -> None:
        self._elements.grad = None if value is None else values_at(self, value)

    gradient, register_hook = once_a_place, add_hook
    register_post_accumulate_grad_hook, retain_grad = add_post_hook, retain
    retains_grad = property(retains)

    def indices(self) -> Tensor:
        """The places, (sparse_dim, nnz); RuntimeError unless coalesced."""
        return self._ordered("indices")._places

    def values(self) -> Tensor:
        """The values, (nnz, *dense dims); RuntimeError unless coalesced."""
        return self._ordered("values")._elements

    def _ordered(self, what: str) -> SparseTensor:
        if not self._coalesced:
            raise RuntimeError(
                f"Cannot get {what} on an uncoalesced tensor, please call .coalesce() first"
            )
        return self

    def __repr__(self) -> str:
        return text_of(self)

    def __iter__(self) -> Any:
        return iter(self.unbind())

    def __len__(self) -> int:
        return self._size[0]

    # ------------------------------------------------------------------ other forms of it

    def _keys(self) -> Tensor:
        """The places as numbers of one dim, row by row."""
        keys = self._places[0]
        for d in range(1, self.sparse_dim()):
            keys = keys * self._size[d] + self._places[d]
        return keys

    def coalesce(self) -> SparseTensor:
        """Each place once, in order; values of one place are added up."""
        if self._coalesced:
            return self
        keys, inverse = self._distinct_keys()
        shape = (keys.shape[0], *self._elements.shape[1:])
        values = zeros(shape, dtype=self.dtype, device=self.device)
        return self._at(keys, values.index_add(0, inverse, self._elements))

    def _distinct_keys(self) -> tuple[Tensor, Tensor]:
        """The numbers of the places, each once and in order; which of them each place has."""
        return self._keys().unique(sorted=True, return_inverse=True)

    def _at(self, keys: Tensor, values: Tensor) -> SparseTensor:
        """Values at the places of these numbers, which are in order."""
        places = places_of(keys, self._size[: self.sparse_dim()])
        return SparseTensor(places, values, self._size, True)

    def to_dense(self, dtype: DType | None = None, *, masked_grad: bool = True) -> Tensor:
        """An ordinary tensor with the same elements."""
        dense = self._put_into(zeros(self._size, dtype=self.dtype, device=self.device))
        return dense if dtype is None else dense.to(dtype)

    def _put_into(self, dense: Tensor) -> Tensor:
        """A dense tensor with the values added to its elements."""
        values = self._elements.to(dense.dtype)
        return FUNCTIONS["index_put"](dense, self._places.unbind(0), values, accumulate=True)

    def to_sparse(
        self, sparse_dim: int | None = None, *, layout: Any = None, blocksize: Any = None,
        dense_dim: int | None = None,
    ) -> SparseTensor:  # fmt: skip
        """Itself; another layout, or other sparse dims, are NotImplementedErrors."""
        check_layout(layout, blocksize)
        if sparse_dim not in (None, self.sparse_dim()) or dense_dim not in (None, self.dense_dim()):
            raise NotImplementedError("to_sparse: of a sparse tensor with other sparse dims")
        return self

    to_sparse_coo = to_sparse

    def detach(self) -> SparseTensor:
        return self._with(self._elements.detach())

    def clone(self) -> SparseTensor:
        return SparseTensor(
            self._places.clone(), self._elements.clone(), self._size, self._coalesced
        )

    def to(self, *args: Any, **options: Any) -> SparseTensor:
        """On another device, or of another dtype."""
        values = self._elements.to(*args, **options)
        return SparseTensor(self._places.to(values.device), values, self._size, self._coalesced)

    def cpu(self) -> SparseTensor:
        return self.to("cpu")

    def cuda(self, device: Any = None) -> SparseTensor:
        return self.to("cuda" if device is None else Device(device))

    def float(self) -> SparseTensor:
        return self.to(dtypes.float32)

    def double(self) -> SparseTensor:
        return self.to(dtypes.float64)

    def half(self) -> SparseTensor:
        return self.to(dtypes.float16)

    def new_zeros(self, *size: Any, **options: Any) -> SparseTensor:
        """Zeros of this dtype, on this device: none is kept."""
        shape = Size(size[0] if len(size) == 1 and not isinstance(size[0], builtins.int) else size)
        return nothing(shape, len(shape), **{"dtype": self.dtype, "device": self.device, **options})

    new_empty = new_zeros

    def requires_grad_(self, requires_grad: bool = True) -> SparseTensor:
        self._elements.requires_grad_(requires_grad)
        return self

    def zero_(self) -> SparseTensor:
        """Forgets all elements, in place."""
        self._places, self._elements = self._places[:, :0], self._elements[:0].detach()
        return self

    def copy_(self, src: Any, non_blocking: bool = False) -> SparseTensor:
        """Takes the places and values of another sparse tensor of this size, in place."""
        if not isinstance(src, SparseTensor) or src._size != self._size:
            raise RuntimeError(
                "copy_() between dense and sparse Tensors is not implemented! Found self type = "
                f"{self.layout} of {list(self._size)} and src type = {src.layout} of "
                f"{list(src.shape)}"
            )
        if state.grad_enabled and (self.requires_grad or src.requires_grad):
            raise NotImplementedError(
                "copy_: a sparse tensor has no gradient for it; use no_grad()"
            )
        self.data = src.detach().clone().to(self.device, self.dtype)
        self.counter[0] += 1
        return self

    def mul_(self, other: Any) -> SparseTensor:
        """Multiplies by a number, or a tensor of one, in place."""
        return self._scaled("mul_", other)

    def div_(self, other: Any) -> SparseTensor:
        """Divides by a number, or a tensor of one, in place."""
        return self._scaled("div_", other)

    __imul__, __itruediv__ = mul_, div_

    def add_(self, other: Any, *, alpha: Any = 1) -> SparseTensor:
        """Adds another sparse tensor of this size, in place."""
        return self._becomes_sum("add_", other, alpha)

    def sub_(self, other: Any, *, alpha: Any = 1) -> SparseTensor:
        """Subtracts another sparse tensor of this size, in place."""
        return self._becomes_sum("sub_", other, -alpha)

    __iadd__, __isub__ = add_, sub_

    def _becomes_sum(self, name: str, other: Any, alpha: Any) -> SparseTensor:
        if not isinstance(other, SparseTensor):
            raise NotImplementedError(f"{name}: want another sparse tensor; use {name[:-1]}()")
        if state.grad_enabled and self.requires_grad and self.is_leaf:
            raise RuntimeError(
                "a leaf Variable that requires grad is being used in an in-place operation."
            )
        (other if alpha == 1 else other * alpha).add_into(self)
        return self

    def _scaled(self, name: str, other: Any) -> SparseTensor:
        if isinstance(other, Tensor) and other.dim():
            raise NotImplementedError(
                f"{name}: a sparse tensor is scaled in place by a number alone; use {name[:-1]}()"
            )
        getattr(self._elements, name)(other)
        return self

    def detach_(self) -> SparseTensor:
        self._elements = self._elements.detach()
        return self

    # ------------------------------------------------------------------ ops, by the names of rows

    def run(self, name: str, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
        """An op of which this tensor is an operand; NotImplementedError for one that it lacks."""
        from .parts import OPS, each_element

        method: Callable[..., Any] | None = getattr(self, "op_" + name, None) or OPS.get(name)
        if method is not None:
            return method(*args, **params)
        result = each_element(name, args, params)
        if result is None:
            raise NotImplementedError(
                f"{name}: got a sparse tensor, want a dense one; call to_dense(), or compute with "
                "values()"
            )
        return result

    def op_add(self, a: Any, b: Any, alpha: Any = 1) -> Any:
        b = b if alpha == 1 else b * alpha
        if not (isinstance(a, SparseTensor) and isinstance(b, SparseTensor)):
            sparse, dense = (a, b) if isinstance(a, SparseTensor) else (b, a)
            return sparse._added_to(dense)
        if a._size != b._size or a.sparse_dim() != b.sparse_dim():
            raise RuntimeError(
                f"add: expected sizes of 'self' and 'other' to match, but {list(a._size)} != "
                f"{list(b._size)}"
            )
        kind = dtypes.promote_types(a.dtype, b.dtype)
        values = cat([a._elements.to(kind), b._elements.to(kind)])
        both = SparseTensor(cat([a._places, b._places], 1), values, a._size)
        return both.coalesce() if a._coalesced and b._coalesced else both

    def _added_to(self, dense: Any) -> Any:
        """The sum with a dense tensor of the same shape, which is dense; of an array, an array."""
        if isinstance(dense, (bool, int, float, complex)):
            raise NotImplementedError("add: got a number and a sparse tensor; call to_dense()")
        if not isinstance(dense, Tensor):
            return self._added_to(make(dense))._array
        if dense.shape != self._size:
            sizes = f"{list(self._size)}, got {list(dense.shape)}"
            raise RuntimeError(f"add: expected a dense tensor of size {sizes}")
        return self._put_into(dense)

    def add_into(self, sum: Tensor) -> None:
        """Adds these elements to those of another tensor, sparse or dense, in place."""
        if isinstance(sum, SparseTensor):
            both = sum + self
            sum._places, sum._elements = both._places, both._elements
            sum._coalesced = both._coalesced
            sum.counter[0] += 1
            return
        values = self._elements.to(sum.dtype)
        sum.index_put_(self._places.unbind(0), values, accumulate=True)

    def change(self, name: str, dense: Tensor) -> bool:
        """Adds itself to a dense tensor in place, or subtracts it; False for other ops."""
        from .parts import changed

        return changed(self, name, dense)

    def op_sub(self, a: Any, b: Any, alpha: Any = 1) -> Any:
        return self.op_add(a, -b if alpha == 1 else b * -alpha)

    def op_neg(self, a: SparseTensor) -> SparseTensor:
        return a._with(-a._elements)

    def op_mul(self, a: Any, b: Any) -> SparseTensor:
        """By a number, or element by element."""
        if not isinstance(a, SparseTensor):
            a, b = b, a
        if not isinstance(b, Tensor) or (not isinstance(b, SparseTensor) and b.dim() == 0):
            return a._with(a._elements * b)
        if isinstance(b, SparseTensor):
            return a._times(b)
        wide = b.expand(a._size).reshape(-1, *a._elements.shape[1:])
        return a._with(a._elements * wide.index_select(0, a._keys()))

    def _times(self, other: SparseTensor) -> SparseTensor:
        """The products where both have elements."""
        a, b = self.coalesce(), other.coalesce()
        if a._size != b._size or a.sparse_dim() != b.sparse_dim():
            sizes = f"{list(a._size)} != {list(b._size)}"
            raise RuntimeError(f"mul: expected sizes of 'self' and 'other' to match, but {sizes}")
        first, second = a._keys(), b._keys()
        if not second.numel():
            return b._with(b._elements * 1)
        at = FUNCTIONS["searchsorted"](second, first).clamp(max=second.shape[0] - 1)
        both = second.index_select(0, at) == first
        mine, theirs = both.nonzero().reshape(-1), at[both]
        values = a._elements.index_select(0, mine) * b._elements.index_select(0, theirs)
        return SparseTensor(a._places[:, mine], values, a._size, True)

    def op_div(self, a: Any, b: Any) -> SparseTensor:
        """By a number."""
        if not isinstance(a, SparseTensor) or (isinstance(b, Tensor) and b.dim()):
            raise NotImplementedError("div: a sparse tensor is divided by a number alone")
        return a._with(a._elements / b)

    def op_sum(
        self, a: SparseTensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
    ) -> Tensor:
        from .parts import summed

        return summed(a if dtype is None else a.to(dtype), dim, keepdim)

    def op_transpose(self, a: SparseTensor, dim0: int, dim1: int) -> SparseTensor:
        """Swaps two sparse dims, or two dense ones."""
        dims = list(range(a.dim()))
        dim0, dim1 = canonical_dim(dim0, a.dim()), canonical_dim(dim1, a.dim())
        dims[dim0], dims[dim1] = dims[dim1], dims[dim0]
        return self.op_permute(a, dims)

    def op_permute(self, a: SparseTensor, dims: Any) -> SparseTensor:
        from .parts import permuted

        return permuted(a, dims)

    def op_mT(self, a: SparseTensor) -> SparseTensor:
        return self.op_transpose(a, -2, -1)

    def op_conj(self, a: SparseTensor) -> SparseTensor:
        return a._with(a._elements.conj_physical())

    op__conj = op_conj  # its elements are a tensor of their own, as in PyTorch

    def op_t(self, a: SparseTensor) -> SparseTensor:
        return a.t()

    def op_mm(self, a: Any, b: Any) -> Tensor:
        from .products import mm

        return mm(a, b)

    op_matmul = op_mv = op_mm

    # ------------------------------------------------------------------ operators and methods

    def __add__(self, other: Any) -> Any:
        return NotImplemented if isinstance(other, str) else self.op_add(self, other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return self.op_sub(self, other)

    def __rsub__(self, other: Any) -> Any:
        return self.op_add(other, -self)

    def __mul__(self, other: Any) -> Any:
        return self.op_mul(self, other)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Any:
        return self.op_div(self, other)

    def __neg__(self) -> Any:
        return self.op_neg(self)

    def __matmul__(self, other: Any) -> Any:
        return self.op_mm(self, other)

    def __rmatmul__(self, other: Any) -> Any:
        return self.op_mm(other, self)

    mm = mv = matmul = smm = spmm = __matmul__
    mul = multiply = __mul__
    div = divide = __truediv__
    neg = negative = __neg__

    def add(self, other: Any, *, alpha: Any = 1) -> Any:
        return self.op_add(self, other, alpha)

    def sub(self, other: Any, *, alpha: Any = 1) -> Any:
        return self.op_sub(self, other, alpha)

    def sum(self, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
        return self.op_sum(self, dim, keepdim, dtype=dtype)

    def transpose(self, dim0: int, dim1: int) -> SparseTensor:
        return self.op_transpose(self, dim0, dim1)

    def t(self) -> SparseTensor:
        """Rows and columns swapped; RuntimeError for more than two dims."""
        if self.dim() != 2:
            raise RuntimeError(
                f"t() expects a tensor with <= 2 dimensions, but self is {self.dim()}D"
            )
        return self.op_transpose(self, 0, 1)

    def select(self, dim: builtins.int, index: builtins.int) -> Tensor:
        from .parts import selected

        return selected(self, dim, index)

    def unbind(self, dim: builtins.int = 0) -> tuple[Tensor, ...]:
        return tuple([self.select(dim, i) for i in range(self._size[dim])])

    def __getitem__(self, index: Any) -> Tensor:
        from .parts import part

        return part(self, index)

    def __pow__(self, exponent: Any) -> Any:
        return self.run("pow", (self, exponent), {})

    pow = __pow__

    def __reduce_ex__(self, protocol: Any) -> Any:
        fields = self._places, self._elements, tuple(self._size), self._coalesced
        return SparseTensor, fields, self.__dict__ or None

    def __deepcopy__(self, memo: dict[builtins.int, Any]) -> SparseTensor:
        if id(self) not in memo:
            memo[id(self)] = twin = self.detach().clone().requires_grad_(self.requires_grad)
            twin.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return memo[id(self)]


def nothing(
    size: Any, sparse_dim: builtins.int, *, dtype: Any = None, device: Any = None,
    requires_grad: bool = False,
) -> SparseTensor:  # fmt: skip
    """A sparse tensor in which all elements are zero."""
    values = zeros((0, *size[sparse_dim:]), dtype=dtype, device=device, requires_grad=requires_grad)
    places = zeros((sparse_dim, 0), dtype=dtypes.int64, device=device)
    return SparseTensor(places, values, size, True)


def places_of(keys: Tensor, size: Any) -> Tensor:
    """The places that have these numbers."""
    rows = []
    for extent in reversed(size):
        rows.append(keys % builtins.max(extent, 1))
        keys = FUNCTIONS["floor_divide"](keys, builtins.max(extent, 1))
    return FUNCTIONS["stack"](list(reversed(rows)))


def check_layout(wanted_layout: Any, blocksize: Any = None) -> None:
    if blocksize is not None:
        raise RuntimeError(
            "dense_to_sparse: conversion from Strided to Sparse with blocksize argument given is "
            "not supported"
        )
    if wanted_layout is not None and wanted_layout is not sparse_coo:
        raise NotImplementedError(f"got the layout {wanted_layout}, want torch.sparse_coo")
