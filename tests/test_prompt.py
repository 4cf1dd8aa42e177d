"""What a person sees at a prompt: reprs, listed names, help, source in tracebacks."""

from __future__ import annotations

import linecache
import re
import traceback
from typing import Any

import pytest

import cugrad as torch
from cugrad import memory, profiler


def contexts() -> list[Any]:
    made = [
        torch.autocast("cpu"), torch.autocast("cpu", torch.float16, enabled=False),
        torch.amp.GradScaler("cpu"), torch.amp.GradScaler("cpu", enabled=False), torch.no_grad(),
        torch.enable_grad(), torch.inference_mode(), torch.autograd.forward_ad.dual_level(),
        torch.autograd.graph.saved_tensors_hooks(abs, abs), torch.autograd.graph.save_on_cpu(),
        memory.offload(), memory.budget("1GB", device="cpu"), memory.recompute(),
        memory.save_on_disk(), profiler.profile(), profiler.MemoryTimeline("cpu"),
        profiler.emit_nvtx(), profiler.record_function("mine"),
    ]  # fmt: skip
    return made


@pytest.mark.parametrize("made", contexts(), ids=lambda made: type(made).__name__)
def test_a_repr_says_what_a_thing_is(made: Any) -> None:
    text = repr(made)
    assert text.startswith(type(made).__name__) and " object at 0x" not in text


def test_reprs_show_settings() -> None:
    assert repr(torch.autocast("cpu")) == "autocast('cpu', dtype=torch.bfloat16)"
    assert repr(torch.inference_mode(False)) == "inference_mode(mode=False)"
    assert repr(profiler.record_function("mine")) == "record_function(name='mine')"
    assert "limit=1000000000" in repr(memory.budget("1GB", device="cpu"))
    assert repr(torch.amp.GradScaler("cpu", init_scale=8.0)) == "GradScaler('cpu', scale=8.0)"


def test_a_report_is_a_page_at_a_prompt_too() -> None:
    with memory.offload() as moved:
        torch.ones(3, requires_grad=True).exp().sum().backward()
    report = moved.report()
    assert repr(report) == str(report) and "saved" in str(report) and isinstance(report, dict)


def test_autocast_without_its_package_says_so_at_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    monkeypatch.setattr(torch.bfloat16, "_numpy", None)
    with pytest.raises(RuntimeError, match=re.escape(
        "autocast('cpu'): bfloat16 needs the package ml_dtypes: pip install \"cugrad[bf16]\", or "
        "give dtype=torch.float16"
    )):  # fmt: skip
        torch.autocast("cpu")
    torch.autocast("cpu", enabled=False)


def test_compiled_rows_have_source_in_tracebacks() -> None:
    for _ in range(2):  # the first call compiles
        with pytest.raises(RuntimeError) as said:
            torch.add(torch.ones(2, 3), torch.ones(4))
        linecache.checkcache()
        frames = traceback.extract_tb(said.tb)
        compiled = [f for f in frames if "fast path" in f.filename]
        assert compiled and all(f.line for f in compiled)
        assert "apply(OP, (self, other,)" in str(compiled[-1].line)
