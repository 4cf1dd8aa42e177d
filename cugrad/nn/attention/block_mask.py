"""BlockMask: a mask of attention by blocks of queries and keys, as it is listed and drawn."""

from __future__ import annotations

import itertools
import math
import warnings
from typing import Any

from ... import dtypes
from ...device import Device
from ...functions import FUNCTIONS
from ...functions.creation.ranges import arange
from ...tensor import Tensor
from .masks import Mod, create_mask, is_score_mod, noop_mask, over_places, sliced_mask_mod_error

__all__ = ["BlockMask", "create_block_mask"]

BLOCK = 128  # queries, and keys, of a block where nothing else is said
pad, where = FUNCTIONS["constant_pad_nd"], FUNCTIONS["where"]


def _listed(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """Rows of 0 and 1 as the number of ones in each, and the places of those, then of the zeros."""
    order = blocks.argsort(-1, descending=True, stable=True)
    return blocks.sum(-1).to(dtypes.int32), order.to(dtypes.int32).contiguous()


def _lists(blocks: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
    return (None, None) if blocks is None else _listed(blocks)


def _dense(counts: Tensor, places: Tensor) -> Tensor:
    """The rows of 0 and 1, int32, that are listed so; places after the first `counts` are any."""
    columns = places.shape[-1]
    listed = arange(columns, device=places.device) < counts.unsqueeze(-1)
    rows = places.new_zeros((*places.shape[:-1], columns + 1), dtype=dtypes.int32)
    return rows.scatter(-1, where(listed, places, columns).long(), 1)[..., :columns].contiguous()


def _blocks_of(mask: Tensor, size: tuple[int, int], separate: bool) -> tuple[Tensor, Tensor | None]:
    """Which blocks of a mask are to be computed with it, and, if separate, which without."""
    lack = [-mask.shape[dim] % size[dim] for dim in (-2, -1)]
    mask = pad(mask, (0, lack[1], 0, lack[0]))
    rows, columns = mask.shape[-2] // size[0], mask.shape[-1] // size[1]
    mask = mask.reshape(*mask.shape[:2], rows, size[0], columns, size[1])
    some, every = mask.any(-1).any(-2), mask.all(-1).all(-2)
    if not separate:
        return some.to(dtypes.int8), None
    return (some & ~every).to(dtypes.int8), every.to(dtypes.int8)


def create_block_mask(
    mask_mod: Mod,
    B: int | None,
    H: int | None,
    Q_LEN: int,
    KV_LEN: int,
    device: Any = None,
    BLOCK_SIZE: int | tuple[int, int] = BLOCK,
    _compile: bool = False,
    separate_full_blocks: bool = True,
    compute_dq_write_order: bool = False,
    dq_kv_order: bool = True,
) -> BlockMask:
    """A BlockMask of what a mask_mod lets queries see; it is computed as `create_mask` does.

    Args:
        mask_mod: (b, h, q_idx, kv_idx), each a number, to a bool tensor: True where a key counts.
        B, H: 1 where None: the same for all batches, or heads.
        device: by default the accelerator, or the CPU.
        BLOCK_SIZE: of queries and keys.
        _compile: deprecated, warns; nothing is compiled.
        separate_full_blocks: whether blocks of True alone are listed apart.
        compute_dq_write_order, dq_kv_order: for a kernel of PyTorch's: the former must be False,
            and without it the latter says nothing.

    Raises AssertionError for a function of other than 4 arguments or not to bool, ValueError for a
    `dq_kv_order` that is no bool, and NotImplementedError for `compute_dq_write_order`.

    >>> import cugrad as torch
    >>> flex = torch.nn.attention.flex_attention
    >>> mask = flex.create_block_mask(lambda b, h, q, k: q >= k, None, None, 256, 256, "cpu")
    >>> mask.shape, mask.sparsity(), mask.to_dense().tolist()
    ((1, 1, 256, 256), 25.0, [[[[1, 0], [1, 1]]]])
    """
    if is_score_mod(mask_mod):
        raise AssertionError(f"create-block_mask requires a mask_mod function! Got {mask_mod}")
    if _compile:
        warnings.warn(
            "_compile flag on create_block_mask was originally added to work around a "
            "torch.compile limitation. It is deprecated, and nothing is compiled here.",
            DeprecationWarning, stacklevel=2,
        )  # fmt: skip
    if not isinstance(dq_kv_order, bool):
        raise ValueError("dq_kv_order must be a bool when using create_block_mask")
    if compute_dq_write_order:
        raise NotImplementedError(
            "create_block_mask: compute_dq_write_order is for a kernel that cugrad does not have; "
            "leave it False"
        )
    size = (BLOCK_SIZE, BLOCK_SIZE) if isinstance(BLOCK_SIZE, int) else BLOCK_SIZE
    mask = create_mask(mask_mod, B, H, Q_LEN, KV_LEN, device)
    if mask.dtype is not dtypes.bool_:
        raise AssertionError(f"mask.dtype must be torch.bool, got {mask.dtype}")
    partial, full = _blocks_of(mask, size, separate_full_blocks)
    return BlockMask.from_kv_blocks(
        *_listed(partial), *_lists(full), BLOCK_SIZE=size, mask_mod=mask_mod,
        seq_lengths=(Q_LEN, KV_LEN),
    )  # fmt: skip


class BlockMask:
    """A mask by blocks of queries and keys: which to compute, which of those without `mask_mod`.

    `kv_num_blocks`, (..., rows), has how many blocks of keys a block of queries sees, and
    `kv_indices`, (..., rows, columns), which: the first so many of each row count. There `mask_mod`
    decides of each place. `full_kv_num_blocks` and `full_kv_indices` are of blocks that are seen
    whole. The four with `q_` say the same by blocks of keys, int32 all; what is not known is None.
    `create_block_mask` makes one of a function.

    The `dq_` attributes, None here, are in PyTorch for the order of writes of one of its kernels.

    Raises RuntimeError for less than two dims, AssertionError for a count without indices, and
    NotImplementedError for an order of writes.
    """

    _TENSORS = (
        "kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices", "q_num_blocks",
        "q_indices", "full_q_num_blocks", "full_q_indices",
    )  # fmt: skip

    def __init__(
        self,
        seq_lengths: tuple[int, int],
        kv_num_blocks: Tensor,
        kv_indices: Tensor,
        full_kv_num_blocks: Tensor | None,
        full_kv_indices: Tensor | None,
        q_num_blocks: Tensor | None,
        q_indices: Tensor | None,
        full_q_num_blocks: Tensor | None,
        full_q_indices: Tensor | None,
        BLOCK_SIZE: tuple[int, int] = (BLOCK, BLOCK),
        mask_mod: Mod = noop_mask,
        *,
        dq_write_order: Tensor | None = None,
        dq_write_order_full: Tensor | None = None,
        dq_kv_order: Tensor | None = None,
        dq_kv_order_spt: bool | None = None,
    ) -> None:
        _check_lists(kv_num_blocks, kv_indices, full_kv_num_blocks, full_kv_indices)
        if (full_q_num_blocks is None) != (full_q_indices is None):
            raise AssertionError(
                "full_q_num_blocks and full_q_indices must be both provided or omitted"
            )
        orders = (dq_write_order, dq_write_order_full, dq_kv_order, dq_kv_order_spt)
        if any(order is not None for order in orders):
            raise NotImplementedError(
                "BlockMask: dq_write_order and dq_kv_order are for a kernel that cugrad does not "
                "have; leave them None"
            )
        self.seq_lengths = seq_lengths
        self.kv_num_blocks, self.kv_indices = kv_num_blocks, kv_indices
        self.full_kv_num_blocks, self.full_kv_indices = full_kv_num_blocks, full_kv_indices
        self.q_num_blocks, self.q_indices = q_num_blocks, q_indices
        self.full_q_num_blocks, self.full_q_indices = full_q_num_blocks, full_q_indices
        self.dq_write_order, self.dq_write_order_full = dq_write_order, dq_write_order_full
        self.dq_kv_order, self.dq_kv_order_spt = dq_kv_order, dq_kv_order_spt
        self.BLOCK_SIZE, self.mask_mod = BLOCK_SIZE, mask_mod

    @classmethod
    def from_kv_blocks(
        cls,
        kv_num_blocks: Tensor,
        kv_indices: Tensor,
        full_kv_num_blocks: Tensor | None = None,
        full_kv_indices: Tensor | None = None,
        BLOCK_SIZE: int | tuple[int, int] = BLOCK,
        mask_mod: Mod | None = None,
        seq_lengths: tuple[int, int] | None = None,
        compute_q_blocks: bool = True,
        *,
        dq_write_order: Tensor | None = None,
        dq_write_order_full: Tensor | None = None,
        dq_kv_order: Tensor | bool | None = None,
    ) -> BlockMask:
        """A mask of lists of blocks of keys; those of queries are computed, if asked for.

        `mask_mod` is that all keys count, and `seq_lengths` whole blocks, where nothing is said.
        """
        _check_lists(kv_num_blocks, kv_indices, full_kv_num_blocks, full_kv_indices)
        some = whole = None
        if compute_q_blocks:
            some = _dense(kv_num_blocks, kv_indices).transpose(-2, -1)
            if full_kv_num_blocks is not None and full_kv_indices is not None:
                whole = _dense(full_kv_num_blocks, full_kv_indices).transpose(-2, -1)
        size = (BLOCK_SIZE, BLOCK_SIZE) if isinstance(BLOCK_SIZE, int) else BLOCK_SIZE
        if seq_lengths is None:
            rows, columns = kv_indices.shape[-2:]
            seq_lengths = (rows * size[0], columns * size[1])
        as_tensor: Any = dq_kv_order  # a bool is refused as a tensor is
        return cls(
            seq_lengths, kv_num_blocks, kv_indices, full_kv_num_blocks, full_kv_indices,
            *_lists(some), *_lists(whole), BLOCK_SIZE=size,
            mask_mod=noop_mask if mask_mod is None else mask_mod, dq_write_order=dq_write_order,
            dq_write_order_full=dq_write_order_full, dq_kv_order=as_tensor,
        )  # fmt: skip

    def as_tuple(self, flatten: bool = True) -> tuple[Any, ...]:
        """The attributes in PyTorch's order; the pairs of lengths and sizes apart, if flattened."""
        lengths: tuple[Any, ...] = self.seq_lengths if flatten else (self.seq_lengths,)
        size: tuple[Any, ...] = self.BLOCK_SIZE if flatten else (self.BLOCK_SIZE,)
        orders = (
            self.dq_write_order, self.dq_write_order_full, self.dq_kv_order, self.dq_kv_order_spt
        )  # fmt: skip
        return (*lengths, *self._tensors(), *orders, *size, self.mask_mod)

    def _tensors(self) -> list[Tensor | None]:
        return [getattr(self, name) for name in self._TENSORS]

    @property
    def shape(self) -> tuple[int, ...]:
        """The leading dims of the lists, and the numbers of queries and keys."""
        return (*self.kv_indices.shape[:-2], *self.seq_lengths)

    def numel(self) -> int:
        """How many elements the mask has, seen or not."""
        return math.prod(self.shape)

    def sparsity(self) -> float:
        """The share of blocks that are not computed, in percent."""
        count = self.kv_num_blocks.sum()
        if self.full_kv_num_blocks is not None:
            count = count + self.full_kv_num_blocks.sum()
        computed = int(count.item()) * self.BLOCK_SIZE[0] * self.BLOCK_SIZE[1]
        return 100 * (1 - computed / self.numel())

    def to_dense(self) -> Tensor:
        """Which blocks are computed, as 1 and 0: (..., rows, columns) of int32."""
        dense = _dense(self.kv_num_blocks, self.kv_indices)
        if self.full_kv_num_blocks is None or self.full_kv_indices is None:
            return dense
        return dense | _dense(self.full_kv_num_blocks, self.full_kv_indices)

    def elements(self, sizes: tuple[int, ...]) -> Tensor:
        """What each query sees, a bool tensor of `sizes`: (batch, heads, queries, keys)."""
        device = self.kv_indices.device
        mask = over_places(self.mask_mod, sizes, device)
        if mask.dtype is not dtypes.bool_:
            raise RuntimeError(
                f"flex_attention: mask_mod must return a boolean tensor, but got a tensor with "
                f"dtype {mask.dtype}"
            )
        rows, columns = (
            arange(n, device=device).div(block, rounding_mode="floor")
            for n, block in zip(sizes[2:], self.BLOCK_SIZE, strict=True)
        )

        def spread(counts: Tensor, places: Tensor) -> Tensor:
            dense = _dense(counts, places).to(dtypes.bool_)
            return dense.index_select(-2, rows).index_select(-1, columns)

        seen = mask & spread(self.kv_num_blocks, self.kv_indices)
        if self.full_kv_num_blocks is None or self.full_kv_indices is None:
            return seen
        return seen | spread(self.full_kv_num_blocks, self.full_kv_indices)

    def to(self, device: Device | str) -> BlockMask:
        """The mask with its tensors on a device."""
        named = zip(self._TENSORS, self._tensors(), strict=True)
        moved: dict[str, Any] = {n: None if x is None else x.to(device) for n, x in named}
        return BlockMask(
            self.seq_lengths, BLOCK_SIZE=self.BLOCK_SIZE, mask_mod=self.mask_mod, **moved
        )

    def __getitem__(self, index: Any) -> BlockMask:
        """The mask of some batches, heads and blocks of queries, by numbers, slices and tensors.

        All dims stay. `mask_mod` has to be set: that of the whole knows other places.
        """
        parts = index if isinstance(index, tuple) else (index,)
        sizes = self.kv_num_blocks.shape[:3]
        padded = (*parts, *(slice(None),) * 3)[:3]
        place = tuple([_kept(i, n) for i, n in zip(padded, sizes, strict=True)])
        named = zip(self._TENSORS[:4], self._tensors())
        lists: dict[str, Any] = {n: None if x is None else x[place] for n, x in named}
        return self._of_lists(lists, sliced_mask_mod_error, self.seq_lengths)

    def _of_lists(self, lists: dict[str, Any], mod: Mod, lengths: tuple[int, int]) -> BlockMask:
        """A mask that has of this one what it is not given."""
        return BlockMask.from_kv_blocks(
            **lists, BLOCK_SIZE=self.BLOCK_SIZE, mask_mod=mod, seq_lengths=lengths,
            compute_q_blocks=self.q_indices is not None,
        )  # fmt: skip

    def _adjust(self, new_q_len: int, new_kv_len: int) -> BlockMask:
        """The mask of the first queries and keys."""
        rows = -(-new_q_len // self.BLOCK_SIZE[0])
        columns = -(-new_kv_len // self.BLOCK_SIZE[1])

        lists: dict[str, Any] = {}
        for counts, places in (self._TENSORS[:2], self._TENSORS[2:4]):
            if getattr(self, counts) is not None:
                dense = _dense(getattr(self, counts), getattr(self, places))
                lists[counts], lists[places] = _listed(dense[..., :rows, :columns])
        return self._of_lists(lists, self.mask_mod, (new_q_len, new_kv_len))

    def to_string(self, grid_size: int | tuple[int, int] = (20, 20), limit: int = 4) -> str:
        """A drawing of each batch and head: full blocks, light ones where a square has both.

        `grid_size` bounds its rows and columns, -1 does not; `limit` the number of drawings.
        """
        dense = self.to_dense().cpu().numpy()
        most = (grid_size, grid_size) if isinstance(grid_size, int) else grid_size
        steps = [1 if m < 0 else max(1, -(-n // m)) for n, m in zip(dense.shape[-2:], most)]
        drawings = []
        for count, batch in enumerate(itertools.product(*map(range, dense.shape[:-2]))):
            if count == limit:
                drawings += [
                    "...",
                    "To print out more, set BlockMask.to_string(limit=N)",
                    "You can also index (BlockMask[batch, head]) to choose a specific batch or "
                    "head",
                ]
                break
            drawings.append(f"{batch}\n" + _drawing(dense[batch], *steps))
        return "\n".join(drawings)

    def __str__(self) -> str:
        drawing = self.to_string().strip()
        return f"BlockMask(shape={self.shape}, sparsity={self.sparsity():.2f}%, \n{drawing}\n)"

    def __repr__(self) -> str:
        lines = [
            f"{name}={None if x is None else x.shape}"
            for name, x in zip(self._TENSORS, self._tensors(), strict=True)
        ]
        lines += [
            f"BLOCK_SIZE={self.BLOCK_SIZE}", f"shape={self.shape}",
            f"sparsity={self.sparsity():.2f}%",
            f"mask_mod={getattr(self.mask_mod, '__name__', self.mask_mod)}",
        ]  # fmt: skip
        return "BlockMask(\n    " + ",\n    ".join(lines) + "\n)"


def _check_lists(
    counts: Tensor, places: Tensor, full_counts: Tensor | None, full_places: Tensor | None
) -> None:
    if places is None or counts is None:
        raise AssertionError("kv_num_blocks and kv_indices must be provided")
    if places.dim() < 2:
        raise RuntimeError("BlockMask must have at least 2 dimensions")
    if (full_counts is None) != (full_places is None):
        raise AssertionError(
            "full_kv_num_blocks and full_kv_indices must be both provided or omitted"
        )


def _kept(index: Any, size: int) -> Any:
    """An index that keeps its dim: a number becomes a slice."""
    if not isinstance(index, int):
        return index
    start = index + size if -size <= index < 0 else index
    return slice(start, start + 1)


def _drawing(blocks: Any, row_step: int, column_step: int) -> str:
    """Two letters for each square of a matrix of 0 and 1, and a line for each row of squares."""
    lines = []
    for r in range(0, blocks.shape[0], row_step):
        line = ""
        for c in range(0, blocks.shape[1], column_step):
            share = blocks[r : r + row_step, c : c + column_step].mean()
            line += 2 * ("█" if share == 1 else "░" if share else " ")
        lines.append(line + "\n")
    return "".join(lines)
