"""A recurrent layer in one direction over arrays: its steps in time forward, and backward.

The rows of an input lie step after step, as in a PackedSequence. A span is where the rows of a step
begin, and how many there are: those of the first so many sequences. Spans come in the order in
which the layer visits them. Numbers that do not depend on the step before are computed for all
steps at once, so that a step is one product and a few functions.

What a step computes element for element is a function of its own below, for which a device may have
a kernel: a method of `xp` of its name, which answers False for what it does not take.

A sigmoid is computed as (tanh(x / 2) + 1) / 2: then one tanh serves all gates, and nothing
overflows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

__all__ = ["SCANS", "Operands", "Scan", "Span"]

Array = Any  # of some backend, None where there is none
Span = tuple[int, int]


class Operands(NamedTuple):
    """What a layer computes with; gates stand below one another in the weights, as in PyTorch."""

    x: Array  # (rows, input_size)
    h: Array  # (sequences, hidden_size or proj_size), before the first step
    c: Array  # (sequences, hidden_size); only of an LSTM
    w_ih: Array
    w_hh: Array
    b_ih: Array
    b_hh: Array
    w_hr: Array = None  # (proj_size, hidden_size)


class Scan:
    """One kind of layer. `forward` answers all outputs, the last states, and what it keeps."""

    gates = 1

    def forward(self, xp: Any, a: Operands, spans: Sequence[Span]) -> tuple[Any, ...]:
        raise NotImplementedError

    def backward(
        self, xp: Any, a: Operands, spans: Sequence[Span], kept: tuple[Any, ...], grads: Any
    ) -> Operands:
        """The gradients of the operands, from those of the outputs and of the last states."""
        raise NotImplementedError


def _all(spans: Sequence[Span], a: Operands) -> bool:
    """Whether each step has a row of each sequence."""
    return all(count == len(a.h) for _, count in spans)


def _before(xp: Any, first: Array, states: Array, spans: Sequence[Span]) -> Array:
    """For each row the state before its step: that of the step before, or the first one."""
    before, size, start = xp.empty_like(states), len(first), spans[0][0]
    if len(states) == size * len(spans):  # all steps have all sequences
        before[start : start + size] = first
        if start == 0:
            before[size:] = states[: len(states) - size]
        else:  # from the last step on
            before[: len(states) - size] = states[size:]
        return before
    now = first.copy()
    for start, count in spans:
        before[start : start + count] = now[:count]
        now[:count] = states[start : start + count]
    return before


def _last(first: Array, states: Array, spans: Sequence[Span]) -> Array:
    """The state of each sequence behind its last step."""
    now = first.copy()
    for start, count in spans:
        now[:count] = states[start : start + count]
    return now


def _inputs(xp: Any, a: Operands, bias: Array) -> Array:
    """What the inputs of all steps add to the gates."""
    gates = xp.matmul(a.x, a.w_ih.T)
    if bias is not None:
        gates += bias
    return gates


def _both(a: Operands) -> Array:
    return None if a.b_ih is None or a.b_hh is None else a.b_ih + a.b_hh


def _weights(xp: Any, a: Operands, d_in: Array, d_hid: Array, before: Array) -> tuple[Array, ...]:
    """The gradients of the input, the weights and the biases from those of the gates."""
    biases: tuple[Array, Array] = (None, None)
    if a.b_ih is not None:
        of_inputs = d_in.sum(0)
        biases = of_inputs, of_inputs.copy() if d_in is d_hid else d_hid.sum(0)
    return (xp.matmul(d_in, a.w_ih), xp.matmul(d_in.T, a.x), xp.matmul(d_hid.T, before), *biases)


def _is_apart(xp: Any) -> bool:
    """Whether the gates of all rows lie one behind the other, and not side by side: as on a host.

    Its functions of one gate go over long runs then. Shapes are the same: (rows, gates, n).
    """
    return bool(xp.sums_by_blas)


def _turned(xp: Any, weight: Array, gates: int) -> Array:
    """A weight such that `_gates` makes the gates of inputs; a matrix for each that lies apart."""
    if not _is_apart(xp):
        return xp.ascontiguousarray(weight.T)
    size, width = weight.shape
    return xp.ascontiguousarray(xp.swapaxes(weight.reshape(gates, size // gates, width), 1, 2))


def _gates(xp: Any, x: Array, turned: Array, gates: int) -> Array:
    """(rows, gates, hidden_size) of rows of inputs, or of states."""
    product = xp.matmul(x, turned)
    if product.ndim == 3:
        return product.swapaxes(0, 1)
    return product.reshape(len(x), gates, product.shape[1] // gates)


def _by_kernel(xp: Any, name: str, *args: Any) -> bool:
    kernel = getattr(xp, name)
    return kernel is not None and bool(kernel(*args))


class Rnn(Scan):
    """h' = f(W x + U h + b), with f = tanh or relu."""

    def __init__(self, relu: bool) -> None:
        self.relu = relu

    def forward(self, xp: Any, a: Operands, spans: Sequence[Span]) -> tuple[Any, ...]:
        out = _inputs(xp, a, _both(a))
        w, whole = xp.ascontiguousarray(a.w_hh.T), _all(spans, a)
        h = a.h if whole else a.h.copy()
        for start, count in spans:
            now = out[start : start + count]
            now += xp.matmul(h[:count], w)
            if self.relu:
                xp.maximum(now, 0, out=now)
            else:
                xp.tanh(now, out=now)
            if whole:
                h = now
            else:
                h[:count] = now
        return out, (h.copy() if whole else h,), ()

    def backward(
        self, xp: Any, a: Operands, spans: Sequence[Span], kept: tuple[Any, ...], grads: Any
    ) -> Operands:
        (out,), (g, gh) = kept, grads
        d = (out > 0).astype(out.dtype) if self.relu else 1 - out * out
        dh = gh.copy()
        for start, count in reversed(spans):
            at = slice(start, start + count)
            now = dh[:count]
            now += g[at]
            d[at] *= now
            dh[:count] = xp.matmul(d[at], a.w_hh)
        dx, dw_ih, dw_hh, db_ih, db_hh = _weights(xp, a, d, d, _before(xp, a.h, out, spans))
        return Operands(dx, dh, None, dw_ih, dw_hh, db_ih, db_hh)


