"""What ops keep for backward: their budgets, no more than PyTorch keeps, and right gradients."""

from __future__ import annotations

import subprocess
import sys
import warnings
from typing import Any

import pytest

import cugrad
from benchmarks.saved_bytes import BLOCKS, LAYERS, LESS, block, count, layer
from cugrad.autograd import gradcheck, gradgradcheck
from tests.support import ROOT

F = cugrad.nn.functional

# Budgets ------------------------------------------------------------------------------------------
# In units of the bytes of x, (8, 16, 32, 32) of float32. y is as large, m is a bool mask, each byte
# of which is a quarter of a float, and v has a number for each channel. 1/32 is one bit an element.

BIT = 1 / 32
BUDGETS: dict[str, float] = {
    # linear in x: nothing, or what multiplies it
    "x + y": 0, "x - y": 0, "x * 3": 0, "x / 3": 0, "-x": 0, "x.sum()": 0, "x.mean((0, 2))": 0,
    "x.reshape(-1)": 0, "x.permute(1, 0, 2, 3)": 0, "x[2:, ::2]": 0, "x.clone()": 0, "x.T": 0,
    "torch.cat([x, y])": 0, "torch.stack([x, y])": 0, "x.expand(2, 8, 16, 32, 32)": 0,
    "x.flip(0)": 0, "x.cumsum(1)": 0, "x.roll(3, 1)": 0, "F.pad(x, (1, 1))": 0, "x.tril()": 0,
    "x.double()": 0, "x.floor()": 0, "x.round()": 0, "x.sign()": 0, "x.real": 0,
    "x.contiguous()": 0, "x.diff()": 0, "x.repeat(2, 1, 1, 1)": 0, "x.unfold(2, 3, 1)": 0,
    "x.masked_fill(m, 0)": 0.25, "x.detach()": 0, "x.masked_fill(v > 0.5, 0)": 1e-4,
    "torch.where(m, x, y)": 0.25, "torch.lerp(x, y, 0.5)": 0, "x * v": 1 + 1e-3,
    "x @ v.expand(1, 16, 32, 32)[0, 0]": 1e-3, "F.avg_pool2d(x, 3, 2)": 0,
    "F.interpolate(x, scale_factor=2)": 2e-3, "F.interpolate(x, (9, 9), mode='bilinear')": 5e-3,
    "F.adaptive_avg_pool2d(x, 1)": 0, "F.adaptive_avg_pool2d(x, 5)": 3e-3, "F.mse_loss(x, y)": 1,
    # one operand, or the result
    "x * y": 2, "x * x": 1, "x / y": 2, "x.exp()": 1, "x.log()": 1, "x.sqrt()": 1, "x.rsqrt()": 1,
    "x.sin()": 1, "x.tanh()": 1, "x.sigmoid()": 1, "x.abs()": 1, "x.pow(2)": 1, "x.pow(-1.5)": 1,
    "x.square()": 1, "x.reciprocal()": 1, "x.erf()": 1, "x.clamp(-1, 1)": 1, "x.clamp_min(0)": 1,
    "x.expm1()": 1, "x.log1p()": 1, "x.atan()": 1, "x.logsumexp(1)": 1 + 1 / 16,
    "x.var(1)": 1 + 1 / 16, "x.std()": 1 + 1e-4, "x.norm()": 1 + 1e-4, "x.prod(1)": 1 + 1 / 16,
    "x.nan_to_num()": 1, "torch.maximum(x, y)": 2, "torch.atan2(x, y)": 2,
    "torch.addcmul(x, y, y)": 1, "F.relu(x)": 1, "F.relu6(x)": 1, "F.hardtanh(x)": 1,
    "F.leaky_relu(x)": 1, "F.elu(x)": 1, "F.selu(x)": 1, "F.celu(x)": 1, "F.gelu(x)": 1,
    "F.gelu(x, approximate='tanh')": 1, "F.silu(x)": 1, "F.mish(x)": 1, "F.softplus(x)": 1,
    "F.hardswish(x)": 1, "F.hardsigmoid(x)": 1, "F.glu(x)": 1, "F.logsigmoid(x)": 1,
    "F.softshrink(x)": 1, "F.hardshrink(x)": 1, "F.tanhshrink(x)": 1, "F.threshold(x, 0.1, 20)": 1,
    "F.softsign(x)": 2, "F.softmax(x, 1)": 1, "F.log_softmax(x, 1)": 1,
    # in place, where the result is enough: no copy of what was there
    "F.relu_(x * 1)": 1, "F.hardtanh_(x * 1)": 1, "F.leaky_relu_(x * 1)": 1, "(x * 1).exp_()": 1,
    "F.dropout(x * 1, 0.3, inplace=True)": BIT, "F.relu(x * 1, True, keep_bits=True)": BIT,
    "F.alpha_dropout(x * 1, 0.3, True, inplace=True)": BIT, "(x * 1).masked_fill_(m, 0)": 0.25,
    # statistics, one or two for each row
    "F.batch_norm(x, None, None, v.flatten(), v.flatten(), True)": 1.01,
    "F.layer_norm(x, (32, 32))": 1.01, "F.group_norm(x, 4, v.flatten(), v.flatten())": 1.01,
    "F.rms_norm(x, (32, 32))": 1.01, "F.instance_norm(x)": 1.01,
    "F.batch_norm(x, v.flatten(), v.flatten().exp())": 1e-2,
    "F.cross_entropy(x.reshape(-1, 1024), c)": 1.01, "F.normalize(x, dim=1)": 2.3,
    "F.cross_entropy(x.reshape(-1, 1024), c, label_smoothing=0.1)": 1.01,
    # bits and small indices
    "F.relu(x, keep_bits=True)": BIT, "F.dropout(x, 0.3)": BIT,
    "F.alpha_dropout(x, 0.3, True)": BIT, "F.dropout(x, 1.0)": 0, "F.dropout2d(x, 0.3)": 1e-4,
    "F.feature_alpha_dropout(x, 0.3, True)": 1e-4, "F.max_pool1d(x.flatten(2), 2)": 1 / 8,
    "F.max_pool2d(x, 2)": 1 / 16, "F.max_pool2d(x, 3, 1, 1)": 1 / 4,
    "F.max_pool2d(x, 2, return_indices=True)[0]": 1 / 16, "F.max_pool3d(x, 2)": 1 / 32,
    "F.max_pool2d(x, 17, 5)": 1 / 128, "F.adaptive_max_pool2d(x, 4)": 1 / 256,
    "F.adaptive_max_pool2d(x, 5)": 1 / 80, "F.fractional_max_pool2d(x, 2, 16)": 1 / 8,
    "x.kthvalue(3).values": 1 / 16, "x.median(3).values": 1 / 16, "x.max(3).values": 1 / 16,
    "x.sort().values": 2, "x.topk(2).values": 1 / 8, "x.amax(3)": 1 + 1 / 32,
    # attention: queries, keys and values are one tensor here; the weights would be as large
    "F.scaled_dot_product_attention(x, x, x)": 1,
    "F.scaled_dot_product_attention(x, y, x, dropout_p=0.1)": 2 + BIT,
}  # fmt: skip


