"""PyTorch's switches: precision, determinism, threads, and the modules of `torch.backends`.

A switch has the effect that it can have here. One that has none says so in its text: what is set is
remembered and changes nothing. `docs/torch-compatibility.md` lists them all.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from types import MappingProxyType
from typing import Any

from .. import backends
from ..backends.numpy import threads as numpy_threads
from ..backends.wanted import wanted
from ..dtypes import bfloat16, float16, float32, float64
from ..tensor import Tensor
from .flags import BackendFlag, Flagged, Flags, Switches
from .precisions import Precision, get_precision, set_precision

__all__ = [
    "are_deterministic_algorithms_enabled", "get_deterministic_debug_mode",
    "get_float32_matmul_precision", "get_num_interop_threads", "get_num_threads",
    "is_deterministic_algorithms_warn_only_enabled", "is_warn_always_enabled",
    "set_deterministic_debug_mode", "set_float32_matmul_precision", "set_flush_denormal",
    "set_num_interop_threads", "set_num_threads", "set_warn_always", "use_deterministic_algorithms",
]  # fmt: skip

# ---------------------------------------------------------------------- precision


class _Chosen:
    precision = "high" if wanted.tf32 else "highest"
    warn_only = False
    warn_always = False
    interop_threads = 1


def set_float32_matmul_precision(precision: str) -> None:
    """How exactly float32 matrices are multiplied on CUDA: "highest", "high" or "medium".

    "highest" is float32; "high" and "medium" let cuBLAS round the operands to TF32, of 10 bits. It
    holds for all that is computed by products, convolutions too, and from the next product on. On a
    CPU, and on the simulated device, products are float32 always. Another word warns, and changes
    nothing.
    """
    if precision not in ("highest", "high", "medium"):
        warnings.warn(
            f"{precision} is not one of 'highest', 'high', or 'medium'; the current"
            "setFloat32MatmulPrecision call has no effect.",
            stacklevel=2,
        )
        return
    set_precision("cuda", "matmul", "ieee" if precision == "highest" else "tf32")
    _Chosen.precision = precision


def get_float32_matmul_precision() -> str:
    """What `set_float32_matmul_precision` set, or any other switch that says so."""
    if wanted.tf32 is not (_Chosen.precision != "highest"):
        _Chosen.precision = "high" if wanted.tf32 else "highest"
    return _Chosen.precision


def _set_tf32(allowed: bool) -> None:
    set_float32_matmul_precision("high" if allowed else "highest")


# ---------------------------------------------------------------------- determinism


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Whether the same program on the same machine gives the same bits in each run.

    On a CPU it always does. On CUDA sums over repeated indices (`index_add`, `scatter_add`, the
    gradient of an embedding or of indexing, `bincount` with weights) are otherwise added in any
    order by atomics, and products by `scatter_reduce` and `index_reduce` are multiplied so; with
    `mode` values are sorted and meet in pairs, which is slower. Of several values that `scatter`,
    `put`, `index_copy` or `x[i] = v` write to one place on CUDA any may stay; with `mode` it is the
    last, as on a CPU. All have a form that is deterministic, so nothing raises as in PyTorch, and
    `warn_only` is remembered and changes nothing. With several streams cuBLAS asks for more: the
    environment variable CUBLAS_WORKSPACE_CONFIG=:4096:8, set before the start. As in PyTorch, what
    `empty` and its like return is filled: nan, the largest integer, True.
    """
    _want_bool("_set_deterministic_algorithms(): argument 'mode' (position 1)", mode)
    _want_bool("_set_deterministic_algorithms(): argument 'warn_only'", warn_only)
    wanted.deterministic, _Chosen.warn_only = mode, warn_only


def _want_bool(what: str, value: object) -> None:
    if not isinstance(value, bool):
        raise TypeError(f"{what} must be bool, not {type(value).__name__}")


def are_deterministic_algorithms_enabled() -> bool:
    """Whether `use_deterministic_algorithms(True)` is in force."""
    return wanted.deterministic


