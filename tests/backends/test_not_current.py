"""What is done around ops for tensors on a GPU that is not the current one is done there."""

from __future__ import annotations

import io
import pickle
import warnings
from collections.abc import Callable, Iterable
from itertools import product
from typing import Any

import numpy as np
import pytest

import cugrad as torch
from cugrad import cuda, memory, nn
from cugrad.autograd import functional, gradcheck, gradgradcheck
from cugrad.backends.wanted import wanted
from cugrad.utils.checkpoint import checkpoint
from tests.conftest import usable_devices
from tests.support import fake_cuda

on_two = pytest.mark.skipif(
    "cuda" not in usable_devices() or cuda.device_count() < 2, reason="there are no two GPUs"
)


def leaf(device: str, *shape: int) -> Any:
    count = int(np.prod(shape))
    x = torch.arange(float(count), device=device, dtype=torch.float64).reshape(shape)
    return (x * 0.3 + 0.1).sin().requires_grad_()


def checks(device: str) -> Any:
    found = [
        gradcheck(lambda x: (x * x).sin(), leaf(device, 3), fast_mode=fast, check_forward_ad=True,
                  check_batched_grad=True)
        for fast in (False, True)
    ]  # fmt: skip
    z = leaf(device, 2).detach().to(torch.complex128).requires_grad_()
    return [*found, gradcheck(torch.sin, z), gradgradcheck(lambda x: x**3, leaf(device, 3))]


def functionals(device: str) -> Any:
    x, one = leaf(device, 3), torch.ones(3, dtype=torch.float64, device=device)
    cubes: Callable[[Any], Any] = lambda v: (v**3).sum()
    several = leaf(device, 2, 3, 4)
    return [
        *[torch.vmap(f)(several).real for f in (torch.fft.fftn, torch.fft.ifftn, torch.fft.rfftn)],
        *[torch.vmap(f, in_dims=-1)(several) for f in (
            lambda v: v.new_full((2,), 0.5), lambda v: v.new_ones(2), lambda v: v.new_zeros((1, 2)),
            lambda v: torch.full_like(v, 0.5) + v.mean())],
        functional.jacobian(lambda v: v**2, x), functional.hessian(cubes, x),
        functional.hvp(cubes, x, one), functional.vhp(cubes, x, one), functional.jvp(cubes, x, one),
        functional.jacobian(lambda v: v**2, x, strategy="forward-mode", vectorize=True),
    ]  # fmt: skip


class Undefined(torch.autograd.Function):
    """Has two results, of which one gets no gradient."""

    @staticmethod
    def forward(ctx: Any, x: Any, materialize: bool) -> Any:
        ctx.set_materialize_grads(materialize)
        return x * 2, x * 3

    @staticmethod
    def backward(ctx: Any, g: Any, h: Any) -> Any:
        return g * 2 if h is None else g * 2 + h, None


class Nothing(torch.autograd.Function):
    """Has no gradient: what is behind it makes zeros of its own."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 2

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return None


def undefined(device: str) -> Any:
    x, unused = leaf(device, 3), leaf(device, 2)
    behind = torch.autograd.grad(Nothing.apply(Undefined.apply(x * 1, True)[0]).sum(), x)
    grads = [torch.autograd.grad(Undefined.apply(x * 1, m)[0].sum(), x) for m in (False, True)]
    return [*grads, *behind, torch.autograd.grad(x.sum(), (x, unused), materialize_grads=True)]


def changes(x: Any) -> Any:
    """With changes in place of shapes, of views and of what is saved."""
    h = x @ x
    turned = h.detach().clone()
    turned.swapdims_(0, 1).mul_(2)
    y = h * 2
    y.t_()
    kept = y * h.tanh()
    kept[0].mul_(3)
    seen = kept * 1
    product = seen * seen
    seen.add_(1)
    return product.sum() + turned.sum() + kept.view(-1)[2:5].exp().sum()


def checkpoints(device: str) -> Any:
    x = leaf(device, 4, 4)
    return torch.autograd.grad(checkpoint(changes, x, use_reentrant=False), x)


def contexts(device: str) -> Iterable[Any]:
    makes: list[Callable[[], Any]] = [
        lambda: memory.budget("1GB", device=device), memory.recompute,
        lambda: memory.offload(min_bytes=0, keep_last=0), torch.autograd.detect_anomaly,
        torch.autograd.graph.save_on_cpu, lambda: torch.autograd.profiler.profile(),
        torch.autograd.graph.allow_mutation_on_saved_tensors,
    ]  # fmt: skip
    for make in makes:
        x = leaf(device, 4, 4)
        with make():
            h = x @ x
            h.t_()
            loss = (h * h.sin()).sum() + h.reshape(-1)[3:].exp().sum()
            yield torch.autograd.grad(loss, x)


def budgets(device: str) -> Any:
    """What is in use is counted on the budget's device."""
    net = nn.Sequential(*[nn.Linear(32, 32) for _ in range(6)]).to(device)
    for p in net.parameters():
        places = torch.arange(float(p.numel()), device=device).reshape(p.shape)
        p.data.copy_(places.sin() * 0.1)
    x = torch.arange(3200.0, device=device).reshape(100, 32).cos()
    elsewhere = torch.zeros(1 << 20, device="cuda:0")  # 4 MiB, which are not this device's
    found = []
    net(x).sum().backward()
    limit = cuda.memory_allocated(device) + 150_000
    for _ in range(4):
        net.zero_grad(set_to_none=False)
        with memory.budget(limit, device=device):
            net(x).tanh().square().mean().backward()
        found.append([p.grad.clone() for p in net.parameters()])
    return found, elsewhere[:1].cpu()


