"""Where PyTorch wants a number: NumPy's is one, and a tensor without dims and without gradient."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cugrad

torch = pytest.importorskip("torch", reason="PyTorch, the oracle, is not installed")

# x has a gradient, w are whole numbers, m is a matrix of x, v is the number
CALLS = """
torch.add(x, x, alpha=v)
torch.sub(x, x, alpha=v)
torch.rsub(x, x, alpha=v)
torch.add(w, w, alpha=v)
x.clone().add_(x, alpha=v)
torch.addcmul(x, x, x, value=v)
torch.addcmul(w, w, w, value=v)
torch.addcdiv(x, x, x, value=v)
torch.addcdiv(w, w, x, value=v)
x.clone().addcmul_(x, x, value=v)
x.clone().addcdiv_(x, x, value=v)
torch.addmm(m, m, m, alpha=v)
torch.addmm(m, m, m, beta=v)
torch.addr(m, x, x, beta=v)
torch.index_add(x, 0, w, x, alpha=v)
torch.index_add(w, 0, w, w, alpha=v)
torch.full((2,), v)
torch.full_like(x, v)
torch.full_like(w, v)
F.leaky_relu(x, v)
F.elu(x, v)
F.celu(x, v)
F.hardshrink(x, v)
F.softshrink(x, v)
F.threshold(x, v, 3)
F.threshold(x, 1, v)
F.hardtanh(x, -1, v)
F.softplus(x, v)
torch.nan_to_num(x, v)
torch.logit(x / 9, v)
torch.special.logit(x / 9, eps=v)
torch.cdist(m, m, v)
torch.dist(x, x, v)
torch.renorm(m, v, 0, 1)
torch.norm(x, v)
F.huber_loss(x, x * 2, delta=v)
F.smooth_l1_loss(x, x * 2, beta=v)
F.layer_norm(x, (3,), eps=v)
F.pairwise_distance(m, m * 2, p=v)
F.normalize(m, p=v)
torch.pow(x, v)
torch.clamp(x, v)
torch.lerp(x, x * 2, v)
torch.where(x > 1, x, v)
torch.masked_fill(x, x > 1, v)
torch.index_fill(x, 0, w, v)
"""
# These take any tensor, or a word.
OTHERS = "pow", "clamp", "lerp", "where", "masked_fill", "index_fill", "norm"
OTHERS += ("hardtanh", "smooth_l1_loss")  # compare first
NUMBERS: dict[str, Any] = {
    "a tensor": lambda lib: lib.tensor(2.0), "an integer": lambda lib: lib.tensor(2),
    "in double": lambda lib: lib.tensor(1.5, dtype=lib.float64),
    "NumPy's": lambda lib: np.float64(1.5), "NumPy's of 32 bits": lambda lib: np.float32(1.5),
    "NumPy's integer": lambda lib: np.int64(2),
}  # fmt: skip


def outcome(lib: Any, call: str, number: Any) -> Any:
    """What comes of it, with the gradient; or the kind of error."""
    x = lib.tensor([1.0, 2.0, 3.0], requires_grad=True)
    names = {"torch": lib, "F": lib.nn.functional, "x": x, "w": lib.tensor([0, 1, 2]),
             "m": x.expand(3, 3), "v": number(lib)}  # fmt: skip
    try:
        out = eval(call, names)
    except TypeError:
        return "TypeError"
    except RuntimeError as error:
        return str(error)[:40]
    if not out.requires_grad:
        return str(out.dtype), out.tolist()
    (grad,) = lib.autograd.grad(out.sum(), x)
    return [(str(y.dtype), np.asarray(y.tolist())) for y in (out.detach(), grad)]


@pytest.mark.parametrize("kind", NUMBERS)
@pytest.mark.parametrize("call", CALLS.strip().splitlines())
def test_it_counts_as_a_number(call: str, kind: str) -> None:
    want = outcome(torch, call, NUMBERS[kind])
    got = outcome(cugrad, call, NUMBERS[kind])
    if isinstance(want, list):
        for (dtype, values), (wanted, exact) in zip(got, want, strict=True):
            assert dtype == wanted
            np.testing.assert_allclose(values, exact, rtol=3e-6, atol=1e-7)
    else:
        assert got == want


@pytest.mark.parametrize("number", [
    lambda lib: lib.tensor([2.0]), lambda lib: lib.tensor([2.0, 3.0]),
    lambda lib: lib.tensor(2.0, requires_grad=True), lambda lib: "a", lambda lib: [2.0],
])  # fmt: skip
@pytest.mark.parametrize("call", [c for c in CALLS.strip().splitlines()
                                  if not c.partition(".")[2].startswith(OTHERS)])  # fmt: skip
def test_no_other_tensor_is_one(call: str, number: Any) -> None:
    assert outcome(torch, call, number) == outcome(cugrad, call, number) == "TypeError"


@pytest.mark.parametrize("call", ["torch.masked_fill(w, w > 1, v)", "torch.index_fill(w, 0, w, v)"])
def test_one_that_the_dtype_cannot_hold(call: str) -> None:
    for number in (lambda lib: lib.tensor(1e30), lambda lib: lib.tensor(float("nan"))):
        want = outcome(torch, call, number)
        assert "without overflow" in str(want) or "cannot be converted" in want
        assert outcome(cugrad, call, number) == want
