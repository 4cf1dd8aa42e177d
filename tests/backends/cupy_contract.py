"""Checks a file's use of CuPy against the installed CuPy, by reading both: no GPU is needed.

Names are found by attribute chains that begin at an import of cupy (or at a name assigned from
one), at a parameter annotated `Array`, or at `xp`. Arguments are checked against
inspect.signature, or against the signature that Cython writes at the head of a docstring.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

ROOTS = ("cupy", "cupyx", "cupy_backends")
ARRAY = "cupy.ndarray"

# Attributes that hold objects of CuPy's, by name: `x.native.done` is a Stream's or an Event's.
HOLDERS = {
    "native": ("cupy.cuda.Stream", "cupy.cuda.Event"),
    "_pool": ("cupy.cuda.MemoryPool",),
    "_nccl": ("cupy_backends.cuda.libs.nccl.NcclCommunicator",),
}

# What functions return, for the names used of it.
RETURNS = {
    "cupy.get_default_memory_pool": "cupy.cuda.MemoryPool",
    "cupy.cuda.get_current_stream": "cupy.cuda.Stream",
    "cupy.cuda.runtime.pointerGetAttributes": "cupy_backends.cuda.api.runtime.PointerAttributes",
}


class Parameters(NamedTuple):
    """What a callable takes: names in order, how many of them by position, how many it insists
    on.
    """

    names: tuple[str, ...]
    positional: int
    required: int
    any_positional: bool = False
    any_keyword: bool = False


class Unloadable(NamedTuple):
    """An extension module whose C library is absent; its names and signatures are read from its
    file.
    """

    code: bytes

    def signature(self, names: list[str]) -> str | None:
        """Of what has the last of nested names; None where nothing says. KeyError for a name that
        is not there.
        """
        for name in names:
            if name.encode() not in self.code:
                raise KeyError(name)
        word = rb"(?<![A-Za-z0-9_])" + names[-1].encode()
        found = re.search(word + rb"\([^()]*\)", self.code)
        return found.group().decode() if found else None


class Missing(Exception):
    """A name that CuPy does not have."""


# What CuPy has
# -----------------------------------------------------------------------------------------


@cache
def resolve(path: str) -> Any:
    """The object at a dotted path; a string (its signature) inside an unloadable module;
    Missing.
    """
    parts = path.split(".")
    found: Any = importlib.import_module(parts[0])
    for done, name in enumerate(parts[1:], 1):
        if isinstance(found, Unloadable):
            try:
                return found.signature(parts[done:])
            except KeyError:
                raise Missing(path) from None
        found = _child(found, name, ".".join(parts[: done + 1]))
    return found


def _child(parent: Any, name: str, path: str) -> Any:
    try:
        return getattr(parent, name)
    except AttributeError:
        pass
    except ImportError:
        return _unloadable(path)
    if inspect.isclass(parent) and f"~{parent.__name__}.{name}" in (parent.__doc__ or ""):
        return None  # an attribute of its instances, which the class documents
    try:
        return importlib.import_module(path)
    except ImportError as error:
        raise Missing(path) from error


def _unloadable(path: str) -> Unloadable:
    spec = importlib.util.find_spec(path)
    if spec is None or spec.origin is None:
        raise Missing(path)
    return Unloadable(Path(spec.origin).read_bytes())


def parameters_of(found: Any) -> Parameters | None:
    """What `found` takes, or None where nothing says so."""
    if isinstance(found, str):
        return parse_signature(found)
    if type(found).__name__ == "ufunc":
        return parse_signature((found.__doc__ or "").strip().partition("\n")[0])
    try:
        return _of_python(inspect.signature(found))
    except (TypeError, ValueError):
        return parse_signature((found.__doc__ or "").strip().partition("\n")[0])


def _of_python(signature: inspect.Signature) -> Parameters:
    every = list(signature.parameters.values())
    plain = [p for p in every if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return Parameters(
        tuple(p.name for p in every),
        len(plain),
        sum(p.default is p.empty for p in plain),
        any(p.kind is p.VAR_POSITIONAL for p in every),
        any(p.kind is p.VAR_KEYWORD for p in every),
    )


def parse_signature(line: str) -> Parameters | None:
    """Reads `Class.name(self, intptr_t handle, int kind=0, *, dtype=None) -> int`.

    >>> parse_signature("memcpyAsync(intptr_t dst, intptr_t src, size_t size, int kind)").names
    ('dst', 'src', 'size', 'kind')
    """
    found = re.match(r"[\w.]+\((.*?)\)(\s*->.*)?$", line.strip())
    if found is None:
        return None
    names, positional, required, keyword_only = [], 0, 0, False
    # NumPy's way to say optional: "x[, out1, out2], / [, out=(None, None)], *, where=True"
    plain = re.sub(r"\[([^\]]*)\]", lambda group: re.sub(r"(\w+)(?=,|$)", r"\1=", group[1]),
                   re.sub(r"=\([^)]*\)", "=", line.strip().partition("(")[2]))  # fmt: skip
    plain = plain.rpartition(")")[0]
    for item in filter(None, (part.strip() for part in plain.split(","))):
        if item in ("*", "\\*"):
            keyword_only = True
            continue
        if item == "/":
            continue
        name, equals, _ = item.partition("=")
        name = name.split(":")[0].split()[-1]
        if name == "self":
            continue
        names.append(name)
        positional += not keyword_only
        required += not keyword_only and not equals
    return Parameters(tuple(names), positional, required)


def faults_of_call(path: str, call: ast.Call, takes: Parameters | None) -> list[str]:
    """What is wrong with a call's arguments."""
    if takes is None:
        return []
    faults = []
    starred = any(isinstance(a, ast.Starred) for a in call.args)
    given = len(call.args)
    if not takes.any_positional and not starred and given > takes.positional:
        faults.append(f"{path} takes {takes.positional} positional arguments, got {given}")
    keywords = [k.arg for k in call.keywords if k.arg is not None]
    if not takes.any_keyword:
        faults += [f"{path} has no argument {k!r}" for k in keywords if k not in takes.names]
    insisted = set(takes.names[given : takes.required]) - set(keywords)
    if insisted and not starred and len(keywords) == len(call.keywords):
        faults.append(f"{path} lacks the arguments {sorted(insisted)}")
    return faults


