"""Checks activation functions, norms and embeddings, as functions and as layers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cugrad
from cugrad import nn
from cugrad.nn import functional as F
from tests.nn.test_functional import both, draw, host
from tests.support.pinned_torch import cases

# Each is evaluated with F = cugrad.nn.functional and PyTorch's, on equal tensors x and w.
CALLS = """
F.celu(x)
F.celu(x, 0.5)
F.elu(x)
F.elu(x, 0.7)
F.gelu(x)
F.gelu(x, approximate="tanh")
F.glu(x)
F.glu(x, 0)
F.hardshrink(x)
F.hardshrink(x, 0.2)
F.hardsigmoid(x * 3)
F.hardswish(x * 3)
F.hardtanh(x)
F.hardtanh(x, -0.5, 0.25)
F.leaky_relu(x)
F.leaky_relu(x, 0.3)
F.log_softmax(x, 1)
F.logsigmoid(x * 100)
F.mish(x)
F.prelu(x, w)
F.prelu(x, w[:1])
F.prelu(x[0, 0], w[0])
F.relu(x)
F.relu6(x * 8)
F.selu(x)
F.sigmoid(x)
F.silu(x)
F.softmax(x, -1)
F.softmin(x, 0)
F.softplus(x)
F.softplus(x, 2, 1)
F.softshrink(x)
F.softshrink(x, 0.1)
F.softsign(x)
F.tanh(x)
F.tanhshrink(x)
F.threshold(x, 0.1, 20)
F.celu_(x * 1)
F.elu_(x * 1)
F.hardtanh_(x * 1)
F.leaky_relu_(x * 1)
F.relu_(x * 1)
F.selu_(x * 1)
F.threshold_(x * 1, 0.1, 20)
F.hardswish(x * 3, inplace=True)
F.mish(x * 1, inplace=True)
F.silu(x * 1, inplace=True)
F.relu6(x * 1, inplace=True)
F.layer_norm(x, (6,))
F.layer_norm(x, (4, 6), x[0].detach(), x[1].detach(), 0.1)
F.rms_norm(x, (6,))
F.rms_norm(x, (4, 6), x[0].detach(), 0.1)
F.group_norm(x, 2)
F.group_norm(x, 4, w, w + 1, 0.1)
F.embedding(i, x[0])
F.embedding(i, x[0], 1)
F.embedding(i, x[0], -4)
""".strip().splitlines()


@pytest.mark.parametrize("call", CALLS)
def test_function_is_pytorchs(call: str, device: str) -> None:
    def evaluate(lib: Any, x: Any, w: Any, i: Any) -> Any:
        return eval(call, {"F": lib.nn.functional, "x": x, "w": w, "i": i}) + 0 * (
            x.sum() + w.sum()
        )

    tight = 1e-6 if "hardsi" in call or "hardsw" in call else 1e-10  # PyTorch's 1/6 is in float32
    both(evaluate, [draw(2, 4, 6), draw(4, seed=1), np.array([[0, 1], [3, 1]])], device, tight)


LAYERS = """
CELU(0.5)
ELU(0.5)
GELU()
GELU("tanh")
GLU()
Hardshrink(0.2)
Hardsigmoid()
Hardswish()
Hardtanh(-0.5, 0.5)
LeakyReLU(0.2)
LogSigmoid()
LogSoftmax(1)
Mish()
PReLU()
PReLU(4, 0.5)
ReLU()
ReLU6()
SELU()
Sigmoid()
SiLU()
Softmax(-1)
Softmin(1)
Softplus(2.0, 10.0)
Softshrink(0.2)
Softsign()
Tanh()
Tanhshrink()
Threshold(0.1, 20)
LayerNorm(6)
LayerNorm((4, 6), eps=0.1, bias=False)
LayerNorm([6], elementwise_affine=False)
RMSNorm(6)
RMSNorm((4, 6), eps=0.1, elementwise_affine=False)
GroupNorm(2, 4)
GroupNorm(4, 4, affine=False)
GroupNorm(1, 4, bias=False)
""".strip().splitlines()
NEWER = ("LayerNorm", "GroupNorm")  # say whether they have a bias


@pytest.mark.parametrize("layer", cases(LAYERS, [x for x in LAYERS if x.startswith(NEWER)]))
def test_layer_is_written_as_pytorchs(layer: str) -> None:
    torch = pytest.importorskip("torch", reason="compares with PyTorch, which is not installed")
    ours, theirs = (eval("lib.nn." + layer, {"lib": lib}) for lib in (cugrad, torch))
    assert repr(ours) == repr(theirs)
    if hasattr(ours, "inplace"):
        ours.inplace = theirs.inplace = True
        assert repr(ours) == repr(theirs)


@pytest.mark.parametrize("layer", cases(LAYERS, ["GroupNorm(1, 4, bias=False)"]))
def test_layer_is_pytorchs(layer: str, device: str) -> None:
    """Value and parameters; in place where the layer can."""
    torch = pytest.importorskip("torch", reason="compares with PyTorch, which is not installed")
    x = draw(2, 4, 6).astype(np.float32)
    ours, theirs = (eval("lib.nn." + layer, {"lib": lib}) for lib in (cugrad, torch))
    ours.to(device)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    for name, value in theirs.state_dict().items():
        np.testing.assert_array_equal(host(ours.state_dict()[name]), host(value))
    given = cugrad.tensor(x, device=device)
    want = host(theirs(torch.tensor(x)))
    np.testing.assert_allclose(host(ours(given)), want, rtol=1e-5, atol=1e-6)
    if hasattr(ours, "inplace"):
        ours.inplace = theirs.inplace = True
        assert ours(given) is given
        np.testing.assert_allclose(host(given), want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("function", ["gelu", "silu", "mish", "softplus", "logsigmoid", "selu"])
def test_half_precision_is_rounded_once(function: str, dtype: str, device: str) -> None:
    """What float32 gives, rounded: not the sum of the roundings on the way."""
    x = cugrad.tensor(draw(200) * 3, device=device).to(getattr(cugrad, dtype))
    narrow, wide = getattr(F, function)(x), getattr(F, function)(x.float())
    assert narrow.dtype is x.dtype
    np.testing.assert_array_equal(host(narrow.float()), host(wide.to(x.dtype).float()))


def test_softmax_without_a_dim_warns() -> None:
    x = cugrad.zeros(2, 4)
    with pytest.warns(UserWarning, match="Implicit dimension choice for softmax"):
        assert nn.Softmax()(x)[0, 0].item() == 0.25


def test_embedding_layer(device: str) -> None:
    layer = nn.Embedding(5, 3, padding_idx=-1).to(device)
    assert repr(layer) == "Embedding(5, 3, padding_idx=4)"
    assert layer.weight[4].tolist() == [0.0] * 3 and layer.weight[0].abs().sum().item() > 0
    layer(cugrad.tensor([0, 4, 4], device=device)).sum().backward()
    assert layer.weight.grad.sum(1).tolist() == [3.0, 0.0, 0.0, 0.0, 0.0]
    table = cugrad.ones(2, 3, device=device)
    frozen = nn.Embedding.from_pretrained(table)
    assert not frozen.weight.requires_grad
    assert frozen(cugrad.tensor(1, device=device)).tolist() == [1.0] * 3


@pytest.mark.parametrize(
    "call, error, message",
    [
        (lambda x: F.gelu(x, "erf"), RuntimeError, "must be either none or tanh"),
        (lambda x: F.glu(x[:, :3]), RuntimeError, "dimension 1 is size 3"),
        (lambda x: F.glu(x[0, 0]), RuntimeError, "0-dimensional"),
        (lambda x: F.softshrink(x, -1.0), RuntimeError, "greater or equal to 0"),
        (lambda x: F.hardtanh(x, 1.0, -1.0), ValueError, "min_val cannot be greater"),
        (lambda x: F.celu(x, 0.0), RuntimeError, "alpha cannot be 0"),
        (lambda x: F.prelu(x, x[0, :3]), RuntimeError, "numbers = 3 and channel size = 6"),
        (lambda x: F.prelu(x, x), RuntimeError, "ndim = 2"),
        (lambda x: F.layer_norm(x, (4,)), RuntimeError, r"\[\*, 4\], but got input of size\[4, 6"),
        (lambda x: F.group_norm(x, 4), RuntimeError, "divisible by num_groups"),
        (lambda x: nn.GroupNorm(4, 6), ValueError, "divisible by num_groups"),
        (lambda x: F.embedding(cugrad.tensor([4]), x), IndexError, "out of range in self"),
        (lambda x: F.embedding(cugrad.tensor([-1]), x), IndexError, "out of range in self"),
        (lambda x: F.embedding(x, x), RuntimeError, "Long, Int"),
        (lambda x: nn.Embedding(3, 2, 3), AssertionError, "Padding_idx"),
    ],
)
def test_bad_input_is_named(call: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        call(cugrad.tensor(draw(4, 6), device="cpu"))


@pytest.mark.parametrize("hard", [True, False])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float64"])
def test_gumbel_softmax_keeps_the_dtype_and_has_no_nan(dtype: str, hard: bool) -> None:
    sample = F.gumbel_softmax(cugrad.zeros(2000, 5, dtype=getattr(cugrad, dtype)), hard=hard)
    assert sample.dtype is getattr(cugrad, dtype)
    assert not bool(sample.isnan().any())
