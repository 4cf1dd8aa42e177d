"""Checks that imports point downward, that a file has its sentence, and that files stay short."""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import pytest

from cugrad.ops.table import TABLE
from tests.support import ROOT
from tests.support.trees import nodes_of

pytestmark = pytest.mark.host_only

PACKAGE = ROOT / "cugrad"

# The rooms from top to bottom: a room imports from rows below its own. Rooms of one row may import
# one another in one direction only. `__init__` alone is the public face, at the top.
LAYERS = [
    ["as_torch"],
    ["alias", "array_api"],  # over the public face
    ["__init__"],
    [
        "nn",
        "optim",
        "amp",
        "distributions",
        "models",
        "serialization",
        "testing",
        "compiler",
        "jit",
        "multiprocessing",
        "_C",
        "overrides",
        "functional",
        "return_types",
        "types",
        "fx",
        "hub",
    ],
    ["utils", "distributed"],
    ["profiler"],
    ["memory"],
    ["func", "graphs"],
    [
        "linalg",
        "fft",
        "random",
        "quasirandom",
        "special",
        "signal",
        "sparse",
    ],  # PyTorch's namespaces over the functions
    ["functions", "version", "accelerator", "__future__", "futures"],
    ["autograd"],
    ["tensor"],
    ["ops"],
    ["cuda", "cpu"],
    ["backends"],
    ["dtypes", "device", "errors", "runtime"],
]
RANK = {room: len(LAYERS) - depth for depth, row in enumerate(LAYERS) for room in row}

# What a module must not import although the layers would let it: (importer, imported) by prefix.
IGNORANCE = [
    ("tensor", "ops", "a Tensor is state only; methods.py attaches the maths"),
    ("autograd.engine", "ops", "the engine knows nodes and edges, no op"),
    ("autograd.engine", "backends.numpy", "the engine knows no device, only the protocol"),
    ("autograd.engine", "backends.cupy", "the engine knows no device, only the protocol"),
    ("autograd.engine", "cuda", "the engine knows no device"),
    ("memory.offloading.session", "memory.offloading.engine", "a session knows no engine"),
]

# Modules that exist because PyTorch has their import path. They may import from a room above their
# own, and may contain nothing but imports: module -> the rooms above that it re-exports from.
FACES: dict[str, set[str]] = {
    "cuda.amp": {"amp"}, "cuda.graphs": {"graphs"}, "distributed.optim": {"optim"},
    "distributed.fsdp": {"nn"}, "distributed.checkpoint.state_dict": {"nn"},
    "distributed.simulation": {"nn"}, "distributed.algorithms.ddp_comm_hooks.buckets": {"nn"},
    "distributed.algorithms._checkpoint.checkpoint_wrapper": {"nn"},
    **{f"distributed.checkpoint.{name}": {"serialization"} for name in (
        "api", "default_planner", "filesystem", "format_utils", "metadata", "planner",
        "state_dict_loader", "state_dict_saver", "stateful", "storage",
    )},
}  # fmt: skip

# Who may import a package that is not always there; "torch" is for tests and benchmarks only.
RESERVED = {**dict.fromkeys(("cupy", "cupyx", "cupy_backends"), "backends.cupy"), "torch": ""}

MAX_LINES = 500  # the aim is 450
MAX_FILES = 16  # of a folder
# Folders that may hold more, each with the reason.
LARGE = {
    "cugrad/nn/modules": "its files are PyTorch's, whose paths programs import",
    "cugrad/optim": "its files are PyTorch's, whose paths programs import",
    "cugrad/utils": "half of its files are PyTorch's, whose paths programs import",
}
MAX_TABLE_LINES = 900  # files of rows, and of CUDA source


class Import(NamedTuple):
    """One import statement's target, absolute: `cugrad.ops.table` and the line it stands on."""

    target: str
    line: int
    typing_only: bool


def module_name(path: Path, package: Path = PACKAGE) -> str:
    """The dotted name below the package: `autograd.engine`, and `ops` for `ops/__init__.py`.

    The package's own `__init__.py` is called `__init__`.
    """
    parts = path.relative_to(package).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


