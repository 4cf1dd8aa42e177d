"""Weights computed from others: parametrizations, and the older hooks, beside PyTorch's."""

from __future__ import annotations

import copy
import pickle
import warnings
from typing import Any

import numpy as np
import pytest

import cugrad

torch = pytest.importorskip("torch", reason="PyTorch, the oracle, is not installed")

RNG = np.random.default_rng(8)
MODULES: dict[str, Any] = {
    "linear": (lambda n: n.Linear(4, 3), RNG.standard_normal((2, 4))),
    "wide": (lambda n: n.Linear(3, 5), RNG.standard_normal((2, 3))),
    "square": (lambda n: n.Linear(3, 3), RNG.standard_normal((2, 3))),
    "conv": (lambda n: n.Conv2d(2, 3, 2), RNG.standard_normal((2, 2, 4, 4))),
    "turned": (lambda n: n.ConvTranspose1d(2, 3, 2), RNG.standard_normal((2, 2, 4))),
}  # fmt: skip
WAYS: dict[str, Any] = {
    "weight_norm": lambda u, m: u.weight_norm(m),
    "weight_norm, whole": lambda u, m: u.weight_norm(m, dim=None),
    "weight_norm, dim 1": lambda u, m: u.weight_norm(m, "weight", 1),
    "spectral_norm": lambda u, m: u.spectral_norm(m),
    "spectral_norm, steps": lambda u, m: u.spectral_norm(m, n_power_iterations=3, dim=1),
    "lengths": lambda u, m: u.parametrizations.weight_norm(m),
    "lengths, whole": lambda u, m: u.parametrizations.weight_norm(m, dim=None),
    "norms": lambda u, m: u.parametrizations.spectral_norm(m),
    "norms of a vector": lambda u, m: u.parametrizations.spectral_norm(m, "bias"),
    "orthogonal": lambda u, m: u.parametrizations.orthogonal(m),
    "orthogonal, cayley": lambda u, m: u.parametrizations.orthogonal(
        m, orthogonal_map="cayley", use_trivialization=False),
    "orthogonal, reflections": lambda u, m: u.parametrizations.orthogonal(
        m, orthogonal_map="householder", use_trivialization=False),
}  # fmt: skip


def built(lib: Any, module: str, way: str) -> Any:
    made = MODULES[module][0](lib.nn).double()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return WAYS[way](lib.nn.utils, made)


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("way", WAYS)
def test_ways(way: str, module: str) -> None:
    """The same keys; from one state the same outputs, gradients and buffers, call after call."""
    if module == "turned" and way == "norms of a vector":
        pytest.skip("a transposed convolution's bias has no dim 1: an IndexError in both")
    if "orthogonal" in way and module in ("conv", "turned"):
        pytest.skip("the kernels of a convolution are no matrices of rows that fit")
    theirs, mine = built(torch, module, way), built(cugrad, module, way)
    assert list(mine.state_dict()) == list(theirs.state_dict())
    assert [k for k, _ in mine.named_parameters()] == [k for k, _ in theirs.named_parameters()]
    mine.load_state_dict(
        {k: cugrad.from_numpy(v.numpy().copy()) for k, v in theirs.state_dict().items()}
    )
    found = []
    for lib, m in ((cugrad, mine), (torch, theirs)):
        results = []
        for training in (True, True, False):
            x = lib.from_numpy(MODULES[module][1].copy()).requires_grad_()
            total = (m.train(training)(x) ** 2).sum()
            total = total + m.weight.sum()
            results += [total, *lib.autograd.grad(total, [x, *m.parameters()])]
        results += list(m.state_dict().values())
        found.append([t.detach().numpy() for t in results])
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("module", ["linear", "wide", "square"])
@pytest.mark.parametrize("map_", ["matrix_exp", "cayley", "householder", None])
@pytest.mark.parametrize("trivial", [True, False])
def test_orthogonal_weights_are_orthogonal(module: str, map_: str | None, trivial: bool) -> None:
    layer = MODULES[module][0](cugrad.nn).double()
    cugrad.nn.utils.parametrizations.orthogonal(
        layer, orthogonal_map=map_, use_trivialization=trivial
    )

    def unit(w: Any) -> Any:
        small = w if w.shape[0] <= w.shape[1] else w.mT
        return (small @ small.mT - cugrad.eye(len(small), dtype=w.dtype)).abs().max().item()

    assert unit(layer.weight) < 1e-12
    (layer.weight * cugrad.randn_like(layer.weight)).sum().backward()
    with cugrad.no_grad():
        for p in layer.parameters():
            if p.grad is not None:
                p -= 0.1 * p.grad
    assert unit(layer.weight) < 1e-12
    if trivial:
        wanted = cugrad.linalg.qr(cugrad.randn(5, 5).double())[0]
        wanted = wanted[: layer.weight.shape[0], : layer.weight.shape[1]].clone()
        wanted = cugrad.nn.init.orthogonal_(wanted)
        layer.weight = wanted
        np.testing.assert_allclose(layer.weight.detach().numpy(), wanted.numpy(), atol=1e-12)