@pytest.mark.parametrize("expression", BUDGETS)
def test_an_op_keeps_what_its_budget_says(expression: str) -> None:
    scope: dict[str, Any] = {"torch": cugrad, "F": F, "v": cugrad.rand(1, 16, 1, 1)}
    x, y = [cugrad.rand(8, 16, 32, 32, requires_grad=True) for _ in range(2)]
    scope.update(m=y > 0.5, c=cugrad.zeros(128, dtype=cugrad.int64))
    found = count(cugrad, lambda x, y: eval(expression, {**scope, "x": x, "y": y}), [x, y])
    assert found.kept <= BUDGETS[expression] * 4 * x.numel() + 64


@pytest.mark.parametrize("form", ["plain", "in place"])
@pytest.mark.parametrize(
    "name, settings",
    [("relu", {}), ("hardtanh", {"min_val": 0.2, "max_val": 0.7}), ("relu6", {}),
     ("leaky_relu", {"negative_slope": 0.1}), ("leaky_relu", {"negative_slope": -0.1}),
     ("hardsigmoid", {}), ("dropout", {"p": 0.4}), ("relu", {"keep_bits": True})],
)  # fmt: skip
def test_in_place_or_not_gradients_are_the_same(name: str, settings: Any, form: str) -> None:
    """Also at infinity, nan and the kinks; of dropout, where the values say what stayed."""
    data = [-3.0, -0.0, 0.0, 0.2, 0.5, 0.7, 6.0, 7.0, float("inf"), float("-inf"), float("nan")]
    x = cugrad.tensor(data, dtype=cugrad.float64, requires_grad=True)
    act = getattr(F, name)
    y = act(x, **settings) if form == "plain" else act(x * 1, inplace=True, **settings)
    y.sum().backward()
    z = x.detach()
    wanted = {
        "relu": (z > 0) * 1.0, "hardtanh": ((z > 0.2) & (z < 0.7)) * 1.0,
        "relu6": ((z > 0) & (z < 6)) * 1.0, "hardsigmoid": ((z > -3) & (z < 3)) / 6.0,
        "leaky_relu": cugrad.where(z > 0, 1.0, settings.get("negative_slope", 0.0)),
        "dropout": y.detach() / z,
    }[name]  # fmt: skip
    good = ~z.isnan() & ~(y.detach() / z).isnan() if name == "dropout" else ~z.isnan()
    assert x.grad is not None and cugrad.allclose(x.grad[good], wanted[good].double())


