"""Functions whose launches are kept compute what the CPU does, for operands of one form after
another: other values, dtypes, orders in memory, settings, and other tensors that need gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple

import numpy as np
import pytest

pytest.importorskip("cupy", reason="CuPy is not installed")
pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")

import cugrad
from tests.support import fake_cuda

F = cugrad.nn.functional
TOLERANCES = {"float32": 1e-4, "float16": 2e-2}


class Program(NamedTuple):
    """A function of tensors of these shapes."""

    run: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]
    held: tuple[int, ...] = ()  # numbers of those without a gradient


def batch_norms(x: Any, weight: Any, bias: Any) -> list[Any]:
    """With running statistics, with others, and without."""
    results, own = [], (weight, bias)
    for momentum, kind, affine in ((0.1, x.dtype, own), (0.5, cugrad.float32, (None, None)),
                                   (0.1, None, own), (0.5, x.dtype, own)):  # fmt: skip
        running = []
        if kind is not None:
            running = [make(len(weight), dtype=kind, device=x.device)
                       for make in (cugrad.zeros, cugrad.ones)]  # fmt: skip
        y = F.batch_norm(x, *(running or (None, None)), *affine, True, momentum)
        results += [y, *running]
    return results


def layer(x: Any) -> list[Any]:
    """A module, which counts batches, twice."""
    norm = cugrad.nn.BatchNorm2d(x.shape[1]).to(x.device, x.dtype)
    return [norm(x), norm(x * 2), norm.running_mean, norm.running_var, norm.num_batches_tracked]


SHAPE, INDEX = (4, 6), cugrad.tensor([2, 0, 2], device="cpu")
PROGRAMS = {
    "conv2d": Program(
        lambda *x: F.conv2d(*x, padding=1), ((2, 3, 5, 6), (4, 3, 3, 3), (4,))
    ),
    "conv2d of groups": Program(
        lambda *x: F.conv2d(*x, groups=2), ((2, 4, 5, 6), (4, 2, 3, 3))
    ),
    "batch_norm": Program(batch_norms, ((3, 4, 2, 6), (4,), (4,))),
    "batch_norm of given statistics": Program(
        lambda x, m, v, w, b: F.batch_norm(x, m.detach(), v.detach().square(), w, b),
        ((3, 4, 2, 6), (4,), (4,), (4,), (4,)), (1, 2),
    ),
    "BatchNorm2d": Program(layer, ((3, 4, 2, 6),)),
    "cat": Program(lambda *x: cugrad.cat(x, 1), (SHAPE, SHAPE, (4, 3))),
    "cat along the first dim": Program(lambda *x: cugrad.cat(x), (SHAPE, SHAPE, (3, 6))),
    "cat of one tensor": Program(lambda x: cugrad.cat([x]), (SHAPE,)),
    "cat of one tensor twice": Program(lambda x, y: cugrad.cat([x, y, x]), (SHAPE, SHAPE)),
    "stack": Program(lambda *x: cugrad.stack(x, 1), (SHAPE, SHAPE)),
    "by an index": Program(
        lambda x: [x[i.to(x.device)] for i in (INDEX, INDEX.flip(0), INDEX.int())], (SHAPE,)
    ),
    "by an index of columns": Program(
        lambda x: [x[:, i.to(x.device)] for i in (INDEX, INDEX.reshape(1, 3), INDEX)], (SHAPE,)
    ),
    "split": Program(lambda x: x.split(4, 1), (SHAPE,)),
    "split in one": Program(lambda x: x.split(6, 1), (SHAPE,)),
    "unbind": Program(lambda x: [y * 2 for y in x.unbind(1)], (SHAPE,)),
    "contiguous": Program(lambda x: x.mT.contiguous(), (SHAPE,)),
    "attention": Program(F.scaled_dot_product_attention, ((2, 5, 8),) * 3),
    "causal attention": Program(
        lambda *x: F.scaled_dot_product_attention(*x, is_causal=True), ((2, 5, 8),) * 3
    ),
    "attention of one tensor": Program(
        lambda x: F.scaled_dot_product_attention(x, x, x), ((2, 5, 8),)
    ),
}  # fmt: skip


class Form(NamedTuple):
    """How operands lie, of which dtype they are, and how many of them need gradients."""

    dtype: str = "float32"
    layout: str = "dense"
    needing: int = 9
    mode: str = "plain"


@contextmanager
def deterministic() -> Iterator[None]:
    try:
        cugrad.use_deterministic_algorithms(True)
        yield
    finally:
        cugrad.use_deterministic_algorithms(False)


MODES: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "plain": nullcontext, "no_grad": cugrad.no_grad, "inference": cugrad.inference_mode,
    "deterministic": deterministic,
    "packing": lambda: cugrad.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x),
}  # fmt: skip
DENSE, TURNED, HALF = Form(), Form(layout="turned"), Form("float16")
FORMS = [
    DENSE, DENSE, TURNED, DENSE, TURNED, Form(layout="shifted"), Form(layout="repeated"), HALF,
    Form(needing=1), DENSE, Form(needing=0), Form(mode="no_grad"), DENSE, Form(mode="inference"),
    HALF, Form("float16", "turned"), Form(mode="deterministic"), Form(mode="packing"), DENSE,
    Form(layout="turned", needing=1), Form(layout="last"), DENSE, Form(layout="last"),
]  # fmt: skip


def outcome(program: Program, form: Form, seed: int, device: str) -> list[Any]:
    """The results, and the gradients of those operands that need one."""
    rng, leaves, operands = np.random.default_rng(seed), [], []
    kind = getattr(cugrad, form.dtype)
    for k, shape in enumerate(program.shapes):
        values = rng.standard_normal(shape)
        if form.layout == "turned":
            values = values.T
        elif form.layout == "repeated":
            values = values[:1]
        elif form.layout == "shifted":
            values = np.append(0.0, values)
        leaf = cugrad.tensor(values.copy(), dtype=kind, device=device)
        leaf.requires_grad_(k < form.needing)
        x = leaf
        if form.layout == "turned":
            x = leaf.permute(*range(len(shape))[::-1])
        elif form.layout == "repeated":
            x = leaf.expand(shape)
        elif form.layout == "last" and len(shape) == 4:
            x = leaf.contiguous(memory_format=cugrad.channels_last)
        elif form.layout == "shifted":
            x = leaf[1:].view(shape)
        leaves.append(leaf)
        operands.append(x)
    with MODES[form.mode]():
        result = program.run(*operands)
    results = list(result) if isinstance(result, (tuple, list)) else [result]
    needing = [x for k, x in enumerate(leaves) if x.requires_grad and k not in program.held]
    if form.mode in ("no_grad", "inference") or not needing:
        return [*results, str([(x.is_inference(), x.requires_grad) for x in results])]
    differentiable = [x for x in results if x.requires_grad]
    slopes = [cugrad.tensor(rng.standard_normal(x.shape), dtype=x.dtype, device=device)
              for x in differentiable]  # fmt: skip
    once = cugrad.autograd.grad(differentiable, needing, slopes, retain_graph=True)
    again = cugrad.autograd.grad(differentiable, needing, slopes)
    names = [type(x.grad_fn).__name__ for x in results]
    return [*names, *results, *once, *again]


if fake_cuda.REAL is None:

    @pytest.mark.host_only
    def test_over_the_fake_cuda() -> None:
        fake_cuda.passed(__file__, fused=True)

else:

    @pytest.fixture(scope="module", autouse=True)
    def compiled() -> Iterator[None]:
        with fake_cuda.compiled_together():
            for program in PROGRAMS.values():
                for form in dict.fromkeys(FORMS):
                    outcome(program, form, 0, "cuda")
        yield

    @pytest.mark.parametrize("name", PROGRAMS)
    def test_one_form_after_another(name: str) -> None:
        for seed, form in enumerate(FORMS):
            got, want = (outcome(PROGRAMS[name], form, seed, d) for d in ("cuda", "cpu"))
            for k, (x, y) in enumerate(zip(got, want, strict=True)):
                if isinstance(y, str):
                    assert x == y
                    continue
                assert (x.shape, x.dtype) == (y.shape, y.dtype)
                tolerance = TOLERANCES[form.dtype]
                np.testing.assert_allclose(
                    x.detach().cpu().float().numpy(), y.detach().float().numpy(), tolerance,
                    tolerance, err_msg=f"{name}, {form}: {k}",
                )  # fmt: skip
