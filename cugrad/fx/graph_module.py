"""Modules that run graphs: the code of a graph, compiled, is their forward."""

from __future__ import annotations

import copy
import itertools
import linecache
import sys
import traceback
from collections.abc import Callable
from itertools import accumulate
from pickle import whichmodule  # type: ignore[attr-defined]
from typing import Any

from ..nn import Module, Parameter
from ..runtime.absent import explain
from ..tensor import Tensor
from .graph import Graph, PythonCode, _PyTreeCodeGen
from .naming import BUILTINS

__all__ = ["GraphModule", "reduce_graph_module"]

_USER_PRESERVED_ATTRIBUTES_KEY = "_user_preserved_attributes"
_SOURCE = "<eval_with_key>."
_numbers = itertools.count()


def _forward_from_src(src: str, names: dict[str, Any]) -> Callable[..., Any]:
    """The function `forward` of a text, whose lines tracebacks can show."""
    key = f"{_SOURCE}{next(_numbers)}"
    linecache.cache[key] = (len(src), None, src.splitlines(keepends=True), key)
    space = dict(names)
    exec(compile(src, key, "exec", dont_inherit=True), space)
    return space.pop("forward")


class _CodeOnlyModule(Module):
    """What a pickled module is while its graph is traced again."""

    def __init__(self, body: dict[str, Any]) -> None:
        super().__init__()
        self.__dict__ = body


def reduce_graph_module(body: dict[str, Any], import_block: str) -> Module:
    """The module of a pickle: its attributes, and imports for its code. The code is traced anew."""
    from ._symbolic_trace import Tracer

    class Pickled(_CodeOnlyModule):
        forward = _forward_from_src(import_block + body["_code"], {})

    tracer: Any = body.get("_tracer_cls") or Tracer

    class KeepModules(tracer):
        def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
            return True

    root = Pickled(body)
    graph = KeepModules().trace(root, **body.get("_tracer_extras", {}))
    graph._tracer_cls = tracer
    module = GraphModule(root, graph, body.get("_graphmodule_cls_name", "GraphModule"))
    for name, value in body.items():
        if not hasattr(module, name):
            setattr(module, name, value)
    return module


def _import_statement(name: str, obj: Any) -> str:
    if name in BUILTINS:
        return BUILTINS[name].import_str
    home, dotted = whichmodule(obj, obj.__qualname__), obj.__qualname__
    return f"from {home} import {dotted} as {name}"


def _copy_attr(from_module: Module, to_module: Module, target: str) -> None:
    """Gives a module what another has at a path, with modules in between; a tensor is a buffer."""
    *path, name = target.split(".")
    for part in path:
        theirs, ours = getattr(from_module, part), getattr(to_module, part, None)
        if theirs is ours:
            return
        if ours is None:
            ours = Module()
            setattr(to_module, part, ours)
        from_module, to_module = theirs, ours
    _set_attr(to_module, name, getattr(from_module, name))


def _assign_attr(from_obj: Any, to_module: Module, target: str) -> None:
    """Puts a value at a path of a module, with modules in between; a tensor is a buffer."""
    *path, name = target.split(".")
    for part in path:
        if getattr(to_module, part, None) is None:
            setattr(to_module, part, Module())
        to_module = getattr(to_module, part)
    _set_attr(to_module, name, from_obj)


def _set_attr(module: Module, name: str, value: Any) -> None:
    if isinstance(value, Tensor) and not isinstance(value, Parameter):
        module.register_buffer(name, value)
    else:
        setattr(module, name, value)


def _get_attr(model: Module, attr_name: str) -> Any:
    """What a module has at a path; AttributeError if it has nothing there."""
    value: Any = model
    for part in attr_name.split("."):
        value = getattr(value, part)
    return value


