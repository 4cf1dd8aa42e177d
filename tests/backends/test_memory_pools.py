"""Small blocks and large ones apart, statistics and snapshots as PyTorch has them: on CuPy's pool
as the CuPy of NumPy plays it, and on the simulated device.
"""

from __future__ import annotations

import gc
import importlib.util
import pickle
from pathlib import Path
from typing import Any

import pytest

import cugrad as torch
from cugrad.backends import get
from cugrad.backends.allocations import history
from tests.conftest import usable_devices
from tests.support import fake_cuda

MIB = 1 << 20
ON_CUDA = "cuda" in usable_devices()
DEVICES = ["simulated", "cuda"] if ON_CUDA else ["simulated"]
cuda: Any = torch.cuda


if not ON_CUDA:
    pytest.importorskip("cupy", reason="CuPy is not installed")

    def test_over_the_fake_cuda() -> None:
        fake_cuda.passed(__file__)


def block(nbytes: int, device: str) -> Any:
    return torch.empty(nbytes, dtype=torch.uint8, device=device)


@pytest.fixture(params=DEVICES)
def place(request: pytest.FixtureRequest) -> Any:
    """A device, with nothing free in its pools."""
    gc.collect()
    get(request.param).synchronize()
    get(request.param).empty_cache()
    yield request.param
    history.record(None, None, 1, ())
    history.entries.clear()


def test_statistics_have_all_of_pytorchs_names(place: str) -> None:
    kinds = """allocation segment active inactive_split allocated_bytes reserved_bytes active_bytes
        inactive_split_bytes requested_bytes"""
    wanted = {
        f"{kind}.{pool}.{what}" for kind in kinds.split() for pool in ("all", "small_pool",
        "large_pool") for what in ("current", "peak", "allocated", "freed")
    }  # fmt: skip
    wanted |= {f"oversize_{kind}.{what}" for kind in ("allocations", "segments")
               for what in ("current", "peak", "allocated", "freed")}  # fmt: skip
    wanted |= {"num_alloc_retries", "num_ooms", "max_split_size", "num_sync_all_streams",
               "num_device_alloc", "num_device_free", "num_oom_rejections"}  # fmt: skip
    stats = cuda.memory_stats(place)
    assert set(stats) == wanted and list(stats) == sorted(stats)
    assert all(type(value) is int for value in stats.values())


def test_statistics_follow_what_is_allocated(place: str) -> None:
    before = cuda.memory_stats(place)
    blocks = [block(1000, place), block(MIB, place), block(MIB + 1, place), block(30 * MIB, place)]
    sizes = {"small_pool": 1024 + MIB, "large_pool": 31 * MIB + 512}
    sizes["all"] = sum(sizes.values())
    stats = cuda.memory_stats(place)

    def change(name: str) -> int:
        return int(stats[name] - before[name])

    for pool, nbytes in sizes.items():
        number = 4 if pool == "all" else 2
        assert change(f"allocation.{pool}.current") == number, pool
        assert change(f"active.{pool}.allocated") == number, pool
        assert change(f"allocated_bytes.{pool}.current") == nbytes, pool
        assert stats[f"reserved_bytes.{pool}.current"] >= nbytes, pool
        assert stats[f"reserved_bytes.{pool}.current"] % 512 == 0, pool
    assert change("requested_bytes.all.current") == 1000 + MIB + MIB + 1 + 30 * MIB
    del blocks
    gc.collect()
    stats = cuda.memory_stats(place)
    for pool, nbytes in sizes.items():
        assert change(f"allocated_bytes.{pool}.current") == 0, pool
        assert change(f"allocated_bytes.{pool}.freed") == nbytes, pool
        assert stats[f"allocated_bytes.{pool}.peak"] >= nbytes, pool
        assert change(f"requested_bytes.{pool}.current") == 0, pool
    for name, value in stats.items():
        kind = name.rpartition(".")[0]
        if name.endswith("current"):
            assert value == stats[f"{kind}.allocated"] - stats[f"{kind}.freed"], name
            assert value <= stats[f"{kind}.peak"], name
    cuda.reset_peak_memory_stats(place)
    stats = cuda.memory_stats(place)
    assert stats["active.all.peak"] == stats["active.all.current"]
    cuda.reset_accumulated_memory_stats(place)
    assert cuda.memory_stats(place)["allocation.all.allocated"] == 0


