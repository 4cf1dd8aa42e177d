"""The package functorch, which torch.func has replaced: its names, and modules as functions."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Sequence
from functools import partial, wraps
from typing import Any

from ... import func
from ...func import functional_call, replace_all_batch_norm_modules_
from ...functions import FUNCTIONS
from ...nn import Module, Parameter

__all__ = [
    "FunctionalModule", "FunctionalModuleWithBuffers", "chunk_vmap", "combine_state_for_ensemble",
    "grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp", "make_functional",
    "make_functional_with_buffers", "replace_all_batch_norm_modules_", "vjp", "vmap",
]  # fmt: skip


def _deprecated(name: str, instead: str, function: Callable[..., Any]) -> Any:
    """A function that says where its like is today, as PyTorch's says it."""

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        warnings.warn(
            "We've integrated functorch into PyTorch. As the final step of the integration, "
            f"`functorch.{name}` is deprecated as of PyTorch 2.0 and will be deleted in a future "
            f"version of PyTorch >= 2.3. Please use `{instead}` instead; see the PyTorch 2.0 "
            "release notes and/or the `torch.func` migration guide for more details "
            "https://pytorch.org/docs/main/func.migrating.html", FutureWarning, stacklevel=2,
        )  # fmt: skip
        return function(*args, **kwargs)

    return call


class FunctionalModuleWithBuffers(Module):
    """A module whose parameters and buffers are arguments of a call: two tuples, in front."""

    def __init__(self, model: Any, parameters: Sequence[str], buffers: Sequence[str]) -> None:
        super().__init__()
        self.stateless_model, self.param_names, self.buffer_names = model, parameters, buffers

    def forward(self, params: Any, buffers: Any, *args: Any, **kwargs: Any) -> Any:
        """What the model computes with these."""
        state = dict(zip(self.param_names, params, strict=True))
        state.update(zip(self.buffer_names, buffers, strict=True))
        return functional_call(self.stateless_model, state, args, kwargs)


class FunctionalModule(FunctionalModuleWithBuffers):
    """A module whose parameters are an argument of a call: a tuple, in front."""

    def forward(self, params: Any, *args: Any, **kwargs: Any) -> Any:
        """What the model computes with these."""
        return super().forward(params, (), *args, **kwargs)


def _taken_apart(model: Any, kind: Any, untracked: bool) -> tuple[Any, Any, Any]:
    parameters, buffers = dict(model.named_parameters()), dict(model.named_buffers())
    own = tuple(
        p.detach().clone().requires_grad_(p.requires_grad and not untracked)
        for p in parameters.values()
    )
    if not untracked:
        own = tuple(Parameter(p, p.requires_grad) for p in own)
    module = kind(copy.deepcopy(model), tuple(parameters), tuple(buffers))
    return module, own, tuple(b.clone() for b in buffers.values())


def _make_functional(model: Any, disable_autograd_tracking: bool = False) -> Any:
    """(function of parameters and inputs, parameters); RuntimeError for a model with buffers."""
    if any(True for _ in model.buffers()):
        raise RuntimeError(
            "make_functional(model): `model` has buffers. Please use "
            "make_functional_with_buffers(model) instead."
        )
    return _taken_apart(model, FunctionalModule, disable_autograd_tracking)[:2]


def _make_functional_with_buffers(model: Any, disable_autograd_tracking: bool = False) -> Any:
    """(function of parameters, buffers and inputs, parameters, buffers)."""
    return _taken_apart(model, FunctionalModuleWithBuffers, disable_autograd_tracking)


def _combine_state_for_ensemble(models: Sequence[Any]) -> tuple[Any, Any, Any]:
    """The function of one model, and parameters and buffers of all, stacked along dim 0."""
    name = "combine_state_for_ensemble"
    if not models:
        raise RuntimeError(f"{name}: Expected at least one model, got 0.")
    if len({m.training for m in models}) > 1:
        raise RuntimeError(f"{name}: Expected all models to have the same training/eval mode.")
    if len({type(m) for m in models}) > 1:
        raise RuntimeError(f"{name}: Expected all models to be of the same class.")
    parts = [_make_functional_with_buffers(m) for m in models]
    stack = FUNCTIONS["stack"]
    params, buffers = (
        tuple(stack(list(same)).detach() for same in zip(*(p[k] for p in parts), strict=True))
        for k in (1, 2)
    )
    return parts[0][0], tuple(p.requires_grad_() for p in params), buffers


grad = _deprecated("grad", "torch.func.grad", func.grad)
grad_and_value = _deprecated("grad_and_value", "torch.func.grad_and_value", func.grad_and_value)
hessian = _deprecated("hessian", "torch.func.hessian", func.hessian)
jacfwd = _deprecated("jacfwd", "torch.func.jacfwd", func.jacfwd)
jacrev = _deprecated("jacrev", "torch.func.jacrev", func.jacrev)
jvp = _deprecated("jvp", "torch.func.jvp", func.jvp)
vjp = _deprecated("vjp", "torch.func.vjp", func.vjp)
vmap = _deprecated("vmap", "torch.vmap", func.vmap)
make_functional = _deprecated("make_functional", "torch.func.functional_call", _make_functional)
make_functional_with_buffers = _deprecated(
    "make_functional_with_buffers", "torch.func.functional_call", _make_functional_with_buffers
)
combine_state_for_ensemble = _deprecated(
    "combine_state_for_ensemble", "torch.func.stack_module_state", _combine_state_for_ensemble
)


def chunk_vmap(
    function: Any, in_dims: Any = 0, out_dims: Any = 0, randomness: str = "error", chunks: int = 2
) -> Any:
    """`vmap` of this many parts of the examples, one after another."""

    def call(*args: Any, **kwargs: Any) -> Any:
        dims = in_dims if isinstance(in_dims, tuple) else (in_dims,) * len(args)
        sizes = [a.shape[d] for a, d in zip(args, dims, strict=True) if isinstance(d, int)]
        how = partial(func.vmap, in_dims=in_dims, out_dims=out_dims, randomness=randomness)
        return how(function, chunk_size=-(-sizes[0] // chunks))(*args, **kwargs)

    return call
