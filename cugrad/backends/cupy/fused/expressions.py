"""A graph of traced expressions as statements of CUDA C."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from ...traced.arrays import Traced, Untraceable

__all__ = [
    "COMPUTED",
    "device_functions",
    "STORED",
    "checked",
    "name_of",
    "number_format",
    "signature",
    "statements",
    "value_of",
]

# How elements of a dtype are stored, and the C type they are computed in: half in float.
STORED = {
    "float16": "__half", "bfloat16": "__nv_bfloat16", "float32": "float", "float64": "double",
    "bool": "bool", "int8": "signed char", "int16": "short", "int32": "int", "int64": "long long",
    "uint8": "unsigned char", "complex64": "Complex<float>", "complex128": "Complex<double>",
}  # fmt: skip
COMPUTED = {**STORED, "float16": "float", "bfloat16": "float"}
NUMBER_FORMATS = {"float": "f", "double": "d", "bool": "?", "int": "i", "long long": "q",
                  "Complex<float>": "f", "Complex<double>": "d"}  # fmt: skip

# {0}, {1}, {2} are operands; {f} is the letter with which CUDA's functions of floats end.
ANY = {
    "negative": "-{0}", "positive": "{0}", "absolute": "({0} < 0 ? -{0} : {0})",
    "square": "{0} * {0}", "add": "{0} + {1}", "subtract": "{0} - {1}", "multiply": "{0} * {1}",
    "equal": "{0} == {1}", "not_equal": "{0} != {1}", "less": "{0} < {1}",
    "less_equal": "{0} <= {1}", "greater": "{0} > {1}", "greater_equal": "{0} >= {1}",
    "logical_and": "{0} != 0 && {1} != 0", "logical_or": "{0} != 0 || {1} != 0",
    "logical_xor": "({0} != 0) != ({1} != 0)", "logical_not": "{0} == 0",
    "where": "{0} ? {1} : {2}",
    "sign": "{0} > 0 ? 1 : {0} < 0 ? -1 : {0} == 0 ? 0 : {0}",
    "maximum": "{0} >= {1} || {0} != {0} ? {0} : {1}",
    "minimum": "{0} <= {1} || {0} != {0} ? {0} : {1}",
}  # fmt: skip
BOOL = {"bitwise_and": "{0} & {1}", "bitwise_or": "{0} | {1}", "bitwise_xor": "{0} ^ {1}",
        "invert": "!{0}"}  # fmt: skip
FLOAT = {
    "absolute": "fabs{f}({0})", "reciprocal": "1 / {0}", "true_divide": "{0} / {1}",
    "arcsin": "asin{f}({0})", "arccos": "acos{f}({0})", "arctan": "atan{f}({0})",
    "arcsinh": "asinh{f}({0})", "arccosh": "acosh{f}({0})", "arctanh": "atanh{f}({0})",
    "arctan2": "atan2{f}({0}, {1})", "power": "pow{f}({0}, {1})", "gammaln": "lgamma{f}({0})",
    "quick_exp": "exp{f}({0})",
    "fmax": "{0} >= {1} || {1} != {1} ? {0} : {1}", "fmin": "{0} <= {1} || {1} != {1} ? {0} : {1}",
    "isnan": "{0} != {0}", "isinf": "fabs{f}({0}) == INFINITE",
    "isfinite": "fabs{f}({0}) < INFINITE", "signbit": "signbit({0})",
    "remainder": "remainder_of({0}, {1})", "floor_divide": "floor_divide_of({0}, {1})",
    "logaddexp": "logaddexp_of({0}, {1})", "logaddexp2": "logaddexp2_of({0}, {1})",
    **{name: f"{name}{{f}}({{0}})" for name in (
        "sqrt", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan",
        "sinh", "cosh", "tanh", "erf", "erfc", "floor", "ceil", "trunc", "rint")},
    **{name: f"{name}{{f}}({{0}}, {{1}})" for name in ("fmod", "hypot", "copysign", "nextafter")},
}  # fmt: skip

# Aligned as a part is: pairs of floats may begin anywhere. Divided as CuPy does it.
COMPLEX = """\
template <class R> struct Complex {
    R re, im;
    Complex() = default;
    __device__ __forceinline__ Complex(R re, R im = 0) : re(re), im(im) {}
    template <class S> __device__ __forceinline__ explicit Complex(const Complex<S>& x)
        : re((R)x.re), im((R)x.im) {}
};
template <class R> __device__ __forceinline__ Complex<R> operator-(Complex<R> x)
{
    return {-x.re, -x.im};
}
template <class R> __device__ __forceinline__ Complex<R> operator+(Complex<R> x, Complex<R> y)
{
    return {x.re + y.re, x.im + y.im};
}
template <class R> __device__ __forceinline__ Complex<R> operator-(Complex<R> x, Complex<R> y)
{
    return {x.re - y.re, x.im - y.im};
}
template <class R> __device__ __forceinline__ Complex<R> operator*(Complex<R> x, Complex<R> y)
{
    return {x.re * y.re - x.im * y.im, x.re * y.im + x.im * y.re};
}
template <class R> __device__ __forceinline__ Complex<R> operator/(Complex<R> x, Complex<R> y)
{
    const R scale = 1 / (fabs(y.re) + fabs(y.im));
    const R a = x.re * scale, b = x.im * scale, c = y.re * scale, d = y.im * scale;
    const R per = 1 / (c * c + d * d);
    return {(a * c + b * d) * per, (b * c - a * d) * per};
}
template <class R> __device__ __forceinline__ Complex<R> conjugate_of(Complex<R> x)
{
    return {x.re, -x.im};
}
"""

# What NumPy has and CUDA's library lacks, by NumPy's definitions.
INFINITE = "#define INFINITE __int_as_float(0x7F800000)\n"
DEVICE = {
    "remainder_of": """\
