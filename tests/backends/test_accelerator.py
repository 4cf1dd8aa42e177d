"""torch.accelerator and torch.Stream: nothing without CUDA, and CUDA's where there is one."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import cugrad
from tests.support import ROOT
from tests.support.patience import patient

PROGRAM = """
import cugrad as torch
assert torch.accelerator.is_available() and torch.accelerator.device_count() >= 1
assert torch.accelerator.current_accelerator() == torch.device("cuda")
assert torch.accelerator.current_device_index() == 0
stream, event = torch.Stream("cuda"), torch.Event(enable_timing=True)
assert isinstance(stream, torch.Stream) and isinstance(stream, torch.cuda.Stream)
assert isinstance(event, torch.Event) and not isinstance(event, torch.Stream)
assert not stream.is_capturing() and event.device == stream.device == torch.device("cuda:0")
assert stream.stream_id == stream.native_handle == stream.cuda_stream
before = torch.accelerator.current_stream()
torch.accelerator.set_stream(stream)
assert torch.accelerator.current_stream() == stream != before
x = torch.ones(3, device="cuda") + 1
event.record()
torch.cuda.set_stream(before)
before.wait_event(event)
assert (x * 2).tolist() == [4, 4, 4] and torch.accelerator.current_stream() == before
with torch.accelerator.device_index(0), torch.cuda.device_of(x):
    torch.accelerator.synchronize()
assert torch.accelerator.memory_allocated() > 0
assert torch.float16 in torch.accelerator.get_device_capability()["supported_dtypes"]
torch.cuda.seed(); a = torch.cuda.initial_seed(); torch.cuda.seed_all()
assert torch.cuda.initial_seed() != a
print("done")
"""


def test_what_cuda_has() -> None:
    environment = {**os.environ, "CUGRAD_SIMULATE_CUDA": "1", "PYTHONPATH": str(ROOT)}
    run = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True,
                         env=environment, timeout=patient(240))  # fmt: skip
    assert run.stdout == "done\n", run.stderr


def test_without_one() -> None:
    if cugrad.cuda.is_available():
        pytest.skip("there is a GPU here")
    assert not cugrad.accelerator.is_available() and cugrad.accelerator.device_count() == 0
    assert cugrad.accelerator.current_accelerator() is None
    assert cugrad.get_device_module("cuda") is cugrad.get_device_module() is cugrad.cuda
    assert cugrad.get_device_module("cpu") is cugrad.cpu
    for call in (lambda: cugrad.Stream("cpu"), lambda: cugrad.get_device_module("simulated"),
                 lambda: cugrad.Stream(), lambda: cugrad.accelerator.synchronize()):  # fmt: skip
        with pytest.raises(RuntimeError):
            call()
    with cugrad.accelerator.device_index(None):
        assert not isinstance(3, cugrad.Stream)


def test_the_host_as_a_device() -> None:
    torch = pytest.importorskip("torch")
    cpu = cugrad.cpu
    assert {n for n in torch.cpu.__all__ if not hasattr(cpu, n)} == set()
    assert cpu.is_available() and cpu.device_count() == 1 and cpu.current_device() == "cpu"
    side, own = cpu.Stream(), cpu.current_stream()
    with cpu.stream(side), cpu.stream(None):
        assert cpu.current_stream("cpu") is side
    assert cpu.current_stream() is own and side.record_event().query()
    theirs = torch.cpu.get_capabilities()
    mine = cpu.get_capabilities()
    both = set(theirs) & set(mine)
    assert {"architecture"} < both and {k: theirs[k] for k in both} == {k: mine[k] for k in both}
    with pytest.raises(RuntimeError, match="want the one device 'cpu'"):
        cpu.set_device("cuda")
