"""gradcheck and gradgradcheck accept right gradients and reject wrong ones, as PyTorch's do."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cugrad
from cugrad.autograd import GradcheckError, gradcheck, gradgradcheck

pytestmark = pytest.mark.usefixtures("device")  # each test runs on each usable device

Case = Callable[[Any], tuple[Any, Any]]  # library -> (function, inputs)
HAS_TORCH = importlib.util.find_spec("torch") is not None


def real(t: Any, *shape: int) -> Any:
    """Values that repeat, in double precision, requiring gradients, of either library."""
    n = int(np.prod(shape))
    values = (np.arange(n) * 0.37 % 1.7 - 0.6).reshape(shape).tolist()
    return t.tensor(values, dtype=t.float64, requires_grad=True)


def complex_(t: Any, n: int) -> Any:
    values = [complex(0.5 + 0.3 * k, 1.1 - 0.4 * k) for k in range(n)]
    return t.tensor(values, dtype=t.complex128, requires_grad=True)


def function(t: Any, forward: Any, backward: Any) -> Any:
    """A custom Function of the library `t`, applied."""
    body = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    made: Any = type("Custom", (t.autograd.Function,), body)
    return made.apply


def square(ctx: Any, x: Any) -> Any:
    ctx.save_for_backward(x)
    return x * x


def square_backward(ctx: Any, g: Any) -> Any:
    (x,) = ctx.saved_tensors
    return g * x * 2


def two_outputs(ctx: Any, x: Any) -> Any:
    ctx.save_for_backward(x)
    return x * x, x * 3


RIGHT: dict[str, Case] = {
    "square": lambda t: (lambda x: x * x, real(t, 3)),
    "0-d": lambda t: (lambda x: x * x, real(t)),
    "empty": lambda t: (lambda x: x * x, real(t, 2, 0)),
    "two inputs": lambda t: (lambda x, y: x @ y, (real(t, 2, 3), real(t, 3, 2))),
    "a list": lambda t: (lambda x, y: x * y, [real(t, 3), real(t, 3)]),
    "broadcast": lambda t: (lambda x, y: x * y, (real(t, 2, 3), real(t, 3))),
    "constants": lambda t: (lambda x, n, y: x * n * y, (real(t, 3), 2, real(t, 3).detach())),
    "two outputs": lambda t: (lambda x: (x * x, x.exp()), real(t, 3)),
    "a constant output": lambda t: (lambda x: (x * x, x.detach()), real(t, 3)),
    "an integer output": lambda t: (lambda x: (x * x, x.argmax()), real(t, 3)),
    "a view": lambda t: (lambda x: x.reshape(3, 2).t(), real(t, 2, 3)),
    "a transposed input": lambda t: (
        lambda x: x.exp(),
        real(t, 2, 3).detach().t().requires_grad_(),
    ),
    "unused": lambda t: (lambda x, y: x * 2, (real(t, 2), real(t, 2))),
    "in place": lambda t: (lambda x: x.clone().mul_(x), real(t, 3)),
    "complex": lambda t: (lambda z: z * z * z, complex_(t, 2)),
    "complex to real": lambda t: (lambda z: z.abs(), complex_(t, 2)),
    "real to complex": lambda t: (lambda x: x * 2j, real(t, 2)),
    "complex and real": lambda t: (lambda z, x: (z * x, x * x), (complex_(t, 2), real(t, 2))),
    "Function": lambda t: (function(t, square, square_backward), real(t, 3)),
    "Function of two outputs": lambda t: (
        function(t, two_outputs, lambda ctx, g, h: ctx.saved_tensors[0] * g * 2 + h * 3),
        real(t, 3),
    ),
}


def three_halves(ctx: Any, g: Any) -> Any:
    return g * ctx.saved_tensors[0] * 3


def ignores_gradient(ctx: Any, g: Any) -> Any:
    return ctx.saved_tensors[0] * 2 + g * 0


def noisy(calls: list[int]) -> Any:
    def backward(ctx: Any, g: Any) -> Any:
        calls.append(1)
        return g * ctx.saved_tensors[0] * 2 * (1 + 1e-7 * len(calls))

    return backward


def two_unmaterialized(ctx: Any, x: Any) -> Any:
    ctx.set_materialize_grads(False)
    return two_outputs(ctx, x)


def not_zero_where_undefined(ctx: Any, g: Any, h: Any) -> Any:
    (x,) = ctx.saved_tensors
    if g is None:
        return None if h is None else h * 3
    return x * 0 + 1 if h is None and not g.any() else (x * g * 2 if h is None else h * 3)


WRONG: dict[str, tuple[Case, str]] = {
    "factor": (
        lambda t: (function(t, square, three_halves), real(t, 3)),
        "Jacobian mismatch for output 0 with respect to input 0,\nnumerical:tensor(",
    ),
    "second output": (
        lambda t: (lambda x: (x * x, function(t, square, three_halves)(x)), real(t, 3)),
        "Jacobian mismatch for output 1 with respect to input 0,\nnumerical:tensor(",
    ),
    "second input": (
        lambda t: (lambda x, y: x * function(t, square, three_halves)(y), (real(t, 3), real(t, 3))),
        "Jacobian mismatch for output 0 with respect to input 1,\nnumerical:tensor(",
    ),
    "complex": (
        lambda t: (function(t, square, three_halves), complex_(t, 2)),
        "While considering the imaginary part of complex outputs only, Jacobian mismatch",
    ),
    "detached": (
        lambda t: (lambda x: x * x.detach(), real(t, 3)),
        "Jacobian mismatch for output 0 with respect to input 0,\nnumerical:tensor(",
    ),
    "no differentiable output": (
        lambda t: (lambda x: x.detach() * 2, real(t, 3)),
        "Numerical gradient for function expected to be zero",
    ),
    "not multiplied": (
        lambda t: (function(t, lambda ctx, x: square(ctx, x), ignores_gradient), real(t, 1)),
        "backward not multiplied by grad_output",
    ),
    "not deterministic": (
        lambda t: (function(t, square, noisy([])), real(t, 3)),
        "Backward is not reentrant, i.e., running backward with same input and grad_output",
    ),
}


@pytest.mark.parametrize("fast_mode", [False, True], ids=["slow", "fast"])
@pytest.mark.parametrize("case", RIGHT.values(), ids=RIGHT)
def test_accepts_right_gradients(case: Case, fast_mode: bool) -> None:
    func, inputs = case(cugrad)
    assert gradcheck(func, inputs, fast_mode=fast_mode) is True


@pytest.mark.parametrize("fast_mode", [False, True], ids=["slow", "fast"])
@pytest.mark.parametrize("case, message", WRONG.values(), ids=WRONG)
def test_rejects_wrong_gradients(case: Case, message: str, fast_mode: bool) -> None:
    func, inputs = case(cugrad)
    with pytest.raises(GradcheckError) as error:
        gradcheck(func, inputs, fast_mode=fast_mode)
    assert str(error.value).startswith(message.replace("tensor(", "") if fast_mode else message)
    func, inputs = case(cugrad)
    assert gradcheck(func, inputs, fast_mode=fast_mode, raise_exception=False) is False


@pytest.mark.skipif(not HAS_TORCH, reason="PyTorch, the oracle, is not installed")
@pytest.mark.parametrize("case, message", WRONG.values(), ids=WRONG)
def test_the_message_is_pytorchs(case: Case, message: str) -> None:
    """The whole text of a mismatch, Jacobians included; of other failures the first line."""
    import torch

    with pytest.raises(torch.autograd.gradcheck.__globals__["GradcheckError"]) as theirs:
        torch.autograd.gradcheck(*case(torch))
    with pytest.raises(GradcheckError) as ours:
        gradcheck(*case(cugrad))
    if "Jacobian" in message:
        assert str(ours.value) == str(theirs.value)
    assert str(theirs.value).startswith(message)


@pytest.mark.skipif(not HAS_TORCH, reason="PyTorch, the oracle, is not installed")
def test_the_signature_is_pytorchs() -> None:
    import inspect

    import torch

    for ours, theirs in ((gradcheck, torch.autograd.gradcheck),
                         (gradgradcheck, torch.autograd.gradgradcheck)):  # fmt: skip
        mine, yours = (inspect.signature(f).parameters for f in (ours, theirs))
        assert [(p.name, p.kind, p.default) for p in mine.values()] == [
            (p.name, p.kind, p.default) for p in yours.values()
        ]


@pytest.mark.parametrize("fast_mode", [False, True], ids=["slow", "fast"])
@pytest.mark.parametrize("case", RIGHT.values(), ids=RIGHT)
def test_accepts_right_second_derivatives(case: Case, fast_mode: bool) -> None:
    func, inputs = case(cugrad)
    assert gradgradcheck(func, inputs, fast_mode=fast_mode) is True
    assert gradgradcheck(func, inputs, gen_non_contig_grad_outputs=True, fast_mode=fast_mode)


def test_rejects_wrong_second_derivatives() -> None:
    """The first derivative is right; that of the backward itself is cut off by detach."""

    def cut(ctx: Any, g: Any) -> Any:
        return g * ctx.saved_tensors[0].detach() * 2

    func, x = function(cugrad, square, cut), real(cugrad, 3)
    assert gradcheck(func, x)
    with pytest.raises(GradcheckError, match="Jacobian mismatch for output 0 with respect"):
        gradgradcheck(func, x)
    assert gradgradcheck(func, x, raise_exception=False) is False


def test_given_grad_outputs() -> None:
    x, g = real(cugrad, 3), real(cugrad, 3)
    assert gradgradcheck(lambda x: x * x * x, x, g)
    assert gradgradcheck(lambda x: (x * x, x.exp()), x, (g, real(cugrad, 3).detach()))


def test_noise_within_its_tolerance() -> None:
    func = function(cugrad, square, noisy([]))
    assert gradcheck(func, real(cugrad, 3), nondet_tol=1e-3, check_undefined_grad=False)


@pytest.mark.filterwarnings("ignore:Backwards compatibility")
def test_undefined_gradients_must_count_as_zero() -> None:
    """Of two outputs each in turn gets no gradient at all."""
    func = function(cugrad, two_unmaterialized, not_zero_where_undefined)
    one_at_a_time = lambda x: func(x)
    with pytest.raises(GradcheckError, match="to be undefined or zero when all output grads are"):
        gradcheck(one_at_a_time, real(cugrad, 3))
    assert gradcheck(one_at_a_time, real(cugrad, 3), check_undefined_grad=False)

    def needs_both(ctx: Any, g: Any, h: Any) -> Any:
        if g is None or h is None:
            raise RuntimeError("two gradients wanted")
        return ctx.saved_tensors[0] * g * 2 + h * 3

    func = function(cugrad, two_unmaterialized, needs_both)
    both = lambda x: (lambda y, z: y + z)(*func(x))
    assert gradcheck(both, real(cugrad, 3), check_undefined_grad=False)
    with pytest.raises(GradcheckError, match="Expected backward function to handle undefined"):
        gradcheck(both, real(cugrad, 3))
    with pytest.raises(RuntimeError, match="two gradients wanted"):
        gradcheck(func, real(cugrad, 3))


def test_drawn_grad_outputs_are_below_one_in_each_part() -> None:
    seen: list[Any] = []

    def noted(z: Any) -> Any:
        out = z * z
        out.register_hook(lambda g: seen.append(g.detach().cpu().numpy()))
        return out

    z = cugrad.full((3, 4), 0.5 + 0.5j, dtype=cugrad.complex128, requires_grad=True)
    assert gradgradcheck(noted, z)
    parts = np.array([[g.real, g.imag] for g in seen])
    assert len(seen) > 10 and np.abs(parts).max() < 1.001  # with what it is perturbed by


def test_inputs_come_back_as_they_were() -> None:
    """They are perturbed in place, so that a function may reach them through a closure."""
    x = real(cugrad, 2, 3)
    before, version = x.tolist(), x._version
    assert gradcheck(lambda _: x * x, x)
    assert x.tolist() == before and x._version == version and x.grad is None

    def fails_later(y: Any, calls: list[int] = []) -> Any:  # noqa: B006
        calls.append(1)
        if len(calls) > 2:
            raise OSError("enough")
        return y * y

    with pytest.raises(OSError, match="enough"):
        gradcheck(fails_later, x)
    assert x.tolist() == before


def test_what_it_cannot_check() -> None:
    x = real(cugrad, 3)
    with pytest.raises(ValueError, match="at least one input tensor to require gradient"):
        gradcheck(lambda x: x, x.detach())
    wide = real(cugrad, 1).detach().expand(3).requires_grad_()
    with pytest.raises(RuntimeError, match="The 0th input has a dimension with stride 0"):
        gradcheck(lambda x: x, wide)
    with pytest.raises(AssertionError, match="at least one of check_forward_ad or check_backward"):
        gradcheck(lambda x: x, x, check_backward_ad=False)
    with pytest.raises(AssertionError, match="check_batched_forward_grad=True requires"):
        gradcheck(lambda x: x, x, check_batched_forward_grad=True)
    with pytest.raises(AssertionError, match="at least one of check_fwd_over_rev"):
        gradgradcheck(lambda x: x, x, check_rev_over_rev=False)


def test_shapes_that_depend_on_values_are_refused() -> None:
    """An output whose shape changes under perturbation has no Jacobian."""
    x = cugrad.tensor([0.0, 1.0], dtype=cugrad.float64, requires_grad=True)
    with pytest.raises(AssertionError, match="outputs with the same shape when inputs are perturb"):
        gradcheck(lambda x: x[x.detach() > 0], x)


def test_single_precision_is_warned_about_where_the_user_called() -> None:
    x = cugrad.ones(2, requires_grad=True)
    with pytest.warns(UserWarning, match="Input #0 requires gradient and is not a double") as found:
        assert gradcheck(lambda x: x * 2, x, eps=1e-2, atol=1e-2)
    assert found[0].filename == __file__
