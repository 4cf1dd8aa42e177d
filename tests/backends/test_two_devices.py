"""Tensors on a GPU that is not the current one: ops, gradients and optimizers work, and stay there.

On the fake CUDA, which has as many devices as it is told, and refuses, as CuPy does where devices
cannot reach each other, arrays of another device than the current one.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import cugrad
from cugrad import backends, nn
from cugrad.memory import offload, recompute
from cugrad.ops.table import TABLE
from cugrad.tensor import make
from tests.conftest import usable_devices
from tests.ops.row_cases import Call, differentiable, is_array, ways
from tests.ops.sampling import LINES
from tests.support import fake_cuda

TWO = "cuda" in usable_devices() and backends.get("cuda").device_count() > 1
on_two = pytest.mark.skipif(not TWO, reason="there are no two GPUs")


def devices_of(values: Any) -> set[str]:
    return {str(v.device) for v in values if isinstance(v, cugrad.Tensor)}


@on_two
@pytest.mark.parametrize("name", [name for name in LINES if name in TABLE])
def test_rows(name: str) -> None:
    backend, line = backends.get("cuda"), LINES[name][0]
    with backend.use_device(1):
        call = Call(line, backend)
    arrays = [x for x in call.inputs if is_array(x)]
    if not arrays or any(is_array(x) for x in call.given.values()):
        pytest.skip("of no tensors, or of arrays among its parameters")
    wanted = differentiable(call.op)
    tensors = [
        make(x, wanted and i in call.differentiable) if is_array(x) else x
        for i, x in enumerate(call.inputs)
    ]
    for way in ways(call.op):
        found = way(*([tensors] if call.op.variadic else tensors), **call.given)
        found = found if isinstance(found, tuple) else (found,)
        assert devices_of(found) == {"cuda:1"}
        outputs = [y for y in found if y.requires_grad]
        inputs = [x for x in tensors if getattr(x, "requires_grad", False)]
        if outputs:
            grads = cugrad.autograd.grad(
                outputs, inputs, [cugrad.ones_like(y) for y in outputs], allow_unused=True
            )
            assert devices_of(grads) <= {"cuda:1"}
    assert backend.current_device() == 0


def trained(device: str) -> list[float]:
    cugrad.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(16, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 3),
    )  # fmt: skip
    net.to(device)
    x = cugrad.tensor(np.linspace(-1, 1, 160, dtype="f4").reshape(5, 2, 4, 4), device=device)
    y = cugrad.tensor([0, 1, 2, 1, 0], device=device)
    losses = []
    for make_optimizer in (cugrad.optim.SGD, cugrad.optim.AdamW):
        optimizer = make_optimizer(net.parameters(), lr=0.05)
        for _ in range(3):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(x), y)
            (loss + (net[0].weight ** 2).sum() * 0.1).backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.item())
    assert devices_of(net.parameters()) == devices_of(p.grad for p in net.parameters()) == {device}
    return losses


@on_two
def test_a_step() -> None:
    assert trained("cuda:1") == trained("cuda:0")
    assert cugrad.cuda.current_device() == 0


@on_two
def test_from_one_to_the_other_and_back() -> None:
    x = cugrad.arange(4.0, device="cuda:0").requires_grad_()
    for create in (False, True):
        y = (x * 2).to("cuda:1")
        z = (y * y).sum() + y[1:].exp().sum().to("cuda:0").to("cuda:1")
        assert str(z.device) == "cuda:1"
        (g,) = cugrad.autograd.grad(z, x, create_graph=create)
        assert str(g.device) == "cuda:0"
        wanted = 8 * np.arange(4.0) + np.r_[0, 2 * np.exp(2 * np.arange(1, 4.0))]
        np.testing.assert_allclose(g.tolist(), wanted, rtol=1e-6)
    w = cugrad.zeros(3, device="cuda:1")
    assert 0 in w and str(copy.deepcopy(w).device) == "cuda:1"
    w.copy_(cugrad.ones(3, device="cpu"))
    back = w.t().to("cpu", non_blocking=True)
    cugrad.cuda.synchronize("cuda:1")
    assert back.tolist() == [1, 1, 1]
    w[1:] = 2
    w[cugrad.tensor([0], device="cuda:1")] = 5
    w.mul_(2).add_(w)
    assert w.tolist() == [20, 8, 8] and repr(w) and w.max().item() == 20
    for mixed in (lambda: w + x[:3].detach(), lambda: cugrad.cat([w, x.detach()])):
        with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
            mixed()


def mixed(x: Any, h: Any, i: Any) -> dict[str, Any]:
    """Results that are computed besides by what is no row: casts, indices, numbers, draws."""
    F, func, draws = nn.functional, cugrad.func, cugrad.distributions
    y, wanted = x.clone(), x.clone().requires_grad_()
    y[i, i] = 3.0
    picked = cugrad.autograd.grad(wanted[:, i].sum(), wanted)[0]
    cugrad.manual_seed(0)
    return {
        "sum of dtypes": x * h, "joined": cugrad.cat([x, h]), "chosen": cugrad.where(x > 3, x, h),
        "divided": i / 2, "sine": i.sin(), "set": y, "picked": picked, "taken": x.take(-i - 1),
        "bins": cugrad.histc(x), "counts": cugrad.bincount(i), "pairs": cugrad.combinations(i),
        "filled": x.index_fill(0, i, 2.0), "scattered": x.scatter(1, i.expand(3, 2), 7.0),
        "added": i.clone().index_add(0, i[:1] * 0, i[:1], alpha=3), "places": i.bool() & True,
        "masked": x.masked_scatter(x > 3, h.float()), "pooled": F.adaptive_avg_pool2d(x[None], 2),
        "larger": F.interpolate(x[None, None], scale_factor=1.5, mode="nearest"),
        "maxima": F.adaptive_max_pool2d(x[None], 2),
        "unpooled": F.max_unpool2d(*F.max_pool2d(x[None], 2, return_indices=True), 2),
        "examples": func.vmap(F.gelu)(x), "slopes": func.vmap(func.hessian(F.silu))(x[0]),
        "tangent": func.jvp(F.gelu, (x,), (x,))[1], "sparse": (-x.to_sparse()).to_dense(),
        "layer": nn.Linear(3, 2, device=x.device, dtype=cugrad.float64).weight.detach(),
        "line": cugrad.linspace(0, 1, 3, device=x.device),
        "powers": cugrad.logspace(0, 1, 3, device=x.device),
        "drawn": F.gumbel_softmax(x, hard=True), "coins": cugrad.bernoulli(x / 12),
        "close": x.new_tensor(cugrad.allclose(x, x)), "counts drawn": draws.Poisson(x).sample(),
        "trials": draws.Binomial(x, x / 12).sample(), "signs": draws.Laplace(x, x + 1).rsample(),
    }  # fmt: skip


@on_two
def test_what_is_computed_besides_rows_lies_where_tensors_do() -> None:
    found = []
    for device in ("cuda:1", "cuda:0"):
        x = cugrad.arange(12.0, device=device).reshape(3, 4)
        found.append(mixed(x, x.half(), cugrad.tensor([0, 2], device=device)))
    there, here = found
    for name, value in there.items():
        assert str(value.device) == "cuda:1", name
        assert str(here[name].device) == "cuda:0" and value.tolist() == here[name].tolist(), name
    x = cugrad.ones(2, device="cuda:1")
    for moved in (x.to("cuda"), x.cuda()):
        assert str(moved.device) == "cuda:0"  # the current one


@on_two
@pytest.mark.parametrize("way", [("cuda:0", "cuda:1"), ("cuda:1", "cuda:0")])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_copy_from_one_to_the_other(way: tuple[str, str], dtype: str) -> None:
    source = cugrad.arange(6.0, device=way[0]).requires_grad_()
    for whole in (source.reshape(2, 3), source[:0], source[1:]):
        home = cugrad.zeros(whole.shape, dtype=getattr(cugrad, dtype), device=way[1])
        assert home.copy_(whole) is home and str(home.device) == way[1]
        assert home.tolist() == whole.tolist()
        (g,) = cugrad.autograd.grad(home.float().sum(), source)
        assert str(g.device) == way[0] and g.sum().item() == whole.numel()


@on_two
def test_what_leaves_comes_back_to_where_it_was() -> None:
    x = cugrad.arange(64.0, device="cuda:1").requires_grad_()
    for _ in range(3):
        x.grad = None
        with offload(min_bytes=0, keep_last=0):
            ((x / 64).sin() * (x / 32).exp()).sum().backward()
        assert str(x.grad.device) == "cuda:1"
        plain = x.detach().cpu().requires_grad_()
        ((plain / 64).sin() * (plain / 32).exp()).sum().backward()
        np.testing.assert_allclose(x.grad.tolist(), plain.grad.tolist(), rtol=1e-5)


@on_two
def test_what_is_made_again_is_copied_where_it_was() -> None:
    x = cugrad.ones(3, device="cuda:1", requires_grad=True)
    with recompute(ops=["exp"]):
        y = x.detach().sigmoid()  # which stays
        z = (x + y).exp().exp().sum()
        y.mul_(2)
    z.backward()
    assert str(x.grad.device) == "cuda:1"


@on_two
def test_a_copy_lies_where_the_tensor_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x = cugrad.arange(3.0, device="cuda:1")
    if fake_cuda.REAL is not None:  # which has no such capsules
        monkeypatch.setattr(type(x._array), "__dlpack__", lambda array: array.device.id, False)
        assert x.__dlpack__(copy=True) == 1
    for copied in (cugrad.from_dlpack(x, copy=True), x.untyped_storage().clone()):
        assert str(copied.device) == "cuda:1"


@pytest.mark.skipif("cuda" in usable_devices(), reason="the tests above have run")
def test_over_the_fake_cuda() -> None:
    pytest.importorskip("cupy", reason="CuPy is not installed")
    assert " passed" in fake_cuda.passed(__file__, devices=2)
