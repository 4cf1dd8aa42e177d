"""The standard's functions whose names or arguments differ from cugrad's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from .. import dtypes
from ..backends import backend_of
from ..device import default_device
from ..dtypes import dtype as Dtype
from ..functions import queries
from ..functions.creation import factories as creation
from ..functions.creation import ranges
from ..functions.shapes import copies
from ..ops.promotion import result_dtype
from ..tensor import Tensor, make

__all__ = ["FUNCTIONS", "KINDS", "matrix_transpose"]

FUNCTIONS: dict[str, Callable[..., Any]] = {}

KINDS: dict[str, tuple[Dtype, ...]] = {
    "bool": (dtypes.bool_,),
    "signed integer": (dtypes.int8, dtypes.int16, dtypes.int32, dtypes.int64),
    "unsigned integer": (dtypes.uint8, dtypes.uint16, dtypes.uint32, dtypes.uint64),
    "real floating": (dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64),
    "complex floating": (dtypes.complex64, dtypes.complex128),
}
KINDS["integral"] = KINDS["signed integer"] + KINDS["unsigned integer"]
KINDS["numeric"] = KINDS["integral"] + KINDS["real floating"] + KINDS["complex floating"]


def _standard(function: Callable[..., Any]) -> Callable[..., Any]:
    FUNCTIONS[function.__name__] = function
    return function


@_standard
def asarray(
    obj: Any, /, *, dtype: Any = None, device: Any = None, copy: bool | None = None
) -> Tensor:
    """`obj` as a tensor."""
    return creation.asarray(obj, dtype=dtype, device=device, copy=copy)


@_standard
def astype(x: Tensor, dtype: Dtype, /, *, copy: bool = True, device: Any = None) -> Tensor:
    """`x` in another dtype, itself where it has it already and `copy` is False."""
    return x.to(device=device, dtype=dtype, copy=copy)


@_standard
def arange(
    start: Any, /, stop: Any = None, step: Any = 1, *, dtype: Any = None, device: Any = None
) -> Tensor:
    """start, start + step, ... up to, without, stop; empty where the step leads away from it."""
    low, high = (0, start) if stop is None else (start, stop)
    if (high - low) * step < 0:
        whole = all(isinstance(v, int) for v in (low, high, step))
        kind = dtypes.int64 if whole else dtypes.get_default_dtype()
        return creation.empty(0, dtype=dtype or kind, device=device)
    return ranges.arange(low, high, step, dtype=dtype, device=device)


@_standard
def linspace(
    start: Any, stop: Any, /, num: int, *, dtype: Any = None, device: Any = None,
    endpoint: bool = True,
) -> Tensor:  # fmt: skip
    """`num` evenly spaced values from start to stop, which is left out unless `endpoint`."""
    options = {"dtype": dtype, "device": device}
    if endpoint:
        return ranges.linspace(start, stop, num, **options)
    return ranges.linspace(start, stop, num + 1, **options)[:num]


@_standard
def eye(
    n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: Any = None, device: Any = None
) -> Tensor:
    """Ones on diagonal `k`."""
    n = n_rows if n_cols is None else n_cols
    values = np.eye(n_rows, n, k)
    return creation.tensor(values, dtype=dtype or dtypes.get_default_dtype(), device=device)


@_standard
def isdtype(dtype: Dtype, kind: Any) -> bool:
    """Whether a dtype is of a kind: "integral", a dtype, or a tuple of such."""
    if isinstance(kind, tuple):
        return any(isdtype(dtype, k) for k in kind)
    if isinstance(kind, str):
        if kind not in KINDS:
            raise ValueError(f"isdtype: kind must be one of {', '.join(KINDS)}, got {kind!r}")
        return dtype in KINDS[kind]
    return dtype is kind


@_standard
def can_cast(from_: Any, to: Dtype, /) -> bool:
    """Whether a tensor or dtype converts to a dtype without a change of kind downwards."""
    kind = from_.dtype if isinstance(from_, Tensor) else from_
    return queries.can_cast(kind, to)


@_standard
def result_type(*arrays_and_dtypes: Any) -> Dtype:
    """The dtype in which tensors, dtypes and Python numbers meet."""
    operands = [
        (x if isinstance(x, Dtype) else x.dtype) if isinstance(x, (Tensor, Dtype)) else x
        for x in arrays_and_dtypes
    ]
    return result_dtype([np.empty(1, x.numpy) if isinstance(x, Dtype) else x for x in operands])


@_standard
def concat(arrays: Sequence[Tensor], /, *, axis: int | None = 0) -> Tensor:
    """The tensors one after another along `axis`, or all their elements for None."""
    if axis is None:
        return copies.cat([x.reshape(-1) for x in arrays], 0)
    return copies.cat(list(arrays), axis)


@_standard
def flip(x: Tensor, /, *, axis: Any = None) -> Tensor:
    """The elements in reverse along `axis`, all by default."""
    return x.flip(_dims((axis,) if isinstance(axis, int) else axis, x))


@_standard
def roll(x: Tensor, /, shift: Any, *, axis: Any = None) -> Tensor:
    """The elements moved by `shift` along `axis`, or along all of them in order for None."""
    return x.roll(shift) if axis is None else x.roll(shift, axis)


@_standard
def reshape(x: Tensor, /, shape: Sequence[int], *, copy: bool | None = None) -> Tensor:
    """The elements in another shape; ValueError when `copy=False` and a copy is needed."""
    if copy:
        return x.clone().reshape(tuple(shape))
    if copy is False:
        try:
            return x.view(tuple(shape))
        except RuntimeError as error:
            raise ValueError(f"reshape: copy=False, but {error}") from None
    return x.reshape(tuple(shape))


@_standard
def tril(x: Tensor, /, *, k: int = 0) -> Tensor:
    """What lies on and below diagonal `k` of the last two dims."""
    return x.tril(k)


@_standard
def triu(x: Tensor, /, *, k: int = 0) -> Tensor:
    """What lies on and above diagonal `k` of the last two dims."""
    return x.triu(k)


def _dims(axis: Any, x: Tensor) -> Any:
    return tuple(range(x.ndim)) if axis is None else axis


def _reduction(name: str) -> Callable[..., Tensor]:
    def call(
        x: Tensor, /, *, axis: Any = None, dtype: Any = None, keepdims: bool = False
    ) -> Tensor:
        method = getattr(x if dtype is None else x.to(dtype), name)
        if axis == ():
            return x.clone() if dtype is None else x.to(dtype, copy=True)
        kind = {} if dtype is None else {"dtype": dtype}
        if name == "prod" and not isinstance(axis, int):
            out = x if dtype is None else x.to(dtype)
            for d in sorted((d % max(x.ndim, 1) for d in _dims(axis, x)), reverse=True):
                out = out.prod(d, keepdim=keepdims)
            return out
        return method(_dims(axis, x), keepdim=keepdims, **kind)

    call.__name__, call.__doc__ = name, f"The {name} over `axis`, all by default."
    return call


def _extremum(name: str) -> Callable[..., Tensor]:
    def call(x: Tensor, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:
        return getattr(x, f"a{name}")(_dims(axis, x), keepdim=keepdims)

    call.__name__, call.__doc__ = name, f"The {name}imum over `axis`, all by default."
    return call


def _truth(name: str) -> Callable[..., Tensor]:
    def call(x: Tensor, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:
        return getattr(x.bool(), name)(_dims(axis, x), keepdim=keepdims)

    call.__name__, call.__doc__ = name, f"Whether {name} of the elements over `axis` are true."
    return call


def _argument(name: str) -> Callable[..., Tensor]:
    def call(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
        return getattr(x, name)(axis, keepdim=keepdims)

    call.__name__, call.__doc__ = name, f"PyTorch's {name}."
    return call


FUNCTIONS.update({n: _reduction(n) for n in ("sum", "prod", "mean")})
FUNCTIONS.update({n: _extremum(n) for n in ("max", "min")})
FUNCTIONS.update({n: _truth(n) for n in ("all", "any")})
FUNCTIONS.update({n: _argument(n) for n in ("argmax", "argmin")})


@_standard
def var(
    x: Tensor, /, *, axis: Any = None, correction: float = 0.0, keepdims: bool = False
) -> Tensor:
    """The variance over `axis`, divided by the count less `correction`."""
    return x.var(_dims(axis, x), correction=correction, keepdim=keepdims)


@_standard
def std(
    x: Tensor, /, *, axis: Any = None, correction: float = 0.0, keepdims: bool = False
) -> Tensor:
    """The standard deviation over `axis`."""
    return x.std(_dims(axis, x), correction=correction, keepdim=keepdims)


def _only_axis(x: Tensor, axis: int | None, name: str) -> int:
    if axis is None and x.ndim != 1:
        raise ValueError(f"{name}: axis is needed for a tensor of {x.ndim} dims")
    return 0 if axis is None else axis


def _cumulative(name: str, start: int) -> Callable[..., Tensor]:
    def call(
        x: Tensor, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False
    ) -> Tensor:
        d = _only_axis(x, axis, name)
        out = getattr(x, "cumsum" if start == 0 else "cumprod")(d, dtype=dtype)
        if not include_initial:
            return out
        first = out.narrow(d, 0, 1) * 0 + start if out.shape[d] else None
        if first is None:
            shape = [1 if i == d % x.ndim else n for i, n in enumerate(x.shape)]
            first = out.new_full(tuple(shape), start)
        return concat([first, out], axis=d)

    call.__name__, call.__doc__ = name, f"The running {name.rpartition('_')[2]} along `axis`."
    return call


FUNCTIONS["cumulative_sum"] = _cumulative("cumulative_sum", 0)
FUNCTIONS["cumulative_prod"] = _cumulative("cumulative_prod", 1)


@_standard
def sort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """The elements in order along `axis`."""
    return x.sort(dim=axis, descending=descending, stable=stable)[0]


@_standard
def argsort(
    x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True
) -> Tensor:
    """The indices that sort along `axis`."""
    return x.sort(dim=axis, descending=descending, stable=stable)[1]


@_standard
def nonzero(x: Tensor, /) -> tuple[Tensor, ...]:
    """The indices of what is not zero, a tensor per dim."""
    return tuple(x.nonzero().unbind(1))


@_standard
def matrix_transpose(x: Tensor, /) -> Tensor:
    """The last two dims swapped."""
    if x.ndim < 2:
        raise ValueError(f"matrix_transpose: want at least 2 dims, got {x.ndim}")
    return x.transpose(-1, -2)


@_standard
def take(x: Tensor, indices: Tensor, /, *, axis: int | None = None) -> Tensor:
    """The elements at `indices` along `axis`."""
    return x.index_select(_only_axis(x, axis, "take"), indices)


@_standard
def take_along_axis(x: Tensor, indices: Tensor, /, *, axis: int = -1) -> Tensor:
    """For each place of `indices`, the element of `x` there along `axis`."""
    return x.take_along_dim(indices, axis)


@_standard
def repeat(x: Tensor, repeats: Any, /, *, axis: int | None = None) -> Tensor:
    """Each element `repeats` times."""
    return x.repeat_interleave(repeats, axis)


@_standard
def nextafter(x1: Tensor, x2: Tensor, /) -> Tensor:
    """The next number after each of `x1` towards `x2`."""
    backend = backend_of(x1._array)
    return make(backend.wrap(backend.xp.nextafter(x1._array, x2._array)))


class UniqueAll(NamedTuple):
    """What unique_all returns."""

    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCounts(NamedTuple):
    """What unique_counts returns."""

    values: Tensor
    counts: Tensor


class UniqueInverse(NamedTuple):
    """What unique_inverse returns."""

    values: Tensor
    inverse_indices: Tensor


@_standard
def unique_all(x: Tensor, /) -> UniqueAll:
    """The distinct values, where each is first, which one each element is, and how many."""
    values, inverse, counts = x.unique(return_inverse=True, return_counts=True)
    order = inverse.reshape(-1).sort(stable=True)[1]
    starts = counts.cumsum(0) - counts
    return UniqueAll(values, order.index_select(0, starts), inverse, counts)


@_standard
def unique_counts(x: Tensor, /) -> UniqueCounts:
    """The distinct values, and how many there are of each."""
    return UniqueCounts(*x.unique(return_counts=True))


@_standard
def unique_inverse(x: Tensor, /) -> UniqueInverse:
    """The distinct values, and which of them each element is."""
    return UniqueInverse(*x.unique(return_inverse=True))


@_standard
def unique_values(x: Tensor, /) -> Tensor:
    """The distinct values."""
    return x.unique()


class Info:
    """What the standard asks of a library: its devices and dtypes."""

    def capabilities(self) -> dict[str, Any]:
        """What is optional in the standard, and whether it is here."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> Any:
        """The device of new tensors."""
        return default_device()

    def default_dtypes(self, *, device: Any = None) -> dict[str, Dtype]:
        """The dtypes of new tensors, by kind."""
        default = dtypes.get_default_dtype()
        return {"real floating": default, "complex floating": default.to_complex(),
                "integral": dtypes.int64, "indexing": dtypes.int64}  # fmt: skip

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, Dtype]:
        """The standard's dtypes of a kind, by name."""
        supported = [d for d in (*KINDS["bool"], *KINDS["numeric"])
                 if d not in (dtypes.float16, dtypes.bfloat16)]  # fmt: skip
        return {d.name: d for d in supported if kind is None or isdtype(d, kind)}

    def devices(self) -> list[Any]:
        """The devices that can be used."""
        from ..backends import get, is_usable
        from ..device import device as Device

        gpus = range(get("cuda").device_count()) if is_usable("cuda") else ()
        return [Device("cpu"), *(Device("cuda", i) for i in gpus)]


@_standard
def __array_namespace_info__() -> Info:
    """The library's devices and dtypes."""
    return Info()
