"""Which device new tensors get, and what is said when CUDA cannot be used; machines are
simulated.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.metadata
import importlib.util
import subprocess
import sys
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import cugrad.backends as backends
import cugrad.cuda as cuda
from cugrad.backends.cupy import probe as cupy_probe
from cugrad.cuda.emitter import Emitter, call_of
from tests.support import ROOT

device_module = importlib.import_module("cugrad.device")  # cugrad.device is the class
Simulate = Callable[..., None]


class CudaError(RuntimeError):
    """As CuPy's CUDARuntimeError."""


def fake_cupy(driver: int, count: int | Exception, built_for: int = 12090) -> ModuleType:
    """A CuPy on a machine with this driver and these devices."""

    def device_count() -> int:
        if isinstance(count, Exception):
            raise count
        return count

    runtime = SimpleNamespace(
        is_hip=False,
        driverGetVersion=lambda: driver,
        runtimeGetVersion=lambda: built_for,
        getDeviceCount=device_count,
    )
    module = ModuleType("cupy")
    module.__spec__ = importlib.machinery.ModuleSpec("cupy", None)
    module.cuda = SimpleNamespace(runtime=runtime)  # type: ignore[attr-defined]
    return module


@pytest.fixture
def simulate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Simulate]:
    """simulate(cupy=module or None or an exception, wheels=[...]): makes this machine be that
    one.
    """
    real, probe = importlib.util.find_spec, cupy_probe.why_unusable

    def run(
        cupy: ModuleType | Exception | None, wheels: tuple[str, ...] = ("cupy-cuda12x",)
    ) -> None:
        def distribution(name: str) -> object:
            if name not in wheels:
                raise importlib.metadata.PackageNotFoundError(name)
            return object()

        def find_spec(name: str, package: str | None = None) -> Any:
            return (cupy and object()) if name == "cupy" else real(name, package)

        monkeypatch.setattr(importlib.metadata, "distribution", distribution)
        monkeypatch.setattr(importlib.util, "find_spec", find_spec)
        monkeypatch.setitem(sys.modules, "cupy", cupy if isinstance(cupy, ModuleType) else None)
        monkeypatch.delitem(backends._by_device_type, "cuda", raising=False)
        monkeypatch.setattr(device_module, "_process_default", None)
        monkeypatch.setattr(cuda.devices._Started, "now", False)
        monkeypatch.delenv("CUGRAD_DEVICE", raising=False)
        probe.cache_clear()

    yield run
    probe.cache_clear()


# name: (simulated machine, what the sentence must say)
MACHINES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "CuPy absent": (
        {"cupy": None, "wheels": ()},
        ["CuPy is not installed", 'pip install "cugrad[cuda12]"', "cugrad[cuda13]"],
    ),
    "two CuPys": (
        {"cupy": fake_cupy(12090, 1), "wheels": ("cupy-cuda12x", "cupy-cuda13x")},
        ["cupy-cuda12x and cupy-cuda13x", "pip uninstall -y cupy-cuda12x cupy-cuda13x"],
    ),
    "CuPy broken": ({"cupy": ImportError("x")}, ["fails to import", "reinstall"]),
    "no driver": ({"cupy": fake_cupy(0, CudaError("35"))}, ["no NVIDIA driver"]),
    "no device": (
        {"cupy": fake_cupy(12090, CudaError("cudaErrorNoDevice: no CUDA-capable device"))},
        ["no usable GPU", "cudaErrorNoDevice"],
    ),
    "old driver": (
        {"cupy": fake_cupy(12040, CudaError("cudaErrorInsufficientDriver"), built_for=13000)},
        ["supports CUDA 12.4", "built for CUDA 13.0"],
    ),
    "hidden devices": ({"cupy": fake_cupy(12090, 0)}, ["CUDA_VISIBLE_DEVICES"]),
    "an unknown failure": (
        {"cupy": ModuleType("cupy")},
        ["CuPy does not answer", "AttributeError"],
    ),
}
every_machine = pytest.mark.parametrize("machine", MACHINES)


@every_machine
def test_the_reason_is_one_sentence_that_says_the_next_step(
    simulate: Simulate, machine: str
) -> None:
    how, phrases = MACHINES[machine]
    simulate(**how)
    reason = cupy_probe.why_unusable()
    assert reason is not None and "\n" not in reason
    for phrase in phrases:
        assert phrase in reason


@every_machine
def test_asking_for_cuda_says_why_not(simulate: Simulate, machine: str) -> None:
    how, phrases = MACHINES[machine]
    simulate(**how)
    for ask in (
        lambda: device_module.set_default_device("cuda"),
        lambda: device_module.set_default_device("cuda:1"),
        lambda: backends.get("cuda"),
        cuda.init,
        cuda.Stream,
    ):
        with pytest.raises(RuntimeError) as caught:
            ask()
        assert "device 'cuda' cannot be used" in str(caught.value)
        assert phrases[0] in str(caught.value)
    assert device_module.get_default_device().type == "cpu"


@every_machine
def test_asking_whether_there_is_cuda_never_raises(simulate: Simulate, machine: str) -> None:
    simulate(**MACHINES[machine][0])
    assert cuda.is_available() is False
    assert cuda.device_count() == 0
    assert backends.is_usable("cuda") is False


def test_a_usable_machine_is_used(simulate: Simulate) -> None:
    simulate(cupy=fake_cupy(13000, 2))
    assert cupy_probe.why_unusable() is None
    assert cuda.is_available() and cuda.device_count() == 2
    assert device_module.get_default_device() == device_module.device("cuda")
    assert not cuda.is_initialized()


