"""torch._jit_internal: what programs take from there is in torch.jit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Dict, List, NamedTuple, Optional, Tuple, Union  # noqa: UP035

from ...jit import Final, export, ignore, is_scripting, unused

__all__ = ["Any", "BroadcastingList1", "BroadcastingList2", "BroadcastingList3", "Dict", "Final",
           "List", "NamedTuple", "Optional", "Tuple", "Union", "boolean_dispatch", "export",
           "ignore", "is_scripting", "unused"]  # fmt: skip


class BroadcastingListCls:
    """What jit takes for a list of numbers, or one number for all: `BroadcastingList2[int]`."""

    def __getitem__(self, types: Any) -> None:
        """Nothing: annotations are not read."""


BroadcastingList1 = BroadcastingList2 = BroadcastingList3 = BroadcastingListCls()


def _copy_to_script_wrapper(fn: Any) -> Any:
    """`fn` itself."""
    return fn


_overload = _overload_method = _copy_to_script_wrapper


def boolean_dispatch(
    arg_name: str, arg_index: int, default: bool, if_true: Callable[..., Any],
    if_false: Callable[..., Any], module_name: str, func_name: str,
) -> Callable[..., Any]:  # fmt: skip
    """A function that calls one of two, as the argument of this name says."""

    def fn(*args: Any, **kwargs: Any) -> Any:
        chosen = args[arg_index] if arg_index < len(args) else kwargs.get(arg_name, default)
        return (if_true if chosen else if_false)(*args, **kwargs)

    fn.__name__, fn.__module__ = func_name, module_name
    return fn
