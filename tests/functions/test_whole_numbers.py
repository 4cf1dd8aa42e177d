"""Sizes, dims and windows may be tensors of one whole number, as in PyTorch."""

from __future__ import annotations

from typing import Any

import pytest

import cugrad

CALLS = """
F.interpolate(x, size=t(2, 2))
F.pad(x, t(1, 1, 0, 0))
F.conv2d(x, torch.ones(1, 1, 2, 2), stride=t(1, 1), padding=t(0, 0))
F.max_pool2d(x, t(2, 2))
F.avg_pool2d(x, t(2, 2), t(1, 1))
F.lp_pool2d(x, 2.0, t(2, 2))
F.adaptive_avg_pool2d(x, t(2, 2))
F.adaptive_max_pool2d(x, t(2, 2))
F.unfold(x, t(2, 2))
F.fold(torch.ones(1, 4, 9), t(4, 4), t(2, 2))
F.layer_norm(x, t(4, 4))
F.group_norm(x, n(1))
F.glu(x, n(-1))
F.one_hot(torch.tensor([1, 2]), n(4))
F.pixel_shuffle(torch.ones(1, 4, 2, 2), n(2))
F.affine_grid(torch.ones(1, 2, 3), t(1, 1, 4, 4), align_corners=False)
torch.nn.Upsample(size=tuple(t(2, 2)))(x)
torch.nn.ZeroPad2d(t(1, 1, 1, 1))(x)
torch.zeros(t(2, 3))
torch.zeros(*t(2, 3))
torch.full(t(2, 3), 1.0)
torch.eye(n(3))
torch.arange(n(5))
torch.linspace(0, 1, n(3))
torch.logspace(0, 1, n(3))
torch.hann_window(n(4))
torch.randperm(n(3)).sum()
torch.randint(0, n(1), t(2))
torch.roll(x, t(1, 1), t(2, 3))
torch.roll(x, n(1))
torch.flip(x, t(2, 3))
torch.tile(x, t(1, 2))
torch.cat([x, x], n(1))
torch.stack([x], n(0))
torch.broadcast_to(x, t(2, 1, 4, 4))
torch.fft.fftn(x, dim=t(2, 3))
x.view(t(2, 8))
x.view(*t(2, 8))
x.reshape(t(2, 8))
x.expand(t(3, 1, 4, 4))
x.permute(t(0, 1, 3, 2))
x.repeat(t(1, 1, 2, 2))
x.new_zeros(t(2, 3))
x.as_strided(t(2, 2), t(1, 1))
x.unflatten(2, t(2, 2))
x.flatten(n(1))
x.sum(t(0, 1))
x.sum(n(2))
x.mean(n(-1))
x.amax(n(1))
x.logsumexp(n(3))
x.softmax(n(1))
x.cumsum(n(1))
x.squeeze(t(0, 1))
x.unsqueeze(n(0))
x.movedim(t(0, 1), t(1, 0))
x.transpose(n(2), n(3))
x.select(2, n(1))
x.narrow(n(2), n(1), n(2))
x.unfold(2, n(2), n(1))
x.triu(n(1))
x[:, :, n(1):n(3)]
"""


@pytest.mark.parametrize("call", CALLS.split("\n")[1:-1])
def test_a_tensor_stands_for_its_whole_number(call: str) -> None:
    torch = pytest.importorskip("torch")
    mine, theirs = (outcome(lib, call) for lib in (cugrad, torch))
    assert mine == theirs


def outcome(lib: Any, call: str) -> Any:
    names = {
        "torch": lib, "F": lib.nn.functional, "n": lib.tensor,
        "t": lambda *sizes: [lib.tensor(size) for size in sizes],
        "x": lib.arange(16.0).reshape(1, 1, 4, 4),
    }  # fmt: skip
    try:
        return _rounded(eval(call, names).tolist())
    except Exception as error:
        return type(error).__name__


def _rounded(value: Any) -> Any:
    return [_rounded(v) for v in value] if isinstance(value, list) else f"{value:.3f}"
