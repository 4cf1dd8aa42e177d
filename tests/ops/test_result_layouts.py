"""What ops make of tensors of another memory order can be seen in another shape, as PyTorch's."""

from __future__ import annotations

from typing import Any

import pytest

import cugrad

torch = pytest.importorskip("torch", reason="PyTorch, the oracle, is not installed")

INPUTS = {
    "turned": lambda t, x: x.mT,
    "a copy of turned": lambda t, x: x.mT.clone(),
    "expanded": lambda t, x: x[0].expand(3, 4),
    "stepped": lambda t, x: x[:, ::2].mT,
    "permuted": lambda t, x: x.view(3, 2, 2).permute(2, 0, 1),
}
OPS = {
    "cat": lambda t, x: t.cat([x, x], 0),
    "cat along the last": lambda t, x: t.cat([x, x], -1),
    "stack": lambda t, x: t.stack([x, x], 0),
    "index": lambda t, x: x[t.tensor([1, 0])],
    "index of the last": lambda t, x: x[..., t.tensor([1, 0])],
    "masked_fill": lambda t, x: x.masked_fill(x > 0, 1.0),
    "clone": lambda t, x: x.clone(),
    "double": lambda t, x: x.to(t.float64),
    "roll": lambda t, x: x.roll(1, 0),
    "triu": lambda t, x: x.triu(),
    "softmax": lambda t, x: x.softmax(0),
    "log_softmax": lambda t, x: x.log_softmax(-1),
    "logsigmoid": lambda t, x: t.nn.functional.logsigmoid(x),
    "cumsum": lambda t, x: x.cumsum(0),
    "cumprod": lambda t, x: x.cumprod(0),
    "logcumsumexp": lambda t, x: x.logcumsumexp(0),
    "cummax": lambda t, x: x.cummax(0).values,
    "sum": lambda t, x: x.sum(0),
    "mean": lambda t, x: x.mean(0),
    "prod": lambda t, x: x.prod(0),
    "amax": lambda t, x: x.amax(0),
    "var": lambda t, x: x.var(0),
    "std": lambda t, x: x.std(0),
    "logsumexp": lambda t, x: x.logsumexp(0),
    "rms_norm": lambda t, x: t.nn.functional.rms_norm(x, x.shape[-1:]),
    "batch_norm": lambda t, x: t.nn.functional.batch_norm(x, None, None, training=True),
}


@pytest.mark.parametrize("name", OPS)
def test_a_result_can_be_seen_where_torchs_can(name: str) -> None:
    for made, turn in INPUTS.items():

        def flat(t: Any) -> Any:
            x = t.arange(12.0).view(3, 4) * 0.1 - 0.5
            return OPS[name](t, turn(t, x)).view(-1)  # noqa: B023

        try:
            want = flat(torch)
        except RuntimeError:
            continue
        got = flat(cugrad)
        assert torch.allclose(torch.tensor(got.tolist()), want.float(), atol=1e-5), made


def test_channels_last_stays() -> None:
    x = cugrad.ones(2, 3, 4, 5).permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)
    for y in (cugrad.cat([x, x]), cugrad.nn.functional.batch_norm(x, None, None, training=True)):
        assert y.stride()[1] == 1


def test_a_view_of_no_memory() -> None:
    x = cugrad.zeros((2, 0), dtype=cugrad.complex128, requires_grad=True)
    y = cugrad.view_as_real(x.unflatten(-2, (1, -1)).unbind(1)[1])
    y.sum().backward()
    assert y.shape == (1, 0, 2) and x.grad.shape == (2, 0)
    assert cugrad.zeros(2, 0).broadcast_to((2, 2, 0)).diagonal(1).shape == (0, 1)
