"""The cases of rows with written kernels, with those of rows that go where indices say."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from tests.backends.written_cases import (
    CASES,
    NO_KERNELS,
    Case,
    case,
    drawn,
    normal,
    whole_numbers,
    with_ties,
)  # fmt: skip

__all__ = ["CASES", "Case", "NO_KERNELS"]

# Sums by indices ----------------------------------------------------------------------------------

for shape, few, dim in (((5, 9), (5, 70), 1), ((3, 4, 2), (3, 50, 2), 1), ((7, 3), (40, 3), 0),
                        ((9, 2), (2100, 2), 0), ((4, 3), (2, 3), 0)):  # fmt: skip
    operands = [normal(*few), whole_numbers(shape[dim], *few)]
    if few[dim] > 32:
        case("gather_backward", f"{few} {dim}", drawn(*operands), {"shape": shape, "dim": dim},
             slack=40)  # fmt: skip
    case("scatter_add", f"{few} {dim}", drawn(normal(*shape), *reversed(operands)), {"dim": dim},
         slack=40)  # fmt: skip
for shape, dim, count in (((9, 5), 0, 40), ((3, 6, 4), 1, 9), ((2, 7), 1, 1)):
    few = (*shape[:dim], count, *shape[dim + 1 :])
    index = whole_numbers(shape[dim], count, least=-shape[dim] if dim else 0)
    case("index_select_backward", f"{few}", drawn(normal(*few), index),
         {"shape": shape, "dim": dim}, slack=20)  # fmt: skip
    for alpha in (1, -0.5):
        case("index_add", f"{few} {alpha}", drawn(normal(*shape), index, normal(*few)),
             {"dim": dim, "alpha": alpha}, slack=20)  # fmt: skip
case("index_backward", "a matrix of indices", drawn(normal(3, 2, 2, 4)),
     {"shape": (3, 5, 4), "indices": (slice(None), np.array([[0, 4], [0, 2]]))})  # fmt: skip
case("index_backward", "one index", drawn(normal(4)),
     {"shape": (5, 4), "indices": (np.array(3),)})  # fmt: skip

# numbers, of how many rows and columns, where bags begin, unless numbers stand in lines
BAGS: list[tuple[tuple[int, ...], int, int, list[int] | None]] = [
    ((3, 4), 5, 7, None), ((9,), 5, 24, [0, 2, 2, 8]), ((70,), 3, 1100, [0, 0, 69, 70]),
    ((300, 2), 40, 3, None),
]  # fmt: skip
for few, n, width, begins in BAGS:
    kind: Any = np.int32 if n == 40 else np.int64
    index = lambda rng, n=n, few=few, kind=kind: rng.integers(0, n, few).astype(kind)
    offsets = None if begins is None else np.array(begins)
    bags = few[0] if begins is None else len(begins)
    for mean, padding in ((False, -1), (True, 1)):
        how = {"mean": mean, "padding_idx": padding}
        for weights in (None, normal(*few)):
            case("embedding_bag", f"{few} {how}", drawn(normal(n, width), index, offsets, weights),
                 how, slack=20)  # fmt: skip
            case("embedding_bag_backward", f"{few} {how}",
                 drawn(normal(bags, width), index, offsets, weights), {**how, "num_weights": n},
                 slack=40)  # fmt: skip
        case(
            "embedding_bag_weights_backward",
            f"{few} {how}",
            drawn(normal(bags, width), normal(n, width), index, offsets),
            how,
            slack=40,
        )
        case("embedding_bag_max", f"{few} {how}", drawn(normal(n, width), index, offsets),
             {"padding_idx": padding})  # fmt: skip
ties = lambda rng: np.array([[1.0, 2, np.nan], [1, 3, 1], [-np.inf, -np.inf, np.nan]])
case("embedding_bag_max", "ties, nan and infinities",
     drawn(ties, np.array([1, 0, 1, 2, 0, 2]), np.array([0, 0, 3, 4])))  # fmt: skip

# Picked and joined --------------------------------------------------------------------------------

# rows of less than a word, of some, of more than a block copies at once
PICKS = [((5,), 0, (9,)), ((5, 3), 0, (2, 4)), ((2, 5, 24), 1, (3,)), ((3, 4, 5, 2), 2, (7,)),
         ((2, 3, 4200), 1, (2,)), ((40, 8), 0, (300,)), ((2, 7), 1, (33,))]  # fmt: skip
for shape, dim, named in PICKS:
    index = whole_numbers(shape[dim], *named, least=-shape[dim])
    if len(named) == 1:
        case("index_select", f"{shape} {dim}", drawn(normal(*shape), index), {"dim": dim})
    if dim == 0:
        case("embedding", f"{shape}", drawn(normal(*shape), index), {"padding_idx": -1})
    numbers = np.random.default_rng(0).integers(-shape[dim], shape[dim], named)
    indices = (*[slice(None)] * dim, numbers.astype(np.int32 if dim else np.int64))
    case("index", f"{shape} {dim}", drawn(normal(*shape)), {"indices": indices})
# shape, the dims that are named, and the shapes of their indices: side by side, and others between
SEVERAL: list[tuple[tuple[int, ...], tuple[int, ...], tuple[tuple[int, ...], ...]]] = [
    ((5, 6), (0, 1), ((9,), (9,))), ((3, 5, 4), (1, 2), ((2, 1), (3,))),
    ((3, 4, 5, 24), (1, 2), ((7,), (1,))), ((4, 3, 5), (0, 2), ((300,), (300,))),
    ((2, 3, 4, 5), (0, 1, 2, 3), ((6,), (2, 1), (6,), (2, 6))),
    ((5, 6, 7), (0, 1), ((2, 1, 3, 1), (1, 4, 1, 2))),
    ((2, 3, 4, 5), (0, 1, 3), ((8,), (1,), (8,))),
]  # fmt: skip
for shape, dims, named in SEVERAL:
    rng, indices = np.random.default_rng(0), [slice(None)] * (dims[-1] + 1)
    kind = np.int32 if dims == (1, 2) else np.int64
    for d, few in zip(dims, named):
        indices[d] = rng.integers(-shape[d], shape[d], few).astype(kind)
    case("index", f"{shape} {dims}", drawn(normal(*shape)), {"indices": tuple(indices)})
    grad = np.ones(shape)[tuple(indices)].shape
    case("index_backward", f"{shape} {dims}", drawn(normal(*grad)),
         {"shape": shape, "indices": tuple(indices)}, slack=20)  # fmt: skip
for shape, dims, _ in SEVERAL:  # no place is named twice
    rng, sizes = np.random.default_rng(0), [shape[d] for d in dims]
    named = rng.permutation(prod(sizes))[:4].reshape(4 - 2 * (len(shape) == 2), -1)
    kind = np.int32 if dims == (1, 2) else np.int64
    indices = [slice(None)] * (dims[-1] + 1)
    for d, i in zip(dims, np.unravel_index(named, sizes)):
        indices[d] = (i - shape[d] * (d == 1)).astype(kind)
    part = np.ones(shape)[tuple(indices)].shape
    for values in (part, (*[1] * (len(part) > 1), *part[1:]), ()):
        case("index_put", f"{shape} {dims} {values}", drawn(normal(*shape), normal(*values)),
             {"indices": tuple(indices)})  # fmt: skip
    case("index_zero", f"{shape} {dims}", drawn(normal(*shape)), {"indices": tuple(indices)})
for shape, dim, _ in PICKS:
    numbers = np.random.default_rng(1).permutation(shape[dim])[:5].reshape(-1, 1) - shape[dim]
    indices = (*[slice(None)] * dim, numbers)
    part = np.ones(shape)[indices].shape
    case("index_put", f"{shape} {dim}", drawn(normal(*shape), normal(*part)), {"indices": indices})
    case(
        "index_put",
        f"{shape} {dim} turned",
        drawn(normal(*shape), lambda rng, s=part: rng.random(s[::-1]).T),
        {"indices": indices},
    )
    more = (*[slice(None)] * dim, np.random.default_rng(1).integers(0, shape[dim], 9))
    case("index_put", f"{shape} {dim} added up",
         drawn(normal(*shape), normal(*np.ones(shape)[more].shape)),
         {"indices": more, "accumulate": True}, slack=20)  # fmt: skip
    case("index_zero", f"{shape} {dim}", drawn(normal(*shape)), {"indices": indices})
for n in (1, 7, 300):
    for kind in (np.int32, np.int64):
        index = lambda rng, n=n, kind=kind: rng.integers(-n, n, 40).astype(kind)
        case("named_by", f"{n}", drawn(index), {"size": n})
        case("one_hot", f"{n}", drawn(lambda rng, f=index: f(rng).reshape(5, 8).T),
             {"num_classes": n})  # fmt: skip
for dtype in ("bool", "int16", "complex64", "complex128"):
    few = lambda rng, kind=dtype: rng.integers(0, 5, (6, 4, 5)).astype(kind)
    for indices in ((np.array([1, 5, 3]), np.array([0, 2, 2])), (slice(None), np.array([2, 0, 1]))):
        part = np.ones((6, 4, 5))[indices].shape
        values = lambda rng, kind=dtype, part=part: rng.integers(0, 5, part).astype(kind)
        case("index_put", f"{dtype} {part}", drawn(few, values), {"indices": indices})
        case("index_zero", f"{dtype} {part}", drawn(few), {"indices": indices})
for dtype in ("bool", "int16", "complex128"):
    few = lambda rng, kind=dtype: rng.integers(0, 5, (6, 4, 5)).astype(kind)
    pair = np.array([1, 5, 3]), np.array([[0], [2]])
    case("index", f"{dtype} of two", drawn(few), {"indices": pair})

for dtype in ("bool", "uint8", "int16", "int64", "complex64", "complex128"):
    few = lambda rng, kind=dtype: rng.integers(0, 5, (6, 3, 5)).astype(kind)
    for dim in (0, 2):
        case("index_select", f"{dtype} {dim}", drawn(few, whole_numbers((6, 3, 5)[dim], 4)),
             {"dim": dim})  # fmt: skip
    case("cat", dtype, drawn([few, few]), {"dim": 1})

# as they lie, and in some order of the dims: neighbours that stay so, and others
COPIES: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((4, 3, 16), (1, 0, 2)), ((300, 7), (1, 0)), ((2, 3, 5, 4), (0, 2, 1, 3)),
    ((3, 5, 2), (2, 0, 1)),
]  # fmt: skip
for shape, dims in COPIES:
    turned: Any = lambda rng, s=shape, d=dims: rng.random(s).transpose(d)
    case("clone", f"{shape} {dims}", drawn(turned), {"order": "C"})
    case("unsafe_view", f"{shape} {dims}", drawn(turned), {"shape": (prod(shape),)})
for dtype in ("bool", "int64", "complex64"):
    case("clone", dtype, drawn(lambda rng, d=dtype: rng.integers(0, 5, (9, 4)).astype(d).T),
         {"order": "C"})  # fmt: skip

# planes of one element, of less than a word, of packs, of more than a block
TRIANGLES = [((5, 4), 0), ((1, 1), 0), ((3, 7), -1), ((2, 3, 8, 8), 1), ((2, 40, 48), -3),
             ((4, 12), 90), ((4, 12), -90), ((600, 3), -2)]  # fmt: skip
for shape, diagonal in TRIANGLES:
    for name in ("tril", "triu"):
        case(name, f"{shape} {diagonal}", drawn(normal(*shape)), {"diagonal": diagonal})
for dtype in ("bool", "uint8", "int16", "int64", "complex64", "complex128"):
    few = lambda rng, kind=dtype: rng.integers(0, 5, (2, 9, 6)).astype(kind)
    for name in ("tril", "triu"):
        case(name, dtype, drawn(few), {"diagonal": 1})
    turned = lambda rng, kind=dtype: rng.integers(0, 5, (9, 6)).astype(kind).T
    case("tril", f"turned {dtype}", drawn(turned))
    swapped = lambda rng, kind=dtype: rng.integers(0, 5, (3, 2, 4, 5)).astype(kind).swapaxes(0, 1)
    case("triu", f"planes {dtype}", drawn(swapped))

# parts of less than a word, of some, of more than a block copies; empty ones, and many
JOINS = [((3,), 0, (1, 4)), ((4, 8), 1, (8, 16, 8)), ((5, 3), 0, (2, 0, 3)), ((2, 4, 6), 1, (4, 1)),
         ((2, 5000), 1, (4000, 1000)), ((2, 3), 1, (0, 3)),
         ((3, 2), 1, tuple(range(20)))]  # fmt: skip
for shape, dim, parts in JOINS:
    whole_shapes = [(*shape[:dim], n, *shape[dim + 1 :]) for n in parts]
    case("cat", f"{shape} {parts}", drawn([normal(*s) for s in whole_shapes]), {"dim": dim},
         (("tensors",),))  # fmt: skip
for shape, count in (((2, 3), 2), ((4,), 5), ((), 3), ((2, 1030), 17)):
    for dim in range(len(shape) + 1):
        case("stack", f"{shape} {dim}", drawn([normal(*shape)] * count), {"dim": dim},
             (("tensors",),))  # fmt: skip


def once_each(n: int, *shape: int, dim: int) -> Callable[[Any], Any]:
    """Indices along a dim, of which no line has one twice."""

    def make(rng: Any) -> Any:
        whole = rng.random((*shape[:dim], n, *shape[dim + 1 :])).argsort(dim)
        return np.ascontiguousarray(whole.take(range(shape[dim]), dim))

    return make


for shape, few, dim in (((5, 9), (5, 4), 1), ((3, 40, 2), (3, 33, 2), 1), ((70, 3), (7, 3), 0)):
    index = once_each(shape[dim], *few, dim=dim)
    case("scatter", f"{shape}", drawn(normal(*shape), index, normal(*few)), {"dim": dim})
    case("scatter_zero", f"{shape}", drawn(normal(*shape), index), {"dim": dim})
case("scatter", "integers", drawn(whole_numbers(9, 3, 4), once_each(4, 3, 2, dim=1),
                                  whole_numbers(9, 3, 2)), {"dim": 1})  # fmt: skip

# Reduced by indices -------------------------------------------------------------------------------


def with_zeros(*shape: int) -> Callable[[Any], Any]:
    """Numbers about 1, of which one in eight is 0."""
    return lambda rng: rng.choice([0.0, 0.5, 0.75, 1.0, 1.25, 1.5, -0.5, -1.0], shape)


def spread(below: int, count: int, *shape: int) -> Callable[[Any], Any]:
    """Indices along the first dim that are the same for all of the others, which have no steps."""
    return lambda rng: np.broadcast_to(
        rng.integers(-below, below, (count, *(1,) * len(shape))), (count, *shape)
    )


for shape, few, dim in (((9, 5), (40, 5), 0), ((5, 9), (5, 70), 1), ((3, 4, 2), (3, 9, 2), 1),
                        ((4,), (300,), 0), ((300, 2), (7, 2), 0), ((4, 6), (3, 2), 1)):  # fmt: skip
    index = whole_numbers(shape[dim], *few, least=-shape[dim])
    for reduce in ("amax", "amin", "prod"):
        make = with_zeros if reduce == "prod" else with_ties
        for kept in (True, False):
            how = {"dim": dim, "reduce": reduce, "include_self": kept}
            case("scatter_reduce", f"{few} {how}", drawn(make(*shape), index, make(*few)), how,
                 (("self", "src"), ("self",), ("src",)), slack=100)  # fmt: skip
for k, dtype in enumerate(("int64", "int32", "int16", "int8", "uint8", "bool")):
    for i, reduce in enumerate(("amax", "amin", "prod")):
        few = lambda rng, kind=dtype: rng.integers(-3, 4, (9, 30)).astype(kind)
        case("scatter_reduce", f"{dtype} {reduce}", drawn(few, whole_numbers(9, 9, 30), few),
             {"dim": 0, "reduce": reduce, "include_self": (k + i) % 2 == 0})  # fmt: skip
for reduce in ("amax", "amin", "prod"):
    case("scatter_reduce", "spread", drawn(normal(6, 3, 2), spread(6, 20, 3, 2), normal(20, 3, 2)),
         {"dim": 0, "reduce": reduce}, (("self", "src"),), slack=100)  # fmt: skip
signed = np.array([[0.0, -0.0, np.nan, -np.nan, np.inf, -np.inf, -1.0, 2.0]])
for dtype in ("float16", "bfloat16", "float32", "float64"):
    for reduce in ("amax", "amin"):
        every: Any = lambda rng, d=dtype: np.concatenate([rng.permuted(signed, axis=1)] * 9).astype(
            d
        )
        case("scatter_reduce", f"{dtype} {reduce}",
             drawn(lambda rng, d=dtype: signed.astype(d), whole_numbers(1, 9, 8), every),
             {"dim": 0, "reduce": reduce})  # fmt: skip
for name in ("gather", "scatter_add"):
    rest = [normal(20, 3, 2)] if name == "scatter_add" else []
    case(name, "spread", drawn(normal(6, 3, 2), spread(6, 20, 3, 2), *rest), {"dim": 0}, slack=20)
case("gather_backward", "spread", drawn(normal(20, 3, 2), spread(6, 20, 3, 2)),
     {"shape": (6, 3, 2), "dim": 0}, slack=20)  # fmt: skip

# indices that reach a part, and what is larger than they are
for shape, few, dim, larger in (((5, 6), (40, 4), 0, (41, 5)), ((3, 7, 4), (2, 6, 3), 1, (2, 9, 3)),
                                ((3, 6, 5, 2), (3, 5, 3, 2), 1, (3, 5, 3, 3)),
                                ((5, 3), (2100, 2), 0, (2100, 3))):  # fmt: skip
    index = whole_numbers(shape[dim], *few, least=-shape[dim])
    case("gather", f"a part {few}", drawn(normal(*shape), index), {"dim": dim})
    case("gather_backward", f"a part {few}", drawn(normal(*few), index),
         {"shape": shape, "dim": dim}, slack=40)  # fmt: skip
    case("scatter_add", f"a part {few}", drawn(normal(*shape), index, normal(*larger)),
         {"dim": dim}, slack=40)  # fmt: skip
    if few[dim] <= shape[dim]:
        index = once_each(shape[dim], *few, dim=dim)
        case("scatter", f"a part {few}", drawn(normal(*shape), index, normal(*larger)),
             {"dim": dim})  # fmt: skip
        case("scatter_zero", f"a part {few}", drawn(normal(*shape), index), {"dim": dim})
        for reduce in ("amax", "amin", "prod"):
            make = with_zeros if reduce == "prod" else with_ties
            index = whole_numbers(shape[dim], *few, least=-shape[dim])
            for kept in (True, False):
                case("scatter_reduce", f"a part {few} {reduce} {kept}",
                     drawn(make(*shape), index, make(*larger)),
                     {"dim": dim, "reduce": reduce, "include_self": kept},
                     (("self", "src"), ("self",), ("src",)), slack=100)  # fmt: skip

in_range: Any = lambda *shape: lambda rng: rng.choice([-1.5, -1.0, 0.3, 1.7, 2.0, np.nan], shape)
for shape, bins, low, high in (((3, 50), 7, -1.0, 2.0), ((700,), 100, -1.25, 1.75),
                               ((5000,), 2500, -2.0, 3.0), ((4,), 1, 0.25, 0.5)):  # fmt: skip
    case("histc", f"{shape} {bins}", drawn(in_range(*shape)),
         {"bins": bins, "low": low, "high": high})  # fmt: skip

# Borders, and where maxima of windows lie ---------------------------------------------------------

SIDES = ((2, 1), (0, 3), (1, 1))
for shape, count in (((2, 3, 5, 4), 2), ((3, 7), 1), ((2, 3, 4, 5, 6), 3), ((300, 1), 1),
                     ((2, 1, 4), 2)):  # fmt: skip
    for mode in ("reflect", "replicate", "circular"):
        most = {"reflect": -1, "circular": 0}.get(mode, 9)
        pad = tuple([(0, 0)] * (len(shape) - count) + [
            (min(a, n + most), min(b, n + most))
            for (a, b), n in zip(SIDES, shape[len(shape) - count :])
        ])  # fmt: skip
        grown = tuple([a + n + b for (a, b), n in zip(pad, shape)])
        how = {"pad": pad, "mode": mode}
        case("pad_edges", f"{shape} {mode}", drawn(normal(*shape)), how)
        case("pad_edges_backward", f"{grown} {mode}", drawn(normal(*grown)), how, slack=40)
for size, outputs, params in (
    ((9, 8), (5, 4), {"kernel_size": 3, "stride": 2, "padding": 1}),
    ((9, 8), (5, 3), {"kernel_size": (2, 3), "stride": None}),  # ceil_mode has one more
    ((11,), (5,), {"kernel_size": 3, "stride": 2, "padding": 1, "dilation": 2}),
    ((5, 6, 7), (4, 3, 3), {"kernel_size": 2, "stride": (1, 2, 2)}),
    ((20, 20), (4, 4), {"kernel_size": 17, "stride": 1}),
):
    taps = params["kernel_size"]
    taps = prod(taps) if isinstance(taps, tuple) else taps ** len(size)
    kind = "uint8" if taps <= 256 else "uint16"
    case("max_pool_indices", f"{size} {params}",
         drawn(lambda rng, n=taps, o=outputs, k=kind: rng.integers(0, n, (2, 3, *o)).astype(k)),
         {"input_size": size, **params})  # fmt: skip


def places_once(lead: int, plane: int, *outputs: int) -> Callable[[Any], Any]:
    """Places in planes, of which none is named twice."""
    return lambda rng: np.stack([
        rng.permutation(plane)[: prod(outputs)].reshape(outputs) for _ in range(lead)
    ])  # fmt: skip


for size, outputs in (((6, 7), (3, 2)), ((40,), (35,)), ((3, 2, 5), (2, 1, 2))):
    named = whole_numbers(prod(size), 3, *outputs)
    case("max_pool_gather", f"{size}", drawn(normal(3, *size), named), {"n": len(size)})
    for overlap in (True, False):
        places = named if overlap else places_once(3, prod(size), *outputs)
        case("max_pool_backward", f"{size} {overlap}", drawn(normal(3, *outputs), places),
             {"input_size": size, "overlap": overlap}, slack=40)  # fmt: skip
for shape, dim, size, step in (((3, 9), 1, 3, 2), ((11, 2, 3), 0, 4, 1), ((2, 300), 1, 5, 7),
                               ((2, 8, 3), 1, 8, 1)):  # fmt: skip
    count = (shape[dim] - size) // step + 1
    windows = (*shape[:dim], count, *shape[dim + 1 :], size)
    case("unfold_backward", f"{shape} {size}", drawn(normal(*windows)),
         {"shape": shape, "dimension": dim, "size": size, "step": step}, slack=20)  # fmt: skip
packed: Any = lambda count: lambda rng: rng.integers(0, 256, -(-count // 8)).astype(np.uint8)
for shape, masked in (((3, 4, 5, 2), (3, 4, 1, 1)), ((2, 300, 8), (2, 300, 1)), ((5, 16), (5, 1))):
    case("native_dropout", f"{shape} {masked}", drawn(normal(*shape), packed(prod(masked))),
         {"mask_shape": masked, "p": 0.3})  # fmt: skip
for few, dim in (((3, 2), 1), ((9, 2), 0), ((2, 4, 1), 1)):
    shape = (5, 6) if len(few) == 2 else (3, 5, 2)
    named = whole_numbers(shape[dim], *few)
    case("gather", f"{shape} {few}", drawn(normal(*shape), named), {"dim": dim})
    case("gather_backward", f"{shape} {few}", drawn(normal(*few), named),
         {"shape": shape, "dim": dim}, slack=20)  # fmt: skip
