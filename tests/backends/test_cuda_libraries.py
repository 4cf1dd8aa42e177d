"""On a GPU: what cuBLASLt and cuDNN compute is what cuBLAS and our kernels compute."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import cugrad
from cugrad.backends.wanted import wanted
from tests.support import fake_cuda

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(fake_cuda.REAL is not None, reason="needs NVIDIA's libraries"),
]

DTYPES = ["float32", "float16", "bfloat16"]
TOLERANCES = {"float32": 1e-4, "float16": 1e-2, "bfloat16": 6e-2}
F = cugrad.nn.functional


def leaf(*shape: int, dtype: str, last: bool = False) -> Any:
    x = cugrad.randn(*shape, device="cuda").to(getattr(cugrad, dtype)) * 0.5
    return (x.to(memory_format=cugrad.channels_last) if last else x).requires_grad_()


def agree(got: list[Any], want: list[Any], dtype: str) -> None:
    for a, b in zip(got, want, strict=True):
        a, b = a.detach().double().cpu(), b.detach().double().cpu()
        largest = max(1.0, float(b.abs().max()))
        assert float((a - b).abs().max()) <= TOLERANCES[dtype] * largest


@pytest.fixture
def cublaslt(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """Whether cuBLASLt has answered, each time that it was asked."""
    from cugrad.backends.cupy.cublaslt import library, products

    if library.library() is None:
        pytest.skip("libcublasLt cannot be loaded")
    answers: list[bool] = []
    run = products.EpilogueProduct.run

    def noting(self: Any, *args: Any) -> Any:
        answer = run(self, *args)
        answers.append(answer is not None)
        return answer

    monkeypatch.setattr(products.EpilogueProduct, "run", noting)
    monkeypatch.setattr(wanted, "cublaslt", True)
    yield answers


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape, outputs", [((64, 96), 128), ((4, 33, 40), 24), ((7, 5), 3)])
def test_affine_maps(
    cublaslt: list[bool], dtype: str, shape: tuple[int, ...], outputs: int
) -> None:  # fmt: skip
    x, w = leaf(*shape, dtype=dtype), leaf(outputs, shape[-1], dtype=dtype)
    b = leaf(outputs, dtype=dtype)
    results = []
    for prefers in (True, False):
        wanted.cublaslt = prefers
        y = F.linear(x, w, b)
        results.append([y, *cugrad.autograd.grad(y, [x, w, b], y.detach())])
    agree(*results, dtype)
    if outputs % 8 == 0:  # sizes that every epilogue takes
        assert cublaslt == [True, True]


@pytest.mark.parametrize("dtype", DTYPES)
def test_products_by_aligned_copies(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of rows of 8191, forward and both gradients: the same as of 8192, of which the last is 0."""
    from cugrad.backends.cupy.aligned import products

    copied, copy = [], products._copied

    def noting(*args: Any) -> int:
        copied.append(args)
        return copy(*args)

    monkeypatch.setattr(products, "_copied", noting)
    monkeypatch.setattr(wanted, "tf32", True)
    x, w = leaf(4096, 1024, dtype=dtype), leaf(8191, 1024, dtype=dtype)
    wide = cugrad.cat([w.detach(), cugrad.zeros_like(w[:1])]).requires_grad_()
    results = []
    for weight in (w, wide):
        y = F.linear(x, weight)[:, :8191]
        grads = cugrad.autograd.grad(y, [x, weight], y.detach() / 64)
        results.append([y, grads[0], grads[1][:8191]])
        assert len(copied) == 5  # two of each product, one of them for both gradients; then none
    agree(*results, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("last", [False, True], ids=["first", "last"])
@pytest.mark.parametrize("groups", [1, 2, 16])
def test_convolutions(
    dtype: str, last: bool, groups: int, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    pytest.importorskip("cudnn", reason="nvidia-cudnn-frontend is not installed")
    monkeypatch.setattr(wanted.cudnn, "allow_tf32", False)
    x = leaf(3, 16, 14, 13, dtype=dtype, last=last)
    w = leaf(32, 16 // groups, 3, 3, dtype=dtype, last=last)
    b = leaf(32, dtype=dtype)
    results = []
    for asked in (True, False):
        monkeypatch.setattr(wanted.cudnn, "asked", asked)
        y = F.conv2d(x, w, b, padding=1, stride=2, groups=groups)
        results.append([y, *cugrad.autograd.grad(y, [x, w, b], y.detach())])
        if last and asked:
            assert y.is_contiguous(memory_format=cugrad.channels_last)
    agree(*results, dtype)


def test_benchmark_and_deterministic_modes(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cudnn", reason="nvidia-cudnn-frontend is not installed")
    monkeypatch.setattr(wanted.cudnn, "asked", True)
    x, w = leaf(3, 16, 14, 13, dtype="float16"), leaf(32, 16, 3, 3, dtype="float16")
    results = []
    for flags in ({}, {"benchmark": True}, {"deterministic": True}):
        with cugrad.backends.cudnn.flags(enabled=True, **flags):
            y = F.conv2d(x, w, padding=1)
            results.append([y, *cugrad.autograd.grad(y, [x, w], y.detach())])
    agree(results[1], results[0], "float16")
    agree(results[2], results[0], "float16")


@pytest.mark.parametrize("dtype", DTYPES[1:])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("groups", [1, 4])
def test_attention(
    dtype: str, causal: bool, groups: int, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    pytest.importorskip("cudnn", reason="nvidia-cudnn-frontend is not installed")
    from cugrad.backends.cupy.cudnn import attention

    monkeypatch.setattr(wanted.cudnn, "asked", True)
    ways = cugrad.nn.attention.SDPBackend
    shapes = [(2, 100, 8, 64), *[(2, 120, 8 // groups, 64)] * 2]
    operands = [leaf(*shape, dtype=dtype) for shape in shapes]
    results = []
    for way in (ways.CUDNN_ATTENTION, ways.FLASH_ATTENTION):
        with cugrad.nn.attention.sdpa_kernel(way):
            y = F.scaled_dot_product_attention(
                *[x.transpose(1, 2) for x in operands], is_causal=causal, enable_gqa=groups > 1
            )
        results.append([y, *cugrad.autograd.grad(y, operands, y.detach())])
    agree(*results, dtype)
    made = [plan for form, plan in attention.plans.items() if form.dtype == dtype]
    assert made and None not in made, "cuDNN has computed it"
