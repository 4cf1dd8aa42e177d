"""Checks nn.utils.prune beside PyTorch's: masks, parameters, buffers, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cugrad

# Programs of `prune` and a module with the parameters weight (4, 3, 2, 2) and bias (4,).
PROGRAMS = """
prune.identity(m, 'weight')
prune.l1_unstructured(m, 'weight', 7)
prune.l1_unstructured(m, 'weight', 0.3)
prune.l1_unstructured(m, 'weight', 0)
prune.l1_unstructured(m, 'bias', 1, importance_scores=torch.tensor([3., 1., 2., 5.]))
prune.ln_structured(m, 'weight', 2, 2, 0)
prune.ln_structured(m, 'weight', 1, float('inf'), -1)
prune.ln_structured(m, 'weight', 0.5, 1, 1, importance_scores=m.weight ** 2)
prune.custom_from_mask(m, 'bias', torch.tensor([1, 0, 0, 1]))
prune.l1_unstructured(m, 'weight', 0.3); prune.l1_unstructured(m, 'weight', 5)
prune.ln_structured(m, 'weight', 1, 2, 0); prune.ln_structured(m, 'weight', 2, 2, 0)
prune.ln_structured(m, 'weight', 1, 2, 0); prune.ln_structured(m, 'weight', 1, 2, 1)
prune.l1_unstructured(m, 'weight', 9); prune.ln_structured(m, 'weight', 1, 2, 0)
prune.l1_unstructured(m, 'weight', 9); prune.remove(m, 'weight')
prune.global_unstructured([(m, 'weight'), (m, 'bias')], prune.L1Unstructured, amount=11)
prune.l1_unstructured(m, 'bias', 1); prune.global_unstructured([(m, 'weight'), (m, 'bias')], prune.L1Unstructured, amount=0.25)
""".strip().splitlines()  # noqa: E501
WRONG = """
prune.l1_unstructured(m, 'weight', -1)
prune.l1_unstructured(m, 'weight', 1.5)
prune.l1_unstructured(m, 'weight', 'all')
prune.l1_unstructured(m, 'weight', 1000)
prune.ln_structured(m, 'bias', 1, 2, 0)
prune.ln_structured(m, 'weight', 1, 2, 7)
prune.custom_from_mask(m, 'bias', torch.ones(3))
prune.l1_unstructured(m, 'bias', 1, importance_scores=torch.ones(3))
prune.remove(m, 'weight')
prune.global_unstructured(3, prune.L1Unstructured, amount=1)
prune.global_unstructured([(m, 'weight')], prune.LnStructured, amount=1, n=2)
prune.global_unstructured([(m, 'weight')], prune.L1Unstructured, importance_scores=[1], amount=1)
""".strip().splitlines()


def module(lib: Any) -> Any:
    m = lib.nn.Conv2d(3, 4, 2)
    rng = np.random.default_rng(0)
    for p in m.parameters():
        p.data = lib.tensor(rng.standard_normal(tuple(p.shape)), dtype=lib.float32)
    return m


def run(lib: Any, program: str) -> Any:
    from importlib import import_module

    m = module(lib)
    names = {"prune": import_module(f"{lib.__name__}.nn.utils.prune"), "m": m, "torch": lib}
    exec(program, names)
    return m


def state(m: Any) -> dict[str, Any]:
    tensors = {**m.state_dict(), "weight": m.weight.detach(), "bias": m.bias.detach()}
    return {name: t.numpy() for name, t in tensors.items()}


@pytest.mark.parametrize("program", PROGRAMS)
def test_masks_are_pytorchs(program: str) -> None:
    torch = pytest.importorskip("torch", reason="compares with PyTorch, which is not installed")
    ours, theirs = run(cugrad, program), run(torch, program)
    assert list(ours._parameters) == list(theirs._parameters)
    for _ in range(2):  # before and after a forward, a backward and a change
        a, b = state(ours), state(theirs)
        assert list(a) == list(b)
        for name, array in b.items():
            np.testing.assert_allclose(a[name], array, rtol=1e-6, atol=1e-6, err_msg=name)
        for lib, m in ((cugrad, ours), (torch, theirs)):
            m(lib.ones(2, 3, 5, 5)).square().sum().backward()
            with lib.no_grad():
                for p in m.parameters():
                    p -= 0.01 * p.grad
            m(lib.ones(2, 3, 5, 5))


@pytest.mark.parametrize("program", WRONG)
def test_errors_are_pytorchs(program: str) -> None:
    torch = pytest.importorskip("torch", reason="compares with PyTorch, which is not installed")
    with pytest.raises(Exception) as theirs:
        run(torch, program)
    with pytest.raises(theirs.type) as ours:
        run(cugrad, program)
    assert str(ours.value)[:40] == str(theirs.value)[:40]


@pytest.mark.parametrize("number", [5, 0.25])
def test_random_methods_prune_so_many(number: float) -> None:
    m, prune = module(cugrad), cugrad.nn.utils.prune
    assert not prune.is_pruned(m)
    prune.random_unstructured(m, "weight", number)
    assert int((m.weight_mask == 0).sum()) == (number if number == 5 else 12)
    prune.random_structured(m, "weight", 2, dim=0)
    assert int((m.weight_mask.sum((1, 2, 3)) == 0).sum()) == 2
    assert prune.is_pruned(cugrad.nn.Sequential(m))
