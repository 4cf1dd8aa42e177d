"""The type stubs of what no type checker can see in the source: functions that rows declare.

What the source says itself, it says for the checkers too: the stubs are partial.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable
from types import ModuleType
from typing import Any

import cugrad
import cugrad.backends.simulated  # which `dir` shows from then on
from cugrad import autograd, backends, cuda, func, memory, nn, profiler, special, utils
from cugrad.functions.flags import BackendFlag, Switches
from cugrad.functions.precisions import Precision
from cugrad.functions.switches import Matmul
from cugrad.runtime.absent import Absent
from tests.documents.stubs.names import home_of, is_public_module, public
from tests.documents.stubs.overloads import overloads, recorded

HEAD = """# Written by python -m tests.documents.stubs --write, and checked by tests/typing.
# mypy: disable-error-code="override, overload-overlap, overload-cannot-match"
"""
TYPES = f'''{HEAD}"""What signatures are made of, by names that no method of Tensor has."""

import builtins
from collections.abc import Sequence
from types import EllipsisType
from typing import Any, SupportsIndex, TypeAlias

import numpy

from .autograd.recording import node
from .device import device
from .dtypes import dtype
from .functions.calls import out
from .functions.creation import random
from .functions.shapes import layouts
from .tensor import Tensor

_Node: TypeAlias = node.Node
_device: TypeAlias = device
_dtype: TypeAlias = dtype
_layout: TypeAlias = out.layout
Generator: TypeAlias = random.Generator
memory_format: TypeAlias = layouts.memory_format
_bool: TypeAlias = builtins.bool
_int: TypeAlias = builtins.int
_float: TypeAlias = builtins.float
_complex: TypeAlias = builtins.complex
_size: TypeAlias = Sequence[builtins.int]
_Index: TypeAlias = (
    SupportsIndex | slice | EllipsisType | Tensor | Sequence[Any] | numpy.ndarray[Any, Any] | None
)
Number: TypeAlias = builtins.int | builtins.float | builtins.bool
DeviceLikeType: TypeAlias = str | _device | builtins.int
'''
IMPORTS = """
import builtins
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, overload

import numpy