def states(device: str) -> Any:
    """Parameters, gradients and states that live elsewhere come back to the device."""
    found: list[Any] = []
    for places in product(("host", "device"), ("host", "device"), ("stream", "host", "device")):
        asked = dict(zip(("weights", "gradients", "states"), places))
        params = [nn.Parameter(leaf(device, 1).detach())]
        optimizer = torch.optim.Adam(params, lr=0.05, amsgrad=True)
        with memory.offload_states(params, optimizer, min_bytes=0, window=64, **asked):
            for step in range(3):
                optimizer.zero_grad(set_to_none=step != 1)
                (params[0] * 2).square().sum().backward()
                optimizer.step()
        kept = [list(optimizer.state[p].values()) for p in params]
        found.append([[p.detach(), p.grad] for p in params] + kept)
    return found


def pickles(device: str) -> Any:
    x = leaf(device, 3)
    again, file = pickle.loads(pickle.dumps(x)), io.BytesIO()
    torch.save(x, file)
    file.seek(0)
    loaded = torch.load(file)
    assert again.device == loaded.device == x.device
    return again, loaded


def fusions(device: str) -> Any:
    """One kernel each way, which several GPUs once kept it from, or made on the current one."""
    fused = torch.fuse(lambda x, y: (x * y).sin() + y)
    x, y = leaf(device, 3, 4), leaf(device, 4)
    other = leaf("cuda:1" if device == "cuda:0" else "cuda:0", 4)
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        patch.setattr(wanted, "fused", True)
        warnings.simplefilter("error")
        z = fused(x, y)
        assert "FusedCall" in type(z.grad_fn).__name__
        for a, b in ((x, other), (other, y)):
            with pytest.raises(RuntimeError, match="same device, .* at least two devices"):
                fused(a, b)
        return z, torch.autograd.grad(z.sum(), (x, y)), fused(x.detach(), y.detach())


CASES: tuple[Callable[[str], Any], ...] = (
    checks, functionals, undefined, checkpoints, contexts, budgets, states, pickles, fusions,
)  # fmt: skip


def flat(value: Any, device: str) -> list[Any]:
    if isinstance(value, torch.Tensor):
        assert not value.is_cuda or str(value.device) == device
        return [value.detach().cpu().numpy()]
    if isinstance(value, Iterable):
        return [part for each in value for part in flat(each, device)]
    return [value]


@on_two
@pytest.mark.filterwarnings("ignore:Anomaly Detection has been enabled")
@pytest.mark.parametrize("case", CASES)
def test_it_is_done_there(case: Callable[[str], Any]) -> None:
    here, there = (flat(case(device), device) for device in ("cuda:0", "cuda:1"))
    assert cuda.current_device() == 0
    for a, b in zip(here, there, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


LIKE = {
    **{name: getattr(torch, name) for name in (
        "zeros_like", "ones_like", "empty_like", "rand_like", "randn_like")},
    "full_like": lambda x, **how: torch.full_like(x, 2, **how),
    "randint_like": lambda x, **how: torch.randint_like(x, 2, **how),
    **{name: lambda x, name=name, **how: getattr(x, name)(2, **how) for name in (
        "new_zeros", "new_ones", "new_empty")},
    "new_full": lambda x, **how: x.new_full((2,), 2, **how),
    "new_tensor": lambda x, **how: x.new_tensor([2], **how),
}  # fmt: skip


@on_two
@pytest.mark.parametrize("name", LIKE)
def test_what_is_made_like_a_tensor_lies_where_is_said(name: str) -> None:
    for x in (torch.ones(2, 3, device="cuda:1"), torch.ones(3, 2, device="cuda:1").t()):
        for device, index in ((None, 1), ("cuda", 0), ("cuda:0", 0), ("cuda:1", 1), ("cpu", None)):
            made = LIKE[name](x, **({} if device is None else {"device": device}))
            assert made.device == torch.device("cpu" if index is None else f"cuda:{index}"), device
            assert not name.endswith("_like") or made.stride() == x.stride(), device
        with cuda.device(1):
            assert LIKE[name](x.to("cuda:0"), device="cuda").device.index == 1


@pytest.mark.skipif("cuda" in usable_devices(), reason="the tests above have run")
def test_over_the_fake_cuda() -> None:
    pytest.importorskip("cupy", reason="CuPy is not installed")
    assert " passed" in fake_cuda.passed(__file__, devices=2)
