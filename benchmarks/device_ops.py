"""What the device takes for one op beside PyTorch: large tensors, so that the host is hidden.

Each line is one op forward, or forward and backward, at a size for which a GPU computes longer
than the host launches. Both libraries have equal TF32 settings, off.

    python benchmarks/device_ops.py [--device cuda] [--check] [--quick] [--json FILE] [--only REGEX]

With --quick, and on the CPU, tensors are small: that tries the program and measures nothing.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import common
from benchmarks.common import Line, library, paired

REPEATS = 10  # calls in one reading
Case = Callable[[Any, Any, int], tuple[Callable[..., Any], list[Any]]]


def one(name: str, **keywords: Any) -> Case:
    """An elementwise function, `name` on `lib` or `lib.nn.functional`, of 64 million elements."""

    def case(lib: Any, new: Any, size: int) -> tuple[Callable[..., Any], list[Any]]:
        function = getattr(lib.nn.functional, name, None) or getattr(lib, name)
        return partial(function, **keywords), [new(size, 1024)]

    return case


def two(name: str) -> Case:
    return lambda lib, new, size: (getattr(lib, name), [new(size, 1024), new(size, 1024)])


def layer_norm(lib: Any, new: Any, size: int) -> tuple[Callable[..., Any], list[Any]]:
    function = lib.nn.functional.layer_norm
    return lambda x, w, b: function(x, (1024,), w, b), [new(size, 1024), new(1024), new(1024)]


def rms_norm(lib: Any, new: Any, size: int) -> tuple[Callable[..., Any], list[Any]]:
    return lambda x, w: lib.nn.functional.rms_norm(x, (1024,), w), [new(size, 1024), new(1024)]


def images(new: Any, lib: Any, size: int, channels: int, last: bool) -> Any:
    x = new(max(1, size // 1024), channels, 56, 56)
    return x.detach().to(memory_format=lib.channels_last).requires_grad_() if last else x


def batch_norm(last: bool, channels: int = 64) -> Case:
    def case(lib: Any, new: Any, size: int) -> tuple[Callable[..., Any], list[Any]]:
        function = lib.nn.functional.batch_norm
        x = images(new, lib, size * 4, channels, last)
        operands = [x, new(channels), new(channels)]
        return lambda x, w, b: function(x, None, None, w, b, True), operands

    return case


def group_norm(lib: Any, new: Any, size: int) -> tuple[Callable[..., Any], list[Any]]:
    function = lib.nn.functional.group_norm
    operands = [images(new, lib, size * 4, 64, False), new(64), new(64)]
    return lambda x, w, b: function(x, 8, w, b), operands


def pooled(name: str, last: bool, **keywords: Any) -> Case:
    def case(lib: Any, new: Any, size: int) -> tuple[Callable[..., Any], list[Any]]:
        function = getattr(lib.nn.functional, name)
        return partial(function, **keywords), [images(new, lib, size * 4, 64, last)]

    return case


def convolution(
    channels: int, outputs: int, kernel: int, last: bool, groups: int = 1, stride: int = 1
) -> Case:
    def case(lib: Any, new: Any, size: int) -> tuple[Callable[..., Any], list[Any]]:
        weight = new(outputs, channels // groups, kernel, kernel)
        if last:
            weight = weight.detach().to(memory_format=lib.channels_last).requires_grad_()
        x = images(new, lib, size, channels, last)
        function = partial(
            lib.nn.functional.conv2d, stride=stride, padding=kernel // 2, groups=groups
        )
        return function, [x, weight]

    return case


def linear(lib: Any, new: Any, size: int) -> tuple[Callable[..., Any], list[Any]]:
    return lib.nn.functional.linear, [new(size // 8, 1024), new(4096, 1024), new(4096)]


def words(lib: Any, new: Any, size: int) -> tuple[Callable[..., Any], list[Any]]:
    """The last layer of GPT-2 small: its rows begin at multiples of 2 bytes in half precision."""
    count = 50257 if size > 1024 else 65
    return lib.nn.functional.linear, [new(size // 8, 768), new(count, 768)]


def attention(causal: bool, way: str = "") -> Case:
    """By a way of `SDPBackend`, of those that are enabled if it is not said."""

    def case(lib: Any, new: Any, size: int) -> tuple[Callable[..., Any], list[Any]]:
        shape = (max(1, size // 8192), 12, 1024 if size > 1024 else 32, 64)
        function = partial(lib.nn.functional.scaled_dot_product_attention, is_causal=causal)
        operands = [new(*shape), new(*shape), new(*shape)]
        if not way:
            return function, operands
        choice = lib.nn.attention

        def chosen(*operands: Any) -> Any:
            with choice.sdpa_kernel(getattr(choice.SDPBackend, way)):
                return function(*operands)

        return chosen, operands

    return case


def cross_entropy(lib: Any, new: Any, size: int) -> tuple[Callable[..., Any], list[Any]]:
    x = new(max(2, size // 16), 50257 if size > 1024 else 64)
    labels = lib.zeros(x.shape[0], dtype=lib.int64, device=x.device)
    return lambda x: lib.nn.functional.cross_entropy(x, labels), [x]


def embedding(lib: Any, new: Any, size: int) -> tuple[Callable[..., Any], list[Any]]:
    words = new(50257 if size > 1024 else 64, 1024)
    numbers = lib.arange(size, device=words.device) * 7919 % words.shape[0]
    return lambda w: lib.nn.functional.embedding(numbers, w), [words]


def gathered(lib: Any, new: Any, size: int) -> tuple[Callable[..., Any], list[Any]]:
    x = new(size, 1024)
    rows = lib.arange(size, device=x.device) * 7919 % size
    return lambda x: x[rows], [x]


def of_a_graph(lib: Any, new: Any, size: int) -> tuple[Callable[..., Any], list[Any]]:
    """What a layer of a graph network adds up: ten neighbours of each node, with 64 features."""
    x = new(size, 64)
    edges = lib.arange(size * 10, device=x.device)
    places = lib.stack([edges % size, edges * 7919 % size])
    matrix = lib.sparse_coo_tensor(
        places, lib.ones(size * 10, device=x.device, dtype=x.dtype), (size, size),
        check_invariants=False,
    ).coalesce()  # fmt: skip
    return lambda x: lib.sparse.mm(matrix, x), [x]


CASES: dict[str, Case] = {
    "exp": one("exp"), "sigmoid": one("sigmoid"), "gelu": one("gelu"), "silu": one("silu"),
    "relu": one("relu"), "softmax": one("softmax", dim=-1),
    "log_softmax": one("log_softmax", dim=-1),
    "dropout": one("dropout", p=0.1, training=True), "cumsum": one("cumsum", dim=-1),
    "sum": one("sum"), "sum_columns": one("sum", dim=0), "sum_rows": one("sum", dim=1),
    "amax_rows": one("amax", dim=1), "var_rows": one("var", dim=1),
    "add": two("add"), "mul": two("mul"), "where": lambda lib, new, size: (
        lambda x, y: lib.where(x > 0, x, y), [new(size, 1024), new(size, 1024)]),
    "copy_transposed": lambda lib, new, size: (lambda x: x.t().contiguous(), [new(size, 1024)]),
    "cat": lambda lib, new, size: (
        lambda x, y: lib.cat([x, y], 1), [new(size, 512), new(size, 512)]),
    "broadcast_add": lambda lib, new, size: (lib.add, [new(size, 1024), new(1024)]),
    "layer_norm": layer_norm, "rms_norm": rms_norm, "group_norm": group_norm,
    "batch_norm": batch_norm(False), "batch_norm_last": batch_norm(True),
    "batch_norm_last_256": batch_norm(True, 256),
    "max_pool": pooled("max_pool2d", False, kernel_size=3, stride=2, padding=1),
    "max_pool_last": pooled("max_pool2d", True, kernel_size=3, stride=2, padding=1),
    "avg_pool_last": pooled("adaptive_avg_pool2d", True, output_size=1),
    "conv_3x3": convolution(64, 64, 3, False), "conv_3x3_last": convolution(64, 64, 3, True),
    "conv_1x1_last": convolution(64, 256, 1, True),
    "conv_3x3_strided_last": convolution(128, 128, 3, True, stride=2),
    "conv_depthwise": convolution(64, 64, 3, False, groups=64),
    "linear": linear, "linear_words": words,
    "attention": attention(False), "attention_causal": attention(True),
    "attention_cudnn": attention(True, "CUDNN_ATTENTION"),
    "cross_entropy": cross_entropy, "embedding": embedding, "index_rows": gathered,
    "sparse_mm": of_a_graph,
    "sort": lambda lib, new, size: (lambda x: lib.sort(x, dim=-1)[0], [new(size // 4, 1024)]),
    "topk": lambda lib, new, size: (lambda x: lib.topk(x, 8, dim=-1)[0], [new(size // 4, 1024)]),
}  # fmt: skip


def timed(lib: Any, device: str, call: Callable[[], Any]) -> float:
    """Microseconds a call, until the device is done."""
    synchronize = lib.cuda.synchronize if device == "cuda" else lambda: None
    synchronize()
    start = perf_counter()
    for _ in range(REPEATS):
        call()
    synchronize()
    return (perf_counter() - start) / REPEATS * 1e6


def prepared(lib: Any, case: Case, dtype: str, backward: bool, device: str, size: int) -> Any:
    """The call to measure, made and tried once."""
    kind = getattr(lib, dtype)

    def new(*shape: int) -> Any:
        x = lib.randn(*shape, device=device).to(kind)
        return x.requires_grad_(backward)

    function, operands = case(lib, new, size)
    if not backward:
        return lambda: function(*operands)
    y = function(*operands)
    grad = lib.ones_like(y)
    del y
    return lambda: lib.autograd.grad(function(*operands), operands, grad)


def titled(name: str, dtype: str, backward: bool) -> str:
    return f"{name}_{dtype}{'_backward' if backward else ''}"


def measured(name: str, case: Case, dtype: str, backward: bool, options: Any, libs: Any) -> Line:
    """One line; what fails is its note."""
    line = Line(titled(name, dtype, backward), "us/op")
    size = 64 if options.quick or options.device == "cpu" else 1 << 16
    try:
        calls = []
        for lib in filter(None, libs):
            call = prepared(lib, case, dtype, backward, options.device, size)
            for _ in range(2):
                timed(lib, options.device, call)
            calls.append(partial(timed, lib, options.device, call))
        paired(line, calls[0], calls[1] if len(calls) > 1 else None, options.rounds or 3)
    except Exception as error:  # the others are measured nevertheless
        line.ours, line.theirs = [], []
        line.note = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
    return line


def main() -> int:
    options = common.arguments(__doc__.splitlines()[0]).parse_args()
    libs = library("cugrad"), library("torch")
    if libs[1] is not None and options.device == "cuda" and not libs[1].cuda.is_available():
        libs = libs[0], None
    lines: list[Line] = []
    for name, case in CASES.items():
        for dtype in ("float32", "bfloat16"):
            for backward in (False, True):
                if not re.search(options.only, titled(name, dtype, backward)):
                    continue
                lines.append(measured(name, case, dtype, backward, options, libs))
                if options.json:
                    text = json.dumps({"lines": [line.as_json() for line in lines]}, indent=1)
                    options.json.write_text(text + "\n")
        if options.device == "cuda":
            for lib in filter(None, libs):
                lib.cuda.empty_cache()
    return common.report(lines, options)


if __name__ == "__main__":
    sys.exit(main())
