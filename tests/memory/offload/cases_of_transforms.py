"""Transforms of functions that save tensors: batches, nested batches, Jacobians, forward mode."""

from __future__ import annotations

from typing import Any

from tests.memory.offload.cases import Run, case, gradients


def curved(x: Any, w: Any) -> Any:
    """Saves inputs, results, a view and a tensor that is the same for all examples."""
    h = (x * w).tanh()
    return (h.exp() * h[..., ::2].sum()).sin()


@case
def vmap_of_a_function(r: Run) -> list[Any]:
    x, w = r.inputs()
    with r.saving():
        y = r.lib.func.vmap(curved, in_dims=(0, None))(x, w).sum()
    return gradients(y, x, w)


@case
def vmap_along_a_last_dim(r: Run) -> list[Any]:
    x, w = r.inputs()
    with r.saving():
        y = r.lib.func.vmap(curved, in_dims=(1, 0), out_dims=-1)(x, w).sum()
    return gradients(y, x, w)


@case
def vmap_in_vmap(r: Run) -> list[Any]:
    x, w = r.inputs()
    with r.saving():
        inner = r.lib.func.vmap(curved, in_dims=(None, 0))
        y = r.lib.func.vmap(inner, in_dims=(0, None))(x, w).sum()
    return gradients(y, x, w)


@case
def vmap_of_grad(r: Run) -> list[Any]:
    x, w = r.inputs()
    with r.saving():
        g = r.lib.func.grad(lambda w, x: curved(x, w).sum())
        y = r.lib.func.vmap(g, in_dims=(None, 0))(w, x)
        z = (y * y).sum()
    return [y, *gradients(z, x, w)]


@case
def vmap_with_a_change_in_place(r: Run) -> list[Any]:
    def changed(x: Any) -> Any:
        h = x * x
        h.mul_(2)
        h[1:3].sin_()
        return (h * h).sum()

    x, _ = r.inputs()
    with r.saving():
        y = r.lib.func.vmap(changed)(x).sum()
    return gradients(y, x)


@case
def jacobians_by_both_modes(r: Run) -> list[Any]:
    x, w = r.constant(6, seed=1), r.constant(6, 6, seed=2)
    found = []
    for jacobian in (r.lib.func.jacrev, r.lib.func.jacfwd):
        with r.saving():
            found.append(jacobian(lambda x: curved(w, x).sum(0))(x))
    return found


@case
def hessian_of_a_function(r: Run) -> list[Any]:
    x, w = r.constant(4, seed=1), r.constant(4, 4, seed=2)
    with r.saving():
        return [r.lib.func.hessian(lambda x: curved(w, x).sum())(x)]


@case
def vmap_of_a_jacobian_of_grad(r: Run) -> list[Any]:
    x = r.constant(3, 4, seed=1)
    with r.saving():
        inner = r.lib.func.jacrev(r.lib.func.grad(lambda x: curved(x, x).sum()))
        return [r.lib.func.vmap(inner)(x)]


@case
def backward_of_a_batch_of_gradients(r: Run) -> list[Any]:
    x, w = r.inputs()
    with r.saving():
        y = curved(x, w)
        seeds = r.constant(3, 6, 6, seed=3)
        (g,) = r.lib.autograd.grad(y, x, seeds, is_grads_batched=True, create_graph=True)
        z = (g * g).sum()
    return [g, *gradients(z, w)]


@case
def products_with_jacobians(r: Run) -> list[Any]:
    x, w = r.constant(6, 6, seed=1), r.constant(6, 6, seed=2)
    with r.saving():
        y, tangent = r.lib.func.jvp(lambda x: curved(x, w), (x,), (w,))
        z, pull = r.lib.func.vjp(lambda x: curved(x, w), x)
        both = r.lib.func.vmap(lambda v: pull(v)[0])(r.constant(2, 6, 6, seed=3))
    return [y, tangent, z, both]