class GraphModule(Module):
    """A module whose forward is the code of a graph.

    `root` has the modules, parameters and buffers that the graph names: a module, or a dict of them
    by path. Each instance has a class of its own, with its own forward. After a change of the graph
    `recompile()` brings the code up to date; assigning `graph` does so, too.

    RuntimeError where the root lacks what the graph names, or is neither.

    >>> import cugrad as torch
    >>> module = torch.fx.symbolic_trace(torch.nn.Sequential(torch.nn.ReLU()))
    >>> print(module.code.strip())
    def forward(self, input):
        input_1 = input
        _0 = getattr(self, "0")(input_1);  input_1 = None
        return _0
    >>> module(torch.tensor([-1.0, 2.0]))
    tensor([0., 2.])
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        plain = next(c for c in cls.__mro__ if c.__qualname__.split(".")[-1] != "GraphModuleImpl")

        class GraphModuleImpl(plain):  # type: ignore[misc, valid-type]
            pass

        return super().__new__(GraphModuleImpl)

    def __init__(
        self, root: Module | dict[str, Any], graph: Graph, class_name: str = "GraphModule"
    ) -> None:
        super().__init__()
        type(self).__name__ = class_name
        named = [n for n in graph.nodes if n.op in ("get_attr", "call_module")]
        if isinstance(root, Module):
            self.training = root.training
            if isinstance(root, _CodeOnlyModule):
                for parts in (root.named_children(), root.named_buffers(), root.named_parameters()):
                    for name, _ in parts:
                        _copy_attr(root, self, name)
            for node in named:
                _copy_attr(root, self, node.target)
        elif isinstance(root, dict):
            for node in named:
                if node.target not in root:
                    raise RuntimeError(f"Node {node} referenced target {node.target} but that "
                                       "target was not provided in ``root``!")  # fmt: skip
            for target in sorted((n.target for n in named), key=lambda t: t.count(".")):
                _assign_attr(root[target], self, target)
        else:
            raise RuntimeError(f"Unsupported type {root} passed for root!")
        self.graph = graph
        tracer = graph._tracer_cls
        self._tracer_cls = tracer if tracer and "<locals>" not in tracer.__qualname__ else None
        self._tracer_extras = graph._tracer_extras or {}
        self.meta: dict[str, Any] = {}

    @property
    def graph(self) -> Graph:
        """The graph that the code is of."""
        return self._graph

    @graph.setter
    def graph(self, g: Graph) -> None:
        if not isinstance(g, Graph):
            raise AssertionError(f"Expected a Graph instance, but got {type(g)}")
        self._graph = g
        g.owning_module = self
        self.recompile()

    @property
    def code(self) -> str:
        """The text of `forward`; RuntimeError before there is any."""
        if "_code" not in vars(self):
            raise RuntimeError("Code has not been generated! assign a graph, or call recompile()")
        return self._code

    def recompile(self) -> PythonCode:
        """Brings `code` and `forward` up to date with the graph, and those of children."""
        codegen = self._graph._codegen
        if isinstance(codegen, _PyTreeCodeGen):
            self._in_spec, self._out_spec = (
                codegen.pytree_info.in_spec,
                codegen.pytree_info.out_spec,
            )
        code = self._graph.python_code(root_module="self")
        self._code = code.src
        type(self).forward = _forward_from_src(code.src, code.globals)  # type: ignore[method-assign]
        for child in self.children():
            if isinstance(child, GraphModule):
                child.recompile()
        return code

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().__call__(*args, **kwargs)
        except Exception as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            if last.filename.startswith(_SOURCE):
                print(_place_of(last), file=sys.stderr)
                raise error.with_traceback(None) from None
            raise

    # ------------------------------------------------------------------ parts

    def add_submodule(self, target: str, m: Module) -> bool:
        """Puts a module at a path, with modules in between; False where the path is no module's."""
        *path, name = target.split(".")
        module: Module = self
        for part in path:
            if getattr(module, part, None) is None:
                setattr(module, part, Module())
            module = getattr(module, part)
            if not isinstance(module, Module):
                return False
        module.add_module(name, m)
        return True

    def delete_submodule(self, target: str) -> bool:
        """Takes the module at a path out; False where there is none."""
        *path, name = target.split(".")
        module: Any = self
        for part in (*path, name):
            home, module = module, getattr(module, part, None)
            if not isinstance(module, Module):
                return False
        delattr(home, name)
        return True

    def delete_all_unused_submodules(self) -> None:
        """Takes out the modules that no node of the graph names."""
        used: set[str] = set()
        for node in self.graph.nodes:
            if node.op not in ("call_module", "get_attr"):
                continue
            used.update(accumulate(node.target.split("."), lambda x, y: f"{x}.{y}"))
            try:
                inner = self.get_submodule(node.target)
            except AttributeError:  # a tensor
                continue
            used.update(f"{node.target}.{name}" for name, _ in inner.named_modules() if name)
        for name, _ in list(self.named_modules()):
            if name and name not in used:
                self.delete_submodule(name)

    # ------------------------------------------------------------------ copies, and texts

    def __reduce__(self) -> tuple[Any, ...]:
        body = dict(vars(self))
        names = self.recompile().globals
        del body["_graph"]
        body["_graphmodule_cls_name"] = type(self).__name__
        block = "\n".join(sorted({_import_statement(name, obj) for name, obj in names.items()}))
        return reduce_graph_module, (body, block + "\n")

    def __deepcopy__(self, memo: dict[int, Any]) -> GraphModule:
        copied = type(self).__new__(type(self))
        memo[id(self)] = copied
        root = _CodeOnlyModule(copy.deepcopy(vars(self), memo))
        GraphModule.__init__(copied, root, root.__dict__["_graph"])
        for name, value in vars(root).items():
            if name.endswith("_hooks") or name == "meta":
                vars(copied)[name] = value
        for name, value in copied.meta.get(_USER_PRESERVED_ATTRIBUTES_KEY, {}).items():
            setattr(copied, name, value)
        return copied

    def __copy__(self) -> GraphModule:
        copied = GraphModule(self, self.graph)
        copied.meta = self.meta
        return copied

    def print_readable(
        self, print_output: bool = True, include_stride: bool = False,
        include_device: bool = False, colored: bool = False, *, expanded_def: bool = False,
    ) -> str:  # fmt: skip
        """The module as the text of a class, with what its nodes note; it is printed, too."""
        style = {"include_stride": include_stride, "include_device": include_device,
                 "colored": colored, "expanded_def": expanded_def}  # fmt: skip
        text = _readable(self, self._get_name(), style)
        if print_output:
            print(text)
        return text

    def __str__(self) -> str:
        hint = "# To see more debug info, please use `graph_module.print_readable()`"
        return "\n".join([super().__str__(), self._code, hint])


def _readable(module: GraphModule, name: str, style: dict[str, bool]) -> str:
    code = module.graph.python_code("self", verbose=True, **style).src.lstrip("\n")
    children = [
        _readable(child, child_name, style)
        for child_name, child in module.named_children() if isinstance(child, GraphModule)
    ]  # fmt: skip
    whole = f"class {name}(torch.nn.Module):\n{code}"
    return _indented(whole) + _indented("\n".join(["", *children]))


def _indented(text: str) -> str:
    """The text with every line but the first four columns to the right; blank ones are empty."""
    first, *rest = text.split("\n")
    return "\n".join([first, *(f"    {line}" if line.strip() else "" for line in rest)])


def _place_of(frame: traceback.FrameSummary) -> str:
    """Where in a generated forward an error came up, with the lines around."""
    lines, at = linecache.getlines(frame.filename), frame.lineno or 1
    return "\n".join([
        traceback.format_exc(),
        f"Call using an FX-traced Module, line {at} of the traced Module's generated forward "
        "function:",
        "".join(lines[at - 2 : at]), "~" * len(frame.line or "") + "~~~ <--- HERE",
        "\n".join(lines[at : at + 2]),
    ])  # fmt: skip


explain(__name__)