@cache
def imports_of(source: str, module: str, is_package: bool) -> tuple[Import, ...]:
    """Every import of a file: at the top, in a function, or by importlib with a literal."""
    return tuple(_imports_of(nodes_of(source), module, is_package))


def _imports_of(nodes: list[ast.AST], module: str, is_package: bool) -> Iterator[Import]:
    typing_only = {
        id(node)
        for block in nodes
        if isinstance(block, ast.If) and _called(block.test).endswith("TYPE_CHECKING")
        for statement in block.body
        for node in ast.walk(statement)
    }
    here = ["cugrad"] if module == "__init__" else ["cugrad", *module.split(".")]
    package = here if is_package else here[:-1]
    for node in nodes:
        if not isinstance(node, (ast.Import, ast.ImportFrom, ast.Call)):
            continue
        targets: list[str] = []
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*base, *([node.module] if node.module else [])])
            # `from cugrad import x` names a module, or a public name, which is in __init__
            targets = [
                f"{origin}.{alias.name}" if origin in PARENTS else origin for alias in node.names
            ]
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            if _called(node.func) in ("import_module", "__import__") and isinstance(
                node.args[0].value, str
            ):
                name = node.args[0].value
                targets = [".".join(package) + name if name.startswith(".") else name]
        for target in targets:
            yield Import(target, node.lineno, id(node) in typing_only)


def _called(node: ast.expr) -> str:
    """The last of the names that a name, or an attribute, is called by."""
    return getattr(node, "attr", "") or getattr(node, "id", "")


PARENTS = {"cugrad"} | {
    "cugrad." + module_name(path) for path in PACKAGE.rglob("__init__.py") if path.parent != PACKAGE
}


def room_of(module: str) -> str:
    """The room a module stands in: `autograd` for `autograd.engine`."""
    return module.partition(".")[0]


def starts_with(module: str, prefix: str) -> bool:
    return module == prefix or module.startswith((prefix + ".", prefix + "_"))


def faults_of(source: str, module: str, is_package: bool = False) -> list[str]:
    """What is wrong with a file's imports, one line each."""
    faults = []
    room = room_of(module)
    if room not in RANK:
        return [f"{module}: room {room!r} has no place in LAYERS"]
    for target, line, typing_only in imports_of(source, module, is_package):
        where = f"{module}:{line}"
        top, _, below = target.partition(".")
        if top in RESERVED and not (RESERVED[top] and starts_with(module, RESERVED[top])):
            wanted = f"cugrad.{RESERVED[top]}* only" if RESERVED[top] else "nowhere in the library"
            faults.append(f"{where}: imports {top}, which belongs {wanted}")
        if top != "cugrad" or typing_only:
            continue
        other = room_of(below) if below else "__init__"
        if other not in RANK:  # `from cugrad import Tensor`: a name of the public face
            other = "__init__"
        if other == room:
            pass
        elif RANK[other] > RANK[room] and other not in FACES.get(module, ()):
            faults.append(f"{where}: imports {target}, which is above it")
        for importer, imported, reason in IGNORANCE:
            if starts_with(module, importer) and starts_with(below, imported):
                faults.append(f"{where}: imports {target}, but {reason}")
    return faults


def package_files() -> list[Path]:
    return sorted(path for path in PACKAGE.rglob("*.py") if "__pycache__" not in path.parts)


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_imports_point_downward() -> None:
    faults = [
        fault for path in package_files()
        for fault in faults_of(path.read_text(), module_name(path), path.name == "__init__.py")
    ]  # fmt: skip
    assert not faults, "\n".join(faults)


def test_rooms_of_one_row_import_one_another_in_one_direction() -> None:
    edges: dict[str, set[str]] = defaultdict(set)
    for path in package_files():
        module = module_name(path)
        for target, _, typing_only in imports_of(
            path.read_text(), module, path.name == "__init__.py"
        ):
            other = room_of(target.partition(".")[2])
            if target.startswith("cugrad.") and not typing_only and other != room_of(module):
                edges[room_of(module)].add(other)
    mutual = {
        tuple(sorted((a, b)))
        for row in LAYERS
        for a in row
        for b in row
        if a != b and b in edges[a] and a in edges[b]
    }
    assert not mutual


