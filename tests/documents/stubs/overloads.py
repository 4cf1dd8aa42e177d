"""What of PyTorch's documented signatures holds of a function that is here.

An argument that is not called so here can be given by its place only; one that is not here at all
is left out, and so is an overload that needs it.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from typing import Any

from cugrad.functions.calls import out
from tests.documents.stubs.recording import RECORD

Kind = inspect._ParameterKind
BY_PLACE = (Kind.POSITIONAL_ONLY, Kind.POSITIONAL_OR_KEYWORD)
BY_NAME = (Kind.POSITIONAL_OR_KEYWORD, Kind.KEYWORD_ONLY)


def recorded() -> dict[str, list[str]]:
    """PyTorch's signatures, and types of attributes, by name: `Tensor.sum`, `stack`."""
    texts: dict[str, list[str]] = {}
    for line in RECORD.read_text().splitlines():
        if not line.startswith("#"):
            name, text = line.split("\t")
            texts.setdefault(name, []).append(text)
    return texts


class Callee:
    """A function as it can be called: by how many places, by which names."""

    def __init__(self, name: str, function: Callable[..., Any], is_method: bool) -> None:
        parameters = list(inspect.signature(function).parameters.values())[is_method:]
        kinds = {p.kind for p in parameters}
        self.is_method = is_method
        self.places = [p.name for p in parameters if p.kind in BY_PLACE]
        self.names = {p.name for p in parameters if p.kind in BY_NAME}
        self.takes_more = Kind.VAR_POSITIONAL in kinds
        self.takes_any_name = Kind.VAR_KEYWORD in kinds
        for theirs, ours in out._ALSO.get(name, {}).items():
            self.names |= {theirs} if ours in self.names else set()
        if "device" in self.names:
            self.names |= set(out._PLACING)

    def takes(self, name: str) -> bool:
        return name in self.names or self.takes_any_name

    def adapted(self, text: str) -> str | None:
        """An overload with what can be given here; None where there is none such."""
        node = ast.parse(f"def f{text}: ...").body[0]
        assert isinstance(node, ast.FunctionDef) and node.returns is not None
        a = node.args
        if a.vararg is not None and not self.takes_more:
            return None
        plain = [*a.posonlyargs, *a.args]
        defaults = [None] * (len(plain) - len(a.defaults)) + list(a.defaults)
        first = [plain.pop(0).arg] if self.is_method else []
        defaults = defaults[self.is_method :]
        places, named, only = [], [], len(a.posonlyargs) - self.is_method
        for i, (each, default) in enumerate(zip(plain, defaults)):
            if i < len(self.places) or self.takes_more:
                places.append(shown(each, default))
                if not self.takes(each.arg):
                    only = i + 1
            elif each.arg in self.names:
                named.append(shown(each, default))
            elif default is None:
                return None
        for each, value in zip(a.kwonlyargs, a.kw_defaults):
            if self.takes(each.arg):
                named.append(shown(each, value))
            elif value is None:
                return None
        if a.vararg is not None:
            named.insert(0, f"*{ast.unparse(a.vararg)}")
        elif named:
            named.insert(0, "*")
        if only > 0:
            places.insert(only, "/")
        return f"({', '.join(first + places + named)}) -> {ast.unparse(node.returns)}"


def shown(argument: ast.arg, default: ast.expr | None) -> str:
    return ast.unparse(argument) + ("" if default is None else f" = {ast.unparse(default)}")


def overloads(name: str, texts: list[str], function: Any, is_method: bool) -> list[str]:
    """The recorded signatures that hold of `function`, each once."""
    callee = Callee(name, function, is_method)
    adapted = [callee.adapted(text) for text in texts]
    return [*dict.fromkeys(text for text in adapted if text is not None)]
