"""Arguments that are odd, and that PyTorch takes, or refuses: the same comes of them here."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cugrad
from tests.support.pinned_torch import cases

torch = pytest.importorskip("torch", reason="PyTorch, the oracle, is not installed")

CALLS = """
torch.arange(3, dtype=torch.bool)
torch.arange(3, dtype=torch.complex64)
torch.arange(1j)
torch.arange(torch.tensor([3]))
torch.arange(torch.tensor(3))
torch.linspace(0, 1, 3, dtype=torch.bool)
torch.linspace(0, 1000, 3, dtype=torch.int8)
torch.linspace(-5, 5, 3, dtype=torch.uint8)
torch.linspace(0, 1e6, 3, dtype=torch.half)
torch.linspace(0, 2**40, 3, dtype=torch.int32)
torch.linspace(0, float("nan"), 3, dtype=torch.int64)
torch.linspace(0, 2**40, 3)
torch.logspace(0, 1, 3, dtype=torch.bool)
torch.logspace(0, 1000, 3, dtype=torch.int8)
torch.logspace(0, 2, 3, torch.tensor(2.0))
torch.logspace(0, 2, 3, 1j)
torch.full(2, 3)
torch.tensor(2**70)
torch.tensor([1.5, 2**70])
torch.tensor(2**70, dtype=torch.float32)
torch.tensor(None)
torch.tensor([1, None])
torch.tensor([float("nan")], dtype=torch.int64)
torch.tensor(float("inf"), dtype=torch.uint8)
torch.diag(torch.ones(2, 3), 5)
torch.diag(torch.ones(2, 3), -5)
torch.gradient(torch.arange(5.0), spacing=torch.tensor(2.0))[0]
torch.max(torch.arange(6).view(2, 3), torch.tensor(1), True)[1]
F.instance_norm(torch.arange(8.0).view(1, 2, 4), eps=0)
F.avg_pool2d(x, np.int64(2), stride=np.int64(1), padding=np.int64(1))
F.avg_pool2d(x, torch.tensor(2), stride=torch.tensor(1), divisor_override=torch.tensor(3))
F.avg_pool2d(x, 2, stride=[])
F.avg_pool2d(x, 2, stride=())
F.max_pool2d(x, kernel_size=np.int64(2), stride=torch.tensor(2), dilation=np.int64(1))
F.max_pool2d(x, 2, stride=[])
F.lp_pool2d(x, 2, np.int64(2), stride=np.int64(2))
F.conv2d(x, x[..., :2, :2], stride=np.int64(2), padding=torch.tensor(1), dilation=np.int64(1))
F.conv_transpose2d(x, x[..., :2, :2], stride=np.int64(2), output_padding=torch.tensor(1))
F.unfold(x, np.int64(2), stride=np.int64(2))
torch.nn.MaxPool2d(np.int64(2))(x)
torch.nn.AvgPool2d(2, stride=np.int64(1))(x)
F.conv2d(x.expand(1, 2, 4, 4), x[:, :, :2, :2].expand(2, 1, 2, 2), groups=torch.tensor(2))
F.conv_transpose2d(x.expand(1, 2, 4, 4), x.expand(2, 1, 4, 4), groups=torch.tensor(2))
F.group_norm(x.view(1, 4, 4), torch.tensor(2))
F.linear(x[0, 0], b.view(1, 4), torch.ones(4, 1))
F.linear(x[0, 0, 0], w, b.view(1, 4))
F.linear(x[0, 0], w, b.view(1, 4))
F.linear(x[0, 0], w, b.view(4, 1))
F.linear(x[0], w, b.expand(4, 4))
F.linear(x[0], w, b.expand(1, 4, 4))
F.linear(x[0], w, b.expand(2, 1, 4, 4))
F.linear(x[0, 0, :1], w, b.expand(2, 4))
F.linear(x[0, 0], b, b[0])
torch.ones(2, 2).sum(True)
torch.ones(2, 2).sum((True,))
torch.ones(2, 2).mean(dim=True)
torch.ones(2, 2).cumsum(True)
torch.ones(2, 2).argmax(True)
torch.ones(2, 2).softmax(True)
torch.ones(2, 2).unsqueeze(True)
torch.ones(2, 2).squeeze(True)
torch.ones(2, 2).transpose(True, False)
torch.ones(2, 2).permute((True, False))
torch.ones(2, 2).flip((True,))
torch.ones(2, 2).select(True, 0)
torch.ones(2, 2).select(0, True)
torch.ones(2, 2).select(0, (0, 0))
torch.ones(2, 2).narrow(True, 0, 1)
torch.ones(2, 2).split(1, True)
torch.ones(2, 2).chunk(2, True)
torch.ones(2, 2).unbind(True)
torch.ones(2, 2).norm(2, True)
torch.ones(2, 2).logsumexp(True)
torch.ones(2, 2).any(True)
torch.ones(2, 2).amax(True)
torch.ones(2, 2).sort(dim=True)
torch.ones(2, 2).topk(1, True)
torch.ones(2, 2).gather(True, torch.zeros(1, 1).long())
torch.ones(2, 2).index_select(True, torch.tensor([0]))
torch.ones(2, 2).flatten(True)
torch.ones(2, 2).unflatten(True, (1, 2))
torch.ones(2, 2).roll(1, True)
torch.ones(2, 2).expand((True, 2, 2))
torch.ones(2, 2).view((True, 4))
torch.ones(2, 2).reshape((True, 4))
torch.ones(2, 2).movedim(True, 0)
torch.ones(2, 2).tensor_split(2, True)
torch.ones(2, 2).repeat_interleave(2, True)
torch.cat([torch.ones(2)], False)
torch.stack([torch.ones(2)], True)
torch.triu_indices(3, 4, torch.tensor(1))
torch.triu_indices(3.0, 4)
torch.tril_indices(3, 4, 1.0)
torch.histc(x, torch.tensor(4), torch.tensor(0), torch.tensor(8))
torch.histc(x, 4.0)
torch.renorm(w, 2, 0, float("inf"))
torch.renorm(b.view(2, 2), 2, 0, float("inf"))
torch.renorm(b.view(2, 2), 2, 0, 2.0)
torch.renorm(b.view(2, 2) * 0, 2, 0, 2.0)
torch.lerp(x, x, 1j)
torch.lerp(x, x + 1, np.float32(0.5))
torch.zeros(2, requires_grad=None)
torch.full((2,), -0.5, dtype=torch.uint8)
torch.full((2,), -1.0, dtype=torch.uint8)
torch.full((2,), -1, dtype=torch.uint8)
torch.full((2,), -0.5, dtype=torch.int8)
torch.tensor([-0.5], dtype=torch.uint8)
torch.tensor(-1, dtype=torch.uint8)
torch.ones(1, dtype=torch.uint8).fill_(-0.5)
torch.ones(1, dtype=torch.uint8).masked_fill(torch.tensor([True]), -0.5)
torch.ones(1, dtype=torch.uint8).index_fill(0, torch.tensor([0]), -0.5)
F.threshold(torch.ones(1, dtype=torch.uint8), -0.5, 1)
torch.tensor([1, 2]).mvlgamma_(1)
torch.tensor([1, 2]).igamma_(torch.tensor([1.0, 2.0]))
torch.tensor([[1, 2]]).addr_(torch.ones(1), torch.ones(2))
torch.tensor([1, 2]).cumsum_(0, dtype=torch.float32)
torch.tensor([1, 2], dtype=torch.int8).cumsum_(0)
torch.tensor([1, 2]).index_reduce_(0, torch.tensor([0]), torch.tensor([1.0]), "mean")
torch.softmax(2.5, 0, torch.float32)
torch.log_softmax(None, 0, torch.float64)
torch.cumsum([1.0], 0, dtype=torch.float64)
F.mse_loss(x > 3, x)
F.mse_loss(x, x > 3)
F.smooth_l1_loss(x > 3, x)
F.l1_loss(x, x > 3)
torch.zeros(True)
torch.zeros((True, 2))
torch.linspace(0, 1, True)
torch.linspace(0, 1, (0, 0))
torch.unsafe_split(torch.ones(2), (1, 1))
torch.as_strided(torch.ones(2), (1,), (1,), "a")
torch.as_strided(torch.ones(2), (1,), (1,), 1.0)
torch.fft.fft(torch.ones(2, 2), dim=True)
torch.addcmul(2.5, x, x)
torch.addcmul(x, 2.5, x)
torch.addcdiv(x, x, 2.5)
torch.lerp(2.5, x, 0.5)
torch.lerp(x, 2.5, 0.5)
torch.prelu(2.5, b[:1])
torch.prelu(x, None)
torch.signbit(torch.tensor([1j]))
torch.i0(torch.tensor([1j]))
torch.igamma(torch.tensor([1j]), torch.tensor([1j]))
torch.special.ndtri(torch.tensor([1j]))
F.linear(x, torch.tensor(1.0))
F.linear(torch.tensor(1.0), w)
F.batch_norm(x.view(4, 4), torch.zeros(4), torch.ones(1), training=True)
F.batch_norm(x.view(4, 4), torch.zeros(4), torch.ones(5), training=True)
F.batch_norm(x.view(4, 4), torch.zeros(4), torch.ones(1))
"""


def outcome(lib: Any, call: str) -> Any:
    x, b = lib.arange(16.0, requires_grad=True), lib.arange(4.0, requires_grad=True)
    names = {"torch": lib, "F": lib.nn.functional, "np": np, "x": x.view(1, 1, 4, 4), "b": b,
             "w": x.detach().view(4, 4).cos()}  # fmt: skip
    try:
        out = eval(call, names)
    except (TypeError, ValueError, RuntimeError, IndexError) as error:
        kinds = TypeError, ValueError, RuntimeError, IndexError
        return next(k for k in kinds if isinstance(error, k))
    assert type(out.requires_grad) is bool
    grads = []
    if out.requires_grad:
        grads = lib.autograd.grad((out * out).sum(), [x, b], allow_unused=True)
    return str(out.dtype), out.tolist(), *[g.tolist() for g in grads if g is not None]


NEWER = ("F.mse_loss(x > 3, x)", "F.mse_loss(x, x > 3)")  # an older PyTorch refuses them


@pytest.mark.parametrize("call", cases(CALLS.strip().splitlines(), NEWER))
def test_what_comes_of_them(call: str) -> None:
    want, got = outcome(torch, call), outcome(cugrad, call)
    if isinstance(want, type):
        assert got is want
    else:
        assert got[0] == want[0]
        for values, exact in zip(got[1:], want[1:], strict=True):
            np.testing.assert_allclose(values, exact, rtol=1e-5, atol=1e-5)