template <class T> __device__ __forceinline__ T remainder_of(T a, T b)
{
    T rest = fmod(a, b);  // as Python's: with the sign of b
    if (rest == 0) return copysign(T(0), b);
    return (b < 0) != (rest < 0) ? rest + b : rest;
}
""",
    "floor_divide_of": """\
template <class T> __device__ __forceinline__ T floor_divide_of(T a, T b)
{
    if (b == 0) return a / b;
    T rest = fmod(a, b), whole = (a - rest) / b;
    if (rest != 0 && (b < 0) != (rest < 0)) whole -= 1;
    if (whole == 0) return copysign(T(0), a / b);
    T found = floor(whole);
    return whole - found > T(0.5) ? found + 1 : found;
}
""",
    "logaddexp_of": """\
template <class T> __device__ __forceinline__ T logaddexp_of(T a, T b)
{
    if (a == b) return a + T(0.693147180559945309417);
    T way = a - b;
    return way > 0 ? a + log1p(exp(-way)) : way <= 0 ? b + log1p(exp(way)) : way;
}
""",
    "logaddexp2_of": """\
template <class T> __device__ __forceinline__ T logaddexp2_of(T a, T b)
{
    if (a == b) return a + 1;
    T way = a - b, per = T(1.442695040888963407360);
    return way > 0 ? a + per * log1p(exp2(-way)) : way <= 0 ? b + per * log1p(exp2(way)) : way;
}
""",
}


@cache
def name_of(dtype: Any) -> str:
    """The name of a NumPy dtype, which NumPy itself takes microseconds to find."""
    return str(dtype.name)


def device_functions(lines: Sequence[str]) -> str:
    """What statements call that is not CUDA's."""
    text = "\n".join(lines)
    needed = [code for name, code in DEVICE.items() if f"{name}(" in text]
    return INFINITE * ("INFINITE" in text) + "".join(needed)


def checked(nodes: Sequence[Traced], complexes: bool = False) -> None:
    """Untraceable where a kernel cannot compute a node; `complexes` is whether numbers may be."""
    for node in nodes:
        for dtype in (node.dtype, node.meeting):
            if dtype.name not in COMPUTED or dtype.kind == "c" and not complexes:
                raise Untraceable(f"it computes in {dtype}")
        if node.function in ("input", "number", "astype"):
            continue
        if _template(node) is None:
            raise Untraceable(f"it computes {node.function} of {node.meeting}")
        if node.function == "nextafter" and COMPUTED[node.meeting.name] == "float":
            if node.meeting.name != "float32":
                raise Untraceable(f"it computes {node.function} of {node.meeting}")


