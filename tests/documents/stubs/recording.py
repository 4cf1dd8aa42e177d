"""Writes down PyTorch's signatures, as its type stubs document them: one line for each overload.

`python -m tests.documents.stubs --record`, where PyTorch is installed.
"""

from __future__ import annotations

import ast
import importlib.util
import re
from pathlib import Path

RECORD = Path(__file__).resolve().parent / "torch_signatures.txt"
STUBS = {"": "_C/_VariableFunctions.pyi", "Tensor": "_C/__init__.pyi",
         "return_types": "return_types.pyi"}  # fmt: skip
HEAD = "# PyTorch 2.13's signatures, by python -m tests.documents.stubs --record\n"
# such as `add(self, alpha, other)`: arguments in the order that they once had
DEPRECATED = re.compile(r"\b(?:self: Tensor, (?:alpha|beta|value)|beta: .*, self: Tensor)")
# What is not here, or has another name here.
WORDS = {"SymInt": "_int", "IntLikeType": "_int", "_symsize": "_size", "list": "list[Any]",
         "Callable": "Callable[..., Any]", "S": "Tensor", "Self": "Tensor", "Storage": "Any",
         "TypedStorage": "Any", "UntypedStorage": "Any", "Stream": "Any", "_qscheme": "Any",
         "ndarray": "ndarray[Any, Any]"}  # fmt: skip
PRIVATE = ("_base", "_version", "_grad", "_is_view", "_make_subclass")


class Plain(ast.NodeTransformer):
    """A type as a library without symbolic sizes has it."""

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        members = dict.fromkeys(self.members(node))  # in order, each once
        for symbolic in ("SymInt", "SymFloat"):
            members.pop(symbolic, None)
        for member in [*members]:
            if member.startswith("list[") and f"tuple[{member[5:-1]}, ...]" in members:
                members.pop(member)
                members = {
                    f"Sequence[{member[5:-1]}]" if m == f"tuple[{member[5:-1]}, ...]" else m: None
                    for m in members
                }
        return ast.parse(" | ".join(members), mode="eval").body

    def members(self, node: ast.AST) -> list[str]:
        if isinstance(node, ast.BinOp):
            return self.members(node.left) + self.members(node.right)
        return [ast.unparse(node)]

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.parse(WORDS.get(node.id, node.id), mode="eval").body

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        if ast.unparse(node.value) not in ("list", "Callable"):  # which alone mean other things
            node.value = self.visit(node.value)
        node.slice = self.visit(node.slice)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if ast.unparse(node.value) == "torch":
            return ast.Name(node.attr)
        self.generic_visit(node)
        return node


def signature(function: ast.FunctionDef) -> str:
    """`(input: Tensor, dim: _int = 0) -> Tensor`."""
    arguments = function.args
    arguments.defaults = [plain_default(d) for d in arguments.defaults]
    arguments.kw_defaults = [d and plain_default(d) for d in arguments.kw_defaults]
    for node in ast.walk(arguments):
        if isinstance(node, ast.arg) and node.annotation is not None:
            node.annotation = Plain().visit(node.annotation)
    returns = "Any" if function.returns is None else ast.unparse(Plain().visit(function.returns))
    return f"({ast.unparse(arguments)}) -> {returns}"


def plain_default(default: ast.expr) -> ast.expr:
    is_plain = isinstance(default, (ast.Constant, ast.UnaryOp))
    return default if is_plain else ast.Constant(...)


def lines_of(space: str, body: list[ast.stmt]) -> list[str]:
    lines = []
    for node in body:
        if isinstance(node, ast.FunctionDef):
            name, text = node.name, signature(node)
            if any(ast.unparse(d) in ("property", "classmethod") for d in node.decorator_list):
                continue
        elif isinstance(node, ast.AnnAssign):
            name, text = ast.unparse(node.target), ast.unparse(Plain().visit(node.annotation))
        else:
            continue
        if name.startswith("__") == name.endswith("__") and (
            not name.startswith("_") or name.startswith("__") and space or name in PRIVATE
        ):
            lines.append(f"{space}.{name}".lstrip(".") + f"\t{text}")
    return lines


def fields_of(node: ast.ClassDef) -> str:
    """The fields of a named tuple: `values: Tensor, indices: Tensor`."""
    return ", ".join(
        f"{each.name}: {ast.unparse(Plain().visit(each.returns))}"
        for each in node.body
        if isinstance(each, ast.FunctionDef) and each.returns and not each.name.startswith("_")
    )


def record() -> None:
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        raise SystemExit("PyTorch is not installed: there is nothing to write down")
    lines: list[str] = []
    for space, path in STUBS.items():
        body = ast.parse((Path(spec.origin).parent / path).read_text()).body
        classes = {node.name: node for node in body if isinstance(node, ast.ClassDef)}
        if space == "Tensor":
            lines += lines_of(space, classes["TensorBase"].body)
        elif space == "return_types":
            lines += [
                f"{space}.{name}\t{fields_of(node)}"
                for name, node in classes.items() if not name.startswith("_")
            ]  # fmt: skip
        else:
            lines += [line for line in lines_of(space, body) if not DEPRECATED.search(line)]
    RECORD.write_text(HEAD + "\n".join(lines) + "\n")
