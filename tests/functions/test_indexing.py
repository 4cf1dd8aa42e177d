"""Indexing and scattering: mixtures of indices beside PyTorch, and what lies outside."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import cugrad

pytestmark = pytest.mark.filterwarnings("ignore")  # PyTorch's, of byte masks and beta functions
SHAPE = (3, 4, 3)
ITEMS = [
    "1", "-1", "slice(1, None)", "slice(None, None, 2)", "slice(3, 1)", "None", "...", "[0, -1]",
    "T.tensor([[0], [1]])", "T.tensor(1)", "T.tensor(True)", "False", "[True, False, True]",
    "T.tensor([1, 0, 1], dtype=T.uint8)", "T.tensor(1, dtype=T.uint8)",
    "T.tensor(0, dtype=T.uint8)", "np.uint8(1)", "[]", "np.int64(1)", "range(2)",
    "T.ones(3, 4) > 0", "7", "T.tensor([9])", "1.5", "slice(None, None, -1)",
]  # fmt: skip

BYTES = "T.tensor([1, 0, 1], dtype=T.uint8)"


def answer(T: Any, items: tuple[str, ...], assign: Any) -> Any:
    x = T.arange(36.0).reshape(SHAPE)
    index = tuple(eval(i, {"T": T, "np": np}) for i in items)
    try:
        if assign is None:
            return x[index if len(index) > 1 else index[0]].tolist()
        x[index] = assign
        return x.tolist()
    except (IndexError, TypeError, ValueError, RuntimeError) as error:
        return type(error).__name__


@pytest.mark.parametrize("assign", [None, 5.0])
@pytest.mark.parametrize("first", ITEMS)
def test_every_pair_is_as_pytorch_has_it(first: str, assign: Any) -> None:
    torch = pytest.importorskip("torch")
    for items in [(first,), *itertools.product([first], ITEMS)]:
        if items.count("...") > 1 or (assign and BYTES in items):
            continue  # PyTorch lets two ellipses pass, and forbids a byte mask for a number
        mine, theirs = answer(cugrad, items, assign), answer(torch, items, assign)
        if isinstance(mine, str) and isinstance(theirs, str) and len(items) > 1:
            continue  # of two mistakes either may be named
        if mine == "IndexError" and {"T.tensor([9])", "slice(3, 1)"} <= set(items):
            continue  # PyTorch does not look at an index when nothing is picked
        assert mine == theirs, items


@pytest.mark.filterwarnings("default")
def test_bytes_are_masks_with_a_warning_and_without_dims_too(lib: Any) -> None:
    """A byte without dims is True or False, not a number: `x[mask.all()]`, say."""
    for value, count in ((0, 0), (1, 1), (2, 1)):
        byte = lib.tensor(value, dtype=lib.uint8)
        for shape in ((), (2,), (2, 3)):
            x = lib.ones(shape)
            assert tuple(x[byte].shape) == (count, *shape)
            x[byte] = 5
            assert (x == (5 if count else 1)).all()
    bytes_, x = lib.tensor([1, 0], dtype=lib.uint8), lib.arange(4.0).reshape(2, 2)
    with pytest.warns(UserWarning, match="indexing with dtype torch.uint8 is now deprecated"):
        assert x[bytes_].tolist() == [[0, 1]]


def test_nested_lists_are_tuples(lib: Any) -> None:
    x = lib.arange(6).reshape(2, 3)
    assert x[[[0, 1], [2, 0]]].tolist() == [2, 3]


# Scattering ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("reduce", ["sum", "prod", "mean", "amax", "amin"])
@pytest.mark.parametrize("include_self", [True, False])
def test_scatter_reduce(lib: Any, reduce: str, include_self: bool) -> None:
    x = lib.tensor([2.0, 7.0, 1.0], requires_grad=True)
    src = lib.tensor([3.0, 4.0, 5.0], requires_grad=True)
    out = lib.scatter_reduce(x, 0, lib.tensor([0, 0, 2]), src, reduce, include_self=include_self)
    meet = {"sum": np.sum, "prod": np.prod, "mean": np.mean, "amax": np.max, "amin": np.min}[reduce]
    old = [[2.0], [1.0]] if include_self else [[], []]
    want = [meet([*old[0], 3.0, 4.0]), 7.0, meet([*old[1], 5.0])]
    assert out.tolist() == pytest.approx(want)
    out.sum().backward()
    assert x.grad[1].item() == 1.0


def test_an_index_that_is_none_is_named(lib: Any) -> None:
    x = lib.ones(2, 3)
    for call in (lambda: lib.take(x, [0]), lambda: lib.take_along_dim(x, [0])):
        with pytest.raises(TypeError, match=r"argument '(index|indices)' \(position 2\)"):
            call()


def test_scattering_in_place(lib: Any) -> None:
    x = lib.arange(4.0).requires_grad_()
    y = x * 1
    y.scatter_(0, lib.tensor([1]), 9.0)
    y.put_(lib.tensor([0]), lib.tensor([4.0]))
    y.masked_scatter_(lib.tensor([False, False, True, True]), lib.tensor([7.0, 8.0]))
    y.index_copy_(0, lib.tensor([3]), lib.tensor([1.0]))
    y.index_reduce_(0, lib.tensor([0, 0]), lib.tensor([3.0, 2.0]), "prod")
    assert y.tolist() == [24.0, 9.0, 7.0, 1.0]


def test_duplicates_add_up_in_float32(lib: Any) -> None:
    x = lib.zeros(1, dtype=lib.float16)
    ones = lib.ones(4096, dtype=lib.float16)
    if lib is cugrad:
        assert x.index_add(0, lib.zeros(4096, dtype=lib.int64), ones).item() == 4096.0


def test_assignment_by_index_writes_in_place(lib: Any) -> None:
    x = lib.zeros(4, 2)
    address, v = x.data_ptr(), lib.ones(2, 2).requires_grad_()
    y = x * 1
    y[lib.tensor([0, 2])] = v * 3
    y[lib.tensor([True, False, False, True])] = 7.0
    assert y.tolist() == [[7.0, 7.0], [0.0, 0.0], [3.0, 3.0], [7.0, 7.0]]
    y.sum().backward()
    assert v.grad.tolist() == [[0.0, 0.0], [3.0, 3.0]]
    assert x.data_ptr() == address


@pytest.mark.parametrize("index", ["T.tensor([2, 0, 1])", "T.ones(3) > 0", "slice(3)", "..."])
def test_values_with_more_dims_than_what_they_are_put_into(lib: Any, index: str) -> None:
    values = lib.ones(1, 1, 3, requires_grad=True)
    x = lib.zeros(3)
    x[eval(index, {"T": lib})] = values * 2
    (grad,) = lib.autograd.grad((x * x).sum(), values, create_graph=True)
    assert grad.tolist() == [[[8.0] * 3]]
    assert lib.autograd.grad(grad.sum(), values)[0].tolist() == [[[8.0] * 3]]


def test_assignment_from_itself(device: str) -> None:
    """What is read is read before it is overwritten; PyTorch refuses."""
    x = cugrad.arange(4)
    x[cugrad.tensor([1, 2, 3])] = x[:3]
    assert x.tolist() == [0, 0, 1, 2]


OUTSIDE = [
    "x.gather(0, i)", "x.index_select(0, i)", "x.take(i)", "x[i]", "x.index_add(0, i, v)",
    "x.scatter(0, i, 1.0)", "x.index_fill(0, i, 1.0)", "x.put(i, v)", "x.index_copy(0, i, v)",
    "x.index_put((i,), v)", "T.nn.functional.embedding(i, x.reshape(-1, 1))",
    "x.scatter_reduce(0, i, v, 'amax')",
]  # fmt: skip


@pytest.mark.parametrize("line", OUTSIDE)
def test_an_index_outside_is_an_error(device: str, line: str) -> None:
    """On a GPU only where indices are checked: CuPy takes them modulo the size."""
    x, i, v = cugrad.arange(4.0), cugrad.tensor([9]), cugrad.tensor([1.0])
    with cugrad.cuda.check_indices(), pytest.raises((IndexError, RuntimeError), match="9|out of"):
        eval(line, {"x": x, "i": i, "v": v, "T": cugrad})
    assert not cugrad.cuda.are_indices_checked()


@pytest.mark.parametrize("op", ["masked_scatter", "index_reduce"])
@pytest.mark.parametrize("shape", [(0,), (0, 3)])
def test_a_source_without_elements_is_part_of_the_graph(op: str, shape: tuple[int, ...]) -> None:
    """Its gradient has no elements either, but is there."""
    x, source = cugrad.ones(2, *shape[1:]), cugrad.zeros(shape, requires_grad=True)
    if op == "masked_scatter":
        out = x.masked_scatter(cugrad.zeros(x.shape, dtype=cugrad.bool), source)
    else:
        out = x.index_reduce(0, cugrad.zeros(0, dtype=cugrad.int64), source, "prod")
    assert out.requires_grad and cugrad.equal(out, x)
    assert cugrad.autograd.grad(out.sum(), source)[0].shape == shape


KINDS = ["bool", "uint8", "int8", "int64", "float16", "bfloat16", "float32", "float64", "complex64"]
NUMBERS = [True, 2.7, -1, 300, -300, 70000.0, 1e30, float("inf"), float("nan"), 1 + 0j, 1j]
PLACES: dict[str, Any] = {
    "slice": lambda lib: slice(None),
    "place": lambda lib: 0,
    "mask": lambda lib: lib.tensor([True, False]),
    "list": lambda lib: [0],
    "tensor": lambda lib: lib.tensor([0]),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_number_out_of_range_is_not_assigned(kind: str, place: str) -> None:
    """As in `fill_`: an error and no garbage, which infinity made of an integer."""
    torch = pytest.importorskip("torch", reason="compares with PyTorch, which is not installed")
    for number in NUMBERS:
        outcomes = []
        for lib in (torch, cugrad):
            x = lib.zeros(2, dtype=getattr(lib, kind))
            try:
                x[PLACES[place](lib)] = number
                outcomes.append(str(x.tolist()))
            except RuntimeError as error:
                outcomes.append(str(error))
        assert outcomes[1] == outcomes[0], number


@pytest.mark.parametrize("name", ["scatter", "index_fill"])
@pytest.mark.parametrize("kind", ["uint8", "int64", "float16"])
def test_a_number_out_of_range_is_not_placed(lib: Any, name: str, kind: str) -> None:
    x, index = lib.zeros(2, dtype=getattr(lib, kind)), lib.tensor([0])
    with pytest.raises(RuntimeError, match="without overflow"):
        getattr(x, name)(0, index, 1e30)
    assert getattr(x, name)(0, index, 2.0).tolist() == [2, 0]


@pytest.mark.parametrize("index", ["mask", "list", "tensor"])
@pytest.mark.parametrize("kind", ["float32", "int64", "complex128"])
def test_complex_values_are_not_put_in_a_real_tensor(lib: Any, kind: str, index: str) -> None:
    x, value = lib.zeros(2, dtype=getattr(lib, kind)), lib.tensor([1 + 2j])
    if kind == "complex128" and (lib is cugrad or index == "mask"):
        x[PLACES[index](lib)] = value
        assert x.tolist() == [1 + 2j, 0]
    else:
        with pytest.raises(RuntimeError, match="without overflow|source and destination dtypes"):
            x[PLACES[index](lib)] = value
        assert x.tolist() == [0, 0]


@pytest.mark.parametrize("columns", [0, 3])
@pytest.mark.parametrize("shape", [(2, 1), (5, 2), (1, 2), (1, 1, 2), (1,), (2, 1, 1)])
def test_values_have_no_more_dims_than_they_are_put_in(
    lib: Any, shape: tuple[int, ...], columns: int
) -> None:
    """But leading ones in an assignment; of no elements, too."""
    fits = all(n == 1 for n in shape[:-1]) and shape[-1] in (1, 2)
    indices = (lib.tensor([1, 0]), lib.tensor([True, True]), slice(None))
    for index in indices:
        x, values = lib.zeros(2, columns), lib.ones(*shape, columns)
        if fits:
            x[index] = values
            assert x.tolist() == [[1] * columns] * 2
        else:
            with pytest.raises(RuntimeError, match="shape|size"):
                x[index] = values
        if index is not indices[2] and len(shape) > 1:
            with pytest.raises(RuntimeError, match="shape mismatch"):
                x.index_put_((index,), values)
