"""How families of array functions compute on arrays with a hidden first dimension, for `vmap`."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from ..features import put_at
from .arrays import BatchedArray, BatchedBackend, ValueDependent, owner
from .index import padded

Array = Any
Index = tuple[Any, ...]

# Functions of NumPy's that act element by element and are no ufuncs, and the extras of our own.
ELEMENTWISE = {
    "where", "clip", "real", "imag", "angle", "sinc", "i0", "nan_to_num", "isclose", "round",
    "around", "isposinf", "isneginf", "erf", "erfc", "conj", "fix", "lgamma", "digamma",
    "polygamma", "zeta", "erfinv", "erfcx", "log_ndtr", "ndtri", "i0e", "i1", "i1e", "gammainc",
    "gammaincc", "gammaincinv", "gammaln", "psi", "expit", "logit", "ndtr", "entr", "xlogy",
    "xlog1py", "normal_cdf", "positive_part", "quick_exp",
}  # fmt: skip
# Functions of one array along `axis`, all of it where there is none.
REDUCTIONS = {
    "sum", "prod", "mean", "max", "min", "amax", "amin", "any", "all", "std", "var", "nansum",
    "nanmean", "count_nonzero", "median", "nanmax", "nanmin", "logical_or.reduce",
}  # fmt: skip
# The same where no axis means the elements in a row.
SCANS = {"argmax", "argmin", "cumsum", "cumprod"}
# Functions along `axis`, the last where there is none.
ALONG = {"sort": -1, "argsort": -1, "flip": None, "roll": None, "diff": -1}
# Functions of the last two dimensions that take any number of dimensions before them.
MATRICES = {
    "linalg.inv", "linalg.det", "linalg.slogdet", "linalg.cholesky", "linalg.eigh", "linalg.qr",
    "linalg.eigvalsh", "linalg.svd", "linalg.eig", "linalg.eigvals", "linalg.pinv", "triu", "tril",
    "expm", "linalg.matrix_power", "linalg.unchecked_inv", "linalg.unchecked_svd",
}  # fmt: skip
# Functions that make arrays from nothing, and answer the same for the whole batch.
SAME = {
    "arange", "eye", "linspace", "asarray", "dtype", "iinfo", "finfo", "result_type",
    "issubdtype", "tril_indices", "triu_indices", "hanning", "indices",
}  # fmt: skip
# Functions that make arrays to be filled, which may differ by example.
MAKERS = {"zeros", "empty", "ones", "full"}
SUBSPACES = {"linalg", "fft", "lib", "stride_tricks", "special"}


class BatchedNamespace:
    """`xp` for the arrays of one level: the parent's names, each with its rule."""

    cache_elements = None  # there are more values than elements
    sums_by_blas = sorts_at_once = False
    cast = copied = None  # by methods of arrays
    in_memory_order = None  # as the parent has functions
    sparse_product = sampled_product = None  # by what they are made of
    put_at = staticmethod(put_at)

    def __init__(self, backend: BatchedBackend, path: str = "", inner: Any = None) -> None:
        self._backend, self._path = backend, path
        self._inner = backend.parent.xp if inner is None else inner

    def __getattr__(self, name: str) -> Any:
        inner = getattr(self._inner, name)
        path = self._path + name
        function: Any
        if name in SUBSPACES:
            function = BatchedNamespace(self._backend, path + ".", inner)
        elif name in SAME or not callable(inner) or is_plain_type(inner):
            function = inner
        else:
            rule, always = rule_for(path, inner), path in MAKERS
            backend = self._backend

            def function(*args: Any, **kwargs: Any) -> Any:
                if always or takes_part(backend, args) or takes_part(backend, kwargs.values()):
                    return rule(backend, inner, *args, **kwargs)
                return inner(*args, **kwargs)

            function.__name__ = name  # a vmap within this one looks at it, as at NumPy's
        self.__dict__[name] = function
        return function


def takes_part(backend: BatchedBackend, values: Any) -> bool:
    """Whether one of the arguments, or a member of a list among them, is of this level."""
    for v in values:
        if is_of(backend, v) or type(v) in (tuple, list) and takes_part(backend, v):
            return True
    return False


