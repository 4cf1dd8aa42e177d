"""Checks nn.Module and its tree: registration, state_dict, hooks, conversion, and error texts."""

from __future__ import annotations

import copy
import pickle
from collections import OrderedDict
from typing import Any

import numpy as np
import pytest

import cugrad
from cugrad import nn

pytestmark = pytest.mark.usefixtures("device")  # each test runs on each usable device


def small() -> Any:
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm2d(4), nn.ReLU(), nn.Linear(4, 2, bias=False))


def net(lib: Any) -> Any:
    """One model of every layer, in cugrad or in torch."""
    return lib.nn.Sequential(
        OrderedDict(
            body=lib.nn.Sequential(
                lib.nn.Conv2d(1, 4, 3, padding="same", bias=False),
                lib.nn.BatchNorm2d(4),
                lib.nn.ReLU(inplace=True),
                lib.nn.MaxPool2d(2),
                lib.nn.Conv2d(4, 4, (3, 1), stride=2, dilation=(1, 2), padding=1, groups=2),
                lib.nn.BatchNorm2d(4, momentum=None, affine=False, track_running_stats=False),
            ),
            flat=lib.nn.Flatten(),
            drop=lib.nn.Dropout(0.25),
            heads=lib.nn.ModuleList([lib.nn.Linear(2, 2) for _ in range(3)]),
            table=lib.nn.ModuleDict({"a": lib.nn.Identity(), "b": lib.nn.Linear(2, 3, bias=False)}),
            loss=lib.nn.CrossEntropyLoss(weight=lib.ones(3)),
        )
    )


# Beside PyTorch ------------------------------------------------------------


@pytest.mark.pinned_torch  # whose norms say whether they have a bias
def test_repr_is_pytorchs() -> None:
    torch = pytest.importorskip("torch", reason="compares with PyTorch, which is not installed")
    assert repr(net(cugrad)) == repr(net(torch))


def test_state_dict_is_pytorchs() -> None:
    torch = pytest.importorskip("torch", reason="compares with PyTorch, which is not installed")
    ours, theirs = net(cugrad), net(torch)
    mine, other = ours.state_dict(), theirs.state_dict()
    assert list(mine) == list(other)
    assert [tuple(v.shape) for v in mine.values()] == [tuple(v.shape) for v in other.values()]
    assert [str(v.dtype) for v in mine.values()] == [str(v.dtype) for v in other.values()]
    assert [n for n, _ in ours.named_modules()] == [n for n, _ in theirs.named_modules()]
    assert [n for n, _ in ours.named_buffers()] == [n for n, _ in theirs.named_buffers()]
    assert [n for n, _ in ours.named_parameters(prefix="p")] == [
        n for n, _ in theirs.named_parameters(prefix="p")
    ]


def test_load_state_dict_errors_are_pytorchs() -> None:
    torch = pytest.importorskip("torch", reason="compares with PyTorch, which is not installed")

    def message(lib: Any) -> str:
        model = net(lib)
        state = model.state_dict()
        del state["body.0.weight"], state["heads.1.bias"]
        state["body.7.weight"] = lib.ones(1)
        state["extra"] = lib.ones(1)
        state["table.b.weight"] = lib.ones(3, 5)
        with pytest.raises(RuntimeError) as caught:
            model.load_state_dict(state)
        assert lib.nn.Sequential.__name__ in str(caught.value)
        return str(caught.value)

    assert message(cugrad) == message(torch)