from cugrad._types import (
    DeviceLikeType, Generator, Number, _bool, _complex, _device, _dtype, _float, _Index, _int,
    _layout, _Node, _size, memory_format,
)
"""
# Methods of whose arguments and results neither PyTorch's stubs nor the source say enough.
OURS = {
    "__array__": "(self, dtype: Any = ..., copy: _bool | None = None) -> numpy.ndarray[Any, Any]",
    "__array_namespace__": "(self, *, api_version: str | None = None) -> Any",
    "__deepcopy__": "(self, memo: dict[_int, Any]) -> Tensor",
    "__dlpack_device__": "(self) -> tuple[_int, _int]",
    "__format__": "(self, format_spec: str, /) -> str",
    "__hash__": "(self) -> _int",
    "__init__": "(self, *data: Any, device: DeviceLikeType | None = None) -> None",
    "__imatmul__": "(self, other: Tensor) -> Tensor",
    "__matmul__": "(self, other: Tensor) -> Tensor",
    "__ipow__": "(self, other: Tensor | Number | _complex) -> Tensor",
    "__iter__": "(self) -> Iterator[Tensor]",
    "__itruediv__": "(self, other: Tensor | Number | _complex) -> Tensor",
    "__len__": "(self) -> _int",
    "__pos__": "(self) -> Tensor",
    "__reversed__": "(self) -> Tensor",
    "__rlshift__": "(self, other: Number) -> Tensor",
    "__rmatmul__": "(self, other: Tensor) -> Tensor",
    "__rmod__": "(self, other: Number) -> Tensor",
    "__rrshift__": "(self, other: Number) -> Tensor",
    "numpy": "(self, *, force: _bool = False) -> numpy.ndarray[Any, Any]",
    "register_hook": "(self, hook: Callable[[Tensor], Tensor | None]) -> Any",
    "register_post_accumulate_grad_hook": "(self, hook: Callable[[Tensor], None]) -> Any",
    "requires_grad_": "(self, requires_grad: _bool = True) -> Tensor",
    "split": "(self, split_size: _int | _size, dim: _int = 0) -> tuple[Tensor, ...]",
    "unique": "(self, sorted: _bool = True, return_inverse: _bool = False, "
    "return_counts: _bool = False, dim: _int | None = None) -> Any",
    "from_numpy": "(ndarray: numpy.ndarray[Any, Any]) -> Tensor",
    "new": "(self, *data: Any) -> Tensor",
    "__torch_function__": "(cls, func: Callable[..., Any], types: Any, args: Any = (), "
    "kwargs: Any = None) -> Any",
}
ATTRIBUTES = {"name": "None", "is_xla": "_bool", "volatile": "_bool", "H": "Tensor"}
# What `object` has, or none but the library asks for.
INNER = {
    "__annotations__", "__class__", "__delattr__", "__dict__", "__dir__", "__doc__",
    "__getattribute__", "__getstate__", "__init_subclass__", "__module__", "__new__", "__reduce__",
    "__reduce_ex__", "__repr__", "__setattr__", "__sizeof__", "__slots__", "__str__",
    "__subclasshook__", "__weakref__", "__array_priority__", "__cuda_array_interface__",
    "__array_wrap__", "__array_ufunc__", "__setstate__", "counter", "counter_of", "fill_in", "rare",
}  # fmt: skip
WORDS = {"Tensor": "Tensor", "Any": "Any", "None": "None", "bool": "_bool", "int": "_int",
         "float": "_float", "complex": "_complex", "str": "str", "tuple": "tuple", "list": "list",
         "dict": "dict", "Sequence": "Sequence", "Callable": "Callable", "Tensors": "Any",
         "dtypes.dtype": "_dtype", "Dtype": "_dtype", "Device": "_device", "Ints": "_int | _size",
         "Generator": "Generator", "slice": "slice"}  # fmt: skip


class Words(ast.NodeTransformer):
    """Types of the source in the stubs' words; KeyError for one that has no word there."""

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.parse(WORDS[node.id], mode="eval").body

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        return ast.parse(WORDS[ast.unparse(node)], mode="eval").body


def typed(annotation: Any, otherwise: str = "Any") -> str:
    if annotation is inspect.Parameter.empty:
        return otherwise
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "Any")
    try:
        return ast.unparse(Words().visit(ast.parse(text, mode="eval").body))
    except KeyError:
        return "Any"


def of_source(function: Callable[..., Any], is_method: bool) -> str:
    """The signature that a function's source, or its row, gives it."""
    signature = inspect.signature(function)
    parameters, is_row = [], not function.__annotations__
    for i, p in enumerate(signature.parameters.values()):
        if is_method and i == 0:
            parameters.append("self")
            continue
        stars = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
        if p.kind is p.KEYWORD_ONLY and not any(x.startswith("*") for x in parameters):
            parameters.append("*")
        kind = typed(p.annotation, "Tensor | None" if p.name == "out" else "Any")
        if is_row and i == 0:
            kind = "Tensor"
        default = "" if p.default is p.empty else f" = {plain(p.default)}"
        parameters.append(f"{stars}{p.name}: {kind}{default}")
    returns = signature.return_annotation
    return f"({', '.join(parameters)}) -> {typed(returns, 'Tensor')}"


def plain(default: Any) -> str:
    return repr(default) if isinstance(default, (bool, int, str, type(None))) else "..."


def declaration(name: str, texts: list[str], indent: str = "", decorator: str = "") -> str:
    lines = []
    for text in texts:
        if len(texts) > 1:
            lines.append(f"{indent}@overload\n")
        if decorator:
            lines.append(f"{indent}@{decorator}\n")
        lines.append(f"{indent}def {name}{text}: ...\n")
    return "".join(lines)


