"""Recurrent layers, one on another and in both directions: torch.lstm, torch.gru and their like."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ... import dtypes
from ...autograd.autocast import autocasts
from ...autograd.mode import state
from ...functions.calls.arguments import as_own
from ...functions.shapes.copies import cat, stack
from ...tensor import Tensor
from ..functional.dropout import dropout as drop
from .layer import recurrent_layer
from .scans import SCANS, Operands, Span

__all__ = [
    "gru", "gru_cell", "lstm", "lstm_cell", "rnn_relu", "rnn_relu_cell", "rnn_tanh",
    "rnn_tanh_cell",
]  # fmt: skip


def _spans(sizes: Sequence[int], reverse: bool) -> list[Span]:
    spans, at = [], 0
    for size in sizes:
        spans.append((at, size))
        at += size
    return spans[::-1] if reverse else spans


def _stacked(
    mode: str, rows: Tensor, sizes: Sequence[int], states: Sequence[Tensor],
    params: Sequence[Tensor], has_biases: bool, num_layers: int, dropout: float, train: bool,
    bidirectional: bool,
) -> tuple[Tensor, ...]:  # fmt: skip
    """The outputs for packed rows, and the last states of all layers and directions."""
    directions = 2 if bidirectional else 1
    each = len(params) // (num_layers * directions)
    last: list[tuple[Tensor, ...]] = []
    for layer in range(num_layers):
        outputs = []
        for direction in range(directions):
            k = layer * directions + direction
            weights = list(params[k * each : (k + 1) * each])
            if not has_biases:
                weights[2:2] = [None, None]  # type: ignore[list-item]
            first = [s[k] for s in states] + [None] * (2 - len(states))
            spans = _spans(sizes, direction == 1)
            out, *ends = recurrent_layer(mode, Operands(rows, *first, *weights), spans)
            outputs.append(out)
            last.append(tuple(ends))
        rows = outputs[0] if directions == 1 else cat(outputs, 1)
        if dropout and train and layer < num_layers - 1:
            rows = drop(rows, dropout, True)
    if len(last) == 1:
        return (rows, *[end.unsqueeze(0) for end in last[0]])
    return (rows, *[stack(ends) for ends in zip(*last, strict=True)])


def _check_dtypes(tensors: Sequence[Tensor]) -> None:
    for t in () if state.autocast is not None else tensors:
        if t.dtype is not tensors[0].dtype:
            raise RuntimeError(
                f"mat1 and mat2 must have the same dtype, but got {tensors[0].dtype} and "
                f"{t.dtype}: input, states and weights of a recurrent layer want one dtype"
            )


def _run(mode: str, args: Sequence[Any], named: dict[str, Any]) -> tuple[Tensor, ...]:
    """Both of PyTorch's forms: `(input, hx, params, ..., batch_first)` and, of a PackedSequence's
    parts, `(data, batch_sizes, hx, params, ...)`.
    """
    second = args[1] if len(args) > 1 else named.get("batch_sizes")
    packed = isinstance(second, Tensor) and second.dtype is dtypes.int64
    names = ["data", "batch_sizes"] if packed else ["input"]
    names += ["hx", "params", "has_biases", "num_layers", "dropout", "train", "bidirectional"]
    names += [] if packed else ["batch_first"]
    named_args = {**dict(zip(names, args, strict=False)), **named}
    if len(args) > len(names) or set(named_args) != set(names):
        raise TypeError(f"want ({', '.join(names)}), got other arguments")
    data: Tensor = named_args.pop(names[0])
    states = named_args.pop("hx")
    states = [states] if isinstance(states, Tensor) else list(states)
    batch_first = named_args.pop("batch_first", False)
    _check_dtypes([data, *states, *named_args["params"]])
    if packed:
        sizes = named_args.pop("batch_sizes").tolist()
        return _own(*_stacked(mode, data, sizes, states, **named_args))
    if batch_first:
        data = data.transpose(0, 1)
    time, batch = data.shape[:2]
    if time == 0:
        raise RuntimeError("Expected sequence length to be larger than 0 in RNN")
    rows = data.reshape(time * batch, data.shape[2])
    out, *last = _stacked(mode, rows, [batch] * time, states, **named_args)
    out = out.unflatten(0, (time, batch))
    return _own(out.transpose(0, 1) if batch_first else out, *last)


def _own(out: Tensor, *last: Tensor) -> tuple[Tensor, ...]:
    """Outputs and last states as tensors that are no views, each with memory of its own."""
    out = as_own(out, ())
    return (out, *[as_own(end, (out,)) for end in last])


def lstm(*args: Any, **named: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Long short-term memory: the outputs of the last layer, and all last states h and c.

    `lstm(input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first)`,
    with `hx` of h and c, or, for the parts of a PackedSequence, `lstm(data, batch_sizes, hx, ...)`
    without `batch_first`. `params` are `nn.LSTM.all_weights`, one behind the other.

    Source: Hochreiter & Schmidhuber 1997, with forget gates, https://doi.org/10.1162/089976600300015015;
    projections of https://arxiv.org/abs/1402.1128.
    """
    if state.autocast is not None and _is_projected_on_host(args, named):
        return _run("LSTM", args, named)  # type: ignore[return-value]
    return _as_one_op(*args, **named)


