"""Layers that are checkpointed by being wrapped: values, gradients and names, as in PyTorch."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

import cugrad

pytestmark = pytest.mark.host_only
PATH = "distributed.algorithms._checkpoint.checkpoint_wrapper"


@pytest.fixture(params=["cugrad", "torch"])
def lib(request: pytest.FixtureRequest) -> Any:
    return cugrad if request.param == "cugrad" else pytest.importorskip("torch")


def _parts(lib: Any) -> Any:
    return importlib.import_module(f"{lib.__name__}.{PATH}")


class Counted:
    """A layer's forward that counts its runs, and takes an argument by name."""

    def __new__(cls, lib: Any) -> Any:
        class Layer(lib.nn.Linear):  # type: ignore[misc, name-defined]
            runs, tag = 0, "told"

            def forward(self, x: Any, *, by: Any = 1.0) -> Any:
                self.runs += 1
                return super().forward(x) * by

        return Layer(3, 3)


@pytest.mark.parametrize("kind", ["NO_REENTRANT", "REENTRANT", "offload", "own"])
def test_a_wrapped_layer_runs_again_in_backward(lib: Any, kind: str) -> None:
    parts, layer, calls = _parts(lib), Counted(lib), []
    if kind == "offload":
        wrapped = parts.offload_wrapper(layer)
    elif kind == "own":
        wrapped = parts.checkpoint_wrapper(
            layer, checkpoint_fn=lambda f, *a, said, **k: [calls.append(said), f(*a, **k)][1],
            said=7,
        )  # fmt: skip
    else:
        wrapped = parts.checkpoint_wrapper(layer, getattr(parts.CheckpointImpl, kind))
    x = lib.ones(2, 3, requires_grad=True)
    by = lib.full((3,), 2.0)
    y = wrapped(x, by=by)
    y.sum().backward()
    assert layer.runs == (2 if kind.endswith("REENTRANT") else 1)
    assert calls == ([7] if kind == "own" else []) and wrapped.tag == "told"
    want = layer.weight.detach().numpy().sum(0) * 2
    np.testing.assert_allclose(x.grad.numpy(), np.stack([want, want]), rtol=1e-6)


def test_names_stay_those_of_the_model(lib: Any) -> None:
    parts, nn = _parts(lib), lib.nn

    def model() -> Any:
        return nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 2), nn.Tanh()))

    plain, wrapped = model(), model()
    parts.apply_activation_checkpointing(
        wrapped, check_fn=lambda m: isinstance(m, (nn.Linear, nn.Sequential))
    )
    assert list(wrapped.state_dict()) == list(plain.state_dict())
    names = [name for name, _ in wrapped.named_parameters()]
    assert names[0] == "0._checkpoint_wrapped_module.weight"
    inner = [name for name, _ in wrapped[1].named_parameters()]
    assert inner == ["0.weight", "0.bias"]
    wrapped.load_state_dict(plain.state_dict())
    plain.load_state_dict(wrapped.state_dict())
    x = lib.ones(3, 2)
    assert lib.equal(wrapped(x), plain(x))
    assert type(wrapped[1][0]).__name__ == "CheckpointWrapper"


WRAPPED = {3: ["0", "1.0", "1.1"], 4: ["0", "1.1"], 6: ["0", "1"], 7: ["1"], 100: []}


@pytest.mark.parametrize("least", WRAPPED)
def test_a_policy_counts_what_is_wrapped_nowhere_below(lib: Any, least: int) -> None:
    parts, nn = _parts(lib), lib.nn
    model = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 1), nn.Linear(1, 2)))

    def policy(module: Any, recurse: bool, nonwrapped_numel: int) -> bool:
        return bool(nonwrapped_numel >= least)

    parts.apply_activation_checkpointing(model, auto_wrap_policy=policy)
    wrapped = [n for n, m in model.named_modules() if type(m).__name__ == "CheckpointWrapper"]
    assert wrapped == WRAPPED[least]
