"""cugrad's models on PyTorch: the very same files, run with `torch.nn` for `cugrad.nn`."""

from __future__ import annotations

import importlib.util
import sys
import types
from typing import Any

MODELS = [f"cugrad.models.{name}" for name in (
    "bert", "gpt", "llama", "mobilenet", "resnet", "unet", "vgg", "vit"
)]  # fmt: skip


def models_on(torch: Any) -> types.SimpleNamespace:
    """The classes and functions of `cugrad.models`, made of PyTorch's modules.

    Each file is executed anew in a package whose `nn` is PyTorch's; that it can be is what having
    PyTorch's API means.
    """
    package = "cugrad_models_on_torch"
    places: dict[str, Any] = {
        "": types.ModuleType(package), ".models": types.ModuleType(package + ".models"),
        ".nn": torch.nn, ".functions": torch, ".functions.shapes": torch,
        ".functions.shapes.copies": torch, ".functions.creation": torch,
        ".functions.creation.factories": torch, ".functions.creation.ranges": torch,
    }  # fmt: skip
    places[""].nn = torch.nn
    found = types.SimpleNamespace()
    before = dict(sys.modules)
    sys.modules.update({package + name: module for name, module in places.items()})
    try:
        for name in MODELS:
            spec = importlib.util.find_spec(name)
            assert spec is not None and spec.origin is not None
            twin = types.ModuleType(f"{package}.models.{name.rpartition('.')[2]}")
            twin.__package__ = package + ".models"
            with open(spec.origin, encoding="utf-8") as file:
                exec(compile(file.read(), spec.origin, "exec"), twin.__dict__)
            for public in twin.__all__:
                setattr(found, public, getattr(twin, public))
    finally:
        for name in set(sys.modules) - set(before):
            if name.startswith(package):
                del sys.modules[name]
    return found
