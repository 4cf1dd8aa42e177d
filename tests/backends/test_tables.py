"""Functions that look things up make their tables on the device, also while a graph is captured."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cupy", reason="CuPy is not installed")

import cugrad as torch
from cugrad.functions.creation.grids import _triangle_place
from tests.backends import cuda_toolchain as toolchain
from tests.support import fake_cuda

ON_DEVICE = fake_cuda.REAL is not None or torch.cuda.is_available()
F: Any = torch.nn.functional
SOURCES = "CUGRAD_TEST_SOURCES"

TABLES: dict[str, Callable[[Any], Any]] = {
    "bilinear": lambda x: F.interpolate(x, (7, 3), mode="bilinear"),
    "bicubic": lambda x: F.interpolate(x, scale_factor=1.7, mode="bicubic"),
    "antialias": lambda x: F.interpolate(x, (3, 3), mode="bilinear", antialias=True),
    "nearest": lambda x: F.interpolate(x, (7, 3)),
    "exact": lambda x: F.interpolate(x, (7, 3), mode="nearest-exact"),
    "area": lambda x: F.interpolate(x, (4, 3), mode="area"),
    "averages": lambda x: F.adaptive_avg_pool2d(x, (2, 4)),
    "maxima": lambda x: F.adaptive_max_pool2d(x, (2, 4)),
    "fractions": lambda x: F.fractional_max_pool2d(x, 2, 3, _random_samples=x[:, :, 0, :2]),
    "quantile": lambda x: x.quantile(0.3),
    "cosines": lambda x: x * torch.hann_window(6, device=x.device),
    "Bessel": lambda x: x * torch.kaiser_window(6, device=x.device),
    "bell": lambda x: x * torch.signal.windows.gaussian(6, device=x.device),
    "decay": lambda x: x * torch.signal.windows.exponential(6, device=x.device),
    "sine": lambda x: x * torch.signal.windows.cosine(6, device=x.device),
    "triangle": lambda x: x * torch.bartlett_window(6, device=x.device),
}  # fmt: skip

if not ON_DEVICE:

    @pytest.mark.parametrize("fused", [False, True])
    def test_over_the_fake_cuda(
        fused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(SOURCES, str(tmp_path / "sources.json"))
        fake_cuda.passed(__file__, fused=fused)
        sources = toolchain.some_of(json.loads((tmp_path / "sources.json").read_text()))
        assert bool(sources) == fused
        toolchain.nvrtc()
        for source, needs in zip(sources, toolchain.compile_together(sources, "90"), strict=True):
            assert needs.registers <= 64 and not needs.spills, (needs, source)

    def test_places_are_right_where_a_root_is_rounded() -> None:
        """At both ends of a row, in triangles of so many places that float64 holds few more."""
        for first, k in product((1, 2, 1000, 10**7), (1, 2, 3, 10**6, 10**7 + 1, 4 * 10**7)):
            begin = k * first + k * (k - 1) // 2
            told = 5, first, 10**8, 2**53, 10**9
            for place, row, column in ((begin, k, 0), (begin - 1, k - 1, first + k - 2)):
                found = [_triangle_place(np, line, float(place), *told) for line in (0, 1)]
                assert found == [row + 5, column]

else:

    @pytest.mark.parametrize("what", TABLES)
    def test_a_table_is_made_in_a_capture(what: str) -> None:
        call = TABLES[what]
        x = torch.rand(2, 3, 5, 6, device="cuda")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = call(x)
        x.copy_(torch.rand_like(x))
        graph.replay()
        assert torch.allclose(captured.cpu(), call(x.cpu()), 1e-5, 1e-6)

    def test_a_table_is_one_kernel() -> None:
        from cugrad.backends import tables, wanted

        if not wanted.wanted.fused:
            pytest.skip("kernels of rows are off")
        x = torch.rand(2, 3, 5, 6, device="cuda")
        tables._kernels.clear()
        F.interpolate(x, (7, 3), mode="bicubic")
        F.interpolate(x, (7, 3))
        F.adaptive_avg_pool2d(x, (2, 4))
        assert tables._kernels and None not in tables._kernels.values()

    @pytest.mark.parametrize("name", ["tril_indices", "triu_indices"])
    def test_triangles_are_those_of_the_host(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        call = getattr(torch, name)
        told = [*product((0, 1, 5), (0, 1, 3, 8), (-6, -1, 0, 1, 9)), (1100, 1050, 2)]
        for kind, (row, col, offset) in product((torch.int64, torch.int32), told):
            if kind is torch.int32:  # and numbers of 64 bits in the kernel
                monkeypatch.setattr("cugrad.backends.cupy.fused.tables.WIDE", 1)
            found = call(row, col, offset, dtype=kind, device="cuda")
            assert found.dtype is kind
            assert torch.equal(found.cpu(), call(row, col, offset, dtype=kind, device="cpu"))

    @pytest.mark.parametrize("kind", ["float32", "float64", "float16", "bfloat16"])
    def test_windows_are_those_of_the_host(kind: str) -> None:
        for n, periodic in product((1, 2, 7, 300), (False, True)):
            told: Any = {"periodic": periodic, "dtype": getattr(torch, kind)}
            found = torch.hann_window(n, device="cuda", **told).cpu().double()
            near = {"float16": 1e-3, "bfloat16": 8e-3}.get(kind, 1e-7)
            assert torch.allclose(found, torch.hann_window(n, device="cpu", **told).double(), near)

    def test_the_sources_are_written_down() -> None:
        from cugrad.backends.cupy.fused.elements import _kernels

        if SOURCES in os.environ:
            Path(os.environ[SOURCES]).write_text(json.dumps(list(_kernels)))

    def test_tables_are_kept_by_stream_and_given_back() -> None:
        from cugrad.backends import tables

        x = torch.rand(2, 3, 5, 6, device="cuda")
        tables._tables.clear()
        first = F.interpolate(x, (7, 3), mode="bilinear")
        kept = dict(tables._tables)
        assert len(kept) == 2
        assert torch.equal(F.interpolate(x, (7, 3), mode="bilinear"), first)
        assert tables._tables == kept
        with torch.cuda.stream(torch.cuda.Stream()):  # which the first does not wait for
            F.interpolate(x, (7, 3), mode="bilinear")
        assert len(tables._tables) == 4
        torch.cuda.synchronize()
        with torch.cuda.graph(torch.cuda.CUDAGraph()):  # whose memory is its own
            F.interpolate(x, (7, 3), mode="bilinear")
            F.interpolate(x, (4, 3), mode="bilinear")
        assert len(tables._tables) == 4
        for size in range(9, 9 + tables.MOST_TABLES):
            F.interpolate(x, (size, 6), mode="bilinear")
        assert 0 < len(tables._tables) <= tables.MOST_TABLES
        F.interpolate(x, (60000, 6), mode="bilinear")  # a table of 1.2 MB
        assert all(table.nbytes <= tables.MOST_BYTES for table in tables._tables.values())
        assert tables.forget_tables() and not tables.forget_tables()
        window = torch.hann_window(9, device="cuda").mul_(2)  # which is its caller's
        assert torch.equal(torch.hann_window(9, device="cuda") * 2, window)