@pytest.mark.parametrize(
    "misuse",
    [
        lambda lib, m: m.register_buffer("a.b", None),
        lambda lib, m: m.register_buffer("", None),
        lambda lib, m: m.register_buffer("weight", None),
        lambda lib, m: m.register_parameter("bias", None) or m.register_parameter("train", None),
        lambda lib, m: m.register_parameter(3, None),
        lambda lib, m: m.add_module("x", 3),
        lambda lib, m: m.add_module("a.b", None),
        lambda lib, m: m.nothing,
        lambda lib, m: delattr(m, "nothing"),
        lambda lib, m: m.train("yes"),
        lambda lib, m: m.to(lib.int64),
        lambda lib, m: m.get_submodule("nothing.at.all"),
        lambda lib, m: m.load_state_dict([1]),
        lambda lib, m: m.load_state_dict({"weight": 3, "bias": lib.ones(2)}),
        lambda lib, m: lib.nn.Module()(1),
        lambda lib, m: lib.nn.Sequential(m)[1],
        lambda lib, m: lib.nn.Conv2d(3, 4, 3, groups=2),
        lambda lib, m: lib.nn.Conv2d(4, 3, 3, groups=2),
        lambda lib, m: lib.nn.Conv2d(4, 4, 3, groups=0),
        lambda lib, m: lib.nn.Conv2d(4, 4, 3, stride=2, padding="same"),
        lambda lib, m: lib.nn.Conv2d(1, 4, 3)(lib.ones(1, 2, 5, 5)),
        lambda lib, m: lib.nn.BatchNorm2d(3)(lib.ones(2, 3)),
        lambda lib, m: lib.nn.BatchNorm2d(3)(lib.ones(1, 3, 1, 1)),
        lambda lib, m: lib.nn.Dropout(1.5),
        lambda lib, m: lib.nn.init.xavier_uniform_(lib.ones(3)),
        lambda lib, m: lib.nn.init.kaiming_uniform_(lib.ones(3, 3), nonlinearity="silly"),
        lambda lib, m: lib.nn.init.kaiming_uniform_(lib.ones(3, 3), mode="silly"),
    ],
)
def test_misuse_reads_as_in_pytorch(misuse: Any) -> None:
    torch = pytest.importorskip("torch", reason="compares with PyTorch, which is not installed")
    errors = []
    for lib in (cugrad, torch):
        with pytest.raises(Exception) as caught:
            misuse(lib, lib.nn.Linear(3, 2))
        errors.append(caught.value)
    assert type(errors[0]) is type(errors[1])
    assert str(errors[0]).replace("cugrad.", "torch.") == str(errors[1])


# The tree ------------------------------------------------------------


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(2, 2)
        self.second = self.first
        self.weight = self.first.weight
        self.register_buffer("seen", cugrad.zeros(1))
        self.register_buffer("scratch", cugrad.zeros(1), persistent=False)


def test_shared_parts_are_named_once_unless_asked() -> None:
    tied = Tied()
    assert [n for n, _ in tied.named_parameters()] == ["weight", "first.bias"]
    assert len(list(tied.named_parameters(remove_duplicate=False))) == 5
    assert [n for n, _ in tied.named_modules()] == ["", "first"]
    assert [n for n, _ in tied.named_children()] == ["first"]
    assert list(tied.state_dict()) == [
        "weight", "seen", "first.weight", "first.bias", "second.weight", "second.bias",
    ]  # fmt: skip
    assert [n for n, _ in tied.named_buffers()] == ["seen", "scratch"]
    assert len(list(tied.parameters(recurse=False))) == 1


def test_attributes_move_between_rooms() -> None:
    m = nn.Module()
    m.x = 3
    m.x = nn.Parameter(cugrad.ones(1))
    assert "x" not in m.__dict__ and [n for n, _ in m.named_parameters()] == ["x"]
    with pytest.raises(TypeError, match="cannot assign 'int' as parameter 'x'"):
        m.x = 3
    m.x = None
    assert m.x is None and not list(m.parameters())
    del m.x
    assert not hasattr(m, "x")
    m.x = nn.ReLU()
    with pytest.raises(TypeError, match="as child module 'x'"):
        m.x = cugrad.ones(1)
    m.x = nn.Parameter(cugrad.ones(1))
    assert not list(m.children()) and "x" in dir(m)
    m.register_buffer("b", cugrad.ones(1))
    m.b = cugrad.zeros(2)
    assert m.state_dict()["b"].shape == (2,)
    with pytest.raises(TypeError, match="as buffer 'b'"):
        m.b = 3


def test_assigning_before_init_says_so() -> None:
    class Early(nn.Module):
        def __init__(self, part: Any) -> None:
            self.part = part

    with pytest.raises(AttributeError, match="cannot assign module before Module.__init__"):
        Early(nn.ReLU())
    with pytest.raises(AttributeError, match="cannot assign parameters before Module.__init__"):
        Early(nn.Parameter(cugrad.ones(1)))