class Lstm(Scan):
    """i, f, g, o = σ, σ, tanh, σ of W x + U h + b; c' = f c + i g; h' = o tanh(c'), projected."""

    gates = 4

    def forward(self, xp: Any, a: Operands, spans: Sequence[Span]) -> tuple[Any, ...]:
        n, halved = a.c.shape[1], xp.lstm_step is None
        if halved:
            gates, w = self._halved(xp, a)
            b_ih = b_hh = None
        else:
            gates, w, b_ih, b_hh = _gates(xp, a.x, a.w_ih.T, 4), a.w_hh.T, a.b_ih, a.b_hh
        cells = xp.empty((len(gates), n), gates.dtype)
        out = xp.empty((len(gates), a.h.shape[1]), gates.dtype)
        whole = _all(spans, a)
        h, c = (a.h, a.c) if whole else (a.h.copy(), a.c.copy())
        for start, count in spans:
            at = slice(start, start + count)
            gate, cell = gates[at], cells[at]
            shown = out[at] if a.w_hr is None else xp.empty_like(cell)
            add = _gates(xp, h[:count], w, 4)
            lstm_step(xp, gate, add, b_ih, b_hh, c[:count], cell, shown, halved)
            if a.w_hr is not None:
                out[at] = xp.matmul(shown, a.w_hr.T)
            if whole:
                h, c = out[at], cell
            else:
                h[:count], c[:count] = out[at], cell
        return out, ((h.copy(), c.copy()) if whole else (h, c)), (gates, cells)

    def _halved(self, xp: Any, a: Operands) -> tuple[Array, Array]:
        """What inputs and biases add to the gates, and the weight of states, turned: the half of
        it for gates that are sigmoids.
        """
        n, bias = a.c.shape[1], _both(a)
        half = xp.full((4 * n, 1), 0.5, a.x.dtype)
        half[2 * n : 3 * n] = 1
        gates = _gates(xp, a.x, _turned(xp, a.w_ih * half, 4), 4)
        if bias is not None:
            gates += xp.reshape(bias * half[:, 0], (4, n))
        return gates, _turned(xp, a.w_hh * half, 4)

    def backward(
        self, xp: Any, a: Operands, spans: Sequence[Span], kept: tuple[Any, ...], grads: Any
    ) -> Operands:
        (out, gates, cells), (gy, gh, gc) = kept, grads
        rows, n = cells.shape
        d = xp.empty_like(gates)  # first the slopes, then the gradients of the gates
        into_cell, hidden = xp.empty_like(cells), xp.empty_like(cells)
        lstm_slopes(xp, gates, cells, _before(xp, a.c, cells, spans), d, into_cell, hidden)
        projected = xp.empty_like(out) if a.w_hr is not None else None
        apart, w = _is_apart(xp), a.w_hh.reshape(4, n, a.w_hh.shape[1])
        dh, dc = gh.copy(), gc.copy()
        for start, count in reversed(spans):
            at = slice(start, start + count)
            now, slopes = dh[:count], gy[at]
            if projected is not None:
                projected[at] = now + slopes
                now, slopes = xp.matmul(projected[at], a.w_hr), None
            lstm_back(xp, d[at], dc[:count], now, slopes, into_cell[at], gates[at])
            if apart:
                slopes, *others = xp.matmul(d[at].swapaxes(0, 1), w)
                for other in others:
                    slopes += other
            else:
                slopes = xp.matmul(d[at].reshape(count, 4 * n), a.w_hh)
            if count == len(dh):
                dh = slopes
            else:
                dh[:count] = slopes
        flat = d.reshape(rows, 4 * n)
        dx, dw_ih, dw_hh, db_ih, db_hh = _weights(xp, a, flat, flat, _before(xp, a.h, out, spans))
        dw_hr = None if projected is None else xp.matmul(projected.T, hidden)
        return Operands(dx, dh, dc, dw_ih, dw_hh, db_ih, db_hh, dw_hr)