def test_a_small_tensor_pins_no_large_block() -> None:
    if not ON_CUDA:
        pytest.skip("the simulated device's blocks are never parts of others")
    gc.collect()
    cuda.empty_cache()
    before = cuda.memory_reserved()
    kept = []
    for _ in range(6):  # each small one is made between large ones, and outlives them
        large = block(11 * MIB, "cuda")
        kept.append(block(600, "cuda"))
        del large
    gc.collect()
    cuda.empty_cache()
    assert cuda.memory_reserved() - before <= 2 * MIB


def test_segments_are_of_pytorchs_sizes() -> None:
    if not ON_CUDA:
        pytest.skip("the simulated device asks for each block as it is")
    gc.collect()
    cuda.empty_cache()

    def segments() -> list[int]:
        return [s["total_size"] // MIB for s in cuda.memory_snapshot() if s["allocated_size"]]

    known = segments()
    for nbytes, wanted in [(512, 2), (MIB + 1, 20), (10 * MIB, 10), (11 * MIB + 1, 12)]:
        gc.collect()
        cuda.empty_cache()
        x = block(nbytes, "cuda")
        new = list(segments())
        for size in known:
            if size in new:
                new.remove(size)
        assert new in ([wanted], []) and (new or nbytes == 512), nbytes
        del x


def test_the_last_bytes_of_a_device_are_given_as_asked_for() -> None:
    if fake_cuda.REAL is None:
        pytest.skip("fills the stand-in's device")
    from cugrad.backends.cupy import pools

    gc.collect()
    cuda.empty_cache()
    here = pools.bytes_reserved(0)
    pools.set_limit(0, here + 6 * MIB)
    try:
        before = cuda.memory_stats("cuda")
        x, y = block(2 * MIB, "cuda"), block(2 * MIB, "cuda")  # 20 MiB there are not
        with pytest.raises(torch.cuda.OutOfMemoryError, match="CUDA out of memory"):
            block(12 * MIB, "cuda")
        del x, y
        block(5 * MIB, "cuda")  # what is free goes back to the driver first, of both pools
        stats = cuda.memory_stats("cuda")
        assert stats["num_ooms"] == before["num_ooms"] + 1
        assert stats["num_alloc_retries"] > before["num_alloc_retries"]
    finally:
        pools.set_limit(0, 0)


def test_an_allocator_that_a_program_chose_stays() -> None:
    """CuPy's default one does not, wherever the backend is begun: within another one, too."""
    if fake_cuda.REAL is None:
        pytest.skip("changes the stand-in's allocator")
    import cupy

    from cugrad.backends.cupy import memory

    before, own = cupy.cuda.get_allocator(), lambda size: None
    try:
        for chosen, kept in ((own, True), (cupy.get_default_memory_pool().malloc, False)):
            cupy.cuda.set_allocator(chosen)
            with cupy.cuda.using_allocator(own):
                memory.use_pools()
            assert (cupy.cuda.get_allocator() == chosen) is kept
    finally:
        cupy.cuda.set_allocator(before)


def check_sums(segments: list[dict[str, Any]]) -> None:
    for segment in segments:
        at, blocks = segment["address"], segment["blocks"]
        for each in blocks:
            assert each["address"] == at and each["state"] in ("active_allocated", "inactive")
            at += each["size"]
        assert at == segment["address"] + segment["total_size"]
        used = sum(b["size"] for b in blocks if b["state"] == "active_allocated")
        assert used == segment["allocated_size"] == segment["active_size"]
        assert segment["requested_size"] == sum(b["requested_size"] for b in blocks) <= used
        assert segment["segment_type"] in ("small", "large")


def test_a_snapshot_has_every_byte_once(place: str) -> None:
    cuda.memory_stats(place)
    kept = [block(n, place) for n in (700, 3 * MIB, 4000, 25 * MIB, 12)]
    del kept[1]
    gc.collect()
    segments = cuda.memory._snapshot(place)["segments"]
    check_sums(segments)
    backend = get(place)
    assert sum(s["total_size"] for s in segments) == backend.memory_reserved()
    assert sum(s["allocated_size"] for s in segments) == backend.memory_allocated()
    sizes = {b["requested_size"] for s in segments for b in s["blocks"]}
    assert {700, 4000, 25 * MIB, 12} <= sizes
    assert torch.cuda.memory_snapshot() == (segments if place == "cuda" else
                                            torch.cuda.memory_snapshot())  # fmt: skip


def test_a_history_says_who_allocated(place: str) -> None:
    cuda.memory._record_memory_history(max_entries=100, device=place)
    kept = block(2000, place)
    block(3000, place)
    gc.collect()
    get(place).memory_allocated()  # notices what went
    snapshot = cuda.memory._snapshot(place)
    names = {f["name"] for s in snapshot["segments"] for b in s["blocks"]
             if b["requested_size"] == 2000 for f in b["frames"]}  # fmt: skip
    assert {"block", "test_a_history_says_who_allocated"} <= names
    entries = snapshot["device_traces"][0]
    actions = [e["action"] for e in entries]
    assert actions.count("alloc") >= 2 and actions[-1] == "snapshot"
    freed = [e for e in entries if e["action"] == "free_completed"]
    gone = next(e for e in entries if e["action"] == "alloc" and e["size"] == 3072)
    assert any(e["addr"] == gone["addr"] and e["size"] == 3072 for e in freed)
    assert all(type(e["time_us"]) is int and e["pool_id"] == (0, 0) for e in entries)
    cuda.memory._record_memory_history(None)
    block(5000, place)
    assert len(cuda.memory._snapshot(place)["device_traces"][0]) == len(entries)
    del kept


@pytest.mark.parametrize("settings, what", [
    ({"enabled": "some"}, "enabled"), ({"context": "none"}, "context"),
    ({"stacks": "c++"}, "stacks"), ({"skip_actions": ["eat"]}, "skip_actions"),
    ({"compile_context": True}, "compile_context"),
])  # fmt: skip
def test_a_history_of_what_is_not_there(settings: dict[str, Any], what: str) -> None:
    with pytest.raises(RuntimeError, match=what):
        cuda.memory._record_memory_history(**settings)


def test_a_history_is_as_long_as_asked(place: str) -> None:
    cuda.memory._record_memory_history(
        "all", max_entries=3, skip_actions=["snapshot", "free_requested"], device=place
    )
    for _ in range(5):
        block(1 << 12, place)
    entries = cuda.memory._snapshot(place)["device_traces"][0]
    assert len(entries) == 3 and {e["action"] for e in entries} == {"alloc", "free_completed"}


def test_pytorchs_viewer_reads_a_dump(place: str, tmp_path: Path) -> None:
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        pytest.skip("PyTorch is not installed")
    path = Path(spec.origin).parent / "cuda" / "_memory_viz.py"
    viewer = importlib.util.spec_from_file_location("memory_viz", path)
    assert viewer is not None and viewer.loader is not None
    viz = importlib.util.module_from_spec(viewer)
    viewer.loader.exec_module(viz)
    cuda.memory._record_memory_history(device=place)
    kept = [block(21 * MIB, place), block(3000, place)]
    if place == "simulated":
        snapshot = cuda.memory._snapshot(place)
    else:
        cuda.memory._dump_snapshot(str(tmp_path / "dump.pickle"))
        with (tmp_path / "dump.pickle").open("rb") as file:
            snapshot = pickle.load(file)
    text = viz.segsum(snapshot)
    assert "total_allocated" in text and "22.0MiB allocated" in text or place == "simulated"
    assert "cudaMalloc" in viz.trace(snapshot)
    assert "MemoryViz" in viz.trace_plot(snapshot) and "MemoryViz" in viz.segment_plot(snapshot)
    del kept


def test_nothing_is_said_before_cuda_is_used() -> None:
    if ON_CUDA:
        pytest.skip("CUDA is in use")
    assert cuda.memory_stats() == {} and cuda.memory_snapshot() == []
    assert "Allocated memory" in cuda.memory_summary()


@pytest.mark.skipif(ON_CUDA, reason="of the real CuPy, before CUDA is used")
def test_cupy_has_what_its_pools_are_looked_into_with() -> None:
    """Names that CuPy keeps for itself: blocks with room for an attribute, a pool's free chunks."""
    memory = pytest.importorskip("cupy").cuda.memory
    assert "__dict__" in vars(memory.PooledMemory) and "pool" in vars(memory.PooledMemory)
    assert callable(memory.SingleDeviceMemoryPool._debug_arena_get_index)
    chunk = memory._Chunk
    assert {"mem", "offset", "size", "prev", "next"} <= set(vars(chunk))
    assert isinstance(memory.OutOfMemoryError(1, 2, 3), MemoryError)
    import cupy

    assert cupy.cuda.get_allocator() == cupy.get_default_memory_pool().malloc
