"""Exceptions and warnings that are cugrad's own; everything else raises Python's builtin types."""

from __future__ import annotations

from typing import Any

__all__ = [
    "FormulaError",
    "InplaceError",
    "LinAlgError",
    "NoArray",
    "OutOfMemoryError",
    "RaceError",
]


class FormulaError(TypeError):
    """A row of the op table is wrong: an unknown name in a formula, a formula for no input."""


class InplaceError(RuntimeError):
    """A tensor that backward needs was changed in place after it was saved."""


class LinAlgError(RuntimeError):
    """A matrix that has no inverse or factorisation; PyTorch's `torch.linalg.LinAlgError`."""


class RaceError(RuntimeError):
    """Two operations use the same memory, one writes it, and nothing orders them.

    `first` and `second` name the operations, `first_stream` and `second_stream` where they were
    queued ("host" for the host's own), and `missing` the event or wait that would order them.
    """

    def __init__(
        self, text: str, first: str = "", first_stream: str = "", second: str = "",
        second_stream: str = "", missing: str = ""
    ) -> None:  # fmt: skip
        super().__init__(text)
        self.first, self.first_stream = first, first_stream
        self.second, self.second_stream = second, second_stream
        self.missing = missing


FULL_WORDS = "CUDA out of memory. "  # by which programs know the error of a full device


class OutOfMemoryError(MemoryError, RuntimeError):
    """A device is full; PyTorch's `torch.OutOfMemoryError`, and Python's MemoryError too.

    The text says what an op, or another function, wanted, and which parameters, gradients, saved
    tensors and others hold the memory.
    """

    is_told = False  # whether the text says which op, or node, it was
    wanted = held = ""  # parts of the text: what was wanted, and who holds the memory


class NoArray(NotImplementedError):
    """Raised where the array of a tensor is read that has none; its `tensor` may know what to do.

    Such a class of tensors has a method `run(name, args, params)`, which computes an op, perhaps
    `change(name, other)`, which puts its result in the place of another tensor, and an `outline`,
    which has the shape, ndim and dtype of an array.
    """

    def __init__(self, tensor: Any) -> None:
        super().__init__(
            "got a sparse tensor, want a dense one; call to_dense(), or compute with values()"
        )
        self.tensor = tensor

    def run(self, name: str, *args: Any, **params: Any) -> Any:
        """What the tensor makes of an op."""
        return self.tensor.run(name, args, params)

    def changes(self, name: str, args: Any) -> bool:
        """Whether the first operand, another tensor, has become what the op makes of both."""
        change = getattr(self.tensor, "change", None)
        if change is None or len(args) != 2 or args[1] is not self.tensor:
            return False
        return bool(change(name, args[0]))
