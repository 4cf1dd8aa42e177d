"""vmap shows its inputs' memory in another shape: views, versions and histories go through it."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cugrad

Case = Callable[[Any, Any], Any]  # of a library and a tensor with a history: tensors to compare
CASES: dict[str, Case] = {}


def case(function: Case) -> Case:
    CASES[function.__name__] = function
    return function


@case
def in_place_inside(lib: Any, y: Any) -> Any:
    return lib.func.vmap(lambda r: r.mul_(2))(y), y


@case
def of_another_dim(lib: Any, y: Any) -> Any:
    return lib.func.vmap(lambda r: r.mul_(r.detach().clone()), in_dims=1, out_dims=1)(y) * 3, y


@case
def a_part_inside(lib: Any, y: Any) -> Any:
    def f(r: Any) -> Any:
        r[1:].exp_()
        return r.sum()

    return lib.func.vmap(f)(y), y


@case
def twice(lib: Any, y: Any) -> Any:
    def f(r: Any) -> Any:
        r[0].mul_(3)
        return r

    return lib.func.vmap(lib.func.vmap(f, in_dims=0), in_dims=1)(y.reshape(1, 2, 3) * 1), y


@case
def in_both_levels(lib: Any, y: Any) -> Any:
    def outer(r: Any) -> Any:
        lib.func.vmap(lambda s: s.sin_())(r)
        r.mul_(2)
        return r * r

    return lib.func.vmap(outer)(y), y


@case
def the_input_later(lib: Any, y: Any) -> Any:
    z = lib.func.vmap(lambda r: r[1])(y)
    y.mul_(2)
    return z, y


@case
def the_result_later(lib: Any, y: Any) -> Any:
    z = lib.func.vmap(lambda r: r.view(3, 1).t(), out_dims=2)(y)
    z[0].mul_(0.5)
    return z, y


@case
def a_new_result_later(lib: Any, y: Any) -> Any:
    z = lib.func.vmap(lambda r: r.sin())(y)
    z.mul_(y)
    return z, z[0], y


@case
def the_same_later(lib: Any, y: Any) -> Any:
    z = lib.func.vmap(lambda r: r)(y)
    z.mul_(2)
    return z, y


@case
def closed_over(lib: Any, y: Any) -> Any:
    w = y * 1

    def f(r: Any) -> Any:
        w.mul_(2)
        return r + w

    return lib.func.vmap(f)(lib.ones(2, 1, dtype=y.dtype)), w


@case
def the_same_for_all_later(lib: Any, y: Any) -> Any:
    w = y * 1
    z = lib.func.vmap(lambda r: w)(y)
    w.mul_(2)
    return z, w


@case
def a_slice_before(lib: Any, y: Any) -> Any:
    lib.func.vmap(lambda r: r.mul_(2))(y[:, 1:])
    return y, y[0]


@case
def a_transposed_input(lib: Any, y: Any) -> Any:
    lib.func.vmap(lambda r: r.mul_(r * 2))(y.t())
    return y, y[0]


@case
def parts_of_complex(lib: Any, y: Any) -> Any:
    if not y.is_complex():
        return (y,)
    lib.func.vmap(lambda r: r.real.mul_(2))(y)
    return lib.func.vmap(lambda r: lib.view_as_real(r))(y), y


@case
def in_chunks(lib: Any, y: Any) -> Any:
    return lib.func.vmap(lambda r: r.mul_(2), chunk_size=1)(y), y


def found(lib: Any, case: Case, dtype: str, order: str) -> Any:
    """Values, versions, and the first and second gradient."""
    x = lib.tensor([[0.3, -0.4, 0.5], [0.6, 0.7, -0.8]], dtype=getattr(lib, dtype))
    x = (x if "complex" not in dtype else x * (1 - 0.5j)).requires_grad_()
    y = x * x
    results = case(lib, y)
    total = sum(((z * z.conj()).real * z.abs().detach()).sum() for z in results)
    (g,) = lib.autograd.grad(total, x, create_graph=True)
    (h,) = lib.autograd.grad((g * g.conj()).real.sum(), x, retain_graph=True)
    vectors = lib.ones(3, 2, 3, dtype=x.dtype)
    if order == "batched":
        (h,) = lib.autograd.grad(g, x, vectors, is_grads_batched=True)
    return [v.resolve_conj().tolist() if lib is not cugrad else v.tolist()
            for v in (*results, g, h)], [v._version for v in (y, *results)]  # fmt: skip


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("name", CASES)
def test_a_change_is_seen_on_both_sides(name: str, dtype: str, device: str) -> None:
    torch = pytest.importorskip("torch")
    for order in ("plain", "batched"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            want, versions = found(torch, CASES[name], dtype, order)
        got, known = found(cugrad, CASES[name], dtype, order)
        assert known == versions, "versions"
        for a, b in zip(got, want, strict=True):
            np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-10, atol=1e-12)


def doubled_rows(lib: Any, x: Any) -> Any:
    y = x * x
    lib.func.vmap(lambda r: r.mul_(r.detach().clone()))(y)
    return y * y


def doubled_part(lib: Any, r: Any) -> Any:
    y = r * r
    y[1:].mul_(3)
    return y * y


TRANSFORMS: dict[str, Case] = {
    "jvp of vmap": lambda t, x: t.func.jvp(lambda y: doubled_rows(t, y), (x,), (x * 0.5,)),
    "vmap of jvp": lambda t, x: t.func.vmap(
        lambda a, b: t.func.jvp(lambda r: doubled_part(t, r), (a,), (b,)))(x, x * 0.5),
    "vmap of grad": lambda t, x: (
        t.func.vmap(t.func.grad(lambda r: doubled_part(t, r).sum()))(x),),
    "hessian": lambda t, x: (t.func.hessian(lambda y: doubled_rows(t, y).sum())(x),),
    "jacrev": lambda t, x: (t.func.jacrev(lambda y: doubled_rows(t, y))(x),),
    "jacfwd": lambda t, x: (t.func.jacfwd(lambda y: doubled_rows(t, y))(x),),
}  # fmt: skip


@pytest.mark.parametrize("name", TRANSFORMS)
def test_changes_inside_under_other_transforms(name: str, device: str) -> None:
    torch = pytest.importorskip("torch")
    values = [[0.3, -0.4, 0.5], [0.6, 0.7, -0.8]]
    with warnings.catch_warnings():  # PyTorch's forward mode starts its compiler, which warns
        warnings.simplefilter("ignore")
        both = [TRANSFORMS[name](lib, lib.tensor(values, dtype=lib.float64))
                for lib in (cugrad, torch)]  # fmt: skip
    for got, want in zip(*both, strict=True):
        np.testing.assert_allclose(got.tolist(), want.tolist(), rtol=1e-12)


def test_what_a_vmap_returns_is_a_view_where_it_shows_memory(device: str) -> None:
    torch = pytest.importorskip("torch")
    found = []
    for lib in (cugrad, torch):
        x = lib.ones(2, 3, requires_grad=True)
        y = x * 1
        vmap = lib.func.vmap
        same, row, new = vmap(lambda r: r)(y), vmap(lambda r: r[0])(y), vmap(lambda r: r * 2)(y)
        last = vmap(lambda r: r, in_dims=1, out_dims=-1)(y), vmap(lambda r: r, -2, -2)(y)
        with lib.no_grad():
            quiet = vmap(lambda r: r * 2)(y)
        found.append([
            same is y, [each is y for each in last], row._base is y, new._is_view(),
            new._base, quiet.requires_grad, new.detach_().requires_grad,
            vmap(lambda r: r * 2)(y.detach()).is_leaf,
        ])  # fmt: skip
        with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
            vmap(lambda r: r.mul_(2))(x)
    assert found[0] == found[1]


@pytest.mark.parametrize("in_dim", [0, 1, 2])
def test_contiguous_is_a_question_of_each_example(in_dim: int, device: str) -> None:
    """Whatever lies between examples; what is returned as it came is the argument itself."""
    torch = pytest.importorskip("torch")
    found: dict[Any, list[Any]] = {cugrad: [], torch: []}
    for lib, seen in found.items():

        def look(r: Any, seen: list[Any] = seen) -> Any:
            whole = r.contiguous()
            seen.append((r.is_contiguous(), whole is r, whole.stride()))
            return whole

        x = lib.arange(24.0).reshape(2, 3, 4)
        for y in (x, x.mT, x[:, ::2], x[..., ::2], x[..., :1], x[:, :1], x[0].expand(2, 3, 4)):
            z = lib.func.vmap(look, in_dim, in_dim)(y)
            seen.append((z is y, z.tolist()))
            lib.func.vmap(lib.func.vmap(look), in_dim)(y)
    assert found[cugrad] == found[torch]
