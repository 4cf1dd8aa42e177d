"""A recurrent layer in one direction, step by step with tensor functions: its graph is its steps.

It is the definition of what `scans.py` computes. It serves forward mode, the transforms of
torch.func, and derivatives of derivatives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...autograd.recording.record import recorded
from ...functions.shapes.copies import cat
from ...tensor import Tensor
from ..functional.linear import linear
from .scans import Operands, Span

__all__ = ["STEPS", "by_steps"]

States = tuple[Tensor, ...]


def _rnn(activation: Callable[[Tensor], Tensor]) -> Callable[..., States]:
    def step(x: Tensor, states: States, a: Operands) -> States:
        return (activation(x + linear(states[0], a.w_hh, a.b_hh)),)

    return step


def _lstm(x: Tensor, states: States, a: Operands) -> States:
    h, c = states
    i, f, g, o = (x + linear(h, a.w_hh, a.b_hh)).chunk(4, 1)
    c = recorded.sigmoid(f) * c + recorded.sigmoid(i) * recorded.tanh(g)
    h = recorded.sigmoid(o) * recorded.tanh(c)
    return (h if a.w_hr is None else linear(h, a.w_hr)), c


def _gru(x: Tensor, states: States, a: Operands) -> States:
    (h,) = states
    x_r, x_z, x_n = x.chunk(3, 1)
    h_r, h_z, h_n = linear(h, a.w_hh, a.b_hh).chunk(3, 1)
    new = recorded.tanh(x_n + recorded.sigmoid(x_r + h_r) * h_n)
    return (new + recorded.sigmoid(x_z + h_z) * (h - new),)


STEPS: dict[str, Callable[..., States]] = {
    "RNN_TANH": _rnn(recorded.tanh), "RNN_RELU": _rnn(recorded.relu), "LSTM": _lstm, "GRU": _gru,
}  # fmt: skip


def by_steps(mode: str, a: Operands, spans: Sequence[Span]) -> tuple[Tensor, ...]:
    """The outputs, and the last states."""
    step: Any = STEPS[mode]
    inputs = linear(a.x, a.w_ih, a.b_ih)
    states: States = (a.h,) if a.c is None else (a.h, a.c)
    outputs = {}
    for start, count in spans:
        now = step(inputs[start : start + count], tuple([s[:count] for s in states]), a)
        outputs[start] = now[0]
        if count == len(states[0]):
            states = now
        else:  # the other sequences have ended, or have not begun
            pairs = zip(now, states, strict=True)
            states = tuple([cat([new, old[count:]]) for new, old in pairs])
    return (cat([outputs[start] for start in sorted(outputs)]), *states)
