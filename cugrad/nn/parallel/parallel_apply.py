"""Modules called in threads, one for each device, in the mode of the thread that asks."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

from ...autograd.threads import modes_here
from ...backends import get
from ...tensor import Tensor
from .scatter_gather import device_of

__all__ = ["get_a_var", "parallel_apply"]


def get_a_var(obj: Any) -> Tensor | None:
    """The first tensor in nested tuples, lists and dicts."""
    if isinstance(obj, dict):
        obj = list(obj.items())
    if isinstance(obj, (list, tuple)):
        return next((t for part in obj if (t := get_a_var(part)) is not None), None)
    return obj if isinstance(obj, Tensor) else None


def parallel_apply(
    modules: Sequence[Any],
    inputs: Sequence[Any],
    kwargs_tup: Sequence[dict[str, Any]] | None = None,
    devices: Sequence[Any] | None = None,
) -> list[Any]:
    """`module(*input, **kwargs)` for each module, in a thread of its own if there are several.

    Each thread has what the calling one has switched on, such as grad mode, inference mode,
    saved-tensor hooks, observers and levels of forward mode; and its device is the current one. An
    error in a thread is raised here, with the number of its module.

    Raises AssertionError for lists of different lengths.
    """
    count = len(modules)
    lists = {"inputs": inputs, "kwargs_tup": kwargs_tup, "devices": devices}
    for name, entries in lists.items():
        if entries is not None and len(entries) != count:
            raise AssertionError(
                f"The number of modules {count} is not equal to the number of {name} {len(entries)}"
            )
    named = kwargs_tup or [{}] * count
    places = [None if d is None else device_of(d) for d in devices or [None] * count]
    take_over = modes_here()
    results: list[Any] = [None] * count
    errors: list[tuple[BaseException, str] | None] = [None] * count

    def work(i: int) -> None:
        try:
            results[i] = _called(modules[i], inputs[i], named[i], places[i])
        except BaseException as error:
            errors[i] = error, traceback.format_exc()

    def thread(i: int) -> None:
        take_over()
        work(i)

    if count == 1:
        work(0)
    else:
        threads = [threading.Thread(target=thread, args=(i,)) for i in range(count)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    for i, failed in enumerate(errors):
        if failed is not None:
            raise _named(*failed, f"in replica {i} on device {places[i]}")
    return results


def _called(module: Any, args: Any, kwargs: dict[str, Any], place: Any) -> Any:
    if place is None:
        tensor = get_a_var(args)
        if tensor is None:
            raise RuntimeError(
                "no device was provided and no tensor input was found; device cannot be resolved"
            )
        place = tensor.device
    current: Any = nullcontext()
    if place.type != "cpu" and place.index is not None:
        current = get(place.type).use_device(place.index)
    with current:
        return module(*(args if isinstance(args, (list, tuple)) else (args,)), **kwargs)


def _named(error: BaseException, trace: str, where: str) -> BaseException:
    """The same kind of error, which says where it comes from."""
    text = f"Caught {type(error).__name__} {where}.\nOriginal {trace}"
    try:
        raised = type(error)(text)
    except TypeError:
        raised = RuntimeError(text)
    raised.__cause__ = error
    return raised
