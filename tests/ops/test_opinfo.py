"""Every operator of PyTorch's own database: values, gradients, jvp and errors on its samples."""

from __future__ import annotations

import fnmatch
import importlib.util
from typing import Any

import pytest

from tests.support.pinned_torch import skip_module

pytest.importorskip("torch", reason="PyTorch, the oracle, is not installed")
for _name in ("expecttest", "scipy", "ml_dtypes"):
    if importlib.util.find_spec(_name) is None:
        pytest.skip(f"{_name}, which PyTorch's database needs, is not installed",
                    allow_module_level=True)  # fmt: skip

skip_module()  # PyTorch's database imports its compiler, which opinfo.py keeps out

from tests.ops import opinfo  # noqa: E402
from tests.ops.opinfo_reasons import DIFFERENT, NOT_HERE, Difference  # noqa: E402

# Of float64, and half of them of other dtypes: `python -m tests.ops.opinfo --all-samples` runs all.
SAMPLES = 6


def reason_not_here(name: str) -> str | None:
    return next((why for pattern, why in NOT_HERE.items() if fnmatch.fnmatchcase(name, pattern)),
                None)  # fmt: skip


PRESENT = [name for name in opinfo.database() if reason_not_here(name) is None]


@pytest.mark.parametrize("name", PRESENT)
def test_operator(name: str) -> None:
    allowed = [d for d in DIFFERENT if fnmatch.fnmatchcase(name, d.op)]
    unexpected = []
    with opinfo.outside_of_a_test():  # as operators that draw seed PyTorch, too
        for op in opinfo.database()[name]:
            faults = opinfo.faults_of(op, samples=SAMPLES, in_turns=True)
            for fault in [*faults, *opinfo.error_faults_of(op)]:
                if not any(explains(d, fault) for d in allowed):
                    unexpected.append(str(fault))
    assert not unexpected, "\n".join(unexpected[:10])


def explains(difference: Difference, fault: opinfo.Fault) -> bool:
    return difference.says in str(fault) and difference.dtype in (fault.dtype, "")


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
def test_what_is_not_here_is_not_here() -> None:
    """A reason for an absence is no reason once the operator has come."""
    for pattern in NOT_HERE:
        named = [n for n in opinfo.database() if fnmatch.fnmatchcase(n, pattern)]
        assert named, f"no operator is named {pattern}"
        for name in named:
            ops = opinfo.database()[name]
            assert any(map(_is_not_here, ops)), name


def _is_not_here(op: Any) -> bool:
    """Whether there is no such function, or none of the first samples can be made for it."""
    if opinfo.is_composed(op) or opinfo.function_of(op) is None:
        return True
    for sample in opinfo.samples_of(op, opinfo.torch.float64, False, SAMPLES):
        try:
            opinfo.ours([sample.input, *sample.args])
            return False
        except NotImplementedError:
            continue
    return True


def test_most_of_the_database_is_compared() -> None:
    assert len(PRESENT) >= 0.8 * len(opinfo.database())