def is_deterministic_algorithms_warn_only_enabled() -> bool:
    """The `warn_only` of `use_deterministic_algorithms`, to which nothing here would warn."""
    return wanted.deterministic and _Chosen.warn_only


def set_deterministic_debug_mode(debug_mode: int | str) -> None:
    """`use_deterministic_algorithms` by a number or word: 0 "default", 1 "warn", 2 "error"."""
    if not isinstance(debug_mode, (int, str)):
        raise TypeError(f"debug_mode must be str or int, but got {type(debug_mode)}")
    words = ("default", "warn", "error")
    modes: Any = words if isinstance(debug_mode, str) else range(3)
    if debug_mode not in modes:
        listed = "one of `default`, `warn`, `error`" if modes is words else "0, 1, or 2"
        raise RuntimeError(f"invalid value of debug_mode, expected {listed}, but got {debug_mode}")
    level = modes.index(debug_mode)
    use_deterministic_algorithms(level > 0, warn_only=level == 1)


def get_deterministic_debug_mode() -> int:
    """The number that `set_deterministic_debug_mode` takes."""
    return 0 if not wanted.deterministic else 1 if _Chosen.warn_only else 2


# ---------------------------------------------------------------------- numbers, warnings


def set_flush_denormal(mode: bool) -> bool:
    """False: it is not supported. Numbers too small for full precision are never taken for 0."""
    _want_bool("set_flush_denormal(): argument 'mode' (position 1)", mode)
    return False


def set_warn_always(b: bool) -> None:
    """Remembered, and changes nothing: no warning is held back after its first time.

    `warnings.filterwarnings` of Python says which are shown.
    """
    _want_bool("set_warn_always(): argument 'b' (position 1)", b)
    _Chosen.warn_always = b


def is_warn_always_enabled() -> bool:
    """What `set_warn_always` set, at first False."""
    return _Chosen.warn_always


# ---------------------------------------------------------------------- threads


def set_num_threads(count: int) -> None:
    """How many threads of NumPy's BLAS compute a product on the CPU; other ops run in one.

    RuntimeError where NumPy's BLAS cannot be told (it is none of OpenBLAS, MKL and BLIS).
    """
    _check_threads("set_num_threads", count)
    numpy_threads.set_num_threads(count)


def get_num_threads() -> int:
    """How many threads compute a product on the CPU."""
    return numpy_threads.get_num_threads()


def set_num_interop_threads(count: int) -> None:
    """Remembered, and changes nothing: ops run in the thread that calls them, one by one."""
    _check_threads("set_num_interop_threads", count)
    _Chosen.interop_threads = count


def get_num_interop_threads() -> int:
    """What `set_num_interop_threads` set, at first 1."""
    return _Chosen.interop_threads


def _check_threads(function: str, count: object) -> None:
    if isinstance(count, bool) or not isinstance(count, int):
        raise RuntimeError(f"{function} expects an int, but got {type(count).__name__}")
    if count <= 0:
        raise RuntimeError(f"{function} expects a positive integer")


# ---------------------------------------------------------------------- torch.backends


class Matmul:
    """`torch.backends.cuda.matmul`: how cuBLAS multiplies matrices."""

    allow_tf32 = BackendFlag(
        False, "As set_float32_matmul_precision: True is \"high\", False \"highest\".",
        _set_tf32, lambda: wanted.tf32,
    )  # fmt: skip
    fp32_precision = BackendFlag(
        "none", 'The same by a word, "tf32" or "ieee"; "none": what holds for `cudnn`.',
        partial(set_precision, "cuda", "matmul"), partial(get_precision, "cuda", "matmul"), str,
    )  # fmt: skip
    _SUMS = "Changes nothing: products of half precision are summed up in float32, whatever is set."
    allow_fp16_reduced_precision_reduction = BackendFlag(True, _SUMS, kind=(bool, tuple, list))
    allow_bf16_reduced_precision_reduction = BackendFlag(True, _SUMS, kind=(bool, tuple, list))
    allow_fp16_accumulation = BackendFlag(False, _SUMS)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError("Unknown attribute " + name)

    def __setattr__(self, name: str, value: Any) -> None:
        if not isinstance(vars(type(self)).get(name), BackendFlag):
            raise AttributeError("Unknown attribute " + name)
        super().__setattr__(name, value)


