"""Switches do what they say: threads of BLAS, TF32, determinism; others are remembered."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import cugrad as torch
from cugrad.backends.wanted import wanted
from cugrad.functions import flags, precisions, switches

FLAGGED = ("cudnn", "mkldnn", "nnpack", "opt_einsum")
HOLDERS = [
    torch.backends,
    torch.backends.cuda.matmul,
    *(getattr(torch.backends, name) for name in FLAGGED),
]
SWITCHES = [(holder, name) for holder in HOLDERS
            for name, switch in vars(type(holder)).items()
            if isinstance(switch, switches.BackendFlag)]  # fmt: skip


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    before = [(holder, name, getattr(holder, name)) for holder, name in SWITCHES]
    words = dict(precisions._said)
    precision, mode = torch.get_float32_matmul_precision(), torch.get_deterministic_debug_mode()
    interop = torch.get_num_interop_threads()
    precisions._said.clear()  # what a documented example has asked for
    wanted.tf32 = False
    yield
    for holder, name, value in before:
        setattr(holder, name, value)
    torch.set_float32_matmul_precision(precision)
    precisions._said.clear()
    precisions._said.update(words)
    torch.set_deterministic_debug_mode(mode)
    torch.set_num_interop_threads(interop)


@pytest.mark.parametrize(("holder", "name"), SWITCHES, ids=[name for _, name in SWITCHES])
def test_a_switch_is_remembered_and_has_a_type(holder: Any, name: str) -> None:
    before = getattr(holder, name)
    new = {bool: not before, str: {"auto": "native"}.get(before, "tf32"), type(None): None}.get(
        type(before), 3
    )
    setattr(holder, name, new)
    assert getattr(holder, name) == new
    with pytest.raises(RuntimeError, match=f"{name}: expects a .*, but got float"):
        setattr(holder, name, 1.5)
    assert getattr(holder, name) == new
    assert vars(type(holder))[name].__doc__


@pytest.mark.parametrize("holder", [torch.backends.cuda.matmul, torch.backends.cudnn,
                                    torch.backends.cuda, torch.backends.mps])  # fmt: skip
def test_a_misspelt_switch_is_an_error(holder: Any) -> None:
    with pytest.raises(AttributeError, match="benchmrk"):
        holder.benchmrk = True
    with pytest.raises(AttributeError, match="benchmrk"):
        _ = holder.benchmrk


def test_switches_answer_as_pytorch_s() -> None:
    theirs = pytest.importorskip("torch")
    names = ["enabled", "benchmark", "deterministic", "allow_tf32"]
    if not theirs.backends.cudnn.is_available():  # where it is built with cuDNN, it is 10
        names.append("benchmark_limit")
    for name in names:
        assert getattr(torch.backends.cudnn, name) == getattr(theirs.backends.cudnn, name)
    for module in ("cuda", "mps", "mkl", "mkldnn", "openmp", "cudnn", "nnpack", "opt_einsum"):
        imported = importlib.import_module(f"cugrad.backends.{module}")
        assert imported is getattr(torch.backends, module) and imported.__doc__
        if module != "cuda":
            assert imported.is_available() is False
            assert hasattr(getattr(theirs.backends, module), "is_available")
    assert torch.backends.cudnn.version() is None
    assert torch.backends.cuda.is_flash_attention_available() is False


def test_precision_is_one_setting_under_three_names() -> None:
    matmul = torch.backends.cuda.matmul
    for word, allowed in (("high", True), ("highest", False), ("medium", True)):
        torch.set_float32_matmul_precision(word)
        assert torch.get_float32_matmul_precision() == word
        assert matmul.allow_tf32 is allowed is wanted.tf32
    matmul.allow_tf32 = False
    assert torch.get_float32_matmul_precision() == "highest" and matmul.fp32_precision == "ieee"
    matmul.fp32_precision = "tf32"
    assert torch.get_float32_matmul_precision() == "high"
    with pytest.warns(UserWarning, match="low is not one of"):
        torch.set_float32_matmul_precision("low")
    assert torch.get_float32_matmul_precision() == "high"
    with pytest.raises(RuntimeError, match="Unknown precision"):
        matmul.fp32_precision = "bf16x3"
    assert matmul.fp32_precision == "tf32"


WORDS = """
b.fp32_precision = 'tf32'
b.fp32_precision = 'ieee'
b.fp32_precision = 'none'
b.cudnn.fp32_precision = 'tf32'
b.cudnn.fp32_precision = 'none'
b.fp32_precision = 'bf16'
b.cuda.matmul.fp32_precision = 'tf32'
b.fp32_precision = 'ieee'
b.cudnn.conv.fp32_precision = 'tf32'
b.cuda.matmul.fp32_precision = 'none'
b.mkldnn.conv.fp32_precision = 'bf16'
b.mkldnn.rnn.fp32_precision = 'tf32'
b.fp32_precision = 'none'
b.cudnn.conv.fp32_precision = 'none'
b.cuda.matmul.fp32_precision = 'bf16'
b.cudnn.conv.fp32_precision = 'bf16'
b.mkldnn.matmul.fp32_precision = 'half'
b.fp32_precision = 'half'
b.cuda.matmul.allow_tf32 = True
b.cuda.matmul.allow_tf32 = False
b.cudnn.allow_tf32 = True
b.cudnn.allow_tf32 = False
b.cudnn.depthwise_kernel = 'cudnn'
b.cudnn.depthwise_kernel = 'quick'
b.cudnn.conv.fp16_precision = 'tf32'
""".strip().splitlines()
PLACES = ("b", "b.cudnn", "b.cudnn.conv", "b.cuda.matmul", "b.mkldnn", "b.mkldnn.conv",
          "b.mkldnn.matmul", "b.mkldnn.rnn")  # fmt: skip


SAID = """
def said(b, lines, places):
    found = []
    for line in lines:
        error = None
        try:
            exec(line, {"b": b})
        except (RuntimeError, AttributeError) as e:
            error = type(e).__name__
        words = [eval(place, {"b": b}).fp32_precision for place in places]
        found.append([line, error, words])
    return found
