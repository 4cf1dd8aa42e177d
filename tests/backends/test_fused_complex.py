"""Kernels that are made of rows of complex numbers compute what the CPU does, and gradients are
conjugated in them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cupy", reason="CuPy is not installed")

import cugrad as torch
from cugrad.ops.table import TABLE
from tests.backends import cuda_toolchain as toolchain
from tests.support import fake_cuda

pytestmark = [
    pytest.mark.host_only,
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
]

# of two complex tensors, a real one and a mask
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "add": lambda a, b, r, m: a + b,
    "sub": lambda a, b, r, m: a - b,
    "mul": lambda a, b, r, m: a * b,
    "div": lambda a, b, r, m: a / b,
    "neg": lambda a, b, r, m: -a,
    "square": lambda a, b, r, m: a.square(),
    "conj": lambda a, b, r, m: torch.conj_physical(b),
    "number": lambda a, b, r, m: a * 2.5,
    "over a number": lambda a, b, r, m: 2.5 / b,
    "where": lambda a, b, r, m: torch.where(m, a, b),
    "addcmul": lambda a, b, r, m: torch.addcmul(a, a, b, value=0.5),
    "turned": lambda a, b, r, m: a.t() * b.t(),
    "part": lambda a, b, r, m: a[1:, 1:] / b[:-1, :-1],
    "one after another": lambda a, b, r, m: a[:, ::2] * b[:, ::2],
    "rows": lambda a, b, r, m: a * b[:, :1],
    "columns": lambda a, b, r, m: a / b[0],
    "by real numbers": lambda a, b, r, m: a * r + r / b,
    "exp": lambda a, b, r, m: (a * b).exp(),
    "sin": lambda a, b, r, m: a.sin() * b.cosh(),
    "powers": lambda a, b, r, m: a**2 + b**3,
    "sqrt": lambda a, b, r, m: a.sqrt() + b.log(),
    "reciprocal": lambda a, b, r, m: a.reciprocal() - b.tanh(),
    "sizes": lambda a, b, r, m: a.abs() * b,
    "parts": lambda a, b, r, m: a * b.real + b.imag * b,
    "masked": lambda a, b, r, m: a.masked_fill(m, 2.0) * b,
    "sums": lambda a, b, r, m: (a * b).sum(0) / b.mean(),
    "products": lambda a, b, r, m: (a @ b.mT) * (a * b).sum(),
}


def operands(dtype: str, device: str) -> list[Any]:
    rng = np.random.default_rng(0)
    wide = "float64" if dtype == "complex128" else "float32"
    draw = lambda: rng.standard_normal((7, 9)) + 1j * rng.standard_normal((7, 9))
    arrays = [draw().astype(dtype), draw().astype(dtype), rng.random((7, 9)).astype(wide),
              rng.random((7, 9)) > 0.5]  # fmt: skip
    made = [torch.tensor(x, device=device) for x in arrays]
    return [x.requires_grad_() for x in made[:3]] + made[3:]


def derivatives(function: Callable[..., Any], dtype: str, device: str) -> list[Any]:
    """The value, first and second derivatives; None for what has none."""
    args = operands(dtype, device)
    y = function(*args)
    parts = np.random.default_rng(1).standard_normal((2, *y.shape))
    weights = torch.tensor(parts[0] + 1j * parts[1], device=device).to(y.dtype)
    grads = torch.autograd.grad(y, args[:3], weights, create_graph=True, allow_unused=True)
    sizes = [(g * g.conj()).real.sum() for g in grads if g is not None and g.requires_grad]
    more: Any = []
    if sizes:
        more = torch.autograd.grad(sum(sizes), args[:3], allow_unused=True)
    plain = torch.autograd.grad(function(*args), args[:3], weights, allow_unused=True)
    return [None if x is None else x.detach().cpu().numpy() for x in (y, *grads, *plain, *more)]


if fake_cuda.REAL is None:
    SOURCES = "CUGRAD_TEST_SOURCES"  # the file for the sources that the process below makes

    def test_over_the_fake_cuda(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        toolchain.host_compiler()
        monkeypatch.setenv(SOURCES, str(tmp_path / "sources.json"))
        fake_cuda.passed(__file__, fused=True)
        toolchain.nvrtc()
        from cugrad.backends.cupy.fused.launch import OPTIONS

        sources = json.loads((tmp_path / "sources.json").read_text())
        for source, needs in zip(
            sources, toolchain.compile_together(sources, "90", OPTIONS), strict=True
        ):
            assert needs.registers <= 64 and needs.frame == 0, (needs, source)

else:
    from cugrad.backends.cupy.fused import launch

    TOLERANCES = {"complex64": 2e-5, "complex128": 1e-12}

    @pytest.fixture(scope="module", autouse=True)
    def compiled() -> Any:
        fake_cuda.CHECKS = True
        with fake_cuda.compiled_together():
            for function in FUNCTIONS.values():
                for dtype in TOLERANCES:
                    derivatives(function, dtype, "cuda")
        yield
        fake_cuda.CHECKS = False

    def test_the_sources_are_written_down() -> None:
        sources = [k.raw._code for k in launch._kernels.values() if "Complex<" in k.raw._code]
        assert len(sources) > 20
        if "CUGRAD_TEST_SOURCES" in os.environ:
            Path(os.environ["CUGRAD_TEST_SOURCES"]).write_text(json.dumps(sources))

    @pytest.mark.parametrize("dtype", TOLERANCES)
    @pytest.mark.parametrize("name", FUNCTIONS)
    def test_values_and_gradients_are_those_of_the_cpu(name: str, dtype: str) -> None:
        function = FUNCTIONS[name]
        ours, theirs = (derivatives(function, dtype, device) for device in ("cuda", "cpu"))
        assert len(ours) == len(theirs)
        for k, (x, y) in enumerate(zip(ours, theirs)):
            assert (x is None) == (y is None), k
            if y is not None:
                assert x.dtype == y.dtype, k
                near = TOLERANCES[dtype] * max(1.0, float(np.abs(y).max()))
                np.testing.assert_allclose(x, y, TOLERANCES[dtype], near, err_msg=f"{k}")

    def test_what_is_not_finite_is_as_the_chain_has_it() -> None:
        parts = [0.0, -0.0, 1.0, np.inf, -np.inf, np.nan]
        few = np.array([complex(x, y) for x in parts for y in parts])
        a, b = (x.reshape(-1) for x in np.meshgrid(few, few))
        x, y = (torch.tensor(z, device="cuda") for z in (a, b))
        with np.errstate(all="ignore"):
            for ours, theirs in ((x * y, a * b), (x + y, a + b), (x - y, a - b), (-x, -a),
                                 (torch.conj_physical(x), a.conj())):  # fmt: skip
                np.testing.assert_array_equal(ours.cpu().numpy(), theirs)
            found, own = (x / y).cpu().numpy(), np.isfinite(a) & np.isfinite(b) & (b != 0)
            np.testing.assert_allclose(found[own], (a / b)[own])
            assert not np.isfinite(found[b == 0]).any()

    def test_a_sum_hands_its_gradient_on_as_it_is() -> None:
        a, b, *_ = operands("complex64", "cuda")
        g = torch.ones_like(a)
        function = torch.autograd.grad(a + b, (a, b), g)
        assert all(x.data_ptr() == g.data_ptr() for x in function)

    def test_what_has_no_kernel_of_complex_numbers() -> None:
        from cugrad.backends.cupy.fused import rows
        from cugrad.backends.traced.arrays import Untraceable

        z = fake_cuda.clothed(np.ones((2, 3), "complex64"))
        for name in ("exp", "abs", "sgn", "reciprocal", "eq", "maximum"):
            op = TABLE[name]
            with pytest.raises(Untraceable):
                rows.forward_plan(op, [z] * len(op.inputs))
        with pytest.raises(Untraceable, match="imaginary"):
            rows.forward_plan(TABLE["to_dtype"], [z, np.dtype("float32")])
