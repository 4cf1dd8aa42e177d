"""Operands for rows that have written kernels: sizes around those of vectors, warps and blocks."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

import ml_dtypes  # noqa: F401 - whose dtypes NumPy knows by name then
import numpy as np

__all__ = [
    "CASES", "Case", "NO_KERNELS", "case", "drawn", "normal", "whole_numbers", "with_ties",
]  # fmt: skip

# Gradients that are views: tests/backends/test_written_attention.py, test_kept_launches.py
NO_KERNELS = {"unbind", "split_with_sizes", "cat", "stack"}


class Case(NamedTuple):
    """A row with operands: `make(rng)` gives them in float64, for any dtype, or in float32
    where they are at least that; whole numbers as they are.

    `gradients` are the sets of inputs whose gradients are asked for together. Sums of `slack`
    roundings are compared.
    """

    name: str
    what: str
    make: Callable[[Any], list[Any]]
    params: dict[str, Any] = {}
    gradients: tuple[tuple[str, ...], ...] = ()
    forward: bool = True
    slack: float = 4.0


CASES: list[Case] = []


def case(name: str, *args: Any, **kwargs: Any) -> None:
    CASES.append(Case(name, *args, **kwargs))


def normal(*shape: int) -> Callable[[Any], Any]:
    return lambda rng: np.asarray(rng.standard_normal(shape) + 0.5)


def moments(*shape: int) -> Callable[[Any], Any]:
    """Numbers that kernels keep in the precision of their sums."""
    return lambda rng: (rng.random(shape) + 0.1).astype(np.float32)


def chances(*shape: int) -> Callable[[Any], Any]:
    """Numbers that are drawn uniformly, and kept so."""
    return lambda rng: rng.random(shape).astype(np.float32)


def drawn(*makers: Any) -> Callable[[Any], list[Any]]:
    """Arrays that makers draw, and what is none as it is."""

    def draw(make: Any, rng: Any) -> Any:
        if isinstance(make, list):
            return [draw(part, rng) for part in make]
        return make(rng) if callable(make) else make

    return lambda rng: [draw(make, rng) for make in makers]


# Norms --------------------------------------------------------------------------------------------

# n elements in a row: fewer than a vector, a few more than some; more than 1024 threads' worth
ROWS = [(3, 1), (5, 7), (9, 64), (2, 33), (4, 100), (2, 4100), (300, 40)]

for count, n in ROWS:  # of one number the slope cancels out, 300 times as large on the way
    how = {"normalized_shape": (n,), "eps": 1e-5}
    whole = ("input", "weight", "bias"), ("input", "bias")
    case("native_layer_norm", f"{count} x {n}", drawn(normal(count, n), normal(n), normal(n)),
         how, whole if count < 300 else whole[:1],
         slack=4.0 if n > 1 else 30.0)  # fmt: skip
    case("rms_norm", f"{count} x {n}", drawn(normal(count, n), normal(n)), how,
         (("input", "weight"),))  # fmt: skip
for weight, bias in ((None, None), (normal(12), None), (None, normal(12))):
    how = {"normalized_shape": (12,), "eps": 1e-2}
    case("native_layer_norm", f"{weight} {bias}", drawn(normal(2, 3, 12), weight, bias), how,
         (("input",),))  # fmt: skip
case("native_layer_norm", "two dims", drawn(normal(3, 4, 5), normal(4, 5), normal(4, 5)),
     {"normalized_shape": (4, 5)}, (("input", "weight", "bias"),))  # fmt: skip
for name, number in (("native_layer_norm_backward", 2), ("rms_norm_backward", 1)):
    for count, n in ((3, 20), (2, 7)):
        rows = [normal(count, n), normal(count, n), normal(n)]
        case(name, f"{count} x {n}", drawn(*rows, *[moments(count, 1)] * number),
             {"normalized_shape": (n,)}, slack=20)  # fmt: skip
for shape, groups in (((2, 6, 4, 4), 3), ((3, 4, 5), 2), ((2, 8), 4), ((2, 4, 3000), 1)):
    case("native_group_norm", f"{shape}", drawn(normal(*shape), normal(shape[1]), normal(shape[1])),
         {"num_groups": groups}, (("input", "weight", "bias"), ("input", "weight")))  # fmt: skip
for shape in ((4, 3, 8, 8), (2, 3, 5), (70, 40), (300, 3), (3, 2, 1500), (1, 33, 2, 2),
              (3, 64, 6, 5), (130, 64), (9, 66), (33, 256)):  # fmt: skip
    vectors = normal(shape[1]), normal(shape[1])
    case("native_batch_norm", f"{shape}", drawn(normal(*shape), *vectors), {},
         (("input", "weight", "bias"), ("input",)))  # fmt: skip
    given = [moments(shape[1]), moments(shape[1])]
    asked = ("input", "weight", "bias"), ("input", "weight"), ("input",), ("weight", "bias")
    case("batch_norm_inference", f"{shape}", drawn(normal(*shape), *vectors, *given), {}, asked)
for kind in ("float16", "bfloat16", "float64"):  # other dtypes than sums have
    given = [lambda rng, kind=kind: (rng.random(3) + 0.1).astype(kind)] * 2
    case("batch_norm_inference", f"of {kind}", drawn(normal(2, 3, 5), None, normal(3), *given), {},
         (("input", "bias"),))  # fmt: skip
case("native_batch_norm", "without weights", drawn(normal(2, 3, 4), None, None), {}, (("input",),))

# Products -----------------------------------------------------------------------------------------

for shape, outputs, has_bias in (((3, 5), 4, True), ((2, 3, 7), 70, True), ((2, 3, 4, 2), 1, True),
                                 ((9, 33), 8, False)):  # fmt: skip
    vector = normal(outputs) if has_bias else None
    operands = drawn(normal(*shape), normal(outputs, shape[-1]), vector)
    case(
        "linear", f"{shape} to {outputs}", operands,
        gradients=((("input", "weight", "bias"), ("weight", "bias")) if has_bias
                   else (("input", "weight"), ("input",))),
    )  # fmt: skip

for name, second, first_shape, second_shape in (
    ("mm", "mat2", (3, 5), (5, 4)), ("bmm", "mat2", (2, 3, 5), (2, 5, 4)),
    ("matmul", "other", (3, 5), (5, 4)), ("matmul", "other", (2, 3, 4, 5), (5, 7)),
    ("matmul", "other", (2, 3, 4, 5), (2, 3, 5, 7)),
):  # fmt: skip
    operands = drawn(normal(*first_shape), normal(*second_shape))
    case(name, f"{first_shape} by {second_shape}", operands,
         gradients=(("self", second), ("self",), (second,)))  # fmt: skip

# Windows ------------------------------------------------------------------------------------------


def window(kernel: Any, stride: Any = 1, padding: Any = 0, dilation: Any = 1) -> dict[str, Any]:
    return {"kernel_size": kernel, "stride": stride, "padding": padding, "dilation": dilation}


def with_ties(*shape: int) -> Callable[[Any], Any]:
    """Few different numbers, infinities and nan among them."""
    values = np.array([-np.inf, np.nan, *np.arange(9), *np.arange(9)])
    return lambda rng: rng.choice(values, shape)


def few_nan(*shape: int) -> Callable[[Any], Any]:
    """Different numbers, in every third line a nan or two."""

    def make(rng: Any) -> Any:
        values = np.asarray(rng.permutation(int(np.prod(shape))).reshape(shape), np.float64)
        values[::3, -1] = np.nan
        values[::6, 0] = np.nan
        return values

    return make


# images, channels, size; output channels, kernel, stride, padding, dilation, groups
CONVOLUTIONS = [
    ((2, 3, 8, 9), (4, 3, 3, 3), 1, 1, 1, 1),
    ((3, 2, 9, 7), (5, 2, 3, 2), (2, 1), (1, 0), (1, 2), 1),
    ((2, 4, 5, 5), (3, 4, 1, 1), 1, 0, 1, 1),
    ((2, 4, 5, 5), (3, 4, 1, 1), 2, 0, 1, 1),
    ((2, 3, 20), (4, 3, 5), 2, 3, 1, 1),
    ((1, 2, 4, 5, 6), (3, 2, 2, 3, 2), (1, 2, 1), 1, 1, 1),
    ((2, 3, 9, 8), (6, 1, 3, 3), (2, 1), 1, (1, 2), 3),
    ((2, 4, 30), (4, 1, 3), 1, 1, 1, 4),
    ((3, 40, 7, 9), (40, 1, 3, 2), 1, 1, 1, 40),  # in packs, and a weight's gradient in two parts
    ((1, 33, 4, 3), (66, 1, 2, 2), (1, 2), 0, 1, 33),
    ((2, 6, 9, 9), (4, 3, 3, 3), 2, 1, 1, 2),
    ((2, 6, 7), (70, 3, 2), 1, 1, 2, 2),
    ((4, 2, 9, 9), (3, 2, 3, 3), 1, 1, 1, 1),  # a weight's gradient in two parts
    ((2, 8, 6, 5), (8, 8, 3, 2), (1, 2), 1, 1, 1),
]
for shape, weights, stride, padding, dilation, groups in CONVOLUTIONS:
    n = len(shape) - 2
    each = [(x,) * n if isinstance(x, int) else x for x in (stride, padding, dilation)]
    outputs = tuple([(s + 2 * p - d * (k - 1) - 1) // t + 1
                     for s, k, t, p, d in zip(shape[2:], weights[2:], *each)])  # fmt: skip
    how = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    x, w, g = normal(*shape), normal(*weights), normal(shape[0], weights[0], *outputs)
    case("convolution", f"{shape}", drawn(x, w, normal(weights[0])), how, slack=20)
    case("convolution_input", f"{shape}", drawn(g, w), {**how, "input_size": shape[2:]}, slack=20)
    case("convolution_weight", f"{shape}", drawn(g, x), {**how, "kernel_size": weights[2:]},
         slack=40)  # fmt: skip
case("convolution", "without bias", drawn(normal(1, 2, 5, 5), normal(2, 2, 3, 3), None), slack=20)

# images, channels, size; kernel, stride, padding, dilation
COLUMNS = [
    ((2, 3, 8, 9), (3, 3), (1, 1), (1, 1), (1, 1)),
    ((3, 2, 9, 7), (3, 2), (2, 1), (1, 0), (1, 2)),
    ((1, 4, 5, 5), (5, 5), (1, 1), (0, 0), (1, 1)),
    ((4, 1, 20, 19), (2, 3), (2, 3), (1, 2), (1, 1)),
    ((300, 2, 2, 3), (1, 1), (1, 1), (0, 0), (1, 1)),
]
for shape, kernel, stride, padding, dilation in COLUMNS:
    counts = [(s + 2 * p - d * (k - 1) - 1) // t + 1
              for s, k, t, p, d in zip(shape[2:], kernel, stride, padding, dilation)]  # fmt: skip
    by = {"kernel_size": kernel, "dilation": dilation, "padding": padding, "stride": stride}
    rows = shape[1] * prod(kernel)
    case("im2col", f"{shape}", drawn(normal(*shape)), by)
    case("col2im", f"{shape}", drawn(normal(shape[0], rows, prod(counts))),
         {"output_size": shape[2:], **by}, slack=20)  # fmt: skip
for kind in ("bool", "int64", "complex64"):
    few: Any = lambda rng, d=kind: rng.integers(0, 5, (2, 3, 4, 5)).astype(d)
    case(
        "im2col",
        kind,
        drawn(few),
        {"kernel_size": (2, 2), "dilation": (1, 1), "padding": (1, 0), "stride": (1, 2)},
    )

POOLS: list[tuple[tuple[int, ...], dict[str, Any]]] = [
    ((2, 8, 9, 8), window(3, 2, 1)),
    ((2, 3, 9, 8), {**window((2, 3), None), "ceil_mode": True}),
    ((2, 8, 9, 8), window((3, 2), 2, 1, (2, 1))),
    ((1, 2, 20, 20), window(17, 1, 0)),  # more than 256 elements in a window
    ((2, 3, 11), window(3, 2, 1, 2)),
    ((2, 4, 5, 6, 7), window(2, 1, (0, 1, 1))),
    ((1, 1, 1, 1), window(1)),
    ((300, 7), window(2)),
]
for shape, how in POOLS:
    n = min(3, len(shape) - 2) or 1
    case(f"max_pool{n}d_with_indices", f"{shape}", drawn(with_ties(*shape)), how, (("self",),))
    if how["dilation"] != 1:
        continue
    how = {name: value for name, value in how.items() if name != "dilation"}
    for more in ({}, {"count_include_pad": False}, {"divisor_override": 7}):
        if "ceil_mode" in how or "count_include_pad" not in more:
            case(f"avg_pool{n}d", f"{shape} {more}", drawn(normal(*shape)), {**how, **more},
                 slack=20)  # fmt: skip
case("avg_pool_backward", "2 dims", drawn(normal(2, 3, 5, 4)),
     {"input_size": (9, 8), "kernel_size": 3, "stride": 2, "padding": 1})  # fmt: skip
case("avg_pool_backward", "beyond", drawn(normal(2, 3, 5, 3)),
     {"input_size": (9, 8), "kernel_size": (2, 3), "stride": None, "ceil_mode": True,
      "count_include_pad": False})  # fmt: skip
case("avg_pool_backward", "1 dim", drawn(normal(2, 3, 4)),
     {"input_size": (9,), "kernel_size": 2, "divisor_override": 3})  # fmt: skip

for shape, sizes in (((2, 3, 9, 8), (4, 5)), ((3, 7), (10,)), ((2, 3, 5, 4, 6), (2, 2, 4)),
                     ((300, 7), (3,)), ((1, 2, 20, 20), (3, 7))):  # fmt: skip
    case(f"adaptive_max_pool{len(sizes)}d_with_indices", f"{shape}", drawn(with_ties(*shape)),
         {"sizes": sizes}, (("self",),))  # fmt: skip

for shape, kernel, sizes in (
    ((2, 3, 9, 8), (2, 3), (4, 5)), ((3, 7, 6), (1, 2), (7, 1)),
    ((2, 3, 5, 4, 6), (2, 2, 1), (2, 3, 4)), ((1, 2, 20, 21), (5, 4), (3, 17)),
    ((2, 2, 4, 300), (4, 2), (1, 255)),
):  # fmt: skip
    case(f"fractional_max_pool{len(sizes)}d_with_indices", f"{shape}",
         drawn(with_ties(*shape), chances(*shape[: -len(sizes)], len(sizes))),
         {"kernel_size": kernel, "sizes": sizes}, (("self",),))  # fmt: skip

# Scores -------------------------------------------------------------------------------------------


def labels(classes: int, *shape: int) -> Callable[[Any], Any]:
    """Targets, one in ten of which is to be ignored."""
    return lambda rng: np.where(rng.random(shape) < 0.1, -100, rng.integers(0, classes, shape))


SCORES = [
    ((5, 7), -1),
    ((9, 64), 1),
    ((3, 200), 1),
    ((2, 4100), 1),
    ((2, 16500), 1),
    ((3, 40, 5), 1),
    ((70, 2), 0),
    ((4, 1), 1),
]
for shape, dim in SCORES:
    for name in ("softmax", "log_softmax"):
        case(name, f"{shape} {dim}", drawn(normal(*shape)), {"dim": dim}, slack=10)
        case(f"{name}_backward", f"{shape} {dim}", drawn(normal(*shape), normal(*shape)),
             {"dim": dim}, slack=40)  # fmt: skip
case("softmax", "infinite", lambda rng: [np.array([[-np.inf, 1.0, 2.0], [-np.inf] * 3])],
     {"dim": 1})  # fmt: skip

# scores, classes, weights
ENTROPIES: list[tuple[tuple[int, ...], int, bool]] = [
    ((5, 75), 75, False), ((5, 7), 7, False), ((2, 4101), 4101, True), ((300, 16), 16, True),
    ((4, 1100), 1100, False), ((3, 6, 4, 5), 6, True), ((9,), 9, True),
]  # fmt: skip
for shape, classes, weighed in ENTROPIES:
    lead = shape[:1] if len(shape) > 1 else ()
    vector = (lambda rng, n=classes: rng.random(n)) if weighed else None
    operands = [normal(*shape), labels(classes, *lead, *shape[2:]), vector]
    for reduction, smoothing in (("mean", 0.0), ("none", 0.1), ("sum", 0.1)):
        how = {"reduction": reduction, "label_smoothing": smoothing}
        case("cross_entropy", f"{shape} {reduction}", drawn(*operands), how, slack=20)
        g = normal(*lead, *shape[2:]) if reduction == "none" else normal()
        rows = shape[0] if lead else 1, 1, prod(shape[2:])
        case("nll_loss", f"{shape} {reduction}", drawn(*operands), {"reduction": reduction},
             slack=20)  # fmt: skip
        case("nll_loss_backward", f"{shape} {reduction}", drawn(g, *operands[1:], normal()),
             {"reduction": reduction, "input_shape": shape})  # fmt: skip
        case(
            "cross_entropy_backward",
            f"{shape} {reduction}",
            drawn(g, *operands, normal(), moments(*rows), moments(*rows)),
            how,
            slack=40,
        )

none = [normal(5, 7), labels(7, 5), lambda rng: np.zeros(7)]  # all classes weigh nothing
nothing: Any = lambda rng: np.zeros(())
for smoothing in (0.0, 0.1):
    how = {"reduction": "mean", "label_smoothing": smoothing}
    case("cross_entropy", f"no weights {smoothing}", drawn(*none), how)
    case("cross_entropy_backward", f"no weights {smoothing}",
         drawn(normal(), *none, nothing, moments(5, 1, 1), moments(5, 1, 1)), how)  # fmt: skip
case("nll_loss", "no weights", drawn(*none), {"reduction": "mean"})
case("nll_loss_backward", "no weights", drawn(normal(), *none[1:], nothing),
     {"reduction": "mean", "input_shape": (5, 7)})  # fmt: skip

# Places -------------------------------------------------------------------------------------------


def whole_numbers(below: int, *shape: int, least: int = 0) -> Callable[[Any], Any]:
    return lambda rng: rng.integers(least, below, shape)


def bytes_for(count: int) -> Callable[[Any], Any]:
    return lambda rng: rng.integers(0, 256, -(-count // 8)).astype(np.uint8)


for shape in ((3, 8), (5, 7), (300, 4), (1,)):
    case("native_dropout", f"{shape}", drawn(normal(*shape), bytes_for(prod(shape))),
         {"mask_shape": shape, "p": 0.3})  # fmt: skip
GATHERS: list[tuple[tuple[int, ...], tuple[int, ...], int]] = [
    ((5, 9), (5, 3), 1), ((40, 3, 5), (7, 3, 5), 0), ((2, 300), (2, 1), 1), ((4,), (9,), 0),
    ((6, 4, 3), (5, 2, 3), 1),
]  # fmt: skip
for shape, few, dim in GATHERS:
    case("gather", f"{shape} {dim}", drawn(normal(*shape), whole_numbers(shape[dim], *few)),
         {"dim": dim})  # fmt: skip
    case("gather_backward", f"{shape} {dim}",
         drawn(normal(*few), whole_numbers(shape[dim], *few)),
         {"shape": shape, "dim": dim})  # fmt: skip
for shape, width, n, padding in (((3, 4), 5, 6, -1), ((600,), 8, 20, 3), ((2,), 1100, 9, -1),
                                 ((70,), 300, 3, 1)):  # fmt: skip
    case("embedding_dense_backward", f"{shape}",
         drawn(normal(*shape, width), whole_numbers(n, *shape)),
         {"num_weights": n, "padding_idx": padding}, slack=20)  # fmt: skip

# Grids --------------------------------------------------------------------------------------------

for size, places, half, factors in (((5,), (12,), 0.0, None), ((4, 3), (8, 9), 0.0, None),
                                    ((7, 8), (3, 20), 0.5, None), ((300, 2), (37, 5), 0.5, None),
                                    ((4, 5, 3), (9, 5, 2), 0.0, None),
                                    ((6, 6), (9, 7), 0.0, (1 / 1.6, 1 / 1.2))):  # fmt: skip
    steps = tuple(float(np.float32(n / m)) for n, m in zip(size, places))
    steps = steps if factors is None else tuple(float(np.float32(f)) for f in factors)
    case("upsample_nearest", f"{size} {places}", drawn(normal(2, 3, *size)),
         {"sizes": places, "steps": steps, "half": half})  # fmt: skip
    case("upsample_nearest_backward", f"{size} {places}", drawn(normal(2, 3, *places)),
         {"sizes": size, "steps": steps, "half": half}, slack=20)  # fmt: skip
case("upsample_nearest", "bytes", drawn(whole_numbers(9, 2, 3, 5, 7)),
     {"sizes": (6, 9), "steps": (5 / 6, 7 / 9), "half": 0.0})  # fmt: skip

# Scans --------------------------------------------------------------------------------------------

# lines of a warp's width and of some, of a block's, and side by side
SCANS = [((3, 40), 1), ((2, 1), 1), ((2, 2300), 1), ((3, 5, 7), 1), ((33, 4), 0), ((600, 2), 0)]
for shape, dim in SCANS:
    for name in ("cumsum", "cumprod", "logcumsumexp"):
        near_one: Any = lambda rng, s=shape: rng.random(s) * 0.4 + 0.8
        values = near_one if name == "cumprod" else normal(*shape)
        case(name, f"{shape} {dim}", drawn(values), {"dim": dim}, (("self",),), slack=300)
    for name in ("cummax", "cummin"):
        case(name, f"{shape} {dim}", drawn(with_ties(*shape)), {"dim": dim})
    for name in ("max", "min", "argmax", "argmin"):
        case(name, f"{shape} {dim}", drawn(with_ties(*shape)),
             {"dim": dim, "keepdim": shape[dim] == 40})  # fmt: skip
case("cumprod", "zeros", lambda rng: [np.array([[2.0, 0.0, 3.0, 0.0, 5.0]])], {"dim": 1},
     (("self",),))  # fmt: skip
for shape, dim in SCANS:
    values = lambda rng, s=shape: rng.random(s) * 0.4 + 0.8
    for over in (dim, None):
        if prod(shape) > 2:
            how = {"dim": over, "keepdim": dim == 0}
            case("prod", f"{shape} {how}", drawn(values), how, (("self",),), forward=False,
                 slack=300)  # fmt: skip
for shape, dim in (((2, 16386), 1), ((1 << 15,), None), ((20000, 2), 0), ((2, 18000, 3), 1)):
    values = lambda rng, s=shape: rng.random(s) * 0.002 + 0.999
    case("prod", f"{shape} by parts", drawn(values), {"dim": dim}, (("self",),), forward=False,
         slack=3000)  # fmt: skip
long_lines = np.tile(np.array([2.0, 0.5, 1.25, 0.8]), (3, 4100))
long_lines[[1, 2, 2], [7, 9, 16390]] = 0.0
case("prod", "zeros in parts", lambda rng, x=long_lines: [x], {"dim": 1}, (("self",),),
     forward=False, slack=3000)  # fmt: skip
zeros = np.array([[2.0, 0.5, 3.0, 4.0], [0.0, 0.5, 3.0, 4.0], [2.0, 0.0, 3.0, 0.0]])
case("prod", "zeros", lambda rng, zeros=zeros: [zeros], {"dim": 1}, (("self",),), forward=False)
case("logcumsumexp", "infinite", lambda rng: [np.array([[-np.inf, -np.inf, 1.0, np.inf, 2.0]])],
     {"dim": 1})  # fmt: skip

# Order --------------------------------------------------------------------------------------------

# lines of one element, of fewer than a warp has threads, of a block's, and side by side
ORDERS = [((3, 70), 1), ((5, 1), 1), ((300, 3), 1), ((2, 2000), 1), ((3, 9, 4), 1), ((40, 5), 0)]
for shape, dim in ORDERS:
    for down in (False, True):
        how = {"dim": dim, "descending": down, "stable": True}
        for name in ("sort", "argsort"):
            case(name, f"{shape} {dim} {down}", drawn(with_ties(*shape)), how,
                 (("self",),) if name == "sort" else ())  # fmt: skip
        k = (shape[dim] + 2) // 3
        case("topk", f"{shape} {dim} {down}", drawn(normal(*shape)),
             {"k": k, "dim": dim, "largest": down})  # fmt: skip
    for keepdim in (False, True):
        case("kthvalue", f"{shape} {dim} {keepdim}", drawn(normal(*shape)),
             {"k": (shape[dim] + 2) // 3, "dim": dim, "keepdim": keepdim})  # fmt: skip
        case("median", f"{shape} {dim} {keepdim}", drawn(few_nan(*shape)),
             {"dim": dim, "keepdim": keepdim})  # fmt: skip
for dtype in ("int64", "int32", "uint8", "bool"):
    few: Any = lambda rng, kind=dtype: rng.integers(0, 5, (3, 50)).astype(kind)
    case("sort", dtype, drawn(few), {"dim": 1, "descending": True, "stable": True})
    case("max", dtype, drawn(few), {"dim": 1})
zeros = np.tile([0.0, -0.0, np.nan, -np.inf, 1.5, -2.0, np.inf, -np.nan], 250)
for dtype in ("float16", "bfloat16", "float32"):
    every: Any = lambda rng, kind=dtype: np.stack([rng.permutation(zeros)] * 2).astype(kind)
    for down in (False, True):
        case("sort", f"{dtype} {down}", drawn(every), {"dim": 1, "descending": down})
for largest in (False, True):  # of parts, the last of which has fewer elements than are wanted
    for k in (5, 1024):
        case("topk", f"long {largest} {k}", drawn(normal(1, 6200)),
             {"k": k, "dim": 1, "largest": largest})  # fmt: skip

# Statistics ---------------------------------------------------------------------------------------

STATISTICS: list[tuple[tuple[int, ...], Any]] = [
    ((5, 7), (1,)), ((9, 64), (1,)), ((2, 4100), (1,)), ((3, 40, 5), (1,)), ((70, 2), (0,)),
    ((3, 4, 5), None),
    ((3, 4, 5), (1, 2)), ((4, 3, 5), (0, 1)), ((2, 37, 5, 4), (2, 3)),
]  # fmt: skip
for shape, dims in STATISTICS:
    how = {"dim": dims, "keepdim": shape == (5, 7)}
    for name in ("sum", "mean") if shape != (3, 40, 5) else ():  # the last dims, or the first
        case(name, f"{shape} {dims}", drawn(normal(*shape)), how, slack=20)
    for name in ("amax", "amin") if dims in ((1,), (1, 2), (2, 3)) else ():
        if shape != (3, 40, 5):
            case(name, f"{shape} {dims}", drawn(with_ties(*shape)), how, (("self",),))
    for order in (2, 1, np.inf, -np.inf) if dims is None or dims[-1] == len(shape) - 1 else ():
        case("linalg_vector_norm", f"{shape} {dims} {order}", drawn(normal(*shape)),
             {"ord": order, **how}, slack=20)  # fmt: skip
    case("logsumexp", f"{shape} {dims}", drawn(normal(*shape)), how, (("self",),), slack=20)
    for name in ("var", "std"):
        case(name, f"{shape} {dims}", drawn(normal(*shape)), {**how, "correction": shape[0] % 2},
             (("self",),), slack=40)  # fmt: skip
        case(f"{name}_mean", f"{shape} {dims}", drawn(normal(*shape)),
             {**how, "correction": shape[0] % 2}, slack=40)  # fmt: skip
# rows that blocks share, and so many before another dim that a block has 32 of them
for shape, dims in (((50001,), None), ((2, 20000), (1,)), ((3, 3, 3000), (1,))):
    for name in ("sum", "mean"):
        case(name, f"{shape} {dims}", drawn(normal(*shape)), {"dim": dims}, slack=200)
    for name in ("amax", "amin"):
        case(name, f"{shape} {dims}", drawn(with_ties(*shape)), {"dim": dims}, (("self",),))
    for order in (2, 1, np.inf):
        case("linalg_vector_norm", f"{shape} {dims} {order}", drawn(normal(*shape)),
             {"ord": order, "dim": dims}, slack=200)  # fmt: skip
for shape in ((1,), (5, 7), (3, 1500), (50001,)):
    for mean in (False, True):
        case("square_total", f"{shape} {mean}", drawn(normal(*shape)), {"mean": mean}, slack=200)
for name in ("max_all", "min_all"):
    case(name, "", drawn(normal(5, 70)), {}, (("self",),))
case("std", "equals", lambda rng: [np.ones((2, 3))], {"dim": (1,)}, (("self",),))
case("logsumexp", "infinite", lambda rng: [np.array([[-np.inf, -np.inf], [1.0, np.inf]])],
     {"dim": (1,)})  # fmt: skip
for shape, dim in (((5, 3), -1), ((3, 4), 0), ((2, 3, 7), 1), ((300, 3), 1)):
    case("linalg_cross", f"{shape}", drawn(normal(*shape), normal(*shape)), {"dim": dim})
for shape, dims in (((5, 7), (1,)), ((3, 40, 5), (1,)), ((5, 70), None)):

    def extremes(rng: Any, shape: Any = shape, dims: Any = dims) -> list[Any]:
        x = with_ties(*shape)(rng)
        return [x, x.max(dims, keepdims=True)]

    case("tie_share", f"{shape} {dims}", extremes, {"dim": dims})
