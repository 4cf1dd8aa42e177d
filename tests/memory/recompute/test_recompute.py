"""memory.recompute: what is dropped comes back bit for bit, in every graph, and nothing leaks."""

from __future__ import annotations

import tracemalloc
import weakref
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

import cugrad as torch
from cugrad import memory
from cugrad.backends import simulated
from cugrad.memory import constants as kept
from cugrad.memory.budgeting import context as budgeting
from cugrad.memory.geometry import root_of
from cugrad.memory.recomputing.recipes import Recipe
from cugrad.nn import functional as F
from tests.memory.offload import test_conformance as conformance
from tests.memory.offload.cases import CASES

PLACEMENTS = {
    "cheap": conformance.Placement(lambda: memory.recompute(), shares=False),
    "all": conformance.Placement(lambda: memory.recompute(ops="all", chain=1000), shares=False),
    "some": conformance.Placement(
        lambda: memory.recompute(ops=["mul", torch.exp, "sin"], filter=lambda t: t.dim() != 1),
        shares=False,
    ),
}


# Each case in two of the ways, on a device each.
PAIRS = [(name, list(PLACEMENTS)[(i + k) % 3], device) for i, name in enumerate(CASES)
         for k, device in enumerate(("cpu", "simulated"))]  # fmt: skip


@pytest.mark.parametrize(("name", "place", "device"), PAIRS)
def test_gradients_are_those_without(name: str, place: str, device: str) -> None:
    with conformance.nothing_leaks(), simulated.configured(policy="random", seed=len(name)):
        found = conformance.run(name, device, PLACEMENTS[place])
        conformance.assert_same(found, name, name)
    simulated.reset()


def grad_of(t: Any) -> Any:
    return t.grad.cpu().numpy()


def block(x: Any, w: Any, b: Any) -> Any:
    h = F.gelu(F.layer_norm(x, x.shape[-1:]) @ w + b)
    return x + F.dropout(h, 0.1).tanh().sigmoid()


def peak_of(saving: Any, layers: int = 12) -> tuple[int, list[Any]]:
    """The most device memory that a step takes, and its gradients."""
    torch.manual_seed(0)
    x = torch.rand(256, 64, device="simulated")
    w = (torch.rand(64, 64, device="simulated") * 0.1).requires_grad_()
    b = torch.zeros(64, device="simulated", requires_grad=True)
    backend = conformance.backends.get("simulated")
    before = backend.memory_allocated()
    backend.reset_peak_memory_stats()
    with saving:
        for _ in range(layers):
            x = block(x, w, b)
        loss = x.sum()
    del x
    loss.backward()
    return backend.max_memory_allocated() - before, [grad_of(t) for t in (w, b)]


def test_memory_falls() -> None:
    plain, wanted = peak_of(nullcontext())
    cheap, found = peak_of(memory.recompute())
    for a, b in zip(found, wanted, strict=True):
        assert a.tobytes() == b.tobytes()
    assert cheap < 0.5 * plain
    endless, _ = peak_of(memory.recompute(chain=1000))  # all of forward, once more
    assert endless > 1.3 * cheap
    simulated.reset()


@pytest.mark.parametrize("how", ["recompute", "budget"])
def test_a_loss_that_is_alive_keeps_nothing(how: str) -> None:
    """Neither in the middle of backward nor after it: scores are the largest tensor of many."""
    backend = conformance.backends.get("simulated")
    w = (torch.rand(64, 64, device="simulated") * 0.1).requires_grad_()
    for _ in range(2):
        w.grad = None
        with memory.recompute() if how == "recompute" else memory.budget("1GB", device="simulated"):
            before = backend.memory_allocated()
            h = torch.rand(512, 64, device="simulated") @ w
            loss = F.cross_entropy(h @ w, torch.zeros(512, dtype=torch.int64, device="simulated"))
            del h
            loss.backward()
            assert backend.memory_allocated() - before <= w.nbytes + 512
        assert loss.item() > 0
    budgeting._learned.clear()
    simulated.reset()


def test_memory_of_the_host_falls() -> None:
    def peak(saving: Any) -> int:
        x = torch.rand(500, 1000)
        tracemalloc.start()
        try:
            with saving:
                y = x.requires_grad_()
                for _ in range(8):
                    y = y.exp().sin().sigmoid().tanh()
                loss = y.sum()
            del y
            loss.backward()
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    every_fourth = memory.recompute(ops=["exp", "sin", "sigmoid"])
    assert peak(every_fourth) < 0.51 * peak(nullcontext())


def test_what_changes_in_place_is_copied_first() -> None:
    """What PyTorch saves nothing of may change; what backward needs of it is what it was."""
    for device in ("cpu", "simulated"):
        w = torch.full((5,), 2.0, device=device, requires_grad=True)
        buffer = torch.ones(5, device=device)
        with memory.recompute():
            y = (w + buffer).exp()
            z = y.sin()
            del y
            buffer.mul_(100)
            loss = z.sum()
        loss.backward()
        wanted = np.exp(np.float32(3)) * np.cos(np.exp(np.float32(3)))
        np.testing.assert_allclose(grad_of(w), np.full(5, wanted), rtol=1e-5)
    simulated.reset()


