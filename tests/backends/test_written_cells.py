"""Kernels of steps of recurrent layers, run from their source on the CPU, compute what the layers'
own functions do.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cupy", reason="CuPy is not installed")
ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")

import cugrad  # noqa: E402
from cugrad.backends import get  # noqa: E402
from cugrad.nn.recurrent import scans  # noqa: E402
from tests.backends import cuda_toolchain as toolchain  # noqa: E402
from tests.support import fake_cuda  # noqa: E402

pytestmark = pytest.mark.host_only

TOLERANCES = {"float64": 1e-13, "float32": 1e-6, "float16": 2e-3, "bfloat16": 2e-2}
# the arrays of each function, by their shapes: rows, n, and gates for each n
CELLS: dict[str, tuple[int, str]] = {
    "lstm_step": (4, "gate gate bias bias state state state"),
    "lstm_slopes": (4, "gate state state slopes state state"),
    "lstm_back": (4, "slopes state state state state gate"),
    "gru_step": (3, "gate gate bias bias state state state"),
    "gru_slopes": (3, "gate state state slopes state"),
    "gru_back": (3, "slopes state state state state gate"),
}
MAY_LACK = {"lstm_step": (2, 3), "lstm_back": (3,), "gru_step": (2, 3), "gru_back": (3,)}


def operands(name: str, rows: int, n: int, dtype: str) -> list[Any]:
    gates, kinds = CELLS[name]
    shapes = {"gate": (rows, gates * n), "slopes": (rows, gates, n), "state": (rows, n),
              "bias": (gates * n,)}  # fmt: skip
    rng, kind = np.random.default_rng(n), getattr(ml_dtypes, dtype, None) or np.dtype(dtype)
    return [rng.standard_normal(shapes[k]).astype(kind) for k in kinds.split()]


if fake_cuda.REAL is None:

    def test_over_the_fake_cuda() -> None:
        toolchain.host_compiler()
        fake_cuda.passed(__file__, fused=True)


else:

    def run(name: str, arrays: list[Any]) -> list[Any]:
        """Arrays of the device, as the function of that name leaves them."""
        device = [None if x is None else fake_cuda.clothed(x.copy()) for x in arrays]
        assert getattr(get("cuda").xp, name)(*device), f"{name}: declined"
        return device

    @pytest.fixture(scope="module", autouse=True)
    def compiled() -> Iterator[None]:
        fake_cuda.CHECKS = True
        with fake_cuda.compiled_together():
            for name in CELLS:
                for dtype in TOLERANCES:
                    run(name, operands(name, 1, 1, dtype))
        yield
        fake_cuda.CHECKS = False

    @pytest.mark.parametrize("name", CELLS)
    def test_kernels_compute_what_the_layers_do(name: str) -> None:
        for dtype, tolerance in TOLERANCES.items():
            for rows, n in ((1, 1), (3, 100)):
                arrays = operands(name, rows, n, dtype)
                for absent in (None, *MAY_LACK.get(name, ())):
                    some = [None if k == absent else x for k, x in enumerate(arrays)]
                    exact = [None if x is None else x.astype("f8") for x in some]
                    getattr(scans, name)(get("cpu").xp, *exact)
                    for k, (x, y) in enumerate(zip(run(name, some), exact)):
                        written = x is not None and not np.array_equal(y, arrays[k].astype("f8"))
                        if written and (name, k) != ("lstm_back", 2):  # `now`, which has its use
                            np.testing.assert_allclose(
                                x._host.astype("f8"), y, rtol=tolerance, atol=4 * tolerance,
                                err_msg=f"{name}, {dtype}, {rows} x {n}: array {k}",
                            )  # fmt: skip

    @pytest.mark.parametrize("kind", ["LSTM", "GRU"])
    def test_layers_take_a_product_and_a_kernel_for_a_step(kind: str) -> None:
        """And come to what they come to on the CPU, of sequences of several lengths."""
        layer = getattr(cugrad.nn, kind)(3, 4, dtype=cugrad.float64)
        x = cugrad.tensor(np.random.default_rng(0).standard_normal((5, 2, 3)))
        both = []
        for place in ("cuda", "cpu"):
            layer = layer.to(place)
            rows = cugrad.nn.utils.rnn.pack_padded_sequence(x.to(place), [5, 3])
            out, _ = layer(rows)
            grads = cugrad.autograd.grad(out.data.sin().sum(), list(layer.parameters()))
            both.append([t.detach().cpu().numpy() for t in (out.data, *grads)])
        for ours, theirs in zip(*both):
            np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-13)