def _template(node: Traced) -> str | None:
    kind = node.meeting.kind
    if node.function == "conj":
        return "conjugate_of({0})"
    if kind == "c" and node.function == "true_divide":
        return FLOAT["true_divide"]
    if kind == "b" and node.function in BOOL:
        return BOOL[node.function]
    if kind in "fV" and node.function in FLOAT:
        return FLOAT[node.function]
    if kind == "b" and node.function in ("negative", "sign", "subtract", "add", "multiply"):
        return None
    return ANY.get(node.function)


def value_of(node: Traced) -> Any:
    """A number, as `struct` packs it."""
    value = node.value
    if node.dtype.kind == "b":
        return bool(value)
    if node.dtype.kind in "iu":
        return int(value)
    return float(value)


def number_format(node: Traced) -> str:
    """The letter of `struct` for a number."""
    letter = NUMBER_FORMATS.get(COMPUTED[node.dtype.name])
    if letter is None:
        raise Untraceable(f"it computes with a number of {node.dtype}")
    return letter


def literal(node: Traced) -> str:
    """A number as C writes it."""
    value = value_of(node)
    if node.dtype.kind not in "fVc":
        return str(value).lower()
    short = number_format(node) == "f"
    if short:
        with np.errstate(over="ignore"):
            value = float(np.float32(value))
    if math.isfinite(value):
        return _decimal(value, short)
    sign = "-" if math.copysign(1, value) < 0 else ""
    text = "__int_as_float(0x7FC00000)" if math.isnan(value) else f"{sign}INFINITE"
    return f"({text})" if short else f"((double){text})"


def _decimal(value: float, short: bool) -> str:
    text = f"{value:.9g}" if short else repr(value)
    if "." not in text and "e" not in text:
        text += ".0"
    return f"({text}f)" if short else f"({text})"


def statements(
    nodes: Sequence[Traced], inputs: dict[int, str], numbers: dict[int, str] | None
) -> tuple[list[str], dict[int, str]]:
    """One statement for each node that computes, and what nodes are called in C.

    `inputs` are what input elements are called, by their index; `numbers` what numbers are called,
    by node, or None where they are written out.
    """
    lines: list[str] = []
    names: dict[int, str] = {}
    for node in nodes:
        ctype = COMPUTED[node.dtype.name]
        if node.function == "input":
            names[node.name] = inputs[node.value]
            continue
        if node.function == "number":
            text = literal(node) if numbers is None else numbers[node.name]
            names[node.name] = f"{ctype}({text})" if node.dtype.kind == "c" else text
            continue
        operands = [names[x.name] for x in node.operands]
        if node.function == "astype":
            before = COMPUTED[node.operands[0].dtype.name]
            if before == ctype:
                names[node.name] = operands[0]
                continue
            text = f"{operands[0]} != 0" if ctype == "bool" else f"({ctype}){operands[0]}"
        else:
            template = _template(node)
            assert template is not None
            f = "f" if COMPUTED[node.meeting.name] == "float" else ""
            text = template.format(*operands, f=f)
        names[node.name] = f"t{node.name}"
        lines.append(f"const {ctype} t{node.name} = {text};")
    return lines, names


def signature(nodes: Sequence[Traced], outputs: Sequence[Traced], values: bool) -> str:
    """What two graphs share that have the same kernel; with `values`, the numbers too."""
    place = {node.name: k for k, node in enumerate(nodes)}
    parts = [
        f"{node.function}:{node.dtype.name}:{node.meeting.name}:"
        f"{','.join(str(place[x.name]) for x in node.operands)}:"
        + (repr(node.value) if values or node.function == "input" else "")
        for node in nodes
    ]
    return ";".join(parts) + "|" + ",".join(str(place[x.name]) for x in outputs)
