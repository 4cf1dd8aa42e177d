"""Autocast: the dtype in which an op runs, by its name and by the device of what it takes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from typing import Any, NamedTuple, ParamSpec, TypeVar

from .. import dtypes
from ..backends import BY_ARRAY_TYPE
from ..device import ELSEWHERE
from ..dtypes import is_floating
from ..errors import NoArray
from ..ops.table import Op
from ..runtime.kept import Switch, of_thread
from ..tensor import Tensor
from .mode import state, switch_casts
from .recording.policies import AS_GIVEN, LOWER, POLICIES, REFUSED, WIDEST
from .recording.recorded import recorded
from .transforms import running

__all__ = [
    "AutocastSetting", "autocasts", "casting", "clear_autocast_cache", "is_autocast_cache_enabled",
    "leave", "nothing_cast", "setting", "settings", "switch_autocast",
]  # fmt: skip

P = ParamSpec("P")
R = TypeVar("R")

FLOAT32 = dtypes.float32.numpy


class AutocastSetting(NamedTuple):
    """What autocast does with tensors of one type of device."""

    enabled: bool
    dtype: dtypes.dtype


class AutocastState(threading.local):
    """What this thread has asked for, by type of device, and the weights it has cast."""

    def __init__(self) -> None:
        self.of = {
            "cpu": AutocastSetting(False, dtypes.bfloat16),
            "cuda": AutocastSetting(False, dtypes.float16),
            "simulated": AutocastSetting(False, dtypes.float16),
        }
        self.lower: dict[str, dtypes.dtype] = {}  # settings of the types for which autocast is on
        self.policies: dict[str, str] | None = None  # those of the type, if it is one
        self.targets: dict[Any, Any] = {}  # by policy, type of array and dtype: see `_wanted`
        self.cache_enabled = True
        self.nesting = 0
        self.cache: dict[tuple[int, bool], tuple[Tensor, int, Tensor]] = {}  # by id of the weight


settings = of_thread(AutocastState())


def setting(device_type: str) -> AutocastSetting:
    """What autocast does on a type of device. RuntimeError for one that it does not know."""
    entry = settings.of.get(device_type)
    if entry is None and device_type in (*ELSEWHERE, "meta"):
        return AutocastSetting(False, dtypes.float16)
    if entry is None:
        raise RuntimeError(
            f"User specified an unsupported autocast device_type '{device_type}'; "
            f"want one of {', '.join(settings.of)}"
        )
    return entry


def switch_autocast(device_type: str, to: AutocastSetting) -> None:
    """Sets what autocast does on a type of device, in this thread, from now on."""
    settings.of = {**settings.of, device_type: to}
    _refresh()


def _refresh() -> None:
    lower = {kind: s.dtype for kind, s in settings.of.items() if s.enabled}
    if lower or settings.lower:
        switch_casts(cast_inputs if lower else None)
        settings.targets = {}
        settings.policies = POLICIES[next(iter(lower))] if len(lower) == 1 else None
        settings.lower = lower  # last: after an interrupt before this line all of it is done again


def clear_autocast_cache() -> None:
    """Lets go of the weights that autocast has cast in this thread."""
    settings.cache.clear()


def is_autocast_cache_enabled() -> bool:
    """Whether weights are cast once for the whole outermost region, in this thread."""
    return settings.cache_enabled


class nothing_cast(Switch):
    """Within it, no op is cast."""

    def as_is(self) -> Any:
        return state.autocast

    def change(self, before: Any) -> None:
        switch_casts(None)

    def put_back(self, before: Any) -> None:
        switch_casts(before)


class casting(Switch):
    """Within it autocast is set to what it was when this was made, in whatever thread."""

    def __init__(self) -> None:
        self._settings = settings.of, settings.cache_enabled

    def as_is(self) -> tuple[Any, bool, int]:
        return settings.of, settings.cache_enabled, settings.nesting

    def change(self, before: tuple[Any, bool, int]) -> None:
        settings.nesting = before[2] + 1
        settings.of, settings.cache_enabled = self._settings
        _refresh()

    def put_back(self, before: tuple[Any, bool, int]) -> None:
        settings.of, settings.cache_enabled, nesting = before
        leave(nesting)
        _refresh()


def leave(nesting: int) -> None:
    """Ends a region that is nested this deep. With the outermost region the casts of weights go."""
    settings.nesting = nesting
    if nesting == 0:
        clear_autocast_cache()


# ---------------------------------------------------------------------- casts


def cast_inputs(op: Op, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The inputs of a row in the dtypes that the thread's autocast wants."""
    inputs = args[0] if op.variadic else args
    cast = _cast(op.name, inputs)
    if cast is inputs:
        return args
    return (cast,) if op.variadic else tuple(cast)


