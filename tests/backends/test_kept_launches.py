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


def changed(x: Any, y: Any) -> list[Any]:
    """In place: results that are recorded, that need what is overwritten, and that do not."""
    w = x * 1.5
    w += y
    w.mul_(2).sub_(0.25).relu_()
    v = x.sin()
    v.add_(y).div_(2.5).sigmoid_()
    u = x.detach().clone()
    u.mul_(0.5).add_(y.detach()).add_(u).clamp_(-1, 1)
    part = u[1:]
    part.mul_(3.0)
    part.sub_(u[:-1])
    versions = [0 if z.is_inference() else z._version for z in (w, v, u, part)]
    return [w, v, w * v, u, u.new_tensor(versions)]


def filled(x: Any, y: Any) -> list[Any]:
    """Copies into new memory, whole and in part, from other dtypes, numbers and themselves."""
    w, v, whole = x * 1.5, x * 0.5, cugrad.empty(x.shape, dtype=cugrad.int64, device=x.device)
    w.copy_(y)
    v[1:, ::2] = y[-1:, :3]
    v[0] = 0.25
    parts = [cugrad.empty(x.shape, dtype=kind, device=x.device).copy_(x.detach())
             for kind in (cugrad.float64, cugrad.float16, cugrad.bfloat16)]  # fmt: skip
    u = cugrad.empty((8, 6), dtype=x.dtype, device=x.device).fill_(0.1)
    u[:4] = y.detach()
    u[1:5] = u[:4]
    u[5].zero_()
    u.mT[2:4] = 7
    mask = x.detach() > 0
    mask.fill_(False)[0] = True
    whole.zero_().copy_(mask)
    whole[1:].copy_(whole[:-1]).fill_(3)
    return [w, v, w * v, u, *[z.float() for z in (*parts, mask, whole)]]


def by_indices_of_a_part(x: Any, y: Any) -> list[Any]:
    """Whose gradients are copied into zeros, since indices reach a part of what they look at."""
    few = cugrad.tensor([[2, 0, 1], [0, 3, 1]], device=x.device)
    both = [x.scatter_reduce(0, few, y, how) for how in ("amax", "prod", "sum")]
    return [*both, x.gather(0, few), x.reshape(4, 2, 3).gather(0, few[:, None, :2])]


CASTS = cugrad.float64, cugrad.int32, cugrad.bfloat16, cugrad.bool
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
    "by indices of a part": Program(by_indices_of_a_part, (SHAPE, SHAPE)),
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
    "in place": Program(changed, (SHAPE, SHAPE)),
    "in place, broadcast": Program(changed, (SHAPE, (1, 6))),
    "where": Program(
        lambda x, y: [cugrad.where(y > 0, x, 0.25), cugrad.where(y[:1] > 0, x, 3),
                      cugrad.where(y > 0, x[:1], -1.0), cugrad.where(y > 0, 0.0, x)],
        (SHAPE, SHAPE), (1,),
    ),
    "copies into": Program(filled, (SHAPE, SHAPE)),
    "copies into, broadcast": Program(filled, (SHAPE, (1, 6))),
    "whole numbers": Program(lambda x: [x * 2, x + 1, x**2, x > 0, x / 4], (SHAPE,)),
    "casts": Program(lambda x: [x.to(kind) for kind in CASTS], (SHAPE,)),
    "attention": Program(F.scaled_dot_product_attention, ((2, 5, 8),) * 3),
    "causal attention": Program(
        lambda *x: F.scaled_dot_product_attention(*x, is_causal=True), ((2, 5, 8),) * 3
    ),
    "attention of one tensor": Program(
        lambda x: F.scaled_dot_product_attention(x, x, x), ((2, 5, 8),)
    ),
}  # fmt: skip


def _heard(w: Any) -> Any:
    seen: list[Any] = []
    w.register_hook(lambda g: seen.append(g.tolist()))
    return w.add_(1.0), seen


