"""Exceptions and warnings that are cugrad's own; everything else raises Python's builtin types."""

from __future__ import annotations

__all__ = ["FormulaError", "InplaceError", "LinAlgError"]


class FormulaError(TypeError):
    """A row of the op table is wrong: an unknown name in a formula, a formula for no input."""


class InplaceError(RuntimeError):
    """A tensor that backward needs was changed in place after it was saved."""


class LinAlgError(RuntimeError):
    """A matrix that has no inverse or factorisation; PyTorch's `torch.linalg.LinAlgError`."""