def lstm_step(
    xp: Any, gate: Array, add: Array, b_ih: Array, b_hh: Array, c: Array, cell: Array,
    shown: Array, halved: bool = False,
) -> None:  # fmt: skip
    """Of one step: `gate` becomes the gates of what is in it, of `add` and of biases, `cell` the
    new state of c, and `shown` what the cell shows; all rows, four gates for each. `halved`: for
    sigmoids there is half of all that.
    """
    if not halved and _by_kernel(xp, "lstm_step", gate, add, b_ih, b_hh, c, cell, shown):
        return
    gate += add
    gate = gate.reshape(len(c), 4, c.shape[1])
    for bias in (b_ih, b_hh):
        if bias is not None:
            gate += bias.reshape(gate.shape[1:])
    if not halved:
        gate[:, :2] *= 0.5
        gate[:, 3] *= 0.5
    xp.tanh(gate, out=gate)
    out = gate[:, 3]
    for bent in (gate[:, :2], out):
        bent += 1
        bent *= 0.5
    xp.multiply(gate[:, 1], c, out=cell)
    cell += gate[:, 0] * gate[:, 2]
    xp.multiply(out, xp.tanh(cell), out=shown)


def lstm_slopes(
    xp: Any, gates: Array, cells: Array, before: Array, d: Array, into_cell: Array, hidden: Array
) -> None:
    """Of all steps: d becomes the slopes of the gates, `into_cell` that of what the cell shows, in
    the cell, and `hidden` what it shows; `before` are the cells of the step before.
    """
    if _by_kernel(xp, "lstm_slopes", gates, cells, before, d, into_cell, hidden):
        return
    gates, bent = gates.reshape(d.shape), xp.tanh(cells)
    i, f, g, o = xp.swapaxes(gates, 0, 1)
    xp.multiply(o, bent, out=hidden)
    xp.subtract(1, gates, out=d)
    d[:, 0] *= i * g
    d[:, 1] *= f
    d[:, 1] *= before
    d[:, 2] *= (1 + g) * i
    d[:, 3] *= hidden
    xp.subtract(o, hidden * bent, out=into_cell)


def lstm_back(
    xp: Any, d: Array, cell: Array, now: Array, slopes: Array, into_cell: Array, gate: Array
) -> None:
    """Of one step: the slopes d, (rows, 4, n), become the gradients of the gates, from that of what
    the cell shows, `now` and `slopes` together, and of the cell, which becomes that of the cell
    before.
    """
    if _by_kernel(xp, "lstm_back", d, cell, now, slopes, into_cell, gate):
        return
    if slopes is not None:
        now += slopes
    cell += now * into_cell
    d[:, :3] *= cell[:, None]
    d[:, 3] *= now
    cell *= gate.reshape(d.shape)[:, 1]


