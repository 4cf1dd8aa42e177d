"""Symbolic traces: a function or module runs once with proxies, and its calls become a graph."""

from __future__ import annotations

import copy
import functools
import inspect
import math
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable
from types import FunctionType, ModuleType
from typing import Any, TypeVar

from ..functions.control import _assert
from ..nn import Module, Parameter, Sequential
from ..tensor import Tensor
from ..utils import _pytree as pytree
from .graph import Graph, _PyTreeCodeGen, _PyTreeInfo
from .graph_module import GraphModule
from .naming import is_ours
from .node import Argument
from .patching import WRAPPED, Patches
from .proxy import ParameterProxy, Proxy, Scope, ScopeContextManager, TracerBase, base_types

__all__ = [
    "PH", "PHBase", "PHWithMeta", "ProxyableClassMeta", "Tracer", "is_fx_symbolic_tracing",
    "is_fx_tracing", "symbolic_trace", "wrap",
]  # fmt: skip

F = TypeVar("F")
_proxyable_classes: set[type] = set()
_VARIADIC = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS


class _Now:
    """How many traces are under way, one within the other."""

    depth = 0


def is_fx_tracing() -> bool:
    """Whether a function is being traced."""
    return _Now.depth > 0


is_fx_symbolic_tracing = is_fx_tracing


class PHBase:
    """Among concrete arguments: this one is not known."""

    def __repr__(self) -> str:
        return "PH"


PH = PHBase()


class PHWithMeta(PHBase):
    """Among concrete arguments: this one is not known, and its node gets this one's attributes."""

    def __init__(self, ph_key: str | None = None) -> None:
        self.ph_key = ph_key


class ProxyableClassMeta(type):
    """The class of classes whose instances are made by a node, where a proxy is an argument."""

    def __init__(cls, name: str, bases: tuple[type, ...], attrs: dict[str, Any]) -> None:
        _proxyable_classes.add(cls)
        super().__init__(name, bases, attrs)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        proxies: list[Proxy] = []
        if is_fx_tracing():
            pytree.tree_map_only(Proxy, proxies.append, (args, kwargs))
        if proxies:
            return proxies[0].tracer.create_proxy("call_function", cls, args, kwargs)
        return super().__call__(*args, **kwargs)