# Beside PyTorch -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*LAYERS, *BLOCKS])
def test_layers_and_models_keep_no_more_than_pytorchs(name: str) -> None:
    torch = pytest.importorskip("torch")
    run = layer if name in LAYERS else block
    ours, theirs = run(cugrad, name, True), run(torch, name, True)
    assert ours.held <= theirs.held
    assert ours.kept <= theirs.kept or name.startswith("cross_entropy")
    for field in ours._fields:
        if f"{name} {field}" in LESS:
            assert getattr(ours, field) < getattr(theirs, field)


def test_the_benchmark_holds_its_goals() -> None:
    pytest.importorskip("torch")
    words = ["benchmarks/saved_bytes.py", "--quick", "--check", "--only", "^(dropout|gpt)"]
    run = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "dropout kept" in run.stdout and "gpt held" in run.stdout


# Operators that keep more than PyTorch's for some sample of its database, and why.
AXES = "index arrays or weights of one axis at a time, made once for a size: not per element"
PARTS = "made of several ops, some of which keep what lies between them"
MORE = {
    "cdist": PARTS, "cholesky_inverse": PARTS, "clamp": "bounds that are tensors: two ops",
    "corrcoef": PARTS, "cov": PARTS, "ldexp": PARTS,
    "lu_solve": PARTS, "linalg.eig": "the input, for its double derivative", "linalg.lstsq": PARTS,
    "linalg.householder_product": PARTS, "linalg.lu_solve": PARTS, "ormqr": PARTS,
    "masked_scatter": "where in the source each element was", "mvlgamma": PARTS,
    "renorm": PARTS, "nn.functional.adaptive_avg_pool1d": AXES,
    "nn.functional.adaptive_avg_pool3d": AXES, "nn.functional.bilinear": PARTS,
    "nn.functional.cross_entropy": "the scores, and two numbers per row: of three classes, more",
    "nn.functional.linear_cross_entropy": "the same",
    "nn.functional.ctc_loss": "a recursion of recorded ops",
    "nn.functional.grid_sample": PARTS, "nn.functional.multi_margin_loss": PARTS,
    "nn.functional.multilabel_margin_loss": PARTS, "nn.functional.pdist": PARTS,
    "nn.functional.upsample_bilinear": AXES,
}  # fmt: skip


