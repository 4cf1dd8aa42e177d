"""The documents' examples run, with `import cugrad as torch`, and print what the documents say."""

from __future__ import annotations

import doctest
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import cugrad
from tests.documents.documented_examples import EXAMPLES, NOT_YET, PACKAGE

FLAGS = doctest.NORMALIZE_WHITESPACE
NEEDS_CUDA = {f"{PACKAGE}: emit_nvtx"}  # cuda.profiler starts CUDA's


def run(name: str, text: str, lib: Any, device: str) -> list[str]:
    """What differs from what the example says."""
    found: list[str] = []
    test = doctest.DocTestParser().get_doctest(
        text, {"torch": lib, "DEVICE": device, "__name__": "example"}, name, None, None
    )
    with as_torch(lib), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        doctest.DocTestRunner(optionflags=FLAGS, verbose=False).run(test, out=found.append)
    return found


@contextmanager
def as_torch(lib: Any) -> Iterator[None]:
    """`import torch`, `from torch import autograd` and the like mean this library."""
    if lib.__name__ == "torch":
        yield
        return
    before = {m: sys.modules.pop(m) for m in list(sys.modules) if m.partition(".")[0] == "torch"}
    for m, module in list(sys.modules.items()):
        if m.partition(".")[0] == lib.__name__:
            sys.modules["torch" + m[len(lib.__name__) :]] = module
    try:
        yield
    finally:
        for m in [m for m in sys.modules if m.partition(".")[0] == "torch"]:
            del sys.modules[m]
        sys.modules.update(before)


def names() -> list[Any]:
    marks = {
        name: pytest.mark.xfail(reason=reason, strict=True) for name, reason in NOT_YET.items()
    }
    return [pytest.param(name, marks=marks.get(name, ())) for name in EXAMPLES]


@pytest.mark.parametrize("name", names())
def test_example(name: str) -> None:
    if name in NEEDS_CUDA and not cugrad.cuda.is_available():
        pytest.skip("cuda.profiler.profile needs CUDA")
    device = "cuda" if cugrad.cuda.is_available() else "simulated"
    with cugrad.device("cpu"):
        found = run(name, EXAMPLES[name], cugrad, device)
    assert not found, "".join(found)


@pytest.mark.parametrize("name", list(EXAMPLES))
def test_examples_are_pytorch_s(name: str) -> None:
    """So that what is expected here is what PyTorch does."""
    torch = pytest.importorskip("torch")
    if name in NEEDS_CUDA and not torch.cuda.is_available():
        pytest.skip("cuda.profiler.profile needs CUDA")
    if "emit_itt" in name:
        pytest.skip("PyTorch's emit_itt needs a build with ITT")
    found = run(name, EXAMPLES[name], torch, "cpu")
    assert not found, "".join(found)


def test_reasons_are_of_examples() -> None:
    assert {*NOT_YET, *NEEDS_CUDA} <= set(EXAMPLES)
    assert all(re.match(r"[\w .-]+: \S", name) for name in EXAMPLES)