class Tracer(TracerBase):
    """Traces functions and modules; subclasses say what is traced into, and what becomes of values.

    Calls of the functions of `autowrap_modules`, and of `autowrap_functions`, are one node each
    if a proxy is an argument. With `param_shapes_constant` the shapes of parameters are numbers.

    >>> import cugrad as torch
    >>> print(torch.fx.Tracer().trace(lambda x: torch.relu(x) + 1))
    graph():
        %x : [num_users=1] = placeholder[target=x]
        %relu : [num_users=1] = call_function[target=torch.relu](args = (%x,), kwargs = {})
        %add : [num_users=1] = call_function[target=operator.add](args = (%relu, 1), kwargs = {})
        return add
    """

    root: Module
    tensor_attrs: dict[Any, str]

    def __init__(
        self, autowrap_modules: tuple[ModuleType, ...] = (math,),
        autowrap_functions: tuple[Callable[..., Any], ...] = (),
        param_shapes_constant: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self._autowrap_function_ids = {
            id(value) for module in autowrap_modules for name, value in vars(module).items()
            if not name.startswith("_") and callable(value)
        } | {id(f) for f in autowrap_functions}  # fmt: skip
        self._autowrap_search = list(autowrap_modules)
        self.param_shapes_constant = param_shapes_constant
        self.submodule_paths: dict[Module, str] | None = None
        self.root_module_name = ""
        self.num_calls: dict[str, int] = {}
        self._counters: dict[str, int] = defaultdict(int)

    def get_fresh_qualname(self, prefix: str) -> str:
        """A name for an attribute of the root that it does not have: the prefix and a number."""
        if not hasattr(self.root, f"{prefix}0"):
            self._counters[prefix] = 0
            return f"{prefix}0"
        while hasattr(self.root, f"{prefix}{self._counters[prefix]}"):
            self._counters[prefix] += 1
        self._counters[prefix] += 1
        return f"{prefix}{self._counters[prefix] - 1}"

    def create_arg(self, a: Any) -> Argument:
        """An argument as nodes have them: tensors and modules become attributes of the root.

        NameError for a parameter that the root does not have.
        """
        if isinstance(a, Parameter):
            for name, parameter in self.root.named_parameters():
                if a is parameter:
                    return self.create_node("get_attr", name, (), {})
            raise NameError("parameter is not a member of this module")
        if isinstance(a, (Tensor, Module)):
            named: Iterable[tuple[str, Any]] = (
                self.root.named_buffers() if isinstance(a, Tensor) else self.root.named_modules()
            )
            for name, part in named:
                if a is part:
                    return self.create_node("get_attr", name, (), {})
        if isinstance(a, tuple) and hasattr(a, "_fields"):
            return self.create_node("call_function", type(a), tuple(map(self.create_arg, a)), {})
        if isinstance(a, Tensor):
            if a not in self.tensor_attrs:
                self.tensor_attrs[a] = self.get_fresh_qualname("_tensor_constant")
                setattr(self.root, self.tensor_attrs[a], a)
            return self.create_node("get_attr", self.tensor_attrs[a], (), {})
        if type(a) in _proxyable_classes:
            name = self.get_fresh_qualname(f"_{type(a).__name__}_constant_")
            setattr(self.root, name, a)
            return self.create_node("get_attr", name, (), {})
        return super().create_arg(a)

    def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
        """Whether calls of a module are one node: those of `torch.nn`, but Sequential, are."""
        home = type(m).__module__.split(".")
        return is_ours(type(m)) and home[1:2] == ["nn"] and not isinstance(m, Sequential)

    def path_of_module(self, mod: Module) -> str:
        """The path of a module in the root; NameError for one that is not in it."""
        paths = self.submodule_paths or {m: name for name, m in self.root.named_modules()}
        if mod not in paths:
            raise NameError("module is not installed as a submodule")
        return paths[mod]

    def call_module(
        self, m: Module, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """What a call of a module in a trace does: a node, or `forward` with its proxies."""
        path = self.path_of_module(m)
        with ScopeContextManager(self.scope, Scope(path, type(m))):
            calls = self.num_calls.get(path, 0)
            key = f"{path}@{calls}" if calls else path
            self.module_stack[key] = (path, type(m))
            self.num_calls[path] = calls + 1
            if self.is_leaf_module(m, path):
                result = self.create_proxy("call_module", path, args, kwargs)
            else:
                result = forward(*args, **kwargs)
            self.module_stack.popitem(last=True)
        return result

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Proxy]) -> Any:
        """What reading an attribute of a module in a trace gives: proxies for parameters."""
        if isinstance(attr_val, Parameter):
            named: Iterable[tuple[str, Any]] = self.root.named_parameters()
        elif self.proxy_buffer_attributes and isinstance(attr_val, Tensor):
            named = self.root.named_buffers()
        else:
            return attr_val
        for name, value in named:
            if attr_val is value:
                if name not in parameter_proxy_cache:
                    parameter_proxy_cache[name] = self._proxy_of(name, value)
                return parameter_proxy_cache[name]
        return attr_val

    def _proxy_of(self, name: str, value: Any) -> Any:
        if not self.param_shapes_constant:
            return self.create_proxy("get_attr", name, (), {})
        return self.create_proxy(
            "get_attr", name, (), {},
            proxy_factory_fn=lambda node: ParameterProxy(self, node, name, value),
        )  # fmt: skip

    def create_args_for_root(
        self, root_fn: Any, is_module: bool,
        concrete_args: dict[str, Any] | tuple[Any, ...] | None = None,
    ) -> tuple[Any, list[Any]]:  # fmt: skip
        """The function to run, and proxies for its arguments, whose placeholders it makes.

        RuntimeError where there is no `self`, or another number of concrete arguments.
        """
        function = inspect.unwrap(root_fn)
        code, signature = function.__code__, inspect.signature(function)
        count = code.co_argcount + code.co_kwonlyargcount
        if is_module and count == 0:
            raise RuntimeError("``self`` argument cannot be part of *args expansion!")
        args: list[Any] = [self.root] if is_module else []
        names = list(code.co_varnames[len(args) : count])
        if isinstance(concrete_args, tuple):
            if code.co_flags & _VARIADIC and count == 1 and concrete_args:
                return root_fn, args + [
                    self._placeholder(f"input_{i}", (), value)
                    for i, value in enumerate(concrete_args)
                ]
            if len(names) != len(concrete_args):
                raise RuntimeError(f"Tracing expected {len(names)} arguments but got "
                                   f"{len(concrete_args)} concrete arguments")  # fmt: skip
            concrete_args = dict(zip(names, concrete_args))
        starred = [(inspect.CO_VARARGS, "*"), (inspect.CO_VARKEYWORDS, "**")]
        stars = [star for flag, star in starred if code.co_flags & flag]
        names += [star + name for star, name in zip(stars, code.co_varnames[count:])]
        args += [self._argument(name, concrete_args or {}, signature, function) for name in names]
        if code.co_kwonlyargcount > 0 or stars:
            root_fn = _with_plain_arguments(root_fn, len(args))
        leaves, form = pytree.tree_flatten(tuple(args))
        if all(child.is_leaf() for child in form.children()):
            return root_fn, args
        info = _PyTreeInfo(list(code.co_varnames)[:count], form, None)
        codegen = self.graph._codegen = _PyTreeCodeGen(info)

        def flat(*args: Any) -> Any:
            result = root_fn(*pytree.tree_unflatten(list(args), form))
            leaves, codegen_out = pytree.tree_flatten(result)
            codegen.pytree_info = info._replace(out_spec=codegen_out)
            return leaves

        return flat, leaves

    def _placeholder(self, name: str, default: tuple[Any, ...], concrete: Any) -> Any:
        proxy = self.create_proxy("placeholder", name, default, {})
        if isinstance(concrete, PHBase) and concrete is not PH:
            for key in dir(concrete):
                value = getattr(concrete, key)
                if (
                    not callable(value)
                    and not key.startswith("__")
                    and not hasattr(proxy.node, key)
                ):
                    setattr(proxy.node, key, value)
        return proxy

    def _argument(
        self, name: str, concrete: dict[str, Any], signature: inspect.Signature, function: Any
    ) -> Any:
        """A proxy for an argument; where it is known, its value, and a node that makes sure."""
        default: tuple[Any, ...] = ()
        if name[0] != "*":
            value = signature.parameters[name].default
            default = () if value is inspect.Parameter.empty else (value,)
        if name not in concrete:
            return self.create_proxy(
                "placeholder", name, default, {},
                type_expr=_annotations(function).get(name),
            )  # fmt: skip
        count = 0

        def settle(x: Any) -> Any:
            nonlocal count
            count += 1
            proxy = self._placeholder(f"{name}_{count}", default, x)
            if isinstance(x, PHBase):
                return proxy
            said = f"{name} has been specialized to have value {x} but got another value"
            if isinstance(x, base_types) and not isinstance(x, Tensor):
                self.create_proxy("call_function", _assert, (proxy == x, said), {})
            elif x is None:
                self.create_proxy("call_function", _assert_is_none, (proxy, said), {})
            else:
                warnings.warn(
                    "Was not able to add assertion to guarantee correct input "
                    f"{name} to specialized function. It is up to the user to make sure that your "
                    "inputs match the inputs you specialized the function with.",
                    stacklevel=2,
                )
            return x

        return pytree.tree_map(settle, concrete[name])

    def trace(
        self, root: Module | Callable[..., Any], concrete_args: dict[str, Any] | None = None
    ) -> Graph:
        """The graph of a function or module.

        `concrete_args` are arguments whose values are known: what follows from them is not in the
        graph. Calls of modules are traced, process-wide, until this returns.
        """
        if isinstance(root, Module):
            self.root = root
            if not hasattr(type(root), self.traced_func_name):
                raise AssertionError(f"traced_func_name={self.traced_func_name} doesn't exist in "
                                     f"{type(root).__name__}")  # fmt: skip
            fn = getattr(type(root), self.traced_func_name)
            self.root_module_name = root._get_name()
            self.submodule_paths = {mod: name for name, mod in root.named_modules()}
        else:
            self.root, fn = Module(), root
        if not isinstance(fn, FunctionType):
            raise AssertionError(f"Expected FunctionType, got {type(fn)}")
        self.graph = Graph(tracer_cls=type(self))
        self.tensor_attrs = {
            value: f"{path}.{name}".lstrip(".") for path, module in self.root.named_modules()
            for name, value in vars(module).items() if isinstance(value, Tensor)
        }  # fmt: skip
        _Now.depth += 1
        try:
            names = fn.__globals__
            fn, args = self.create_args_for_root(fn, isinstance(root, Module), concrete_args)
            with Patches() as patches:
                self._patch(patches, names)
                returns = _annotations(inspect.unwrap(fn)).get("return")
                result = (self.create_arg(fn(*args)),)
                self.create_node("output", "output", result, {}, type_expr=returns)
            self.submodule_paths = None
        finally:
            _Now.depth -= 1
        return self.graph

    def _patch(self, patches: Patches, names: dict[str, Any]) -> None:
        """Has modules' calls and attributes come to this tracer, and wrapped functions be nodes."""
        plain_getattr, plain_call = Module.__getattr__, Module.__call__
        proxies: dict[str, Proxy] = {}

        @functools.wraps(plain_getattr)
        def __getattr__(mod: Module, attr: str) -> Any:
            return self.getattr(attr, plain_getattr(mod, attr), proxies)

        @functools.wraps(plain_call)
        def __call__(mod: Module, *args: Any, **kwargs: Any) -> Any:
            def forward(*args: Any, **kwargs: Any) -> Any:
                return plain_call(mod, *args, **kwargs)

            around = getattr(getattr(mod, "forward", mod), "__globals__", {})
            patches.wrap_among(around, self._autowrap_function_ids)
            return self.call_module(mod, forward, args, kwargs)

        patches.put_into_class(Module, "__getattr__", __getattr__)
        patches.put_into_class(Module, "__call__", __call__)
        patches.wrap_told()
        for space in (names, *map(vars, self._autowrap_search)):
            patches.wrap_among(space, self._autowrap_function_ids)

    def __deepcopy__(self, memo: dict[int, Any]) -> Tracer:
        tracer = Tracer.__new__(type(self))
        for key, value in vars(self).items():
            copied = copy.copy(value) if key == "_autowrap_search" else copy.deepcopy(value, memo)
            vars(tracer)[key] = copied
        return tracer