def test_a_computed_tensor_is_no_parameter() -> None:
    w = nn.Parameter(cugrad.ones(1))
    assert not isinstance(w * 2, nn.Parameter) and w.is_leaf
    with pytest.raises(TypeError, match="cannot assign"):
        nn.Module().register_parameter("w", w * 2)
    with pytest.raises(RuntimeError, match="floating point"):
        nn.Parameter(cugrad.tensor([1]))
    assert repr(nn.Parameter(cugrad.ones(1))).startswith("Parameter containing:\ntensor([1.]")
    with pytest.raises(TypeError, match="want a Tensor"):
        nn.Parameter([1.0])  # type: ignore[arg-type]


def test_paths() -> None:
    model = net(cugrad)
    assert model.get_submodule("body.0") is model.body[0]
    assert model.get_parameter("heads.1.bias") is model.heads[1].bias
    assert model.get_buffer("body.1.running_mean") is model.body[1].running_mean
    with pytest.raises(AttributeError, match="is not an nn.Module"):
        model.get_submodule("body.0.weight")
    for get in (model.get_parameter, model.get_buffer):
        with pytest.raises(AttributeError, match="nothing"):
            get("body.nothing")


def test_containers_are_lists_and_dicts() -> None:
    a, b, c = nn.ReLU(), nn.Identity(), nn.Flatten()
    for cls in (nn.Sequential, nn.ModuleList):
        box = cls(a, b) if cls is nn.Sequential else cls([a, b])
        box.append(c).insert(0, c)
        assert list(box) == [c, a, b, c] and box[-1] is c and list(box[1:3]) == [a, b]
        assert type(box[1:3]) is cls
        del box[1]
        assert list(box) == [c, b, c] and list(box._modules) == ["0", "1", "2"]
        box[1] = a
        assert box.pop(1) is a and len(box) == 2
        box.extend([a])
        assert len(box + cls(a) if cls is nn.Sequential else box + [a]) == 4
        del box[:]
        assert len(box) == 0 and not list(box.children())
    d = nn.ModuleDict([("a", a)])
    d.update({"b": b})
    d["c"] = c
    assert list(d) == list(d.keys()) == ["a", "b", "c"] and "b" in d and d.pop("b") is b
    assert [*d.values()] == [a, c] and dict(d.items()) == {"a": a, "c": c} and len(d) == 2
    del d["a"]
    d.clear()
    assert not d.keys()


def test_apply_visits_children_first() -> None:
    seen: list[str] = []
    model = nn.Sequential(nn.ReLU(), nn.Sequential(nn.Identity()))
    assert model.apply(lambda m: seen.append(type(m).__name__)) is model
    assert seen == ["ReLU", "Identity", "Sequential", "Sequential"]


# State, conversion, copies ------------------------------------------------------------


def test_state_dict_round_trip() -> None:
    source, target = net(cugrad), net(cugrad)
    result = target.load_state_dict(source.state_dict())
    assert repr(result) == "<All keys matched successfully>"
    for a, b in zip(source.state_dict().values(), target.state_dict().values(), strict=True):
        assert a.tolist() == b.tolist() and a.data_ptr() != b.data_ptr()


def test_state_dict_shares_memory_and_keep_vars_keeps() -> None:
    layer = nn.Linear(2, 2)
    state = layer.state_dict(prefix="p.")
    assert list(state) == ["p.weight", "p.bias"] and not state["p.bias"].requires_grad
    state["p.bias"].fill_(7.0)
    assert layer.bias.tolist() == [7.0, 7.0]
    assert layer.state_dict(keep_vars=True)["bias"] is layer.bias


def test_loading_loosely_and_by_assignment() -> None:
    layer = nn.Linear(2, 2)
    loose = layer.load_state_dict({"weight": cugrad.zeros(2, 2), "more": cugrad.ones(1)}, False)
    assert loose.missing_keys == ["bias"] and loose.unexpected_keys == ["more"]
    assert "missing_keys=['bias']" in repr(loose) and layer.weight.tolist() == [[0, 0], [0, 0]]
    layer.requires_grad_(False)
    new = {k: cugrad.ones_like(v, dtype=cugrad.float64) for k, v in layer.state_dict().items()}
    layer.load_state_dict(new, assign=True)
    assert layer.weight.dtype is cugrad.float64 and isinstance(layer.weight, nn.Parameter)
    assert layer.weight.data_ptr() == new["weight"].data_ptr() and not layer.weight.requires_grad


