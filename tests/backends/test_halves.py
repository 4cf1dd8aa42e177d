"""Gradients of two halves of a tensor lie side by side, and are those that the CPU has."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cupy", reason="CuPy is not installed")

import cugrad as torch
from tests.support import fake_cuda

pytestmark = pytest.mark.host_only
F: Any = torch.nn.functional

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "glu": lambda x: F.glu(x, -1),
    "glu of channels": lambda x: F.glu(x, 1),
    "glu of rows": lambda x: F.glu(x, 0),
    "product": lambda x: torch.mul(*x.chunk(2, 1)),
    "turned around": lambda x: torch.div(*reversed(x.chunk(2, -1))),
    "one of them twice": lambda x: x.chunk(2, 1)[0] * x.chunk(2, 1)[1] + x.chunk(2, 1)[0],
    "parts of more": lambda x: x[:, :1] * x[:, 1:2],
    "a view": lambda x: torch.mul(*x.transpose(0, 1).chunk(2, 0)),
    "angles": lambda x: torch.atan2(*x.chunk(2, 1)),
}
SHAPES = [(4, 6), (2, 4, 3, 6), (6, 2, 10), (2, 16)]

if fake_cuda.REAL is None:

    def test_over_the_fake_cuda() -> None:
        fake_cuda.passed(__file__, fused=True)

else:

    def derivatives(function: Any, shape: Any, dtype: Any, device: str, seed: int) -> list[Any]:
        rng = np.random.default_rng(seed)
        x = torch.tensor(rng.standard_normal(shape), device=device, dtype=dtype).requires_grad_()
        y = function(x)
        g = torch.tensor(rng.standard_normal(y.shape), device=device, dtype=dtype)
        (plain,) = torch.autograd.grad(y, x, g, retain_graph=True)
        (slope,) = torch.autograd.grad(y, x, g, create_graph=True)
        (bend,) = torch.autograd.grad((slope * slope).sum(), x)
        return [t.detach().cpu().double().numpy() for t in (y, plain, slope, bend)]

    @pytest.fixture(scope="module", autouse=True)
    def compiled() -> None:
        """Kernels of float64 in one go; of float32 the first run is compared, too, in one shape."""
        with fake_cuda.compiled_together():
            for name, shape in product(FUNCTIONS, SHAPES):
                derivatives(FUNCTIONS[name], shape, torch.float64, "cuda", 0)

    @pytest.mark.parametrize("shape", SHAPES)
    @pytest.mark.parametrize("name", FUNCTIONS)
    def test_gradients_are_those_of_the_cpu(name: str, shape: tuple[int, ...]) -> None:
        in_turn = [*FUNCTIONS].index(name) % len(SHAPES) == SHAPES.index(shape)
        for dtype, near in ((torch.float64, 1e-11), (torch.float32, 1e-3))[: 1 + in_turn]:
            for seed in range(3):  # from the second on by launches that are kept
                ours, theirs = (derivatives(FUNCTIONS[name], shape, dtype, device, seed)
                                for device in ("cuda", "cpu"))  # fmt: skip
                for x, y in zip(ours, theirs):
                    np.testing.assert_allclose(x, y, near, near * max(1.0, np.abs(y).max()))

    @pytest.mark.parametrize("place", [0, 1])
    def test_gradients_of_leaves_are_their_own(place: int) -> None:
        """Changed in place, one does not change the other, nor what comes later."""
        for _ in range(3):
            whole = torch.ones(3, 8, device="cuda")
            halves = [x.detach().requires_grad_() for x in whole.chunk(2, 1)]
            (halves[0] * halves[1]).sum().backward()
            halves[place].grad.mul_(5)
            (halves[0] * halves[1]).sum().backward()
            assert (halves[place].grad == 6).all() and (halves[1 - place].grad == 2).all()

    def test_halves_fill_one_piece_of_memory() -> None:
        from cugrad.backends.cupy.fused.halves import halves_like

        x = fake_cuda.clothed(np.zeros((2, 6, 4, 5), "float32"))
        for dim in (1, 2):
            part = x[(slice(None),) * dim + (slice(x.shape[dim] // 2),)]
            form = halves_like(part)
            assert form is not None
            first, second = form.make()
            assert first.strides == second.strides == part.strides
            assert second.data.ptr - first.data.ptr == part.strides[dim] * part.shape[dim]
        for other in (x, x[:1], x[:, :2], x[..., ::2], x[::-1], x[:, :1] + 0):
            assert halves_like(other) is None