"""


@pytest.mark.pinned_torch
def test_precisions_are_pytorchs_one_after_another() -> None:
    """PyTorch's in a process of its own: what other tests have set there cannot all be put back."""
    pytest.importorskip("torch")
    scope: dict[str, Any] = {}
    exec(SAID, scope)
    ours = scope["said"](torch.backends, WORDS, PLACES)
    program = f"{SAID}\nimport json, torch\n"
    program += f"print(json.dumps(said(torch.backends, {WORDS!r}, {PLACES!r})))"
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ours == json.loads(run.stdout)


def test_precisions_have_an_effect() -> None:
    b = torch.backends
    b.fp32_precision = "tf32"
    assert wanted.tf32 and wanted.cudnn.allow_tf32
    assert torch.get_float32_matmul_precision() == "high"
    b.fp32_precision = "ieee"
    assert not wanted.tf32 and not wanted.cudnn.allow_tf32
    b.cudnn.conv.fp32_precision = "tf32"
    assert not wanted.tf32 and wanted.cudnn.allow_tf32
    with b.flags(fp32_precision="none"), b.cudnn.flags(fp32_precision="tf32"):
        assert b.fp32_precision == "none" and wanted.tf32
    assert b.fp32_precision == "ieee" and not wanted.tf32
    assert b.set_flags("none") == ("ieee",) and b.fp32_precision == "none"


def test_flags_hold_for_a_block_also_when_it_fails() -> None:
    cudnn = torch.backends.cudnn
    with pytest.raises(ZeroDivisionError), cudnn.flags(benchmark=True, deterministic=True):
        assert cudnn.benchmark and cudnn.deterministic and not cudnn.enabled
        _ = 1 / 0
    assert not cudnn.benchmark and not cudnn.deterministic and cudnn.enabled


def test_threads_are_those_of_blas() -> None:
    before = torch.get_num_threads()
    try:
        for count in (2, 1):
            torch.set_num_threads(count)
            assert torch.get_num_threads() == count
    finally:
        torch.set_num_threads(before)
    torch.set_num_interop_threads(3)
    assert torch.get_num_interop_threads() == 3
    for set_threads in (torch.set_num_threads, torch.set_num_interop_threads):
        with pytest.raises(RuntimeError, match="expects a positive integer"):
            set_threads(0)
        with pytest.raises(RuntimeError, match="expects an int, but got str"):
            set_threads("2")


