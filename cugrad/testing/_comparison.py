"""`assert_close`: whether a result is what was expected, up to rounding, and where it is not."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from ..functions.creation.factories import as_tensor
from ..tensor import Tensor
from .mismatches import ErrorMeta, make_scalar_mismatch_msg, make_tensor_mismatch_msg
from .pairs import (
    BooleanPair,
    NonePair,
    NumberPair,
    ObjectPair,
    Pair,
    TensorLikePair,
    UnsupportedInputs,
    default_tolerances,
    get_tolerances,
)

__all__ = [
    "BooleanPair", "ErrorMeta", "NonePair", "NumberPair", "ObjectPair", "Pair", "TensorLikePair",
    "UnsupportedInputs", "assert_allclose", "assert_close", "default_tolerances", "get_tolerances",
    "make_scalar_mismatch_msg", "make_tensor_mismatch_msg", "not_close_error_metas",
    "originate_pairs",
]  # fmt: skip


def assert_close(
    actual: Any,
    expected: Any,
    *,
    allow_subclasses: bool = True,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    check_device: bool = True,
    check_dtype: bool = True,
    check_layout: bool = True,
    check_stride: bool = False,
    msg: str | Callable[[str], str] | None = None,
) -> None:
    """AssertionError unless |actual - expected| <= atol + rtol * |expected| in each element.

    Args:
        actual, expected: Tensors, NumPy arrays, Python numbers, None, or sequences and mappings of
            them, nested at will.
        allow_subclasses: whether one of the two may be of a subclass of the other's class.
        rtol, atol: the relative and the absolute tolerance; both or none of them. By default those
            of PyTorch for the dtype: 1.3e-6 and 1e-5 for float32, 1e-7 for float64, 1e-3 and 1e-5
            for float16, 1.6e-2 and 1e-5 for bfloat16, and 0 for whole numbers.
        equal_nan: whether nan is equal to nan.
        check_device, check_dtype, check_layout, check_stride: whether these must be the same, too.
        msg: a text for the error, or a function that makes one of the text that it would have.

    Raises AssertionError with the number of elements that differ and the greatest difference,
    TypeError for inputs that cannot be compared, ValueError for one tolerance without the other.

    >>> import cugrad as torch
    >>> torch.testing.assert_close(torch.ones(2), torch.tensor([1., 1.0000001]))
    >>> torch.testing.assert_close([torch.ones(2), 1.0], [torch.ones(2), 2.0])
    Traceback (most recent call last):
    AssertionError: Scalars are not close!
    <BLANKLINE>
    Expected 2.0 but got 1.0.
    Absolute difference: 1.0 (up to 1e-07 allowed)
    Relative difference: 0.5 (up to 1e-07 allowed)
    <BLANKLINE>
    The failure occurred for item [1]
    """
    __tracebackhide__ = True
    metas = not_close_error_metas(
        actual, expected, pair_types=(NonePair, BooleanPair, NumberPair, TensorLikePair),
        allow_subclasses=allow_subclasses, rtol=rtol, atol=atol, equal_nan=equal_nan,
        check_device=check_device, check_dtype=check_dtype, check_layout=check_layout,
        check_stride=check_stride,
    )  # fmt: skip
    if metas:
        raise metas[0].to_error(msg) from None


def assert_allclose(
    actual: Any, expected: Any, rtol: float | None = None, atol: float | None = None,
    equal_nan: bool = True, msg: str = "",
) -> None:  # fmt: skip
    """Deprecated in PyTorch: `assert_close` without a look at device and dtype."""
    warnings.warn(
        "`torch.testing.assert_allclose()` is deprecated since 1.12 and will be removed in a "
        "future release. Please use `torch.testing.assert_close()` instead.",
        FutureWarning, stacklevel=2,
    )  # fmt: skip
    actual, expected = (x if isinstance(x, Tensor) else as_tensor(x) for x in (actual, expected))
    if rtol is None and atol is None:
        rtol, atol = default_tolerances(actual, expected)
    assert_close(
        actual, expected, rtol=rtol, atol=atol, equal_nan=equal_nan, check_device=True,
        check_dtype=False, check_stride=False, msg=msg or None,
    )  # fmt: skip


# Nested inputs ------------------------------------------------------------------------------------


def originate_pairs(
    actual: Any, expected: Any, *, pair_types: Sequence[type[Pair]],
    sequence_types: tuple[type, ...] = (Sequence,), mapping_types: tuple[type, ...] = (Mapping,),
    id: tuple[Any, ...] = (), **options: Any,
) -> list[Pair]:  # fmt: skip
    """A pair of the first kind that takes them for each two leaves of nested inputs.

    Options go to each pair. ErrorMeta where the inputs are not of one form, or no kind takes two.
    """
    pairs: list[Pair] = []
    waiting = [(actual, expected, id)]
    while waiting:
        one, two, place = waiting.pop()
        below = _below(one, two, place, sequence_types, mapping_types)
        if below is None:
            pairs.append(_pair(one, two, place, pair_types, options))
        else:
            waiting += reversed(list(below))
    return pairs


def _below(
    one: Any, two: Any, place: tuple[Any, ...], sequences: tuple[type, ...],
    mappings: tuple[type, ...],
) -> Iterator[tuple[Any, Any, tuple[Any, ...]]] | None:  # fmt: skip
    """What two containers of one form hold; None for leaves."""
    both = one, two
    if all(isinstance(x, sequences) and not isinstance(x, str) for x in both):
        if len(one) != len(two):
            text = f"The length of the sequences mismatch: {len(one)} != {len(two)}"
            raise ErrorMeta(AssertionError, text, id=place)
        return ((one[i], two[i], (*place, i)) for i in range(len(one)))
    if not all(isinstance(x, mappings) for x in both):
        return None
    if one.keys() != two.keys():
        missing, further = two.keys() - one.keys(), one.keys() - two.keys()
        raise ErrorMeta(
            AssertionError,
            "The keys of the mappings do not match:\n"
            f"Missing keys in the actual mapping: {sorted(missing, key=str)}\n"
            f"Additional keys in the actual mapping: {sorted(further, key=str)}",
            id=place,
        )
    keys = list(one.keys())
    with suppress(TypeError):  # keys of several kinds have no order
        keys.sort()
    return ((one[key], two[key], (*place, key)) for key in keys)


def _pair(
    one: Any, two: Any, place: tuple[Any, ...], pair_types: Sequence[type[Pair]],
    options: dict[str, Any],
) -> Pair:  # fmt: skip
    for pair_type in pair_types:
        try:
            return pair_type(one, two, id=place, **options)
        except UnsupportedInputs:
            continue
        except ErrorMeta:
            raise
        except Exception as error:
            where = "".join(f"[{item!r}]" for item in place)
            raise RuntimeError(
                f"Originating a {pair_type.__name__}() at item {where} with\n\n"
                f"{type(one).__name__}(): {one}\n\nand\n\n{type(two).__name__}(): {two}\n\n"
                "resulted in the unexpected exception above."
            ) from error
    text = f"No comparison pair was able to handle inputs of type {type(one)} and {type(two)}."
    raise ErrorMeta(TypeError, text, id=place)


def not_close_error_metas(
    actual: Any, expected: Any, *, pair_types: Sequence[type[Pair]] = (ObjectPair,),
    sequence_types: tuple[type, ...] = (Sequence,), mapping_types: tuple[type, ...] = (Mapping,),
    **options: Any,
) -> list[ErrorMeta]:  # fmt: skip
    """What differs between two inputs that may be nested; empty where nothing does."""
    __tracebackhide__ = True
    try:
        pairs = originate_pairs(
            actual, expected, pair_types=pair_types, sequence_types=sequence_types,
            mapping_types=mapping_types, **options,
        )  # fmt: skip
    except ErrorMeta as meta:
        raise meta.to_error() from None
    metas = []
    for pair in pairs:
        try:
            pair.compare()
        except ErrorMeta as meta:
            metas.append(meta.with_traceback(None))  # which would hold this frame
        except Exception as error:
            raise RuntimeError(
                f"Comparing\n\n{pair}\n\nresulted in the unexpected exception above."
            ) from error
    return metas


def _unwrap_dtensor_for_comparison(actual: Any, expected: Any) -> tuple[Any, Any]:
    """The parts of two DTensors that are placed alike; other inputs as they are."""
    placed = [getattr(x, "placements", None) if isinstance(x, Tensor) else None
              for x in (actual, expected)]  # fmt: skip
    if placed == [None, None]:
        return actual, expected
    if None in placed:
        raise TypeError(
            "Comparing a DTensor to a non-DTensor is ambiguous. Call .full_tensor() to compare the "
            "full logical tensor or .to_local() to compare the local shard."
        )
    for what in ("placements", "device_mesh"):
        one, two = getattr(actual, what), getattr(expected, what)
        if one != two:
            raise AssertionError(f"DTensor {what} do not match: {one} != {two}")
    return actual.to_local(), expected.to_local()
