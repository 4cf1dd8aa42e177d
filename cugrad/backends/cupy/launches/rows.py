"""Rows, and their gradients, by the launches that are kept for the form of their arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import cupy
import numpy as np

from ....dtypes import is_floating
from ...moments import waiting
from ...wanted import wanted
from .starting import noted
from .straight import Function

__all__ = [
    "MOST_PLANS", "Gradients", "Kept", "form_of_array", "form_of_arrays", "key_of", "key_text",
    "named", "of_array_or_none", "of_array_or_value", "straight", "told_of",
]  # fmt: skip

Array = Any  # cupy.ndarray
ndarray = cupy.ndarray
MOST_PLANS = 4096  # of one row; then it begins anew
MOST_FORMS = 1 << 16  # of arrays; the others have other names then
UNFIT = object()  # what a node would be told, where there can be none: see `told_of`


def named(value: Any) -> tuple[type, Any]:
    """What a value that is no array is called in a key: its class and itself, unless equals may
    differ, as 0.0 and -0.0 do.
    """
    kind = type(value)
    if kind is float or isinstance(value, np.generic):
        value = float(value)
        return kind, value if value and value == value else repr(value)
    if kind is int or kind is str or isinstance(value, np.dtype):
        return kind, value
    return kind, repr(value)


class ArrayForm:
    """An array's dtype, shape and strides: the same object for all arrays that are alike, so that
    a key is found by where it lies.
    """

    __slots__ = ()


_forms: dict[Any, ArrayForm] = {}


def named_form(x: Any) -> ArrayForm | None:
    """The form of an array; None of what is none of CuPy's."""
    if type(x) is not ndarray:
        return None
    facts = x._c_contiguous or x.strides, x.dtype, x.shape
    form = _forms.get(facts)
    if form is None:
        if len(_forms) >= MOST_FORMS:
            _forms.clear()
        form = _forms.setdefault(facts, ArrayForm())
    return form


def form_of_array(name: str) -> str:
    """The form of an array in a key, as text. What is no array of CuPy has no `_c_contiguous`."""
    return f"{name}._c_contiguous or {name}.strides, {name}.dtype, {name}.shape"


def of_array_or_none(name: str) -> str:
    """The same of what may be None."""
    return f"None if {name} is None else ({form_of_array(name)})"


def form_of_arrays(name: str) -> str:
    """The forms of several arrays in a key, as text."""
    return f"tuple([({form_of_array('x')}) for x in {name}])"


def of_array_or_value(name: str) -> str:
    """The same of what may be a number, or None."""
    return f"(({form_of_array(name)}) if type({name}) is ndarray else named({name}))"


# Names that are made here begin with an underscore, because arguments have theirs there.
STRAIGHT = """\
def key({names}):
    {opening}
    return {key}

def run({signature}):
    {opening}{within}
    try:
        _launch, _, _ = launches[{key}]
    except Exception:  # nothing is kept, or an operand is of another kind
        _launch = None
    if _launch is None:
        return first({names})
    _answer = _launch({names})
    return general({names}) if _answer is None else _answer
"""
# What a run that is noted down calls launches anew: what is kept is not noted.
WITHIN = """
    if noted.calls is not None:
        return general({names})"""
# What texts of keys refer to.
SCOPE = {
    "wanted": wanted, "waiting": waiting, "ndarray": ndarray, "named": named, "UNFIT": UNFIT,
    "named_form": named_form, "noted": noted,
}  # fmt: skip
Launches = dict[Any, tuple[Function, Any, Any]]


class Kept(NamedTuple):
    """What is kept of a row: by the form of its operands a launch, what nodes are told of them, and
    the form of the first result, if that is an array.

    `key` is the text of a form, in the row's operands and parameters by whatever names, or with
    these parts in the place of those of the operands. `by_forms` has the same launches by the forms
    that tensors have, where all operands have one.
    """

    launches: Launches
    by_forms: Launches
    key: Callable[..., str]
    scope: dict[str, Any] = SCOPE


