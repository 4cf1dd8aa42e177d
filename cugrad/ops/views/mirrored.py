"""Views of conjugates and of negatives: they lie in memory of their own, see `Mirror`."""

from __future__ import annotations

from typing import Any, NamedTuple

from ...backends.batched.arrays import any_batched, hidden, owner, plain
from ...backends.copies import in_its_order, is_dense
from ..table import LINEAR, MIRRORED, raw, row

Steps = tuple[tuple[Any, dict[str, Any]], ...]


GAPS = 4  # times the elements' memory, up to which a face lies with the gaps of what it shows


def _mirrored(name: str) -> Any:
    """What a row makes of each number of an array. It has the strides of that: one number that is
    seen in many places is one again, and gaps are gaps, unless there is more of them than `GAPS`
    allows.
    """
    function = getattr(raw, name)

    def forward(xp: Any, self: Any) -> Any:
        if any_batched((self,)):  # with its hidden dims, which lie anywhere
            values = plain(self)
            return hidden(forward(owner(values).xp, values), owner(self))
        if self.flags.c_contiguous or self.flags.f_contiguous:
            return function(self)
        span = 1 + sum(s // self.itemsize * (n - 1) for s, n in zip(self.strides, self.shape))
        if is_dense(self) or not 0 < span <= GAPS * self.size:
            return in_its_order(self, function)
        memory = xp.empty((span,), self.dtype)
        face = xp.lib.stride_tricks.as_strided(memory, self.shape, self.strides)
        face[...] = function(self)
        return face

    return forward


row("_conj", "self", _mirrored("conj"), LINEAR, view=MIRRORED, holomorphic=False,
    node="ConjBackward0", self=lambda m, g: m.conj(g), jvp=lambda m, self_t: m._conj(self_t),
    doc="the complex conjugate: a change of either changes the other")  # fmt: skip
row("_neg_view", "self", _mirrored("neg"), LINEAR, view=MIRRORED, node="NegViewBackward0",
    self=lambda m, g: -g, jvp=lambda m, self_t: m._neg_view(self_t),
    doc="the negative: a change of either changes the other")  # fmt: skip


class Bits(NamedTuple):
    """How a view shows the numbers that lie in memory."""

    conjugate: bool = False
    negative: bool = False
    halved: bool = False  # as pairs of which the second is negative: one of the two comes next


AS_THEY_LIE = Bits()


def bits_behind(bits: Bits, op: Any, params: dict[str, Any]) -> Bits:
    """How the result of a view op shows what its operand shows so."""
    conjugate, negative, halved = bits
    if op.mirrors:
        conjugate ^= op.name == "_conj"
        negative ^= op.name == "_neg_view"
    elif halved:
        negative ^= bool(params["index"])
        halved = False
    elif op.name == "view_as_real":
        conjugate, halved = False, conjugate
    return Bits(conjugate, negative, halved)


def turned(xp: Any, array: Any, steps: Steps) -> Any:
    """An array as view ops turn its numbers; which of them are its elements is not asked."""
    bits = AS_THEY_LIE
    for op, params in steps:
        bits = bits_behind(bits, op, params)
    array = xp.conj(array) if bits.conjugate else array
    return xp.negative(array) if bits.negative else array
