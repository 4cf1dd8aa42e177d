"""A launch that is kept for complex operands of a form, and for bytes, does for the next ones what
was done for the first. On the CuPy that NumPy plays, with kernels: without them nothing is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cupy", reason="CuPy is not installed")

import cugrad as torch
from cugrad import backends
from cugrad.ops.table import TABLE
from tests.ops import samples
from tests.ops.row_cases import differentiable, takes_complex
from tests.ops.test_rows_recorded import Recording, arrays_of
from tests.support import fake_cuda

if fake_cuda.REAL is None and not torch.cuda.is_available():

    def test_over_the_fake_cuda() -> None:
        fake_cuda.passed(__file__, fused=True)

else:
    from cugrad.backends.cupy.written import registry

    LINES = [
        line for name in sorted({*registry.FORWARDS, *registry.BACKWARDS})
        for line in samples.LINES.get(name, ())
        if takes_complex(line) and differentiable(TABLE[line.row])
    ]  # fmt: skip

    @pytest.fixture(scope="module", autouse=True)
    def compiled() -> Iterator[None]:
        if fake_cuda.REAL is not None:
            with fake_cuda.compiled_together():
                for line in LINES:
                    results(line, "cuda")
        yield

    def results(line: Any, device: str) -> list[Any]:
        """The row's values and gradients, of complex operands, as arrays of the host."""
        run = Recording(replace(line, dtype="complex64", variant="complex64"), backends.get(device))
        found = arrays_of(run.gradients(run.call.cotangents(run.call.rng)))
        return [None if x is None else run.call.host(x) for x in (*arrays_of(run.outputs), *found)]

    @pytest.mark.parametrize("row", sorted({line.row for line in LINES}))
    def test_complex_numbers_are_conjugated_every_time(row: str) -> None:
        for line in [line for line in LINES if line.row == row]:
            expected = results(line, "cpu")
            for _ in range(2):
                for got, want in zip(results(line, "cuda"), expected, strict=True):
                    assert (got is None) == (want is None)
                    if want is not None:
                        largest = max(1.0, float(np.abs(want).max(initial=0)))
                        np.testing.assert_allclose(got, want, 1e-4, 1e-4 * largest)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_pairs_that_begin_between_two_complex_numbers(dtype: Any) -> None:
        z = torch.zeros(2, dtype=dtype.to_complex(), device="cuda", requires_grad=True)
        pairs = torch.arange(5, dtype=dtype, device="cuda")[1:].view(2, 2)
        (got,) = torch.autograd.grad(torch.view_as_real(z), z, pairs)
        assert (got * 1).tolist() == [1 + 2j, 3 + 4j]
        with pytest.raises(RuntimeError, match="storage_offset divisible by 2"):
            torch.view_as_complex(pairs)

    @pytest.mark.parametrize("dtype", ["bool", "uint8", "int8", "float16", "float32", "complex64"])
    def test_copies_and_single_pieces(dtype: str) -> None:
        kind = getattr(torch, dtype)
        x = torch.arange(6, device="cuda").reshape(2, 3).to(kind)
        for _ in range(2):
            for copy in (x.clone(), x.t().contiguous().t(), x.t().clone()[:].t()):
                assert copy.dtype == kind and copy.tolist() == x.tolist()
        if not kind.is_floating_point and not kind.is_complex:
            return
        for pieces in (lambda y: y.split(2, 0), lambda y: y[None].unbind(0), lambda y: y.chunk(1)):
            leaf = x.clone().requires_grad_()
            (piece,) = pieces(leaf)
            (got,) = torch.autograd.grad(piece, leaf, torch.ones_like(piece))
            assert got.tolist() == torch.ones_like(x).tolist()
