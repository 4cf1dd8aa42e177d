"""Python code of a graph: the text of a `forward` that does what its nodes say."""

from __future__ import annotations

import enum
import typing
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from types import UnionType
from typing import Any, NamedTuple

from ..device import device
from ..tensor import Tensor
from ..utils import _pytree as pytree
from .metadata import TensorMetadata, dtype_name
from .naming import BUILTINS, Namespace, is_ours, qualified_name, type_name
from .node import Node
from .operators import INPLACE, OPERATORS

__all__ = ["CodeGen", "PythonCode"]

_TYPING: dict[Any, Any] = {
    list: typing.List, dict: typing.Dict, set: typing.Set,  # noqa: UP006
    frozenset: typing.FrozenSet, tuple: typing.Tuple,  # noqa: UP006
}  # fmt: skip
_COLORS = {"red": "31", "blue": "34", "dim": "2", "dim_blue": "2;34", "dim_green": "2;32"}


@dataclass
class PythonCode:
    """A graph's text, `src`, and `globals`: what the names in it mean."""

    src: str
    globals: dict[str, Any]


class _PyTreeInfo(NamedTuple):
    """The argument names, and the forms, of a function whose arguments or results are nested."""

    orig_args: list[str]
    in_spec: pytree.TreeSpec
    out_spec: pytree.TreeSpec | None


class CodeGen:
    """How the first and the last line of the text are written; between them stand the nodes."""

    def __init__(self) -> None:
        self._body_transformer: Callable[[list[str]], list[str]] | None = None
        self._func_name = "forward"

    def gen_fn_def(
        self, free_vars: list[str], maybe_return_annotation: str, *, expanded_def: bool = False
    ) -> str:
        """The line `def forward(self, a, b):`; with `expanded_def` each argument on its own."""
        if not free_vars or free_vars[0] != "self":
            free_vars.insert(0, "self")
        if not expanded_def:
            return f"def {self._func_name}({', '.join(free_vars)}){maybe_return_annotation}:"
        lines = "".join(f"    {v},\n" for v in free_vars)
        return f"def {self._func_name}(\n{lines}){maybe_return_annotation}:"

    def generate_output(
        self, output_args: Any, *, repr_fn: Callable[[Any], str] | None = None
    ) -> str:
        """The line `return ...`."""
        return f"return {(repr_fn or repr)(output_args)}"

    def process_inputs(self, *args: Any) -> Any:
        """The values of the graph's placeholders, of the arguments of `forward`."""
        return args

    def process_outputs(self, outputs: Any) -> Any:
        """What `forward` returns, of what the graph does."""
        return outputs

    def additional_globals(self) -> list[tuple[str, Any]]:
        """Names that the first and last line use, and what they are."""
        return []


class _PyTreeCodeGen(CodeGen):
    """Code of a function whose arguments or results are nested."""

    def __init__(self, pytree_info: _PyTreeInfo) -> None:
        super().__init__()
        self.pytree_info = pytree_info

    def process_inputs(self, *inputs: Any) -> Any:
        return pytree.arg_tree_leaves(*inputs)

    def process_outputs(self, out: Any) -> Any:
        if self.pytree_info.out_spec is None:
            return out
        leaves = out if isinstance(out, (list, tuple)) else [out]
        return pytree.tree_unflatten(leaves, self.pytree_info.out_spec)

    def gen_fn_def(
        self, free_vars: list[str], maybe_return_annotation: str, *, expanded_def: bool = False
    ) -> str:
        names = self.pytree_info.orig_args
        if names and names[0] == "self":
            free_vars.insert(0, "self")
        text = super().gen_fn_def(names[:], maybe_return_annotation, expanded_def=expanded_def)
        if not free_vars:
            return text
        typed = [v for v in free_vars if ":" in v]
        if typed and expanded_def:
            text += "\n    " + "\n    ".join(typed)
        elif typed:
            text += "\n    " + "".join(f"{v}; " for v in typed) + "\n"
        bare = [v.split(":")[0].split("#")[0] for v in free_vars]
        taken = f"[{', '.join(names)}], self._in_spec"
        return f"{text}\n    {', '.join(bare)}, = fx_pytree.tree_flatten_spec({taken})"

    def generate_output(
        self, output_args: Any, *, repr_fn: Callable[[Any], str] | None = None
    ) -> str:
        if not self.pytree_info.out_spec:
            return super().generate_output(output_args, repr_fn=repr_fn)
        return f"return pytree.tree_unflatten({(repr_fn or repr)(output_args)}, self._out_spec)"