def test_a_face_contains_only_imports() -> None:
    for module in FACES:
        tree = ast.parse((PACKAGE / (module.replace(".", "/") + ".py")).read_text())
        rest = [ast.unparse(node) for node in tree.body[1:]
                if not isinstance(node, (ast.Import, ast.ImportFrom))
                and not ast.unparse(node).startswith("__all__")]  # fmt: skip
        assert not rest, f"{module} re-exports only, but has: " + "; ".join(rest)


def test_the_layers_name_rooms_that_exist() -> None:
    rooms = {room_of(module_name(path)) for path in package_files()}
    assert set(RANK) == rooms


def docstring_of(source: str) -> str | None:
    """A module's, without a look at the rest of it."""
    end = source.find('"""', source.find('"""') + 3)
    return ast.get_docstring(ast.parse(source[: end + 3])) if end > 0 else None


def test_a_module_begins_with_one_sentence() -> None:
    for path in package_files():
        docstring = docstring_of(path.read_text())
        assert docstring, f"{relative(path)} has no docstring: say in one sentence what it is"
        first = docstring.split("\n\n")[0].rstrip()
        assert first.endswith((".", "!", "?")), f"{relative(path)}: want a sentence, got {first!r}"


def test_a_file_is_short_enough_to_read() -> None:
    long = []
    for path in package_files():
        lines = path.read_text().count("\n")
        is_table = room_of(module_name(path)) == "ops" or "kernels" in path.parts
        limit = MAX_TABLE_LINES if is_table else MAX_LINES
        if lines > limit:
            long.append(f"{relative(path)} has {lines} lines, want at most {limit}")
    assert not long, "\n".join(long) + ": what are its two sentences?"


def test_a_folder_holds_few_enough_files_to_choose_from() -> None:
    sizes: dict[str, int] = defaultdict(int)
    for path in package_files():
        sizes[relative(path.parent)] += 1
    large = {folder: size for folder, size in sizes.items() if size > MAX_FILES}
    assert set(large) <= set(LARGE), f"{large}: want at most {MAX_FILES} files, then rooms"
    assert set(LARGE) <= set(sizes), "a folder in LARGE is gone"


def test_a_room_says_what_lives_there() -> None:
    for path in sorted({p.parent for p in package_files()}):
        docstring = ast.get_docstring(ast.parse((path / "__init__.py").read_text()))
        assert docstring and "\n\n" in docstring, (
            f"{relative(path)} wants a sentence, and a paragraph: where does one begin?"
        )


BAD = [
    ("ops.table", "from cugrad.autograd import engine", "above it"),
    ("ops.table", "def late():\n    import cugrad.autograd.engine.backward_pass", "above it"),
    ("ops.table", "from ..autograd.record import recorded", "above it"),
    ("ops.table", "from .. import autograd", "above it"),
    ("ops.table", "import importlib\nimportlib.import_module('cugrad.nn')", "above it"),
    ("dtypes", "import cugrad", "above it"),
    ("dtypes", "from cugrad import Tensor", "above it"),
    ("tensor", "from cugrad.ops.table import TABLE", "state only"),
    ("autograd.engine", "from cugrad.backends import numpy", "no device"),
    ("ops.conv", "def late():\n    import cupy", "belongs cugrad.backends.cupy* only"),
    ("backends.numpy", "from cupy.cuda import Stream", "belongs cugrad.backends.cupy* only"),
    ("nn.modules.module", "import torch.nn", "nowhere"),
    ("nn.modules.module", "if TYPE_CHECKING:\n    import torch", "nowhere"),
    ("gadgets.thing", "", "no place in LAYERS"),
]
GOOD = [
    ("autograd.engine", "from cugrad.autograd import mode\nfrom cugrad.tensor import Tensor"),
    ("autograd.engine", "from .node import Node\nfrom ..dtypes import float32"),
    ("backends.cupy", "import cupy\nfrom cupy_backends.cuda.libs import cublas"),
    ("backends.cupy_kernels", "def late():\n    import cupy"),
    ("ops.table", "if TYPE_CHECKING:\n    from cugrad.tensor import Tensor"),
    ("__init__", "from cugrad import nn\nfrom .autograd import backward"),
    ("nn", "from cugrad.optim import SGD\nimport numpy.linalg"),
]