def test_an_unknown_blas_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(switches.numpy_threads, "_functions", lambda: None)
    with pytest.raises(RuntimeError, match="OMP_NUM_THREADS"):
        torch.get_num_threads()
    with pytest.raises(RuntimeError, match="OMP_NUM_THREADS"):
        torch.set_num_threads(2)


@pytest.mark.parametrize("mode", ["default", "warn", "error", 0, 1, 2])
def test_determinism_is_asked_for_in_two_ways(mode: int | str) -> None:
    torch.set_deterministic_debug_mode(mode)
    level = mode if isinstance(mode, int) else ["default", "warn", "error"].index(mode)
    assert torch.get_deterministic_debug_mode() == level
    assert torch.are_deterministic_algorithms_enabled() is (level > 0) is wanted.deterministic
    assert torch.is_deterministic_algorithms_warn_only_enabled() is (level == 1)
    with pytest.raises(RuntimeError, match="invalid value of debug_mode"):
        torch.set_deterministic_debug_mode(3 if isinstance(mode, int) else "on")
    with pytest.raises(TypeError, match="must be bool, not int"):
        torch.use_deterministic_algorithms(1)  # type: ignore[arg-type]


@pytest.mark.parametrize("device", ["cpu", "simulated"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "complex64", "int8", "uint16",
                                   "int64", "bool"])  # fmt: skip
def test_new_memory_is_filled_in_deterministic_mode(device: str, dtype: str) -> None:
    kind = getattr(torch, dtype)
    torch.use_deterministic_algorithms(True)
    x = torch.zeros(2, dtype=kind, device=device)
    made = [torch.empty(2, dtype=kind, device=device), torch.empty_like(x), x.new_empty(2),
            torch.empty_strided((2,), (3,), dtype=kind, device=device),
            torch.zeros(0, dtype=kind, device=device).resize_(2)]  # fmt: skip
    value: Any = {"bool": True, "complex64": complex(np.nan, 0)}.get(dtype, np.nan)
    if dtype in ("int8", "uint16", "int64"):  # PyTorch's values, whose switch imports its compiler
        value = int(np.iinfo(dtype).max)
    for each in made:
        assert repr(each.tolist()) == repr([value] * 2)
    torch.use_deterministic_algorithms(False)
    assert torch.zeros_like(x).tolist() == x.tolist()


def test_deterministic_sums_on_cuda_use_no_atomics() -> None:
    pytest.importorskip("cupy", reason="CuPy is not installed")
    from tests.backends.test_cupy_on_numpy import Add, NumpyAsCupy

    patch = pytest.MonkeyPatch()
    from cugrad.backends.cupy import namespace as cupy_namespace

    patch.setattr(cupy_namespace, "cupy", NumpyAsCupy())
    patch.setattr(Add, "at", None)
    try:
        torch.use_deterministic_algorithms(True)
        xp = cupy_namespace.CupyNamespace()
        rng = np.random.default_rng(0)
        for dtype in ("float16", "float32", "float64", "complex64"):
            for places in (1, 3, 50):
                index = rng.integers(0, places, 97)
                values = rng.standard_normal(97).astype(dtype)
                got = np.zeros(places, dtype)
                xp.index_add(got, index, values)
                want = np.zeros(places, np.complex128)
                np.add.at(want, index, values)
                np.testing.assert_allclose(got, want, atol=0.05 if dtype == "float16" else 1e-4)
        weights = np.array([0.5, 1.0, 2.0])
        np.testing.assert_array_equal(xp.bincount(np.array([1, 1, 3]), weights, 5),
                                      [0, 1.5, 0, 2, 0])  # fmt: skip
    finally:
        patch.undo()


