"""Checkpointing by a Function that runs backward within backward: PyTorch's first variant."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

from ..autograd import _is_checkpoint_valid
from ..autograd import backward as run_backward
from ..autograd.function import Function
from ..autograd.mode import enable_grad, no_grad
from ..autograd.ranges import ranged
from ..tensor import Tensor
from .surroundings import Surroundings

__all__ = ["CheckpointFunction", "check_backward_validity", "detach_variable"]


def detach_variable(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Tensors without their history, which require gradients as they did; RuntimeError for what is
    not a tuple.
    """
    if not isinstance(inputs, tuple):
        raise RuntimeError(
            "Only tuple of tensors is supported. Got Unsupported input type: "
            f"{type(inputs).__name__}"
        )
    detached = []
    for value in inputs:
        if isinstance(value, Tensor):
            alone = value.detach()
            alone.requires_grad = value.requires_grad
            detached.append(alone)
        else:
            detached.append(value)
    return tuple(detached)


def check_backward_validity(inputs: Iterable[Any]) -> None:
    """Warns where no tensor among the inputs requires gradients."""
    if not any(value.requires_grad for value in inputs if isinstance(value, Tensor)):
        warnings.warn(
            "None of the inputs have requires_grad=True. Gradients will be None", stacklevel=2
        )


class CheckpointFunction(Function):
    """`checkpoint(..., use_reentrant=True)`: forward without recording, then all of it again."""

    @staticmethod
    def forward(ctx: Any, run_function: Any, preserve_rng_state: bool, *args: Any) -> Any:
        check_backward_validity(args)
        ctx.run_function = run_function
        ctx.surroundings = Surroundings(preserve_rng_state)
        ctx.inputs = [None if isinstance(arg, Tensor) else arg for arg in args]
        ctx.places = [i for i, arg in enumerate(args) if isinstance(arg, Tensor)]
        ctx.save_for_backward(*[args[i] for i in ctx.places])
        with no_grad(), ctx.surroundings.noted():
            return run_function(*args)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        if not _is_checkpoint_valid():
            raise RuntimeError(
                "When use_reentrant=True, torch.utils.checkpoint is incompatible with .grad() or "
                "passing an `inputs` parameter to .backward(). To resolve this error, you can "
                "either set use_reentrant=False, or call .backward() without passing the `inputs` "
                "argument."
            )
        inputs = list(ctx.inputs)
        for place, tensor in zip(ctx.places, ctx.saved_tensors):
            inputs[place] = tensor
        detached = detach_variable(tuple(inputs))
        running = ranged("checkpoint: recompute", "recompute")
        with running, ctx.surroundings.again(), enable_grad():
            outputs = ctx.run_function(*detached)
        outputs = (outputs,) if isinstance(outputs, Tensor) else outputs
        pairs = [
            (out, g) for out, g in zip(outputs, grads)
            if isinstance(out, Tensor) and out.requires_grad
        ]  # fmt: skip
        if not pairs:
            raise RuntimeError(
                "none of output has requires_grad=True, this checkpoint() is not necessary"
            )
        run_backward([out for out, _ in pairs], [g for _, g in pairs])
        gradients = tuple([t.grad if isinstance(t, Tensor) else None for t in detached])
        return (None, None, *gradients)
