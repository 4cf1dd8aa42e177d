"""How tensors print: PyTorch's layout, digits and suffixes."""

from __future__ import annotations

from math import ceil, floor, inf, isfinite
from textwrap import indent
from typing import Any

import numpy as np

from ... import dtypes
from ...autograd.forward.dual import tangent_of
from ...autograd.mode import state
from ...backends import backend_of
from ...backends.batched.arrays import levels_of
from ...runtime.dispatching import overrides
from ...tensor import Tensor, make

__all__ = ["history", "implied_dtypes", "set_printoptions", "tensor_text", "with_suffixes"]


class _Options:
    precision = 4
    threshold = 1000
    edgeitems = 3
    linewidth = 80
    sci_mode: bool | None = None


options = _Options()
_PROFILES = {
    "default": (4, 1000, 3, 80),
    "short": (2, 1000, 2, 80),
    "full": (4, inf, 3, 80),
}


def set_printoptions(
    precision: int | None = None,
    threshold: float | None = None,
    edgeitems: int | None = None,
    linewidth: int | None = None,
    profile: str | None = None,
    sci_mode: bool | None = None,
) -> None:
    """Sets digits after the point, elements before summarising, and the like, for all threads."""
    if profile is not None:
        if profile not in _PROFILES:
            raise ValueError(f"profile must be one of {', '.join(_PROFILES)}, got {profile!r}")
        digits, limit, edge, width = _PROFILES[profile]
        options.precision, options.threshold = digits, limit  # type: ignore[assignment]
        options.edgeitems, options.linewidth = edge, width
    for name, value in (("precision", precision), ("threshold", threshold),
                        ("edgeitems", edgeitems), ("linewidth", linewidth)):  # fmt: skip
        if value is not None:
            setattr(options, name, value)
    options.sci_mode = sci_mode


class _Formatter:
    """Chooses one width and one notation for all numbers of a tensor."""

    def __init__(self, values: np.ndarray[Any, Any]) -> None:
        self.floating = values.dtype.kind == "f"
        self.integral, self.scientific, self.width = True, False, 1
        if not self.floating:
            self.width = max((len(str(v)) for v in values.ravel().tolist()), default=1)
            return
        numbers = [abs(v) for v in values.ravel().tolist() if isfinite(v) and v != 0]
        if numbers:
            self.integral = all(v == ceil(v) for v in numbers)
            big, small = max(numbers), min(numbers)
            if self.integral:
                self.scientific = big / small > 1000 or big > 1e8
            else:
                self.scientific = big / small > 1000 or big > 1e8 or small < 1e-4
        if options.sci_mode is not None and numbers:
            self.scientific = options.sci_mode
        shown = [v for v in values.ravel().tolist() if isfinite(v) and v != 0]
        self.width = max(map(len, map(self.bare, shown)), default=1)  # nan and 0 have no say

    @property
    def length(self) -> int:
        """What an element takes of a line, as it is counted for the line's end."""
        return self.width

    def bare(self, value: Any) -> str:
        if not self.floating:
            return str(value)
        if not isfinite(value):
            return str(value)
        if self.scientific:
            return f"{value:.{options.precision}e}"
        return f"{value:.0f}." if self.integral else f"{value:.{options.precision}f}"

    def __call__(self, value: Any) -> str:
        return self.bare(value).rjust(self.width)