def straight(
    names: Sequence[str], key: Callable[..., str], general: Function, begin: Function,
    defaults: Mapping[str, Any] | None = None, opening: str = "pass", within: bool = False,
) -> Any:  # fmt: skip
    """`general` as a function of `names`, by the launches that are kept where `key` is the same.

    `begin(*arguments)` answers as `general` does, with the launch to keep for arguments of their
    form, or None, and with what nodes are told. `opening` is a line that makes names of `names`.
    `within`: what written kernels call, whose run may be noted down.
    """
    launches: Launches = {}
    by_forms: Launches = {}

    def first(*args: Any) -> Any:
        form = None
        with suppress(AttributeError, KeyError, TypeError):  # an operand is of another kind
            form = scope["key"](*args)
        result, launch, told = begin(*args)
        if launch is not None and form is not None:
            if len(launches) >= MOST_PLANS:
                launches.clear()
                by_forms.clear()
            shown = named_form(result[0] if type(result) in (list, tuple) else result)
            with suppress(TypeError):  # a value has no hash
                launches[form] = launch, told, shown
        return result

    defaults = defaults or {}
    scope: dict[str, Any] = {
        **SCOPE, "__name__": __name__, "launches": launches, "first": first, "general": general,
        **{f"default_{n}": d for n, d in defaults.items()},
    }  # fmt: skip
    signature = ", ".join(f"{n}=default_{n}" if n in defaults else n for n in names)
    exec(
        STRAIGHT.format(
            names=", ".join(names),
            key=key(names),
            signature=signature,
            opening=opening,
            within=WITHIN.format(names=", ".join(names)) if within else "",
        ),
        scope,
    )
    run: Any = scope["run"]
    run.kept, run.general = Kept(launches, by_forms, key), general
    return run


def key_text(parts: Sequence[str], names: Sequence[str]) -> str:
    """The text of a key of these parts; what a tuple in a tuple costs is spared where the operand
    that may be a number, of which there is one, is an array.
    """
    text = ", ".join(parts)
    either = [name for name in names if of_array_or_value(name) in parts]
    if len(either) != 1:
        return f"({text},)"
    (name,) = either
    whole, array = of_array_or_value(name), form_of_array(name)
    number = text.replace(whole, f"named({name})")
    return f"({text.replace(whole, array)},) if type({name}) is ndarray else ({number},)"


def key_of(op: Any, part: Callable[[int, str], str], value: str, *more: str) -> Callable[..., str]:
    """The text of a row's key: `part(i, name)` of its operands, `value` of its parameters, and
    more.
    """

    def key(names: Sequence[str], forms: Sequence[str] | None = None) -> str:
        count = len(op.inputs)
        parts = [part(i, name) for i, name in enumerate(names[:count])]
        parts = parts if forms is None else [*forms]
        parts += [value.format(name) for name in names[count:]]
        return key_text(["wanted.number", *parts, *more], names[:count])

    return key


def told_of(op: Any, args: Sequence[Any], result: Any) -> Any:
    """What a node of a row keeps of its operands, if they are of one dtype: the `meta` of a node;
    None where gradients come in the form of their inputs by themselves. `UNFIT` where the fast
    path makes no node, since the result is of another dtype, but for casts between float dtypes.
    """
    count = len(op.inputs)
    operands, values = args[0] if op.variadic else args[:count], args[count:]
    if op.promoted and not op.variadic and any(op.formulas):
        ends = result[op.differentiable[0]] if type(result) is tuple else result
        casts = op.kind == "elementwise" and count == 1 and is_floating(ends.dtype)
        if not casts and getattr(operands[op.promoted[0]], "dtype", None) != ends.dtype:
            return UNFIT
    if op.kind == "elementwise" and not values and op.holomorphic:
        dtype, arrays = result.dtype, [operands[i] for i in op.promoted]
        arrays = [x for x in arrays if type(x) is ndarray]
        alike = all(x.shape == result.shape and x.dtype == dtype for x in arrays)
        if alike and dtype.name in ("float32", "float64"):
            return None
    shapes = tuple([getattr(x, "shape", ()) for x in operands])
    dtypes = tuple([getattr(x, "dtype", None) for x in operands])
    first = result[0] if type(result) is tuple else result
    conjugates = op.holomorphic and first.dtype.kind == "c"
    return shapes, dict(zip(op.params, values)), dtypes, None, conjugates


class Gradients:
    """How a node's gradients are a function of `g, saved, meta` in a straight line.

    `saved` are the names of what the node has saved, and `opening` the line that makes them.
    """

    names = ("g", "saved", "meta")

    def __init__(self, op: Any, mask: int) -> None:
        self.saved = [f"s{k}" for k in range(len(op.saves(mask)))]
        rest = ", *_" if op.held else ","
        self.opening = f"{', '.join(self.saved)}{rest} = saved" if self.saved else "pass"
        params = "".join(f", named(meta[1][{name!r}])" for name in op.params)
        parts = ["wanted.number", form_of_array("g"), *map(of_array_or_value, self.saved),
                 f"meta and (meta[0], meta[2], meta[3]{params})"]  # fmt: skip
        self.key = key_text(parts, self.saved)

    def arrays(self, g: Array, saved: Sequence[Any]) -> dict[str, Array]:
        """Those among the gradient and what was saved that are arrays, by name."""
        named = {"g": g, **dict(zip(self.saved, saved))}
        return {name: x for name, x in named.items() if type(x) is ndarray}

    def straight(self, general: Function, begin: Function) -> Function:
        """`general`, a function of `g, saved, meta`, by launches that are kept: see `straight`."""
        return straight(self.names, lambda _: self.key, general, begin, opening=self.opening)
