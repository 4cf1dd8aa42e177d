"""Chooses the library that carries NVTX ranges to an attached tool.

CuPy's binding comes first: it passes a text on, where the `nvtx` package registers each for the
life of the process, unless it is handed over as `nvtx_events` does.
The environment variable CUGRAD_NVTX forces `cupy`, `nvtx` or `none`. Nothing here touches NVTX
before the first range is wanted, because a tool attaches at the process's first NVTX call or never.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from functools import partial
from itertools import islice, starmap
from typing import Any, NamedTuple

from ..backends.cupy import nvtx as cupy_nvtx
from ..runtime.frames import warn_user
from .nvtx_events import Events


def _always() -> bool:
    return True


class Emitter(NamedTuple):
    """The NVTX calls of one library, in the default domain.

    `push(text)` gives the library's own call that pushes a range of this text, for `OpenRange` to
    run; `push_numbered(text, number)` that of one with a whole number as its payload, where the
    library can; `start` and `end` are of ranges that belong to no thread.
    `attached` says whether a tool may listen: ranges that no tool hears need not be made.
    """

    name: str
    push: Callable[[str], Callable[[], object]]
    pop: Callable[[], object]
    mark: Callable[[str], object]
    push_numbered: Callable[[str, int], Callable[[], object]] | None = None
    attached: Callable[[], bool] = _always
    start: Callable[[str], Any] | None = None
    end: Callable[[Any], object] | None = None


class OpenRange(list[Any]):
    """The ranges of one thread that were pushed and not yet popped.

    A library's call and the note of it are one instruction here, so no interrupt of a signal comes
    between them: of what `starmap` calls, a list takes what it returns. So the calls are compiled
    ones: a function of Python's may be interrupted behind the call within it.
    """

    def push(self, push: Callable[..., Callable[[], object]], *parts: Any) -> None:
        """Pushes a range."""
        self.extend(starmap(push(*parts), ((),)))

    def pop_by(self, pop: Callable[[], object]) -> None:
        """Pops the last range, which is one of these if there are any."""
        self[-1:] = islice(starmap(pop, ((),)), 1, None)


def call_of(push: Callable[[str], object]) -> Callable[[str], Callable[[], object]]:
    """What gives, of a text, the call of `push` with it: as compiled as `push` is."""
    return partial(partial, push)


def _cupy() -> Emitter:
    push, pop, mark = cupy_nvtx.load()
    return Emitter("cupy", call_of(push), pop, mark, attached=_attached)


def _nvtx() -> Emitter:
    import nvtx

    domain = nvtx.get_domain()
    events = Events(domain)
    return Emitter(
        "nvtx", events.push, domain.pop_range, events.mark, events.push_numbered, _attached,
        events.start, domain.end_range,
    )  # fmt: skip


def _attached() -> bool:
    """Whether a tool is attached: the nvtx package can tell; True where it is missing.

    A tool attaches to all of a process's copies of NVTX, by the same environment variable.
    """
    try:
        import nvtx
    except ImportError:
        return True
    return type(nvtx.get_domain()).__name__ != "DummyDomain"


_LOADERS = {"cupy": _cupy, "nvtx": _nvtx}
_PACKAGES = {"cupy": "cupy-cuda12x (or cupy-cuda13x)", "nvtx": "nvtx"}


def emitter() -> Emitter | None:
    """The library in use, or None where ranges go nowhere.

    ImportError when the library that CUGRAD_NVTX names is missing, ValueError when it names none.
    Warns once (UserWarning) when nothing is forced and neither library is installed.
    """
    return _choose(os.environ.get("CUGRAD_NVTX", ""))


def numbered_emitter() -> Emitter | None:
    """The library that carries whole numbers, the nvtx package; None where CUGRAD_NVTX=none.

    ImportError where it is missing, ValueError where CUGRAD_NVTX forces another one.
    """
    forced = os.environ.get("CUGRAD_NVTX", "")
    if forced not in ("", "nvtx", "none"):
        raise ValueError(
            f"CUGRAD_NVTX={forced}: only the nvtx package carries payloads, and ranges that belong "
            "to no thread; unset it, or use emit_nvtx(payload=False) and range_push"
        )
    return None if forced == "none" else _numbered()


@functools.cache
def _numbered() -> Emitter:
    try:
        return _nvtx()
    except ImportError as error:
        raise ImportError(
            f"NVTX payloads and started ranges: {error}; install the nvtx package with: "
            "pip install nvtx"
        ) from error


@functools.cache
def _choose(forced: str) -> Emitter | None:
    if forced == "none":
        return None
    if forced and forced not in _LOADERS:
        raise ValueError(f"CUGRAD_NVTX: got {forced!r}, want 'cupy', 'nvtx' or 'none'")
    for name in [forced] if forced else _LOADERS:
        try:
            return _LOADERS[name]()
        except ImportError as error:
            if forced:
                raise ImportError(
                    f"CUGRAD_NVTX={forced}: {error}; install it with: pip install {_PACKAGES[name]}"
                ) from error
    warn_user(
        "NVTX: no ranges are emitted, because neither CuPy nor the nvtx package is installed; "
        f"install one with: pip install {_PACKAGES['cupy']}, or: pip install {_PACKAGES['nvtx']}"
    )
    return None
