"""Dictionaries by identity that do not hold their keys do what PyTorch's do."""

from __future__ import annotations

import gc
import importlib
from typing import Any

import pytest


@pytest.mark.parametrize("name", ["cugrad", "torch"])
def test_entries_go_with_their_tensors(name: str) -> None:
    lib: Any = pytest.importorskip(name)
    weak = importlib.import_module(f"{lib.__name__}.utils.weak")
    x, y = lib.ones(2), lib.ones(2)
    notes = weak.WeakTensorKeyDictionary({x: 1})
    notes[y] = 2
    assert notes[x] == 1 and len(notes) == 2 and lib.ones(2) not in notes and 3 not in notes
    assert notes == weak.WeakIdKeyDictionary([(x, 1), (y, 2)]) == notes.copy() != {x: 1}
    assert [k is x for k in notes] == [True, False] and notes.pop(y) == 2
    assert notes.setdefault(y, 5) == 5 and (notes | {x: 7})[x] == 7 and notes[x] == 1
    assert weak.WeakIdRef(x) == weak.WeakIdRef(x)
    assert weak.WeakIdRef(y) not in {weak.WeakIdRef(x)}
    there = weak.TensorWeakRef(x)
    assert there() is x
    del x
    gc.collect()
    assert there() is None and len(notes) == 1 and [k is y for k in notes] == [True]
    del notes[y]
    with pytest.raises(KeyError):
        notes[y]