@pytest.mark.parametrize("way", ["weight_norm", "spectral_norm", "lengths", "norms"])
def test_removing_leaves_the_weight(way: str) -> None:
    found = []
    for lib in (cugrad, torch):
        m, u = built(lib, "linear", way).eval(), lib.nn.utils
        m(lib.ones(2, 4).double())  # the older ones compute the weight when they are called
        before = m.weight.detach().clone()
        if way in ("weight_norm", "spectral_norm"):
            remove = getattr(u, f"remove_{way}")
            again = (m,)
        else:
            remove, again = u.parametrize.remove_parametrizations, (m, "weight")
        assert remove(*again) is m
        assert sorted(m.state_dict()) == ["bias", "weight"] and type(m) is lib.nn.Linear
        assert isinstance(m.weight, lib.nn.Parameter) and m.weight.is_leaf
        np.testing.assert_allclose(m.weight.detach().numpy(), before.numpy(), rtol=1e-12)
        m(lib.ones(2, 4).double()).sum().backward()
        with pytest.raises(ValueError) as caught:
            remove(*again)
        found.append(str(caught.value))
    assert found[0] == found[1]


class Module:
    """Small parametrizations of a library."""

    def __init__(self, lib: Any) -> None:
        base = lib.nn.Module
        self.double = type(
            "Double", (base,), {"forward": lambda s, x: x * 2, "right_inverse": lambda s, x: x / 2}
        )()
        self.one_way = type("OneWay", (base,), {"forward": lambda s, x: x + 1})()
        self.wider = type("Wider", (base,), {"forward": lambda s, x: lib.cat([x, x])})()
        self.whole = type("Whole", (base,), {"forward": lambda s, x: x.to(lib.float32)})()
        self.none = type("None_", (base,), {"forward": lambda s, x: 3})()
        self.word = type(
            "Word", (base,), {"forward": lambda s, x: x, "right_inverse": lambda s, x: 3}
        )()
        self.narrow = type(
            "Narrow",
            (base,),
            {"forward": lambda s, x: x.to(lib.float64), "right_inverse": lambda s, x: x.float()},
        )()
        self.parts = type(
            "Parts",
            (base,),
            {"forward": lambda s, a, b: a + b, "right_inverse": lambda s, x: (x - 1, x * 0 + 1)},
        )()
        self.words = type(
            "Words", (base,), {"forward": lambda s, a, b: a, "right_inverse": lambda s, x: (x, "b")}
        )()


