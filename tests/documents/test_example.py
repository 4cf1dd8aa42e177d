"""Runs the digits example as a user does: its report, its plot, its answers to bad values."""

from __future__ import annotations

import importlib.util
import os
import re
import runpy
import shutil
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support import ROOT
from tests.support.patience import patient

pytestmark = pytest.mark.slow
EXAMPLE = ROOT / "examples" / "train_digits.py"

for _package in ("sklearn", "matplotlib", "tqdm"):
    if importlib.util.find_spec(_package) is None:
        pytest.skip(f"the example needs {_package}, which is not installed",
                    allow_module_level=True)  # fmt: skip

Runs = Callable[..., tuple[int, str, str]]


def start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(EXAMPLE), *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Exit code, standard output, standard error."""
    out, err = process.communicate(timeout=patient(240))
    return process.returncode, out, err


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Runs]:
    """Runs the example with arguments here: a process of its own takes seconds for its imports.

    Gives the exit code, standard output and standard error.
    """
    from cugrad.backends import simulated

    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        monkeypatch.setenv(name, "1")  # which the example sets where they are not
    for name in ("KMP_DUPLICATE_LIB_OK", "KMP_INIT_AT_FORK"):
        monkeypatch.setenv(name, "True" if "DUPLICATE" in name else "FALSE")  # and scikit-learn
    monkeypatch.setattr(sys, "path", [*sys.path])

    def main(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", [str(EXAMPLE), *arguments])
        with warnings.catch_warnings(), pytest.raises(SystemExit) as end:
            warnings.simplefilter("default")  # a line on standard error, as in a process
            runpy.run_path(str(EXAMPLE), run_name="__main__")
        assert isinstance(end.value.code, int)
        return end.value.code, *capsys.readouterr()

    yield main
    simulated.reset()


def facts_of(out: str) -> dict[str, str]:
    """The report's lines by name."""
    return dict(re.findall(r"^([a-z ]+): +(.*)$", out, re.MULTILINE))


def test_the_main_job_learns_and_reports(tmp_path: Path, device: str, run: Runs) -> None:
    """With nothing said but the device; and a small part of it on the simulated one."""
    plot = tmp_path / "new folder" / "digits.png"
    epochs = 1 if device == "simulated" else 12
    part = ("--epochs", "1") if device == "simulated" else ()
    code, out, err = run("--device", device, "--out", str(plot), *part)
    assert code == 0, err
    facts = facts_of(out)
    assert float(facts["test accuracy"].split()[0]) >= (97.0 if epochs == 12 else 75.0)
    assert facts["device"].startswith(device)
    assert re.match(r"[\d.]+ ms", facts["time per step"])
    count, nbytes = re.match(r"(\d+) per step, ([\d.]+) MiB", facts["saved tensors"]).groups()  # type: ignore[union-attr]
    assert int(count) > 10 and float(nbytes) > 1
    assert "MiB" in facts["peak memory"] and "offload" in facts["peak memory"]
    assert "already on the host are not copied" in out
    if device == "cpu":
        assert facts["moved to the host"].startswith("0 B") and facts["moved back"] == "0 B"
    else:
        assert float(facts["moved to the host"].split()[0]) > 0
        assert float(facts["moved back"].split()[0]) > 0
    assert facts["plot"] == str(plot)
    assert plot.read_bytes().startswith(b"\x89PNG") and plot.stat().st_size > 10_000
    lines = err.splitlines()
    assert len(lines) == epochs and all(re.fullmatch(r"epoch .*loss [\d.]+", x) for x in lines)


def test_one_epoch_without_offload_is_repeatable(tmp_path: Path, run: Runs) -> None:
    """In a process of its own, as a user starts it, too."""
    plot = tmp_path / "digits.png"
    options = ("--epochs", "1", "--batch-size", "256", "--offload", "none", "--out", str(plot))
    with start(*options, "--device", "cpu", "--seed", "7") as process:
        runs = [finish(process)]
    assert plot.read_bytes().startswith(b"\x89PNG")
    runs += [run(*options, "--device", "cpu", "--seed", seed) for seed in ("7", "8")]
    assert [code for code, _, _ in runs] == [0, 0, 0]
    accuracies = [facts_of(out)["test accuracy"] for _, out, _ in runs]
    losses = [err for _, _, err in runs]
    assert losses[0] == losses[1] != losses[2] and accuracies[0] == accuracies[1]
    assert all(err.count("\n") == 1 for err in losses)
    facts = facts_of(runs[0][1])
    assert int(facts["saved tensors"].split()[0]) > 10
    assert "--offload none" in facts["moved to the host"]


def test_a_prediction_says_what_a_gpu_would_move_and_wait_for(tmp_path: Path, run: Runs) -> None:
    plots = {gpu: tmp_path / f"{gpu}.png" for gpu in ("A100", "GH200")}
    options = ("--epochs", "1", "--batch-size", "64", "--device", "cpu")
    plain = {}
    for gpu, plot in plots.items():
        code, out, err = run(*options, "--predict", gpu, "--out", str(plot))
        assert code == 0, err
        facts = dict(re.findall(r"^([A-Za-z0-9 ]+): +(.*)$", out, re.MULTILINE))
        before, after = re.findall(r"([\d.]+) ms", facts[f"on {gpu}"])
        least, times = re.match(r"([\d.]+) ms.* ([\d.]+) times", facts["least there"]).groups()  # type: ignore[union-attr]
        assert float(before) <= float(least) <= float(after) and 1 <= float(times) < 1.5
        out_bytes, back = re.findall(r"([\d.]+) GB", facts["moved there"])
        assert 2 < float(back) <= float(out_bytes) < 11 and "%" in facts["moved there"]
        assert float(facts["waited there"].split()[0]) > 0
        assert plot.read_bytes().startswith(b"\x89PNG")
        plain[gpu] = float(before), float(after)
    assert plain["GH200"][1] < plain["A100"][1] / 2  # a link ten times as fast