def test_tf32_is_what_cublas_is_asked_for() -> None:
    pytest.importorskip("cupy", reason="CuPy is not installed")
    from tests.backends.test_cupy_on_numpy import Blas, DeviceArray
    from tests.backends.test_cupy_on_numpy import blas as fixture

    asked: list[int] = []

    class Listening(Blas):
        def gemmEx(self, *args: Any) -> None:
            asked.append(args[17])
            super().gemmEx(*args)

    from cugrad.backends.cupy import gemm as cupy_gemm

    patch = pytest.MonkeyPatch()
    try:
        fixture.__wrapped__(patch)
        import cupy_backends.cuda.libs as libs

        patch.setitem(vars(libs), "cublas", Listening())
        x = np.ones((2, 2), np.float32).view(DeviceArray)
        for word in ("highest", "high"):
            torch.set_float32_matmul_precision(word)
            cupy_gemm.matmul(x, x)
    finally:
        patch.undo()
    assert asked == [Blas.CUBLAS_COMPUTE_32F, Blas.CUBLAS_COMPUTE_32F_FAST_TF32]


@pytest.mark.parametrize("way", ["flash", "mem_efficient", "math", "cudnn"])
def test_a_way_to_compute_attention_is_remembered(way: str) -> None:
    enable = getattr(torch.backends.cuda, f"enable_{way}_sdp")
    is_enabled = getattr(torch.backends.cuda, f"{way}_sdp_enabled")
    assert is_enabled()
    try:
        enable(False)
        assert not is_enabled()
    finally:
        enable(True)


@pytest.mark.parametrize("way", list(torch.nn.attention.WAYS))
def test_sdpa_kernel_enables_what_it_names(way: torch.nn.attention.SDPBackend) -> None:
    ways = torch.nn.attention.WAYS
    with torch.nn.attention.sdpa_kernel([way]):
        for other, name in ways.items():
            enabled = getattr(torch.backends.cuda, f"{name}_sdp_enabled")()
            assert enabled == (other is way)
    assert all(switches.attention_ways().values())
    with pytest.raises(TypeError, match="must be an SDPBackend"):
        torch.nn.attention.sdpa_kernel("math")  # type: ignore[arg-type]


def test_the_older_context_of_attention_sets_what_it_is_given() -> None:
    cuda = torch.backends.cuda
    cuda.enable_math_sdp(False)
    try:
        with (
            pytest.warns(FutureWarning, match="use torch.nn.attention.sdpa_kernel"),
            pytest.raises(KeyError),
            cuda.sdp_kernel(enable_flash=False, enable_cudnn=False),
        ):
            assert dict(switches.attention_ways()) == {
                "flash": False, "mem_efficient": True, "math": True, "cudnn": False,
            }  # fmt: skip
            raise KeyError
        assert [name for name, on in switches.attention_ways().items() if not on] == ["math"]
    finally:
        cuda.enable_math_sdp(True)


@pytest.mark.parametrize("name", FLAGGED)
def test_flags_are_set_together_and_within_a_block(name: str) -> None:
    module = getattr(torch.backends, name)
    before = module.set_flags()
    with module.flags(enabled=not module.enabled):
        assert module.enabled is not before[0]
    assert module.set_flags(_enabled=not before[0]) == before and module.enabled is not before[0]
    module.set_flags(*before)
    assert module.set_flags() == before
    with pytest.raises(TypeError):
        module.set_flags(_misspelt=True)


def test_frozen_flags_are_set_by_blocks_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flags._Frozen, "is_so", False)
    torch.backends.disable_global_flags()
    assert torch.backends.flags_frozen()
    for holder, name in ((torch.backends.cudnn, "enabled"), (torch.backends.mkldnn, "enabled")):
        with pytest.raises(RuntimeError, match="use flags.. context manager"):
            setattr(holder, name, False)
        with holder.flags(enabled=False):
            assert holder.enabled is False


def test_what_is_remembered_or_not_supported() -> None:
    for value in (True, False):
        torch.set_warn_always(value)
        torch.backends.mha.set_fastpath_enabled(value)
        assert torch.is_warn_always_enabled() is value
        assert torch.backends.mha.get_fastpath_enabled() is value
        assert torch.set_flush_denormal(value) is False
    torch.backends.mha.set_fastpath_enabled(True)
    for setter in (torch.set_warn_always, torch.set_flush_denormal):
        with pytest.raises(TypeError, match="must be bool, not int"):
            setter(1)  # type: ignore[arg-type]
