"""The scripts in ci/ do what the documents promise, as far as a machine without a GPU can tell."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import cugrad.backends
from tests import conftest
from tests.support import ROOT

pytestmark = pytest.mark.host_only


def bash(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", *words], cwd=ROOT, env=os.environ | environment, capture_output=True, text=True
    )


def constant(file: str, name: str) -> object:
    """The value of a top-level literal of a file, which is not imported."""
    for node in ast.parse((ROOT / file).read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            return ast.literal_eval(node.value)
    raise LookupError(f"{file} has no {name}")


@pytest.mark.parametrize(
    "script", ["ci/test.sh", "ci/gpu.sh", "ci/demo.sh", "ci/packages.sh", ".ci/run"]
)
def test_a_script_parses(script: str) -> None:
    assert (ROOT / script).read_text().startswith("#!/usr/bin/env bash\n")
    assert bash("-n", script).returncode == 0


def test_ci_runs_the_documented_command_and_no_other() -> None:
    assert (ROOT / ".ci/run").read_text().splitlines()[1:] == ["exec bash ci/test.sh"]


def test_every_test_file_is_a_shard_or_marked_as_of_the_host() -> None:
    listed = bash("ci/gpu.sh", "--dry-run").stdout.splitlines()
    in_shards = {line.split()[0] for line in listed if "test_" in line}
    files = {
        path.relative_to(ROOT / "tests").with_suffix("").as_posix(): path
        for path in (ROOT / "tests").rglob("test_*.py")
    }
    left_out = files.keys() - in_shards
    assert in_shards < files.keys() and left_out
    assert all("pytest.mark.host_only" in files[name].read_text() for name in left_out)
    split = constant("ci/gpu.py", "SPLIT")
    assert isinstance(split, dict) and set(split) <= in_shards
    assert any(line.startswith("overhead") for line in listed)


def absent_when_bare(path: Path) -> set[str]:
    """Packages that a file imports at its top without `pytest.importorskip` before that."""
    always = {*sys.stdlib_module_names, "numpy", "pytest", "cugrad", "tests", "benchmarks"}
    skips, absent = set(), set()
    for node in ast.parse(path.read_text()).body:
        skips |= set(re.findall(r"importorskip\('(\w+)", ast.unparse(node)))
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and not node.level:
            names = [node.module or ""]
        absent |= {name.split(".")[0] for name in names} - always - skips
    return absent


def test_a_shard_runs_where_there_are_numpy_cupy_and_pytest_alone() -> None:
    """A file that imports another package says so, and is skipped where that is not there."""
    files = [p for p in (ROOT / "tests").rglob("test_*.py")
             if "pytest.mark.host_only" not in p.read_text()]  # fmt: skip
    assert len(files) > 100
    absent = {p.name: names for p in files if (names := absent_when_bare(p))}
    assert absent == {}
    assert absent_when_bare(ROOT / "tests/ops/samples_special.py") == {"scipy"}


def executable(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("driver, predicts", [("", True), ("11.4", True), ("12.8", False)])
def test_the_demo_predicts_a_gpu_where_there_is_none(
    tmp_path: Path, driver: str, predicts: bool
) -> None:
    python = executable(tmp_path / "python", '#!/bin/sh\necho "$@"\n')
    executable(tmp_path / "nvidia-smi", f"#!/bin/sh\necho 'CUDA Version: {driver}'\n")
    path = f"{tmp_path}:{os.environ['PATH']}"
    run = bash("ci/demo.sh", "--epochs", "3", PYTHON=str(python), PATH=path)
    assert run.returncode == 0, run.stderr
    words = run.stdout.splitlines()[-1].split()
    assert words[0] == str(ROOT / "examples/train_digits.py") and words[-2:] == ["--epochs", "3"]
    assert (words[1:3] == ["--predict", "H200"]) == predicts


@pytest.mark.skipif(cugrad.backends.is_usable("cuda"), reason="there is a GPU")
def test_without_a_gpu_one_line_says_so() -> None:
    run = bash("ci/gpu.sh")
    assert run.returncode == 2
    assert run.stdout == "" and run.stderr.count("\n") == 1 and "no GPU" in run.stderr


def test_a_crash_or_a_hang_ends_its_own_shard_only(tmp_path: Path) -> None:
    import importlib.util
    import sys
    import time

    spec = importlib.util.spec_from_file_location("gpu_runner", ROOT / "ci/gpu.py")
    assert spec and spec.loader
    runner = importlib.util.module_from_spec(spec)
    sys.modules["gpu_runner"] = runner  # dataclasses look their module up
    spec.loader.exec_module(runner)
    del sys.modules["gpu_runner"]

    def outcome(code: str, limit: float = 30, budget: float = 60) -> str:
        shard = runner.Shard("x", [sys.executable, "-c", code], limit)
        ends = time.monotonic() + budget
        return str(runner.run(shard, ends, dict(os.environ), tmp_path / "log").outcome)

    assert outcome("print('fine')") == "passed"
    assert outcome("raise SystemExit(1)") == "failed"
    assert outcome("import os; os.abort()").startswith("crashed")
    assert outcome("import time; time.sleep(600)", limit=5) == "timed out"
    assert outcome("print('late')", budget=1) == "not run"

    dies = (
        "import os, sys\n"
        "for file in sys.argv[1:]:\n"
        "    print(f'{file}::test_x PASSED', flush=True)\n"
        "    if file.endswith('a.py'): os._exit(70)\n"
    )
    files = ["tests/a.py", "tests/b.py", "tests/c.py"]
    shard = runner.Shard("x", [sys.executable, "-c", dies], files=files)
    runner.run(shard, time.monotonic() + 60, dict(os.environ), tmp_path / "log")
    assert shard.outcome == "crashed (context lost)" and shard.counts == {"passed": 3}

    report = runner.Report({"commit": "c", "date": "d", "device": {"name": "n"}, "versions": {}},
                           tmp_path / "results" / "run", [shard])  # fmt: skip
    report.add(shard, tmp_path / "log")
    kept = sorted(path.name for path in (tmp_path / "results").iterdir())
    assert kept == ["run.json", "run.log", "run.txt"]
    assert "context lost" in (tmp_path / "results" / "run.txt").read_text()


def test_a_process_whose_cuda_context_is_lost_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUGRAD_DEVICE", "cuda")
    words = {"failed": True, "nodeid": "x"}
    conftest.pytest_runtest_logreport(SimpleNamespace(longrepr="ValueError: other", **words))
    lost = SimpleNamespace(
        longrepr="CUDARuntimeError: cudaErrorIllegalAddress: an illegal", **words
    )
    with pytest.raises(pytest.exit.Exception) as ended:
        conftest.pytest_runtest_logreport(lost)
    assert ended.value.returncode == constant("ci/gpu.py", "LOST")