def _summarised(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The elements that are shown: the edges of every long dimension."""
    edge = options.edgeitems
    for axis, extent in enumerate(values.shape):
        if extent > 2 * edge:
            kept = [*range(edge), *range(extent - edge, extent)]
            values = values.take(kept, axis)
    return values


def _rows(values: np.ndarray[Any, Any], depth: int, summary: bool, text: Any) -> str:
    if values.ndim == 0:
        return text(values.item())
    edge, extent = options.edgeitems, values.shape[0]
    cut = summary and extent > 2 * edge
    kept = [*range(edge), *range(extent - edge, extent)] if cut else range(extent)
    parts = [_rows(values[i], depth + 1, summary, text) for i in kept]
    if cut:
        parts.insert(edge, "..." if values.ndim > 1 else " ...")
    if values.ndim > 1:
        return "[" + ("," + "\n" * (values.ndim - 1) + " " * (depth + 1)).join(parts) + "]"
    per_line = max(1, floor((options.linewidth - depth) / (text.length + 2)))
    lines = [parts[i : i + per_line] for i in range(0, len(parts), per_line)] or [[]]
    return "[" + (",\n" + " " * (depth + 1)).join(", ".join(line) for line in lines) + "]"


class _ComplexFormatter:
    """Real and imaginary parts, each in its own notation."""

    def __init__(self, values: np.ndarray[Any, Any]) -> None:
        self.real, self.imag = _Formatter(values.real), _Formatter(values.imag)
        self.length = self.real.width + self.imag.width + 1

    def __call__(self, value: complex) -> str:
        imag = self.imag(value.imag).lstrip()
        return f"{self.real(value.real)}{'' if imag[0] in '+-' else '+'}{imag}j"


def tensor_text(t: Tensor, head: str = "tensor(") -> str:
    """What `repr(t)` says."""
    if overrides(type(t)):
        head = f"{type(t).__name__}("
    backend = backend_of(t._array)
    if not backend.readable:
        return _batched_text(t)
    if backend.device_type == "meta":
        return _meta_text(t, head)
    kind = t.dtype
    suffixes = []
    if backend.device_type != "cpu":
        suffixes.append(f"device='{t.device}'")
    implied = implied_dtypes()
    if 0 in t.shape:
        if t.dim() != 1:
            suffixes.append(f"size={tuple(t.shape)}")
        if kind is not dtypes.get_default_dtype():
            suffixes.append(f"dtype={kind}")
    elif kind not in implied:
        suffixes.append(f"dtype={kind}")
    body = elements_text(t, len(head))
    if t._requires_grad:
        suffixes.append(history(t))
    if t._rare is not None and (t._rare.tangents or t._rare.view is not None):
        tangent = _tangent(t)
        if tangent is not None:
            words = repr(tangent.item()) if not tangent.ndim else tensor_text(tangent)
            suffixes.append(f"tangent={words}")
    return with_suffixes(head + body, suffixes, len(head))


def elements_text(t: Tensor, depth: int) -> str:
    """The elements in brackets; lines begin `depth` columns in."""
    values = np.asarray(backend_of(t._array).to_host(t._array))
    if values.size == 0:
        return "[]"
    if t.dtype.is_floating_point:
        values = values.astype(np.float64)
    summary = values.size > options.threshold
    shown = _summarised(values) if summary else values
    text = _ComplexFormatter(shown) if t.dtype.is_complex else _Formatter(shown)
    return _rows(values, depth, summary, text)


def implied_dtypes() -> tuple[dtypes.dtype, ...]:
    default = dtypes.get_default_dtype()
    return default, dtypes.int64, dtypes.bool_, default.to_complex()


def _meta_text(t: Tensor, head: str) -> str:
    """What there is to say of a tensor without values."""
    suffixes = [f"device='{t.device}'", f"size={tuple(t.shape)}"]
    if t.dtype not in implied_dtypes():
        suffixes.append(f"dtype={t.dtype}")
    if t._requires_grad:
        suffixes.append(history(t))
    return with_suffixes(head + "...", suffixes, len(head))


def _batched_text(t: Tensor) -> str:
    """What a tensor inside vmap is: all its examples, its hidden dimension first."""
    inner = indent(tensor_text(make(t._array.values)), "    ")
    return f"BatchedTensor(lvl={len(levels_of(t._array))}, bdim=0, value=\n{inner}\n)"


def _tangent(t: Tensor) -> Tensor | None:
    """The tangent of a dual tensor, where its level is open."""
    return None if state.dual is None else tangent_of(t, state.dual)


def history(t: Tensor) -> str:
    try:
        node = t.grad_fn
    except RuntimeError:  # a view that in-place changes have cut off
        return "grad_fn=<Invalid>"
    return "requires_grad=True" if node is None else f"grad_fn=<{node.short_name()}>"


def with_suffixes(text: str, suffixes: list[str], indent: int) -> str:
    """The text with what is said of a tensor behind its elements, in lines, and a bracket."""
    last = len(text) - text.rfind("\n") + 1
    for suffix in suffixes:
        if last + len(suffix) + 2 > options.linewidth:
            text += ",\n" + " " * indent + suffix
            last = indent + len(suffix)
        else:
            text += ", " + suffix
            last += len(suffix) + 2
    return text + ")"
