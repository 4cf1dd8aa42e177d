"""Switches the name `torch` to cugrad, and back."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from .. import version
from ..device import device
from ..dtypes import dtype
from ..random import Generator
from ..runtime import absent
from ..tensor import Size, Tensor
from . import refusals
from .finder import NAMES, Alias, InstalledTorch
from .paths.torch_version import TorchVersion

__all__ = ["API", "install", "installed", "uninstall"]

API = "2.13.0"  # the PyTorch whose names and behaviour these are
LIBRARY = __name__.partition(".")[0]
# Libraries look at the module of a tensor's class to know whose it is.
CLASSES = (Tensor, Size, device, dtype, Generator)


class Changes:
    """What was changed for the time in which `torch` is cugrad, to be put back."""

    def __init__(self) -> None:
        self.alias: Alias | None = None
        self.before: list[tuple[Any, str, Any]] = []

    def put(self, owner: Any, name: str, value: Any) -> None:
        """Sets an attribute, and notes what it was."""
        self.before.append((owner, name, vars(owner).get(name, self)))
        setattr(owner, name, value)

    def undo(self) -> None:
        """Puts back what was there."""
        for owner, name, value in reversed(self.before):
            if value is self:
                delattr(owner, name)
            else:
                setattr(owner, name, value)
        self.before.clear()


_changes = Changes()


def install() -> None:
    """From here on `import torch` imports cugrad, in this process; a second call does nothing.

    ImportError where the real PyTorch is imported already.
    """
    if _changes.alias is not None:
        return
    if "torch" in sys.modules:
        place = getattr(sys.modules["torch"], "__file__", None) or "a module of that name"
        raise ImportError(
            f"cugrad cannot take the name torch: torch is imported already ({place}). Install "
            "cugrad first, before anything that imports torch"
        )
    _changes.alias = alias = Alias(InstalledTorch(f"{API}+{LIBRARY}{version.__version__}"))
    number = TorchVersion(alias.distribution.version)
    library = sys.modules[LIBRARY]
    if not os.environ.get("CUGRAD_DEVICE"):  # programs count on PyTorch's default device
        _changes.put(import_module(f"{LIBRARY}.device"), "_process_default", device("cpu"))
    for owner, name, value in (
        (library, "__name__", "torch"), (library, "torch", library),
        (library, "__version__", number), (version, "__version__", number),
        (library, "ops", refusals.operators), (absent.Asked, "instead", alias.stand_in),
        *((kind, "__module__", "torch") for kind in CLASSES),
    ):  # fmt: skip
        _changes.put(owner, name, value)
    sys.meta_path.insert(0, alias)
    sys.modules["torch"] = library
    alias.keep_names("")


def uninstall() -> None:
    """`import torch` is what it was before; modules that were imported meanwhile keep cugrad."""
    alias = _changes.alias
    if alias is None:
        return
    _changes.alias = None
    if alias in sys.meta_path:
        sys.meta_path.remove(alias)
    for name in [n for n in sys.modules if n.partition(".")[0] in NAMES]:
        del sys.modules[name]
    alias.forget()
    _changes.undo()


@contextmanager
def installed() -> Iterator[None]:
    """A context in which `import torch` imports cugrad.

    Within `import cugrad.as_torch` it changes nothing. ImportError as for `install`.
    """
    if _changes.alias is not None:
        yield
        return
    try:
        install()
        yield
    finally:
        uninstall()