def _excess(torch: Any, op: Any) -> bool:
    """Whether our operator keeps more for one of the first samples, beyond 5 % and 16 bytes."""
    from tests.ops import opinfo

    function = opinfo.function_of(op)
    if function is None or not op.supports_autograd or torch.float32 not in op.dtypes:
        return False
    for sample in opinfo.samples_of(op, torch.float32, graded=True, most=12):
        theirs = sample.input, *sample.args
        try:
            ours = opinfo.ours(theirs)
            kept = [
                count(lib, lambda f=f, a=a, k=k: _tensors(f(*a, **k)), []).kept
                for lib, f, a, k in ((torch, op.op, theirs, sample.kwargs),
                                     (cugrad, function, ours, opinfo.ours(sample.kwargs)))
            ]  # fmt: skip
        except Exception:  # what it cannot do is what tests/ops/test_opinfo.py looks at
            continue
        if kept[1] + 16 > 1.05 * (kept[0] + 16):
            return True
    return False


def _tensors(value: Any) -> list[Any]:
    from tests.ops import opinfo

    return list(opinfo.tensors(value))


@pytest.mark.pinned_torch
def test_operators_keep_no_more_than_pytorchs_but_for_these() -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("expecttest")
    from tests.ops.opinfo import database

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what PyTorch deprecates
        found = {name for name, ops in database().items() if _excess(torch, ops[0])}
    assert not found - MORE.keys(), "keeps more than PyTorch's"
    assert not MORE.keys() - found, "no longer keeps more: take it out of the list"


# Attention, which computes its weights again ------------------------------------------------------


def _operands(*shapes: tuple[int, ...]) -> list[Any]:
    return [cugrad.randn(*s, dtype=cugrad.float64, requires_grad=True) for s in shapes]


SETTINGS: dict[str, Any] = {
    "plain": {}, "causal": {"is_causal": True}, "dropout": {"dropout_p": 0.4},
    "causal_dropout": {"is_causal": True, "dropout_p": 0.4}, "scale": {"scale": 0.7},
}  # fmt: skip


@pytest.mark.parametrize("name", SETTINGS)
def test_gradients_of_attention(name: str) -> None:
    def attend(q: Any, k: Any, v: Any) -> Any:
        cugrad.manual_seed(3)  # the same weights are dropped each time
        return F.scaled_dot_product_attention(q, k, v, **SETTINGS[name])

    tensors = _operands((2, 4, 3), (2, 5, 3), (2, 5, 2))
    assert gradcheck(attend, tensors) and gradgradcheck(attend, tensors)


def test_gradients_of_attention_with_masks_and_groups() -> None:
    q, k, v = _operands((2, 4, 3, 2), (2, 2, 5, 2), (2, 2, 5, 2))
    mask = cugrad.tensor([[True] * 5, [False] * 5, [True, False, True, True, False]])
    attend = F.scaled_dot_product_attention
    assert gradcheck(lambda q, k, v: attend(q, k, v, mask, enable_gqa=True), (q, k, v))
    added = cugrad.randn(4, 3, 1, dtype=cugrad.float64, requires_grad=True)
    by_bias = lambda q, k, v, b: attend(q, k, v, b.expand(4, 3, 5), enable_gqa=True)
    assert gradcheck(by_bias, (q, k, v, added)) and gradgradcheck(by_bias, (q, k, v, added))


def test_attention_is_the_same_in_forward_mode_and_in_batches() -> None:
    q, k, v = [t.detach() for t in _operands((2, 4, 3), (2, 5, 3), (2, 5, 2))]
    attend = lambda q: F.scaled_dot_product_attention(q, k[0], v[0])
    batched = cugrad.func.vmap(F.scaled_dot_product_attention)(q, k, v)
    assert cugrad.allclose(batched, F.scaled_dot_product_attention(q, k, v))
    forward, reverse = cugrad.func.jacfwd(attend)(q[0]), cugrad.func.jacrev(attend)(q[0])
    plain = q[0].clone().requires_grad_()
    attend(plain).sum().backward()
    assert cugrad.allclose(forward, reverse)
    assert cugrad.allclose(plain.grad, reverse.sum((0, 1)))