def functions() -> dict[str, list[str]]:
    """The signatures of functions of `cugrad` that PyTorch documents, by name."""
    texts, signatures = recorded(), {}
    for name in public(cugrad):
        if name in texts and callable(getattr(cugrad, name)):
            holds = (
                [OURS[name]]
                if name in OURS
                else overloads(name, texts[name], getattr(cugrad, name), is_method=False)
            )
            if holds:
                signatures[name] = holds
    return signatures


def functions_file() -> str:
    parts = [HEAD, IMPORTS, "from . import _return_types as ",
             "return_types\nfrom .tensor import Tensor\n\n"]  # fmt: skip
    return "".join(parts + [declaration(name, texts) for name, texts in functions().items()])


def return_types_file() -> str:
    lines = [HEAD, "from typing import NamedTuple\n\nfrom .tensor import Tensor\n"]
    for name, texts in recorded().items():
        space, _, own = name.partition(".")
        if space == "return_types":
            fields = re.split(r", (?=\w+:)", texts[0])
            lines.append(f"\nclass {own}(NamedTuple):\n")
            lines += [f"    {field}\n" for field in fields]
    return "".join(lines)


def tensor_file() -> str:
    texts = recorded()
    lines = [HEAD, IMPORTS, "from . import _return_types as return_types\n", SIZE]
    attributes, methods = [], []
    for name in sorted({n for n in dir(cugrad.Tensor) if n not in INNER}):
        value = inspect.getattr_static(cugrad.Tensor, name)
        documented = texts.get(f"Tensor.{name}", [])
        if isinstance(value, Absent) or (name.startswith("_") and not name.endswith("__")
                                         and name not in ("_base", "_version")):  # fmt: skip
            continue
        is_attribute = isinstance(value, property) or not hasattr(value, "__get__")
        if name not in ATTRIBUTES and documented and not documented[0].startswith("("):
            attributes.append(f"    {name}: {documented[0]}\n")
        elif name in ATTRIBUTES or is_attribute:
            attributes.append(f"    {name}: {ATTRIBUTES.get(name, 'Any')}\n")
        else:
            decorator = (
                type(value).__name__ if isinstance(value, (classmethod, staticmethod)) else ""
            )
            signatures = (
                [OURS[name]]
                if name in OURS
                else overloads(name, documented, getattr(value, "__func__", value), is_method=True)
            )
            if not signatures:
                signatures = [of_source(value, is_method=True)]
            methods.append(declaration(name, signatures, "    ", decorator))
    return "".join(lines + attributes + methods) + OF_SPARSE_TENSORS


# What a sparse tensor alone has: which tensors are sparse is no matter of types, as in PyTorch.
OF_SPARSE_TENSORS = """    def _indices(self) -> Tensor: ...
    def _nnz(self) -> _int: ...
    def _values(self) -> Tensor: ...
    def coalesce(self) -> Tensor: ...
    def dense_dim(self) -> _int: ...
    def indices(self) -> Tensor: ...
    def is_coalesced(self) -> _bool: ...
    def sparse_dim(self) -> _int: ...
    def values(self) -> Tensor: ...
"""
SIZE = """
class Size(tuple[builtins.int, ...]):
    def numel(self) -> _int: ...
    @overload
    def __getitem__(self, item: _int, /) -> _int: ...
    @overload
    def __getitem__(self, item: slice, /) -> Size: ...
    def __add__(self, other: tuple[_int, ...] | list[_int], /) -> Size: ...

class Tensor:
"""
LEGACY = "class {name}(Tensor): ...\n"


def top_file() -> str:
    """What `import cugrad` has: every public name, said outright."""
    lines = [HEAD, "from typing import Any\n\n", "from ._functions import (\n"]
    documented = functions()
    lines += [f"    {name} as {name},\n" for name in documented]
    lines.append(")\n")
    rest = ["from cugrad.version import __version__ as __version__\n"]
    for name in public(cugrad):
        if name in documented:
            continue
        rest.append(exported(cugrad, name))
    return "".join(lines + rest)


