"""Checks what a user installs: light imports, optional packages, version, the wheel's contents."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import cugrad
from tests.support import ROOT
from tests.support.patience import patient

pytestmark = pytest.mark.host_only

CUPY = ["cupy", "cupyx", "cupy_backends"]

TRAIN_ONE_STEP = """
import cugrad
w = cugrad.ones(3, requires_grad=True)
((w * w).sum() * 2).backward()
assert w.grad.tolist() == [4.0, 4.0, 4.0], w.grad
"""


def python(code: str, **environment: str) -> str:
    """The standard output of `code` in a fresh interpreter, warnings as errors."""
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=ROOT, env={**os.environ, "CUGRAD_DEVICE": "cpu", **environment},
        capture_output=True, text=True, timeout=patient(),
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    return run.stdout


def without(*names: str) -> str:
    """Code after which a package looks like one that is not installed."""
    return f"import sys; sys.modules.update(dict.fromkeys({names!r}))\n"


@pytest.mark.parametrize("package", ["nvtx", "cupy", "ml_dtypes", "numba", "numkong", "scipy"])
def test_works_without(package: str) -> None:
    python(without(*{"cupy": CUPY}.get(package, [package])) + TRAIN_ONE_STEP)


def test_works_with_numpy_alone() -> None:
    python(
        without("nvtx", *CUPY, "ml_dtypes", "numba", "numkong", "scipy", "torch", "sklearn")
        + TRAIN_ONE_STEP
    )


def test_emit_nvtx_without_nvtx_warns_and_goes_on() -> None:
    code = """
import cugrad, warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    with cugrad.autograd.profiler.emit_nvtx():
        (cugrad.ones(3, requires_grad=True) * 2).sum().backward()
print(*(w.message for w in caught))
"""
    assert "pip install" in python(without("nvtx", *CUPY) + code)


def test_asking_for_cuda_without_cupy_says_what_to_install() -> None:
    said = python(
        without(*CUPY)
        + "import cugrad\nassert cugrad.cuda.is_available() is False\n"
        + "try: cugrad.zeros(1, device='cuda')\nexcept RuntimeError as error: print(error)"
    )
    assert "cupy" in said.lower() and "pip install" in said


def test_an_unusable_device_in_the_environment_says_what_to_change() -> None:
    code = "import cugrad\ntry: cugrad.zeros(1)\nexcept RuntimeError as error: print(error)"
    assert "CUGRAD_DEVICE=quantum" in python(code, CUGRAD_DEVICE="quantum")


# Rooms and files of which programs that want them say the name: they are loaded then.
ASKED_FOR = """
    accelerator array_api as_torch autograd.check.numerical autograd.forward_ad
    autograd.functional compiler distributed distributions fft func jit memory.offloading models
    multiprocessing nn optim profiler.sessions serialization signal special testing utils
"""


def test_an_import_loads_what_any_program_needs_and_no_optional_package() -> None:
    code = "import sys, gc, cugrad; assert gc.isenabled(); print(' '.join(sys.modules))"
    loaded = set(python(code).split())
    assert not loaded & {f"cugrad.{name}" for name in ASKED_FOR.split()}
    heavy = {
        "cupy",
        "cupyx",
        "torch",
        "scipy",
        "ml_dtypes",
        "numba",
        "numkong",
        "matplotlib",
        "sklearn",
        "tqdm",
    }
    assert not heavy & loaded


def test_an_import_loads_little_of_python_s_library() -> None:
    """Each module takes its time, of every program: what few ask for is imported when they do."""
    loaded, of_numpy = (
        set(python(f"import sys, {name}; print(' '.join(sys.modules))").split())
        for name in ("cugrad", "numpy")
    )
    more = {name.partition(".")[0] for name in loaded - of_numpy} - {"cugrad"}
    assert more <= {"__future__", "cmath", "copy", "fnmatch", "gc", "heapq", "_heapq", "threading"}


def test_cpu_work_loads_no_cupy() -> None:
    loaded = python(TRAIN_ONE_STEP + "import sys; print(' '.join(sys.modules))").split()
    assert "cupy" not in loaded


def test_version_is_the_installed_one() -> None:
    try:
        installed = importlib.metadata.version("cugrad")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("cugrad is not installed, it runs from the checkout")
    assert cugrad.__version__ == installed


def test_wheel_ships_the_package_typed_and_nothing_else(tmp_path: Path) -> None:
    hatchling = pytest.importorskip("hatchling.build", reason="hatchling is not installed")
    here = os.getcwd()
    try:
        os.chdir(ROOT)  # a build backend builds the project of the working directory
        name = hatchling.build_wheel(str(tmp_path))
    finally:
        os.chdir(here)
    files = zipfile.ZipFile(tmp_path / name).namelist()
    assert "cugrad/py.typed" in files
    assert any(file.endswith("licenses/LICENSE") for file in files)
    tops = {file.partition("/")[0] for file in files}
    assert tops == {"cugrad", "cugrad-stubs", f"cugrad-{cugrad.__version__}.dist-info"}
    sources = {path.relative_to(ROOT).as_posix() for path in ROOT.glob("cugrad*/**/*.py*")}
    sources = {path for path in sources if "__pycache__" not in path}
    assert sources <= set(files), "a module is missing from the wheel"
    pages = {path.relative_to(ROOT).as_posix() for path in ROOT.glob("cugrad/profiler/page/*")}
    assert pages and pages <= set(files), "a part of the profiler's pages is missing"