def test_the_probe_asks_once(simulate: Simulate) -> None:
    asked = []
    module = fake_cupy(12090, 1)
    module.cuda.runtime.driverGetVersion = lambda: asked.append(1) or 12090
    simulate(cupy=module)
    assert cuda.is_available() and cuda.is_available() and backends.is_usable("cuda")
    assert len(asked) == 1


def test_kernels_that_do_not_compile_are_explained(simulate: Simulate) -> None:
    module = fake_cupy(12090, 1)

    class RawKernel:
        def __init__(self, code: str, name: str) -> None:
            assert name in code

        def compile(self) -> None:
            raise RuntimeError("Failed to find CUDA headers.\nA long explanation.")

    module.RawKernel = RawKernel  # type: ignore[attr-defined]
    simulate(cupy=module)
    cupy_probe.why_uncompilable.cache_clear()
    try:
        reason = cupy_probe.why_uncompilable()
    finally:
        cupy_probe.why_uncompilable.cache_clear()
    assert reason is not None and "\n" not in reason
    assert "Failed to find CUDA headers." in reason and "cugrad[cuda12-ctk]" in reason


# CUGRAD_DEVICE


@pytest.fixture
def no_cuda(simulate: Simulate) -> None:
    simulate(cupy=None, wheels=())


def test_cugrad_device_chooses(no_cuda: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUGRAD_DEVICE", "cpu")
    monkeypatch.setattr(cupy_probe, "why_unusable", lambda: pytest.fail("cuda was probed for cpu"))
    assert device_module.get_default_device() == device_module.device("cpu")


@pytest.mark.parametrize("asked, said", [
    ("cuda", "CuPy is not installed"), ("cuda:1", "CuPy is not installed"), ("gpu", "cpu, cuda"),
])  # fmt: skip
def test_cugrad_device_that_cannot_be_says_so(
    no_cuda: None, monkeypatch: pytest.MonkeyPatch, asked: str, said: str
) -> None:
    monkeypatch.setenv("CUGRAD_DEVICE", asked)
    with pytest.raises(RuntimeError, match=f"CUGRAD_DEVICE={asked}: .*{said}"):
        device_module.get_default_device()


def test_without_cuda_and_without_a_wish_it_is_the_cpu(no_cuda: None) -> None:
    assert device_module.get_default_device() == device_module.device("cpu")


# torch.cuda's face without a GPU

HARMLESS: dict[str, Any] = {
    "is_available": False,
    "is_initialized": False,
    "device_count": 0,
    "memory_allocated": 0,
    "max_memory_allocated": 0,
    "memory_reserved": 0,
    "empty_cache": None,
    "is_bf16_supported": False,
    "get_rng_state_all": [],
}
NEEDS_CUDA: dict[str, tuple[Any, ...]] = {
    "init": (),
    "current_device": (),
    "set_device": (0,),
    "get_device_name": (),
    "get_device_capability": (0,),
    "get_device_properties": ("cuda:0",),
    "synchronize": (),
    "Stream": (),
    "Event": (),
    "current_stream": (),
    "default_stream": (),
    "reset_peak_memory_stats": (),
    "mem_get_info": (),
    "get_rng_state": (),
}


@pytest.mark.parametrize("name", HARMLESS)
def test_what_is_harmless_in_torch_is_harmless(no_cuda: None, name: str) -> None:
    assert getattr(cuda, name)() == HARMLESS[name]


@pytest.mark.parametrize("name", NEEDS_CUDA)
def test_what_needs_a_gpu_says_what_is_missing(no_cuda: None, name: str) -> None:
    with pytest.raises(RuntimeError, match="CuPy is not installed"):
        getattr(cuda, name)(*NEEDS_CUDA[name])


def test_code_that_runs_anywhere_runs_here(no_cuda: None) -> None:
    cuda.manual_seed(1)
    cuda.manual_seed_all(1)
    with cuda.stream(None), cuda.device(None):
        pass
    with pytest.raises(RuntimeError, match="CuPy is not installed"), cuda.profiler.profile():
        pass
    with pytest.raises(RuntimeError, match="CuPy is not installed"), cuda.device(0):
        pass


def test_nvtx_counts_its_depth(no_cuda: None, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    library = Emitter(
        "a list", call_of(lambda name: calls.append(f"push {name}")), lambda: calls.append("pop"),
        calls.append,
    )  # fmt: skip
    monkeypatch.setattr(cuda.nvtx, "emitter", lambda: library)
    assert cuda.nvtx.range_push("outer") == 0
    with cuda.nvtx.range("step {}", 3):
        cuda.nvtx.mark("now")
    assert cuda.nvtx.range_pop() == 0
    assert calls == ["push outer", "push step 3", "now", "pop", "pop"]


def test_nvtx_without_a_library_does_nothing(
    no_cuda: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda.nvtx, "emitter", lambda: None)
    with cuda.nvtx.range("a"):
        cuda.nvtx.mark("b")
    assert cuda.nvtx.range_pop() == 0


def test_a_device_that_is_not_cuda_is_refused() -> None:
    with pytest.raises(ValueError, match="Expected a cuda device, but got: cpu"):
        cuda.get_device_name("cpu")


def test_importing_cugrad_imports_no_cupy() -> None:
    code = "import sys, cugrad, cugrad.cuda; print([m for m in sys.modules if 'cupy' in m])"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    found = [name for name in eval(done.stdout) if not name.startswith("cugrad.")]
    assert not found