def _with_plain_arguments(function: Any, count: int) -> Any:
    """A function whose *args and **kwargs, and arguments by name, are arguments by position."""
    code = function.__code__
    code = code.replace(
        co_argcount=count, co_posonlyargcount=0, co_kwonlyargcount=0,
        co_flags=code.co_flags & ~_VARIADIC,
    )  # fmt: skip
    return FunctionType(
        code, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )


def _annotations(function: Any) -> dict[str, Any]:
    """The types of a program's function; those of the library's own are not PyTorch's."""
    return {} if is_ours(function) else inspect.get_annotations(function)


def _assert_is_none(value: object, msg: str) -> None:
    if value is not None:
        raise AssertionError(msg)


WRAPPED[(id(globals()), "_assert_is_none")] = globals()


def wrap(fn_or_name: F) -> F:
    """Has calls of a function, of the module that says so, be one node: it is not traced into.

    The function, or the name of one, is given back. NotImplementedError if it is not called at the
    top of a module; RuntimeError for what is neither a function nor a name.
    """
    if not callable(fn_or_name) and not isinstance(fn_or_name, str):
        raise RuntimeError(
            "Unsupported type for global function! Must be either a callable or string name"
        )
    name = fn_or_name if isinstance(fn_or_name, str) else fn_or_name.__name__  # type: ignore[attr-defined]
    frame = inspect.currentframe()
    assert frame is not None and frame.f_back is not None
    if frame.f_back.f_code.co_name != "<module>":
        raise NotImplementedError("wrap must be called at the top level of a module")
    names = frame.f_back.f_globals
    WRAPPED[(id(names), name)] = names
    return fn_or_name


def symbolic_trace(
    root: Module | Callable[..., Any], concrete_args: dict[str, Any] | None = None
) -> GraphModule:
    """A function or module as a module that runs the graph of its calls.

    `concrete_args` are arguments whose values are known, by name. A value that decides what happens
    next must be among them: a TraceError.

    >>> import cugrad as torch
    >>> def f(x, scale=2.0):
    ...     return torch.relu(x).sum() * scale
    >>> print(torch.fx.symbolic_trace(f).code.strip())
    def forward(self, x, scale = 2.0):
        relu = torch.relu(x);  x = None
        sum_1 = relu.sum();  relu = None
        mul = sum_1 * scale;  sum_1 = scale = None
        return mul
    """
    tracer = Tracer()
    graph = tracer.trace(root, concrete_args)
    name = type(root).__name__ if isinstance(root, Module) else root.__name__
    return GraphModule(tracer.root, graph, name)
