"""Finds modules for imports of `torch` and of what is below it: cugrad's own."""

from __future__ import annotations

import importlib.metadata
import sys
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from ..runtime.absent import COMPILED, DISTRIBUTED, explain, missing, reason_for
from . import private
from .refusals import AbsentModule, refusal

__all__ = ["Alias", "InstalledTorch"]

LIBRARY = __name__.partition(".")[0]
NAMES = ("torch", "functorch")  # the packages of PyTorch that it stands for

# PyTorch's paths -> where this library has what programs import of them.
PATHS = {
    **{f"cuda.amp.{n}": "cuda.amp" for n in ("autocast_mode", "common", "grad_scaler")},
    "cuda.random": "cuda.seeding", "multiprocessing.spawn": "multiprocessing.spawning",
    "multiprocessing.pool": "multiprocessing", "multiprocessing.queue": "multiprocessing",
    "multiprocessing.reductions": "alias.paths.reductions",
    "accelerator.memory": "accelerator", "backends.cudnn.rnn": "backends.cudnn",
    "nn.modules.linear_cross_entropy": "nn.modules",
    **dict.fromkeys(
        ("utils.benchmark.utils", *(f"utils.benchmark.utils.{n}" for n in
                                    ("common", "compare", "timer"))), "utils.benchmark"),
    **dict.fromkeys(("mps", "mtia"), "alias.paths.xpu"),
    "_subclasses.fake_tensor": "alias.paths._subclasses",
    "nn.common_types": "alias.paths.common_types", "nn.utils.stateless": "nn.stateless",
    "signal.windows.windows": "signal.windows", "utils.model_zoo": "alias.paths.model_zoo",
}  # fmt: skip


class InstalledTorch(importlib.metadata.Distribution):
    """What `importlib.metadata` says of `torch`: its version, and no files."""

    def __init__(self, version: str) -> None:
        self.text = f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n"

    def read_text(self, filename: str) -> str | None:
        """The metadata, and the names that can be imported."""
        return {"METADATA": self.text, "top_level.txt": "torch\n"}.get(filename)

    def locate_file(self, path: Any) -> Any:
        """Where a file of the library is."""
        return Path(__file__).parents[2] / path


class Alias(MetaPathFinder, Loader):
    """Finds cugrad's modules under PyTorch's names, and is the loader that hands them out."""

    def __init__(self, distribution: InstalledTorch) -> None:
        self.distribution = distribution
        self.modules: dict[str, ModuleType] = {}
        self.specs: dict[str, Any] = {}

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """A spec for `torch`, or functorch, and what is below it; None for any other name."""
        package, _, path = name.partition(".")
        if package not in NAMES:
            return None
        module = self.of_functorch(path) if package == "functorch" else self.module_of(path)
        if module is None:
            reason = self.reason_of(path)
            if reason is None:
                return None
            module = AbsentModule(name, reason)
        self.modules[name] = module
        return ModuleSpec(name, self, is_package=True)

    def module_of(self, path: str) -> ModuleType | None:
        """The module that stands for `torch.<path>`, or None."""
        if not path:
            return sys.modules[LIBRARY]
        for place in (PATHS.get(path), private.PATHS.get(path), f"alias.paths.{path}", path):
            if place is not None:
                try:
                    return import_module(f"{LIBRARY}.{place}")
                except ModuleNotFoundError as error:
                    if error.name is not None and not error.name.startswith(LIBRARY):
                        raise  # a package that the module itself needs
        return None

    def of_functorch(self, path: str) -> ModuleType:
        """The module that stands for `functorch.<path>`."""
        if path in ("", "experimental"):
            return import_module(f"{LIBRARY}.alias.paths.functorch")
        return AbsentModule(f"functorch.{path}", COMPILED)

    def reason_of(self, path: str) -> str | None:
        """Why a module is not here, or that around it; None for one that PyTorch does not have."""
        parts = path.split(".")
        for depth in range(1, len(parts) + 1):
            space, name = ".".join(parts[: depth - 1]), parts[depth - 1]
            reason = reason_for(space, name)
            if reason is not None:
                return reason
        return None if parts[0] != "distributed" else DISTRIBUTED

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """The module that was found, which is loaded."""
        module = self.modules[spec.name]
        if module.__name__.startswith(LIBRARY):
            explain(module.__name__)  # what it lacks is asked of `stand_in`
        self.specs[spec.name] = getattr(module, "__spec__", None)
        return module

    def exec_module(self, module: ModuleType) -> None:
        """The module is loaded: only its own spec is put back, which the import has replaced."""
        spec = module.__spec__
        if spec is not None and spec.loader is self:
            module.__spec__ = self.specs[spec.name]
            self.keep_names(spec.name.partition(".")[2])

    def keep_names(self, space: str) -> None:
        """Counts as imported the modules around which a package has something else of their name.

        An import would set the module there, and `torch.autograd.gradcheck` be no function any
        more. One that is in `sys.modules` sets nothing.
        """
        for name, value in [*vars(self.module_of(space) or sys.modules[LIBRARY]).items()]:
            path = f"{space}.{name}".lstrip(".")
            has_module = path in PATHS or f"{LIBRARY}.{path}" in sys.modules
            if has_module and not isinstance(value, ModuleType):
                module = self.module_of(path)
                if module is not None:
                    sys.modules.setdefault(f"torch.{path}", module)

    def stand_in(self, module: str, name: str) -> Any:
        """What stands for an absent name of a module; AttributeError where PyTorch has none."""
        space = module.partition(".")[2]
        path = f"{space}.{name}".lstrip(".")
        homes = [space, *(theirs for theirs in PATHS if PATHS[theirs] == space)]
        for private_path in (f"{home}.{name}".lstrip(".") for home in homes):
            if private_path in private.NAMES:
                return private.find(f"{LIBRARY}.{private.NAMES[private_path]}")
        is_module = path in private.PATHS or not name.startswith("__")
        if is_module and self.module_of(path) is not None:
            return import_module(f"torch.{path}")
        reason = reason_for(space, name)
        if reason is None and space.startswith("distributed") and not name.startswith("_"):
            reason = DISTRIBUTED
        if reason is None:
            return self.around(module, name)
        return refusal(f"torch.{path}", reason)

    def around(self, module: str, name: str) -> Any:
        """A name that a module of PyTorch's has only because it imports it from around itself.

        `torch.optim.optimizer.Tensor` is such a name; AttributeError for one that is not around.
        """
        space = module.partition(".")[2]
        while space and not name.startswith("_"):
            space = space.rpartition(".")[0]
            names = vars(self.module_of(space) or sys.modules[LIBRARY])
            if name in names:
                return names[name]
        raise missing(module, name)

    def forget(self) -> None:
        """Takes the modules that stand for others out of those that they were imported into."""
        for name, module in self.modules.items():
            parent, _, last = name.rpartition(".")
            place = self.modules.get(parent, sys.modules[LIBRARY])
            own = module.__name__ == f"{LIBRARY}.{name.partition('.')[2]}"
            if parent and not own and vars(place).get(last) is module:
                delattr(place, last)

    def find_distributions(self, context: Any = None) -> list[InstalledTorch]:
        """The distribution, where all are asked for, or that of `torch`."""
        name = getattr(context, "name", None)
        return [self.distribution] if name is None or name.lower() == "torch" else []
