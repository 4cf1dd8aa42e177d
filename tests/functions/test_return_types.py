"""torch.return_types has the classes of tuples that functions return; torch.types, annotations."""

from __future__ import annotations

import pickle
from typing import Any

import cugrad


def test_each_tuple_is_of_its_class(lib: Any) -> None:
    kinds = lib.return_types
    x = lib.eye(2)
    for name, value in {
        "max": x.max(0), "sort": x.sort(), "topk": x.topk(1), "mode": x.mode(),
        "median": x.median(0), "linalg_qr": lib.linalg.qr(x), "aminmax": x.aminmax(),
        "linalg_slogdet": lib.linalg.slogdet(x),
    }.items():  # fmt: skip
        kind = getattr(kinds, name)
        assert type(value) is kind and kind in kinds.all_return_types
        assert kind(list(value)) == tuple(value) and kind.n_fields == len(value)
        assert type(pickle.loads(pickle.dumps(value))) is kind


def test_annotations_are_there(lib: Any) -> None:
    for name in ("Device", "Number", "FileLike", "Storage", "_TensorOrTensors", "_size", "_dtype"):
        assert hasattr(lib.types, name)
    assert cugrad.return_types.max_out is cugrad.return_types.max
