"""Functions of torch that nn has in another form: the same values as PyTorch's, called alike."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cugrad

torch = pytest.importorskip("torch")

RNG = np.random.default_rng(5)
X, Y = RNG.standard_normal((4, 3, 6)), RNG.standard_normal((4, 3, 6))
ROWS = RNG.standard_normal((5, 3))
SIGNS = np.sign(RNG.standard_normal(4))
WHOLE = np.array([1, 4, 2, 2, 0])


def t(library: Any, value: Any) -> Any:
    return library.tensor(value.copy())


CALLS = {
    "adaptive_max_pool1d": lambda m: m.adaptive_max_pool1d(t(m, X), 2)[1].double(),
    "batch_norm": lambda m: m.batch_norm(t(m, X), None, None, t(m, X[0, :, 0]),
                                         t(m, X[0, :, 1] ** 2), False, 0.1, 1e-5, True),
    "instance_norm": lambda m: m.instance_norm(t(m, X), None, None, None, None, True, 0.1, 1e-5,
                                               True),
    "layer_norm": lambda m: m.layer_norm(t(m, X), (6,), None, None, 1e-5, False),
    "group_norm": lambda m: m.group_norm(t(m, X), 3, None, None, 1e-5, False),
    "embedding": lambda m: m.embedding(t(m, ROWS), t(m, WHOLE)),
    "embedding_padding": lambda m: m.embedding(t(m, ROWS), t(m, WHOLE), 2),
    "dropout": lambda m: m.dropout(t(m, X), 0.5, False),
    "dropout_": lambda m: m.dropout_(t(m, X), 0.5, False),
    "alpha_dropout": lambda m: m.alpha_dropout(t(m, X), 0.5, False),
    "alpha_dropout_": lambda m: m.alpha_dropout_(t(m, X), 0.5, False),
    "feature_alpha_dropout": lambda m: m.feature_alpha_dropout(t(m, X), 0.5, False),
    "feature_alpha_dropout_": lambda m: m.feature_alpha_dropout_(t(m, X), 0.5, False),
    "feature_dropout_": lambda m: m.feature_dropout_(t(m, X), 0.5, False),
    "detach": lambda m: m.detach(t(m, X)),
    "detach_": lambda m: m.detach_(t(m, X)),
    "addmv_": lambda m: m.addmv_(t(m, X[0, :, 0]), t(m, X[0]), t(m, X[0, 0])),
    "as_strided_": lambda m: m.as_strided_(t(m, X), (2, 2), (1, 2)),
    "conj_physical_": lambda m: m.conj_physical_(t(m, X)),
    "index_put_": lambda m: m.index_put_(t(m, ROWS), (t(m, WHOLE[:2]),), t(m, ROWS[:2])),
    "ldexp_": lambda m: m.ldexp_(t(m, X), t(m, np.array([1.0, 2, 3, 4, 5, 6]))),
}  # fmt: skip
LOSSES = {
    "binary_cross_entropy_with_logits": lambda m, r: m.binary_cross_entropy_with_logits(
        t(m, X), t(m, Y), None, None, r),
    "cosine_embedding_loss": lambda m, r: m.cosine_embedding_loss(
        t(m, X[:, 0]), t(m, Y[:, 0]), t(m, SIGNS), 0.1, r),
    "hinge_embedding_loss": lambda m, r: m.hinge_embedding_loss(t(m, X[:, 0, 0]), t(m, SIGNS), 1.0,
                                                                r),
    "kl_div": lambda m, r: m.kl_div(t(m, X), t(m, abs(Y)), r),
    "kl_div_log": lambda m, r: m.kl_div(t(m, X), t(m, Y), r, log_target=True),
    "margin_ranking_loss": lambda m, r: m.margin_ranking_loss(
        t(m, X[:, 0, 0]), t(m, Y[:, 0, 0]), t(m, SIGNS), 0.2, r),
    "poisson_nll_loss": lambda m, r: m.poisson_nll_loss(t(m, X), t(m, abs(Y)), True, True, 1e-8,
                                                        r),
    "triplet_margin_loss": lambda m, r: m.triplet_margin_loss(
        t(m, X[:, 0]), t(m, Y[:, 0]), t(m, X[:, 1]), 1.0, 2.0, 1e-6, True, r),
    "ctc_loss": lambda m, r: m.ctc_loss(
        m.log_softmax(t(m, RNG_LOGITS), -1), t(m, np.array([[1, 2], [3, 1]])), (6, 5), (2, 1), 0,
        r, True),
}  # fmt: skip
RNG_LOGITS = RNG.standard_normal((6, 2, 4))


@pytest.mark.parametrize("name", CALLS)
def test_called_as_in_pytorch(name: str) -> None:
    got, want = CALLS[name](cugrad), CALLS[name](torch)
    np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("reduction", [0, 1, 2])
@pytest.mark.parametrize("name", LOSSES)
def test_losses_take_the_number_of_a_reduction(name: str, reduction: int) -> None:
    got, want = LOSSES[name](cugrad, reduction), LOSSES[name](torch, reduction)
    np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-9, atol=1e-12)


def test_another_number_is_no_reduction() -> None:
    for lib in (cugrad, torch):
        for number in (3, -1):
            assert lib.kl_div(lib.ones(2), lib.ones(2), number).tolist() == [-1, -1]
        with pytest.raises(TypeError, match="'reduction' must be int, not str"):
            lib.kl_div(lib.ones(2), lib.ones(2), reduction="mean")


UNSAID = {
    "binary_cross_entropy_with_logits": (X, Y),
    "cosine_embedding_loss": (X[:, 0], Y[:, 0], SIGNS),
    "hinge_embedding_loss": (X[:, 0, 0], SIGNS),
    "kl_div": (X, abs(Y)),
    "margin_ranking_loss": (X[:, 0, 0], Y[:, 0, 0], SIGNS),
    "triplet_margin_loss": (X[:, 0], Y[:, 0], X[:, 1]),
}


@pytest.mark.parametrize("name", UNSAID)
def test_where_nothing_is_said_there_is_no_reduction(name: str) -> None:
    got, want = (getattr(m, name)(*[t(m, x) for x in UNSAID[name]]) for m in (cugrad, torch))
    assert tuple(got.shape) == tuple(want.shape) != ()
    np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("padding", [None, 2, -1])
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("mode", [0, 1, 2])
def test_bags_and_what_they_are_of(mode: int, last: bool, padding: int | None) -> None:
    rows = np.concatenate([ROWS[:3], ROWS[2:4]])  # two are equal: the first counts
    results = []
    for m in (cugrad, torch):
        weight = t(m, rows).requires_grad_()
        own = m.embedding_bag(weight, t(m, WHOLE), t(m, np.array([0, 2, 2, 5])), False, mode,
                              False, None, last, padding)  # fmt: skip
        assert own[0].requires_grad and not any(x.requires_grad for x in own[1:])
        results.append([x.detach().numpy() for x in own])
    for got, want in zip(*results, strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got, want, rtol=1e-12)
    with pytest.raises(RuntimeError, match="`mode` must be sum, mean, or max"):
        cugrad.embedding_bag(t(cugrad, ROWS), t(cugrad, WHOLE), t(cugrad, np.array([0])), mode=3)


@pytest.mark.parametrize("mode", [0, 1, 2])
def test_bags(mode: int) -> None:
    got, want = (
        m.embedding_bag(t(m, ROWS), t(m, WHOLE), t(m, np.array([0, 2])), False, mode)
        for m in (cugrad, torch)
    )
    np.testing.assert_allclose(got[0].numpy(), want[0].numpy(), rtol=1e-12)
