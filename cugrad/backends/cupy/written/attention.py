"""Attention without its scores: a kernel forward, two backward, and one more for the gradient of a
mask; on tensor cores in half precision, and in float32: see `kernels/tensor_cores.py` and
`kernels/attention.py`.

It has no row: `nn/functional/dot_product_attention.py` asks the backend for it, and says what is
computed.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import cache
from math import prod
from typing import Any, NamedTuple

import cupy

from ...attending import ELSEWHERE, width_taken
from ...wanted import wanted
from ..kernels import attention as plain
from ..kernels import tensor_cores, tensor_gradients
from .launch import BLOCK, accumulator, blocks, dense, kernel, name_of
from .placed.neighbours import gradients_for
from .plans import kept

__all__ = ["attention", "attention_backward", "attention_of_mask"]

Array = Any  # cupy.ndarray
Steps = tuple[int, ...]
ndarray = cupy.ndarray
ON_CORES = tensor_cores.KERNELS | tensor_gradients.KERNELS
NO_MASK, SEEN, ADDED = 0, 1, 2


class Blocks(NamedTuple):
    """How a kernel for tensor cores is cut: the rows of a tile that a block walks over, its warps,
    and the bands of 16 rows that each of these has.
    """

    tile: int
    warps: int
    bands: int


# Of narrow heads, and of wide ones, whose sums take registers.
CUTS = {
    "attention": (Blocks(64, 4, 2), Blocks(32, 4, 1)),
    "attention_queries": (Blocks(64, 4, 1), Blocks(32, 4, 1)),
    "attention_keys": (Blocks(32, 4, 1), Blocks(16, 4, 1)),
}
CUTS_OF_FLOAT32 = {
    "attention": (Blocks(32, 4, 1), Blocks(32, 4, 1)),
    "attention_queries": (Blocks(32, 4, 1), Blocks(16, 3, 1)),
    "attention_keys": (Blocks(32, 4, 1), Blocks(16, 3, 1)),
}


class Heads(NamedTuple):
    """An operand as (batch, heads, rows, width): sizes, and steps in elements."""

    array: Array
    shape: tuple[int, int, int, int]
    steps: tuple[int, int, int, int]


def heads_of(x: Array) -> Heads:
    """An operand of any number of dims; its last lies dense, dims before the heads as one."""
    if x.ndim > 4 or x.strides[-1] != x.itemsize and x.shape[-1] > 1:
        x = dense(x)
    if x.ndim > 4:
        x = x.reshape(prod(x.shape[:-3]), *x.shape[-3:])
    lead = 4 - x.ndim
    shape = (*(1,) * lead, *x.shape)
    steps = (*(0,) * lead, *[s // x.itemsize for s in x.strides])
    return Heads(x, shape, steps)


class Setting(NamedTuple):
    """Operands that the kernels take, and what they are told of them."""

    q: Heads
    k: Heads
    v: Heads
    mask: Array | None
    bits: Array | None
    how: Any  # AttentionSettings
    width: int  # of a head, rounded up: D
    on_cores: bool  # whether products are those of tensor cores

    @property
    def mask_kind(self) -> int:
        if self.mask is None:
            return NO_MASK
        return SEEN if name_of(self.mask.dtype) == "bool" else ADDED

    def owned(self, name: str) -> int:
        """How many queries, or keys, a block of a kernel has."""
        if self.on_cores:
            cut = self.cut(name)
            return cut.warps * cut.bands * 16
        return self.tiles(name)[name == "attention_keys"]

    def cut(self, name: str) -> Blocks:
        """How a kernel for tensor cores is cut."""
        cuts = CUTS if self.q.array.dtype.itemsize == 2 else CUTS_OF_FLOAT32
        return cuts[name][self.width > 64]

    def piece(self, name: str) -> int:
        """How much of the width of a head a plain kernel has in shared memory at a time."""
        is_double = name_of(self.q.array.dtype) == "float64"
        few = is_double or self.width % 128 or name == "attention_mask"
        return min(self.width, 64 if few else 128)

    def tiles(self, name: str) -> tuple[int, int]:
        """How many queries, and keys, a tile of a plain kernel has, so that all fit in 48 KB."""
        wide = name_of(self.q.array.dtype) == "float64" or self.width > 64
        if name == "attention":
            return (32, 32) if wide else (64, 32)
        wide = wide or name == "attention_mask"
        return (16, 16) if wide else (32, 32)

    def mask_steps(self) -> Steps:
        if self.mask is None:
            return (0, 0, 0, 0)
        lying = cupy.broadcast_to(self.mask, (*self.q.shape[:3], self.k.shape[2]))
        return tuple([s // self.mask.itemsize for s in lying.strides])

    def packed(self, name: str, others: Sequence[Heads], tiles: int = 0) -> bytes:
        """The struct that kernels get; `others` are the result and, backward, four gradients."""
        how = self.how
        steps = [[s for x in some for s in x.steps[:3]]
                 for some in ((self.q, self.k, self.v, *others[:2]), others[2:])]  # fmt: skip
        numbers = [
            self.q.shape[1], how.groups, self.q.shape[2], self.k.shape[2], self.q.shape[3],
            self.v.shape[3], int(how.causal), how.start, int(self.bits is not None),
            tiles or blocks(self.q.shape[2], self.owned(name)),
        ]  # fmt: skip
        kept = 1 / (1 - how.p) if how.p < 1 else 0.0
        letter = "d" if name_of(self.q.array.dtype) == "float64" else "f"
        return struct.pack(f"28q10i2{letter}0q", *steps[0], *self.mask_steps(), *steps[1],
                           *numbers, how.scale, kept)  # fmt: skip

    def launch(
        self, name: str, count: int, arrays: list[Array | None], others: Sequence[Heads]
    ) -> None:
        """Starts a kernel for so many planes of as many rows as the operand that it walks along."""
        rows = self.k.shape[2] if name == "attention_keys" else self.q.shape[2]
        grid = (count * blocks(rows, self.owned(name)),)
        run = self.kernel(name, others)
        threads = self.cut(name).warps * 32 if self.on_cores else BLOCK
        run(grid, (threads,), (*arrays, self.packed(name, others)))

    def kernel(self, name: str, others: Sequence[Heads]) -> Any:
        dtype = name_of(self.q.array.dtype)
        mask = None if self.mask is None else name_of(self.mask.dtype)
        if not self.on_cores:
            queries, keys = self.tiles(name)
            piece = self.piece(name)
            return kernel(plain.KERNELS[name], name, dtype, mask, 1, D=self.width, C=piece,
                          BQ=queries, BK=keys, MASK=self.mask_kind)  # fmt: skip
        (tile, warps, bands), both = self.cut(name), int(name != "attention")
        name = f"tensor_{name}"
        return kernel(
            ON_CORES[name], name, dtype, mask, self.pack(others), D=self.width,
            TILE=tile, WARPS=warps, BANDS=bands, OTHERS=both, MASK=self.mask_kind,
            DROPPED=int(self.bits is not None), BFLOAT=int(dtype == "bfloat16"),
        )  # fmt: skip

    def pack(self, others: Sequence[Heads]) -> int:
        """How many neighbours of all operands are read, and written, at a time."""
        size = self.q.array.dtype.itemsize
        pack = 16 // size
        for x in (self.q, self.k, self.v, *others):
            sizes = (x.array.data.ptr // size, x.shape[3], *x.steps[:3])
            while any(n % pack for n in sizes):
                pack //= 2
        return pack

    def operands(self) -> list[Array | None]:
        """Queries, keys and values, mask and bits."""
        return [self.q.array, self.k.array, self.v.array, self.mask, self.bits]


@cache
def has_tensor_cores(device: int) -> bool:
    """Whether a device knows the instructions of `kernels/tensor_cores.py`."""
    return int(cupy.cuda.Device(device).compute_capability) >= int(tensor_cores.LEAST)


def _setting(
    query: Array, key: Array, value: Array, mask: Array | None, bits: Array | None, how: Any
) -> Setting | None:
    """None where the kernels do not take the operands."""
    if type(query) is not ndarray:
        return None
    cores = query.dtype.itemsize < 8 and has_tensor_cores(query.device.id)
    taken = width_taken(query, key, value, mask, bits, how, cores)
    if taken is None:
        return None
    return Setting(heads_of(query), heads_of(key), heads_of(value), mask, bits, how, *taken)


def _is_cudnns(query: Array, mask: Array | None, bits: Array | None, how: Any) -> bool:
    """Whether cuDNN is asked first."""
    if how.ways[:1] != ("cudnn",) or type(query) is not ndarray or not wanted.cudnn.used:
        return False
    return query.dtype.itemsize == 2 and mask is None and bits is None


def _attention(
    query: Array, key: Array, value: Array, mask: Array | None, bits: Array | None, how: Any
) -> tuple[Array, Array] | None:
    """The attention, and the logarithm of the sum of exponentials of each query, for backward.

    The result lies with heads side by side, as layers put them together. None for operands that
    the kernels do not take.
    """
    if _is_cudnns(query, mask, bits, how):
        from ..cudnn import attention as cudnn

        results = cudnn.attend(query, key, value, how)
        if results is not None:
            return results
    setting = _setting(query, key, value, mask, bits, how)
    if setting is None:
        return None
    batch, heads, length, _ = setting.q.shape
    width = setting.v.shape[3]
    block = ndarray((batch, length, heads, width), query.dtype)
    result = block.transpose(0, 2, 1, 3)
    logs = ndarray((batch, heads, length), accumulator(query.dtype))
    o = heads_of(result)
    setting.launch("attention", batch * heads, [*setting.operands(), block, logs], [o] * 5)
    return result.reshape(*query.shape[:-1], width), logs


def _attention_backward(
    g: Array, query: Array, key: Array, value: Array, mask: Array | None, bits: Array | None,
    result: Array, logs: Array, how: Any,
) -> tuple[Array, Array, Array] | None:  # fmt: skip
    """The gradients of query, key and value, which lie as these do: see `placed/neighbours.py`."""
    if _is_cudnns(query, mask, bits, how) and g.dtype == query.dtype and type(g) is ndarray:
        from ..cudnn import attention as cudnn

        gradients = cudnn.gradients(g, query, key, value, result, logs, how)
        if gradients is not None:
            return gradients
    setting = _setting(query, key, value, mask, bits, how)
    if setting is None or g.dtype != query.dtype or type(g) is not ndarray:
        return None
    o, slopes = heads_of(result), heads_of(g)
    batch, heads, _, _ = setting.q.shape
    operands = [query, key, value]
    if query.ndim > 4:  # the kernels take all before the heads as one dim
        dq, dk, dv = (ndarray(x.shape, x.dtype) for x in operands)
    else:
        dq, dk, dv = gradients_for(operands)
    others = [o, slopes, *[heads_of(x) for x in (dq, dk, dv)]]
    deltas = ndarray(logs.shape, logs.dtype)
    q, k, v, masks, packed_bits = setting.operands()
    logs = dense(logs)
    setting.launch(
        "attention_queries", batch * heads,
        [slopes.array, q, k, v, masks, packed_bits, o.array, logs, dq, deltas], others,
    )  # fmt: skip
    setting.launch(
        "attention_keys", batch * heads // how.groups,
        [slopes.array, q, k, v, masks, packed_bits, logs, deltas, dk, dv], others,
    )  # fmt: skip
    return dq, dk, dv


def attention_of_mask(
    g: Array, query: Array, key: Array, value: Array, mask: Array, bits: Array | None,
    result: Array, logs: Array, how: Any,
) -> Array | None:  # fmt: skip
    """The gradient of a mask that was added to scores, in one kernel, which computes these again.

    A block has a tile of it, and sums along dims in which the mask was broadcast.
    """
    setting = _setting(query, key, value, mask, bits, how)
    if setting is None or g.dtype != query.dtype or type(g) is not ndarray:
        return None
    width = next(d for d in ELSEWHERE if d >= setting.width)
    setting = setting._replace(on_cores=False, width=width)
    slope = ndarray(mask.shape, mask.dtype)
    shape = (*(1,) * (4 - mask.ndim), *mask.shape)
    steps = [0 if n == 1 else prod(shape[k + 1 :]) for k, n in enumerate(shape)]
    (batch, heads, length, _), keys = setting.q.shape, setting.k.shape[2]
    tiles = setting.tiles("attention_mask")
    parts = (batch, heads, blocks(length, tiles[0]), blocks(keys, tiles[1]))
    o, slopes, lead = heads_of(result), heads_of(g), setting.q.shape
    ways = (Heads(slope, lead, (steps[0], steps[1], steps[2], 1)),
            Heads(slope, lead, (steps[3], 0, 0, 0)))  # fmt: skip
    told = setting.packed("attention_mask", [o, slopes, *ways, ways[1]], batch)
    q, k, v, masks, packed_bits = setting.operands()
    arrays = slopes.array, q, k, v, masks, packed_bits, o.array, dense(logs), slope
    grid = prod(n for n, step in zip(parts, steps) if step)
    setting.kernel("attention_mask", [])((grid,), (BLOCK,), (*arrays, told))
    return slope


OPERANDS, ABSENT = ("query", "key", "value", "mask", "bits"), ("mask", "bits")
# The bytes from queries to keys, if it is as far to values, and 0 if they are no piece of memory
# together: see `gradients_for`.
STEP = (
    "step if 0 < (step := key.data.ptr - query.data.ptr) <= query.nbytes "
    "and value.data.ptr - key.data.ptr == step else 0"
)
attention = kept(_attention, OPERANDS, ["how"], ABSENT)
attention_backward = kept(
    _attention_backward, ["g", *OPERANDS, "result", "logs"], ["how"], ABSENT, STEP
)
