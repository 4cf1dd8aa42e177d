"""How exactly float32 is computed, by backend and op: PyTorch's fp32_precision and its kin.

A word is "ieee" (float32), "tf32", "bf16" or "none", for which the backend's holds, and then that
of all backends. What is said of "cuda" has an effect: `wanted` is told.
"""

from __future__ import annotations

from typing import Any

from ..backends.wanted import wanted

__all__ = ["Precision", "get_precision", "set_precision"]

_WORDS = ("none", "ieee", "tf32", "bf16")
_FIRST = {("cuda", "conv"): "tf32"}  # until something is said
_said: dict[tuple[str, str], str] = {("cuda", "matmul"): "tf32"} if wanted.tf32 else {}


def get_precision(backend: str, op: str = "all") -> str:
    """The word that holds for an op of a backend, or for all of them."""
    for place in ((backend, op), (backend, "all"), ("generic", "all")):
        word = _said.get(place, "none")
        if word != "none":
            return "none" if (backend, word) == ("cuda", "bf16") else word
    return "none" if (backend, op) in _said else _FIRST.get((backend, op), "none")


def set_precision(backend: str, op: str, word: str) -> None:
    """Says how exactly; RuntimeError for a word that there is not, or not for this backend."""
    if word not in _WORDS:
        raise RuntimeError(f"Unknown precision: {word}; want one of {', '.join(_WORDS)}")
    if (backend, word) == ("cuda", "bf16"):
        raise RuntimeError(f"backend '{backend}' does not support precision '{word}'")
    _said[backend, op] = word
    wanted.tf32 = get_precision("cuda", "matmul") == "tf32"
    wanted.cudnn.allow_tf32 = get_precision("cuda", "conv") == "tf32"


class Precision:
    """What has an `fp32_precision`: an op of a backend, such as `torch.backends.cudnn.conv`."""

    backend: str
    op: str

    def __init__(self, backend: str, op: str, text: str) -> None:
        vars(self).update(backend=backend, op=op, __doc__=text)

    def __getattr__(self, name: str) -> Any:
        if name == "fp32_precision":
            return get_precision(self.backend, self.op)
        raise AttributeError("Unknown attribute " + name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name != "fp32_precision":
            raise AttributeError("Unknown attribute " + name)
        if not isinstance(value, str):
            raise TypeError(f"fp32_precision: expects a str, but got {type(value).__name__}")
        set_precision(self.backend, self.op, value)
