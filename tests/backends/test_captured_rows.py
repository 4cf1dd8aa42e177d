"""A row with its gradients in a CUDA graph: a replay computes what the row does, or an error names
what cannot be captured. On the CuPy that NumPy plays it is one row of eight.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("cupy", reason="CuPy is not installed")

import cugrad as torch
from cugrad import backends
from cugrad.ops.table import TABLE
from tests.ops import samples
from tests.ops.row_cases import gradient_cases
from tests.ops.test_rows_recorded import Recording
from tests.support import fake_cuda

ON_DEVICE = fake_cuda.REAL is not None or torch.cuda.is_available()

if not ON_DEVICE:

    def test_over_the_fake_cuda() -> None:
        fake_cuda.passed(__file__)

else:
    ROWS = sorted(name for name in TABLE if samples.LINES.get(name))

    # What waits for the device, copies from the host, or is cuSOLVER's or cuSPARSE's
    REFUSED = (
        "adaptive_max_pool", "bincount", "geqrf", "hist", "linalg_", "nonzero", "sampled_product",
        "sparse_product", "special_", "to_device", "unique",
    )  # fmt: skip
    LISTS = {"index", "index_backward", "index_put", "index_zero"}  # the samples' are the host's

    def host(x: Any) -> Any:
        array = x.detach().cpu().resolve_conj().numpy()
        return array.astype(np.complex128)

    SOME = sorted({*ROWS[::8], "sampled_product", "sparse_product"})

    @pytest.mark.parametrize("name", ROWS if fake_cuda.REAL is None else SOME)
    def test_a_captured_row_computes_what_the_row_does(name: str) -> None:
        (case, *_) = gradient_cases(samples.LINES[name][0])
        recording = Recording(case, backends.get("cuda"))

        def computed() -> tuple[Any, ...]:
            recording.outputs = outputs = recording.run(recording.inputs)
            roots, leaves = recording.roots, recording.leaves
            if not roots or not leaves:
                return outputs
            slopes = [torch.ones_like(x) for x in roots]
            return *outputs, *torch.autograd.grad(roots, leaves, slopes, allow_unused=True)

        computed()  # kernels are compiled, and what is made once is there
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                captured = computed()
        except RuntimeError as error:
            assert "cannot be captured" in str(error), error
            assert name.startswith(REFUSED) or name in LISTS, error
            return
        graph.replay()
        for got, want in zip(captured, computed(), strict=True):
            assert (got is None) == (want is None)
            if got is not None:
                np.testing.assert_allclose(host(got), host(want), 1e-3, 1e-4)