@pytest.mark.parametrize("module, source, fault", BAD)
def test_the_checker_sees(module: str, source: str, fault: str) -> None:
    assert fault in "\n".join(faults_of(source, module))


@pytest.mark.parametrize("module, source", GOOD)
def test_the_checker_allows(module: str, source: str) -> None:
    assert not faults_of(source, module)


# Rooms whose files declare functions under the names of rows, or implement them; of theirs, what
# all functions do with arguments and results (`functions/calls`) declares none.
DECLARING = {
    "array_api",
    "fx",  # writes code that calls functions by PyTorch's names
    "ops",
    "backends",
    "functions",
    "nn",
    "distributions",
    "linalg",
    "sparse",  # what they are of sparse tensors
    "special",
}
ASKING = [*sorted(set(RANK) - DECLARING - {"__init__"}), "functions/calls"]
AUTOCAST = PACKAGE / "autograd" / "autocast.py"  # PyTorch's lists: functions beside rows


def strings_in(node: ast.AST) -> list[str]:
    """Those of a set, a list or a tuple that is written out, or split from a text; or a dict's
    keys.
    """
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        text = getattr(node.func.value, "value", None)
        return text.split() if node.func.attr == "split" and isinstance(text, str) else []
    parts = node.keys if isinstance(node, ast.Dict) else getattr(node, "elts", [])
    found = [part.value for part in parts if isinstance(part, ast.Constant)]
    return [value for value in found if isinstance(value, str)]


def lists_of_rows(source: str) -> list[str]:
    """Lists of three rows and more, each in a line."""
    names = ((node, strings_in(node)) for node in nodes_of(source))
    many = ((node, each) for node, each in names if len(each) > 2)
    return [f"line {getattr(node, 'lineno', 0)}: {', '.join(each)}"
            for node, each in many if len({*each} & TABLE.keys()) > 2]  # fmt: skip


@pytest.mark.parametrize("room", ASKING)
def test_facts_of_ops_are_columns_of_rows(room: str) -> None:
    paths = [path for path in (*(PACKAGE / room).rglob("*.py"), PACKAGE / f"{room}.py")
             if path != AUTOCAST and path.exists()]  # fmt: skip
    wrong = [f"{path.name}, {each}" for path in paths for each in lists_of_rows(path.read_text())]
    assert paths and not wrong, f"{wrong}: a column of `Op`, such as cost=, says it in the row"


def test_a_list_of_rows_is_seen() -> None:
    assert lists_of_rows('DEAR = {"mm", "bmm", "sort"}') == ["line 1: mm, bmm, sort"]
    assert lists_of_rows('DEAR = "mm bmm sort".split()') == ["line 1: mm, bmm, sort"]
    assert not lists_of_rows('PLACES = ("cpu", "disk", "mm")')


BACKENDS = {"batched", "cupy", "numpy", "simulated"}


def backends_by_name(source: str) -> list[str]:
    """Comparisons of a `.name` with that of a backend, each with its line."""
    if ".name" not in source or not any(name in source for name in BACKENDS):
        return []  # unparsed: most files
    return [f"line {node.lineno}: {ast.unparse(node)}" for node in nodes_of(source)
            if isinstance(node, ast.Compare)
            and any(isinstance(x, ast.Attribute) and x.attr == "name" for x in ast.walk(node))
            and any(isinstance(x, ast.Constant) and x.value in BACKENDS
                    for x in ast.walk(node))]  # fmt: skip


def test_what_stands_above_the_protocol_asks_for_no_backend_by_name() -> None:
    paths = [p for p in package_files() if room_of(module_name(p)) != "backends"]
    wrong = [f"{relative(p)}, {each}" for p in paths for each in backends_by_name(p.read_text())]
    assert not wrong, f"{wrong}: a property of the protocol, such as `readable`, says it"
    assert backends_by_name('if backend_of(x).name == "batched": pass')
    assert backends_by_name("y = 1 if b.name not in ('cupy', 'numpy') else 2")
    assert not backends_by_name('name == "numpy" or op.name == "mul"')