# What a file uses
# --------------------------------------------------------------------------------------


def chain_of(node: ast.expr) -> list[str] | None:
    """The names of `a.b.c`, or None for anything else."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return [node.id, *reversed(names)] if isinstance(node, ast.Name) else None


def aliases_of(tree: ast.AST) -> dict[str, str]:
    """The names of a file that mean something of CuPy's: name -> dotted path."""
    aliases: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for item in node.names:
                if item.name.partition(".")[0] in ROOTS:
                    top = item.name if item.asname else item.name.partition(".")[0]
                    aliases[item.asname or top] = top
        elif isinstance(node, ast.ImportFrom) and not node.level:
            for item in node.names:
                if (node.module or "").partition(".")[0] in ROOTS:
                    aliases[item.asname or item.name] = f"{node.module}.{item.name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            targets, values = [node.targets[0]], [node.value]
            if isinstance(node.targets[0], ast.Tuple) and isinstance(node.value, ast.Tuple):
                targets, values = node.targets[0].elts, node.value.elts
            for target, value in zip(targets, values):
                chain = chain_of(value)
                if isinstance(target, ast.Name) and chain and chain[0] in aliases and chain[1:]:
                    aliases[target.id] = ".".join([aliases[chain[0]], *chain[1:]])
    return aliases


def arrays_of(tree: ast.AST) -> dict[int, frozenset[str]]:
    """The names that are parameters annotated `Array`, where a node stands: by the node's id."""
    scopes: dict[int, frozenset[str]] = {}
    for node in ast.walk(tree):  # parents come before their children
        if isinstance(node, (ast.FunctionDef, ast.Lambda)):
            every = [x for x in ast.walk(node.args) if isinstance(x, ast.arg)]
            arrays = {x.arg for x in every if _annotation(x) == "Array"}
            bound = {x.arg for x in every}
        elif isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
            targets = [x for part in node.generators for x in ast.walk(part.target)]
            arrays, bound = set(), {x.id for x in targets if isinstance(x, ast.Name)}
        else:
            continue
        for inner in ast.walk(node):
            scopes[id(inner)] = scopes.get(id(inner), frozenset()) - bound | arrays
    return scopes


def _annotation(node: ast.arg) -> str:
    return "" if node.annotation is None else ast.unparse(node.annotation)


def uses_of(
    tree: ast.AST, aliases: dict[str, str], arrays: dict[int, frozenset[str]]
) -> Iterator[tuple[str, int, ast.Call | None]]:
    """(dotted path, line, call or None) of every longest chain that begins at an alias or array."""
    inner: set[int] = set()
    calls = {id(node.func): node for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):  # parents come before their children
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Call):
            maker = chain_of(node.value.func)
            if maker and aliases.get(maker[0], "xp") != "xp":
                path = ".".join([aliases[maker[0]], *maker[1:]])
                made = RETURNS.get(path, path if _is_class(path) else None)
                if made is not None:  # cupy.cuda.Device(0).use
                    yield f"{made}.{node.attr}", node.lineno, calls.get(id(node))
        if isinstance(node, (ast.Attribute, ast.Name)) and id(node) not in inner:
            if isinstance(node, ast.Attribute):
                below: ast.expr = node.value
                while isinstance(below, ast.Attribute):
                    inner.add(id(below))
                    below = below.value
                inner.add(id(below))
            chain = chain_of(node)
            if not chain or not (chain[1:] or id(node) in calls):
                continue
            if chain[0] in arrays.get(id(node), ()) and chain[0] not in aliases:
                yield ".".join([ARRAY, *chain[1:]]), node.lineno, calls.get(id(node))
            elif chain[0] in aliases:
                path = ".".join([aliases[chain[0]], *chain[1:]])
                yield path, node.lineno, calls.get(id(node))


