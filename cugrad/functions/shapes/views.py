"""Views as PyTorch spells them."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from ...autograd.recording.operands import number
from ...autograd.recording.record import recorded
from ...ops import dims as D
from ...ops.views.shape import is_viewable
from ...tensor import Tensor
from ..calls.arguments import array_of, varargs
from .layouts import contiguous

__all__ = [
    "adjoint", "broadcast_tensors", "broadcast_to", "diagonal", "flatten", "moveaxis", "movedim",
    "narrow", "permute", "ravel", "reshape", "select", "squeeze", "swapaxes", "swapdims", "t",
    "transpose", "unflatten", "unsqueeze",
]  # fmt: skip


# Views --------------------------------------------------------------------------------------------


def reshape(input: Tensor, shape: Any) -> Tensor:
    """The same elements in another shape: a view where memory allows, else a copy.

    One extent may be -1, for what the others leave.

    >>> import cugrad as torch
    >>> torch.reshape(torch.arange(6), (2, -1)).shape
    torch.Size([2, 3])
    """
    array = array_of(input, "reshape")
    shape = D.inferred_shape(D.int_tuple(shape), array.size)
    if is_viewable(array, shape):
        return recorded.view(input, shape)
    return recorded.unsafe_view(input, shape)


def flatten(input: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """The dims from `start_dim` to `end_dim` made one.

    >>> import cugrad as torch
    >>> torch.zeros(2, 3, 4).flatten(1).shape
    torch.Size([2, 12])
    """
    array = array_of(input, "flatten")
    first, last = D.canonical_dim(start_dim, array.ndim), D.canonical_dim(end_dim, array.ndim)
    if not array.ndim:
        return reshape(input, (1,))
    if first > last:
        raise RuntimeError("flatten() has invalid args: start_dim cannot come after end_dim")
    if first == last:
        return input
    size = 1
    for n in array.shape[first : last + 1]:
        size *= n
    return reshape(input, (*array.shape[:first], size, *array.shape[last + 1 :]))


def ravel(input: Tensor) -> Tensor:
    """All elements in one dim, one behind the other in memory: a view where they are so."""
    array_of(input, "ravel")
    return reshape(contiguous(input), (-1,))


def unflatten(input: Tensor, dim: int, sizes: Sequence[int]) -> Tensor:
    """One dim split into several, of which one may be -1.

    >>> import cugrad as torch
    >>> torch.unflatten(torch.zeros(2, 12), 1, (3, -1)).shape
    torch.Size([2, 3, 4])
    """
    shape = array_of(input, "unflatten").shape
    dim = D.canonical_dim(dim, len(shape))
    sizes = D.int_tuple(sizes, "sizes")
    if not shape:
        raise RuntimeError("unflatten: a tensor without dimensions has none to be split")
    try:
        parts = D.inferred_shape(sizes, shape[dim])
    except RuntimeError:
        raise RuntimeError(
            f"unflatten: Provided sizes {list(sizes)} don't multiply up to the size of dim {dim} "
            f"({shape[dim]}) in the input tensor"
        ) from None
    return reshape(input, (*shape[:dim], *parts, *shape[dim + 1 :]))


def permute(input: Tensor, dims: Any) -> Tensor:
    """A view with the dims in another order.

    >>> import cugrad as torch
    >>> torch.zeros(2, 3, 4).permute(2, 0, 1).shape
    torch.Size([4, 2, 3])
    """
    ndim = array_of(input, "permute").ndim
    dims = D.int_tuple(dims, "dims")
    if len(dims) != ndim:
        raise RuntimeError(
            "permute: number of dimensions in the tensor input does not match the length of the "
            f"desired ordering of dimensions i.e. input.dim() = {ndim} is not equal to "
            f"len(dims) = {len(dims)}"
        )
    order = tuple([D.canonical_dim(d, ndim) for d in dims])
    if len(set(order)) < ndim:
        raise RuntimeError(f"permute(): duplicate dims are not allowed, got {dims}")
    return recorded.permute(input, order)


def transpose(input: Tensor, dim0: int, dim1: int) -> Tensor:
    """A view with two dims exchanged."""
    ndim = array_of(input, "transpose").ndim
    return recorded.transpose(input, D.canonical_dim(dim0, ndim), D.canonical_dim(dim1, ndim))


swapaxes = swapdims = transpose


def t(input: Tensor) -> Tensor:
    """A matrix transposed, as a view; a vector is left as it is."""
    ndim = array_of(input, "t").ndim
    if ndim > 2:
        raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, but self is {ndim}D")
    return recorded.t(input)


def _T(self: Tensor) -> Tensor:
    """The tensor with its dims reversed."""
    return recorded.permute(self, tuple(range(self.ndim))[::-1])


def _mT(self: Tensor) -> Tensor:
    """The last two dims exchanged: every matrix of a batch transposed."""
    if not self.ndim:
        return _itself(self, "mT", "This function is the identity in these cases.")
    if self.ndim < 2:
        raise RuntimeError(
            "tensor.mT is only supported on matrices or batches of matrices. "
            f"Got {self.ndim}-D tensor."
        )
    return recorded.mT(self)


def _itself(self: Tensor, name: str, advice: str) -> Tensor:
    warnings.warn(f"Tensor.{name} is deprecated on 0-D tensors. {advice}", stacklevel=3)
    return recorded.permute(self, ())


def movedim(input: Tensor, source: Any, destination: Any) -> Tensor:
    """A view with some dims at other places, the rest in their order.

    >>> import cugrad as torch
    >>> torch.zeros(2, 3, 4).movedim(0, -1).shape
    torch.Size([3, 4, 2])
    """
    ndim = array_of(input, "movedim").ndim
    src, dst = _distinct(source, ndim, "source"), _distinct(destination, ndim, "destination")
    if len(src) != len(dst):
        raise RuntimeError(
            "movedim: Invalid source or destination dims: source "
            f"({list(src)} dims) should contain the same number of dims as destination "
            f"({list(dst)} dims)"
        )
    order: list[Any] = [None] * (ndim or 1)
    for s, d in zip(src, dst):
        order[d] = s
    rest = iter([d for d in range(ndim) if d not in src])
    order = order if ndim else []  # a 0-d tensor takes dims as if it had one
    return recorded.permute(input, tuple([next(rest) if d is None else d for d in order]))


moveaxis = movedim


def _distinct(dims: Any, ndim: int, name: str) -> tuple[int, ...]:
    """Canonical dims; RuntimeError where one is named twice."""
    try:
        return D.canonical_dims(dims, ndim)
    except RuntimeError as error:
        raise RuntimeError(f"movedim: repeated dim in `{name}` ({list(dims)}): {error}") from None


def broadcast_to(input: Tensor, size: Any) -> Tensor:
    """A view in which dims of extent 1, and new ones in front, are repeated; -1 keeps an extent."""
    shape = array_of(input, "broadcast_to").shape
    size = D.int_tuple(size, "size")
    lead = len(size) - len(shape)
    if lead < 0:
        raise RuntimeError(
            f"expand({input.dtype}{{{list(shape)}}}, size={list(size)}): the number of sizes "
            f"provided ({len(size)}) must be greater or equal to the number of dimensions in the "
            f"tensor ({len(shape)})"
        )
    target = list(size)
    for i, extent in enumerate(size):
        if i < lead:
            if extent < 0:
                raise RuntimeError(
                    f"The expanded size of the tensor ({extent}) isn't allowed in a leading, "
                    f"non-existing dimension {i}"
                )
        elif extent == -1:
            target[i] = shape[i - lead]
        elif extent != shape[i - lead] and shape[i - lead] != 1:
            raise RuntimeError(
                f"The expanded size of the tensor ({extent}) must match the existing size "
                f"({shape[i - lead]}) at non-singleton dimension {i}.  Target sizes: "
                f"{list(size)}.  Tensor sizes: {list(shape)}"
            )
    return recorded.expand(input, tuple(target))


def broadcast_tensors(*tensors: Tensor) -> tuple[Tensor, ...]:
    """The tensors in the one shape in which they meet: itself, or a view."""
    shape = D.broadcast_shapes(
        *[array_of(x, "broadcast_tensors", "tensors").shape for x in tensors]
    )
    return tuple([x if x._array.shape == shape else recorded.expand(x, shape) for x in tensors])


def squeeze(input: Tensor, dim: Any = None) -> Tensor:
    """A view without dims of extent 1: all of them, or those among `dim`.

    >>> import cugrad as torch
    >>> torch.zeros(1, 3, 1).squeeze(0).shape
    torch.Size([3, 1])
    """
    shape = array_of(input, "squeeze").shape
    dims = range(len(shape)) if dim is None else D.canonical_dims(dim, len(shape))
    return recorded.squeeze(input, tuple([d for d in dims if d < len(shape) and shape[d] == 1]))


def unsqueeze(input: Tensor, dim: int) -> Tensor:
    """A view with a dim of extent 1 inserted at `dim`."""
    return recorded.unsqueeze(input, D.canonical_dim(dim, array_of(input, "unsqueeze").ndim + 1))


def select(input: Tensor, dim: int, index: int) -> Tensor:
    """A view of what lies at `index` along `dim`, without that dim."""
    shape = array_of(input, "select").shape
    if not shape:
        raise IndexError("select() cannot be applied to a 0-dim tensor.")
    dim = D.canonical_dim(dim, len(shape))
    index = D.one_int(index, "index")
    if not -shape[dim] <= index < shape[dim]:
        raise IndexError(
            f"select(): index {index} out of range for tensor of size {list(shape)} "
            f"at dimension {dim}"
        )
    return recorded.select(input, dim, index % shape[dim])


def _cut(input: Tensor, dim: int, start: int, stop: int) -> Tensor:
    return recorded.slice_view(input, (*(slice(None),) * dim, slice(start, stop, 1)))


def narrow(input: Tensor, dim: int, start: Any, length: int) -> Tensor:
    """A view of `length` places along `dim`, from `start` on."""
    shape = array_of(input, "narrow").shape
    if not shape:
        raise RuntimeError("narrow() cannot be applied to a 0-dim tensor.")
    dim = D.canonical_dim(dim, len(shape))
    n = shape[dim]
    if isinstance(start, Tensor) and (start._array.ndim or start._array.dtype.kind not in "iu"):
        raise RuntimeError(
            "start must be an 0-dim integral Tensor. (narrow: got "
            f"{start.dtype} of shape {list(start._array.shape)})"
        )
    start = int(number(start, "narrow", "start"))
    if length < 0:
        raise RuntimeError("narrow(): length must be non-negative.")
    if not -n <= start <= n:
        raise IndexError(
            f"start out of range (expected to be in range of [{-n}, {n}], but got {start})"
        )
    start = start + n if start < 0 else start
    if start + length > n:
        raise RuntimeError(f"start ({start}) + length ({length}) exceeds dimension size ({n}).")
    return _cut(input, dim, start, start + length)


def diagonal(input: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """A view of the diagonal of two dims, as a last dim; `offset` > 0 goes above it.

    >>> import cugrad as torch
    >>> torch.arange(4).reshape(2, 2).diagonal()
    tensor([0, 3])
    """
    ndim = array_of(input, "diagonal").ndim
    first, second = D.canonical_dim(dim1, ndim), D.canonical_dim(dim2, ndim)
    if first == second:
        raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    return recorded.diagonal(input, offset, first, second)


# Methods ------------------------------------------------------------------------------------------


def _broadcast_to(self: Tensor, *sizes: Any, size: Any = None) -> Tensor:
    """A view in which dims of extent 1, and new ones in front, are repeated; -1 keeps an extent."""
    return broadcast_to(self, varargs(sizes, size))


def _expand(self: Tensor, *sizes: Any, size: Any = None, implicit: bool = False) -> Tensor:
    """A view in which dims of extent 1, and new ones in front, are repeated; -1 keeps an extent."""
    return broadcast_to(self, varargs(sizes, size))


def _reshape(self: Tensor, *sizes: Any, shape: Any = None) -> Tensor:
    """The same elements in another shape: a view where memory allows, else a copy."""
    return reshape(self, varargs(sizes, shape))


def _permute(self: Tensor, *order: Any, dims: Any = None) -> Tensor:
    """A view with the dims in another order."""
    return permute(self, varargs(order, dims))


def _squeeze(self: Tensor, *dim: Any, **named: Any) -> Tensor:
    """A view without dims of extent 1: all of them, or those among `dim`."""
    return squeeze(self, *(dim if len(dim) < 2 else (dim,)), **named)


def _H(self: Tensor) -> Tensor:
    """A matrix transposed and conjugated."""
    if self.ndim not in (0, 2):
        raise RuntimeError(
            "tensor.H is only supported on matrices (2-D tensors). "
            f"Got {self.ndim}-D tensor; use x.mH for a batch."
        )
    return adjoint(self) if self.ndim else _conjugated(self)


def _mH(self: Tensor) -> Tensor:
    """The last two dims exchanged, and complex numbers conjugated."""
    if not self.ndim:
        return _conjugated(_itself(self, "mH", "Consider using x.conj()."))
    return adjoint(self)


def adjoint(input: Tensor) -> Tensor:
    """The last two dims exchanged, and complex numbers conjugated.

    >>> import cugrad as torch
    >>> torch.adjoint(torch.tensor([[1 + 2j, 3]]))
    tensor([[1.-2.j],
            [3.-0.j]])
    """
    ndim = array_of(input, "adjoint").ndim
    if not ndim:
        return _conjugated(_itself(input, "adjoint", "Consider using x.conj()."))
    if ndim < 2:
        raise RuntimeError(
            "tensor.adjoint() is only supported on matrices or batches of matrices. "
            f"Got {ndim}-D tensor."
        )
    return _conjugated(recorded.transpose(input, ndim - 2, ndim - 1))


def _conjugated(x: Tensor) -> Tensor:
    return recorded._conj(x) if x.dtype.is_complex else x


def _view_as(self: Tensor, other: Tensor) -> Tensor:
    """A view in the shape of another tensor."""
    shape = array_of(other, "view_as", "other").shape
    return recorded.view(self, D.inferred_shape(shape, self._array.size))


def _expand_as(self: Tensor, other: Tensor) -> Tensor:
    """A view in the shape of another tensor, in which dims of size 1 are repeated."""
    return broadcast_to(self, array_of(other, "expand_as", "other").shape)


def _reshape_as(self: Tensor, other: Tensor) -> Tensor:
    """The elements in the shape of another tensor: a view where memory allows one."""
    return reshape(self, array_of(other, "reshape_as", "other").shape)


METHODS = {
    **{name: globals()[name] for name in __all__ if not name.startswith("broadcast_t")},
    "broadcast_to": _broadcast_to,
    "expand": _expand,
    "expand_as": _expand_as,
    "permute": _permute,
    "reshape": _reshape,
    "squeeze": _squeeze,
    "reshape_as": _reshape_as,
    "view_as": _view_as,
}

PROPERTIES = {"H": _H, "T": _T, "mH": _mH, "mT": _mT}
