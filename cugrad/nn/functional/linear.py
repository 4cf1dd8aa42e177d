"""Products with weights: of a layer, and of the layers of a group."""

from __future__ import annotations

from typing import Any

from ...autograd.recording.record import recorded
from ...dtypes import bfloat16, float16, float32, int32, type_name
from ...functions.calls.arguments import refuse_more_dims
from ...functions.calls.mistakes import MISTAKES, explained
from ...functions.maths.products import matmul
from ...functions.shapes.copies import cat, stack
from ...tensor import Tensor

__all__ = ["grouped_mm", "linear"]


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """input @ weight.T + bias, for weight of shape (out_features, in_features), or one feature."""
    try:
        if weight.ndim == 1:  # one output, which has no dim
            if bias is not None:
                raise RuntimeError("linear(): expected weight to be a matrix beside a bias, got 1D")
            return matmul(input, weight)
        if not weight.ndim or not input.ndim:
            raise RuntimeError(
                "both arguments to linear need to be at least 1D, but they are "
                f"{input.ndim}D and {weight.ndim}D"
            )
        if weight.ndim > 2:
            raise RuntimeError(
                f"linear(): expected weight to have 1 or 2 dimensions, but it is {weight.ndim}D"
            )
        if bias is not None and bias.ndim > 1 and input.ndim != 2:
            return _with_rows_of_bias(input, weight, bias)
        return recorded.linear(input, weight, bias)
    except MISTAKES as error:
        raise (explained(error) or error) from None


def _with_rows_of_bias(input: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """`linear` with a bias of several dims, which are those of the result."""
    if input.ndim == 1:
        row = recorded.linear(recorded.unsqueeze(input, 0), weight, bias)
        return recorded.reshape(row, (row.shape[-1],))
    product = recorded.linear(input, weight, None)
    refuse_more_dims("linear", product, bias)
    return product + bias


def grouped_mm(
    mat_a: Tensor, mat_b: Tensor, *, offs: Tensor | None = None, bias: Tensor | None = None,
    out_dtype: Any = None,
) -> Tensor:  # fmt: skip
    """Products of groups, one after another: of the experts of a mixture, for example.

    Args:
        mat_a, mat_b: (G, M, K) or a matrix, and (G, K, N) or a matrix, both of float32, bfloat16 or
            float16. Of a matrix beside three dims group i has the rows of `mat_a`, or the columns
            of `mat_b`, from `offs[i - 1]` to `offs[i]`; of two matrices that part of K, and the
            result is (G, M, N). Rows or columns behind the last group are zeros.
        offs: int32, where each group ends; with two tensors of three dims there is none. Its
            numbers are read by the host, which waits for a GPU.
        bias: not taken, as in PyTorch.
        out_dtype: None, or the dtype of `mat_a`.

    RuntimeError, in PyTorch's words, where these do not fit.

    >>> import cugrad as torch
    >>> ends = torch.tensor([1, 3], dtype=torch.int32)
    >>> torch.nn.functional.grouped_mm(torch.ones(3, 2), torch.ones(2, 2, 4), offs=ends).shape
    torch.Size([3, 4])
    """
    _check_groups(mat_a, mat_b, offs, bias, out_dtype)
    if offs is None:
        return mat_a @ mat_b
    ends = [0, *offs.tolist()]
    parts = [slice(begin, end) for begin, end in zip(ends, ends[1:])]
    if mat_a.dim() == mat_b.dim():
        return stack([mat_a[:, part] @ mat_b[part] for part in parts])
    if mat_a.dim() == 2:
        of_groups = [mat_a[part] @ mat_b[i] for i, part in enumerate(parts)]
        behind = mat_a.new_zeros(mat_a.shape[0] - ends[-1], mat_b.shape[2])
        return cat([*of_groups, behind])
    of_groups = [mat_a[i] @ mat_b[:, part] for i, part in enumerate(parts)]
    behind = mat_b.new_zeros(mat_a.shape[1], mat_b.shape[1] - ends[-1])
    return cat([*of_groups, behind], 1)


def _check_groups(
    mat_a: Tensor, mat_b: Tensor, offs: Tensor | None, bias: Tensor | None, out_dtype: Any
) -> None:
    for name, x in (("mat_a", mat_a), ("mat_b", mat_b)):
        if x.dtype not in (float32, bfloat16, float16):
            raise RuntimeError(
                f"Expected {name} to be Float32, BFloat16 or Float16 matrix, got "
                f"{type_name(x.dtype)}"
            )
    for name, x in (("mat_a", mat_a), ("mat_b", mat_b)):
        if x.dim() not in (2, 3):
            raise RuntimeError(f"{name} has to be 2 or 3d")
    if (offs is None) != (mat_a.dim() == mat_b.dim() == 3):
        raise RuntimeError(
            "Have to provide offsets if there is a 2d matrix, or no offset if both matrices are 3d"
        )
    if mat_a.shape[-1] != mat_b.shape[-2]:
        raise RuntimeError("contraction dimension of mat_a and mat_b must match")
    if mat_a.dtype is not mat_b.dtype:
        raise RuntimeError(
            "expected m1 and m2 to have the same dtype, but got: "
            f"{mat_a.dtype} != {mat_b.dtype} (grouped_mm)"
        )
    if bias is not None:
        raise RuntimeError("grouped_mm: Bias not supported yet; add it to the result")
    if out_dtype is not None and out_dtype is not mat_a.dtype:
        raise RuntimeError("Grouped gemm output dtype must match `mat_a` dtype")
    groups = {x.shape[0] for x in (mat_a, mat_b) if x.dim() == 3}
    if offs is None:
        if len(groups) > 1:
            raise RuntimeError("batched dimension has to match")
        return
    if offs.dtype is not int32:
        raise RuntimeError("Offsets have to be int32")
    if offs.dim() != 1 or groups and offs.shape[0] not in groups:
        raise RuntimeError("matrix batch sizes have to match")
