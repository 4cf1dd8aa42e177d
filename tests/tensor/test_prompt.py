"""What a person sees at a prompt: reprs, listed names, help, source in tracebacks."""

from __future__ import annotations

import inspect
import linecache
import pydoc
import re
import traceback
import types
from typing import Any

import pytest

import cugrad as torch
from cugrad import memory, profiler
from cugrad.functions import FUNCTIONS, TAKES_OUT
from cugrad.runtime.absent import PUBLIC
from tests.documents.test_absent import home, public_names


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
    assert text.lstrip("<").startswith(type(made).__name__) and " object at 0x" not in text


def test_reprs_show_settings() -> None:
    assert repr(torch.autocast("cpu")) == "autocast('cpu', dtype=torch.bfloat16)"
    assert repr(torch.inference_mode(False)) == "inference_mode(mode=False)"
    assert repr(profiler.record_function("mine")) == "record_function(name='mine')"
    assert "953.7 MiB" in repr(memory.budget("1GB", device="cpu"))
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


ROOMS = ["", "nn", "nn.functional", "nn.init", "nn.utils", "optim", "linalg", "cuda", "autograd",
         "autograd.graph", "backends", "random", "func", "utils", "serialization"]  # fmt: skip


@pytest.mark.parametrize("space", ROOMS)
def test_what_is_listed_is_for_users(space: str) -> None:
    """`dir` shows PyTorch's names that are here, and no rooms of the library's own."""
    place = home("cugrad", space)
    shown = {n for n in dir(place) if not n.startswith("_")}
    inside = {n for n in shown if isinstance(getattr(place, n), types.ModuleType)}
    assert {f"{space}.{n}".lstrip(".") for n in inside} <= PUBLIC
    hidden = {"annotations", "Any", "Callable", "np", "creation", "methods", "printing", "explain"}
    assert not shown & hidden
    pytest.importorskip("torch")
    there = home("torch", space)
    for name in public_names(space) & set(dir(there)):
        if hasattr(place, name) and not isinstance(getattr(there, name), types.ModuleType):
            assert name in shown


@pytest.mark.parametrize("name", sorted(n for n in FUNCTIONS if not n.endswith(("_", "_copy"))))
def test_a_function_s_signature_says_how_it_is_called(name: str) -> None:
    function = getattr(torch, name)
    names = list(inspect.signature(function).parameters)
    assert "more" not in names and "args" not in names
    assert ("out" in names) or name not in TAKES_OUT
    assert function.__doc__ and len(function.__doc__.split()) > 2
    theirs = getattr(pytest.importorskip("torch"), name, None)
    said = re.match(rf"\s*{name}\((\w+)", getattr(theirs, "__doc__", None) or "")
    otherwise = ("sizes", "tensors", "operands", "equation")
    if said and names[0] not in otherwise and name != "true_divide":
        assert names[0] == said[1]


def test_methods_have_public_names_and_say_what_they_return() -> None:
    """What `help` shows, and a `__torch_function__` prints."""
    methods = {name: method for name, method in vars(torch.Tensor).items()
               if isinstance(method, types.FunctionType) and not name.startswith("_")}  # fmt: skip
    assert len(methods) > 400
    assert not [name for name, method in methods.items() if method.__name__[0] in "_<"]
    assert methods["reshape"].__name__ == "reshape" and methods["float"].__name__ == "float"
    rows = [method for name, method in methods.items() if method.__module__.endswith(".fast")]
    assert rows and all("return" in method.__annotations__ for method in rows)


def test_a_signature_is_used_as_any_other() -> None:
    signature = inspect.signature(torch.exp)
    assert str(signature).startswith("(input, *, out=None)")
    assert signature.bind(1, out=2).arguments == {"input": 1, "out": 2}
    assert str(inspect.signature(torch.Tensor.exp)) == "(self) -> 'Tensor'"
    assert "e to the power" in (torch.Tensor.exp.__doc__ or "")
    assert "exp(input, *, out=None)" in pydoc.plain(pydoc.render_doc(torch.exp))