def attention_ways() -> Mapping[str, bool]:
    """PyTorch's ways to compute attention, and whether each is enabled."""
    return wanted.attention


def set_attention_ways(ways: Mapping[str, bool]) -> None:
    """Enables and disables all of them at once."""
    wanted.attention = MappingProxyType(dict(ways))


def _attention_switch(way: str) -> tuple[Callable[[bool], None], Callable[[], bool]]:
    """`enable_flash_sdp` and `flash_sdp_enabled`, and so for each way."""

    def enable(enabled: bool) -> None:
        """On CUDA "flash" are kernels on tensor cores, for half precision, "mem_efficient" kernels
        without, and "cudnn" is cuDNN, which is tried where none of the others is enabled. What none
        takes goes by tensor functions, whether "math" is enabled or not. On a CPU there is one way.
        """
        set_attention_ways({**wanted.attention, way: bool(enabled)})

    def is_enabled() -> bool:
        """What was set, at first True."""
        return wanted.attention[way]

    enable.__name__, is_enabled.__name__ = f"enable_{way}_sdp", f"{way}_sdp_enabled"
    return enable, is_enabled


class cuda(Switches):
    """torch.backends.cuda: CUDA's libraries."""

    matmul = Matmul()

    for _way in wanted.attention:
        for _function in _attention_switch(_way):
            locals()[_function.__name__] = staticmethod(_function)
    del _way, _function

    @staticmethod
    @contextmanager
    def sdp_kernel(
        enable_flash: bool = True,
        enable_math: bool = True,
        enable_mem_efficient: bool = True,
        enable_cudnn: bool = True,
    ) -> Iterator[None]:
        """Deprecated, with a FutureWarning: use `torch.nn.attention.sdpa_kernel`."""
        text = "torch.backends.cuda.sdp_kernel is deprecated: use torch.nn.attention.sdpa_kernel"
        warnings.warn(text, FutureWarning, stacklevel=3)
        before = wanted.attention
        try:
            set_attention_ways({"flash": enable_flash, "mem_efficient": enable_mem_efficient,
                                "math": enable_math, "cudnn": enable_cudnn})  # fmt: skip
            yield
        finally:
            set_attention_ways(before)

    @staticmethod
    def is_flash_attention_available() -> bool:
        """False: PyTorch's flash attention is not used."""
        return False

    @staticmethod
    def preferred_linalg_library(backend: str | None = None) -> str:
        """What linear algebra runs on: CuPy's cuSOLVER, or NumPy's LAPACK; nothing else to choose.

        RuntimeError for another word than PyTorch's "default", "cusolver" and "magma".
        """
        if backend not in (None, "default", "cusolver", "magma"):
            raise RuntimeError(
                f"Unknown input value. Choose from: default, cusolver, magma; got {backend!r}"
            )
        return "cusolver"

    @staticmethod
    def preferred_blas_library(backend: str | None = None) -> str:
        """What multiplies on CUDA: "cublas", which "default" is; or "cublaslt" for affine maps.

        cuBLASLt adds the bias, and sums up its gradient, within the product. What it cannot do, and
        all other products, are cuBLAS's.

        TORCH_BLAS_PREFER_CUBLASLT=1 in the environment prefers it from the start. RuntimeError for
        another word, and for AMD's libraries.

        >>> import cugrad as torch
        >>> torch.backends.cuda.preferred_blas_library()
        'cublas'
        """
        names = "default", "cublas", "cublaslt"
        if backend is not None and backend not in names:
            raise RuntimeError(
                f"Unknown input value. Choose from: {', '.join(names)}; got {backend!r}"
            )
        if backend is not None:
            wanted.cublaslt = backend == "cublaslt"
        return "cublaslt" if wanted.cublaslt else "cublas"

    @staticmethod
    def is_built() -> bool:
        """Whether CUDA can be used here."""
        return backends.is_usable("cuda")


