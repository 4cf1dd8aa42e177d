"""gradcheck and gradgradcheck beside PyTorch's: right and wrong Functions under every option."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cugrad

torch = pytest.importorskip("torch", reason="PyTorch, the oracle, is not installed")

Library = Any
Case = Callable[[Library], tuple[Any, Any]]  # library -> (function, inputs)


def real(t: Library, *shape: int) -> Any:
    n = int(np.prod(shape))
    found = (np.arange(n) * 0.37 % 1.7 + 0.4).reshape(shape).tolist()
    return t.tensor(found, dtype=t.float64, requires_grad=True)


def complex_(t: Library, n: int) -> Any:
    found = [complex(0.5 + 0.3 * k, 1.1 - 0.4 * k) for k in range(n)]
    return t.tensor(found, dtype=t.complex128, requires_grad=True)


# Functions, most of them wrong -----------------------------------------------------------------


def square(t: Library, backward: Any = None, jvp: Any = None, materialize: bool = True) -> Any:
    """x * x as a custom Function, its derivatives those given: of (x, g) and of (x, tangent)."""

    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        ctx.save_for_forward(x)
        ctx.set_materialize_grads(materialize)
        return x * x

    pull: Any = backward or (lambda x, g: 2 * x.conj() * g)
    push: Any = jvp or (lambda x, v: 2 * x * v)
    body: dict[str, Any] = {
        "forward": staticmethod(forward),
        "backward": staticmethod(lambda ctx, g: pull(*ctx.saved_tensors, g)),
        "jvp": staticmethod(lambda ctx, v: push(*ctx.saved_tensors, v)),
    }
    made: Any = type("Square", (t.autograd.Function,), body)
    return made.apply


def product(t: Library, backward: Any = None, jvp: Any = None) -> Any:
    """(x * y, x + y), whose derivatives may meet absent gradients and tangents."""

    def forward(ctx: Any, x: Any, y: Any) -> Any:
        ctx.save_for_backward(x, y)
        ctx.save_for_forward(x, y)
        ctx.set_materialize_grads(False)
        return x * y, x + y

    def pull(x: Any, y: Any, g: Any, h: Any) -> Any:
        gx = gy = t.zeros_like(x)
        if g is not None:
            gx, gy = gx + g * y, gy + g * x
        if h is not None:
            gx, gy = gx + h, gy + h
        return gx, gy

    def push(x: Any, y: Any, u: Any, v: Any) -> Any:
        u = t.zeros_like(x) if u is None else u
        v = t.zeros_like(y) if v is None else v
        return u * y + x * v, u + v

    body: dict[str, Any] = {
        "forward": staticmethod(forward),
        "backward": staticmethod(lambda ctx, *g: (backward or pull)(*ctx.saved_tensors, *g)),
        "jvp": staticmethod(lambda ctx, *v: (jvp or push)(*ctx.saved_tensors, *v)),
    }
    made: Any = type("Product", (t.autograd.Function,), body)
    return made.apply


def noise() -> Any:
    calls: list[int] = []

    def backward(x: Any, g: Any) -> Any:
        calls.append(1)
        return 2 * x * g * (1 + 1e-7 * len(calls))

    return backward


def needs_gradient(x: Any, g: Any) -> Any:
    if g is None:
        raise RuntimeError("a gradient is wanted")
    return 2 * x * g


def one_where_absent(x: Any, y: Any, g: Any, h: Any) -> Any:
    if g is None or h is None:
        return x * 0 + 1, y * 0 + 1
    return g * y + h, g * x + h


def needs_both(x: Any, y: Any, g: Any, h: Any) -> Any:
    if g is None or h is None:
        raise RuntimeError("two gradients are wanted")
    return g * y + h, g * x + h


def forgets_where_absent(x: Any, y: Any, u: Any, v: Any) -> Any:
    if u is None or v is None:
        return x * 0 + 3, y * 0 + 3
    return u * y + x * v, u + v


def wrong_in_the_second(x: Any, y: Any, u: Any, v: Any) -> Any:
    u = x * 0 if u is None else u
    v = y * 0 if v is None else v
    return u * y + x * v, 2 * u + v


def first_only(g: Any) -> Any:
    mask = [1.0] + [0.0] * (g.numel() - 1)
    return g * g.new_tensor(mask)


CASES: dict[str, Case] = {
    "right": lambda t: (square(t), real(t, 3)),
    "right, complex": lambda t: (square(t), complex_(t, 2)),
    "right, 0-d": lambda t: (square(t), real(t)),
    "right, two": lambda t: (product(t), (real(t, 3), real(t, 3))),
    "right, ops": lambda t: (lambda x, y: (x @ y).sin().sum(0), (real(t, 2, 3), real(t, 3, 2))),
    "right, an unused input": lambda t: (lambda x, y: x * x, (real(t, 2), real(t, 2))),
    "right, a constant input": lambda t: (lambda x, y: x * y, (real(t, 2), real(t, 2).detach())),
    "right, in place": lambda t: (lambda x: x.clone().mul_(x).sigmoid_(), real(t, 3)),
    "right, a view of the input": lambda t: (lambda x: x.t()[1:] * 2, real(t, 2, 3)),
    "right, complex to real": lambda t: (lambda z: z.abs(), complex_(t, 2)),
    "right, real to complex": lambda t: (lambda x: x * x * 2j, real(t, 2)),
    "right, complex and real": lambda t: (
        lambda z, x: (z * x, x * x),
        (complex_(t, 2), real(t, 2)),
    ),
    "a factor": lambda t: (square(t, lambda x, g: 3 * x * g), real(t, 3)),
    "a sign": lambda t: (square(t, lambda x, g: -2 * x * g), real(t, 3)),
    "no gradient": lambda t: (square(t, lambda x, g: None), real(t, 3)),
    "one element wrong": lambda t: (
        square(t, lambda x, g: 2 * x * g + first_only(g)),
        real(t, 3),
    ),
    "slightly wrong": lambda t: (square(t, lambda x, g: 2.01 * x * g), real(t, 3)),
    "within tolerance": lambda t: (square(t, lambda x, g: 2.0002 * x * g), real(t, 3)),
    "of the wrong size, which broadcasts": lambda t: (
        square(t, lambda x, g: (2 * x * g).sum()),
        real(t, 3),
    ),
    "no conjugate": lambda t: (square(t, lambda x, g: 2 * x * g), complex_(t, 2)),
    "the second output": lambda t: (
        lambda x: (x * x, square(t, lambda x, g: 3 * x * g)(x)),
        real(t, 3),
    ),
    "the second input": lambda t: (
        lambda x, y: x * square(t, lambda x, g: 3 * x * g)(y),
        (real(t, 3), real(t, 3)),
    ),
    "detached": lambda t: (lambda x: x * x.detach(), real(t, 3)),
    "no differentiable output": lambda t: (lambda x: x.detach() * 2, real(t, 3)),
    "a constant": lambda t: (lambda x: t.ones(3).double(), real(t, 3)),
    "not multiplied by the gradient": lambda t: (
        square(t, lambda x, g: 2 * x + 0 * g),
        real(t, 1),
    ),
    "not deterministic": lambda t: (square(t, noise()), real(t, 3)),
    "infinite": lambda t: (square(t, lambda x, g: g / 0), real(t, 3)),
    "not a number": lambda t: (square(t, lambda x, g: g * float("nan")), real(t, 3)),
    "absent is an error": lambda t: (
        square(t, needs_gradient, materialize=False),
        real(t, 3),
    ),
    "absent is an error, of two": lambda t: (product(t, needs_both), (real(t, 2), real(t, 2))),
    "absent is one": lambda t: (product(t, one_where_absent), (real(t, 2), real(t, 2))),
    "reads a value": lambda t: (
        square(t, lambda x, g: 2 * x * g if g.sum() else 0 * g),
        real(t, 3),
    ),
    "reads an item": lambda t: (
        square(t, lambda x, g: 2 * x * g + 0 * g.sum().item()),
        real(t, 3),
    ),
    "a failing backward": lambda t: (square(t, fails), real(t, 3)),
    "a factor in forward mode": lambda t: (square(t, jvp=lambda x, v: 3 * x * v), real(t, 3)),
    "a factor in both": lambda t: (
        square(t, lambda x, g: 3 * x * g, lambda x, v: 3 * x * v),
        real(t, 3),
    ),
    "a conjugate in forward mode": lambda t: (
        square(t, jvp=lambda x, v: 2 * x.conj() * v),
        complex_(t, 2),
    ),
    "an imaginary factor in forward mode": lambda t: (
        square(t, jvp=lambda x, v: 2 * x * (v.real + 2j * v.imag)),
        complex_(t, 2),
    ),
    "a constant tangent": lambda t: (square(t, jvp=lambda x, v: 2 * x), real(t, 3)),
    "absent tangents": lambda t: (
        product(t, jvp=forgets_where_absent),
        (real(t, 2), real(t, 2)),
    ),
    "reads an item in forward mode": lambda t: (
        square(t, jvp=lambda x, v: 2 * x * v + 0 * v.sum().item()),
        real(t, 3),
    ),
    "the second output in forward mode": lambda t: (
        product(t, jvp=wrong_in_the_second),
        (real(t, 2), real(t, 2)),
    ),
    "second derivative cut": lambda t: (
        square(t, lambda x, g: 2 * x.detach() * g),
        real(t, 3),
    ),
    "its gradient cut": lambda t: (square(t, lambda x, g: 2 * x * g.detach()), real(t, 3)),
}


def fails(x: Any, g: Any) -> Any:
    raise OSError("enough")


OPTIONS: dict[str, dict[str, Any]] = {
    "default": {},
    "no undefined": {"check_undefined_grad": False},
    "fast": {"fast_mode": True},
    "dtypes": {"check_grad_dtypes": True},
    "tolerant": {"nondet_tol": 1e-3, "atol": 1e-1, "rtol": 1e-1},
    "masked": {"masked": True},
    "batched": {"check_batched_grad": True},
    "forward": {"check_forward_ad": True},
    "forward only": {"check_forward_ad": True, "check_backward_ad": False},
    "forward only, fast": {
        "check_forward_ad": True, "check_backward_ad": False, "fast_mode": True,
    },
    "forward, batched": {
        "check_forward_ad": True, "check_batched_forward_grad": True, "check_backward_ad": False,
    },
    "forward, no undefined": {
        "check_forward_ad": True, "check_backward_ad": False, "check_undefined_grad": False,
    },
    "all": {
        "check_forward_ad": True, "check_batched_forward_grad": True, "check_batched_grad": True,
        "check_grad_dtypes": True,
    },
    "silent": {"raise_exception": False},
}  # fmt: skip
SECOND: dict[str, dict[str, Any]] = {
    "default": {},
    "fast": {"fast_mode": True},
    "gaps": {"gen_non_contig_grad_outputs": True},
    "batched": {"check_batched_grad": True},
    "forward over reverse": {"check_fwd_over_rev": True},
    "forward over reverse only": {
        "check_fwd_over_rev": True, "check_rev_over_rev": False, "check_undefined_grad": False,
    },
    "silent": {"raise_exception": False},
}  # fmt: skip


def outcome(t: Library, name: str, case: Case, options: dict[str, Any]) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        t.manual_seed(0)  # a fast check draws its directions: what is slightly wrong may be missed
        try:
            return getattr(t.autograd, name)(*case(t), **options)
        except Exception as error:
            return type(error).__name__, beginning(str(error), options)


def beginning(text: str, options: dict[str, Any]) -> str:
    """What both say: of a mismatch all but random numbers, else the first sentence."""
    if "grad_fn=<CopySlices>" in text:  # PyTorch's forward mode writes its Jacobian in place
        text = re.sub(r",\s+grad_fn=<CopySlices>", "", text)
    if "Jacobian" in text.split("\n")[0]:
        return text.split("\n")[0] if options.get("fast_mode") else re.sub(r"\s+", " ", text)
    if text.startswith("While computing batched gradients"):
        return "While computing batched gradients"
    return re.split(r"[.:,\n]", text.lstrip("('"))[0]


def half(cases: dict[str, Any], options: dict[str, Any]) -> list[Any]:
    """Each case with the first way to ask and every other one, its neighbour with those between."""
    return [pytest.param(case, way, id=f"{name}-{asked}")
            for i, (name, case) in enumerate(cases.items())
            for k, (asked, way) in enumerate(options.items()) if k == 0 or (i + k) % 2]  # fmt: skip


@pytest.mark.parametrize(("case", "options"), half(CASES, OPTIONS))
def test_gradcheck(case: Case, options: dict[str, Any]) -> None:
    if is_torchs_accident(case, options):
        return
    ours, theirs = (outcome(t, "gradcheck", case, options) for t in (cugrad, torch))
    assert ours == theirs


def is_torchs_accident(case: Case, options: dict[str, Any]) -> bool:
    """An IndexError where there is nothing to compare; a batch in which `detach` fails."""
    nothing, detaches = CASES["no differentiable output"], CASES["its gradient cut"]
    return (case is nothing and options == OPTIONS["forward only, fast"]) or (
        case is detaches and "check_batched_grad" in options
    )


TWICE = {  # of nothing to differentiate PyTorch's gradgradcheck makes a TypeError
    name: case for name, case in CASES.items() if name not in ("no differentiable output",
                                                               "a constant")
}  # fmt: skip


@pytest.mark.parametrize(("case", "options"), half(TWICE, SECOND))
def test_gradgradcheck(case: Case, options: dict[str, Any]) -> None:
    ours, theirs = (outcome(t, "gradgradcheck", case, options) for t in (cugrad, torch))
    if isinstance(theirs, tuple) and "Jacobian" in theirs[1] and isinstance(ours, tuple):
        ours, theirs = ours[1].split(" numerical")[0], theirs[1].split(" numerical")[0]  # random
    assert ours == theirs