@dataclass
class Style:
    """How much the text says."""

    verbose: bool = False
    include_stride: bool = False
    include_device: bool = False
    colored: bool = False
    expanded_def: bool = False

    def paint(self, color: str, text: str) -> str:
        """The text in a color of the terminal's, if there are colors."""
        return f"\033[{_COLORS[color]}m{text}\033[0m" if self.colored else text


class CodeWriter:
    """Writes the nodes of one graph, one line each, and collects the globals."""

    def __init__(self, root: str, names: Namespace, style: Style) -> None:
        self.root, self.names, self.style = root, names, style
        self.globals: dict[str, Any] = {}
        self.arguments: list[str] = []
        self.body: list[str] = []
        self.returns = ""
        self.wrapped: dict[str, None] = {}
        self.told = ""
        for name, (_, obj) in BUILTINS.items():
            self.add_global(name, obj)

    def add_global(self, hint: str, obj: Any) -> str:
        """The name for what is outside of the graph; `torch.` is in reach of all code."""
        if is_ours(obj) and obj is not device:
            return qualified_name(obj)
        name = self.names.create_name(hint, obj)
        self.globals.setdefault(name, obj)
        return name

    def type(self, kind: Any) -> str:
        """A type as an annotation."""
        if kind == ():
            return "()"
        name = type_name(kind)
        if isinstance(kind, UnionType) and "|" in name:
            return "|".join(self.type(part) for part in typing.get_args(kind))
        origin = getattr(kind, "__origin__", None)
        if origin is None:
            return self.add_global(name, kind)
        if isinstance(kind, typing._GenericAlias):  # type: ignore[attr-defined]
            origin = _TYPING.get(origin, origin)
        name, parts = self.add_global(type_name(origin), origin), typing.get_args(kind)
        return f"{name}[{','.join(map(self.type, parts))}]" if parts else name

    def value(self, arg: Any) -> str:
        """An argument."""
        if isinstance(arg, Node):
            return repr(arg)
        if isinstance(arg, tuple) and hasattr(arg, "_fields"):
            return f"{self.add_global(qualified_name(type(arg)), type(arg))}{tuple(arg)!r}"
        if isinstance(arg, enum.Enum):
            return f"{self.add_global(type(arg).__name__, type(arg))}.{arg.name}"
        if isinstance(arg, Tensor):
            return f"torch.Tensor(size={list(arg.shape)}, dtype={str(arg.dtype).split('.')[-1]})"
        if isinstance(arg, tuple):
            return f"({', '.join(map(self.value, arg))}{',' if len(arg) == 1 else ''})"
        if isinstance(arg, list):
            return f"[{', '.join(map(self.value, arg))}]"
        if isinstance(arg, slice):
            return f"slice({', '.join(map(self.value, (arg.start, arg.stop, arg.step)))})"
        return self.style.paint("blue", repr(arg))

    def values(self, args: Sequence[Any], kwargs: dict[str, Any]) -> str:
        """The arguments of a call."""
        by_name = [f"{k} = {self.value(v)}" for k, v in kwargs.items()]
        return ", ".join([*map(self.value, args), *by_name])

    def annotation(self, node: Node) -> str:
        """What is behind the name of a node's result: its type, or with `verbose` its shape."""
        text = "" if node.type is None else f" : {self.type(node.type)}"
        if not self.style.verbose:
            return text
        value = node.meta.get("val", node.meta.get("tensor_meta", node.meta.get("example_value")))
        if isinstance(value, TensorMetadata):
            return f': "{dtype_name(value.dtype)}{_shape(value.shape)}"'
        if not isinstance(value, Tensor):
            return text
        paint = self.style.paint
        stride = _shape(value.stride()) if self.style.include_stride else ""
        place = str(value.device) if self.style.include_device else ""
        core = (paint("red", dtype_name(value.dtype)) + paint("blue", _shape(value.shape))
                + paint("dim_blue", stride) + paint("dim_green", place))  # fmt: skip
        kind = type(value)
        return f': "{core}"' if kind is Tensor else f': "{kind.__name__}({core})"'

    def write(self, node: Node, codegen: CodeGen) -> None:
        """The node's line; a placeholder becomes an argument of the function."""
        if node.op == "output":
            self.returns = "" if node.type is None else f" -> {self.type(node.type)}"
            self.body.append(codegen.generate_output(node.args[0], repr_fn=self.value))
            return
        name, kind = repr(node), self.annotation(node)
        if node.op == "placeholder":
            default = f" = {self.value(node.args[0])}" if node.args else ""
            self.arguments.append(f"{node.target}{kind}{default}")
            bare = str(node.target).replace("*", "")
            if bare != name:
                self.body.append(f"{name} = {bare}\n")
            return
        target = getattr(node.target, "__name__", "")
        is_operator = getattr(node.target, "__module__", "") == "_operator"
        if node.op == "call_function" and is_operator and target in INPLACE:
            changed = INPLACE[target].format(*map(self.value, node.args))
            self.body.append(f"{changed};  {name}{kind} = {self.value(node.args[0])}")
        else:
            self.body.append(f"{name}{kind} = {self.call(node)}")

    def call(self, node: Node) -> str:
        """What stands behind the equals sign."""
        args, target = node.args, node.target
        if node.op == "call_method":
            called = _dotted(self.value(args[0]), str(target))
            return f"{called}({self.values(args[1:], node.kwargs)})"
        if node.op == "call_module":
            return f"{_dotted(self.root, str(target))}({self.values(args, node.kwargs)})"
        if node.op == "get_attr":
            return _dotted(self.root, str(target))
        assert not isinstance(target, str)
        if getattr(target, "__module__", "") == "_operator" and target.__name__ in OPERATORS:
            return OPERATORS[target.__name__].format(*map(self.value, args))
        called = self.add_global(qualified_name(target), target)
        is_name = len(args) == 2 and isinstance(args[1], str) and args[1].isidentifier()
        if called == "getattr" and is_name:
            return _dotted(self.value(args[0]), args[1])
        if node.meta.get("is_wrapped", False):
            self.wrapped.setdefault(called)
        return f"{called}({self.values(args, node.kwargs)})"

    def tell_origin(self, node: Node) -> None:
        """A comment with the line of the program where the call was made."""
        if node.op in ("placeholder", "output"):
            return
        place = _innermost(node.stack_trace) or "No stacktrace found for following nodes"
        text = f"\n{self.style.paint('dim', f'# {place}')}\n"
        if text != self.told:
            self.told = text
            self.body.append(text)


