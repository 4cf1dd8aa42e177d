"""Checks that tensors print as PyTorch's do, for every dtype, many shapes and all options."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest

import cugrad
from cugrad import dtypes

torch = pytest.importorskip("torch")
pytest.importorskip("ml_dtypes")

OPTIONS: list[dict[str, Any]] = [
    {"profile": "default"}, {"precision": 2}, {"sci_mode": True}, {"sci_mode": False},
    {"linewidth": 40}, {"threshold": 5, "edgeitems": 1}, {"profile": "short"}, {"profile": "full"},
    {"edgeitems": 2, "threshold": 10},
]  # fmt: skip
SHAPES = [(), (1,), (3,), (0,), (2, 0, 3), (2, 3), (2, 2, 2), (30,), (1001,), (2, 1, 5, 3),
          (7, 200)]  # fmt: skip
KINDS = {
    "normal": lambda a: a, "wide": lambda a: a * 10.0 ** (np.abs(a) * 5 - 4),
    "whole": lambda a: np.round(a * 10), "zero": lambda a: a * 0, "huge": lambda a: a * 1e12,
    "nan": lambda a: a * np.nan,
    "mixed": lambda a: np.where(a > 1, np.inf, np.where(a < -1, np.nan, a)),
}  # fmt: skip


@pytest.fixture(autouse=True)
def default_options() -> Iterator[None]:
    yield
    for lib in (torch, cugrad):
        lib.set_printoptions(profile="default")


def values(shape: tuple[int, ...], kind: str, dtype: dtypes.dtype) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(len(shape) + sum(shape))
    a = np.array(KINDS[kind](rng.standard_normal(shape)))
    if dtype.is_complex:
        return a + 1j * np.array(KINDS[kind](rng.standard_normal(shape)))
    if not dtype.is_floating_point:
        a = np.clip(np.nan_to_num(a), 0 if dtype is dtypes.uint8 else -100, 100)
    return a.astype(np.float32) if dtype.itemsize == 2 else a  # PyTorch rounds to halves twice


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_tensors_print_as_pytorchs(dtype: dtypes.dtype, options: dict[str, Any]) -> None:
    """Of each shape every second kind of numbers; of the next dtype or options, the others."""
    for lib in (torch, cugrad):
        lib.set_printoptions(**options)
    turn = dtypes.ALL.index(dtype) + OPTIONS.index(options)
    for number, (shape, kind) in enumerate(product(SHAPES, KINDS)):
        if (number + turn) % 2:
            continue
        with np.errstate(all="ignore"):
            array = np.array(values(shape, kind, dtype))
            texts = [
                repr(lib.from_numpy(array.copy()).to(getattr(lib, dtype.name)))
                for lib in (cugrad, torch)
            ]
        assert texts[0] == texts[1], (shape, kind, *texts)


def test_suffixes_are_pytorchs(lib: Any) -> None:
    x = lib.ones(2, requires_grad=True)
    place = "" if x.device.type == "cpu" else f", device='{x.device}'"
    assert repr(x) == f"tensor([1., 1.]{place}, requires_grad=True)"
    assert "grad_fn=<MulBackward0>" in repr(lib.ones(2, requires_grad=True) * 2)
    assert repr(lib.zeros(0, 3, dtype=lib.int32)) == (
        f"tensor([]{place}, size=(0, 3), dtype=torch.int32)"
    )