def faults_of(source: str, where: str) -> list[str]:
    """Every use of CuPy in a file that the installed CuPy would refuse, one line each."""
    tree = ast.parse(source)
    faults = [f"{where}:{fault}" for fault in _faults_of_holders(tree)]
    for path, line, call in uses_of(tree, aliases_of(tree), arrays_of(tree)):
        if path == ARRAY or (call is not None and path.startswith(ARRAY) and path.count(".") > 2):
            call = None  # calling the parameter itself, or a method of an array's attribute
        try:
            found = resolve(path if not path.startswith(ARRAY) else ".".join(path.split(".")[:3]))
        except Missing as missing:
            faults.append(f"{where}:{line}: CuPy has no {missing}")
            continue
        if call is not None:
            takes = without_self(parameters_of(found))
            faults += [f"{where}:{line}: {fault}" for fault in faults_of_call(path, call, takes)]
    return faults


def without_self(takes: Parameters | None) -> Parameters | None:
    if takes is None or takes.names[:1] != ("self",):
        return takes
    return Parameters(takes.names[1:], takes.positional - 1, takes.required - 1, *takes[3:])


def _faults_of_holders(tree: ast.AST) -> Iterator[str]:
    """What is wrong with the uses of HOLDERS: the name, or the arguments for every class that
    has it.
    """
    calls = {id(node.func): node for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Attribute):
            continue
        paths = [f"{holder}.{node.attr}" for holder in HOLDERS.get(node.value.attr, ())]
        found = [path for path in paths if _has(path)]
        if paths and not found:
            yield f"{node.lineno}: CuPy has no {' or '.join(paths)}"
        elif paths and id(node) in calls:
            faults = [
                faults_of_call(path, calls[id(node)], without_self(parameters_of(resolve(path))))
                for path in found
            ]
            if all(faults):
                yield f"{node.lineno}: {faults[0][0]}"


def _is_class(path: str) -> bool:
    return _has(path) and inspect.isclass(resolve(path))


def _has(path: str) -> bool:
    try:
        resolve(path)
    except Missing:
        return False
    return True


# What the op table uses
# --------------------------------------------------------------------------------


def faults_of_rows(source: str, where: str, namespace: type) -> list[str]:
    """Every `xp.name` of a file, and every row's forward given by name, that the namespace
    lacks.
    """
    tree = ast.parse(source)
    faults = []
    for path, line, call in uses_of(tree, {"xp": "xp"}, {}):
        names = path.split(".")[1:]
        faults += _faults_of_name(names, f"{where}:{line}", call, namespace) if names else []
    for name, line in _forwards(tree):
        faults += _faults_of_name([name], f"{where}:{line}", None, namespace)
    return faults


def uses_the_namespace(source: str) -> bool:
    """Whether a file says `xp`, or has rows; most have neither, and are not parsed."""
    return re.search(r"\bxp\b|\brow\(", source) is not None


def _forwards(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """The forwards that rows give by name, each with its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and chain_of(node.func) == ["row"] and len(node.args) > 2:
            forward = node.args[2]
            if isinstance(forward, ast.Constant) and isinstance(forward.value, str):
                yield forward.value, node.lineno


def forwards_of(sources: list[str]) -> set[str]:
    """The names of all forwards and of every `xp.name` in the sources."""
    names = set()
    for source in filter(uses_the_namespace, sources):
        tree = ast.parse(source)
        names |= {name for name, _ in _forwards(tree)}
        names |= {
            path.split(".")[1] for path, _, _ in uses_of(tree, {"xp": "xp"}, {}) if "." in path
        }
    return names


def _faults_of_name(
    names: list[str], where: str, call: ast.Call | None, namespace: type
) -> list[str]:
    try:
        if hasattr(namespace, names[0]) and not names[1:]:  # xp.linalg.inv is cupy.linalg.inv
            found = getattr(namespace, names[0])
        else:
            root = "cupyx.scipy" if names[0] == "special" else "cupy"
            found = resolve(".".join([root, *names]))
    except Missing as missing:
        return [f"{where}: CuPy has no {missing}, and CupyNamespace adds none"]
    if call is None:
        return []
    path = ".".join(["xp", *names])
    return [f"{where}: {fault}" for fault in faults_of_call(path, call, parameters_of(found))]
