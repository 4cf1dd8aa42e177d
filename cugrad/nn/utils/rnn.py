"""Sequences of different lengths in one tensor: padded, or packed step by step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from ... import dtypes
from ...functions.creation.factories import as_tensor, full, tensor
from ...functions.creation.ranges import arange
from ...functions.shapes.copies import cat, stack
from ...tensor import Tensor

__all__ = [
    "PackedSequence", "invert_permutation", "pack_padded_sequence", "pack_sequence",
    "pad_packed_sequence", "pad_sequence", "unpack_sequence", "unpad_sequence",
]  # fmt: skip


class PackedSequence_(NamedTuple):
    """The fields of a PackedSequence."""

    data: Tensor
    batch_sizes: Tensor
    sorted_indices: Tensor | None
    unsorted_indices: Tensor | None


def invert_permutation(permutation: Tensor | None) -> Tensor | None:
    """The permutation that undoes another one; None for None.

    >>> import cugrad as torch
    >>> torch.nn.utils.rnn.invert_permutation(torch.tensor([2, 0, 1]))
    tensor([1, 2, 0])
    """
    return None if permutation is None else permutation.argsort()


class PackedSequence(PackedSequence_):
    """Sequences by length, the longest first, one step behind the other: what RNNs take and return.

    `data` has the first elements of all sequences, then the second ones, and so on; `batch_sizes`,
    in host memory, how many sequences have a first element, a second one, and so on.
    `sorted_indices` says where each stood before they were sorted, `unsorted_indices` where each
    stands now. `pack_sequence` and `pack_padded_sequence` make them. ValueError for `batch_sizes`
    that is not in host memory.
    """

    def __new__(
        cls,
        data: Any,
        batch_sizes: Tensor | None = None,
        sorted_indices: Tensor | None = None,
        unsorted_indices: Tensor | None = None,
    ) -> PackedSequence:
        if unsorted_indices is None:
            unsorted_indices = invert_permutation(sorted_indices)
        if batch_sizes is None:
            if not (isinstance(data, (list, tuple)) and len(data) == 2):
                raise AssertionError("Expected data to be a list or tuple of length 2")
            data, batch_sizes = data
        elif batch_sizes.device.type != "cpu":
            raise ValueError(
                "batch_sizes should always be on CPU. Instances of PackedSequence should never be "
                "created manually. They should be instantiated by functions like pack_sequence and "
                "pack_padded_sequences in nn.utils.rnn. "
                "https://pytorch.org/docs/stable/nn.html#torch.nn.utils.rnn.pack_sequence"
            )
        return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)

    def _with(self, data: Tensor, move: Any) -> PackedSequence:
        indices = [None if t is None else move(t) for t in self[2:]]
        return type(self)(data, self.batch_sizes, *indices)

    def _over_tensors(self, move: Callable[[Tensor], Tensor]) -> PackedSequence:
        """The same with `move(t)` for each tensor that a device may have."""
        return self._with(move(self.data), move)

    def pin_memory(self) -> PackedSequence:
        """The same in page-locked memory."""
        return self._over_tensors(lambda t: t.pin_memory())

    def to(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """The same with `data.to(...)`, the indices on its device; itself where nothing changes."""
        data = self.data.to(*args, **kwargs)
        if data is self.data:
            return self
        return self._with(data, lambda t: t.to(data.device))

    def cuda(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """The same on a GPU."""
        data = self.data.cuda(*args, **kwargs)
        return self if data is self.data else self._with(data, lambda t: t.to(data.device))

    def cpu(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """The same in host memory."""
        return self.to(*args, **{"device": "cpu", **kwargs})

    def double(self) -> PackedSequence:
        """The same in float64."""
        return self.to(dtype=dtypes.float64)

    def float(self) -> PackedSequence:
        """The same in float32."""
        return self.to(dtype=dtypes.float32)

    def half(self) -> PackedSequence:
        """The same in float16."""
        return self.to(dtype=dtypes.float16)

    def long(self) -> PackedSequence:
        """The same in int64."""
        return self.to(dtype=dtypes.int64)

    def int(self) -> PackedSequence:
        """The same in int32."""
        return self.to(dtype=dtypes.int32)

    def short(self) -> PackedSequence:
        """The same in int16."""
        return self.to(dtype=dtypes.int16)

    def char(self) -> PackedSequence:
        """The same in int8."""
        return self.to(dtype=dtypes.int8)

    def byte(self) -> PackedSequence:
        """The same in uint8."""
        return self.to(dtype=dtypes.uint8)

    @property
    def is_cuda(self) -> bool:
        """Whether the data is on a GPU."""
        return self.data.is_cuda

    def is_pinned(self) -> bool:
        """Whether the data is in page-locked memory."""
        return self.data.is_pinned()


def _check_lengths(input: Tensor, lengths: list[int], batch: int) -> None:
    if len(lengths) != batch:
        raise RuntimeError(
            f"Expected `len(lengths)` to be equal to batch_size, but got {len(lengths)} "
            f"(batch_size={batch})"
        )
    if not lengths or lengths[-1] <= 0:
        raise RuntimeError(
            "Length of all samples has to be greater than 0, but found an element in 'lengths' "
            "that is <= 0"
        )
    if any(a < b for a, b in zip(lengths, lengths[1:], strict=False)):
        raise RuntimeError(
            "`lengths` array must be sorted in decreasing order when `enforce_sorted` is True. You "
            "can pass `enforce_sorted=False` to pack_padded_sequence and/or pack_sequence to "
            "sidestep this requirement if you do not need ONNX exportability."
        )


def pack_padded_sequence(
    input: Tensor, lengths: Any, batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """Packs sequences of `lengths` in a padded tensor (T, B, *), or (B, T, *) with `batch_first`.

    `lengths`, in host memory, fall unless `enforce_sorted` is False: then they are sorted, and the
    order is kept. RuntimeError for lengths that do not fall, are not positive, or not B.

    >>> import cugrad as torch
    >>> from cugrad.nn.utils.rnn import pack_padded_sequence
    >>> packed = pack_padded_sequence(torch.tensor([[1, 4], [2, 5], [3, 0]]), [3, 2])
    >>> packed.data, packed.batch_sizes
    (tensor([1, 4, 2, 5, 3]), tensor([2, 2, 1]))
    """
    lengths = as_tensor(lengths, dtype=dtypes.int64, device=None if isinstance(lengths, Tensor)
                        else "cpu")  # fmt: skip
    if lengths.device.type != "cpu" or lengths.dim() != 1:
        raise RuntimeError(
            f"'lengths' argument should be a 1D CPU int64 tensor, but got {lengths.dim()}D "
            f"{lengths.device.type} {lengths.dtype} tensor"
        )
    if batch_first:
        input = input.transpose(0, 1)
    order = None
    if not enforce_sorted:
        lengths, order = lengths.sort(descending=True)
        order = order.to(input.device)
        input = input.index_select(1, order)
    counts: list[int] = lengths.tolist()
    if input.numel() == 0:
        raise RuntimeError("Cannot pack empty tensors.")
    _check_lengths(input, counts, input.shape[1])
    if counts[0] > input.shape[0]:
        raise RuntimeError(
            f"Expected lengths to be at most {input.shape[0]}, the padded length, but got "
            f"{counts[0]}"
        )
    sizes = [sum([n > t for n in counts]) for t in range(counts[0])]
    data = cat([input[t, :size] for t, size in enumerate(sizes)])
    return PackedSequence(data, tensor(sizes, dtype=dtypes.int64, device="cpu"), order)


def pad_packed_sequence(
    sequence: PackedSequence,
    batch_first: bool = False,
    padding_value: float = 0.0,
    total_length: int | None = None,
) -> tuple[Tensor, Tensor]:
    """The padded tensor (T, B, *), or (B, T, *), of packed sequences, and their lengths.

    In the order that they had before they were packed. ValueError unless `total_length`, the T, is
    at least the longest length.

    >>> import cugrad as torch
    >>> from cugrad.nn.utils.rnn import pack_sequence, pad_packed_sequence
    >>> packed = pack_sequence([torch.tensor([1, 2]), torch.tensor([3])])
    >>> pad_packed_sequence(packed, batch_first=True)
    (tensor([[1, 2],
            [3, 0]]), tensor([2, 1]))
    """
    sizes: list[int] = sequence.batch_sizes.tolist()
    longest = len(sizes) if total_length is None else total_length
    if longest < len(sizes):
        raise ValueError(
            "Expected total_length to be at least the length of the longest sequence in input, but "
            f"got total_length={total_length} and max sequence length being {len(sizes)}"
        )
    data, batch = sequence.data, sizes[0]
    kind: dict[str, Any] = {"dtype": data.dtype, "device": data.device}
    steps = []
    for step, size in zip(data.split(sizes), sizes, strict=True):
        missing = full((batch - size, *step.shape[1:]), padding_value, **kind)
        steps.append(cat([step, missing]) if size < batch else step)
    empty = full((batch, *data.shape[1:]), padding_value, **kind)
    padded = stack(steps + [empty] * (longest - len(sizes)), 1 if batch_first else 0)
    lengths = tensor([sum([size > i for size in sizes]) for i in range(batch)], device="cpu")
    if sequence.unsorted_indices is None:
        return padded, lengths
    back = sequence.unsorted_indices
    return padded.index_select(0 if batch_first else 1, back), lengths[back.cpu()]


def pad_sequence(
    sequences: Any,
    batch_first: bool = False,
    padding_value: float = 0.0,
    padding_side: str = "right",
) -> Tensor:
    """Tensors (L, *) of different lengths in one of shape (T, B, *), or (B, T, *), padded.

    RuntimeError for another side than "left" and "right", no sequences, or other trailing shapes.

    >>> import cugrad as torch
    >>> torch.nn.utils.rnn.pad_sequence([torch.tensor([1, 2]), torch.tensor([3])], True, -1)
    tensor([[ 1,  2],
            [ 3, -1]])
    """
    if not isinstance(sequences, Iterable):
        raise RuntimeError(
            "pad_sequence: Expected iterable for input sequences, but got arg of type: "
            f"{type(sequences)}"
        )
    several = list(sequences)
    if not several:
        raise RuntimeError("received an empty list of sequences")
    if padding_side not in ("left", "right"):
        raise RuntimeError(f"Expected padding_side to be one of left or right, but got "
                           f"{padding_side}.")  # fmt: skip
    longest = max([len(s) for s in several])
    padded = []
    for s in several:
        missing = full((longest - len(s), *several[0].shape[1:]), padding_value,
                       dtype=s.dtype, device=s.device)  # fmt: skip
        padded.append(cat([s, missing] if padding_side == "right" else [missing, s]))
    return stack(padded, 0 if batch_first else 1)


def unpad_sequence(
    padded_sequences: Tensor, lengths: Tensor, batch_first: bool = False
) -> list[Tensor]:
    """The sequences of these lengths in a padded tensor.

    >>> import cugrad as torch
    >>> padded, lengths = torch.tensor([[1, 2], [3, 0]]), torch.tensor([2, 1])
    >>> torch.nn.utils.rnn.unpad_sequence(padded, lengths, batch_first=True)
    [tensor([1, 2]), tensor([3])]
    """
    if not batch_first:
        padded_sequences = padded_sequences.transpose(0, 1)
    steps = arange(padded_sequences.shape[1], device=lengths.device)
    pairs = zip(padded_sequences, lengths, strict=True)
    return [sequence[steps < length] for sequence, length in pairs]


def pack_sequence(sequences: Sequence[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Packs tensors (L, *), the longest first unless `enforce_sorted` is False.

    >>> import cugrad as torch
    >>> torch.nn.utils.rnn.pack_sequence([torch.tensor([1, 2]), torch.tensor([3])]).data
    tensor([1, 3, 2])
    """
    lengths = [len(s) for s in sequences]
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """The sequences that were packed, in the order that they had.

    >>> import cugrad as torch
    >>> from cugrad.nn.utils.rnn import pack_sequence, unpack_sequence
    >>> unpack_sequence(pack_sequence([torch.tensor([1]), torch.tensor([2, 3])], False))
    [tensor([1]), tensor([2, 3])]
    """
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)
