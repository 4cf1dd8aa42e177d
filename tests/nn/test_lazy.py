"""Checks lazy modules beside PyTorch's: what they become, state dicts, copies, errors."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import cugrad
from cugrad import nn

# The layer, its arguments, and the shape of an input.
LAYERS: list[tuple[str, tuple[Any, ...], tuple[int, ...]]] = [
    ("Linear", (4,), (5, 2, 3)),
    *[(f"Conv{n}d", (4, 3), (2, 3) + (6,) * n) for n in (1, 2, 3)],
    *[(f"ConvTranspose{n}d", (4, 3), (2, 3) + (4,) * n) for n in (1, 2, 3)],
    *[(f"BatchNorm{n}d", (), (2, 3) + (4,) * n) for n in (1, 2, 3)],
    *[(f"InstanceNorm{n}d", (), (2, 3) + (4,) * n) for n in (1, 2, 3)],
]
NAMES = [layer[0] for layer in LAYERS]


# A norm says whether it has a bias.
SAID = [pytest.param(*layer, marks=[pytest.mark.pinned_torch] * ("Norm" in layer[0]))
        for layer in LAYERS]  # fmt: skip


@pytest.mark.parametrize("name, args, shape", SAID, ids=NAMES)
def test_the_first_call_gives_shapes(name: str, args: Any, shape: Any) -> None:
    torch = pytest.importorskip("torch", reason="compares with PyTorch, which is not installed")
    looks: list[Any] = []
    for lib in (cugrad, torch):
        layer = getattr(lib.nn, "Lazy" + name)(*args).double()
        before = [repr(layer), [(k, repr(v)) for k, v in layer.state_dict().items()]]
        out = layer(lib.ones(shape, dtype=lib.float64))
        assert type(layer) is getattr(lib.nn, name)
        assert not layer._forward_pre_hooks
        after = {k: (list(v.shape), str(v.dtype)) for k, v in layer.state_dict().items()}
        looks.append([*before, repr(layer), list(out.shape), after])
    assert looks[0] == looks[1]


@pytest.mark.parametrize("name, args, shape", LAYERS, ids=NAMES)
def test_copies_and_files_are_lazy_too(name: str, args: Any, shape: Any) -> None:
    layer = getattr(nn, "Lazy" + name)(*args)
    for twin in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        twin(cugrad.ones(shape))
        assert type(twin) is getattr(nn, name) and not twin._forward_pre_hooks
        assert layer.has_uninitialized_params() and len(layer._forward_pre_hooks) == 1
        other = getattr(nn, "Lazy" + name)(*args)
        other.load_state_dict(twin.state_dict())
        for key, value in twin.state_dict().items():
            np.testing.assert_array_equal(other.state_dict()[key].numpy(), value.numpy())
        other(cugrad.ones(shape))
        assert repr(other) == repr(twin)
        with pytest.raises(RuntimeError, match="shape of an uninitialized"):
            twin.load_state_dict(layer.state_dict())
    layer.load_state_dict(getattr(nn, "Lazy" + name)(*args).state_dict())
    assert layer.has_uninitialized_params()


USES = ["w + 1", "w.sum()", "torch.exp(w)", "w[0]", "w.numpy()", "len(w)", "w.reshape(2)",
        "torch.nn.functional.linear(torch.ones(2, 3), w)", "torch.nn.init.ones_(w)"]  # fmt: skip


@pytest.mark.parametrize("use", USES)
def test_what_has_no_shape_is_no_operand(use: str) -> None:
    with pytest.raises(ValueError, match="Attempted to use an uninitialized parameter"):
        eval(use, {"torch": cugrad, "w": nn.LazyLinear(3).weight})


def test_an_optimizer_keeps_what_gets_a_shape() -> None:
    weight = nn.UninitializedParameter(dtype=cugrad.float64)
    optimizer = cugrad.optim.Adam([weight], lr=0.5)
    weight.materialize((2, 3))
    assert type(weight) is nn.Parameter and weight.dtype is cugrad.float64
    weight.data.zero_()
    weight.sum().backward()
    optimizer.step()
    np.testing.assert_allclose(weight.detach().numpy(), -0.5, rtol=1e-6)


def test_one_that_stays_lazy_is_an_error() -> None:
    class Forgets(nn.modules.lazy.LazyModuleMixin):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.UninitializedParameter()

        def initialize_parameters(self, input: Any) -> None:
            pass

    with pytest.raises(RuntimeError, match="Forgets has not been fully initialized"):
        Forgets()(cugrad.ones(2))
    with pytest.raises(ValueError, match="in_channels must be divisible by groups"):
        nn.LazyConv2d(4, 3, groups=2)(cugrad.ones(1, 3, 8, 8))
    with pytest.raises(RuntimeError, match=r"Expected 3D \(unbatched\) or 4D \(batched\) input"):
        nn.LazyConv2d(4, 3)(cugrad.ones(3, 8))


def test_no_memory_to_share(lib: Any) -> None:
    net = lib.nn.Sequential(lib.nn.Linear(2, 2), lib.nn.LazyLinear(3))
    with pytest.raises(RuntimeError, match="Can't share memory on an uninitialized parameter"):
        net.share_memory()