class Gru(Scan):
    """r, z = σ of W x + b + U h + d; n = tanh(Wₙ x + bₙ + r (Uₙ h + dₙ)); h' = n + z (h - n)."""

    gates = 3

    def forward(self, xp: Any, a: Operands, spans: Sequence[Span]) -> tuple[Any, ...]:
        n, halved = a.h.shape[1], xp.gru_step is None
        if halved:
            gates, w = self._halved(xp, a)
            b_ih, b_hh = None, None if a.b_hh is None else a.b_hh[2 * n :]
        else:
            gates, w, b_ih, b_hh = _inputs(xp, a, None), a.w_hh.T, a.b_ih, a.b_hh
        turned = xp.empty((len(gates), n), gates.dtype)  # Uₙ h + dₙ
        out, whole = xp.empty_like(turned), _all(spans, a)
        h = a.h if whole else a.h.copy()
        for start, count in spans:
            at = slice(start, start + count)
            new, add = out[at], xp.matmul(h[:count], w)
            gru_step(xp, gates[at], add, b_ih, b_hh, turned[at], h[:count], new, halved)
            if whole:
                h = new
            else:
                h[:count] = new
        return out, (h.copy() if whole else h,), (gates, turned)

    def _halved(self, xp: Any, a: Operands) -> tuple[Array, Array]:
        """What inputs and biases add to the gates, and the weight of states, turned: the half of
        it for gates that are sigmoids.
        """
        n, w = a.h.shape[1], xp.array(a.w_hh.T, order="C")
        gates = _inputs(xp, a, a.b_ih)
        if a.b_hh is not None:
            gates[:, : 2 * n] += a.b_hh[: 2 * n]
        gates[:, : 2 * n] *= 0.5
        w[:, : 2 * n] *= 0.5
        return gates, w

    def backward(
        self, xp: Any, a: Operands, spans: Sequence[Span], kept: tuple[Any, ...], grads: Any
    ) -> Operands:
        (out, gates, turned), (gy, gh) = kept, grads
        rows, n = out.shape
        before, whole = _before(xp, a.h, out, spans), _all(spans, a)
        d = xp.empty((rows, 3, n), gates.dtype)  # first the slopes, then the gradients of the gates
        into_new = xp.empty_like(turned)
        gru_slopes(xp, gates, turned, before, d, into_new)
        flat = d.reshape(rows, 3 * n)
        dh, through = gh.copy(), None
        for start, count in reversed(spans):
            at = slice(start, start + count)
            now = dh[:count]
            gru_back(xp, d[at], into_new[at], now, through, gy[at], gates[at])
            through = xp.matmul(flat[at], a.w_hh)
            if not whole:
                now += through
                through = None
        if through is not None:
            dh += through
        inner = flat.copy()
        inner[:, 2 * n :] = into_new
        dx, dw_ih, dw_hh, db_ih, db_hh = _weights(xp, a, inner, flat, before)
        return Operands(dx, dh, None, dw_ih, dw_hh, db_ih, db_hh)


def gru_step(
    xp: Any, gate: Array, add: Array, b_ih: Array, b_hh: Array, turned: Array, h: Array,
    new: Array, halved: bool = False,
) -> None:  # fmt: skip
    """Of one step: `gate` becomes the gates of what is in it, of `add` and of biases, `turned` what
    of the last state goes through the gate r, and `new` the state after h. `halved`: for sigmoids
    there is half of all that, with their biases, and b_hh is that of the last gate.
    """
    if not halved and _by_kernel(xp, "gru_step", gate, add, b_ih, b_hh, turned, h, new):
        return
    n = h.shape[1]
    two, last, bias = gate[:, : 2 * n], gate[:, 2 * n :], b_hh
    if b_ih is not None:
        gate += b_ih
    two += add[:, : 2 * n]
    if not halved:
        if b_hh is not None:
            two += b_hh[: 2 * n]
            bias = b_hh[2 * n :]
        two *= 0.5
    xp.tanh(two, out=two)
    two += 1
    two *= 0.5
    turned[:] = add[:, 2 * n :]
    if bias is not None:
        turned += bias
    last += gate[:, :n] * turned
    xp.tanh(last, out=last)
    xp.subtract(h, last, out=new)
    new *= gate[:, n : 2 * n]
    new += last


def gru_slopes(
    xp: Any, gates: Array, turned: Array, before: Array, d: Array, into_new: Array
) -> None:
    """Of all steps: d, (rows, 3, n), and `into_new` become slopes of the gates; `before` are the
    states of the step before.
    """
    if _by_kernel(xp, "gru_slopes", gates, turned, before, d, into_new):
        return
    n = turned.shape[1]
    r, z, new = (gates[:, k * n : (k + 1) * n] for k in range(3))
    xp.multiply(1 - z, 1 - new * new, out=into_new)
    d[:, 0] = into_new * turned * r * (1 - r)
    d[:, 1] = (before - new) * z * (1 - z)
    d[:, 2] = into_new * r


def gru_back(
    xp: Any, d: Array, into_new: Array, now: Array, through: Array, slopes: Array, gate: Array
) -> None:
    """Of one step: the slopes d, (rows, 3, n), and `into_new` become gradients, from that of the
    state, `now`, `through` and `slopes` together, of which `now` becomes the part that the gate z
    lets by.
    """
    if _by_kernel(xp, "gru_back", d, into_new, now, through, slopes, gate):
        return
    n = now.shape[1]
    if through is not None:
        now += through
    now += slopes
    d *= now[:, None]
    into_new *= now
    now *= gate[:, n : 2 * n]


SCANS: dict[str, Scan] = {
    "RNN_TANH": Rnn(False), "RNN_RELU": Rnn(True), "LSTM": Lstm(), "GRU": Gru(),
}  # fmt: skip
