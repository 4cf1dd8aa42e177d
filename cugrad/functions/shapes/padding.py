"""Borders around tensors as PyTorch spells them."""

from __future__ import annotations

from typing import Any

from ...autograd.autocast import autocasts
from ...autograd.recording.record import recorded
from ...dtypes import check_fits
from ...ops import dims as D
from ...tensor import Tensor
from ..calls.arguments import array_of

__all__ = ["constant_pad_nd"]


def _pairs(input: Tensor, pad: Any) -> tuple[tuple[int, int], ...]:
    """(before, after) for each dim, from the numbers that begin with the last dim."""
    shape = array_of(input, "pad").shape
    flat = D.int_tuple(pad, "pad")
    if len(flat) % 2:
        raise RuntimeError(f"Padding length must be divisible by 2, got {len(flat)} (pad)")
    if len(flat) > 2 * len(shape):
        raise RuntimeError(
            "Padding length should be less than or equal to two times the input dimension but got "
            f"padding length {len(flat)} and input of dimension {len(shape)}"
        )
    pairs = list(zip(flat[::2], flat[1::2]))[::-1]
    pairs = [(0, 0)] * (len(shape) - len(pairs)) + pairs
    for d, ((a, b), n) in enumerate(zip(pairs, shape)):
        if n + a + b < 0:
            raise RuntimeError(
                f"The input size {n}, plus negative padding {a} and {b}, resulted in a negative "
                f"output size, which is invalid. Check dimension {d} of your input."
            )
    return tuple(pairs)


def constant_pad_nd(input: Tensor, pad: Any, value: Any = 0) -> Tensor:
    """A copy with a border of one value, or cut where `pad` is negative.

    `pad` is (before, after) of the last dim, then of the one before it, and so on.

    >>> import cugrad as torch
    >>> torch.constant_pad_nd(torch.tensor([1, 2]), (1, 1), 7)
    tensor([7, 1, 2, 7])
    """
    pairs = _pairs(input, pad)
    for d, ((a, b), n) in enumerate(zip(pairs, input.shape)):
        if n + min(a, 0) + min(b, 0) < 0:
            raise RuntimeError(
                f"constant_pad_nd: negative padding {a} and {b} cuts away more than there is: "
                f"dimension {d} of the input has {n} elements"
            )
    check_fits(value, input.dtype)
    if input._array.dtype.kind != "c" and isinstance(value, complex):
        value = value.real
    return recorded.constant_pad_nd(input, pairs, value)


def pad(input: Tensor, pad: Any, mode: str = "constant", value: float | None = None) -> Tensor:
    """A copy with a border: a constant, or made of the tensor itself.

    `mode` is "constant", "reflect" (without repeating the edge), "replicate" (of the edge) or
    "circular"; the last three take one to three dims. `pad` begins with the last dim.

    >>> import cugrad as torch
    >>> torch.nn.functional.pad(torch.arange(3).reshape(1, 3), (2, 1), mode="reflect")
    tensor([[2, 1, 0, 1, 2, 1]])
    """
    if mode == "constant":
        return constant_pad_nd(input, pad, 0 if value is None else value)
    if value is not None and value != 0:
        raise RuntimeError(f'Padding mode "{mode}" doesn\'t take in value argument')
    pairs = _pairs(input, pad)
    if mode not in ("reflect", "replicate", "circular"):
        raise NotImplementedError(f"Unrecognised padding mode {mode}")
    shape, count = input._array.shape, len(D.int_tuple(pad)) // 2
    if count not in (1, 2, 3) or len(shape) not in (count + 1, count + 2):
        raise NotImplementedError(
            "Only 2D, 3D, 4D, 5D padding with non-constant padding are supported for now: got an "
            f"input of {len(shape)} dims and padding for {count}"
        )
    of_batch = len(shape) == count + 2
    for d, ((a, b), n) in enumerate(zip(pairs, shape)):
        if (d or not of_batch) and not n and mode != "circular":
            raise RuntimeError(
                f"pad: expected input with no empty dims other than the batch, got {list(shape)}"
            )
        if mode == "circular" and max(a, b) > n:
            raise RuntimeError(
                f"Padding value causes wrapping around more than once: ({a}, {b}) at dimension {d} "
                f"of input {list(shape)}"
            )
        if mode == "reflect" and max(a, b) >= n and (a, b) != (0, 0):
            raise RuntimeError(
                "Argument #4: Padding size should be less than the corresponding input dimension, "
                f"but got: padding ({a}, {b}) at dimension {d} of input {list(shape)}"
            )
        if d >= len(shape) - count and n + a + b < 1:
            raise RuntimeError(
                f"pad: the output would have {n + a + b} places along dimension {d}, want at "
                f"least 1; input {list(shape)}"
            )
    cuts = tuple([(min(a, 0), min(b, 0)) for a, b in pairs])
    if mode == "circular":  # PyTorch cuts first here, and last in the other modes
        if any(cut != (0, 0) for cut in cuts):
            input = recorded.constant_pad_nd(input, cuts)
        cuts = ()
    pad = _pad_circular if mode == "circular" else recorded.pad_edges
    grown = pad(input, tuple([(max(a, 0), max(b, 0)) for a, b in pairs]), mode)
    if any(cut != (0, 0) for cut in cuts):
        return recorded.constant_pad_nd(grown, cuts)
    return grown


def _circular(input: Tensor, pad: Any, mode: str) -> Tensor:
    return recorded.pad_edges(input, pad, mode)


_pad_circular = autocasts(_circular, "constant_pad_nd")  # it copies too, and is cast as little

METHODS: dict[str, Any] = {}