CALLS: dict[str, Any] = {
    "two": lambda p, m, k: [p.register_parametrization(m, "weight", k.double),
                            p.register_parametrization(m, "weight", k.one_way), m.weight][2],
    "assigned": lambda p, m, k: [p.register_parametrization(m, "weight", k.double),
                                 setattr(m, "weight", m.bias[:, None] * 0 + 7), m.weight][2],
    "several originals": lambda p, m, k: [
        p.register_parametrization(m, "weight", k.parts), setattr(m, "weight", m.weight * 2),
        m.weight, m.parametrizations.weight.original0][2:],
    "a buffer": lambda p, m, k: [m.register_buffer("b", m.bias.detach()),
                                 p.register_parametrization(m, "b", k.double), m.b,
                                 list(m.state_dict())][2:],
    "not assigned": lambda p, m, k: [p.register_parametrization(m, "weight", k.one_way),
                                     setattr(m, "weight", m.weight)],
    "no such name": lambda p, m, k: p.register_parametrization(m, "x", k.double),
    "another shape": lambda p, m, k: p.register_parametrization(m, "weight", k.wider),
    "another shape, after": lambda p, m, k: [p.register_parametrization(m, "weight", k.double),
                                             p.register_parametrization(m, "weight", k.wider)],
    "another shape, unsafe": lambda p, m, k: p.register_parametrization(
        m, "weight", k.wider, unsafe=True).weight,
    "another dtype": lambda p, m, k: p.register_parametrization(m, "weight", k.whole),
    "another dtype back": lambda p, m, k: p.register_parametrization(m, "weight", k.narrow),
    "another dtype back, after": lambda p, m, k: [
        p.register_parametrization(m, "weight", k.double),
        p.register_parametrization(m, "weight", k.narrow)],
    "no tensor": lambda p, m, k: p.register_parametrization(m, "weight", k.none),
    "no tensor, after": lambda p, m, k: [p.register_parametrization(m, "weight", k.double),
                                         p.register_parametrization(m, "weight", k.none)],
    "no tensor back": lambda p, m, k: p.register_parametrization(m, "weight", k.word),
    "no tensor back, after": lambda p, m, k: [p.register_parametrization(m, "weight", k.double),
                                              p.register_parametrization(m, "weight", k.word)],
    "none of all": lambda p, m, k: p.ParametrizationList([], m.weight),
    "removed, original": lambda p, m, k: p.remove_parametrizations(
        p.register_parametrization(m, "weight", k.double), "weight", False).weight,
    "removed, of several": lambda p, m, k: p.remove_parametrizations(
        p.register_parametrization(m, "weight", k.parts), "weight", False),
    "removed, nothing": lambda p, m, k: p.remove_parametrizations(m, "weight"),
    "asked": lambda p, m, k: [p.is_parametrized(m), p.register_parametrization(
        m, "weight", k.double) and None, p.is_parametrized(m), p.is_parametrized(m, "bias"),
        p.is_parametrized(m, "weight"), p.type_before_parametrizations(m).__name__,
        type(m).__name__],
    "pickled": lambda p, m, k: pickle.dumps(p.register_parametrization(m, "weight", k.double)),
    "transferred": lambda p, m, k: [p.transfer_parametrizations_and_params(
        p.register_parametrization(m, "weight", k.double), other := copy.deepcopy(m.bias) * 0
        if False else type(m).__bases__[0](4, 3).double()).weight, list(other.state_dict())],
}  # fmt: skip


