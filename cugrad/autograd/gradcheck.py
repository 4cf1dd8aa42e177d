"""Compares gradients with finite differences: `gradcheck` and `gradgradcheck`."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from ..backends.several import beside
from ..runtime.absent import explain
from ..tensor import Tensor, make
from . import check
from .engine.differentiate import grad

__all__ = ["GradcheckError", "gradcheck", "gradgradcheck"]

Function = Callable[..., Any]
Tensors = Tensor | Sequence[Any]


class GradcheckError(RuntimeError):
    """Raised by `gradcheck` and `gradgradcheck` when a gradient is wrong."""


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

    The defaults of `eps`, `atol` and `rtol` are for float64. A complex output is checked as two
    real ones, its real and its imaginary part; for a complex input z = x + iy the compared quantity
    is df/dx + i df/dy, and in forward mode x and y are two inputs.

    Args:
        func: takes the inputs, returns a Tensor or several.
        inputs: a Tensor or a sequence; those that require gradients are perturbed in place.
        eps: the step, one element at a time.
        atol, rtol: how far a gradient may be from the difference, as `allclose` has it.
        raise_exception: whether to raise where the check fails, instead of returning False.
        nondet_tol: how far two runs of backward may differ.
        check_undefined_grad: absent output gradients, or tangents, must count as zeros.
        check_grad_dtypes: a gradient must have its input's dtype.
        check_batched_grad, check_batched_forward_grad: the same gradients must come under vmap.
        check_forward_ad, check_backward_ad: which mode to check.
        fast_mode: compare the product of each Jacobian and a random vector on either side, instead
            of all elements: two calls of `func` for each input instead of two for each element.
        masked: for sparse tensors, of which there are none; it relaxes one comparison with zero.

    Raises ValueError when no input requires gradients, RuntimeError when elements of one overlap
    in memory, AssertionError for an output whose shape or dtype changes with the input.

    >>> import cugrad as torch
    >>> x = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
    >>> torch.autograd.gradcheck(lambda x: (x * x).sum(), x, check_forward_ad=True)
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
    tupled = check.as_tuple(inputs)
    _check_inputs(tupled)
    setting = check.Tolerances(eps, atol, rtol, nondet_tol, check_grad_dtypes, fast_mode)
    try:
        outputs = check.differentiable(func(*tupled))
        leaves = [x for x in tupled if check.requires_grad(x)]
        if check_backward_ad:
            _check_backward(func, tupled, setting)
        if check_forward_ad:
            _check_forward(func, tupled, setting, check_undefined_grad)
        if check_batched_forward_grad:
            check.batches_in_forward_mode(func, tupled)
        if check_backward_ad:
            for i, output in enumerate(outputs) if check_batched_grad else ():
                check.batches_in_backward(output, i, leaves)
            check.multiplies_by_grad_output(outputs, leaves, bool(masked))
            if check_undefined_grad:
                check.takes_absent_gradients(func, tupled, leaves)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def _check_backward(func: Function, inputs: tuple[Any, ...], setting: check.Tolerances) -> None:
    """Compares Jacobians by backward, for complex outputs those of either part."""
    outputs = [o for o in check.as_tuple(func(*inputs)) if isinstance(o, Tensor)]
    if not any(o.is_complex() for o in outputs):
        check.Check(func, inputs, setting).run()
        return
    checked = check.differentiable(outputs)
    indices = tuple(i for i, o in enumerate(checked) if o.is_complex())
    for name in ("imag", "real"):

        def part(*args: Any, name: str = name) -> list[Any]:
            outputs = check.as_tuple(func(*args))
            return [
                getattr(o, name) if isinstance(o, Tensor) and o.is_complex() else o for o in outputs
            ]

        check.Check(part, inputs, setting, check.ComplexPart(PARTS[name], "outputs", indices)).run()


PARTS = {"imag": "imaginary", "real": "real"}


def _check_forward(
    func: Function, inputs: tuple[Any, ...], setting: check.Tolerances, absent: bool
) -> None:
    """Compares Jacobians in forward mode, for complex inputs with respect to either part."""
    indices = tuple(i for i, x in enumerate(inputs) if isinstance(x, Tensor) and x.is_complex())
    if not indices:
        check.Check(func, inputs, setting, forward=True).run()
        if absent:
            check.takes_absent_tangents(func, inputs)
        return
    each = []
    for name in ("imag", "real"):

        def whole(*args: Any, name: str = name) -> Any:
            arguments = list(args)
            for i in indices:  # the other part stays as it is: any other might not be valid
                x, y = (inputs[i].real, args[i]) if name == "imag" else (args[i], inputs[i].imag)
                arguments[i] = x + y * 1j
            return func(*arguments)

        parts = [getattr(x, name) if i in indices else x for i, x in enumerate(inputs)]
        part = check.ComplexPart(PARTS[name], "inputs", indices)
        check.Check(whole, parts, setting, part, forward=True).run()
        each.append((whole, parts))
    for whole, parts in each if absent else ():
        check.takes_absent_tangents(whole, parts)


def _check_inputs(inputs: Iterable[Any]) -> None:
    any_requires_grad = False
    for index, x in enumerate(inputs):
        if not check.requires_grad(x):
            continue
        any_requires_grad = True
        if x.dtype.name not in ("float64", "complex128"):
            warnings.warn(
                f"Input #{index} requires gradient and is not a double precision floating point "
                "or complex. This check will likely fail if all the inputs are not of double "
                "precision floating point or complex. ",
                stacklevel=3,
            )
        overlaps = [step == 0 and extent > 1 for step, extent in zip(x.stride(), x.shape)]
        if x.numel() and any(overlaps):
            raise RuntimeError(
                f"The {index}th input has a dimension with stride 0. gradcheck only supports "
                "inputs that are non-overlapping to be able to compute the numerical gradients "
                "correctly. You should call .contiguous on the input before passing it to "
                "gradcheck."
            )
    if not any_requires_grad:
        raise ValueError(
            "gradcheck expects at least one input tensor to require gradient, but none of them "
            "have requires_grad=True."
        )


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
    (-1, 1) where absent, with gaps in memory if `gen_non_contig_grad_outputs`. It is checked by
    backward (`check_rev_over_rev`) and in forward mode (`check_fwd_over_rev`). Everything else is
    as in `gradcheck`.

    >>> import cugrad as torch
    >>> x = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
    >>> torch.autograd.gradgradcheck(lambda x: x * x * x, x, check_fwd_over_rev=True)
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
    tupled = check.as_tuple(inputs)
    if grad_outputs is None:
        outputs = check.differentiable(func(*tupled))
        rng = np.random.default_rng(0)
        seeds = tuple(_random_like(o, rng, gen_non_contig_grad_outputs) for o in outputs)
    else:
        seeds = check.as_tuple(grad_outputs)
    needs_grad = [
        check.requires_grad(x) for x in (*tupled, *seeds)
    ]  # forward mode detaches its inputs

    def gradient(*args: Any) -> tuple[Tensor, ...]:
        arguments = [
            x.requires_grad_() if needs else x for x, needs in zip(args, needs_grad, strict=True)
        ]
        outputs = check.differentiable(func(*arguments[: len(tupled)]))
        leaves = [
            x for x, needs in zip(arguments[: len(tupled)], needs_grad, strict=False) if needs
        ]
        gradients = grad(
            outputs, leaves, arguments[len(tupled) :], create_graph=True, allow_unused=True
        )
        return tuple(g for g in gradients if g is not None)

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
        check_forward_ad=check_fwd_over_rev,
        check_backward_ad=check_rev_over_rev,
        masked=masked,
    )


def _random_like(x: Tensor, rng: np.random.Generator, gaps: bool) -> Tensor:
    """Uniform in (-1, 1); with gaps between elements along the last dimension if asked."""
    shape = (*x.shape[:-1], 2 * x.shape[-1]) if gaps and x.ndim else tuple(x.shape)
    value = np.asarray(rng.uniform(-1, 1, shape))
    if x.is_complex():
        value = value + 1j * np.asarray(rng.uniform(-1, 1, shape))
    array = beside(x._array, value.astype(x._array.dtype))
    return make(array[..., ::2] if gaps and x.ndim else array, requires_grad=True)


explain(__name__)
