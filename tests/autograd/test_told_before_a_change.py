"""Whatever changes a tensor in place says so before, so who needs the old value gets it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import cugrad
from cugrad import memory
from cugrad.autograd.mode import watch_writes
from cugrad.backends import simulated
from cugrad.memory import constants
from cugrad.memory.recomputing import values

torch = pytest.importorskip("torch")
OPTIMIZERS = ("SGD", "Adam", "AdamW")
Lib = Any


def leaf(lib: Lib, *values: float) -> Any:
    return lib.tensor(values or (0.25, 0.5, 0.75), dtype=lib.float64, requires_grad=True)


def no_grad(lib: Lib, change: Callable[[Any], object]) -> Callable[[Any], None]:
    def changed(x: Any) -> None:
        with lib.no_grad():
            change(x)

    return changed


def step(lib: Lib, name: str, **options: Any) -> Callable[[Any], None]:
    def stepped(x: Any) -> None:
        x.grad = lib.ones_like(x)
        getattr(lib.optim, name)([x], lr=0.1, **options).step()

    return stepped


def changes(lib: Lib) -> dict[str, Callable[[Any], None]]:
    """Ways to change a leaf in place."""
    return {
        "in place": no_grad(lib, lambda x: x.atan_()),
        "a part": no_grad(lib, lambda x: x[1:].mul_(3)),
        "assignment": no_grad(lib, lambda x: x.__setitem__(0, 4)),
        "detached": lambda x: x.detach().add_(1),
        "out": no_grad(lib, lambda x: lib.add(x, 1, out=x)),
        "a ufunc": lambda x: np.add(x.detach(), 1, out=x.detach()),
        "apply_": no_grad(lib, lambda x: x.detach().apply_(lambda v: v + 1)),
        **{name: step(lib, name) for name in OPTIMIZERS},
        "momentum": step(lib, "SGD", momentum=0.5, nesterov=True, weight_decay=0.1),
        "decay": step(lib, "Adam", weight_decay=0.1),
    }


CHANGES = tuple(changes(cugrad))
# What backward needs of `x` is made within, and is no part of `x`.
LOSSES: dict[str, Callable[[Lib, Any], Any]] = {
    "kl_div": lambda lib, x: lib.nn.functional.kl_div(x, x, log_target=True, reduction="sum"),
    "exp": lambda lib, x: (x + 1).exp().sin().sum(),
    "softmax": lambda lib, x: ((x * 2).softmax(0) * (x - 1).sigmoid()).sum(),
    "product": lambda lib, x: (x[:, None] + 1).mm((x * 2)[None]).tanh().sum(),
}
CONTEXTS: dict[str, Callable[[], Any]] = {
    "recompute": lambda: memory.recompute(),
    "recompute all": lambda: memory.recompute(ops="all"),
    "budget": lambda: memory.budget("1GB", device="cpu"),
}


@pytest.mark.parametrize("how", CHANGES)
def test_it_is_told_while_the_old_value_is_there(how: str) -> None:
    x, seen = leaf(cugrad), list[tuple[float, ...]]()
    place, before = x.data_ptr(), tuple(x.tolist())

    def watch(tensor: Any) -> None:
        if place <= tensor.data_ptr() < place + 24:
            seen.append(tuple(x.tolist()))

    watch_writes(watch, True)
    try:
        changes(cugrad)[how](x)
    finally:
        watch_writes(watch, False)
    assert seen and seen[0] == before != tuple(x.tolist())


def test_a_copy_between_devices_is_told_of() -> None:
    """Straight from one memory to the other, with no op of the table."""
    x, batch = cugrad.zeros(3, device="simulated"), cugrad.ones(3)
    with memory.recompute():
        w = cugrad.ones(3, device="simulated", requires_grad=True)
        y = ((w + x).exp() * 2).sin().sum()
    x.copy_(batch)
    (found,) = cugrad.autograd.grad(y, w)
    (wanted,) = cugrad.autograd.grad((w.exp() * 2).sin().sum(), w)
    assert cugrad.equal(found, wanted)
    with cugrad.inference_mode():
        inferred = cugrad.zeros(3, device="simulated")
    with pytest.raises(RuntimeError, match="Inplace update to inference tensor"):
        inferred.copy_(batch)


@pytest.mark.parametrize("device", ["cpu", "simulated"])
def test_running_statistics_and_gradients_are_told_of(device: str) -> None:
    x = cugrad.ones(4, 2, device=device, requires_grad=True)
    mean, var = cugrad.zeros(2, device=device), cugrad.ones(2, device=device)
    x.grad = cugrad.ones(4, 2, device=device)
    told: list[Any] = []
    watch_writes(told.append, True)
    try:
        cugrad.nn.functional.batch_norm(x, mean, var, training=True).sum().backward()
    finally:
        watch_writes(told.append, False)
    assert all(any(t is u for u in told) for t in (mean, var, x.grad))


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("how", CHANGES)
def test_a_leaf_may_change_before_backward(how: str, loss: str, context: str) -> None:
    """As without the context, and as PyTorch, where what a formula needs is not the leaf itself."""
    found = []
    ways = ((torch, None), (cugrad, None), (cugrad, CONTEXTS[context]))
    for lib, entered in ways[how == "a ufunc" :]:  # which PyTorch cannot write to a tensor
        x = leaf(lib)
        for _ in range(2 if entered else 1):  # a budget follows its plan in the second one
            with lib.no_grad():
                x.copy_(lib.tensor((0.25, 0.5, 0.75)))
            with entered() if entered else lib.enable_grad():
                y = LOSSES[loss](lib, x)
                changes(lib)[how](x)
                (g,) = lib.autograd.grad(y, x)
        found.append(g.tolist())
    np.testing.assert_allclose(found[-1], found[0], rtol=1e-12)
    assert found[-2] == found[-1]


@pytest.mark.parametrize("how", CHANGES)
def test_saved_tensors_may_change_where_that_is_allowed(how: str) -> None:
    x = leaf(cugrad)
    with cugrad.autograd.graph.allow_mutation_on_saved_tensors() as context:
        y = (x * x).sum()
        changes(cugrad)[how](x)
        assert cugrad.autograd.grad(y, x)[0].tolist() == [0.5, 1, 1.5] and context.copies == 1


@pytest.mark.parametrize("policy", simulated.POLICIES)
def test_a_gradient_that_leaves_may_be_added_to(policy: str) -> None:
    """It was saved, and is on its way out while the next backward adds to it in place."""
    wanted = []
    for device in ("cpu", "simulated"):
        with simulated.configured(policy=policy, seed=1):
            x = cugrad.tensor([0.5, 1.5], device=device, requires_grad=True)
            x.grad = cugrad.tensor([2.0, 3.0], device=device)
            w = cugrad.ones(2, device=device, requires_grad=True)
            with memory.offload(min_bytes=0, keep_last=0):
                y = (w * (x.grad if device == "simulated" else x.grad.clone())).sum()
            (x * x).sum().backward()
            wanted.append([cugrad.autograd.grad(y, w)[0].tolist(), x.grad.tolist()])
    assert wanted[0] == wanted[1] == [[2, 3], [3, 6]]


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What recipes have copied because it was about to change."""
    found: list[str] = []
    for kind, field in ((constants.Constant, "array"), (values.Value, "held")):

        def save(self: Any, root: Any, save: Any = kind.save, field: str = field) -> None:
            before = getattr(self, field)
            save(self, root)
            if getattr(self, field) is not before:
                found.append(f"{type(self).__name__} of {root.shape}")

        monkeypatch.setattr(kind, "save", save)
    yield found


