"""How modules are loaded: many at once, or when a name of them is asked for."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

from .absent import listed, refuse
from .kept import Switch

__all__ = ["Loading", "lazily"]


class Loading(Switch):
    """While modules are loaded within it, no garbage is looked for: what they make stays.

    The collector would go through all of it again and again, for a tenth of the time. At the end
    what is there counts as old, or the next collection would go through it once more.
    """

    def as_is(self) -> bool:
        return gc.isenabled()

    def change(self, before: bool) -> None:
        gc.disable()

    def put_back(self, before: bool) -> None:
        if before:
            if not gc.get_freeze_count():  # what a program has frozen stays so
                gc.freeze()
                gc.unfreeze()
            gc.enable()


def lazily(
    module: str, homes: dict[str, str], package: str | None = None, called: str | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The `__getattr__` and `__dir__` of a module, whose own names are those of `homes` too.

    `homes` says which modules of the package have which names: `{"disk": "save_on_disk"}`; a
    module's own name is the module, and `_foreach_*` are all names that begin so. `package` is
    this module's, which it is itself where nothing is said, and `called` what its users call it.
    AttributeError for any other name, with what is known of it. A name has one home; a second one
    is a ValueError.

    >>> import cugrad
    >>> find, names = lazily("cugrad.memory", {"disk.context": "save_on_disk"})
    >>> find("save_on_disk") is cugrad.memory.save_on_disk, "save_on_disk" in names()
    (True, True)
    """
    places: dict[str, str] = {}
    for home, names in homes.items():
        for name in names.split():
            if places.setdefault(name, home) != home:
                raise ValueError(f"{name!r} has two homes, {places[name]} and {home}: keep one")
    families = {n[:-1]: places.pop(n) for n in [*places] if n.endswith("*")}

    def find(name: str) -> Any:
        home = places.get(name)
        if home is None and families:
            home = next((h for start, h in families.items() if name.startswith(start)), None)
        if home is None:
            return refuse(called or module, name)
        value = import_module(f".{home}", package or module)
        if name != home:
            value = getattr(value, name)
        return vars(sys.modules[module]).setdefault(name, value)

    return find, lambda: listed(module, *places)
