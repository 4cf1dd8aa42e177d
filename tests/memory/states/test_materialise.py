"""A model is filled weight by weight in its place, and is then the one that was saved."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest

import cugrad
from cugrad import backends, memory
from tests.memory.states.training import Net, arrays_of, same

DEVICE: Any = backends.get("simulated")


pytestmark = pytest.mark.usefixtures("nothing_stays_placed")


@pytest.mark.parametrize("given", ["tensors", "a path", "its text", "the folder"])
@pytest.mark.parametrize("suffix", ["pt", "safetensors"])
@pytest.mark.parametrize("weights", ["device", "host", "disk"])
def test_it_is_what_was_saved(weights: str, suffix: str, given: str, tmp_path: Path) -> None:
    net = Net(True, True)
    file = tmp_path / ("model.safetensors" if suffix == "safetensors" else "pytorch_model.bin")
    if suffix == "pt":
        cugrad.save(net.state_dict(), file)
        tensors = cugrad.load(file, mmap=True)
    else:
        cugrad.save_file({k: v.clone() for k, v in net.state_dict().items()}, file)
        tensors = cugrad.load_file(file)
    if given != "tensors":
        tensors = {"a path": file, "its text": str(file), "the folder": tmp_path}[given]
    filled = memory.materialise(
        lambda: Net(True, True), tensors, device="simulated", weights=weights, min_bytes=512
    )
    assert filled.out.weight is filled.embedding.weight
    assert not filled.layers[1].weight.requires_grad
    assert isinstance(filled.out.weight, cugrad.nn.Parameter)
    assert filled.out.weight.device.type == "simulated"
    assert same(arrays_of(dict(filled.state_dict())), arrays_of(dict(net.state_dict())))
    words = cugrad.arange(4).to("simulated")
    expected = net.to("simulated")(words)
    optimizer = cugrad.optim.Adam(filled.parameters())
    with memory.offload_states(filled, optimizer, weights=weights, states="stream", min_bytes=512):
        y = filled(words)
        y.sum().backward()
        optimizer.step()
    assert same(arrays_of(y), arrays_of(expected))
    assert filled.out.weight.grad is not None


def test_it_need_never_fit() -> None:
    weight, count = 64 * 64 * 4, 24

    def built() -> Any:
        layers = [cugrad.nn.Linear(64, 64, bias=False) for _ in range(count)]
        return cugrad.nn.Sequential(*layers)

    tensors = built().state_dict()
    gc.collect()
    before = DEVICE.memory_allocated()
    DEVICE.reset_peak_memory_stats()
    net = memory.materialise(
        built, tensors, device="simulated", weights="host", window=2 * weight, min_bytes=512
    )
    assert DEVICE.max_memory_allocated() - before <= 5 * weight
    assert same(arrays_of(net[7].weight), arrays_of(tensors["7.weight"]))


def test_what_does_not_match_is_said_before_anything_is_read() -> None:
    def linear() -> Any:
        return cugrad.nn.Linear(2, 3)

    values = dict(linear().state_dict())
    with pytest.raises(RuntimeError, match="lacks bias, and has nothing that Linear"):
        memory.materialise(linear, {"weight": values["weight"]})
    with pytest.raises(RuntimeError, match="lacks nothing, and has other that Linear"):
        memory.materialise(linear, {**values, "other": values["bias"]})
    with pytest.raises(RuntimeError, match=r"weight: got \(3,\), want \(3, 2\)"):
        memory.materialise(linear, {**values, "weight": values["bias"]})

    class Cached(cugrad.nn.Linear):
        def __init__(self) -> None:
            super().__init__(2, 3)
            self.register_buffer("table", cugrad.arange(3), persistent=False)

    with pytest.raises(RuntimeError, match="no state dict has the buffers table"):
        memory.materialise(Cached, values)


def test_what_is_neither_tensors_nor_a_path_is_said(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="got list, want a mapping of names to tensors, or a path"):
        memory.materialise(lambda: Net(True, True), [1])  # type: ignore[arg-type]
    with pytest.raises(FileNotFoundError):
        memory.materialise(lambda: Net(True, True), tmp_path / "nothing.pt")