def plain(value: Any) -> Any:
    if hasattr(value, "detach"):
        return str(value.dtype), value.detach().tolist()
    return [plain(v) for v in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", CALLS)
def test_parametrize(name: str) -> None:
    found = []
    for lib in (cugrad, torch):
        layer = lib.nn.Linear(4, 3).double()
        with lib.no_grad():
            layer.weight.copy_(lib.arange(12.0).reshape(3, 4))
            layer.bias.fill_(2.0)
        try:
            found.append(plain(CALLS[name](lib.nn.utils.parametrize, layer, Module(lib))))
        except Exception as error:
            found.append((type(error), " ".join(str(error).split())[:60]))
    assert found[0] == found[1]


def test_a_parametrized_module_is_copied_cached_and_called_by_state() -> None:
    parametrize = cugrad.nn.utils.parametrize
    layer = cugrad.nn.utils.parametrizations.weight_norm(cugrad.nn.Linear(4, 3))
    x = cugrad.randn(2, 4)
    twin = copy.deepcopy(layer)
    assert cugrad.equal(twin(x), layer(x)) and type(twin) is type(layer)
    assert twin.parametrizations.weight.original0 is not layer.parametrizations.weight.original0
    with parametrize.cached(), parametrize.cached():
        assert layer.weight is layer.weight and twin.weight is not layer.weight
    assert layer.weight is not layer.weight
    with cugrad.no_grad():
        twin.parametrizations.weight.original0.mul_(2)
    layer.load_state_dict(twin.state_dict())
    assert cugrad.equal(twin(x), layer(x))
    doubled = {k: v * 2 for k, v in layer.named_parameters()}
    assert cugrad.allclose(cugrad.func.functional_call(layer, doubled, (x,)), layer(x) * 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        old = cugrad.nn.utils.weight_norm(cugrad.nn.Linear(4, 3))
    layer.load_state_dict(old.state_dict())
    assert cugrad.allclose(layer(x), old(x))


def test_older_norms_refuse_a_second_time() -> None:
    for way in ("weight_norm", "spectral_norm"):
        said = []
        for lib in (cugrad, torch):
            m = built(lib, "linear", way)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", FutureWarning)
                with pytest.raises(RuntimeError) as caught:
                    getattr(lib.nn.utils, way)(m)
            said.append(str(caught.value))
        assert said[0] == said[1]
    with pytest.warns(FutureWarning, match=r"weight_norm` is deprecated") as warned:
        cugrad.nn.utils.weight_norm(cugrad.nn.Linear(2, 2))
    assert warned[0].filename == __file__
    with pytest.raises(ValueError, match="n_power_iterations to be positive"):
        cugrad.nn.utils.spectral_norm(cugrad.nn.Linear(2, 2), n_power_iterations=0)


def test_skip_init_draws_nothing() -> None:
    cugrad.manual_seed(1)
    wanted = cugrad.rand(3)
    cugrad.manual_seed(1)
    layer = cugrad.nn.utils.skip_init(cugrad.nn.Linear, 5, out_features=2)
    assert layer.weight.shape == (2, 5) and layer.weight.requires_grad
    assert cugrad.equal(cugrad.rand(3), wanted)
    for bad in (int, cugrad.nn.ReLU):
        with pytest.raises(RuntimeError, match=r"Expected a Module|must support a 'device' arg"):
            cugrad.nn.utils.skip_init(bad)


@pytest.mark.parametrize("layer, norm, size", [
    (("Conv2d", 2, 3, 2), "BatchNorm2d", (2, 2, 4, 4)),
    (("ConvTranspose2d", 2, 3, 2), "BatchNorm2d", (2, 2, 4, 4)),
    (("Linear", 4, 3), "BatchNorm1d", (5, 4)),
])  # fmt: skip
@pytest.mark.parametrize("bias", [True, False])
def test_a_layer_and_its_norm_are_one_layer(layer: Any, norm: str, size: Any, bias: bool) -> None:
    n = cugrad.nn
    first, second = getattr(n, layer[0])(*layer[1:], bias=bias), getattr(n, norm)(3)
    second(first(cugrad.randn(*size)))  # has it learn statistics
    fuse = n.utils.fuse_linear_bn_eval if layer[0] == "Linear" else n.utils.fuse_conv_bn_eval
    with pytest.raises(AssertionError, match="Fusion only for eval!"):
        fuse(first, second)
    turned = (True,) if "Transpose" in layer[0] else ()
    fused, x = fuse(first.eval(), second.eval(), *turned), cugrad.randn(*size)
    assert type(fused) is type(first) and isinstance(fused.bias, n.Parameter)
    assert cugrad.allclose(fused(x), second(first(x)), atol=1e-5) and fused is not first


def test_weights_of_convolutions_in_another_format() -> None:
    net = cugrad.nn.Sequential(cugrad.nn.Conv2d(3, 4, 2), cugrad.nn.Conv3d(3, 4, 2))
    before = [p.detach().clone() for p in net.parameters()]
    cugrad.nn.utils.convert_conv2d_weight_memory_format(net, cugrad.channels_last)
    assert net[0].weight.is_contiguous(memory_format=cugrad.channels_last)
    assert net[1].weight.is_contiguous()
    cugrad.nn.utils.convert_conv3d_weight_memory_format(net, cugrad.channels_last_3d)
    assert net[1].weight.is_contiguous(memory_format=cugrad.channels_last_3d)
    assert all(cugrad.equal(a, b) for a, b in zip(before, net.parameters(), strict=True))
