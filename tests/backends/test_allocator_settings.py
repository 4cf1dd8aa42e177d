"""What PYTORCH_ALLOC_CONF says is done, is refused, or is named as what changes nothing."""

from __future__ import annotations

import pytest

from cugrad.backends.allocator_settings import (
    VARIABLES,
    AllocatorSettings,
    settings_of,
    settings_of_environment,
)
from cugrad.backends.lending.pinned import PinnedMemory
from cugrad.cuda.devices import backend_at
from tests.support import fake_cuda

REFUSED = {
    "max_splitsize_mb:3": "Unrecognized key 'max_splitsize_mb'",
    "per_process_memory_fraction:2": "want a number from 0 to 1",
    "per_process_memory_fraction:half": "want a number from 0 to 1",
    "pinned_reserve_segment_size_mb:-1": "want a number of MiB",
    "backend:cudaMallocAsync": "want backend:native",
    "0.5": "Unrecognized key '0.5'",
}


def test_settings_are_read() -> None:
    text = " backend:native, roundup_power2_divisions:[256:1,512:2], expandable_segments:True,"
    unused = ("roundup_power2_divisions", "expandable_segments")
    assert settings_of(text) == AllocatorSettings(None, 0, unused)
    assert settings_of("per_process_memory_fraction:0.25").fraction == 0.25
    assert settings_of("") == AllocatorSettings()


@pytest.mark.parametrize("text", REFUSED)
def test_what_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(RuntimeError, match=REFUSED[text]):
        settings_of(text)


def test_the_environment_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    assert settings_of_environment() == AllocatorSettings()
    monkeypatch.setenv(VARIABLES[1], "pinned_reserve_segment_size_mb:2")
    assert settings_of_environment().reserved == 2 << 20
    monkeypatch.setenv(VARIABLES[0], "max_split_size_mb:128")
    with pytest.warns(UserWarning, match="PYTORCH_ALLOC_CONF: max_split_size_mb changes nothing"):
        assert settings_of_environment().reserved == 0  # the new name goes before the old


def test_page_locked_memory_is_locked_ahead() -> None:
    """In one chunk, from which arrays are cut."""
    import numpy as np

    backend = backend_at("simulated")[0]
    memory = PinnedMemory(backend, reserved=3 << 20)
    slab = memory._slab
    arrays = [memory.empty((1 << 19,), np.dtype(np.uint8)) for _ in range(6)]
    assert slab.allocated_bytes == 3 << 20 and len(slab._chunks) == 1
    arrays.append(memory.empty((1,), np.dtype(np.uint8)))
    assert slab.allocated_bytes > 3 << 20


@pytest.mark.skipif(fake_cuda.REAL is None, reason="only the fake CUDA starts anew")
def test_the_pool_is_limited_when_cuda_is_first_used(monkeypatch: pytest.MonkeyPatch) -> None:
    from cugrad.backends.cupy.backend import CupyBackend

    monkeypatch.setenv(VARIABLES[0], "per_process_memory_fraction:0.25")
    backend = CupyBackend()
    try:
        assert backend.memory_limit() == backend.memory_info()[1] // 4
    finally:
        backend.limit_memory(backend.memory_info()[1])
