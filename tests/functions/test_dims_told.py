"""What is no dim is told by the name of the function that was called."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import cugrad as torch
from cugrad.nn import functional as F

HOMES = {
    "torch": torch, "functional": F, "Tensor": torch.Tensor, "linalg": torch.linalg,
    "fft": torch.fft, "special": torch.special,
}  # fmt: skip


def taking_a_dim() -> Iterator[tuple[str, Callable[..., Any], str]]:
    """Functions that take one tensor and a dim, and the name of that argument; a tensor alone is of
    another sense to `repeat_interleave`.
    """
    for home, owner in HOMES.items():
        for name in dir(owner):
            function = getattr(owner, name, None)
            if (
                name[0] == "_"
                or name == "repeat_interleave"
                or not callable(function)
                or inspect.isclass(function)
            ):
                continue
            try:
                arguments = inspect.signature(function).parameters.values()
            except ValueError:
                continue
            wanted = [p.name for p in arguments if p.default is p.empty and p.kind in (0, 1)]
            dims = [p.name for p in arguments if p.name in ("dim", "dims", "axis")]
            if dims and {*wanted} <= {"input", "self", "logits", "v", *dims}:
                yield f"{home}.{name}", function, dims[0]


CASES = sorted(taking_a_dim(), key=lambda case: case[0])


@pytest.mark.parametrize(
    ("function", "dim"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_what_is_no_dim(function: Callable[..., Any], dim: str) -> None:
    name = function.__name__
    with pytest.raises((TypeError, RuntimeError, ValueError)) as told:
        function(torch.rand(2, 4), **{dim: "a"})
    assert name.rstrip("_") in str(told.value) and dim[:3] in str(told.value), told.value


def test_they_are_many() -> None:
    names = {case[0] for case in CASES}
    assert len(names) > 120 and {"functional.softmin", "functional.glu", "Tensor.size"} <= names


def test_dims_that_are_not_there() -> None:
    """As PyTorch: some took them modulo the number of dims."""
    for function in (F.gumbel_softmax, F.glu, F.softmax):
        with pytest.raises(IndexError, match=r"in range of \[-2, 1\], but got 5"):
            function(torch.rand(2, 4), dim=5)
    with pytest.raises(TypeError, match=r"chunk\(\): argument 'chunks' must be int, not Tensor"):
        torch.chunk(torch.rand(2, 4), torch.rand(2))
    with pytest.raises(TypeError, match=r"chunk\(\): argument 'chunks' must be int, not float"):
        torch.rand(2, 4).chunk(1.5)


def test_what_is_no_target() -> None:
    with pytest.raises(
        TypeError, match=r"kl_div\(\): argument 'target' \(position 2\) must be Tensor, not str"
    ):
        F.kl_div(torch.rand(2, 4), "a")  # type: ignore[arg-type]
