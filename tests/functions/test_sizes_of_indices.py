"""Functions that write at an index, of any three sizes: what they refuse, and what others give."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

import cugrad

torch = pytest.importorskip("torch", reason="PyTorch, the oracle, is not installed")

pytestmark = [
    pytest.mark.host_only,
    pytest.mark.filterwarnings("ignore:index_reduce.. is in beta:UserWarning"),
]

SHAPES = [(), (0,), (1,), (2,), (3,), (1, 1), (2, 1), (1, 2), (2, 3), (0, 2), (1, 1, 1)]
ANY = [()]  # of what a function does not take
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "index_add": lambda x, dim, index, src: x.index_add(dim, index, src),
    "index_copy": lambda x, dim, index, src: x.index_copy(dim, index, src),
    "index_fill": lambda x, dim, index, src: x.index_fill(dim, index, src),
    "index_put": lambda x, dim, index, src: x.index_put((index,), src),
    "index_put of a mask": lambda x, dim, index, src: x.index_put((index == 0,), src),
    "index_put accumulates": lambda x, dim, index, src: x.index_put((index,), src, True),
    "index_reduce": lambda x, dim, index, src: x.index_reduce(dim, index, src, "prod"),
    "index_select": lambda x, dim, index, src: x.index_select(dim, index),
    "gather": lambda x, dim, index, src: x.gather(dim, index),
    "masked_fill": lambda x, dim, index, src: x.masked_fill(index == 0, src),
    "masked_scatter": lambda x, dim, index, src: x.masked_scatter(index == 0, src),
    "masked_select": lambda x, dim, index, src: x.masked_select(index == 0),
    "put": lambda x, dim, index, src: x.put(index, src),
    "scatter": lambda x, dim, index, src: x.scatter(dim, index, src),
    "scatter of a number": lambda x, dim, index, src: x.scatter(dim, index, 3),
    "scatter_add": lambda x, dim, index, src: x.scatter_add(dim, index, src),
    "scatter_reduce": lambda x, dim, index, src: x.scatter_reduce(dim, index, src, "mean"),
    "select_scatter": lambda x, dim, index, src: x.select_scatter(src, dim, 0),
    "setitem": lambda x, dim, index, src: changed(x, index, src),
    "setitem of a mask": lambda x, dim, index, src: changed(x, index == 0, src),
    "slice_scatter": lambda x, dim, index, src: x.slice_scatter(src, dim, 0, 1),
    "take": lambda x, dim, index, src: x.take(index),
    "take_along_dim": lambda x, dim, index, src: x.take_along_dim(index, dim),
}


def changed(x: Any, index: Any, src: Any) -> Any:
    x[index] = src
    return x


WITHOUT_DIM = ("index_put", "masked", "put", "setitem", "take")
WITHOUT_SOURCE = ("index_select", "gather", "masked_select", "scatter of", "take")


def answer(lib: Any, name: str, *shapes: Any) -> Any:
    x, index, src, dim = shapes
    given = lib.ones(x), dim, lib.zeros(index, dtype=lib.int64), lib.ones(src) * 2
    try:
        out = FUNCTIONS[name](*given)
    except (IndexError, RuntimeError):
        return "an error"
    return tuple(out.shape), out.tolist()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_pytorch_refuses_is_refused_and_the_rest_is_the_same(name: str) -> None:
    """Of the dims 1 and -1 one is tried with each three sizes, the other with the next."""
    dims = (0,) if name.startswith(WITHOUT_DIM) and name != "take_along_dim" else (0, None)
    sources = ANY if name.startswith(WITHOUT_SOURCE) else SHAPES
    indices = ANY if name in ("select_scatter", "slice_scatter") else SHAPES
    for number, (*shapes, dim) in enumerate(product(SHAPES, indices, sources, dims)):
        given = (*shapes, (number // 2 % 2 * 2 - 1) if dim is None else dim)
        if name == "index_add" and 0 in given[0] and given[2]:
            continue  # an index out of range is an error here: docs/torch-compatibility.md
        if name == "index_put of a mask" and not given[1]:
            continue  # PyTorch's raises an internal assert
        want, got = answer(torch, name, *given), answer(cugrad, name, *given)
        assert want == got, f"{given}: want {want}, got {got}"
