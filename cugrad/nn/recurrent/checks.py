"""What recurrent layers refuse, in PyTorch's words."""

from __future__ import annotations

import warnings
from numbers import Real
from typing import Any

from ...tensor import Tensor

__all__ = ["GATES", "check_arguments", "check_state_dims"]

GATES = {"LSTM": 4, "GRU": 3, "RNN_TANH": 1, "RNN_RELU": 1}


def check_arguments(rnn: Any) -> None:
    """ValueError and TypeError for arguments of a layer that are out of range, or of no use."""
    p: Any = rnn.dropout
    is_number = isinstance(p, Real) and not isinstance(p, bool)
    if not is_number or not 0 <= p <= 1:
        raise ValueError(
            "dropout should be a number in range [0, 1] representing the probability of an "
            "element being zeroed"
        )
    if p > 0 and rnn.num_layers == 1:
        warnings.warn(
            "dropout option adds dropout after all but last recurrent layer, so non-zero "
            f"dropout expects num_layers greater than 1, but got dropout={p} and num_layers=1",
            stacklevel=4,
        )
    kinds = {"bias": bool, "batch_first": bool, "input_size": int, "hidden_size": int}
    for name, kind in kinds.items():
        value = getattr(rnn, name)
        if not isinstance(value, kind):
            raise TypeError(
                f"{name} should be of type {kind.__name__}, got: {type(value).__name__}"
            )
    for name in ("input_size", "hidden_size", "num_layers"):
        if getattr(rnn, name) <= 0:
            raise ValueError(f"{name} must be greater than zero")
    if rnn.proj_size < 0:
        raise ValueError("proj_size should be a positive integer or zero to disable projections")
    if rnn.proj_size >= rnn.hidden_size:
        raise ValueError("proj_size has to be smaller than hidden_size")
    if rnn.mode not in GATES:
        raise ValueError("Unrecognized RNN mode: " + rnn.mode)


def check_state_dims(mode: str, hx: Any, batched: bool) -> None:
    """RuntimeError unless states have as many dimensions as an input asks for."""
    if hx is None:
        return
    dims = [h.dim() for h in ([hx] if isinstance(hx, Tensor) else hx)]
    if all(n == (3 if batched else 2) for n in dims):
        return
    kind, n = ("batched 3-D", "3-D") if batched else ("unbatched 2-D", "2-D")
    if mode == "LSTM":
        names = ", ".join(f"{n}-D" for n in dims)
        raise RuntimeError(
            f"For {kind} input, hx and cx should also be {n} but got ({names}) tensors"
        )
    raise RuntimeError(f"For {kind} input, hx should also be {n} but got {dims[0]}-D tensor")