def _of_cudnn(name: str, text: str, kind: Any = bool) -> BackendFlag:
    """A switch of cuDNN's that is a field of `wanted.cudnn`."""
    settings = wanted.cudnn
    return BackendFlag(
        getattr(settings, name), text, lambda value: setattr(settings, name, value),
        lambda: getattr(settings, name), kind,
    )  # fmt: skip


def _check_depthwise(value: str) -> None:
    if value not in ("auto", "cudnn", "native"):
        raise RuntimeError(
            f"Unknown cuDNN depthwise kernel mode: {value}. Expected one of: auto, cudnn, native"
        )


class cudnn(Flagged):
    """torch.backends.cudnn: convolutions on CUDA by cuDNN, where its packages are installed.

    They are `cugrad[cudnn]` and nvidia-cudnn-cu12 or -cu13, which the first convolution imports.
    Without them, and with CUGRAD_CUDNN=0 in the environment, convolutions are kernels and products
    of cuBLAS, the same algorithm in each run, and the switches change nothing. With CUGRAD_CUDNN=1
    it is an error if a package is missing.
    """

    enabled = _of_cudnn("enabled", "False leaves convolutions to other kernels.")
    benchmark = _of_cudnn(
        "benchmark", "The first convolution of a form times all algorithms, and keeps the fastest."
    )
    benchmark_limit = _of_cudnn(
        "benchmark_limit", "How many algorithms are timed; None or 0: all.", (int, type(None))
    )
    deterministic = _of_cudnn(
        "deterministic", "Only algorithms whose sums come out alike in every run."
    )
    allow_tf32 = BackendFlag(
        True, "Convolutions of float32 may round operands to TF32.",
        lambda value: set_precision("cuda", "conv", "tf32" if value else "none"),
        lambda: wanted.cudnn.allow_tf32,
    )  # fmt: skip
    fp32_precision = BackendFlag(
        "none", "As backends.fp32_precision, of all on CUDA.",
        partial(set_precision, "cuda", "all"), partial(get_precision, "cuda"), str,
    )  # fmt: skip
    conv = Precision("cuda", "conv", "As allow_tf32 by a word.")
    depthwise_kernel = BackendFlag(
        "auto", "Changes nothing: the quickest kernel is chosen.", _check_depthwise, kind=str
    )

    @staticmethod
    def is_available() -> bool:
        """Whether cuDNN's packages can be imported on a machine that has CUDA, and CUGRAD_CUDNN=0
        does not leave them out.
        """
        return cudnn.version() is not None

    @staticmethod
    def version() -> int | None:
        """cuDNN's, such as 92800 for 9.28.0; None where it is not used."""
        is_real = backends.is_usable("cuda") and not backends.is_simulated("cuda")
        if wanted.cudnn.asked is False or not is_real:
            return None
        return backends.get("cuda").cudnn_version()

    @staticmethod
    def is_acceptable(tensor: Tensor) -> bool:
        """Whether cuDNN computes convolutions of a tensor."""
        takes = tensor.dtype in (float16, bfloat16, float32, float64)
        return wanted.cudnn.used and tensor.device.type == "cuda" and takes

    def flags(
        self, enabled: bool = False, benchmark: bool = False, benchmark_limit: int | None = 10,
        deterministic: bool = False, allow_tf32: bool = True, fp32_precision: str = "none",
        depthwise_kernel: str = "auto",
    ) -> Flags:  # fmt: skip
        """Sets the switches within a `with`."""
        return Flags(self, {
            "enabled": enabled, "benchmark": benchmark, "benchmark_limit": benchmark_limit,
            "deterministic": deterministic, "allow_tf32": allow_tf32,
            "fp32_precision": fp32_precision, "depthwise_kernel": depthwise_kernel,
        })  # fmt: skip


for _kind in (cuda, cudnn):
    _module = _kind()
    vars(backends)[_kind.__name__] = sys.modules[_module.__name__] = _module