def written(
    nodes: Iterable[Node], codegen: CodeGen, root: str, names: Namespace, style: Style
) -> PythonCode:
    """The code of a graph's nodes, which go by their names in the namespace."""
    nodes = list(nodes)
    writer = CodeWriter(root, names, style)
    last = last_uses(nodes)
    for node in nodes:
        if style.verbose:
            writer.tell_origin(node)
        writer.write(node, codegen)
        if node.op == "placeholder":
            continue
        gone = [*last.get(node, ()), *([] if node.users else [node])]
        if node.op == "output" or not gone:
            writer.body.append("\n")
        else:
            text = " = ".join([*map(repr, gone), "None"])
            writer.body.append(f";  {style.paint('dim', text)}\n")
    lines = writer.body or ["pass\n"]
    wraps = ""
    if writer.wrapped:
        from ._symbolic_trace import wrap

        wrap_name = writer.add_global("wrap", wrap)
        wraps = "\n".join(f'{wrap_name}("{name}")' for name in writer.wrapped)
    if codegen._body_transformer is not None:
        lines = codegen._body_transformer(lines)
    for name, obj in codegen.additional_globals():
        writer.add_global(name, obj)
    start = codegen.gen_fn_def(writer.arguments, writer.returns, expanded_def=style.expanded_def)
    code = "\n".join(f"    {line}" for line in "".join(lines).lstrip("\n").split("\n"))
    return PythonCode(f"\n{wraps}\n\n{start}\n{code}", writer.globals)


def last_uses(nodes: Iterable[Node]) -> dict[Node, list[Node]]:
    """By node: the nodes whose results are not used after it."""
    last: dict[Node, list[Node]] = {}
    seen: set[Node] = set()
    for user in reversed(list(nodes)):
        for node in user._input_nodes:
            if node not in seen:
                seen.add(node)
                last.setdefault(user, []).append(node)
    return last


def _dotted(base: str, path: str) -> str:
    for part in path.split("."):
        base = f"{base}.{part}" if part.isidentifier() else f'getattr({base}, "{part}")'
    return base


def _shape(shape: Iterable[int]) -> str:
    return f"[{', '.join(map(str, shape))}]"


def _innermost(trace: str | None) -> str | None:
    """The last place of a stack trace, in a line."""
    lines = (trace or "").strip().split("\n")
    for line, code in reversed(list(zip(lines, lines[1:]))):
        file, at, rest = line.strip().partition('", line ')
        number, _, function = rest.partition(", in ")
        if at and file.startswith('File "'):
            return f"File: {file[6:]}:{number} in {function}, code: {code.strip()}"
    return None