def _is_projected_on_host(args: Sequence[Any], named: dict[str, Any]) -> bool:
    """Whether autocast treats an LSTM as the ops that it is made of, as PyTorch's does where h is
    smaller than c, on a CPU: then c stays in float32.
    """
    at = 2 if len(args) > 1 and isinstance(args[1], Tensor) else 1
    hx: Any = named.get("hx", args[at] if len(args) > at else ())
    if type(hx) not in (list, tuple) or len(hx) != 2:
        return False
    h, c = hx
    return bool(h.is_cpu and h.shape[-1] != c.shape[-1])


def _lstm(*args: Any, **named: Any) -> tuple[Tensor, Tensor, Tensor]:
    return _run("LSTM", args, named)  # type: ignore[return-value]


_as_one_op = autocasts(_lstm, "lstm")


@autocasts
def gru(*args: Any, **named: Any) -> tuple[Tensor, Tensor]:
    """Gated recurrent units: the outputs of the last layer, and all last states.

    Arguments as of `lstm`, with one tensor as `hx`. Source: https://arxiv.org/abs/1406.1078, with
    the reset gate behind the product, as cuDNN has it.
    """
    return _run("GRU", args, named)  # type: ignore[return-value]


@autocasts
def rnn_tanh(*args: Any, **named: Any) -> tuple[Tensor, Tensor]:
    """h' = tanh(W x + b + U h + d): the outputs of the last layer, and all last states.

    Arguments as of `lstm`, with one tensor as `hx`.
    """
    return _run("RNN_TANH", args, named)  # type: ignore[return-value]


@autocasts
def rnn_relu(*args: Any, **named: Any) -> tuple[Tensor, Tensor]:
    """`rnn_tanh` with relu in the place of tanh."""
    return _run("RNN_RELU", args, named)  # type: ignore[return-value]


def _cell(mode: str, input: Tensor, states: Sequence[Tensor], *weights: Any) -> tuple[Tensor, ...]:
    """The next states of one step."""
    w_ih, w_hh = weights[:2]
    if input.shape[1] != w_ih.shape[1]:
        raise RuntimeError(
            f"input has inconsistent input_size: got {input.shape[1]} expected {w_ih.shape[1]}"
        )
    for k, h in enumerate(states):
        if h.shape[0] != input.shape[0]:
            raise RuntimeError(
                f"Input batch size {input.shape[0]} doesn't match hidden{k} batch size {h.shape[0]}"
            )
        hidden_size = w_hh.shape[0] // SCANS[mode].gates
        if h.shape[1] != hidden_size:
            raise RuntimeError(
                f"hidden{k} has inconsistent hidden_size: got {h.shape[1]}, expected {hidden_size}"
            )
    _check_dtypes([t for t in (input, *states, *weights) if t is not None])
    first = [*states, *[None] * (2 - len(states))]
    a = Operands(input, *first, *weights)
    return recurrent_layer(mode, a, [(0, input.shape[0])])[1:]


@autocasts
def lstm_cell(
    input: Tensor, hx: Sequence[Tensor], w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """One step of `lstm`, for input (N, input_size): the next h and c, (N, hidden_size) each."""
    return _cell("LSTM", input, hx, w_ih, w_hh, b_ih, b_hh)  # type: ignore[return-value]


@autocasts
def gru_cell(
    input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """One step of `gru`, for input (N, input_size): the next state, (N, hidden_size)."""
    return _cell("GRU", input, [hx], w_ih, w_hh, b_ih, b_hh)[0]


@autocasts
def rnn_tanh_cell(
    input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """One step of `rnn_tanh`, for input (N, input_size): the next state, (N, hidden_size)."""
    return _cell("RNN_TANH", input, [hx], w_ih, w_hh, b_ih, b_hh)[0]


@autocasts
def rnn_relu_cell(
    input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """One step of `rnn_relu`, for input (N, input_size): the next state, (N, hidden_size)."""
    return _cell("RNN_RELU", input, [hx], w_ih, w_hh, b_ih, b_hh)[0]