def test_an_operand_is_copied_as_it_lies() -> None:
    """Of another order a sum has other bits."""

    def gradient(values: Any, context: Any) -> Any:
        x = torch.tensor(values, requires_grad=True)
        w = torch.ones((), dtype=torch.float64, requires_grad=True)
        with context:
            y = (x.t().sum(0) * w).tanh()
            z = y.sin()
        del y
        with torch.no_grad():
            x.t().mul_(2)
        z.sum().backward()
        return w.grad.item()

    for values in np.random.default_rng(0).standard_normal((8, 300, 70)):
        assert gradient(values, memory.recompute(ops="all")) == gradient(values, nullcontext())


def test_what_was_changed_in_place_is_made_again() -> None:
    w, v = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
    with memory.recompute():
        y = (w * 2).exp()
        z = y.sin()
    with torch.no_grad():
        y.add_(1)
    z.sum().backward()
    (v * 2).exp().sin().sum().backward()
    assert torch.equal(w.grad, v.grad)


@pytest.mark.parametrize("device", ["cpu", "simulated"])
def test_a_tensor_without_elements_does_not_change(device: str) -> None:
    x = torch.zeros(0, dtype=torch.float64, requires_grad=True, device=device)
    with memory.recompute(ops="all"):
        y = x.msort()
        with torch.no_grad():
            x.view(1, 0).square_()
        (gradient,) = torch.autograd.grad((y * y).sum(), x, create_graph=True)
    assert gradient.shape == (0,)


def test_an_input_that_changed_unseen_is_named() -> None:
    w = torch.ones(3, requires_grad=True)
    with memory.recompute():
        loss = (w + 1).exp().sum()
    torch.autograd.graph.increment_version(w)
    with pytest.raises(RuntimeError, match=r"recompute: add cannot be run again.*shape \[3\]"):
        loss.backward()


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"ops": ["nothing"]}, ValueError, "'nothing' is not among the ops"),
        ({"ops": "exp"}, TypeError, "want None, 'all', or several"),
        ({"ops": 3}, TypeError, "want None, 'all', or several"),
        ({"chain": 0}, ValueError, "chain: got 0, want a number of ops"),
        ({"filter": 3}, TypeError, "filter: got 3, want a function"),
    ],
)
def test_wrong_arguments(options: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        memory.recompute(**options)


def test_a_saved_tensor_answers_as_ever() -> None:
    x = torch.rand(4, requires_grad=True)
    with memory.recompute() as dropping:
        y = (x * 3).exp()
        z = y.sin()
    del y
    assert torch.equal(z.grad_fn._saved_self, (x * 3).exp())
    assert z.grad_fn._saved_self.grad_fn.name() == "ExpBackward0"
    assert dropping.stats.dropped_bytes == 16 and dropping.stats.saved_tensors == 2


def test_what_is_written_through_a_view_of_another_shape_is_made_again() -> None:
    """The op has a recipe, so nothing that was made from it has to hold the memory."""
    x = torch.rand(64, 32, device="simulated", requires_grad=True)
    seen = []
    for context in (nullcontext(), memory.recompute()):
        with context:
            y = (x * 2).view(4, 16, 32)
            y += 1
            root = weakref.ref(y._array._base)
            z = y.exp().sin().sum()
            del y
        seen.append((root() is None, torch.autograd.grad(z, x)[0].tolist()))
    assert seen[0][1] == seen[1][1] and seen[1][0]


def test_what_a_node_has_got_is_not_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """For others of what it has saved, which are made of it."""
    ran: list[str] = []
    run = Recipe.run

    def counted(self: Recipe, roots: Any) -> Any:
        ran.append(self.op.name)
        return run(self, roots)

    monkeypatch.setattr(Recipe, "run", counted)
    x = torch.rand(2, 4, 3, 3, requires_grad=True)
    with memory.recompute():
        y = F.group_norm(x + 1, 2)
    y.square().sum().backward()
    assert sorted(ran) == ["add", "native_group_norm"]


def test_a_storage_with_the_id_of_one_that_is_gone_has_nothing_saved() -> None:
    """A weight that has left the device, and something else that lies there since."""
    weight, other = torch.ones(3), torch.zeros(3)
    constant = kept.Constant(weight, root_of(weight._array), False)
    kept._guarded[id(root_of(other._array))] = kept._guarded.pop(id(root_of(weight._array)))
    other.add_(1)
    assert constant.held is weight._array
    constant.save(root_of(weight._array))
    assert constant.held is not weight._array and constant.array.tolist() == [1, 1, 1]