def autocasts(function: Callable[P, R], name: str = "") -> Callable[P, R]:
    """Decorates a function that autocast treats as one op, by its name, although it calls several.
    Its tensors are cast; the ops that it calls cast nothing.
    """
    name = name or function.__name__

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        if state.autocast is None:
            return function(*args, **kwargs)
        flat = [*args, *kwargs.values()]
        try:
            kind = _policy(name, _flat(flat))
            cast = None if kind is None else _cast_nested(name, flat)
        except NoArray:  # of sparse tensors other ops are called, each of which is asked for
            cast = None
        if cast is None:
            return function(*args, **kwargs)
        with nothing_cast():
            return function(*cast[: len(args)], **dict(zip(kwargs, cast[len(args) :], strict=True)))

    return run


def _flat(values: Any) -> list[Tensor]:
    tensors = []
    for value in values:
        if isinstance(value, Tensor):
            tensors.append(value)
        elif type(value) in (list, tuple):
            tensors.extend(_flat(value))
    return tensors


def _cast_nested(name: str, values: list[Any]) -> list[Any]:
    """Values with their tensors cast, also those in lists and tuples of them."""
    cast = iter(_cast(name, _flat(values)))
    return [_replaced(value, cast) for value in values]


def _replaced(value: Any, cast: Iterator[Any]) -> Any:
    if isinstance(value, Tensor):
        return next(cast)
    if type(value) in (list, tuple):
        return type(value)(_replaced(v, cast) for v in value)
    return value


def _policy(name: str, tensors: Sequence[Any]) -> str | None:
    """What autocast says of an op on these, if it is on for the device of one of them."""
    for tensor in tensors:
        if isinstance(tensor, Tensor) and (kind := _type_of(tensor)) in settings.lower:
            return POLICIES[kind].get(name)
    return None


def _type_of(tensor: Tensor) -> str:
    """The type of a tensor's device."""
    backend = BY_ARRAY_TYPE.get(type(tensor._array))
    return tensor.device.type if backend is None else backend.device_type


def _cast(name: str, values: Sequence[Any]) -> Sequence[Any]:
    """The inputs of an op with floating-point tensors cast; the same sequence if none is cast."""
    policies = settings.policies
    policy = _policy(name, values) if policies is None else policies.get(name)
    if policy is None or policy == AS_GIVEN:
        return values
    if policy == REFUSED and _policy(name, values) == REFUSED:
        raise RuntimeError(
            "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to "
            "autocast.\nMany models use a sigmoid layer right before the binary cross entropy "
            "layer.\n"
            "In this case, combine the two layers using torch.nn.functional.binary_cross_entropy_"
            "with_logits\nor torch.nn.BCEWithLogitsLoss.  binary_cross_entropy_with_logits and "
            "BCEWithLogits are\nsafe to autocast."
        )
    targets = [_wanted(policy, x) if isinstance(x, Tensor) else None for x in values]
    if policy == WIDEST and not any(
        dtype is not None and x._array.dtype == FLOAT32
        for x, dtype in zip(values, targets, strict=True)
    ):
        return values
    cast: list[Any] | None = None
    for i, dtype in enumerate(targets):
        if dtype is not None and values[i]._array.dtype != dtype:
            cast = list(values) if cast is None else cast
            cast[i] = converted(values[i], dtype)
    return values if cast is None else cast


def _wanted(policy: str, tensor: Tensor) -> Any:
    """The dtype for a tensor; None for those that stay: integers, float64, other devices."""
    array = tensor._array
    key = policy, type(array), array.dtype
    if key in settings.targets:
        return settings.targets[key]
    lower = settings.lower.get(_type_of(tensor))
    dtype = None
    if lower is not None and is_floating(array.dtype) and array.dtype.itemsize <= 4:
        dtype = lower.numpy if policy == LOWER else FLOAT32
    if type(array) in BY_ARRAY_TYPE:
        settings.targets[key] = dtype
    return dtype


def converted(value: Tensor, dtype: Any) -> Tensor:
    """Casts a tensor. The cast of a weight is kept until the outermost region ends."""
    plain = not (state.levels or state.inference or running.transforms)
    keeps = value._requires_grad and plain and settings.cache_enabled
    key = id(value), state.grad_enabled
    entry = settings.cache.get(key) if keeps else None
    if entry is not None and entry[1] == value._version and entry[2]._array.dtype == dtype:
        return entry[2]
    cast = recorded.to_dtype(value, dtype)
    if (
        keeps
        and settings.nesting
        and dtype is not FLOAT32
        and value._array.dtype == FLOAT32
        and value.is_leaf
        and not value._is_view()
    ):
        settings.cache[key] = value, value._version, cast
    return cast
