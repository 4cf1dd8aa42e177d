"""torch.fft beside PyTorch: values, gradients, norms, sizes, and what wrong arguments give."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cugrad

pytest.importorskip("torch", reason="PyTorch, the oracle, is not installed")

from tests.functions.test_linalg import compare, complex_normal, normal

ONE = ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
MANY = ("fftn", "ifftn", "rfftn", "irfftn", "hfftn", "ihfftn")
TWO = ("fft2", "ifft2", "rfft2", "irfft2", "hfft2", "ihfft2")
REAL = ("rfft", "ihfft", "rfftn", "ihfftn", "rfft2", "ihfft2")


def inputs(name: str, *shape: int) -> list[Any]:
    return [normal(*shape)] + [complex_normal(*shape)] * (name not in REAL)


@pytest.mark.parametrize(
    "how", [{}, {"n": 4}, {"n": 7, "dim": 0, "norm": "ortho"}, {"norm": "forward", "dim": -2},
            {"n": 1}, {"n": 0}, {"n": -1}, {"norm": "x"}], ids=str,
)  # fmt: skip
@pytest.mark.parametrize("name", ONE)
def test_one_dim(name: str, how: Any) -> None:
    for x in inputs(name, 3, 5):
        compare(lambda lib, x: getattr(lib.fft, name)(x, **how), x)


@pytest.mark.parametrize(
    "how", [{}, {"s": (4, 3)}, {"s": (2, 6), "dim": (0, 1), "norm": "ortho"},
            {"norm": "forward", "dim": (2, 0)}, {"s": (3, -1), "dim": (1, 2)}, {"s": (-1, 3)},
            {"s": (-1,)}, {"s": -1, "dim": (1,)},
            {"dim": (0, 0)}, {"dim": ()}, {"s": (2,), "dim": (0, 1)}], ids=str,
)  # fmt: skip
@pytest.mark.parametrize("name", MANY + TWO)
def test_several_dims(name: str, how: Any) -> None:
    for x in inputs(name, 3, 4, 2):
        compare(lambda lib, x: getattr(lib.fft, name)(x, **how), x)


@pytest.mark.parametrize("name", ONE)
def test_dtypes(name: str) -> None:
    """float32 gives complex64, integers count as the default dtype, half is refused."""
    for x in normal(5).astype("f4"), np.arange(5), np.array([True, False]), normal(5).astype("f2"):
        if x.dtype.itemsize == 2:
            with pytest.raises(RuntimeError, match="Unsupported dtype"):
                getattr(cugrad.fft, name)(cugrad.tensor(x))
        else:
            compare(lambda lib, x: getattr(lib.fft, name)(x), x, atol=1e-5)
    if name in REAL:
        compare(lambda lib, x: getattr(lib.fft, name)(x, n=3), complex_normal(3).real)
        with pytest.raises(RuntimeError, match="expects a real input"):
            getattr(cugrad.fft, name)(cugrad.tensor(complex_normal(3)))


def test_frequencies_and_shifts() -> None:
    for n in 1, 2, 5, 8:
        compare(lambda lib, n=n: (lib.fft.fftfreq(n, 0.3), lib.fft.rfftfreq(n, 0.3)), atol=1e-6)
    compare(lambda lib: lib.fft.fftfreq(4, dtype=lib.float64))
    assert cugrad.fft.rfftfreq(4, requires_grad=True).requires_grad
    for dim in None, 1, (0, -1):
        compare(
            lambda lib, x, d=dim: (lib.fft.fftshift(x, d), lib.fft.ifftshift(x, d)), normal(3, 4)
        )
