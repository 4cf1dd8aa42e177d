"""What the program generator ever found stays mended, and programs drawn anew find nothing."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="PyTorch, the oracle, is not installed")

import cugrad
from cugrad import memory
from cugrad.memory.budgeting.planning import search
from tests.support import ROOT
from tests.support.programs import __main__ as supervising
from tests.support.programs import campaign
from tests.support.programs.elsewhere import STATES
from tests.support.programs.running import differences
from tests.support.programs.shrinking import shrunk
from tests.support.programs.text import read
from tests.support.warm import Warm

pytestmark = [pytest.mark.host_only, pytest.mark.slow]

CORPUS = sorted((ROOT / "tests" / "support" / "programs" / "corpus").glob("*.py"))
PAGE = ROOT / "docs" / "torch-compatibility.md"
ACCEPTED = ROOT / "tests" / "support" / "programs" / "accepted_differences.txt"
DRAWN = 20  # programs: a number and not a time, for a verdict that is the same on any machine
AGREED = 46000000, 20  # the first of these seeds, and how many
AGREED_ON_CUDA = 9000, 4


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
def test_what_was_once_found(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside PyTorch, and in each context beside itself."""
    monkeypatch.setattr(search, "WORK", search.WORK // 100)  # any plan of a budget will do
    program = read(path.read_text())
    *_, difference = campaign.beside_torch(program)
    assert difference is None, difference
    variants = campaign.in_each(program)
    if not path.stem.startswith("observed"):  # each of the others in some, and all in some of them
        variants = variants[CORPUS.index(path) % 16 :: 16]
    for variant in variants:
        difference = campaign.in_contexts(variant)
        assert difference is None, f"{variant.contexts}: {difference}"


# Not the library: what a program needs of the CuPy that NumPy plays stands in its place before.
FIRST = Warm("torch", "torch._dynamo", "scipy.special")
MAIN = "import runpy; runpy.run_module('tests.support.programs', run_name='__main__')"


@pytest.fixture(scope="module", autouse=True)
def first_ends() -> Iterator[None]:
    """What has PyTorch's compiler in memory is not there for all of a session."""
    yield
    FIRST.end()


def run_of(seed: int, count: int, *more: str) -> subprocess.CompletedProcess[str]:
    """As `python -m tests.support.programs` runs them, but that PyTorch is imported once."""
    errors = list[str]()

    def run(words: list[str]) -> subprocess.CompletedProcess[str]:
        ran = FIRST.run("-c", MAIN, *words)
        errors.append(ran.stderr)
        return ran

    with redirect_stdout(StringIO()) as said:
        code = supervising.main(["--seed", str(seed), "--count", str(count), *more], run)
    return subprocess.CompletedProcess([], code, said.getvalue(), "".join(errors))


def test_programs_that_agreed() -> None:
    """A stretch of seeds without a difference: a change that makes one is a fault of the change.

    Who changes what is drawn moves to another stretch.
    """
    ran = run_of(*AGREED)
    assert ran.returncode == 0, f"{ran.stdout}\n{ran.stderr[-3000:]}"


def test_programs_that_agreed_on_cuda() -> None:
    """A few, on both devices of the CuPy that NumPy plays, where launches are kept."""
    pytest.importorskip("cupy", reason="CuPy is not installed")
    ran = run_of(*AGREED_ON_CUDA, "--device", "cuda", "--contexts", "1")
    assert ran.returncode == 0, f"{ran.stdout}\n{ran.stderr[-3000:]}"


def test_programs_of_a_new_seed() -> None:
    """None differs, but where a difference is accepted. `bash ci/fuzz.sh` runs for longer.

    The seed is drawn for each run of pytest, which prints it in the end; CUGRAD_FUZZ_SEED draws the
    same programs again. What is found is mended, and its script goes into the corpus; or a row of
    the page says why it is there, and `judging.py`, or a line of `accepted_differences.txt`, by
    which rule it is known.
    """
    seed = int(os.environ["CUGRAD_FUZZ_SEED"])
    ran = run_of(seed, DRAWN)
    found = re.findall(r"(?m)^# seed @? ?(\d+)", ran.stdout) or [seed]
    assert ran.returncode == 0, (
        f"drawn from CUGRAD_FUZZ_SEED={seed}, and again by: python -m tests.support.programs "
        f"--seed {found[0]} --count 1\n{ran.stdout}\n{ran.stderr[-3000:]}"
    )


def test_a_difference_fails_and_says_how_it_comes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = subprocess.CompletedProcess([], 1, "# seed 57: value of v3\n", "")
    monkeypatch.setattr(f"{__name__}.run_of", lambda *_: ran)
    monkeypatch.setenv("CUGRAD_FUZZ_SEED", "50")
    with pytest.raises(AssertionError, match=r"SEED=50, and again by: .* --seed 57 --count 1\n"):
        test_programs_of_a_new_seed()


def test_a_view_that_a_change_made_useless_can_be_drawn_beside() -> None:
    """PyTorch says nothing of it, not even whether it is a leaf; in a function, too."""
    assert campaign.draw(80598).statements


def test_what_is_accepted_stands_on_the_page() -> None:
    rows = {
        line.split(" | ")[0].strip("| ")
        for line in PAGE.read_text().splitlines()
        if line[:1] == "|"
    }
    for line in ACCEPTED.read_text().splitlines():
        if line and not line.startswith("#"):
            name, *patterns = line.split(" | ")
            assert name in rows, f"no row of {PAGE.name} is called {name!r}"
            assert 1 <= len([re.compile(pattern) for pattern in patterns]) <= 3


def test_the_machine_sees_what_is_wrong_and_makes_it_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """One op that is wrong, in the middle of others: found, and little else is left."""
    program = read(
        "import cugrad as t\n"
        "v1 = t.tensor([[0.3, 0.4], [0.2, 0.1]], dtype=t.float64, requires_grad=True)\n"
        "v2 = v1.cos()\nv3 = v2.exp()\nwith t.no_grad():\n    v4 = v3 * 2\nv5 = v3.sin()\n"
        "v6 = v5 * v4\nv7 = v6[0]\nv0 = total(v5, v6, v7)\ng1 = t.autograd.grad(v0, [v1])\n"
    )
    assert campaign.beside_torch(program)[2] is None
    monkeypatch.setattr(cugrad.Tensor, "sin", lambda self: self.cos())
    difference = campaign.beside_torch(program)[2]
    assert difference is not None and difference.kind == "value"
    short, difference = shrunk(program, difference, campaign.recheck)
    assert [s.head for s in short.statements] == [
        "v1 = t.tensor(0.3, dtype=t.float64, requires_grad=True)", "v5 = v1.sin()",
    ]  # fmt: skip
    assert difference.text == ("v5: want float640.29552, got float640.955336; apart by 7e-01")


def test_what_nearly_cancels_may_be_rounded_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    """And not be wrong, though in 64 bits PyTorch's number is all that there is to compare with."""
    program = read((CORPUS[0].parent / "real_part_of_what_nearly_cancels.py").read_text())
    want, got, difference = campaign.beside_torch(program)
    assert difference is None and [*differences(want, got, bits=False)]
    complex_of = cugrad.complex
    monkeypatch.setattr(cugrad, "complex", lambda x, y: complex_of(x, y) * (1 + 1e-5))
    difference = campaign.beside_torch(program)[2]
    assert difference is not None and difference.kind in ("value", "grad")


def test_an_accepted_difference_hides_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """The gradient of a tangent of `det` is PyTorch's own; a wrong op beside it is seen."""
    program = read(
        "import cugrad as t\n"
        "v1 = t.tensor([0.3, 0.4, 0.9], dtype=t.float64, requires_grad=True)\n"
        "def f2(v3):\n    v4 = t.linalg.det(t.stack([v3, v3 * v3, v3**3]))\n    return v4\n"
        "v5 = t.func.jvp(f2, (v1,), (v1,))[1]\nv6 = v1.sin()\nv0 = total(v5, v6)\n"
        "g1 = t.autograd.grad(v0, [v1])\n"
    )
    assert campaign.beside_torch(program)[2] is None
    monkeypatch.setattr(cugrad.Tensor, "sin", lambda self: self.cos())
    difference = campaign.beside_torch(program)[2]
    assert difference is not None and difference.kind == "value"


def test_what_is_placed_elsewhere_goes_there_and_comes_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The leaves of a program, and what it trains within."""
    reports, usual = list[Any](), memory.offload_states.__exit__

    def ends(self: Any, *exc: Any) -> None:
        reports.append(self.report())
        usual(self, *exc)

    monkeypatch.setattr(memory.offload_states, "__exit__", ends)
    program = read(
        "import cugrad as t\n"
        "v1 = t.tensor([0.3, 0.4], dtype=t.float64, requires_grad=True)\n"
        "v2 = t.tensor([1.3, 1.4], dtype=t.float64, requires_grad=True)\n"
        "v3 = v1.sin() * v2\n"
        "if True:\n    def f4(v5, v6):\n        return v5 * v6 + v5\n"
        "    v7 = trained('Adam', f4, v1, v3, eps=.1)\n"
        "v0 = total(v3, v7)\ng1 = t.autograd.grad(v0, [v1, v2])\n"
    )
    assert campaign.beside_torch(program)[2] is None
    for name in STATES:
        variant = replace(program, contexts=("simulated random", name), low=2)
        assert campaign.in_contexts(variant) is None
        trained, leaves = reports
        for kind, place in list(STATES[name].items())[:3]:
            assert place is False or trained[kind]["bytes"] > 0, (name, kind)
        assert leaves["weights"]["bytes"] == 32 or "weights" not in STATES[name]
        reports.clear()
