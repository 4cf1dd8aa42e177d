"""Views by strides, in other dtypes and of windows, and what memory a tensor lies in."""

from __future__ import annotations

from math import prod
from typing import Any

from ...autograd.autocast import autocasts
from ...autograd.mode import state
from ...autograd.recording.mirrors import bits, lying
from ...autograd.recording.record import recorded
from ...autograd.recording.views import changed
from ...backends import backend_of
from ...backends.batched.arrays import levels_of
from ...backends.several import there
from ...backends.wanted import known
from ...dtypes import as_dtype, type_name
from ...dtypes import dtype as Dtype
from ...ops import dims as D
from ...ops.views.strided import address_of, is_complex_pairs, layout_of, storage_of
from ...tensor import Tensor, make, tell_turned
from ..calls.arguments import array_of, varargs

__all__ = [
    "as_strided", "as_strided_scatter", "diagonal_scatter", "resize_as_", "select_scatter",
    "slice_scatter", "real", "imag", "view_as_complex", "view_as_real",
]  # fmt: skip
TAKES_OUT = frozenset(["slice_scatter"])


# Strides ------------------------------------------------------------------------------------------


def _geometry(input: Tensor, size: Any, stride: Any, storage_offset: Any) -> tuple[Any, ...]:
    """The parameters of the row: size, stride, offset from the first element, own strides."""
    array = array_of(input, "as_strided")
    size, stride = D.int_tuple(size, "size"), D.int_tuple(stride, "stride")
    if len(size) != len(stride):
        raise RuntimeError(
            f"mismatch in length of strides and shape (as_strided: got size {list(size)} and "
            f"stride {list(stride)})"
        )
    if any(s < 0 for s in stride):
        raise RuntimeError(
            f"as_strided: Negative strides are not supported at the moment, got strides: "
            f"{list(stride)}"
        )
    flat, start = storage_of(array)
    first = start if storage_offset is None else D.one_int(storage_offset, "storage_offset")
    if first < 0:
        raise RuntimeError(f"Tensor: invalid storage offset {first}")
    last = first + sum((n - 1) * s for n, s in zip(size, stride)) if 0 not in size else -1
    if last >= flat.size and flat.ndim == 1:
        raise RuntimeError(
            f"setStorage: sizes {list(size)}, strides {list(stride)}, storage offset {first}, and "
            f"itemsize {array.itemsize} requiring a storage size of {(last + 1) * array.itemsize} "
            f"are out of bounds for storage of size {flat.size * array.itemsize}"
        )
    return size, stride, first - start, layout_of(array)


def as_strided(input: Tensor, size: Any, stride: Any, storage_offset: Any = None) -> Tensor:
    """A view of a tensor's memory with any size and strides, counted in elements.

    RuntimeError when the memory does not reach so far. Elements may share a place: their gradients
    add up.

    >>> import cugrad as torch
    >>> torch.as_strided(torch.arange(4), (3, 2), (1, 1))
    tensor([[0, 1],
            [1, 2],
            [2, 3]])
    """
    return recorded.as_strided(input, *_geometry(input, size, stride, storage_offset))


def _embedded(function: str, input: Tensor, src: Tensor, view: Any, order: str = "K") -> Tensor:
    """A copy of `input` with `src` where `view` looks; "C" where that counts in memory."""
    for level in reversed(levels_of(src._array) if isinstance(src, Tensor) else []):
        if level not in levels_of(input._array):  # inside vmap, one copy for each example
            input = recorded.vmap_lift(input, level)
    out = recorded.clone(input, order)
    part = view(out)
    shape = array_of(src, function, "src", 2).shape
    if shape != part._array.shape:
        raise RuntimeError(
            f"expected src to have a size equal to the slice of self. src size = {list(shape)}, "
            f"slice size = {list(part._array.shape)} ({function})"
        )
    part.copy_(src)
    return out


