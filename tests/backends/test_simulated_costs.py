"""Virtual time counts kernels as CUDA launches them: a row in one, an optimizer's step in one."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import cugrad as torch
from cugrad.backends import get, simulated
from cugrad.backends.simulated.races import RaceError
from cugrad.backends.wanted import wanted
from tests.support import ROOT

F: Any = torch.nn.functional
N = 4096  # bytes of a tensor of these tests


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    with simulated.configured(simulated.H200):
        simulated.reset()
        yield
        simulated.reset()


def tensor(seed: int = 0, grad: bool = False) -> Any:
    torch.manual_seed(seed)
    return torch.rand(N // 4, device="simulated").add_(0.1).requires_grad_(grad)


def kernels(run: Callable[[], Any]) -> list[Any]:
    with simulated.record() as timeline:
        kept = run()
    del kept
    return [r for r in timeline.records if r.kind == "kernel"]


def test_rows_are_charged_the_kernels_that_cuda_launches() -> None:
    pytest.importorskip("cupy", reason="CuPy is not installed")
    run = subprocess.run(
        [sys.executable, "-m", "tests.support.charged_rows"], cwd=ROOT, capture_output=True,
        text=True,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr[-2000:]
    found = json.loads(run.stdout)
    assert len(found) > 180
    wrong = {name: pairs for name, pairs in found.items() if any(abs(a - b) > 1 for a, b in pairs)}
    assert not wrong, f"launches on CUDA, and as charged: {wrong}"


def test_a_row_reads_its_operands_and_writes_its_result() -> None:
    x = tensor(grad=True)
    (forward,) = kernels(lambda: F.gelu(x))
    assert (forward.name, forward.nbytes) == ("gelu", 2 * N)
    y, g = F.gelu(x), tensor(1)
    (backward,) = kernels(lambda: torch.autograd.grad(y, x, g))
    assert (backward.name, backward.nbytes) == ("gelu backward", 3 * N)
    gate, value = tensor(grad=True).chunk(2)  # two views of one memory
    (both,) = kernels(lambda: F.silu(gate) * value)[:1]
    assert both.nbytes == N


def test_views_are_told_apart_by_where_they_lie() -> None:
    """Not by which object they are: one that is gone has left its place to the next."""
    x, half = tensor()._array, N // 8
    twice = simulated.one_kernel(lambda x: (x[:half] * 2, x[half:] * 2))
    again = simulated.one_kernel(lambda x: (x[:half] * 2, x[:half] * 3))
    assert [r.nbytes for r in kernels(lambda: twice(x))] == [2 * N]
    assert [r.nbytes for r in kernels(lambda: again(x))] == [N // 2 + N]


def test_what_is_read_twice_by_two_kernels_is_charged_twice() -> None:
    x = torch.rand(8, 16, 8, device="simulated")
    forward = kernels(lambda: F.batch_norm(x, None, None, training=True))
    assert [r.name for r in forward] == ["native_batch_norm"] * 2
    assert all(r.nbytes >= x.nbytes for r in forward)
    assert sum(r.nbytes for r in forward) < 3.5 * x.nbytes


def test_columns_of_a_convolution_are_in_no_memory() -> None:
    x, w = torch.rand(2, 4, 16, 16, device="simulated"), torch.rand(8, 4, 3, 3, device="simulated")
    y = F.conv2d(x, w, padding=1)
    (record,) = kernels(lambda: F.conv2d(x, w, padding=1))
    assert record.nbytes == x.nbytes + w.nbytes + y.nbytes
    assert record.flops == 2 * y.numel() * 4 * 9


def test_nothing_is_charged_where_nothing_runs() -> None:
    x = tensor(grad=True)
    assert kernels(lambda: x.to(torch.float32)) == []
    assert kernels(lambda: x.reshape(2, -1).mT) == []
    y, g = x + 1, tensor(1)
    assert kernels(lambda: torch.autograd.grad(y, x, g)) == []


def test_gradients_that_are_summed_to_several_shapes_are_summed_behind_their_kernel() -> None:
    x, row, column = [torch.rand(*s, device="simulated", requires_grad=True)
                      for s in ((8, 8), (8,), (8, 1))]  # fmt: skip
    y = torch.addcmul(x, row, column)
    names = [r.name for r in kernels(lambda: torch.autograd.grad(y.sum(), (row, column)))]
    assert names.count("addcmul backward") == 1 and names.count("sum") >= 2
    y = x * row
    names = [r.name for r in kernels(lambda: torch.autograd.grad(y, row, torch.ones_like(y)))]
    assert names.count("mul backward") == 1


@pytest.mark.parametrize("kind, passes", [("SGD", 3), ("Adam", 7), ("AdamW", 7)])
def test_a_step_of_many_parameters_is_one_kernel(kind: str, passes: int) -> None:
    params = [torch.nn.Parameter(tensor(k)) for k in range(5)]
    optimizer = getattr(torch.optim, kind)(params, lr=0.1)
    for k, p in enumerate(params):
        p.grad = tensor(k + 9)
    optimizer.step()
    (step,) = kernels(optimizer.step)
    assert step.nbytes == passes * 5 * N


@pytest.mark.parametrize("causal", [False, True])
def test_attention_is_a_kernel_forward_and_two_backward_without_scores(causal: bool) -> None:
    batch, heads, length, width = shape = 2, 3, 256, 16
    q, k, v = [torch.rand(*shape, device="simulated", requires_grad=True) for _ in range(3)]
    torch.cuda.reset_peak_memory_stats("simulated")
    before = torch.cuda.memory_allocated("simulated")
    forward = kernels(lambda: F.scaled_dot_product_attention(q, k, v, is_causal=causal))
    peak = torch.cuda.max_memory_allocated("simulated") - before
    assert peak < 2 * q.nbytes < 4 * batch * heads * length**2
    y, g = F.scaled_dot_product_attention(q, k, v, is_causal=causal), torch.rand_like(q)
    backward = kernels(lambda: torch.autograd.grad(y, (q, k, v), g))
    prefix = "causal " * causal
    names = ["attention", "attention_queries", "attention_keys"]
    assert [r.name for r in (*forward, *backward)] == [prefix + name for name in names]
    each = 2 * batch * heads * length * length * width / (2 if causal else 1)
    assert [r.flops / each for r in (*forward, *backward)] == [2, 3, 4]
    numbers = 4 * batch * heads * length
    sizes = [4 * q.nbytes + numbers, 6 * q.nbytes + 2 * numbers, 6 * q.nbytes + 2 * numbers]
    assert [r.nbytes for r in (*forward, *backward)] == sizes


def test_attention_that_no_kernel_takes_is_charged_as_its_rows() -> None:
    q = torch.rand(2, 8, 300, device="simulated")  # wider than they are made for
    assert len(kernels(lambda: F.scaled_dot_product_attention(q, q, q))) > 3


def test_clipping_by_a_norm_reads_twice_and_writes_once() -> None:
    params = [torch.nn.Parameter(tensor(k)) for k in range(5)]
    for k, p in enumerate(params):
        p.grad = tensor(k + 9)
    norm = torch.cat([p.grad for p in params]).norm().item()
    found = kernels(lambda: torch.nn.utils.clip_grad_norm_(params, 1.0))
    assert [r.name for r in found] == ["norm_of_lists", "scale_lists"]
    assert [r.nbytes // N for r in found] == [5, 10]
    after = torch.cat([p.grad for p in params]).norm().item()
    assert norm > 10 and after == pytest.approx(1.0, rel=1e-4)


def test_unscaling_is_one_kernel_that_checks_too() -> None:
    params = [torch.nn.Parameter(tensor(k)) for k in range(5)]
    optimizer = torch.optim.SGD(params, lr=0.1)
    scaler = torch.amp.GradScaler("simulated", init_scale=4.0)
    scaler.scale(torch.ones(1, device="simulated"))
    for k, p in enumerate(params):
        p.grad = tensor(k + 9)
    before = params[3].grad.cpu()
    found = kernels(lambda: scaler.unscale_(optimizer))
    assert [r.name for r in found] == ["inverse_of_scale", "unscale_lists"]
    assert found[1].nbytes // N == 10
    assert torch.equal(params[3].grad.cpu() * 4, before)
    params[2].grad[7] = float("inf")
    fused = torch.optim.Adam(params, lr=0.1, fused=True)
    fused.step()
    weights = params[0].cpu()
    scaler.step(fused)
    assert torch.equal(params[0].cpu(), weights)  # one is not finite: there is no step
    assert kernels(scaler.update)[-1].name == "next_scale"
    assert scaler.get_scale() == 2.0


def test_a_fused_function_is_a_kernel_each_way() -> None:
    @torch.fuse
    def scaled(x: Any, row: Any, scale: float) -> Any:
        return F.gelu(x + row) * scale

    x, row = tensor(grad=True), tensor(1)[:1].detach().requires_grad_()
    scaled(x, row, 0.5)
    y, g = scaled(x, row, 0.5), tensor(2)
    (forward,) = kernels(lambda: scaled(x, row, 0.5))
    (backward,) = kernels(lambda: torch.autograd.grad(y, (x, row), g))
    assert forward.name == "fused_scaled" and forward.nbytes == 2 * N + 4
    assert backward.nbytes == 3 * N + 8
    y, again = scaled(x, row, 0.5), F.gelu(x + row) * 0.5
    for got, want in zip(torch.autograd.grad(y, (x, row), g),
                         torch.autograd.grad(again, (x, row), g)):  # fmt: skip
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float64", "complex64"])
def test_lists_of_any_dtype_are_changed_as_on_a_host(kind: str) -> None:
    dtype = getattr(torch, kind)
    values = [torch.rand(3, 4, dtype=torch.float64).to(dtype) * 5 for _ in range(700)]
    found = {}
    for device in ("cpu", "simulated"):
        params = [v.to(device).requires_grad_() for v in values]
        for p, v in zip(params, values):
            p.grad = (v.mT.contiguous().mT if kind == "float64" else v).to(device, copy=True)
        norm = torch.nn.utils.clip_grad_norm_(params, 2.0)
        found[device] = [norm.cpu(), *[p.grad.cpu() for p in params[::50]]]
    for got, want in zip(found["simulated"], found["cpu"]):
        torch.testing.assert_close(got, want, rtol=1e-2 if dtype.itemsize == 2 else 1e-5, atol=1e-3)
    launches = kernels(lambda: torch.nn.utils.clip_grad_norm_(params, 1.0))
    assert len([r for r in launches if r.name == "scale_lists"]) == 4  # 200 in a launch at most


def test_rows_that_are_no_kernel_are_charged_as_chains() -> None:
    x = tensor().to(torch.complex64)
    assert len(kernels(lambda: torch.sigmoid(x))) > 1  # complex numbers have no such kernel
    before = wanted.fused
    try:
        wanted.fused = False
        assert len(kernels(lambda: F.gelu(tensor()))) > 1
    finally:
        wanted.fused = before


@pytest.mark.parametrize("run, reads", [
    (lambda x: F.gelu(x), True),
    (lambda x: x.add_(1), False),
    (lambda x: get("simulated").xp.multiply(x._array, 2, x._array), False),  # out by position
])  # fmt: skip
def test_accesses_within_a_row_are_checked(run: Callable[[Any], Any], reads: bool) -> None:
    backend, x = get("simulated"), tensor()
    host = backend.empty_pinned((N // 4,), np.dtype("float32"))
    (record,) = kernels(lambda: run(x))
    assert record.nbytes == 2 * N
    backend.synchronize()
    ends = (x._array, host) if reads else (host, x._array)
    backend.copy_async(*ends, backend.stream())  # which nothing waits for
    with pytest.raises(RaceError):
        run(x)
    backend.synchronize()