def exported(module: ModuleType, name: str) -> str:
    if name == "as_torch":  # which its import switches on
        return "from cugrad import as_torch as as_torch\n"
    value = getattr(module, name)
    if value is autograd.profiler:
        return "from cugrad.autograd import profiler as profiler\n"
    if is_public_module(value):
        package, _, own = value.__name__.rpartition(".")
        assert own == name, f"{value.__name__} under another name"
        return f"from {package} import {own} as {name}\n"
    if name in ("bool", "float", "int"):
        return f"from .dtypes import {name}_\n\n{name} = {name}_\n"
    if type(value).__name__ == "TensorType":
        return LEGACY.format(name=name)
    home = home_of(module, name)
    if home is None and inspect.isfunction(value):
        return declaration(name, [of_source(value, is_method=False)])
    if home is None:
        return f"{name}: {'None' if value is None else 'Any'}\n"
    if home[1] != name:  # `import x as y` is not taken for an export
        return f"from {home[0]} import {home[1]} as _{name}\n\n{name} = _{name}\n"
    return f"from {home[0]} import {name} as {name}\n"


def special_file() -> str:
    lines = [HEAD, IMPORTS, "from .tensor import Tensor\n\n"]
    texts = functions()
    for name in special.__all__:
        function = getattr(special, name)
        same = [n for n in texts if getattr(cugrad, n) is inspect.unwrap(function)]
        lines.append(declaration(name, texts[same[0]] if same else [of_source(function, False)]))
    return "".join(lines)


def switches_file(module: ModuleType) -> str:
    """A module of `torch.backends`, which is made when the library is imported."""
    lines = [HEAD, IMPORTS,
             "from ..tensor import Tensor\n\n"]  # fmt: skip
    for name in public(module):
        value = inspect.getattr_static(type(module), name)
        if isinstance(value, BackendFlag):
            lines.append(f"{name}: {typed(value.kind)}\n")
        elif isinstance(value, Matmul):
            flags = {n: f for n, f in vars(Matmul).items() if isinstance(f, BackendFlag)}
            lines.append(f"class _{name}:\n")
            lines += [f"    {each}: {typed(flag.kind)}\n" for each, flag in flags.items()]
            lines.append(f"\n{name}: _{name}\n")
        elif isinstance(value, Precision):
            lines.append(f"class _{name}:\n    fp32_precision: str\n\n{name}: _{name}\n")
        else:
            function = getattr(value, "__func__", value)
            is_method = not isinstance(value, staticmethod)
            text = of_source(function, is_method).replace("self, ", "").replace("self", "")
            lines.append(declaration(name, [text]))
    return "".join(lines)


FOR_ALL_BACKENDS = """fp32_precision: str
def flags(fp32_precision: str = 'none') -> Any: ...
def set_flags(_fp32_precision: str | None = 'none') -> tuple[str, ...]: ...
"""


def reexporting(module: ModuleType, *more: str) -> str:
    """A package that imports some of its names from rooms above it when they are asked for."""
    lines = [exported(module, name) for name in sorted({*public(module), *more})]
    return "".join([HEAD, IMPORTS, "from cugrad.tensor import Tensor\n", *lines])


def files() -> dict[str, str]:
    """The texts of the stubs, by their paths in `cugrad-stubs`."""
    lazy = (backends, cuda, func, memory, nn, nn.utils, profiler, utils)
    switches = [m for m in vars(backends).values() if isinstance(m, Switches)]
    files = {
        "py.typed": "partial\n",
        "_types.pyi": TYPES,
        "_return_types.pyi": return_types_file(),
        "_functions.pyi": functions_file(),
        "tensor.pyi": tensor_file(),
        "__init__.pyi": top_file(),
        "special.pyi": special_file(),
        "autograd/__init__.pyi": reexporting(autograd, "profiler"),
        "autograd/profiler.pyi": reexporting(autograd.profiler),
    }
    for module in lazy:
        files[f"{path_of(module)}/__init__.pyi"] = reexporting(module)
    files["backends/__init__.pyi"] += FOR_ALL_BACKENDS
    for module in switches:
        files[f"{path_of(module)}.pyi"] = switches_file(module)
    return files


def path_of(module: ModuleType) -> str:
    return module.__name__.removeprefix("cugrad.").replace(".", "/")