def is_plain_type(value: Any) -> bool:
    """Whether a name of the namespace is a scalar type or an exception."""
    return isinstance(value, type) and issubclass(value, (np.generic, BaseException))


RULES: dict[str, Callable[..., Any]] = {}


def rule_for(path: str, inner: Any) -> Callable[..., Any]:
    """The rule of an array function, by its name after `xp.`."""
    if path in RULES:
        return RULES[path]
    if path in MATRICES:
        return _matrices
    if path in REDUCTIONS:
        return _reduction
    if path in SCANS:
        return _scan
    if path in ALONG:
        return _along(ALONG[path])
    if path in ELEMENTWISE or isinstance(getattr(np, path, None), np.ufunc):
        return _elementwise
    if path.startswith("special."):
        return _elementwise
    if path.startswith("fft."):
        return _transform
    return _looped(path)


def rule(*paths: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for path in paths:
            RULES[path] = function
        return function

    return decorate


def is_of(backend: BatchedBackend, value: Any) -> bool:
    """Whether a value has the hidden dimension of this level."""
    return type(value) is BatchedArray and value.level is backend.level


def opened(backend: BatchedBackend, value: Any) -> Any:
    """The values with the dimension in sight, repeated where the array has none of this level."""
    if is_of(backend, value):
        return value.values
    return backend.level.lift(value).values


def closed(backend: BatchedBackend, result: Any) -> Any:
    """Results of the parent as arrays of this level."""
    if isinstance(result, tuple):
        results = [closed(backend, r) for r in result]
        return type(result)(*results) if hasattr(result, "_fields") else tuple(results)
    if isinstance(result, list):
        return [closed(backend, r) for r in result]
    if not hasattr(result, "dtype"):
        return result
    return backend.made(backend.parent.wrap(result))


# Rules of families --------------------------------------------------------------------------------


def _elementwise(backend: BatchedBackend, inner: Any, *args: Any, **kwargs: Any) -> Any:
    out = kwargs.pop("out", None)
    if out is not None:
        kwargs["out"] = out.values
    names = list(kwargs)
    values = [*args, *kwargs.values()]
    ndim = max((v.ndim for v in args if hasattr(v, "ndim")), default=0)
    values = [padded(v.values, ndim) if is_of(backend, v) else v for v in values]
    operands, ordered = values[: len(args)], backend.parent.xp.in_memory_order
    if ordered is not None and not kwargs:
        inner = ordered(inner)
    return closed(backend, inner(*operands, **dict(zip(names, values[len(args) :], strict=True))))


def shifted(axis: Any, ndim: int) -> Any:
    """Axes of the logical array as axes of its values."""
    if isinstance(axis, (tuple, list, range)):
        return tuple([a % ndim + 1 if ndim else 1 for a in axis])
    return axis % ndim + 1 if ndim else 1


def flat(values: Any) -> Any:
    """The elements of each example in a row; there may be none."""
    return values.reshape((values.shape[0], prod(values.shape[1:])))


def _reduction(
    backend: BatchedBackend, inner: Any, a: Any, axis: Any = None, *args: Any, **kwargs: Any
) -> Any:
    values = opened(backend, a)
    kwargs.update(zip(("dtype", "keepdims"), args, strict=False))
    if values.ndim == 1:  # one element each: give it a dimension to be reduced
        kwargs.pop("keepdims", None)
        return closed(backend, inner(values[:, None], axis=(1,), **kwargs))
    axes = tuple(range(1, values.ndim)) if axis is None else shifted(axis, values.ndim - 1)
    return closed(backend, inner(values, axis=axes, **kwargs))


def _scan(
    backend: BatchedBackend, inner: Any, a: Any, axis: Any = None, *args: Any, **kwargs: Any
) -> Any:
    values = opened(backend, a)
    if axis is None or values.ndim == 1:
        values, at = flat(values), 1
    else:
        at = shifted(axis, values.ndim - 1)
    return closed(backend, inner(values, at, *args, **kwargs))


def _along(default: Any) -> Callable[..., Any]:
    def run(backend: BatchedBackend, inner: Any, a: Any, *args: Any, **kwargs: Any) -> Any:
        values = opened(backend, a)
        ndim = values.ndim - 1
        name = inner.__name__
        if name in ("roll", "diff"):  # their second argument is no axis
            if len(args) > 1:
                args, kwargs = args[:1], {**kwargs, "axis": args[1]}
        elif args:
            args, kwargs = args[1:], {**kwargs, "axis": args[0]}
        axis = kwargs.get("axis", default)
        if axis is None and name == "roll":
            rolled = inner(flat(values), *args, axis=1)
            return closed(backend, rolled.reshape(values.shape))
        if ndim == 0:
            return closed(backend, values.copy() if name != "argsort" else values * 0)
        axes = tuple(range(1, ndim + 1)) if axis is None else shifted(axis, ndim)
        return closed(backend, inner(values, *args, **{**kwargs, "axis": axes}))

    return run


def _matrices(backend: BatchedBackend, inner: Any, a: Any, *args: Any, **kwargs: Any) -> Any:
    return closed(backend, inner(opened(backend, a), *args, **kwargs))


def _transform(backend: BatchedBackend, inner: Any, a: Any, *args: Any, **kwargs: Any) -> Any:
    """FFTs: sizes and axes stand at fixed places; several axes, or one."""
    values = opened(backend, a)
    names = ("s", "axes", "norm") if inner.__name__.endswith("n") else ("n", "axis", "norm")
    options = {**dict(zip(names, args, strict=False)), **kwargs}
    ndim, name = values.ndim - 1, names[1]
    axes = options.get(name)
    if axes is None:
        axes = -1 if name == "axis" else tuple(range(ndim))
    options[name] = shifted(axes, ndim)
    return closed(backend, inner(values, **options))


def _looped(path: str) -> Callable[..., Any]:
    """One call per example, and a warning: this is slower than a rule."""

    def run(backend: BatchedBackend, inner: Any, *args: Any, **kwargs: Any) -> Any:
        return looped(path, inner, backend, args, kwargs)

    return run


def looped(
    name: str, function: Any, backend: BatchedBackend, args: Any, kwargs: dict[str, Any]
) -> Any:
    """The results of one call per example, stacked; of no examples, in the form of zeros'."""
    results, size = [], backend.level.size
    for i in range(max(size, 1)):
        pick = lambda v, i=i: _example(backend, v, i)
        results.append(function(*map(pick, args), **{k: pick(v) for k, v in kwargs.items()}))
    stacked = _stacked(backend, results, size)
    warnings.warn(
        f"There is a performance drop because we have not yet implemented the batching rule for "
        f"{name}: vmap calls it once per example.",
        UserWarning, stacklevel=2,
    )  # fmt: skip
    return stacked


def looped_row(op: Any, backend: BatchedBackend, operands: Any, params: dict[str, Any]) -> Any:
    """A row whose forward reads values on the host, once per example."""
    inner = backend.parent
    forward = lambda *args, **kwargs: op.forward(inner.xp, *args, **kwargs)
    if inner.name == "batched":
        inner_forward = forward

        def forward(*args: Any, **kwargs: Any) -> Any:
            try:
                return inner_forward(*args, **kwargs)
            except ValueDependent:
                return looped_row(op, inner, args, kwargs)

    return looped(op.name, forward, backend, operands, params)


def _example(backend: BatchedBackend, value: Any, i: int) -> Any:
    if is_of(backend, value):
        values = value.values
        if i == len(values):
            return owner(values).xp.zeros(values.shape[1:], values.dtype)
        return owner(values).wrap(values[i])
    if type(value) in (tuple, list):
        return type(value)(_example(backend, v, i) for v in value)
    return value


def _stacked(backend: BatchedBackend, results: list[Any], size: int) -> Any:
    first = results[0]
    if isinstance(first, (tuple, list)):
        return type(first)(
            _stacked(backend, [r[k] for r in results], size) for k in range(len(first))
        )
    if not hasattr(first, "dtype"):
        return first
    if len({r.shape for r in results}) > 1:
        raise ValueDependent(
            "vmap: the shape of a result depends on the values, and differs by example: take this "
            "part out of the vmap."
        )
    stacked = backend.parent.xp.stack(list(map(backend.parent.wrap, results)))
    return closed(backend, stacked[:size])
