"""The kernels of codecs, built for the host, give the bytes that their definitions give."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cupy", reason="CuPy is not installed")

from cugrad.backends.cupy import codecs as cupy_codecs
from cugrad.backends.cupy.kernels import codecs as kernels
from cugrad.backends.numpy.backend import NumpyNamespace
from cugrad.memory.codecs import CODECS
from tests.backends import cuda_toolchain as toolchain
from tests.memory.offload.test_codecs import (
    DTYPES,
    HOST,
    all_halves,
    bits_of,
    ordinary,
    over_pairs,
    random_floats,
)
from tests.support.cuda_on_cpu import Program

Host = np.ndarray[Any, Any]
# What is imported above draws: tests/conftest.py looks for the word hypothesis before it imports.


class Fused(NumpyNamespace):
    """NumPy, with the kernels in place of the definitions."""

    codecs = cupy_codecs.CodecKernels()


@pytest.fixture
def fused(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A namespace whose codecs are kernels, run by the host."""
    toolchain.host_compiler()
    watched, blind = (Program(kernels.SOURCE, checks=checks) for checks in (True, False))
    launched: list[str] = []

    def kernel(name: str) -> Any:
        def launch(grid: Any, block: Any, args: Any) -> None:
            launched.append(name)
            program = watched if args[-1] < 4000 else blind
            program.kernel(f"codec_{name}")(grid, block, args)

        return launch

    monkeypatch.setattr(cupy_codecs, "_kernel", kernel)
    monkeypatch.setattr(cupy_codecs, "cupy", SimpleNamespace(empty=np.empty, max=np.max))
    found = Fused()
    found.launched = launched  # type: ignore[attr-defined]
    return found


def arrays() -> list[Host]:
    halves = all_halves().astype(np.float32)
    near = bits_of(all_halves(DTYPES[1])).astype(np.uint32)[:, None] << 16 | np.array(
        [0, 1, 0xFFF, 0x1000, 0x1001, 0x7FFF, 0x8000, 0x8001, 0xFFFF], np.uint32
    )
    return [
        halves, near.view(np.float32), random_floats(np.float32), np.zeros(5, np.float32),
        ordinary((3, 100), np.float32), ordinary((129,), np.float32), ordinary((0,), np.float32),
        *[ordinary((4, 1000), np.float32, k) * 10.0 ** (12 * k - 30) for k in range(6)],
    ]  # fmt: skip


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@over_pairs
def test_kernels_do_what_is_defined(fused: Any, name: str, dtype: Any) -> None:
    codec = CODECS[name]
    for x in arrays():
        x = x.astype(np.float32).astype(dtype)
        wanted = codec.encode(HOST, x)
        fused.launched.clear()
        found = codec.encode(fused, x)
        if dtype != np.float64:
            assert f"{name}_encode" in fused.launched or not x.size
        if name == "fp16":  # whose nan have bits of their own
            found, wanted = (
                np.where(np.isnan(c.view(np.float16)), np.float16(np.nan), c.view(np.float16))
                for c in (found, wanted)
            )
            wanted = wanted.view(np.uint8)
        assert found.tobytes() == wanted.tobytes()
        back = codec.decode(fused, wanted, dtype, x.shape)
        again = codec.decode(HOST, wanted, dtype, x.shape)
        nan = np.isnan(again.astype(np.float64))
        assert np.array_equal(nan, np.isnan(back.astype(np.float64)))
        assert np.array_equal(bits_of(back)[~nan], bits_of(again)[~nan])
