"""Has tests that know the CuPy of NumPy's making run on a GPU: `pytest -p tests.support.on_gpu`.

Their kernels are NVRTC's then, their arrays CuPy's; what counts launches or waits, which only the
stand-in can, fails or is left out by whoever names the tests (ci/gpu.py).
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import cupy
import numpy as np
import pytest

from tests.support import fake_cuda


def on_device(value: Any) -> Any:
    """A copy on the GPU that lies as the array does on the host."""
    order = np.argsort([-step for step in value.strides], kind="stable")
    return cupy.array(value.transpose(order), order="C").transpose(np.argsort(order))


for name, own in {"REAL": cupy, "clothed": on_device, "compiled_together": nullcontext}.items():
    setattr(fake_cuda, name, own)
cupy.ndarray._host = property(cupy.asnumpy)


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(fixturedef: Any, request: pytest.FixtureRequest) -> object:
    """Kernels are compiled as they are launched, not all of a file before its first test."""
    if fixturedef.argname != "compiled":
        return None
    fixturedef.cached_result = (None, fixturedef.cache_key(request), None)
    return True
