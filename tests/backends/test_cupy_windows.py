"""CuPy's views by strides name whose memory they show. The real CuPy, over memory of the host."""

from __future__ import annotations

import gc
import sys
import weakref
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cupy", reason="CuPy is not installed")

import cupy

from cugrad.backends.cupy.windows import as_strided
from cugrad.backends.owners import root_of
from cugrad.memory.geometry import is_alone, span_of
from cugrad.ops.views.strided import storage_of
from tests.support import fake_cuda

if fake_cuda.REAL is not None:
    pytest.skip("the stand-in for CuPy is in its place", allow_module_level=True)


def made() -> Any:
    """An array of CuPy's with 5 x 20 numbers, in memory that no GPU is needed to have."""
    host = np.zeros(100, np.float32)
    memory = cupy.cuda.UnownedMemory(host.ctypes.data, host.nbytes, host, 0)
    return cupy.ndarray((5, 20), "f4", cupy.cuda.MemoryPointer(memory, 0))


@pytest.fixture
def matrix() -> Any:
    return made()


def test_cupys_own_views_by_strides_name_nobody(matrix: Any) -> None:
    """If this fails there is no more need for ours."""
    assert cupy.lib.stride_tricks.as_strided(matrix, (3, 4), (4, 4)).base is None


def test_the_owner_is_found_through_any_view(matrix: Any) -> None:
    window = as_strided(matrix[1:, 3:], (3, 4), (4, 8))
    again = as_strided(window[1:].T, (2, 2), (8, 4))
    views = (matrix, matrix[2:], matrix.T, window, window[1:, ::2], window.T, again, again[1])
    assert all(root_of(v) is matrix for v in views)
    assert (window.data.ptr - matrix.data.ptr, window.strides) == (4 * 23, (4, 8))
    assert again.data.ptr - window.data.ptr == 4


def test_where_it_lies_in_the_owner(matrix: Any) -> None:
    window = as_strided(matrix[1:, 3:], (3, 4), (4, 8))
    assert span_of(window, root_of(window))[1:] == (400, 92, 92, 92 + 4 * (2 + 6 + 1))
    flat, start = storage_of(window[1:])
    assert root_of(flat) is matrix and (flat.size, start) == (100, 24)
    assert as_strided(matrix).shape == (5, 20) and as_strided(matrix[:0], (0, 3), (4, 4)).size == 0


def test_a_window_keeps_the_owner_alive_and_is_counted() -> None:
    matrix = made()
    window = as_strided(matrix, (3, 4), (4, 8))
    assert not is_alone(matrix, 0)
    gone = weakref.ref(matrix)
    del matrix
    gc.collect()
    owner = gone()
    assert owner is root_of(window) and sys.getrefcount(owner) > 2
    del owner, window
    gc.collect()
    assert gone() is None


def test_memory_of_somebody_elses_is_ones_own(matrix: Any) -> None:
    assert root_of(matrix) is matrix  # its memory is NumPy's, which is no array of CuPy's
