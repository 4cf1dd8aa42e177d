"""What a sparse tensor says of itself: what its places and values tell without a computation."""

from __future__ import annotations

from typing import Any

from ..device import device as Device
from ..dtypes import dtype as DType
from ..errors import NoArray
from ..tensor import Size, Tensor

__all__ = ["Described"]


class Outline:
    """What functions may read of a sparse tensor's array; for anything else there has to be one."""

    def __init__(self, tensor: Described) -> None:
        self.shape, self.ndim = tuple(tensor._size), tensor.ndim
        self.size, self.dtype, self._tensor = tensor.numel(), tensor.dtype.numpy, tensor

    def __getattr__(self, name: str) -> Any:
        raise NoArray(self._tensor)


class Described(Tensor):
    """A tensor of places and values."""

    __slots__ = ("_places", "_elements", "_size", "_coalesced")  # __dict__ has what users set
    _places: Tensor
    _elements: Tensor
    _size: Size
    _coalesced: bool

    @property
    def _array(self) -> Any:
        raise NoArray(self)

    @_array.setter
    def _array(self, value: Any) -> None:
        raise NoArray(self)

    @property
    def outline(self) -> Any:
        """What functions read of an array before they call an op."""
        return Outline(self)

    def parts(self) -> tuple[Tensor, ...]:
        """The tensors that have the memory of this one."""
        return self._elements, self._places

    @property
    def shape(self) -> Size:
        return self._size

    @property
    def ndim(self) -> int:
        return len(self._size)

    @property
    def dtype(self) -> DType:
        return self._elements.dtype

    @property
    def device(self) -> Device:
        return self._elements.device

    @property
    def requires_grad(self) -> bool:
        return self._elements.requires_grad

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self._elements.requires_grad_(value)

    @property
    def is_leaf(self) -> bool:
        return self._elements.is_leaf

    @property
    def grad_fn(self) -> Any:
        return self._elements.grad_fn

    @property
    def data(self) -> Tensor:
        """The same places and values without history."""
        return self.detach()

    @data.setter
    def data(self, value: Any) -> None:
        if not isinstance(value, Described):
            raise TypeError(f"data: got a {type(value).__name__}, want a sparse tensor")
        requires = self.requires_grad
        self._places, self._size, self._coalesced = value._places, value._size, value._coalesced
        self._elements = value._elements.detach().requires_grad_(requires)

    @property
    def is_meta(self) -> bool:
        return self._elements.is_meta

    @property
    def itemsize(self) -> int:
        return self._elements.itemsize

    def element_size(self) -> int:
        return self._elements.itemsize

    @property
    def is_cuda(self) -> bool:
        return self._elements.is_cuda

    @property
    def is_cpu(self) -> bool:
        return self._elements.is_cpu

    @property
    def nbytes(self) -> int:
        return self._places.nbytes + self._elements.nbytes

    def dim(self) -> int:
        return len(self._size)

    ndimension = dim

    def numel(self) -> int:
        return self._size.numel()

    nelement = numel

    def is_contiguous(self, memory_format: Any = None) -> bool:
        """False: there is no memory of all elements."""
        return False

    def numpy(self, *, force: bool = False) -> Any:
        """TypeError."""
        raise TypeError("can't convert Sparse layout tensor to numpy. Use Tensor.to_dense() first.")

    def item(self) -> Any:
        """The only element, as Python's number; RuntimeError where there is not one."""
        if self.numel() != 1:
            raise RuntimeError(
                f"a Tensor with {self.numel()} elements cannot be converted to Scalar"
            )
        return self.to_dense().item()

    def __bool__(self) -> bool:
        return bool(self.item())

    def sparse_dim(self) -> int:
        return self._places.shape[0]

    def dense_dim(self) -> int:
        return len(self._size) - self._places.shape[0]

    def is_coalesced(self) -> bool:
        """Whether no place is listed twice, and they are in order."""
        return self._coalesced

    def _nnz(self) -> int:
        return self._places.shape[1]

    def _indices(self) -> Tensor:
        return self._places

    def _values(self) -> Tensor:
        return self._elements
