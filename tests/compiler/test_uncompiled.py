"""What compiles in PyTorch comes back as it is."""

from __future__ import annotations

import subprocess
import sys
import warnings
from typing import Any

import pytest

import cugrad
from cugrad import compiler, jit
from cugrad.compiler.uncompiled import Told


def twice(x: Any) -> Any:
    return x + x


@pytest.fixture(autouse=True)
def not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Told, "already", False)


def test_compile_returns_what_it_is_given_and_warns_once() -> None:
    with pytest.warns(UserWarning, match="there is no compiler here"):
        assert cugrad.compile(twice) is twice
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = cugrad.nn.Linear(2, 2)
        assert cugrad.compile(model, mode="max-autotune", fullgraph=True, dynamic=False) is model


def test_a_module_stays_as_it_is_and_warns_once() -> None:
    model = cugrad.nn.Linear(2, 2)
    with pytest.warns(UserWarning, match="there is no compiler here"):
        assert model.compile(mode="max-autotune") is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.compile(fullgraph=True)
    with pytest.raises(RuntimeError, match="Either mode or options"):
        model.compile(mode="default", options={})
    assert model(cugrad.ones(2)).shape == (2,)


def test_compile_decorates() -> None:
    with pytest.warns(UserWarning, match="runs as it is"):
        assert cugrad.compile(twice, backend="eager") is twice
    assert cugrad.compile(mode="reduce-overhead")(twice) is twice
    assert cugrad.compile(disable=True)(twice) is twice


def test_no_word_about_what_shall_not_be_compiled() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cugrad.compile(twice, disable=True) is twice


def test_compile_checks_its_arguments_as_pytorch() -> None:
    torch = pytest.importorskip("torch")
    for library in (cugrad, torch):
        with pytest.raises(RuntimeError, match="Either mode or options can be specified"):
            library.compile(twice, mode="default", options={})
    with pytest.raises(TypeError, match="want a function or a module, got int"):
        cugrad.compile(3)  # type: ignore[call-overload]


@pytest.mark.parametrize("name", ["allow_in_graph", "assume_constant_result", "disable"])
def test_marks_of_the_compiler_return_the_function(name: str) -> None:
    assert getattr(compiler, name)(twice) is twice


def test_the_compiler_answers_no() -> None:
    assert not compiler.is_compiling()
    assert not compiler.is_exporting()
    assert compiler.list_backends() == []
    with compiler.set_stance("force_eager"):
        pass
    with pytest.raises(RuntimeError, match="invalid torch.compile stance"):
        compiler.set_stance("sitting")


@pytest.mark.parametrize(
    "name",
    ["script", "trace", "script_method", "script_if_tracing", "export", "unused", "ignore",
     "interface", "optimize_for_inference", "trace_module"],
)  # fmt: skip
def test_jit_returns_what_it_is_given(name: str) -> None:
    arguments = (None,) if name == "trace_module" else ()
    assert getattr(jit, name)(twice, *arguments) is twice


def test_jit_has_the_other_forms() -> None:
    assert jit.ignore(drop=True)(twice) is twice
    assert jit.annotate(int, 3) == 3
    assert jit.Attribute(3, int).value == 3
    assert not jit.is_scripting()
    assert not jit.is_tracing()
    assert not isinstance(cugrad.nn.Linear(1, 1), jit.ScriptModule)
    model = cugrad.nn.Linear(1, 1)
    with pytest.raises(RuntimeError, match="only implemented for modules in eval mode"):
        jit.freeze(model)
    assert jit.freeze(model.eval()) is model


@pytest.mark.parametrize("name", ["save", "load", "ScriptModule", "ScriptFunction"])
def test_what_is_compiled_is_refused(name: str) -> None:
    with pytest.raises(NotImplementedError, match=f"torch.jit.{name}: "):
        getattr(jit, name)()


def test_a_program_imports_them_by_pytorchs_paths() -> None:
    program = (
        "import cugrad.jit, cugrad.compiler, cugrad.distributed as dist\n"
        "from cugrad.distributed import init_process_group, destroy_process_group\n"
        "from cugrad.nn.parallel import DistributedDataParallel as DDP\n"
        "from cugrad.nn.parallel.distributed import DistributedDataParallel\n"
        "print(dist.is_available())\n"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (run.stdout, run.stderr) == ("True\n", "")
