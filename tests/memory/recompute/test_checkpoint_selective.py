"""Selective checkpoints: some results are kept, or offloaded, and the rest is computed again."""

from __future__ import annotations

import functools
from collections import Counter
from typing import Any

import numpy as np
import pytest

import cugrad
from cugrad.backends import simulated
from cugrad.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)


def leaf(device: str = "cpu", seed: int = 0) -> Any:
    values = np.random.default_rng(seed).standard_normal((6, 6))
    return cugrad.tensor(values, device=device, requires_grad=True)


def gradients(run: Any, device: str = "cpu") -> list[bytes]:
    cugrad.manual_seed(1)
    x, w = leaf(device), leaf(device, 1)
    y = run(run(x * 1, w), w).sum()
    y.backward(retain_graph=True)
    y.backward()
    return [t.grad.cpu().numpy().tobytes() for t in (x, w)]


POLICIES = {
    "products": ["matmul"],
    "functions": [cugrad.matmul, cugrad.tanh],
    "everything": lambda ctx, op, *args, **kwargs: CheckpointPolicy.MUST_SAVE,
    "nothing": lambda ctx, op, *args, **kwargs: CheckpointPolicy.PREFER_RECOMPUTE,
    "offload": lambda ctx, op, *args, **kwargs: CheckpointPolicy.MUST_CPU_OFFLOAD,
    "mixed": lambda ctx, op, *args, **kwargs: [
        CheckpointPolicy.PREFER_SAVE, CheckpointPolicy.PREFER_CPU_OFFLOAD,
        CheckpointPolicy.MUST_RECOMPUTE,
    ][len(op) % 3],
    "bools": lambda ctx, op, *args, **kwargs: op == "tanh",
    "by size": lambda ctx, op, *args, **kwargs: ctx.op_output.numel() > 30
    if isinstance(ctx.op_output, cugrad.Tensor) else False,
}  # fmt: skip


@pytest.mark.parametrize("device", ["cpu", "simulated"])
@pytest.mark.parametrize("name", POLICIES)
def test_gradients_are_bitwise_those_without(name: str, device: str) -> None:
    contexts = functools.partial(create_selective_checkpoint_contexts, POLICIES[name])

    def run(x: Any, w: Any) -> Any:
        return checkpoint(layer, x, w, use_reentrant=False, context_fn=contexts)

    def layer(x: Any, w: Any) -> Any:
        h = (x @ w).tanh()
        h = h + (h.t() @ w).sin().chunk(2)[0].repeat(2, 1)
        h = h * 2
        return h * cugrad.nn.functional.dropout(h.exp(), 0.5)

    wanted = gradients(layer, device)
    for policy in simulated.POLICIES if device == "simulated" else ["random"]:
        with simulated.configured(policy=policy, seed=2):
            assert gradients(run, device) == wanted
    simulated.reset()
    assert cugrad.autograd.mode.state.stand_in is None


def test_what_is_kept_does_not_run_again() -> None:
    found = []
    for names in ([], ["matmul"], ["matmul", "tanh", "sin"]):
        x, w = leaf("simulated"), leaf("simulated", 1)
        y = checkpoint(
            lambda x, w: ((x @ w).tanh() @ w).sin().exp(), x, w, use_reentrant=False,
            context_fn=functools.partial(create_selective_checkpoint_contexts, names),
        ).sum()  # fmt: skip
        with simulated.record() as timeline:
            y.backward()
        found.append(Counter(r.name for r in timeline.records if r.kind == "kernel"))
    assert [kernels["matmul"] for kernels in found] == [6, 4, 4]  # four are backward's own
    assert [kernels["tanh"] for kernels in found] == [1, 1, 0]
    assert [kernels["sin"] for kernels in found] == [1, 1, 0]


def test_a_kept_result_that_was_changed() -> None:
    def f(x: Any, w: Any) -> Any:
        h = x @ w
        h.mul_(2)
        return h.sin().exp()

    x, w = leaf(), leaf(seed=1)
    y = checkpoint(f, x, w, use_reentrant=False,
                   context_fn=lambda: create_selective_checkpoint_contexts(["matmul"]))  # fmt: skip
    with pytest.raises(RuntimeError, match="selective activation checkpoint has been mutated"):
        y.sum().backward()


