"""Views of every kind, alone and in chains across dtypes, changed in place, beside PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cugrad
from cugrad.ops.table import TABLE
from tests.ops.samples import NO_SAMPLE

torch = pytest.importorskip("torch", reason="PyTorch, the oracle, is not installed")

View = Callable[[Any, Any], Any]
ALIKE: dict[str, View] = {  # by the row that makes them
    "select": lambda t, x: x.select(-1, 1),
    "slice_view": lambda t, x: x[1:, ..., ::2],
    "permute": lambda t, x: x.permute(*reversed(range(x.dim()))),
    "transpose": lambda t, x: x.transpose(0, -1),
    "t": lambda t, x: x[0].t() if x.dim() == 3 else x.t(),
    "mT": lambda t, x: x.mT,
    "view": lambda t, x: x.view(x.shape[0], -1),
    "reshape": lambda t, x: x.reshape(-1),
    "unsqueeze": lambda t, x: x.unsqueeze(1),
    "squeeze": lambda t, x: x[:1].squeeze(0),
    "expand": lambda t, x: x.expand(2, *x.shape)[1],
    "diagonal": lambda t, x: x.diagonal(0, 0, 1),
    "unfold": lambda t, x: x.unfold(0, 2, 2),
    "alias": lambda t, x: x.as_subclass(t.Tensor),
    "as_strided": lambda t, x: x.as_strided((2, 3), (1, 2), 1),
    "split_with_sizes": lambda t, x: x.split([1, x.shape[0] - 1])[1],
    "unbind": lambda t, x: x.unbind(0)[1],
}
ACROSS: dict[str, View] = {
    "view_as_real": lambda t, x: t.view_as_real(x),
    "view_as_complex": lambda t, x: t.view_as_complex(x),
    "real": lambda t, x: x.real,
    "imag": lambda t, x: x.imag,
    "_conj": lambda t, x: x.conj(),
    "_neg_view": lambda t, x: t._neg_view(x),
}
VIEWS = {**ALIKE, **ACROSS}
CHAINS = [(name,) for name in VIEWS]
CHAINS += [
    (a, b)
    for a in VIEWS
    for b in VIEWS
    if (a in ACROSS or b in ACROSS)
    if not (a in ("real", "imag") and b == "as_strided")  # which would see what lies between
]
CHANGES: dict[str, Callable[[Any, Any], Any]] = {
    "mul_": lambda x, w: x.mul_(0.5),
    "mul_ by": lambda x, w: x.mul_(w),
    "copy_": lambda x, w: x.copy_(w * 2),
    "masked": lambda x, w: x.masked_fill_(x.detach().abs() > 1, 0.25),
}


def bases() -> list[np.ndarray]:
    rng = np.random.default_rng(5)
    real = rng.standard_normal((4, 3, 2))
    return [real, real + 1j * rng.standard_normal((4, 3, 2)), real.T.copy().T]


def geometry(x: Any) -> Any:
    return tuple(x.shape), str(x.dtype).rpartition(".")[2], tuple(x.stride())


def outcome(t: Any, base: np.ndarray, chain: tuple[str, ...], change: str, on: str) -> Any:
    """Values, layouts, first and second derivatives of a program, or why it is refused."""
    x = t.tensor(base, requires_grad=True)
    if not base.flags.c_contiguous:
        x = t.from_numpy(base.copy("F")).requires_grad_()
    w = t.tensor(0.75, dtype=t.float64, requires_grad=True)
    u = x * 1
    v = u
    try:
        for name in chain:
            v = VIEWS[name](t, v)
        CHANGES[change](v if on == "view" else u, w)
        total = (u * u.conj()).real.sum() + ((v * v.conj()).real * v.real).sum()
        first = t.autograd.grad(total, (x, w), create_graph=True, allow_unused=True)
        parts = [(g * g.conj()).real.sum() for g in first if g is not None and g.requires_grad]
        second = t.autograd.grad(sum(parts), (x, w), allow_unused=True)
    except RuntimeError as error:
        assert "cast" not in str(error)
        return "refused"
    grads = [None if g is None else g.detach().resolve_conj().numpy() for g in (*first, *second)]
    return [u.detach().numpy(), v.detach().numpy(force=True)], [geometry(u), geometry(v)], grads


@pytest.mark.parametrize("on", ["view", "base"])
@pytest.mark.parametrize("change", CHANGES)
def test_changed_views_equal_pytorchs(change: str, on: str) -> None:
    """Of each view, and each chain of two across dtypes: values, layouts and two derivatives."""
    compared = 0
    for number, chain in enumerate(CHAINS):
        for base in bases() if len(chain) == 1 else [bases()[number % 3]]:
            what = f"{chain} of {base.dtype} {base.strides}"
            got = outcome(cugrad, base, chain, change, on)
            want = outcome(torch, base, chain, change, on)
            assert (got == "refused") is (want == "refused"), f"{what}: {got}, want {want}"
            if got == "refused":
                continue
            compared += 1
            assert got[1] == want[1], what
            for g, w in zip((*got[0], *got[2]), (*want[0], *want[2]), strict=True):
                assert (g is None) is (w is None), what
                if g is not None:
                    np.testing.assert_allclose(g, w, rtol=1e-10, atol=1e-12, err_msg=what)
    assert compared > len(CHAINS) / 2


def test_every_row_of_a_view_is_tried() -> None:
    differentiable = {op.name for op in TABLE.values() if op.view and any(op.formulas)}
    differentiable -= {*NO_SAMPLE}  # those of vmap: tests/func/test_vmap_views.py
    assert differentiable <= {*VIEWS}, differentiable - {*VIEWS}


@pytest.mark.parametrize("layout", ["gap", "columns"])
def test_a_base_with_a_layout_of_its_own_is_written_where_it_lies(layout: str) -> None:
    """Also by strides: of an array that is laid out otherwise what they see would be a copy."""
    found = []
    for t in (cugrad, torch):
        memory = np.arange(24.0).reshape(4, 6)
        base = t.from_numpy(memory[:, ::2] if layout == "gap" else memory[:, :3].T)
        w = t.tensor(2.0, dtype=t.float64, requires_grad=True)
        base.as_strided((2, 2), base.stride()).mul_(w)
        (g,) = t.autograd.grad((base * base).sum(), w, create_graph=True)
        (h,) = t.autograd.grad(g, w)
        found.append((g.item(), h.item()))
    assert found[0] == pytest.approx(found[1])