def as_strided_scatter(
    input: Tensor, src: Tensor, size: Any, stride: Any, storage_offset: Any = None
) -> Tensor:
    """A copy with `src` where `as_strided` would look."""
    return _embedded(
        "as_strided_scatter", input, src,
        lambda x: as_strided(x, size, stride, storage_offset), "C",
    )  # fmt: skip


def select_scatter(input: Tensor, src: Tensor, dim: int, index: int) -> Tensor:
    """A copy with `src` at `index` along `dim`.

    >>> import cugrad as torch
    >>> torch.select_scatter(torch.zeros(2, 2), torch.ones(2), 0, 1)
    tensor([[0., 0.],
            [1., 1.]])
    """
    return _embedded("select_scatter", input, src, lambda x: x.select(dim, index))


def slice_scatter(
    input: Tensor,
    src: Tensor,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> Tensor:
    """A copy with `src` at `start:end:step` along `dim`."""
    dim = D.canonical_dim(dim, array_of(input, "slice_scatter").ndim)
    where = (*(slice(None),) * dim, slice(start, end, step))
    return _embedded("slice_scatter", input, src, lambda x: x[where])


def diagonal_scatter(
    input: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Tensor:
    """A copy with `src` on a diagonal."""
    return _embedded("diagonal_scatter", input, src, lambda x: x.diagonal(offset, dim1, dim2))


def unfold(self: Tensor, dimension: int, size: int, step: int) -> Tensor:
    """A view of windows of `size` along a dim, `step` apart, the window as a new last dim.

    >>> import cugrad as torch
    >>> torch.arange(5).unfold(0, 3, 2)
    tensor([[0, 1, 2],
            [2, 3, 4]])
    """
    shape = self._array.shape
    dim = D.canonical_dim(dimension, len(shape))
    extent = shape[dim] if shape else 1
    if not 0 <= size <= extent:
        raise RuntimeError(
            f"maximum size for tensor at dimension {dim} is {extent} but size is {size}"
        )
    if step <= 0:
        raise RuntimeError(f"step is {step} but must be > 0")
    return recorded.unfold(self, dim, size, step)


# Dtypes -------------------------------------------------------------------------------------------


def view_as_real(input: Tensor) -> Tensor:
    """A view of complex numbers as pairs of real ones, in a new last dim.

    >>> import cugrad as torch
    >>> torch.view_as_real(torch.tensor([1 + 2j]))
    tensor([[1., 2.]])
    """
    if array_of(input, "view_as_real").dtype.kind != "c":
        raise RuntimeError(f"view_as_real is only supported for complex tensors, got {input.dtype}")
    if bits(input).conjugate:
        raise RuntimeError(
            "view_as_real doesn't work on unresolved conjugated tensors.  To resolve the conjugate "
            "tensor so you can view it as real, use self.resolve_conj(); however, be warned that "
            "the resulting tensor will NOT alias the original."
        )
    return recorded.view_as_real(input)


def real(input: Tensor) -> Tensor:
    """A view of the real parts of complex numbers; `input` itself where it is real.

    >>> import cugrad as torch
    >>> x = torch.tensor([1 + 2j])
    >>> x.real += 4
    >>> x
    tensor([5.+2.j])
    """
    return _part(input, 0) if array_of(input, "real").dtype.kind == "c" else input


def imag(input: Tensor) -> Tensor:
    """A view of the imaginary parts of complex numbers."""
    if array_of(input, "imag").dtype.kind != "c":
        raise RuntimeError(
            f"imag is not implemented for tensors with non-complex dtypes, got {input.dtype}"
        )
    return _part(input, 1)


def _part(input: Tensor, number: int) -> Tensor:
    pairs = recorded.view_as_real(input)
    return recorded.select(pairs, pairs.ndim - 1, number)


@autocasts
def view_as_complex(input: Tensor) -> Tensor:
    """A view of pairs of real numbers, which the last dim holds, as complex ones.

    >>> import cugrad as torch
    >>> torch.view_as_complex(torch.tensor([[1., 2.]]))
    tensor([1.+2.j])
    """
    array = array_of(input, "view_as_complex")
    if array.dtype.name not in ("float32", "float64"):
        raise RuntimeError(
            "view_as_complex is only supported for half, float and double tensors, but got a "
            f"tensor of scalar type: {input.dtype}"
        )
    if not array.ndim:
        raise RuntimeError("Input tensor must have one or more dimensions")
    if array.shape[-1] != 2:
        raise RuntimeError("Tensor must have a last dimension of size 2")
    if array.size and not is_complex_pairs(array):
        raise RuntimeError(
            "Tensor must have a last dimension with stride 1, and strides divisible by 2 in all "
            f"others, got {layout_of(array)}; use x.contiguous()"
        )
    if array.size and not levels_of(array) and storage_offset(input) % 2:
        raise RuntimeError("Tensor must have a storage_offset divisible by 2; use x.clone()")
    return recorded.view_as_complex(input)


def view(self: Tensor, *shape: Any, size: Any = None, dtype: Any = None) -> Tensor:
    """A view of the same elements in another shape; RuntimeError where only a copy would do.

    `view(dtype)` sees the same bytes as another element type, which changes the last extent when
    the sizes of the types differ.
    """
    sizes = varargs(shape, size)
    if dtype is None and len(sizes) == 1 and isinstance(sizes[0], (Dtype, type)):
        dtype = sizes[0]
    if dtype is not None:
        return _view_dtype(self, as_dtype(dtype))
    return recorded.view(self, D.inferred_shape(D.int_tuple(sizes), self._array.size))


def _view_dtype(self: Tensor, dtype: Dtype) -> Tensor:
    array, old, new = self._array, self._array.itemsize, dtype.itemsize
    if array.dtype == dtype.numpy:
        return recorded.view(self, array.shape)
    for bit, what in zip(bits(self), ("conjugate view tensors", "tensors with negative bit set")):
        if bit:
            raise RuntimeError(
                f"torch.Tensor.view is not supported for {what} when converting to a different "
                "dtype. (x.resolve_conj() and x.resolve_neg() make copies without them)"
            )
    if old != new:
        _check_sizes(self, dtype, new // old)
    # the bits in another dtype: of no gradient, and no view that follows changes, as in PyTorch
    seen: Tensor = recorded.view_dtype(self.detach(), dtype.numpy)
    if seen._rare is not None and seen._rare.view is not None:
        seen._rare.view.release(seen)
    if not state.inference and seen.is_inference():
        seen._counter = None
    return seen


def _check_sizes(self: Tensor, dtype: Dtype, ratio: int) -> None:
    """RuntimeError where a tensor cannot be seen as elements of another size, `ratio` as large."""
    array = self._array
    seen = f"to view {type_name(self.dtype)} as {type_name(dtype)} (different element sizes)"
    if not array.ndim:
        raise RuntimeError(f"self.dim() cannot be 0 {seen}")
    steps = layout_of(array)
    if steps[-1] != 1 and array.size:
        raise RuntimeError(f"self.stride(-1) must be 1 {seen}, but got {steps[-1]}")
    if not ratio:  # smaller ones, of which any element has a whole number
        return
    parts = [("size(-1)", array.shape[-1])]
    if array.size and not levels_of(array):
        parts += [("storage_offset()", storage_offset(self))]
        parts += [(f"stride({d})", step) for d, step in enumerate(steps[:-1])]
    for name, value in parts:
        if value % ratio:
            raise RuntimeError(f"self.{name} must be divisible by {ratio} {seen}, but got {value}")


# Memory -------------------------------------------------------------------------------------------


def data_ptr(self: Tensor) -> int:
    """The address of the first element, on its device."""
    array = lying(self)
    address: int = array.__array_interface__["data"][0] if self.is_cpu else array.data.ptr
    return address


def storage_offset(self: Tensor) -> int:
    """Where the first element lies in the memory that views share, in elements."""
    return storage_of(lying(self))[1]


def is_set_to(self: Tensor, tensor: Tensor) -> bool:
    """Whether two tensors are the same elements of the same memory, in the same order."""
    array_of(tensor, "is_set_to", "tensor")
    if bits(self) != bits(tensor):
        return False
    a, b = lying(self), lying(tensor)
    same = a.shape == b.shape and a.strides == b.strides and a.dtype == b.dtype
    return same and address_of(a) == address_of(b)


def in_its_memory(array: Any, shape: tuple[int, ...]) -> Any:
    """An array of a shape where another one begins; None where the memory ends before."""
    flat, start = storage_of(array)
    stop = start + prod(shape)
    return flat[start:stop].reshape(shape) if flat.ndim == 1 and stop <= flat.size else None


def resize_(self: Tensor, *sizes: Any, size: Any = None, memory_format: Any = None) -> Tensor:
    """Another shape in place: the same memory where it is large enough, else new memory with the
    old elements in front. What is new is not initialised.
    """
    if self._requires_grad and not state.inference:
        raise RuntimeError("cannot resize variables that require grad")
    shape = D.int_tuple(varargs(sizes, size))
    if any(n < 0 for n in shape):
        raise RuntimeError(f"resize_: got {list(shape)}, want extents that are not negative")
    array, count = self._array, prod(shape)
    if array.shape != shape or not array.flags.c_contiguous:
        same = in_its_memory(array, shape)
        if same is not None:
            self._form, self._array = None, same
        else:
            backend = backend_of(array)
            flat, start = storage_of(array)
            home = known(backend.xp.empty(count, array.dtype))
            old = flat[start:] if flat.ndim == 1 else flat.reshape(-1)
            home[: min(old.size, count)] = old[:count]
            self._form, self._array = None, home.reshape(shape)
        changed(self)
    return self


def resize_as_(self: Tensor, other: Tensor, *, memory_format: Any = None) -> Tensor:
    """`resize_` to the shape of another tensor."""
    return resize_(self, array_of(other, "resize_as_", "other").shape)


def set_(
    self: Tensor, source: Any = None, storage_offset: int = 0, size: Any = None, stride: Any = None
) -> Tensor:
    """Makes this tensor the elements of another one, sharing its memory; without one, empty."""
    if self._requires_grad and state.grad_enabled:
        leaf = "a leaf Variable that requires grad is being used in an in-place operation. "
        raise RuntimeError(
            f"{leaf if self.is_leaf else ''}set_: cannot change the memory of a tensor that "
            "requires grad; no_grad() allows it"
        )
    if source is None:
        array = there(lambda a: backend_of(a).xp.empty((0,), a.dtype), self._array)
        self._form, self._array = None, array
        return self
    array = array_of(source, "set_", "source")
    if array.dtype != self._array.dtype:
        was, is_now = type_name(self.dtype).lower(), type_name(source.dtype).lower()
        raise RuntimeError(f"Could not set tensor of type {is_now} to a tensor of type {was}")
    elements: Tensor = make(lying(source))
    elements._counter = source.counter
    if size is not None:
        stride = D.contiguous_strides(D.int_tuple(size)) if stride is None else stride
        elements = as_strided(elements, size, stride, storage_offset)
    turned = bits(self)  # PyTorch's belong to the tensor, not to its memory
    elements = recorded._conj(elements) if turned.conjugate else elements
    elements = recorded._neg_view(elements) if turned.negative else elements
    self._form, self._array, self._counter = None, elements._array, elements.counter
    tell_turned(self, elements)
    return self


METHODS: dict[str, Any] = {
    **{f.__name__: f for f in (
        as_strided, as_strided_scatter, data_ptr, diagonal_scatter, is_set_to, resize_, resize_as_,
        select_scatter, set_, slice_scatter, storage_offset, unfold, view,
    )},
}  # fmt: skip