def test_of_a_function_the_ops_count() -> None:
    """It runs again, or it would not know what it saves; what is kept is not given to its ops."""
    ran, seen = [], []

    class Rows(cugrad.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ran.append(1)
            total = x.sum(0)
            ctx.save_for_backward(total, x)
            return total.exp() * 2 + x

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            total, x = ctx.saved_tensors
            return g + (g.sum(0) * total.exp() * 2).expand(x.shape)

    def f(x: Any, w: Any) -> Any:
        h = Rows.apply(x @ w).sin()
        return h * cugrad.nn.functional.scaled_dot_product_attention(h, w, h.tanh())

    def policy(context: Any, op: str, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        seen.append(op)
        return CheckpointPolicy.MUST_SAVE

    found = []
    for use in (False, True):
        x, w = leaf(), leaf(seed=1)
        contexts = functools.partial(create_selective_checkpoint_contexts, policy)
        y = checkpoint(f, x, w, use_reentrant=False, context_fn=contexts) if use else f(x, w)
        y.sum().backward()
        found.append([t.grad.numpy().tobytes() for t in (x, w)])
    assert found[0] == found[1] and len(ran) == 3
    assert "Rows" not in seen and seen[:4] == ["mm", "sum", "exp", "mul"]


def test_in_place_changes_are_made_again() -> None:
    def f(x: Any, w: Any) -> Any:
        h = (x @ w).sin()
        h.mul_(2)
        return h.sin().exp()

    found = []
    for use in (False, True):
        x, w = leaf(), leaf(seed=1)
        y = checkpoint(
            f, x, w, use_reentrant=False,
            context_fn=lambda: create_selective_checkpoint_contexts(["matmul", "mul"]),
        ) if use else f(x, w)  # fmt: skip
        y.sum().backward()
        found.append(x.grad.numpy().tobytes())
    assert found[0] == found[1]


def test_offloaded_results_leave_the_device() -> None:
    seen = []

    def policy(ctx: Any, op: str, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        seen.append((op, tuple(ctx.op_output.shape), ctx.is_recompute))
        return CheckpointPolicy.MUST_CPU_OFFLOAD if op == "mm" else (
            CheckpointPolicy.MUST_RECOMPUTE
        )  # fmt: skip

    x, w = leaf("simulated"), leaf("simulated", 1)
    with simulated.configured(policy="earliest"), simulated.record() as timeline:
        y = checkpoint(
            lambda x, w: (x @ w).tanh().sin(), x, w, use_reentrant=False,
            context_fn=functools.partial(create_selective_checkpoint_contexts, policy),
        )  # fmt: skip
        assert seen == [(op, (6, 6), False) for op in ("mm", "tanh", "sin")]
        y.sum().backward()
    assert timeline.moved("d2h") == 6 * 6 * 8
    simulated.reset()


def test_a_second_run_that_differs() -> None:
    runs = []

    def f(x: Any) -> Any:
        runs.append(1)
        return x.exp().sin() if len(runs) == 1 else x.cos().sin()

    x = leaf()
    contexts = functools.partial(create_selective_checkpoint_contexts, ["exp"])
    y = checkpoint(f, x, use_reentrant=False, context_fn=contexts)
    with pytest.raises(RuntimeError, match="cos encountered during backward but not found in stor"):
        y.sum().backward()
    assert cugrad.autograd.mode.state.observers == ()


def test_bad_policies() -> None:
    with pytest.raises(TypeError, match="must be either a function or a list of ops"):
        create_selective_checkpoint_contexts(3)
    with pytest.raises(ValueError, match="Expected op in `op_list` to be the name of an op"):
        create_selective_checkpoint_contexts([3])
    for unknown in ("nn", cugrad.nn.functional.scaled_dot_product_attention):
        with pytest.raises(ValueError, match="as docs/ops.md has it"):
            create_selective_checkpoint_contexts([unknown])
    with pytest.raises(TypeError, match="offload: got 3, want None or a memory.offload"):
        create_selective_checkpoint_contexts(["mm"], offload=3)