ON_A_STAND_IN = f"""
import runpy, sys
from tests.support import fake_cuda, fake_streams
fake_cuda.install()
fake_streams.POLLS = 0  # a copy has ended when it is first asked for: backward finds nothing here
main = runpy.run_path({str(EXAMPLE)!r})["main"]
words = sys.argv[1:]
for offload in ("cpu", "none"):
    code = main([*words, "--offload", offload])
    print("exit", code)
    print("exit", code, file=sys.stderr)
"""


def test_offload_moves_every_byte_and_changes_no_result(tmp_path: Path) -> None:
    pytest.importorskip("cupy", reason="the stand-in for a GPU needs CuPy's signatures")
    if not any(map(shutil.which, ("g++", "clang++", "c++"))):
        pytest.skip("the stand-in for a GPU needs a C++ compiler")
    options = ["--device", "cuda", "--epochs", "1", "--batch-size", "256"]
    process = subprocess.Popen(
        [sys.executable, "-c", ON_A_STAND_IN, *options, "--out", str(tmp_path / "x.png")],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
        env={**os.environ, "CUGRAD_FUSED": "0"},  # each fused kernel takes a while to compile
    )  # fmt: skip
    _, *said = finish(process)
    assert [text.count("exit 0\n") for text in said] == [2, 2], said
    runs = [(0, *both) for both in zip(*(text.split("exit 0\n")[:2] for text in said))]
    with_offload, without = (facts_of(out) for _, out, _ in runs)
    assert runs[0][2] == runs[1][2] and with_offload["test accuracy"] == without["test accuracy"]
    saved = float(with_offload["saved tensors"].split()[-2])  # MiB, each storage once
    moved, stayed, before = re.findall(r"([\d.]+) MiB", with_offload["moved to the host"])
    assert float(moved) + float(stayed) == pytest.approx(saved, abs=0.011) and before == "0.00"
    assert float(stayed) <= 0.07 < 1 < saved  # the images
    assert with_offload["moved back"] == f"{moved} MiB per step"
    assert without["moved back"] == "0 B"


@pytest.mark.parametrize(
    "arguments, named",
    [
        (["--epochs", "0"], "--epochs"),
        (["--epochs", "-3"], "--epochs"),
        (["--epochs", "many"], "--epochs"),
        (["--batch-size", "0"], "--batch-size"),
        (["--batch-size", "100000"], "at most 1437"),
        (["--device", "tpu"], "--device"),
        (["--offload", "disk"], "--offload"),
        (["--predict", "abacus"], "--predict"),
        (["--seed", "-1"], "--seed"),
        (["--seed", "1" + "0" * 30], "--seed"),
        (["--seed", "1" * 5000], "--seed"),
        (["--out", "/proc/nowhere/x.png"], "--out"),
        (["--out", str(ROOT)], "--out"),
        (["--out", str(EXAMPLE / "x.png")], "--out"),
        (["--epoch", "3"], "--epoch"),
        (["surprise"], "surprise"),
        (["--epochs"], "--epochs"),
    ],
)
def test_a_bad_value_gets_one_clear_line(arguments: list[str], named: str, run: Runs) -> None:
    code, out, err = run(*arguments)
    assert code == 2 and out == ""
    assert err.count("\n") == 1 and err.startswith("train_digits.py: error: ") and named in err


def test_cuda_without_a_gpu_gets_its_reason_in_one_line() -> None:
    """In a process of its own: the exit code is the process's."""
    import cugrad

    if cugrad.cuda.is_available():
        pytest.skip("there is a GPU")
    with start("--device", "cuda") as process:
        code, out, err = finish(process)
    assert code == 2 and out == "" and err.count("\n") == 1
    assert err.startswith("train_digits.py: error: argument --device: ") and len(err) > 60


def test_help_says_what_it_does(run: Runs) -> None:
    code, out, _ = run("--help")
    assert code == 0
    for word in ("--device", "--epochs", "--batch-size", "--offload", "--seed", "--out", "digits"):
        assert word in out


def interrupted(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Presses Ctrl-C in a process that trains, until it ends: how often, and what it said."""
    assert process.stderr is not None
    assert process.stderr.readline().startswith("epoch 1/9999")
    presses = 0
    while process.poll() is None:  # Python drops an interrupt that comes while it deletes a thing
        process.send_signal(signal.SIGINT)
        presses += 1
        assert presses < 9
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=patient(20))
    return presses, *process.communicate(timeout=patient())


@pytest.fixture
def interruptible() -> Iterator[None]:
    """A process started here hears Ctrl-C also where the tests run in the background, and it is
    ignored: what is ignored is inherited, a handler is not.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_control_c_prints_one_line(tmp_path: Path) -> None:
    with start("--epochs", "9999", "--device", "cpu", "--out", str(tmp_path / "x.png")) as process:
        try:
            presses, out, err = interrupted(process)
        finally:
            process.kill()  # an assertion that fails leaves no process behind, and no pipe open
    rest = [line for line in err.splitlines() if not line.startswith("epoch ")]
    assert process.returncode == 130 and out == ""
    assert rest[-1] == "train_digits.py: interrupted, no plot was written"
    assert presses > 1 or len(rest) == 1


def test_a_missing_package_is_named() -> None:
    code = (
        "import sys, runpy; sys.modules['sklearn'] = None; sys.argv = ['x', '--device', 'cpu']; "
        f"runpy.run_path({str(EXAMPLE)!r}, run_name='__main__')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=patient()
    )
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert "needs the package scikit-learn" in done.stderr and "pip install" in done.stderr
