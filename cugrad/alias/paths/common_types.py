"""torch.nn.common_types: annotations of layers' arguments."""

from __future__ import annotations

from typing import TypeAlias, TypeVar, Union

from ...tensor import Tensor

T = TypeVar("T")
_scalar_or_tuple_any_t: TypeAlias = Union[T, tuple[T, ...]]  # noqa: UP007
_scalar_or_tuple_1_t: TypeAlias = Union[T, tuple[T]]  # noqa: UP007
_scalar_or_tuple_2_t: TypeAlias = Union[T, tuple[T, T]]  # noqa: UP007
_scalar_or_tuple_3_t: TypeAlias = Union[T, tuple[T, T, T]]  # noqa: UP007
_size_any_t: TypeAlias = _scalar_or_tuple_any_t[int]
_size_1_t: TypeAlias = _scalar_or_tuple_1_t[int]
_size_2_t: TypeAlias = _scalar_or_tuple_2_t[int]
_size_3_t: TypeAlias = _scalar_or_tuple_3_t[int]
_ratio_2_t: TypeAlias = _scalar_or_tuple_2_t[float]
_ratio_any_t: TypeAlias = _scalar_or_tuple_any_t[float]
_maybe_indices_t: TypeAlias = _scalar_or_tuple_2_t[Tensor]
