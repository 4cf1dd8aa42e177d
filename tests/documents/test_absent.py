"""Each public name of PyTorch is here, or runtime/absent.py says why not, however asked for."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys
import types
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

import cugrad
from cugrad.runtime.absent import ABSENT, NAMED, PAGE, Absent, reason_for

MODULES = [
    "nn", "nn.functional", "nn.init", "nn.utils", "nn.parallel", "nn.parameter", "nn.attention",
    "optim", "cuda", "cuda.memory", "utils", "utils.checkpoint", "utils.data", "autograd",
    "autograd.graph", "autograd.profiler", "autograd.function", "autograd.grad_mode",
    "autograd.functional", "autograd.forward_ad", "profiler", "func", "linalg", "serialization",
    "random", "backends", "amp", "fft", "special", "signal", "version", "distributions",
    "sparse", "cpu", "overrides", "accelerator", "amp.autocast_mode", "amp.grad_scaler",
    "autograd.gradcheck", "backends.cuda", "backends.cudnn", "backends.mkl", "backends.mps",
    "compiler", "cuda.streams", "cuda.nvtx", "jit", "nn.modules", "optim.lr_scheduler",
    "optim.swa_utils", "profiler.itt", "signal.windows", "testing", "utils.benchmark",
    "fx", "fx.graph_module", "fx.passes", "fx.passes.utils", "fx.proxy",
    "nn.attention.flex_attention",
    "utils.data.dataset", "utils.data.sampler", "utils.dlpack", "utils.hooks", "utils.tensorboard",
    "utils.tensorboard.writer",
    *(f"nn.utils.{n}" for n in ("clip_grad", "parametrizations", "parametrize", "prune", "rnn")),
]  # fmt: skip
CLASSES = ["Tensor", "Generator", "dtype", "nn.Module", "optim.Optimizer", "cuda.Event",
           "cuda.Stream"]  # fmt: skip


def home(library: str, space: str) -> Any:
    if space in CLASSES:
        found: Any = importlib.import_module(library)
        for part in space.split("."):
            found = getattr(found, part)
        return found
    return importlib.import_module(f"{library}.{space}" if space else library)


def public_names(space: str) -> set[str]:
    """What PyTorch shows of a space: `__all__`, or what it defines there, and its submodules."""
    place = home("torch", space)
    shown = {n for n in dir(place) if not n.startswith("_")}
    if not isinstance(place, types.ModuleType):
        return shown
    folder = getattr(place, "__path__", [])  # whether they have been imported or not
    below = {m.name for m in pkgutil.iter_modules(folder) if not m.name.startswith("_")}
    listed = getattr(place, "__all__", None)
    if listed is None:
        values = {n: getattr(place, n, None) for n in shown}
        listed = [n for n, value in values.items() if callable(value)
                  and str(getattr(value, "__module__", "")).startswith("torch")]  # fmt: skip
    names = below | set(listed)
    if not space:  # functions that it has and its `__all__` leaves out
        functions = dir(place._C._VariableFunctions)
        names |= {n for n in functions if not n.startswith("_") and hasattr(place, n)}
    return names


def is_here(space: str, name: str) -> bool:
    place = home("cugrad", space)
    if hasattr(place, name):
        return True
    try:
        importlib.import_module(f"{place.__name__}.{name}")
    except (ImportError, AttributeError):
        return False
    return True


@pytest.mark.pinned_torch
@pytest.mark.parametrize("space", ["", *MODULES, *CLASSES])
def test_each_public_name_is_here_or_in_the_table(space: str) -> None:
    pytest.importorskip("torch")
    names = public_names(space)
    unknown = [n for n in sorted(names) if not is_here(space, n) and reason_for(space, n) is None]
    assert not unknown, "neither here nor in cugrad.runtime.absent"
    reasons = ABSENT.get(space, {}).items()
    for reason, pattern in [(reason, p) for reason, group in reasons for p in group.split()]:
        matched = [n for n in names if fnmatchcase(n, pattern)]
        here = [n for n in matched if is_here(space, n)]
        assert not here, f"{pattern} of the table says absent what is here"
        known = matched or pattern.startswith("_") or hasattr(home("torch", space), pattern)
        known = known or reason == NAMED  # gone before the oracle
        assert known, f"{pattern} of the table is no name of PyTorch's"


PATHS = """
import importlib, sys
import cugrad.as_torch
for path in sys.stdin.read().split():
    try:
        importlib.import_module(path)
    except ImportError as error:
        print(path, error)