def test_a_checkpoint_without_batch_counts_loads() -> None:
    norm = nn.BatchNorm2d(2)
    state = {k: v for k, v in norm.state_dict().items() if k != "num_batches_tracked"}
    norm.load_state_dict(state)


def test_conversion_keeps_the_parameter_objects() -> None:
    model = small()
    before = list(model.parameters())
    x = model[0](cugrad.ones(1, 3)).sum()
    x.backward()
    assert model.double() is model
    assert list(map(id, model.parameters())) == list(map(id, before))
    assert before[0].dtype is cugrad.float64 and before[0].grad.dtype is cugrad.float64
    assert model[1].num_batches_tracked.dtype is cugrad.int64
    assert model.half()[1].running_mean.dtype is cugrad.float16
    assert model.float()[0].weight.dtype is cugrad.float32
    model.to("cpu", cugrad.float64)
    assert model[1].running_var.dtype is cugrad.float64 and model[0].weight.is_cpu
    model.to(cugrad.ones(1))
    assert model[0].weight.dtype is cugrad.float32
    assert model.to(dtype=cugrad.float64)[0].weight.dtype is cugrad.float64
    assert model.cpu().type(cugrad.float32)[0].weight.dtype is cugrad.float32


@pytest.mark.cuda
def test_modules_move_to_the_gpu_and_back() -> None:
    model = small().cuda()
    assert all(p.is_cuda for p in model.parameters()) and all(b.is_cuda for b in model.buffers())
    assert all(p.is_cpu for p in model.cpu().parameters())


def test_modes_and_gradients() -> None:
    model = small()
    assert model.eval() is model and not any(m.training for m in model.modules())
    model.train()
    assert all(m.training for m in model.modules())
    model.requires_grad_(False)
    assert not any(p.requires_grad for p in model.parameters())
    w = model[3].requires_grad_().weight
    model[3](cugrad.ones(4)).sum().backward()
    model.zero_grad(set_to_none=False)
    assert w.grad.sum().item() == 0.0
    model.zero_grad()
    assert w.grad is None


def test_copies_and_pickles_are_separate() -> None:
    model = net(cugrad)
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert repr(twin) == repr(model)
        for a, b in zip(model.state_dict().items(), twin.state_dict().items(), strict=True):
            assert a[0] == b[0] and a[1].tolist() == b[1].tolist()
            assert a[1].data_ptr() != b[1].data_ptr()
    assert copy.deepcopy(Tied()).first is not None
    twin = copy.deepcopy(Tied())
    assert twin.second is twin.first and twin.weight is twin.first.weight


# Hooks ------------------------------------------------------------


def test_hooks_see_and_replace() -> None:
    layer = nn.Identity()
    order: list[str] = []

    def note(word: str, change: Any = None) -> Any:
        return lambda *args: order.append(word) or change

    handles = [
        layer.register_forward_pre_hook(note("pre 1")),
        layer.register_forward_pre_hook(note("pre 0", (5,)), prepend=True),
        layer.register_forward_hook(note("post 1")),
        layer.register_forward_hook(lambda module, args, out: out + args[0], prepend=True),
    ]
    assert layer(1) == 10
    assert order == ["pre 0", "pre 1", "post 1"]
    for handle in handles:
        handle.remove()
        handle.remove()
    assert layer(1) == 1


def test_hooks_with_keyword_arguments() -> None:
    class Power(nn.Module):
        def forward(self, base: int, *, exponent: int) -> int:
            return base**exponent

    layer = Power()
    layer.register_forward_pre_hook(lambda m, a, k: (a, {"exponent": 3}), with_kwargs=True)
    layer.register_forward_hook(lambda m, a, k, out: (out, k), with_kwargs=True)
    assert layer(2, exponent=1) == (8, {"exponent": 3})
    layer.register_forward_pre_hook(lambda m, a, k: 3, with_kwargs=True)
    with pytest.raises(RuntimeError, match="forward pre-hook must return None or a tuple"):
        layer(2, exponent=1)