def _retained(w: Any) -> Any:
    w.retain_grad()
    v = w.mul_(2.0)
    v.sum().backward(retain_graph=True)
    return v, w.grad.tolist()


def _viewed(w: Any) -> Any:
    part = w[1]
    w.mul_(2.0)
    return w * part, part.grad_fn.name(), part._version


def _unrecorded(w: Any) -> Any:
    part = w[1]
    with cugrad.no_grad():
        w.add_(1.0)
    return part * 2, part._version


def _read_later(w: Any) -> Any:
    factor = cugrad.ones_like(w.detach())
    w.mul_(factor)
    factor.add_(1.0)
    return w


def _preserved(w: Any) -> Any:
    with cugrad.autograd.graph.allow_mutation_on_saved_tensors() as context:
        y, z = w.square(), w.detach()
        z.add_(1.0)
        (grad,) = cugrad.autograd.grad(y.sum(), w)
    return w * grad, context.copies


def _inferred(w: Any) -> Any:
    with cugrad.inference_mode():
        z = cugrad.ones_like(w).add_(1.0)
    return z.add_(1.0)


# What is more than a change of a whole tensor by others, which nothing else knows of.
CHANGES: dict[str, Callable[[Any], Any]] = {
    "none": lambda w: w.add_(1.0).mul_(2.0),
    "a leaf": lambda w: w.detach().requires_grad_().add_(1.0),
    "a view of a leaf": lambda w: w.detach().requires_grad_()[1].add_(1.0),
    "a view": lambda w: (w[1].add_(1.0), w * w),
    "one of several views": lambda w: w.unbind()[0].add_(1.0),
    "a repeated element": lambda w: w.detach()[:1].expand(4, 6).add_(1.0),
    "hooks": _heard, "a gradient that is kept": _retained, "views": _viewed,
    "views, where nothing is recorded": _unrecorded, "what is read later": _read_later,
    "what is preserved": _preserved, "inference": _inferred,
    "by itself": lambda w: w.add_(w).mul_(w), "by its other face": lambda w: w.mul_(w.detach()),
    "by a part": lambda w: w.add_(w[1]).mul_(w[2]),
    "what was saved": lambda w: (lambda y: (y.add_(1.0), y)[1])(w.exp()),
    "copied": lambda w: (w.copy_(w.detach()[0]), w * w),
    "copied to a leaf": lambda w: w.detach().requires_grad_().copy_(w),
    "copied to a part": lambda w: (w[1].copy_(w[0]), w * w),
    "copied where nothing is recorded": lambda w: (cugrad.zeros_like(w).copy_(w.detach()), w * w),
    "copied to what was saved": lambda w: (lambda y: (y.zero_(), y)[1])(w.exp()),
    "another dtype": lambda w: w.add_(w.detach().double()),
    "one that needs a gradient": lambda w: w.detach().mul_(w).add_(w),
    "without a derivative": lambda w: w.ge_(0.0),
}  # fmt: skip


def told(change: Callable[[Any], Any], device: str) -> str:
    """The results of a change and the gradient, or the error."""
    x = (cugrad.arange(24.0, device=device).view(4, 6) / 8 - 1).requires_grad_()
    try:
        results = change(x * 1.5)
        results = results if isinstance(results, tuple) else (results,)
        recorded = [y for y in results if isinstance(y, cugrad.Tensor) and y.requires_grad]
        if recorded:
            y = recorded[0]
            results += (*cugrad.autograd.grad(y.sum(), x), y.grad_fn.name(), y._version)
    except RuntimeError as error:
        return str(error)
    return str([y.tolist() if isinstance(y, cugrad.Tensor) else y for y in results])


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

    @pytest.mark.parametrize("name", CHANGES)
    def test_a_change_in_place_is_all_that_it_is_on_the_host(name: str) -> None:
        want = told(CHANGES[name], "cpu")
        for _ in range(3):
            assert told(CHANGES[name], "cuda") == want
