"""Compares gradients with finite differences: `gradcheck` and `gradgradcheck`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..backends import backend_of
from ..tensor import Tensor, make
from .jacobians import Check, GradcheckError, as_tuple, differentiable, grad, requires_grad

__all__ = ["GradcheckError", "gradcheck", "gradgradcheck"]

Function = Callable[..., Any]
Tensors = Tensor | Sequence[Any]


def gradcheck(
    func: Function,
    inputs: Tensors,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_batched_forward_grad: bool = False,
    check_forward_ad: bool = False,
    check_backward_ad: bool = True,
    fast_mode: bool = False,
    masked: bool | None = None,
) -> bool:
    """Checks the gradients of `func` against central differences; True, or GradcheckError.

    `inputs` is a Tensor or a sequence; those of floating-point or complex dtype that require
    gradients are perturbed in place by `eps`, one element at a time, or in `fast_mode` along one
    random direction. The defaults of `eps`, `atol` and `rtol` are for float64. A complex output is
    checked as two real ones, its real and its imaginary part; for a complex input z = x + iy the
    compared quantity is df/dx + i df/dy.

    Running backward twice may differ by `nondet_tol`. `check_undefined_grad` checks that backward
    takes absent output gradients for zeros, `check_grad_dtypes` that a gradient has its input's
    dtype. `raise_exception=False` returns False where the check fails. `masked` relaxes one exact
    comparison with zero.

    Raises ValueError when no input requires gradients, RuntimeError when elements of one overlap
    in memory, NotImplementedError for `check_forward_ad` and `check_batched_grad`.

    >>> import cugrad as torch
    >>> x = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
    >>> torch.autograd.gradcheck(lambda x: (x * x).sum(), x)
    True
    """
    if not (check_forward_ad or check_backward_ad):
        raise AssertionError(
            "Expected at least one of check_forward_ad or check_backward_ad to be True"
        )
    if check_batched_grad and not check_backward_ad:
        raise AssertionError(
            "Setting check_batched_grad=True requires check_backward_ad to be True"
        )
    if check_batched_forward_grad and not check_forward_ad:
        raise AssertionError(
            "Setting check_batched_forward_grad=True requires check_forward_ad to be True"
        )
    _need(check_forward_ad, "check_forward_ad=True needs forward-mode differentiation")
    _need(check_batched_grad, "check_batched_grad=True needs vmap")
    check = Check(func, inputs, eps, atol, rtol, nondet_tol, check_grad_dtypes, bool(masked))
    try:
        check.run(fast_mode)
        check.multiplies_by_grad_output()
        if check_undefined_grad:
            check.takes_undefined_gradients()
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def gradgradcheck(
    func: Function,
    inputs: Tensors,
    grad_outputs: Tensors | None = None,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    gen_non_contig_grad_outputs: bool = False,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_fwd_over_rev: bool = False,
    check_rev_over_rev: bool = True,
    fast_mode: bool = False,
    masked: bool = False,
) -> bool:
    """Checks second derivatives: `gradcheck` of the gradient of `func`.

    The gradient is a function of `inputs` and `grad_outputs`; the latter are drawn at random from
    (-1, 1) where absent, with gaps in memory if `gen_non_contig_grad_outputs`. Everything else is
    as in `gradcheck`.

    >>> import cugrad as torch
    >>> x = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
    >>> torch.autograd.gradgradcheck(lambda x: x * x * x, x)
    True
    """
    if not (check_fwd_over_rev or check_rev_over_rev):
        raise AssertionError(
            "Expected at least one of check_fwd_over_rev or check_rev_over_rev to be True"
        )
    if check_undefined_grad and not check_rev_over_rev:
        raise AssertionError(
            "Setting check_undefined_grad=True requires check_rev_over_rev to be True"
        )
    if check_batched_grad and not check_rev_over_rev:
        raise AssertionError(
            "Setting check_batched_grad=True requires check_rev_over_rev to be True"
        )
    _need(check_fwd_over_rev, "check_fwd_over_rev=True needs forward-mode differentiation")
    tupled = as_tuple(inputs)
    if grad_outputs is None:
        outputs = differentiable(func(*tupled))
        rng = np.random.default_rng(0)
        seeds = tuple(_random_like(o, rng, gen_non_contig_grad_outputs) for o in outputs)
    else:
        seeds = as_tuple(grad_outputs)
    leaves = [i for i, x in enumerate(tupled) if requires_grad(x)]

    def gradient(*args: Any) -> tuple[Tensor, ...]:
        inner, given = args[: len(tupled)], args[len(tupled) :]
        outputs = differentiable(func(*inner))
        wanted = [inner[i] for i in leaves]
        found = grad(outputs, wanted, given, create_graph=True, allow_unused=True)
        return tuple(g for g in found if g is not None)

    return gradcheck(
        gradient,
        tupled + seeds,
        eps=eps,
        atol=atol,
        rtol=rtol,
        raise_exception=raise_exception,
        nondet_tol=nondet_tol,
        check_undefined_grad=check_undefined_grad,
        check_grad_dtypes=check_grad_dtypes,
        check_batched_grad=check_batched_grad,
        fast_mode=fast_mode,
        masked=masked,
    )


def _need(asked: bool, what: str) -> None:
    if asked:
        raise NotImplementedError(f"gradcheck: {what}, which cugrad does not have yet")


def _random_like(x: Tensor, rng: np.random.Generator, gaps: bool) -> Tensor:
    """Uniform in (-1, 1); with gaps between elements along the last dimension if asked."""
    shape = (*x.shape[:-1], 2 * x.shape[-1]) if gaps and x.ndim else tuple(x.shape)
    value = np.asarray(rng.uniform(-1, 1, shape))
    if x.is_complex():
        value = value + 1j * np.asarray(rng.uniform(-1, 1, shape))
    array = backend_of(x._array).asarray(value.astype(x._array.dtype))
    return make(array[..., ::2] if gaps and x.ndim else array, requires_grad=True)
