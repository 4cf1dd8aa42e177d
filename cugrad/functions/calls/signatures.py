"""What `help` and `inspect.signature` say of a function whose Python arguments say less."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from inspect import Parameter
from types import MappingProxyType
from typing import Any

from ...ops.table import Op

__all__ = ["Signature"]

OUT = Parameter("out", Parameter.KEYWORD_ONLY, default=None)


class Signature(inspect.Signature):
    """A signature with `out=None`, made when it is asked for.

    Of a compiled row, whose first argument is `input` and which all may be given by name, it is
    that of the row, which says whether there is an `out`.
    """

    __slots__ = ("_function", "_op", "_out")

    def __init__(self, function: Callable[..., Any], op: Op | None = None) -> None:
        self._function, self._op = function, op
        self._out = op is None or op.out
        self._return_annotation = function.__annotations__.get("return", "Tensor")

    @property
    def _parameters(self) -> MappingProxyType[str, Parameter]:
        op, parameters = self._op, list[Parameter]()
        if op is None:
            parameters.extend(inspect.signature(self._function).parameters.values())
        else:
            for name in ("input", *op.inputs[1:], *op.params):
                default = None if name in op.optional else op.defaults.get(name, Parameter.empty)
                parameters.append(Parameter(name, Parameter.POSITIONAL_OR_KEYWORD, default=default))
        if self._out:
            last = (
                parameters[-1:]
                if parameters and parameters[-1].kind is Parameter.VAR_KEYWORD
                else []
            )
            parameters = [*parameters[: len(parameters) - len(last)], OUT, *last]
        return MappingProxyType({p.name: p for p in parameters})

    @property
    def parameters(self) -> MappingProxyType[str, Parameter]:
        return self._parameters
