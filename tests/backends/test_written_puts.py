"""What is put in place where arrays of indices say, by a kernel, is what NumPy puts there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("cupy", reason="CuPy is not installed")
pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")

import cugrad
from tests.backends import cuda_toolchain as toolchain
from tests.support import fake_cuda

pytestmark = pytest.mark.host_only

DTYPES = ("float32", "float16", "bfloat16", "float64", "bool", "int64", "complex64", "complex128")
PART = slice(None)
# how an array lies, and where values go: no place is named twice
VIEWS: list[tuple[str, tuple[Any, ...], bool]] = [
    ("x", ([0, 5, 2],), True), ("x", (PART, [3, 0]), True), ("x", (PART, PART, [6, 1]), True),
    ("x.swapaxes(0, 2)", ([0, 6],), False), ("x.swapaxes(0, 2)", (PART, PART, [1]), False),
    ("x[1::2]", ([2, 0],), True), ("x[:, 1:3]", ([0, -1, 3],), True),
    ("x[..., ::2]", (PART, [1, 0]), True), ("x[..., ::2]", (PART, PART, [2, 0]), True),
    ("x", ([0, 5, 1], [3, 3, 0]), True), ("x[..., 1:6]", ([[0], [2]], [1, 3], [4]), True),
    ("x", ([1, 2], PART, [0, 0]), True),
]  # fmt: skip

if fake_cuda.REAL is None:

    def test_over_the_fake_cuda() -> None:
        toolchain.host_compiler()
        fake_cuda.passed(__file__, fused=True)

else:
    from cugrad.backends.cupy.written.placed import puts

    def put(kind: Any, how: str, named: Any, values: Any, device: str) -> Any:
        """A tensor, part of which has become values."""
        x = cugrad.arange(6 * 4 * 7, device=device).reshape(6, 4, 7).to(kind)
        part = eval(how, {"x": x})
        index = tuple([i if i == PART else cugrad.tensor(i, device=device) for i in named])
        part[index] = values.to(device)
        return x.cpu()

    @pytest.mark.parametrize("dtype", DTYPES)
    @pytest.mark.parametrize("spread", ["whole", "a row", "one number", "turned"])
    def test_values_are_put_as_numpy_does(dtype: str, spread: str) -> None:
        kind = getattr(cugrad, dtype)
        for how, named, _ in VIEWS:
            x = np.zeros((6, 4, 7))
            part = eval(how, {"x": x})[named]
            shape = {"a row": part.shape[-1:], "one number": ()}.get(spread, part.shape)
            values = cugrad.arange(100, 100 + int(np.prod(shape, dtype=int)), device="cpu").to(kind)
            values = values.reshape(shape)
            if spread == "turned":
                values = values.reshape(shape[::-1]).permute(*reversed(range(len(shape))))
            expected, got = (put(kind, how, named, values, device) for device in ("cpu", "cuda"))
            assert cugrad.equal(got, expected), (how, named)

    def test_one_launch_puts_them(monkeypatch: pytest.MonkeyPatch) -> None:
        launched, kernel = [], puts.kernel

        def noted(text: str, name: str, *args: Any) -> Any:
            launched.append(name)
            return kernel(text, name, *args)

        monkeypatch.setattr(puts, "kernel", noted)
        for how, named, one in VIEWS:
            x = np.zeros((6, 4, 7))
            values = cugrad.ones(eval(how, {"x": x})[named].shape, device="cpu")
            put(cugrad.float32, how, named, values, "cuda")
            assert launched == ["put_rows"] * one, (how, named)
            launched.clear()

    def test_values_that_do_not_broadcast_are_refused() -> None:
        x = cugrad.zeros(4, 5, device="cuda")
        index = cugrad.tensor([0, 2], device="cuda")
        for values in (cugrad.ones(3, device="cuda"), cugrad.ones(2, 2, 5, device="cuda")):
            with pytest.raises((RuntimeError, IndexError, ValueError), match="shape"):
                x[index] = values
        x[index] = cugrad.ones(1, 2, 5, device="cuda")
        assert x.sum().item() == 10
