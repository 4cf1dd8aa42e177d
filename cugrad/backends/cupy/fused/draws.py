"""Numbers that are drawn, and what a function makes of them, as one kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...traced.arrays import NUMBERS, Trace, Untraceable
from ...traced.namespace import TracedNamespace
from ..kernels import philox
from ..launches.rows import MOST_PLANS, named
from .elements import code_of, raw_kernel
from .expressions import STORED
from .source import element, headers_of

__all__ = ["Drawing", "drawing_of"]

Dtype = np.dtype[Any]


class Drawing(NamedTuple):
    """A kernel, and the numbers that it is told behind the arrays that it reads."""

    kernel: Any
    numbers: tuple[np.generic, ...]


_drawings: dict[Any, Drawing | None] = {}


def drawing_of(
    law: str, drawn: Dtype, function: Callable[..., Any] | None, arrays: Sequence[Dtype],
    numbers: Sequence[Any], dtype: Dtype,
) -> Drawing | None:  # fmt: skip
    """That of `function(xp, x, *arrays, *numbers)`, or of x itself, which is a number of a law of
    philox in the dtype `drawn`; in `dtype`. None where no kernel can compute it.
    """
    if any(type(x) not in NUMBERS and not isinstance(x, np.generic) for x in numbers):
        return None
    key = law, drawn, function, tuple(arrays), tuple(map(named, numbers)), dtype
    if key not in _drawings:
        if len(_drawings) >= MOST_PLANS:
            _drawings.clear()
        try:
            _drawings[key] = _made(law, drawn, function, arrays, numbers, dtype)
        except (Untraceable, OverflowError):  # the general way says what is wrong
            _drawings[key] = None
    return _drawings[key]


def _made(
    law: str, drawn: Dtype, function: Callable[..., Any] | None, arrays: Sequence[Dtype],
    numbers: Sequence[Any], dtype: Dtype,
) -> Drawing:  # fmt: skip
    trace, xp = Trace(), TracedNamespace()
    x, *read = [trace.input(k, kind) for k, kind in enumerate((drawn, *arrays))]
    result = (x if function is None else function(xp, x, *read, *numbers)).astype(dtype)
    name = f"drawn_{law}" if function is None else f"drawn_{function.__name__.strip('_')}"
    names = [kind.name for kind in arrays]
    code = code_of(
        result, {0: "v[j]", **{k: element("e", k, kind) for k, kind in enumerate(names, 1)}}
    )
    told = "".join(f", const {STORED[kind]}* in{k}" for k, kind in enumerate(names, 1))
    reads = [f"const {STORED[kind]} p{k} = in{k}[at];" for k, kind in enumerate(names, 1)]
    text = philox.kernel(
        name, philox.LAWS[law], STORED[dtype.name], told + code.told, [*reads, *code.lines],
        code.value,
    )  # fmt: skip
    head = headers_of([*names, dtype.name]) + philox.DEVICE + code.head
    return Drawing(raw_kernel(head + text, name), code.numbers)
