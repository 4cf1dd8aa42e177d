"""Kernels reach what lies beyond 2^31 elements: the last blocks of each kernel run from its source,
on memory that is promised and never touched. What leaves its arrays is reported, and any sum or
product of indices that overflows.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator
from math import prod
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cupy", reason="CuPy is not installed")
pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")

import cugrad
from cugrad.backends import get
from cugrad.ops.table import TABLE, raw
from tests.backends import cuda_toolchain as toolchain
from tests.backends.written_cases import NO_KERNELS
from tests.support import fake_cublas, fake_cuda, fake_pools

pytestmark = pytest.mark.host_only

MANY, N = 2**15 + 1, 2**16 + 8  # rows and what they have: more than 2^31 together
ROWS, CUBE = (MANY, N), (MANY, 8, N // 8)
CHANNELS = (9, 2**20, 228)
PLANES, FLAT = (2**10 + 1, 2**9, 64, 64), (3, 2**19, 37, 37)
ONES, WINDOW = (1, 1), {"kernel_size": 3, "stride": 1, "padding": 1}
SOME: dict[str, Any] = {"dim": 1, "keepdim": False}
BY: dict[str, Any] = {"stride": ONES, "padding": ONES, "dilation": ONES}
LOSS: dict[str, Any] = {"reduction": "mean", "ignore_index": -100}
HALF, SINGLE, INDEX, BYTE = "float16", "float32", "int64", "uint8"
Made = tuple[tuple[int, ...], str]


def halves(*shapes: tuple[int, ...]) -> list[Made]:
    return [(shape, HALF) for shape in shapes]


def lasting(*shapes: tuple[int, ...]) -> list[Any]:
    """Of four dims, with channels that lie last."""
    return [(shape, HALF, "last") for shape in shapes]


# row, operands (shape and dtype), parameters
FORWARD: list[tuple[str, list[Any], dict[str, Any]]] = [
    ("native_layer_norm", halves(ROWS, (N,), (N,)), {"normalized_shape": (N,)}),
    ("rms_norm", halves(ROWS, (N,)), {"normalized_shape": (N,)}),
    ("native_layer_norm_backward",
     [*halves(ROWS, ROWS, (N,)), ((MANY, 1), SINGLE), ((MANY, 1), SINGLE)],
     {"normalized_shape": (N,)}),
    ("rms_norm_backward", [*halves(ROWS, ROWS, (N,)), ((MANY, 1), SINGLE)],
     {"normalized_shape": (N,)}),
    ("native_group_norm", halves(CHANNELS, (2**20,), (2**20,)), {"num_groups": 2**19}),
    ("native_batch_norm", halves(CHANNELS, (2**20,), (2**20,)), {}),
    ("native_batch_norm", halves((2**11 + 1, 2**20), (2**20,), (2**20,)), {}),
    ("batch_norm_inference", halves(CHANNELS, *[(2**20,)] * 4), {}),
    ("linear", halves((2**21 + 1, 2), (2**10, 2), (2**10,)), {}),
    ("convolution", [*halves((1, 600, 640, 640), (1, 600, 3, 3)), None], {**BY, "groups": 1}),
    ("convolution_input", halves((1, 1, 640, 640), (1, 600, 3, 3)),
     {**BY, "groups": 1, "input_size": (640, 640)}),
    ("convolution_weight", halves((1, 1, 640, 640), (1, 600, 640, 640)),
     {**BY, "groups": 1, "kernel_size": (3, 3)}),
    ("convolution", [*lasting((1, 600, 640, 640), (1, 600, 3, 3)), None], {**BY, "groups": 1}),
    ("convolution_input", lasting((1, 1, 640, 640), (1, 600, 3, 3)),
     {**BY, "groups": 1, "input_size": (640, 640)}),
    ("convolution_weight", lasting((1, 1, 640, 640), (1, 600, 640, 640)),
     {**BY, "groups": 1, "kernel_size": (3, 3)}),
    ("convolution", halves(PLANES, (512, 1, 3, 3), (512,)), {**BY, "groups": 512}),
    ("convolution_input", halves(PLANES, (512, 1, 3, 3)),
     {**BY, "groups": 512, "input_size": (64, 64)}),
    ("convolution_weight", halves(FLAT, FLAT), {**BY, "groups": 2**19, "kernel_size": (3, 3)}),
    ("convolution", [*lasting(PLANES), *halves((512, 1, 3, 3), (512,))], {**BY, "groups": 512}),
    ("convolution_input", [*lasting(PLANES), *halves((512, 1, 3, 3))],
     {**BY, "groups": 512, "input_size": (64, 64)}),
    ("convolution_weight", lasting(FLAT, FLAT), {**BY, "groups": 2**19, "kernel_size": (3, 3)}),
    ("convolution", halves(PLANES, (512, 2, 3, 3), (512,)), {**BY, "groups": 256}),
    ("convolution_input", halves(PLANES, (512, 2, 3, 3)),
     {**BY, "groups": 256, "input_size": (64, 64)}),
    ("max_pool2d_with_indices", halves(PLANES), WINDOW),
    *[(name, lasting(PLANES), {**WINDOW, **more}) for name, more in (
        ("max_pool2d_with_indices", {}), ("avg_pool2d", {}),
        ("avg_pool_backward", {"input_size": (64, 64)}))],
    ("adaptive_max_pool2d_with_indices", halves(PLANES), {"sizes": (60, 60)}),
    ("fractional_max_pool2d_with_indices", [(PLANES, HALF), ((*PLANES[:2], 2), SINGLE)],
     {"kernel_size": (3, 3), "sizes": (60, 60)}),
    ("avg_pool2d", halves(PLANES), WINDOW),
    ("avg_pool_backward", halves(PLANES), {**WINDOW, "input_size": (64, 64)}),
    *[(name, halves(shape), {"dim": 1}) for name in ("softmax", "log_softmax")
      for shape in (ROWS, CUBE)],
    *[(name, halves(ROWS, ROWS), {"dim": 1})
      for name in ("softmax_backward", "log_softmax_backward")],
    *[(name, halves(shape), {"dim": (1,)}) for name in ("logsumexp", "var", "std")
      for shape in (ROWS, CUBE)],
    ("cross_entropy", [(ROWS, HALF), ((MANY,), INDEX), None], LOSS),
    ("cross_entropy_backward",
     [((), HALF), (ROWS, HALF), ((MANY,), INDEX), None, ((), HALF), ((MANY, 1, 1), SINGLE),
      ((MANY, 1, 1), SINGLE)], LOSS),
    ("nll_loss", [(ROWS, HALF), ((MANY,), INDEX), None], LOSS),
    ("nll_loss_backward", [((), HALF), ((MANY,), INDEX), None, ((), HALF)],
     {**LOSS, "input_shape": ROWS}),
    ("native_dropout", [(ROWS, HALF), ((-(-MANY * N // 8),), BYTE)],
     {"mask_shape": ROWS, "p": 0.5}),
    ("gather", [(ROWS, HALF), (ROWS, INDEX)], {"dim": 1}),
    ("gather_backward", [((MANY, 2), HALF), ((MANY, 2), INDEX)], {"shape": ROWS, "dim": 1}),
    ("gather_backward", [((MANY, 40), HALF), ((MANY, 40), INDEX)], {"shape": ROWS, "dim": 1}),
    ("gather_backward", [((MANY, 2100), SINGLE), ((MANY, 2100), INDEX)],
     {"shape": ROWS, "dim": 1}),
    ("scatter", [(ROWS, HALF), ((MANY, 40), INDEX), ((MANY, 40), HALF)], {"dim": 1}),
    ("scatter_zero", [(ROWS, HALF), (ROWS, INDEX)], {"dim": 1}),
    ("scatter_add", [(ROWS, HALF), ((MANY, 40), INDEX), ((MANY, 40), HALF)], {"dim": 1}),
    *[(name, [(ROWS, HALF), (shape, INDEX), *more], {"dim": 0})  # the first of each row
      for shape in ((MANY, N - 1), (40, N - 1), (2, N - 1))
      for name, more in (("gather", []), ("scatter", [(shape, HALF)]))],
    ("scatter_add", [(ROWS, HALF), ((40, N - 1), INDEX), ((40, N - 1), HALF)], {"dim": 0}),
    *[("gather_backward", [((n, N - 1), HALF), ((n, N - 1), INDEX)], {"shape": ROWS, "dim": 0})
      for n in (2, 40)],
    ("im2col", halves((2**14 + 1, 2**8, 16, 16)),
     {"kernel_size": (3, 3), "dilation": ONES, "padding": ONES, "stride": ONES}),
    ("col2im", halves((2**14 + 1, 9 * 2**8, 16 * 16)),
     {"output_size": (16, 16), "kernel_size": (3, 3), "dilation": ONES, "padding": ONES,
      "stride": ONES}),
    *[("scatter_reduce", [(ROWS, HALF), (shape, INDEX), (shape, HALF)],
       {"dim": 1, "reduce": how, "include_self": how == "prod"})
      for how in ("prod", "amax") for shape in ((MANY, 40), ROWS)],
    ("embedding_dense_backward", [((3, N), HALF), ((3,), INDEX)], {"num_weights": MANY}),
    ("index_select_backward", [((MANY, 2), HALF), ((2,), INDEX)], {"shape": ROWS, "dim": 1}),
    ("index_select_backward", [((2, 2**12), HALF), ((2,), INDEX)],
     {"shape": (2**19 + 1, 2**12), "dim": 0}),
    ("index_add", [((2**19 + 1, 2**12), HALF), ((2,), INDEX), ((2, 2**12), HALF)], {"dim": 0}),
    ("index_backward", [((2, 2**12), HALF)],
     {"shape": (2**19 + 1, 2**12), "indices": (((2,), INDEX),)}),
    *[("embedding_dense_backward", [((2**13 + 1, width), HALF), ((2**13 + 1,), INDEX)],
       {"num_weights": n}) for width, n in ((2**18, 3), (2**7, 2**24 + 1))],
    ("index_add", [((2**19 + 1, 2**12), HALF), ((2**13 + 1,), INDEX), ((2**13 + 1, 2**12), HALF)],
     {"dim": 0}),
    ("embedding", [(ROWS, HALF), ((MANY + 1,), INDEX)], {}),
    *[("embedding_bag", [(ROWS, HALF), ((MANY + 1, 1), INDEX), None, None], {"mean": mean})
      for mean in (False, True)],
    ("embedding_bag_max", [(ROWS, HALF), ((MANY + 1,), INDEX), ((MANY,), INDEX)], {}),
    ("embedding_bag_backward", [((3, N), HALF), ((7,), INDEX), ((3,), INDEX), None],
     {"num_weights": MANY}),
    ("embedding_bag_backward", [((2**13 + 1, 2**18), HALF), ((2**13 + 1, 1), INDEX), None, None],
     {"num_weights": 3}),
    ("embedding_bag_weights_backward", [(ROWS, HALF), (ROWS, HALF), ((MANY, 2), INDEX), None], {}),
    *[("index_select", [(shape, HALF), ((n,), INDEX)], {"dim": dim})
      for shape, dim, n in ((ROWS, 0, MANY), (CUBE, 1, 9), ((N,), 0, 2**31 + 3))],
    ("index", halves(ROWS), {"indices": (((MANY,), INDEX),)}),
    *[(name, [halves(*shapes)], {"dim": 1}) for name, shapes in (
        ("cat", (ROWS, (MANY, 1))), ("cat", ((2, 2**30), (2, 2**30 + 3), (2, 5))),
        ("stack", (ROWS, ROWS)))],
    *[(name, halves(shape), {"dim": 1})
      for name in ("cumsum", "cumprod", "logcumsumexp", "cummax", "cummin")
      for shape in (ROWS, CUBE)],
    *[(name, halves(shape), SOME) for name in ("max", "min", "argmax", "argmin")
      for shape in (ROWS, CUBE)],
    ("sort", halves((2**20 + 1, 2048)), {"dim": 1}),
    ("argsort", halves((2**20 + 1, 2048)), {"dim": 1}),
    ("topk", halves(ROWS), {"dim": 1, "k": 3}),
    ("kthvalue", halves((2**20 + 1, 2048)), {**SOME, "k": 3}),
    ("median", halves((2**20 + 1, 2048)), SOME),
    *[(name, halves((*lead, 2**21 + 1, 2), (*lead, 2, 2**10)), {})
      for name, lead in (("mm", ()), ("bmm", (1,)), ("matmul", ()))],
    *[(name, halves(ROWS), {"dim": dim}) for name in ("sum", "mean") for dim in ((0,), (1,))],
    *[(name, halves(ROWS), {}) for name in ("sum", "mean", "max_all", "min_all")],
    *[("linalg_vector_norm", halves(ROWS), {"dim": dim}) for dim in ((1,), None)],
    *[(name, halves(CUBE), {"dim": dim}) for name in ("amax", "amin") for dim in ((1,), (2,))],
    ("index", halves((2**10 + 1, 2**11, 2**10)),
     {"indices": (((2**21 + 1,), INDEX), ((2**21 + 1,), INDEX))}),
    ("index", halves((2**16 + 1, 2**15)), {"indices": (((2**31 + 3,), INDEX), ((1,), INDEX))}),
    ("index_backward", [((2, 2**12), HALF)],
     {"shape": (2**10 + 1, 2**9, 2**12), "indices": (((2,), INDEX), ((2,), INDEX))}),
    ("index_put", halves(ROWS, (MANY, N)), {"indices": (((MANY,), INDEX),)}),
    ("index_put", halves((2**10 + 1, 2**11, 2**10), ()),
     {"indices": (((2**21 + 1,), INDEX), ((2**21 + 1,), INDEX))}),
    ("index_put", halves(ROWS, (3, N)), {"indices": (((3,), INDEX),), "accumulate": True}),
    ("index_zero", halves(CUBE), {"indices": (((MANY,), INDEX),)}),
    ("named_by", [((2**31 + 3,), INDEX)], {"size": 2**31 + 5}),
    ("one_hot", [((MANY,), INDEX)], {"num_classes": N}),
    *[(name, halves(shape), {"diagonal": 5})
      for name in ("tril", "triu") for shape in (ROWS, CUBE)],
    ("clone", halves(ROWS), {"order": "C"}), ("unsafe_view", halves(ROWS), {"shape": (-1,)}),
    ("to_dtype", halves(ROWS), {"dtype": np.dtype(SINGLE)}),
    ("linalg_cross", halves((2**20 + 1, 3, 2**10), (2**20 + 1, 3, 2**10)), {"dim": 1}),
    *[(name, halves(ROWS), {"dim": (1,)}) for name in ("var_mean", "std_mean")],
    ("square_total", halves(ROWS), {"mean": True}),
    ("tie_share", halves(ROWS, (MANY, 1)), {"dim": (1,)}),
    *[(name, halves(PLANES), {"pad": ((0, 0), (0, 0), (1, 1), (1, 1)), "mode": mode})
      for name in ("pad_edges", "pad_edges_backward") for mode in ("reflect", "circular")],
    *[("unfold_backward", halves((*ROWS[:at], 2, *ROWS[at + 1 :], 3)),
       {"shape": ROWS, "dimension": at, "size": 3, "step": 2}) for at in (0, 1)],
    *[("upsample_nearest", make((*PLANES[:2], 32, 32)),
       {"sizes": (64, 64), "steps": (0.5, 0.5), "half": 0.0}) for make in (halves, lasting)],
    *[("upsample_nearest_backward", make(PLANES),
       {"sizes": (128, 128), "steps": (2.0, 2.0), "half": 0.5}) for make in (halves, lasting)],
    ("histc", halves((2**30,)), {"bins": 2**31 - 2**21, "low": 0.0, "high": 1.0}),
    ("max_pool_indices", [(PLANES, BYTE)], {**BY, "input_size": (64, 64), "kernel_size": (3, 3)}),
    ("max_pool_gather", [(PLANES, HALF), ((*PLANES[:2], 32, 32), INDEX)], {"n": 2}),
    *[("max_pool_backward", [((*PLANES[:2], 32, 32), HALF), ((*PLANES[:2], 32, 32), INDEX)],
       {"input_size": (64, 64), "overlap": overlap}) for overlap in (False, True)],
    ("add", halves(ROWS, ROWS), {}),
    ("add", halves(ROWS, (N,)), {}),
    ("add", halves((N, MANY), (N, 1)), {}),
    ("gelu", halves((2**31 + 5,)), {}),
]  # fmt: skip

# row, the gradient, what is saved by the name of an input or output, inputs' shapes, parameters
BACKWARD: list[tuple[str, Made, dict[str, Made], list[tuple[int, ...]], dict[str, Any]]] = [
    ("linear", ((2**21 + 1, 2**10), HALF),
     {"input": ((2**21 + 1, 2), HALF), "weight": ((2**10, 2), HALF)},
     [(2**21 + 1, 2), (2**10, 2), (2**10,)], {}),
    *[(name, ((*lead, 2**21 + 1, 2**10), HALF),
       {"self": ((*lead, 2**21 + 1, 2), HALF), second: ((*lead, 2, 2**10), HALF)},
       [(*lead, 2**21 + 1, 2), (*lead, 2, 2**10)], {})
      for name, second, lead in (("mm", "mat2", ()), ("bmm", "mat2", (1,)),
                                 ("matmul", "other", ()))],
    ("native_layer_norm", (ROWS, HALF),
     {"input": (ROWS, HALF), "weight": ((N,), HALF), "mean": ((MANY, 1), SINGLE),
      "rstd": ((MANY, 1), SINGLE)}, [ROWS, (N,), (N,)], {"normalized_shape": (N,)}),
    ("rms_norm", (ROWS, HALF),
     {"input": (ROWS, HALF), "weight": ((N,), HALF), "rstd": ((MANY, 1), SINGLE)},
     [ROWS, (N,)], {"normalized_shape": (N,)}),
    ("native_group_norm", (CHANNELS, HALF),
     {"input": (CHANNELS, HALF), "weight": ((2**20,), HALF), "mean": ((9, 2**19), SINGLE),
      "rstd": ((9, 2**19), SINGLE)}, [CHANNELS, (2**20,), (2**20,)], {"num_groups": 2**19}),
    ("native_batch_norm", (CHANNELS, HALF),
     {"input": (CHANNELS, HALF), "weight": ((2**20,), HALF), "mean": ((2**20,), SINGLE),
      "invstd": ((2**20,), SINGLE)}, [CHANNELS, (2**20,), (2**20,)], {}),
    ("batch_norm_inference", (CHANNELS, HALF),
     {"input": (CHANNELS, HALF), "weight": ((2**20,), HALF), "running_mean": ((2**20,), SINGLE),
      "running_var": ((2**20,), SINGLE)}, [CHANNELS, *[(2**20,)] * 4], {}),
    ("max_pool2d_with_indices", (PLANES, HALF), {"offsets": (PLANES, BYTE)}, [PLANES], WINDOW),
    ("adaptive_max_pool2d_with_indices", ((*PLANES[:2], 60, 60), HALF),
     {"indices": ((*PLANES[:2], 60, 60), "uint16")}, [PLANES], {"sizes": (60, 60)}),
    ("fractional_max_pool2d_with_indices", ((*PLANES[:2], 60, 60), HALF),
     {"indices": ((*PLANES[:2], 60, 60), "uint16")}, [PLANES, (*PLANES[:2], 2)],
     {"kernel_size": (3, 3), "sizes": (60, 60)}),
    *[(name, ((MANY,), HALF), {"self": (ROWS, HALF), "result": ((MANY,), HALF)}, [ROWS],
       {"dim": (1,)}) for name in ("logsumexp", "var", "std", "amax", "amin")],
    *[(name, ((), HALF), {"self": ((5, 9), HALF), "result": ((), HALF)}, [(5, 9)], {})
      for name in ("max_all", "min_all")],
    ("cumsum", (ROWS, HALF), {}, [ROWS], {"dim": 1}),
    ("prod", ((MANY,), HALF), {"self": (ROWS, HALF)}, [ROWS], {"dim": 1}),
    ("prod", (CUBE[::2], HALF), {"self": (CUBE, HALF)}, [CUBE], {"dim": 1}),
    ("sort", (ROWS, HALF), {"indices": (ROWS, INDEX)}, [ROWS], {"dim": 1}),
    *[(name, (ROWS, HALF), {"self": (ROWS, HALF), "result": (ROWS, HALF)}, [ROWS], {"dim": 1})
      for name in ("cumprod", "logcumsumexp")],
    *[("scatter_reduce", (ROWS, HALF),
       {"self": (ROWS, HALF), "index": (shape, INDEX), "src": (shape, HALF),
        "result": (ROWS, HALF)}, [ROWS, shape, shape], {"dim": 1, "reduce": how})
      for how in ("prod", "amax") for shape in ((MANY, 40), ROWS)],
    ("scatter_reduce", (ROWS, HALF),
     {"self": (ROWS, HALF), "index": ((40, N - 1), INDEX), "src": ((40, N), HALF),
      "result": (ROWS, HALF)}, [ROWS, (40, N - 1), (40, N)], {"dim": 0, "reduce": "amax"}),
    ("gelu", (ROWS, HALF), {"self": (ROWS, HALF)}, [ROWS], {}),
    ("mul", (ROWS, HALF), {"self": (ROWS, HALF), "other": ((N,), HALF)}, [ROWS, (N,)], {}),
    ("mul", (ROWS, HALF), {"self": (ROWS, HALF), "other": ((MANY, 1), HALF)}, [ROWS, (MANY, 1)],
     {}),
]  # fmt: skip


if fake_cuda.REAL is None:

    def test_over_the_fake_cuda() -> None:
        toolchain.host_compiler()
        fake_cuda.passed(__file__, fused=True)

    def test_every_written_row_is_run() -> None:
        from cugrad.backends.cupy.written import registry

        maxima = [(kind, "_with_indices") for kind in ("max", "adaptive_max", "fractional_max")]
        pools = [f"{kind}_pool{n}d{more}" for kind, more in (*maxima, ("avg", "")) for n in (1, 3)]
        assert set(registry.FORWARDS) <= {name for name, *_ in FORWARD} | set(pools)
        assert set(registry.BACKWARDS) - NO_KERNELS <= {name for name, *_ in BACKWARD} | set(pools)


else:
    from importlib import import_module

    from cugrad.backends.cupy.written import registry
    from cugrad.backends.cupy.written.sliding import windows
    from cugrad.nn.functional.dot_product_attention import AttentionSettings
    from cugrad.tensor import make
    from tests.support.cuda_on_cpu import Kernel

    attention = import_module("cugrad.backends.cupy.written.attention")
    DEVICE_ARRAY = fake_cuda.ndarray
    LARGE = 1 << 24  # bytes

    def promised(shape: tuple[int, ...], dtype: Any) -> np.ndarray[Any, Any]:
        """Memory whose pages the system has when they are touched."""
        kind, count = np.dtype(dtype), prod(shape)
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000  # MAP_NORESERVE
        memory = mmap.mmap(-1, max(1, count * kind.itemsize), flags=flags)
        return np.frombuffer(memory, kind, count).reshape(shape)

    @pytest.fixture(scope="module", autouse=True)
    def only_the_last_blocks() -> Iterator[None]:
        """Kernels run their last blocks, arrays are promised, and nothing else is computed."""
        begin, start = DEVICE_ARRAY._init, Kernel.__call__

        def begins(
            self: Any, shape: Any, dtype: Any = float, memptr: Any = None, *rest: Any
        ) -> None:
            count = prod(shape) if isinstance(shape, tuple) else 0
            block = memptr if isinstance(memptr, fake_pools.MemoryPointer) else None
            is_new = memptr is None or memptr is fake_cuda.NEW or block is not None
            if not is_new or count * np.dtype(dtype).itemsize < LARGE:
                begin(self, shape, dtype, memptr, *rest)
                if is_new:  # as what is promised
                    self._host.reshape(-1).view(np.uint8)[...] = 0
                return
            begin(self, (0,), dtype)
            self._host = promised(shape, dtype)
            fake_cuda.OWNERS[id(self._host)] = self
            fake_cuda.count(self, True, block)

        def run(self: Kernel, grid: Any, *args: Any, **kwargs: Any) -> None:
            last = prod(grid) - 1
            start(self, grid, *args, **{**kwargs, "only": range(last, last + 1), "races": 0})

        cupy = fake_cuda.sys.modules["cupy"]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(fake_cuda, "CHECKS", True)
            patch.setattr(fake_pools.Driver, "capacity", 2**40)
            patch.setattr(DEVICE_ARRAY, "_init", begins)
            patch.setattr(Kernel, "__call__", run)
            patch.setattr(cupy, "zeros", lambda shape, dtype: DEVICE_ARRAY(shape, dtype))
            patch.setattr(DEVICE_ARRAY, "copy", lambda x, order="C": made((x.shape, x.dtype)),
                          raising=False)  # fmt: skip
            patch.setattr(fake_cublas, "_gemm", lambda *args: None)
            patch.setattr(windows, "WORKSPACE", 1 << 40)
            with fake_cuda.compiled_together():
                for call in calls():
                    call()
            yield

    def made(what: Any) -> Any:
        if what is None:
            return None
        if isinstance(what, list):
            return [*map(made, what)]
        if len(what) > 2:
            n, c, *plane = what[0]
            return DEVICE_ARRAY((n, *plane, c), what[1]).transpose(0, 3, 1, 2)
        return DEVICE_ARRAY(*what)

    def forward_call(name: str, operands: list[Any], params: dict[str, Any]) -> Callable[[], Any]:
        op = TABLE[name]
        full = {**op.defaults, **params}
        if "indices" in params:
            full["indices"] = tuple([made(x) for x in params["indices"]])

        def call() -> Any:
            arrays = [made(x) for x in operands]
            if op.kind == "elementwise":
                return get("cuda").row_function(op)(*arrays, **params)
            return registry.FORWARDS[name](*arrays, *[full.get(p) for p in op.params])

        return call

    def backward_call(
        name: str, g: Made, saved: dict[str, Made], shapes: list[tuple[int, ...]],
        params: dict[str, Any],
    ) -> Callable[[], Any]:  # fmt: skip
        op = TABLE[name]
        mask = (1 << len(shapes)) - 1

        def call() -> Any:
            values = [made(saved[n]) if n in saved else None for n in op.saves(mask)]
            function = get("cuda").gradients_function(op, mask, raw)
            meta = tuple(shapes), {**op.defaults, **params}, (None,) * len(shapes), None, False
            return function and function(made(g), values, meta)

        return call

    def attention_calls() -> list[Callable[[], Any]]:
        """Of many short sequences, with a bit for each of more than 2^31 weights."""
        lead, how = (2**19 + 1, 1), AttentionSettings(0.5, True, 0.125)
        operands = [((*lead, 64, 64), HALF)] * 3

        def call(cores: bool) -> Any:
            attention.has_tensor_cores = lambda device: cores
            arrays = [*map(made, operands), None, made(((prod(lead) * 64 * 64 // 8,), BYTE))]
            results = attention.attention(*arrays, how)
            return attention.attention_backward(made(operands[0]), *arrays, *results, how)

        return [lambda: call(True), lambda: call(False)]

    def more_calls() -> list[Callable[[], Any]]:
        """Sums of columns and means, and the step of an optimizer."""

        def step() -> bool:
            w = make(made((ROWS, SINGLE))).requires_grad_()
            w.grad = make(made((ROWS, SINGLE)))
            cugrad.optim.SGD([w], lr=0.1).step()
            return True

        xp = get("cuda").xp
        return [step, lambda: xp.sum(made((ROWS, HALF)), 0), lambda: xp.mean(made((ROWS, HALF)), 1)]

    def calls() -> list[Callable[[], Any]]:
        return [*[forward_call(*case) for case in FORWARD],
                *[backward_call(*case) for case in BACKWARD], *attention_calls(),
                *more_calls()]  # fmt: skip

    def test_the_last_blocks_of_kernels_stay_in_their_arrays() -> None:
        for k, call in enumerate(calls()):
            assert call() is not None, k