@pytest.mark.parametrize("context", CONTEXTS)
def test_an_ordinary_step_copies_nothing(context: str, copies: list[str]) -> None:
    nn = cugrad.nn
    net = nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.Dropout(0.1), nn.BatchNorm1d(4))
    opt = cugrad.optim.Adam(net.parameters())
    x = cugrad.rand(8, 4)
    for number in range(4):
        with CONTEXTS[context]():
            opt.zero_grad(set_to_none=number % 2 == 0)
            loss = net(x).square().sum()
            loss.backward()
            opt.step()
    assert copies == []


def test_what_guards_a_parameter_is_forgotten() -> None:
    """A parameter that does not change is read in many steps."""
    w = cugrad.ones(3, requires_grad=True)
    for _ in range(200):
        with memory.recompute():
            (w + 1).exp().sum().backward()
        w.grad = None
    assert constants._guarded == {}


@pytest.mark.parametrize("context", ["save_on_cpu", "offload", "offload of large ones"])
@pytest.mark.parametrize("change", ["relu_", "add_ to a view", "copy_", "fill_", "mul_"])
def test_what_stays_where_it_is_may_be_changed(device: str, context: str, change: str) -> None:
    """On the host, and what is too small to leave: as where a pack hook has copied it. Nothing is
    watched any more when the graph is gone.
    """
    saving = {
        "save_on_cpu": memory.save_on_cpu, "offload": memory.offload,
        "offload of large ones": lambda: memory.offload(min_bytes=1 << 20, keep_last=0),
    }[context]  # fmt: skip
    found = []
    for within in (False, True):
        x = cugrad.linspace(-1, 1, 12, device=device).reshape(3, 4).requires_grad_()
        with saving() if within else memory.save_on_disk(min_bytes=0):
            h = (x * 2).tanh()
            y = (h * h.exp()).sum()
        with cugrad.no_grad():
            for _ in range(2):
                if change == "relu_":
                    h.relu_()
                elif change == "add_ to a view":
                    h.T[1:].add_(3)
                elif change == "copy_":
                    h.detach().copy_(x)
                else:
                    h.fill_(7) if change == "fill_" else h.mul_(0)
        y.backward()
        found.append(x.grad.tolist())
        del h, y
    assert found[0] == found[1]
    assert constants._guarded == {}


@pytest.mark.parametrize("context", ["save_on_cpu", "offload"])
@pytest.mark.parametrize("change", ["transpose_", "mul_", "a part of nothing"])
def test_conjugates_and_nothing_stay_as_they_were(context: str, change: str) -> None:
    """A conjugate that is gone, and tensors without elements, whose writes no one is told of."""
    with getattr(memory, context)():
        x = cugrad.ones(2, 3, dtype=cugrad.complex128) * (1 + 2j)
        v = x.clone().requires_grad_()
        h = v * 1
        if change == "a part of nothing":
            h = cugrad.zeros(2, 0, requires_grad=True).exp()
            y = (h * h).sum()
            h.diagonal().zero_()
        else:
            y = (h @ h.mT.conj()).abs().sum()
            h.transpose_(0, 1) if change == "transpose_" else h.mul_(2)
    y.backward()
    if change != "a part of nothing":
        w = x.clone().requires_grad_()
        (w @ w.mT.conj()).abs().sum().backward()
        assert v.grad.tolist() == w.grad.tolist()
