"""torch.jit: functions and modules come back as they are; no compiled file is read or written."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final, NamedTuple, NoReturn

from ..futures import Future
from ..nn import Module
from ..runtime.absent import PAGE

__all__ = [
    "Attribute", "Final", "Future", "RecursiveScriptModule", "ScriptFunction", "ScriptModule",
    "TracedModule", "annotate", "enable_onednn_fusion", "export", "fork", "freeze", "ignore",
    "interface", "is_scripting", "is_tracing", "isinstance", "load", "onednn_fusion_enabled",
    "optimize_for_inference", "save", "script", "script_if_tracing", "script_method", "trace",
    "trace_module", "unused", "wait",
]  # fmt: skip

_isinstance = isinstance


class ScriptModule(Module):
    """A class of which no module is: `isinstance(model, torch.jit.ScriptModule)` is False."""

    def __init__(self) -> None:
        raise NotImplementedError(f"torch.jit.ScriptModule: nothing is compiled here; see {PAGE}")


RecursiveScriptModule = TracedModule = ScriptModule


class ScriptFunction:
    """A class of which no function is."""

    def __init__(self) -> None:
        raise NotImplementedError(f"torch.jit.ScriptFunction: nothing is compiled here; see {PAGE}")


class Attribute(NamedTuple):
    """A value of a module with the type that TorchScript would give it."""

    value: Any
    type: Any


def script(
    obj: Any, optimize: Any = None, _frames_up: int = 0, _rcb: Any = None,
    example_inputs: Any = None,
) -> Any:  # fmt: skip
    """`obj` itself, a function, a module or a class: nothing is compiled.

    >>> script(abs) is abs
    True
    """
    return obj


def trace(func: Any, example_inputs: Any = None, *how: Any, **more: Any) -> Any:
    """`func` itself, whose Python runs at each call, not what it did with `example_inputs`."""
    return func


def trace_module(mod: Any, inputs: Any, *how: Any, **more: Any) -> Any:
    """`mod` itself."""
    return mod


def script_method(fn: Any) -> Any:
    """`fn` itself."""
    return fn


def script_if_tracing(fn: Any) -> Any:
    """`fn` itself."""
    return fn


def interface(obj: Any) -> Any:
    """`obj` itself."""
    return obj


def export(fn: Any) -> Any:
    """`fn` itself."""
    return fn


def unused(fn: Any) -> Any:
    """`fn` itself."""
    return fn


def ignore(drop: Any = False, **kwargs: Any) -> Any:
    """What is decorated itself; with and without arguments, as in PyTorch."""
    return drop if callable(drop) else lambda fn: fn


def annotate(the_type: Any, the_value: Any) -> Any:
    """`the_value`."""
    return the_value


def isinstance(obj: Any, target_type: Any) -> bool:
    """Python's, of a class or a tuple of them."""
    return _isinstance(obj, target_type)


def is_scripting() -> bool:
    """False."""
    return False


def fork(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Future[Any]:
    """The future of `func(*args, **kwargs)`, which is called at once: Python runs as it is.

    >>> wait(fork(abs, -2))
    2
    """
    future: Future[Any] = Future()
    future.set_result(func(*args, **kwargs))
    return future


def wait(future: Future[Any]) -> Any:
    """What the function has returned that `fork` was given."""
    return future.wait()


def is_tracing() -> bool:
    """False."""
    return False


def freeze(mod: Any, *how: Any, **more: Any) -> Any:
    """`mod` itself, which must be in evaluation mode as PyTorch wants it; else RuntimeError."""
    if getattr(mod, "training", False):
        raise RuntimeError(
            "Freezing is currently only implemented for modules in eval mode. Please call .eval() "
            "on your module before freezing."
        )
    return mod


def optimize_for_inference(mod: Any, *how: Any, **more: Any) -> Any:
    """`mod` itself."""
    return mod


def enable_onednn_fusion(enabled: bool) -> None:
    """There is nothing to fuse."""


def onednn_fusion_enabled() -> bool:
    """False."""
    return False


def _refusing(name: str, instead: str) -> Callable[..., NoReturn]:
    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(f"torch.jit.{name}: {instead}")

    refuse.__name__ = refuse.__qualname__ = name
    refuse.__doc__ = f"Raises NotImplementedError: {instead}."
    return functools.wraps(refuse)(refuse)


save = _refusing("save", "nothing is compiled; save model.state_dict() with torch.save")
load = _refusing(
    "load", "there is no TorchScript; make the model in Python and load its state_dict"
)