"""
NO_PATHS = ("testing._internal", "test", "utils.bottleneck", "utils.benchmark.examples")


def paths_below(folder: Path, package: str) -> list[str]:
    """The public modules in a folder of PyTorch's, none of which is imported."""
    paths = []
    for module in pkgutil.iter_modules([str(folder)]):
        path = f"{package}.{module.name}"
        if not module.name.startswith("_") and not path.startswith(
            tuple(f"torch.{n}" for n in NO_PATHS)
        ):
            paths.append(path)
            if module.ispkg:
                paths += paths_below(folder / module.name, path)
    return paths


def test_each_path_of_pytorch_can_be_imported_while_cugrad_is_torch() -> None:
    """What is absent behind it is an error when it is used."""
    torch = pytest.importorskip("torch")
    paths = paths_below(Path(torch.__file__).parent, "torch")
    assert len(paths) > 500
    run = subprocess.run([sys.executable, "-W", "ignore", "-c", PATHS], input=" ".join(paths),
                         capture_output=True, text=True)  # fmt: skip
    assert run.returncode == 0 and run.stdout == "", run.stdout + run.stderr


def test_the_table_has_no_other_spaces() -> None:
    assert set(ABSENT) <= {"", *MODULES, *CLASSES}


def examples() -> list[tuple[str, str, str]]:
    """One name without wildcards for each reason."""
    found = []
    for space, reasons in ABSENT.items():
        for reason, names in reasons.items():
            plain = [n for n in names.split() if not set(n) & set("*[?")]
            found += [(space, n, reason) for n in plain[:1]]
    return found


@pytest.mark.parametrize(("space", "name", "reason"), examples())
def test_what_is_absent_says_why(space: str, name: str, reason: str) -> None:
    place = home("cugrad", space)
    assert not hasattr(place, name)
    if space in ("Generator", "dtype", "optim.Optimizer", "cuda.Event", "cuda.Stream"):
        return
    if space in CLASSES:
        place = cugrad.ones(1) if space == "Tensor" else cugrad.nn.Linear(1, 1)
    with pytest.raises(AttributeError) as said:
        getattr(place, name)
    assert f"{reason} ({PAGE})" in str(said.value) and name not in dir(place)
    if space in CLASSES or place.__name__ != f"cugrad.{space}".rstrip("."):
        return
    path = f"cugrad.{space}".rstrip(".")
    for text in (f"from {path} import {name}", f"import {path}.{name}",
                 f"from {path}.{name} import anything"):  # fmt: skip
        with pytest.raises(ModuleNotFoundError) as imported:
            exec(text)
        assert f"{reason} ({PAGE})" in str(imported.value), text


def test_other_names_are_ordinary_errors() -> None:
    with pytest.raises(AttributeError, match=r"^module 'cugrad.nn' has no attribute 'Linaer'$"):
        _ = cugrad.nn.Linaer
    with pytest.raises(ImportError, match="cannot import name 'Linaer' from 'cugrad.nn'"):
        exec("from cugrad.nn import Linaer")
    with pytest.raises(ModuleNotFoundError, match=r"^No module named 'cugrad.nothing'$"):
        importlib.import_module("cugrad.nothing")
    assert importlib.util.find_spec("nothing_of_ours") is None


def test_what_the_alias_alone_has_says_so() -> None:
    with pytest.raises(AttributeError, match="is there once cugrad.as_torch is imported"):
        _ = cugrad.library
    text = "import cugrad.as_torch, torch\nprint(torch.library.custom_op.__module__)"
    run = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)
    assert run.stdout.startswith("cugrad."), run.stderr


def test_a_name_meant_is_suggested() -> None:
    run = subprocess.run([sys.executable, "-c", "import cugrad as torch\ntorch.randnn(3)"],
                         capture_output=True, text=True)  # fmt: skip
    assert run.stderr.rstrip().endswith("Did you mean: 'randn'?")


def test_an_absent_method_leaves_attributes_alone() -> None:
    """A user may give a tensor an attribute of that name, and a subclass a method."""

    class Named(cugrad.Tensor):
        def values(self) -> str:
            return "mine"

    x = cugrad.ones(2)
    x.name = "weights"
    assert x.name == "weights"
    assert cugrad.ones(1).is_sparse is False and Named([1.0]).values() == "mine"
    assert isinstance(vars(cugrad.Tensor)["values"], Absent)
