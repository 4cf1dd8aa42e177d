"""Sobol sequences: PyTorch's points, and scrambled ones that are as even."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cugrad

pytest.importorskip("scipy.stats", reason="Sobol sequences want SciPy's direction numbers")


def drawn(lib: Any) -> list[Any]:
    engine = lib.quasirandom.SobolEngine(40)
    parts = [engine.draw(), engine.draw(5), engine.fast_forward(7).draw(3), engine.draw(0)]
    parts.append(engine.reset().fast_forward(3).draw(2, dtype=lib.float64))
    parts.append(engine.reset().draw_base2(4, out=lib.empty(0)))
    return [repr(engine), engine.num_generated, *(p.numpy() for p in parts)]


def test_points_are_those_of_pytorch() -> None:
    for a, b in zip(drawn(cugrad), drawn(pytest.importorskip("torch")), strict=True):
        np.testing.assert_array_equal(a, b)
        assert getattr(a, "dtype", None) == getattr(b, "dtype", None)


def test_scrambled_points_fill_each_line_evenly() -> None:
    engine = cugrad.quasirandom.SobolEngine(5, scramble=True, seed=3)
    points = engine.draw(64).numpy()
    assert all(sorted((line * 64).astype(int)) == list(range(64)) for line in points.T)
    again = cugrad.quasirandom.SobolEngine(5, scramble=True, seed=3).draw(64).numpy()
    other = cugrad.quasirandom.SobolEngine(5, scramble=True, seed=4).draw(64).numpy()
    assert (points == again).all() and (points != other).mean() > 0.9
    assert repr(engine) == "SobolEngine(dimension=5, scramble=True, seed=3)"


@pytest.mark.parametrize("name", ["cugrad", "torch"])
def test_wrong_numbers_of_points(name: str) -> None:
    lib: Any = pytest.importorskip(name)
    for dimension in (0, 30000):
        with pytest.raises(ValueError, match="range of dimensionality"):
            lib.quasirandom.SobolEngine(dimension)
    engine = lib.quasirandom.SobolEngine(2)
    engine.draw(3)
    with pytest.raises(ValueError, match=r"n=3\+2\*\*2=7"):
        engine.draw_base2(2)
    with pytest.raises(NotImplementedError, match="not implemented for 'Int'"):
        engine.draw(2, dtype=lib.int32)