def test_always_called_hooks_run_once_even_after_an_error() -> None:
    class Broken(nn.Module):
        def forward(self) -> None:
            raise KeyError("broken")

    layer, calls = Broken(), []
    layer.register_forward_hook(lambda *a: calls.append("never"))
    layer.register_forward_hook(lambda *a: calls.append("always"), always_call=True)
    with pytest.raises(KeyError, match="broken"):
        layer()
    assert calls == ["always"]


# Initial values ------------------------------------------------------------


@pytest.mark.parametrize(
    "name, bound",
    [
        ("xavier_uniform_", np.sqrt(6 / (50 * 4 + 40 * 4))),
        ("kaiming_uniform_", np.sqrt(2) * np.sqrt(3 / (50 * 4))),
    ],
)
def test_uniform_initial_values_fill_their_range(name: str, bound: float) -> None:
    values = getattr(nn.init, name)(cugrad.empty(40, 50, 2, 2)).cpu().numpy()
    assert np.abs(values).max() <= bound and np.abs(values).max() > 0.99 * bound
    assert abs(values.mean()) < 0.05 * bound


@pytest.mark.parametrize(
    "name, std",
    [
        ("xavier_normal_", np.sqrt(2 / (50 * 4 + 40 * 4))),
        ("kaiming_normal_", np.sqrt(2 / (50 * 4))),
    ],
)
def test_normal_initial_values_have_their_deviation(name: str, std: float) -> None:
    values = getattr(nn.init, name)(cugrad.empty(40, 50, 2, 2)).cpu().numpy()
    assert values.std() == pytest.approx(std, rel=0.05)


def test_layers_start_as_pytorchs_do() -> None:
    for layer, fan_in in ((nn.Linear(64, 64), 64), (nn.Conv2d(8, 64, 3), 72)):
        for values in (layer.weight.detach().cpu().numpy(), layer.bias.detach().cpu().numpy()):
            assert np.abs(values).max() <= 1 / np.sqrt(fan_in)
            assert np.abs(values).max() > 0.9 / np.sqrt(fan_in)
    norm = nn.BatchNorm2d(2)
    assert norm.weight.tolist() == [1, 1] and norm.bias.tolist() == [0, 0]
    assert nn.init.constant_(cugrad.empty(2), 0.5).tolist() == [0.5, 0.5]
    with pytest.warns(UserWarning, match="zero-element"):
        nn.init.kaiming_uniform_(cugrad.empty(0, 3))


def test_the_seed_decides_the_initial_values() -> None:
    values = []
    for _ in range(2):
        cugrad.manual_seed(3)
        values.append(nn.Linear(3, 3).weight.tolist())
    assert values[0] == values[1]


def test_a_padding_mode_that_is_none_says_what_there_are() -> None:
    with pytest.raises(ValueError, match="padding_mode must be one of .*zeros"):
        nn.Conv2d(1, 1, 3, padding_mode="silly")


def test_a_pickled_module_of_an_older_version_gets_what_it_lacks(lib: Any) -> None:
    nn = lib.nn
    for module, name, value in (
        (nn.Conv2d(1, 1, 1), "padding_mode", "zeros"), (nn.Softmax(1), "dim", None),
        (nn.MultiheadAttention(2, 1), "_qkv_same_embed_dim", True), (nn.LSTM(1, 1), "proj_size", 0),
        (nn.Upsample(2), "recompute_scale_factor", True), (nn.ReLU(), "_forward_pre_hooks", {}),
    ):  # fmt: skip
        state = {k: v for k, v in module.__dict__.items() if k != name}
        again = type(module).__new__(type(module))
        again.__setstate__(state)
        assert getattr(again, name) == value and repr(again) == repr(again)

    class Counted(nn.Module):  # type: ignore[misc, name-defined]
        def __setstate__(self, state: dict[str, Any]) -> None:
            super().__setstate__(state)
            self.count = 1

    assert copy.deepcopy(Counted()).count == 1


def test_complex_modules_are_told_of(lib: Any) -> None:
    with pytest.warns(UserWarning, match="Complex modules are a new feature"):
        assert lib.nn.Linear(1, 1).to(lib.complex64).weight.dtype is lib.complex64
