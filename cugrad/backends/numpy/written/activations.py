"""Functions of float32, most of them smooth: chains, whose steps are written where results lie."""

from __future__ import annotations

from math import log, pi, sqrt
from typing import Any

import numpy as np

from ..compiled.chains import chain
from ..erf import odds_against
from ..exponential import SCALE, powers
from .registry import backward, forward, in_blocks, slope_in_blocks

Array = np.ndarray[Any, Any]
SLOPE, CUBE = 2 * sqrt(2 / pi), 0.044715  # of gelu by tanh


@chain()
def _sigmoid_into(x: Array, out: Array) -> None:
    np.multiply(x, -SCALE, out)
    powers(out, out)
    out += 1
    np.divide(1, out, out)


@forward("sigmoid")
def _sigmoid(x: Array) -> Array | None:
    return in_blocks(_sigmoid_into, 0, x)


@chain()
def _rsqrt_into(x: Array, out: Array) -> None:
    np.sqrt(x, out)
    np.divide(1, out, out)


@forward("rsqrt")
def _rsqrt(x: Array) -> Array | None:
    return in_blocks(_rsqrt_into, 0, x)


@chain()
def _silu_into(x: Array, out: Array) -> None:
    np.multiply(x, -SCALE, out)
    powers(out, out)
    out += 1
    np.divide(x, out, out)


@forward("silu")
def _silu(x: Array) -> Array | None:
    return in_blocks(_silu_into, 0, x)


@chain(rooms=1)
def _silu_slope_into(g: Array, x: Array, out: Array, room: Array) -> None:
    np.multiply(x, -SCALE, room)
    powers(room, room)
    room += 1
    np.divide(1, room, room)
    np.multiply(g, room, out)
    np.subtract(1, room, room)  # d x σ(x) = σ(x) (1 + x (1 - σ(x)))
    room *= x
    room += 1
    out *= room


@backward("silu")
def _silu_slope(g: Array, saved: Any, params: Any, inputs: Any) -> Any:
    return slope_in_blocks(_silu_slope_into, 1, g, saved["self"])


@chain(rooms=2)
def _gelu_into(x: Array, out: Array, square: Array, room: Array) -> None:
    np.square(x, square)
    odds_against(x, square, room, out)
    out += 1
    np.divide(x, out, out)


@chain()
def _gelu_by_tanh(x: Array, out: Array) -> None:
    np.square(x, out)
    _odds_by_tanh(out, x, out)
    np.divide(x, out, out)


@forward("gelu")
def _gelu(x: Array, approximate: str = "none") -> Array | None:
    if approximate == "tanh":
        return in_blocks(_gelu_by_tanh, 0, x)
    return in_blocks(_gelu_into, 2, x)


def _odds_by_tanh(square: Array, x: Array, out: Array) -> None:
    """1 / σ(2u), which is 2 / (1 + tanh u), with u = √(2/π) (x + 0.044715 x³)."""
    np.multiply(square, -CUBE * SLOPE * SCALE, out)
    out += -SLOPE * SCALE
    out *= x
    powers(out, out)
    out += 1


@chain(rooms=3)
def _gelu_slope_into(
    g: Array, x: Array, out: Array, square: Array, room: Array, density: Array
) -> None:
    np.square(x, square)
    np.multiply(square, -0.5 * SCALE, density)
    odds_against(x, square, room, room)
    room += 1
    np.divide(1, room, room)
    density += -0.5 * log(2 * pi) * SCALE
    powers(density, out)
    out *= x
    out += room  # d x Φ(x) = Φ(x) + x φ(x)
    out *= g


@backward("gelu")
def _gelu_slope(g: Array, saved: Any, params: Any, inputs: Any) -> Any:
    by_tanh = params["approximate"] == "tanh"
    how, rooms = (_slope_by_tanh, 2) if by_tanh else (_gelu_slope_into, 3)
    return slope_in_blocks(how, rooms, g, saved["self"])


@chain(rooms=2)
def _slope_by_tanh(g: Array, x: Array, out: Array, bend: Array, sigmoid: Array) -> None:
    np.square(x, bend)
    _odds_by_tanh(bend, x, sigmoid)
    np.divide(1, sigmoid, sigmoid)
    bend *= 3 * CUBE * SLOPE
    bend += SLOPE
    np.subtract(1, sigmoid, out)  # d x σ(v) = σ(v) + σ(v) (1 - σ(v)) x v', with v = 2u
    out *= sigmoid
    out *= x  # which is 0 before it meets what may be infinite
    out *= bend
    out += sigmoid
    out *= g


@chain(rooms=1)
def _mish_into(x: Array, out: Array, above: Array) -> None:
    np.clip(x, -np.inf, 20, out)
    out *= SCALE
    powers(out, out)
    np.add(out, 2, above)
    out *= above  # tanh(log(1 + e)) = n / (n + 2), with n = e (e + 2)
    np.add(out, 2, above)
    out /= above
    out *= x


@forward("mish")
def _mish(x: Array) -> Array | None:
    return in_blocks(_mish_into, 1, x)


@chain(rooms=2)
def _mish_slope_into(g: Array, x: Array, out: Array, room: Array, bent: Array) -> None:
    below = np.clip(x, -np.inf, 20, room)  # above it the slope is 1
    np.multiply(below, SCALE, out)
    powers(out, out)
    np.add(out, 1, bent)
    bent *= out
    out += bent
    bent *= below
    bent *= 4
    np.add(out, 2, room)
    bent /= room
    bent += out
    bent /= room  # (n + 4 x e (1 + e) / (n + 2)) / (n + 2)
    np.multiply(bent, g, out)


@backward("mish")
def _mish_slope(g: Array, saved: Any, params: Any, inputs: Any) -> Any:
    return slope_in_blocks(_mish_slope_into, 2, g, saved["self"])


@forward("leaky_relu")
def _leaky_relu(x: Array, negative_slope: float = 0.01) -> Array | None:
    def block(x: Array, out: Array) -> None:
        np.multiply(x, negative_slope, out)
        np.maximum(x, out, out=out)

    return in_blocks(block, 0, x) if 0 < negative_slope <= 1 else None


@backward("leaky_relu")
def _leaky_relu_slope(g: Array, saved: Any, params: Any, inputs: Any) -> Any:
    def block(g: Array, result: Array, out: Array, room: Array) -> None:
        is_above = room.view(bool)[: out.size]
        np.greater(result, 0, is_above)
        np.copyto(out, is_above)
        np.clip(out, params["negative_slope"], 1, out)
        out *= g

    steep = not 0 <= params["negative_slope"] <= 1
    return None if steep else slope_in_blocks(block, 1, g, saved["result"])


@forward("reciprocal")
def _reciprocal(x: Array) -> Array | None:
    return in_blocks(lambda x, out: np.divide(1, x, out), 0, x)  # half the time of NumPy's
