"""Checks the losses of nn: values and gradients are PyTorch's, as functions and as modules."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cugrad
from cugrad import nn
from cugrad.nn import functional as F
from tests.nn.test_functional import both, draw, host

# Called with every reduction. x, y, z are normal, p and q in (0, 1), s is 1 or -1, v one for a row.
CALLS = """
F.l1_loss(x, y)
F.l1_loss(x, y, weight=p.detach())
F.mse_loss(x, y, weight=p.detach())
F.smooth_l1_loss(x, y)
F.smooth_l1_loss(x, y, beta=0.3)
F.smooth_l1_loss(x, y, beta=0)
F.huber_loss(x, y)
F.huber_loss(x, y, delta=0.4)
F.huber_loss(x, y, weight=p.detach())
F.binary_cross_entropy(p, q)
F.binary_cross_entropy(p, q, weight=v.detach().abs())
F.binary_cross_entropy_with_logits(x * 100, q)
F.binary_cross_entropy_with_logits(x, q, weight=v.detach().abs())
F.binary_cross_entropy_with_logits(x, q, pos_weight=v.detach().abs())
F.multilabel_soft_margin_loss(x, q)
F.multilabel_soft_margin_loss(x, q, weight=v.detach().abs())
F.kl_div(x, q)
F.kl_div(x, y, log_target=True)
F.gaussian_nll_loss(x, y, q)
F.gaussian_nll_loss(x, y, q[:, 0], full=True)
F.gaussian_nll_loss(x, y, q[:, :1] * 1e-9)
F.gaussian_nll_loss(x, y, 0.7)
F.gaussian_nll_loss(x, y, 0.0)
F.gaussian_nll_loss(x, y, q[:, :1] * 0)
F.poisson_nll_loss(x, q * 5)
F.poisson_nll_loss(x, q * 5, full=True)
F.poisson_nll_loss(p, q, log_input=False)
F.soft_margin_loss(x * 50, s)
F.hinge_embedding_loss(x, s)
F.hinge_embedding_loss(x, s, margin=0.3)
F.margin_ranking_loss(x, y, s)
F.margin_ranking_loss(x, y, s, margin=0.5)
F.triplet_margin_loss(x, y, z)
F.triplet_margin_loss(x, y, z, margin=3, p=1, swap=True)
F.cosine_embedding_loss(x, y, s[:, 0])
F.cosine_embedding_loss(x, y, s[:, 0], margin=-0.5)
F.cosine_embedding_loss(x[0], y[0], s[0, 0])
""".strip().splitlines()
ALONE = """
F.kl_div(x, q, reduction="batchmean")
F.cosine_similarity(x, y)
F.cosine_similarity(x, y[0], dim=0)
F.cosine_similarity(x, x * 0, dim=-1)
F.pairwise_distance(x, y)
F.pairwise_distance(x, y[0], p=1, keepdim=True)
""".strip().splitlines()


def arrays() -> list[Any]:
    x, y, z, v = draw(3, 4), draw(3, 4, seed=1), draw(3, 4, seed=2), draw(4, seed=3)
    p, q = (np.random.default_rng(i).uniform(0.1, 0.9, (3, 4)) for i in (4, 5))
    return [x, y, z, p, q, v, np.where(draw(3, 4, seed=6) > 0, 1, -1)]


def expressions() -> list[str]:
    reduced = [f'{call[:-1]}, reduction="{how}")' for call in CALLS for how in OTHERS]
    return reduced + CALLS + ALONE


OTHERS = ("none", "sum")  # "mean" is the default


@pytest.mark.filterwarnings("ignore:reduction. 'mean' divides")
@pytest.mark.parametrize("call", expressions())
def test_function_is_pytorchs(call: str, device: str) -> None:
    def evaluate(lib: Any, *tensors: Any) -> Any:
        named = dict(zip("xyzpqvs", tensors))
        touched = 0 * sum(t.sum() for t in tensors[:-1])
        return eval(call, {"F": lib.nn.functional, **named}) + touched

    both(evaluate, arrays(), device)


MODULES = [
    ("L1Loss()", "xy"),
    ("SmoothL1Loss(beta=0.5)", "xy"),
    ("HuberLoss('sum', 0.5)", "xy"),
    ("BCELoss(v.detach().abs())", "pq"),
    ("BCEWithLogitsLoss(pos_weight=v.detach().abs())", "xq"),
    ("KLDivLoss(reduction='batchmean')", "xq"),
    ("HingeEmbeddingLoss(0.5)", "xs"),
    ("SoftMarginLoss()", "xs"),
    ("MultiLabelSoftMarginLoss()", "xq"),
    ("MarginRankingLoss(0.5)", "xys"),
    ("CosineEmbeddingLoss(0.1)", "xyt"),
    ("TripletMarginLoss(2.0, swap=True)", "xyz"),
    ("GaussianNLLLoss(full=True)", "xyq"),
    ("PoissonNLLLoss(full=True)", "xq"),
    ("CosineSimilarity(0)", "xy"),
    ("PairwiseDistance(1.0)", "xy"),
]


@pytest.mark.parametrize("layer, inputs", MODULES)
def test_module_is_pytorchs(layer: str, inputs: str, device: str) -> None:
    torch = pytest.importorskip("torch", reason="compares with PyTorch, which is not installed")
    found = []
    for lib, where in ((cugrad, device), (torch, "cpu")):
        named = {n: lib.tensor(a, device=where) for n, a in zip("xyzpqvs", arrays())}
        named["t"] = named["s"][:, 0]
        module = eval("nn." + layer, {"nn": lib.nn, **named})
        found.append(
            (repr(module), list(module.state_dict()), host(module(*map(named.get, inputs))))
        )
    assert found[0][:2] == found[1][:2]
    np.testing.assert_allclose(found[0][2], found[1][2], rtol=1e-10)


def test_binary_cross_entropy_at_its_bounds(device: str) -> None:
    """Finite losses, and gradients of the input, where a probability is 0 or 1."""
    ends = [np.array([0.0, 1.0, 0.0, 1.0]), np.array([0.0, 0.0, 1.0, 1.0])]
    both(lambda lib, p, t: lib.nn.functional.binary_cross_entropy(p, t), ends, device, 1e-7)


def test_other_shapes_warn_and_broadcast() -> None:
    x, y = cugrad.zeros(2, 3), cugrad.ones(3)
    for loss in (F.mse_loss, F.l1_loss, F.smooth_l1_loss, F.huber_loss):
        with pytest.warns(UserWarning, match="Using a target size") as caught:
            assert loss(x, y, reduction="none").shape == (2, 3)
        assert caught[0].filename == __file__


@pytest.mark.parametrize(
    "call, error, message",
    [
        (lambda x, y: F.l1_loss(x, y, reduction="avg"), ValueError, "is not a valid value"),
        (lambda x, y: nn.L1Loss(reduction="avg"), ValueError, "is not a valid value"),
        (lambda x, y: F.l1_loss(x, y, weight=y[0]), ValueError, "must have the same size"),
        (lambda x, y: F.smooth_l1_loss(x, y, beta=-1), RuntimeError, "negative values for beta"),
        (lambda x, y: F.huber_loss(x, y, delta=0), RuntimeError, "non-positive values for delta"),
        (lambda x, y: F.binary_cross_entropy(x, y), RuntimeError, "between 0 and 1"),
        (lambda x, y: F.binary_cross_entropy(x, y[0]), ValueError, "is deprecated"),
        (
            lambda x, y: F.binary_cross_entropy_with_logits(x, y[0]),
            ValueError,
            "must be the same as input size",
        ),
        (lambda x, y: F.gaussian_nll_loss(x, y, -1.0), ValueError, "negative"),
        (lambda x, y: F.gaussian_nll_loss(x, y, y - 9), ValueError, "negative"),
        (lambda x, y: F.gaussian_nll_loss(x, y, y[:2].abs()), ValueError, "incorrect size"),
        (lambda x, y: F.kl_div(x.long(), y), RuntimeError, "Integral inputs not supported"),
        (lambda x, y: F.kl_div(x, y > 0), RuntimeError, "Integral inputs not supported"),
        (lambda x, y: F.kl_div(x, y + 0j), RuntimeError, "Complex inputs not supported"),
        (lambda x, y: F.margin_ranking_loss(x, y, y[0]), RuntimeError, "same dimension"),
        (lambda x, y: F.triplet_margin_loss(x, y, y, margin=0), ValueError, "greater than 0"),
        (lambda x, y: F.triplet_margin_loss(x, y, y[0]), RuntimeError, "negative 1D"),
        (lambda x, y: F.cosine_embedding_loss(x, y, y), RuntimeError, "0D or 1D target"),
        (lambda x, y: F.cosine_embedding_loss(x, y[0], y[0]), RuntimeError, "expects 2D input"),
    ],
)
def test_bad_input_is_named(call: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        call(cugrad.tensor(draw(3, 4)), cugrad.tensor(draw(3, 4, seed=1)))


@pytest.mark.parametrize("name", ["huber_loss", "smooth_l1_loss"])
def test_a_loss_of_infinity_has_a_slope(lib: Any, name: str) -> None:
    x = lib.tensor([float("inf"), -float("inf"), 3.0, 0.5, 0.0], requires_grad=True)
    getattr(lib.nn.functional, name)(x, lib.zeros(5), reduction="sum").backward()
    assert x.grad.tolist() == [1, -1, 1, 0.5, 0]


KEPT = [("multi_margin_loss", [0, 1]), ("multilabel_margin_loss", [[0, -1, 0], [1, 0, -1]])]


@pytest.mark.parametrize("name, target", KEPT)
def test_a_margin_that_is_just_kept_has_no_gradient(lib: Any, name: str, target: Any) -> None:
    x = lib.tensor([[1.0, 1.0, 0.0], [0.0, 1.0, 0.5]], requires_grad=True)
    loss = getattr(lib.nn.functional, name)(x, lib.tensor(target), reduction="sum")
    (grad,) = lib.autograd.grad(loss * 3, x)
    want = [[-1.0, 1.0, 0.0], [0.0, -1.0, 1.0]]
    if name == "multilabel_margin_loss":  # 1 and 0 are targets of the second row, 2 is none
        want[1] = [-1.0, -1.0, 2.0]
    assert grad.tolist() == want


@pytest.mark.parametrize("name", ["elu", "celu"])
def test_the_slope_at_nan_is_that_of_positive_numbers(lib: Any, name: str) -> None:
    x = lib.tensor([float("nan"), float("inf"), 0.0], requires_grad=True)
    getattr(lib.nn.functional, name)(x).sum().backward()
    assert x.grad.tolist() == [1, 1, 1]


HEADS: list[dict[str, Any]] = [
    {}, {"reduction": "sum"}, {"reduction": "none"}, {"weight": True}, {"ignore_index": 2},
    {"linear_bias": True, "weight": True, "ignore_index": 1},
]  # fmt: skip
CHUNKS: list[dict[str, Any]] = [
    {}, {"batch_chunk_size": 3}, {"chunking_method": "aspect_ratio"},
    {"batch_chunk_size": 4, "acc_policy": "compact"},
]  # fmt: skip


@pytest.mark.pinned_torch
@pytest.mark.parametrize("how", HEADS, ids=str)
def test_logits_in_chunks_give_the_same_loss(how: dict[str, Any]) -> None:
    x, table, y = draw(10, 3), draw(7, 3, seed=1), np.arange(10) % 7

    def loss(lib: Any, chunks: dict[str, Any] | None, *tensors: Any) -> Any:
        settings = dict(how)
        for name, value in (("linear_bias", tensors[2]), ("weight", tensors[3])):
            if name in settings:
                settings[name] = value
        options = None if chunks is None else lib.nn.LinearCrossEntropyOptions(**chunks)
        return lib.nn.functional.linear_cross_entropy(
            tensors[0], tensors[1], lib.tensor(y), options=options, **settings
        )

    arrays = [x, table, draw(7, seed=2), np.abs(draw(7, seed=3))]
    both(lambda lib, *t: loss(lib, None, *t[:3], t[3].detach()), arrays, "cpu")
    for chunks in CHUNKS:
        both(lambda lib, *t, c=chunks: loss(lib, c, *t[:3], t[3].detach()), arrays, "cpu")


def test_logits_in_chunks_need_less_memory() -> None:
    options = nn.LinearCrossEntropyOptions(batch_chunk_size=8)
    loss = nn.LinearCrossEntropyLoss(4, 50, options=options)
    y = cugrad.arange(64) % 50
    sizes: list[int] = []
    with cugrad.autograd.graph.saved_tensors_hooks(
        lambda t: sizes.append(t.numel()) or t, lambda t: t
    ):
        loss(cugrad.ones(64, 4), y).backward()
    assert max(sizes, default=0) < 64 * 50
    half = loss.to(cugrad.float16)(cugrad.ones(64, 4, dtype=cugrad.float16), y)
    assert half.dtype is cugrad.float16
    with pytest.warns(UserWarning, match="options`` ignored"):
        F.linear_cross_entropy(
            cugrad.ones(2, 4), cugrad.ones(3, 4), cugrad.tensor([0, 1]), label_smoothing=0.1,
            options=options,
        )  # fmt: skip
    with pytest.raises(ValueError, match="give different chunk sizes"):
        nn.LinearCrossEntropyOptions(
            batch_chunk_size=5, chunking_method="aspect_ratio"
        ).chunk_size(64, 4, 50)  # fmt: skip


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("smoothing", [None, 0.0, 0.1])
@pytest.mark.parametrize("weights", [(0, 0, 0), (0, 1, 2), (0, 0, 1), None])
def test_classes_that_weigh_nothing_count(weights: Any, smoothing: Any, reduction: str) -> None:
    """Only an ignored target does not: where all weigh nothing the mean is nan, and its slope."""
    torch = pytest.importorskip("torch")

    def outcome(lib: Any, targets: list[int], lowest: float) -> list[Any]:
        x = lib.tensor([[1.0, 2.0, 0.5], [lowest, 0.3, 0.1]], requires_grad=True)
        how = {"weight": None if weights is None else lib.tensor(weights, dtype=x.dtype)}
        function, target = lib.nn.functional.nll_loss, lib.tensor(targets)
        if smoothing is not None:
            function, how["label_smoothing"] = lib.nn.functional.cross_entropy, smoothing
        loss = function(x, target, reduction=reduction, **how)
        (g,) = lib.autograd.grad(loss.sum(), x)
        return [loss.tolist(), g.tolist()]

    for targets in ([0, 0], [0, 1], [-100, 0], [-100, -100], [2, 1]):
        for lowest in (-1.0, float("-inf")):
            got, want = [outcome(lib, targets, lowest) for lib in (cugrad, torch)]
            for a, b in zip(got, want):
                np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_labels_that_do_not_lie_side_by_side() -> None:
    scores = cugrad.randn(6, 2, 4).log_softmax(-1)
    labels, sizes = cugrad.tensor([1, 2, 3, 3, 1]), cugrad.tensor([2, 3])
    spread = cugrad.zeros(10, dtype=cugrad.int64)
    spread[::2] = labels
    steps = cugrad.tensor([6, 6])
    want = F.ctc_loss(scores, labels, steps, sizes, reduction="none")
    got = F.ctc_loss(scores, spread[::2], steps, sizes, reduction="none")
    assert got.tolist() == want.tolist()


@pytest.mark.parametrize("shape", [(3,), (6, 2, 4, 1)])
def test_scores_of_other_dims_have_no_alignment(lib: Any, shape: tuple[int, ...]) -> None:
    with pytest.raises(RuntimeError, match="log_probs"):
        lib.nn.functional.ctc_loss(lib.zeros(shape), lib.tensor([[1]]), [2], [1])


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float64"])
@pytest.mark.parametrize("of_target", ["float32", "int64"])
def test_stirlings_term_has_the_dtype_of_the_loss(lib: Any, kind: str, of_target: str) -> None:
    x, y = lib.ones(3).to(getattr(lib, kind)), (lib.ones(3) * 3).to(getattr(lib, of_target))
    plain, full = [lib.nn.functional.poisson_nll_loss(x, y, full=full) for full in (False, True)]
    assert full.dtype == plain.dtype and full > plain


@pytest.mark.parametrize("name", ["nll_loss", "cross_entropy"])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_the_class_of_one_example_may_be_a_list_of_one(lib: Any, name: str, reduction: str) -> None:
    x, call = lib.tensor([0.5, -1.0, 2.0]), getattr(lib.nn.functional, name)
    whole, listed = (call(x, lib.tensor(target), reduction=reduction) for target in (2, [2]))
    assert listed.shape == () and listed == whole
    with pytest.raises(ValueError, match="must have size 1, but got target size: 2"):
        call(x, lib.tensor([0, 1]), reduction=reduction)


def test_the_gradient_of_one_example_with_a_list_of_one() -> None:
    """PyTorch's backward raises."""
    x = cugrad.tensor([0.5, -1.0, 2.0], requires_grad=True)
    for target in (2, [2]):
        F.cross_entropy(x, cugrad.tensor(target)).backward()
    assert np.allclose(x.grad.tolist(), 2 * (x.detach().softmax(0) - cugrad.tensor([0, 0, 1])))