def kinds_of_bfloat16(source: str) -> list[str]:
    """Tests whether a kind is among some of which one is "V", each with its line."""
    if not re.search(r"kind[\s)\\]*(not\b|in\b|==|!=)", source) or "V" not in source:
        return []  # unparsed: most files
    return [f"line {node.lineno}: {ast.unparse(node)}" for node in nodes_of(source)
            if isinstance(node, ast.Compare)
            and any(isinstance(op, (ast.In, ast.NotIn, ast.Eq, ast.NotEq)) for op in node.ops)
            and any(isinstance(x, ast.Constant) and "V" in str(x.value) for x in node.comparators)
            and ast.unparse(node.left).endswith("kind")]  # fmt: skip


def test_who_asks_for_a_dtype_asks_dtypes() -> None:
    """NumPy's kind of bfloat16 is "V", as of structures: no reader has to know."""
    paths = [p for p in package_files() if room_of(module_name(p)) not in ("backends", "dtypes")]
    wrong = [f"{relative(p)}, {each}" for p in paths for each in kinds_of_bfloat16(p.read_text())]
    assert not wrong, f"{wrong}: is_differentiable, is_floating or is_half of cugrad.dtypes says it"
    assert kinds_of_bfloat16('x._array.dtype.kind not in "fcV"')
    assert not kinds_of_bfloat16('x.dtype.kind in "iu"')


def test_spans_change_by_their_methods_alone() -> None:
    """Where saved bytes are is said in one file: no other assigns to a span or to its place."""
    from cugrad.memory.offloading import places, span

    names = {slot for kind in (span.Span, span.SavedView) for slot in kind.__slots__}
    names |= {slot for name in places.__all__ for slot in getattr(places, name).__slots__}
    files = [path for path in PACKAGE.rglob("*.py") if path.parent.name == "offloading"
             or "offloading.span" in path.read_text()]  # fmt: skip
    assert len(files) > 15 and len(names) > 30
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in files if path.stem not in ("span", "places")
        for name, line in _assigned(path.read_text()) if name in names
    ]  # fmt: skip
    assert not wrong, "a span's own methods do this:\n" + "\n".join(wrong)


def _assigned(source: str) -> Iterator[tuple[str, int]]:
    """The attributes of anything but `self` that a file assigns, deletes, or sets by name."""
    for node in nodes_of(source):
        if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
            if not (isinstance(node.value, ast.Name) and node.value.id == "self"):
                yield node.attr, node.lineno
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("setattr"):
            name = node.args[1]
            yield name.value if isinstance(name, ast.Constant) else ast.unparse(name), node.lineno


def test_the_check_of_spans_sees_assignments() -> None:
    source = "s.place = 1; self.place = 2; v.span.away += 3; del s.root; setattr(s, 'low', 4)"
    assert {name for name, _ in _assigned(source)} == {"place", "away", "root", "low"}


# PyTorch's own names, which mean another thing in another of its modules.
PYTORCHS = {
    "Attribute", "Backend", "Event", "GradScaler", "Generator", "Graph", "Identity", "Measurement",
    "Node", "Stream", "StreamContext", "TraceError", "Transformer", "autocast", "device", "profile",
}  # fmt: skip


def test_no_two_classes_have_one_name() -> None:
    """A name means one thing, so that a reader who looks for it finds it."""
    sources = {relative(path): path.read_text() for path in package_files()}
    words = {path: re.findall(r"\bclass[\s\\]+(\w+)", text) for path, text in sources.items()}
    often = Counter(chain.from_iterable(words.values()))  # and what a comment says of a class
    homes: dict[str, list[str]] = {}
    for path, names in words.items():
        for node in nodes_of(sources[path]) if any(often[name] > 1 for name in names) else ():
            if isinstance(node, ast.ClassDef) and node.name not in PYTORCHS:
                homes.setdefault(node.name, []).append(f"{path}:{node.lineno}")
    assert {name: where for name, where in homes.items() if len(where) > 1} == {}
