"""A part of the suite on the CuPy made of NumPy, in which every function of CuPy's is called."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.support import ROOT, fake_cuda

pytest.importorskip("cupy", reason="CuPy is not installed")

from tests.backends import cupy_contract as contract

pytestmark = pytest.mark.host_only

if fake_cuda.REAL is not None:
    pytest.skip("the stand-in for CuPy is in its place", allow_module_level=True)

PART = [
    "tests/ops/test_rows_raw.py::test_value",
    "tests/ops/test_rows_raw.py::test_formulas_are_strict[cuda-max_pool3d_with_indices]",
    "tests/func/test_vmap.py::test_gradients_of_a_batch[cuda-linalg_eigh]",
    "tests/functions/test_functions.py::test_refusal",
    "tests/ops/test_numbers_in_bfloat16.py",
    "tests/backends/test_cuda_numbers.py",
    "tests/backends/test_pinned.py",
    "tests/backends/test_allocator_settings.py",
    "tests/backends/test_device_face.py",
    "tests/backends/test_hidden_waits.py",
    "tests/tensor/test_sparse_products.py",
    "tests/backends/test_cuda_graphs.py::test_a_replay_reads_and_writes_the_same_memory",
    "tests/backends/test_cuda_graphs.py::test_products_of_integers_are_cupys",
    "tests/backends/test_cuda_graphs.py::test_what_cublas_refuses_is_cupys_error",
    "tests/backends/test_cuda_graphs.py::test_many_tensors_are_joined",
    "tests/backends/test_cuda_graphs.py::test_transforms_are_captured_and_their_plans_kept",
    "tests/backends/test_memory_pools.py::test_the_last_bytes_of_a_device_are_given_as_asked_for",
    "tests/backends/test_plans.py::test_a_row_that_reads_a_setting_is_not_stale[Wanted.fused]",
]
CLASSES = {"ndarray", "Device", "Stream", "Event", "RawKernel"}  # fmt: skip
PACKAGE = ROOT / "cugrad"
# Ranks on several GPUs are played by the simulated device (tests/distributed/test_streams.py);
# these calls are compared with the binding in test_cupy_contract.py.
OF_RANKS = {"nccl.py"}


def names_called() -> dict[str, str]:
    """Every function of CuPy's that the backend calls, or a row by the namespace; and where."""
    from cugrad.backends.cupy.namespace import CupyNamespace

    found = {}
    for path in sorted((PACKAGE / "backends" / "cupy").rglob("*.py")):
        if path.name in OF_RANKS:
            continue
        tree = ast.parse(path.read_text())
        for name, line, call in contract.uses_of(
            tree, contract.aliases_of(tree), contract.arrays_of(tree)
        ):
            if call is not None:
                found[name] = f"{path.name}:{line}"
    rows = [path.read_text() for path in PACKAGE.rglob("*.py") if "backends" not in path.parts]
    for name in contract.forwards_of(rows):
        if not hasattr(CupyNamespace, name) and callable(contract.resolve(f"cupy.{name}")):
            found[f"cupy.{name}"] = "a row"
    return found


def test_this_part_of_the_suite_calls_every_function(tmp_path: Path) -> None:
    names = tmp_path / "names"
    assert " passed" in fake_cuda.passed(*PART, names=names)
    used = set(names.read_text().split())
    unused = {name: where for name, where in names_called().items() if not is_among(name, used)}
    assert unused == {}, "called by the library, and not by this part of the suite"


def is_among(name: str, used: set[str]) -> bool:
    """Whether a name was asked for: of a method, its class, whose objects do not tell."""
    parts = name.split(".")
    classes = [".".join(parts[:i]) for i in range(2, len(parts)) if parts[i - 1] in CLASSES]
    if "MemoryPool" in parts:
        classes = ["cupy.get_default_memory_pool"]
    return name in used or any(c in used for c in classes)
