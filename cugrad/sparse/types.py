"""PyTorch's old names of sparse tensors' types: torch.sparse.FloatTensor and its like."""

from __future__ import annotations

import warnings
from typing import Any

from ..functions.interop.legacy import TYPES as DENSE
from ..functions.interop.legacy import TensorType
from ..tensor import Size, Tensor
from .making import sparse_coo_tensor

__all__ = ["TYPES", "SparseType"]


class SparseType(TensorType):
    """A dtype of sparse tensors as something to call, and to ask `isinstance` of.

    >>> import cugrad as torch
    >>> a = torch.sparse_coo_tensor([[0], [1]], [3.0], (2, 2))
    >>> isinstance(a, torch.sparse.FloatTensor), isinstance(a, torch.FloatTensor), a.type()
    (True, False, 'torch.sparse.FloatTensor')
    """

    sparse = True

    def __call__(self, *data: Any, device: Any = None) -> Tensor:
        """`FloatTensor(indices, values, size)`, `FloatTensor(indices, values)`, and of zeros
        `FloatTensor(2, 3)` and `FloatTensor(Size)`. TypeError for anything else.
        """
        warnings.warn(
            "torch.sparse.SparseTensor(...) is deprecated.  Please use torch.sparse_coo_tensor"
            "(..., dtype=, device=).", stacklevel=2,
        )  # fmt: skip
        how: dict[str, Any] = {"dtype": self.dtype, "device": device}
        if all(isinstance(d, int) for d in data):
            return sparse_coo_tensor(tuple(data) or (0,), **how)
        if len(data) == 1 and isinstance(data[0], Size):
            return sparse_coo_tensor(tuple(data[0]), **how)
        if len(data) == 1 and isinstance(data[0], (list, tuple)):
            raise TypeError(
                "torch.sparse.SparseTensor(sequence) only accepts sizes.  Please use "
                "torch.sparse_coo_tensor() or construct a strided tensor and convert it to "
                "sparse via to_sparse."
            )
        if len(data) not in (2, 3) or not all(isinstance(d, Tensor) for d in data[:2]):
            got = ", ".join(type(d).__name__ for d in data)
            raise TypeError(f"{self.name}: got ({got}), want (indices, values) and a size or none")
        return sparse_coo_tensor(*data, **how)


TYPES = {name: SparseType(kind.dtype, kind.device) for name, kind in DENSE.items()}
