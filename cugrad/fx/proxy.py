"""Proxies stand for values while a function is traced, and note what is done to them."""

from __future__ import annotations

import copy
import dis
import enum
import inspect
import operator
import traceback
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from types import FrameType
from typing import Any

from ..device import device
from ..dtypes import dtype
from ..functions.calls.out import layout
from ..functions.shapes.layouts import memory_format
from ..nn import Parameter
from ..overrides import is_tensor_method_or_property
from ..runtime.absent import explain
from ..runtime.dispatching import switch_on
from ..tensor import Size, Tensor
from .binding import as_pytorch_calls
from .graph import Graph
from .node import Argument, Node, Target, map_aggregate, map_arg
from .operators import OPERATORS, REFLECTED

__all__ = [
    "Attribute", "GraphAppendingTracer", "ParameterProxy", "Proxy", "Scope",
    "ScopeContextManager", "TraceError", "TracerBase", "assert_fn",
]  # fmt: skip

base_types = (str, int, float, bool, complex, dtype, Tensor, device, memory_format, layout, Size)


class Scope:
    """The path and the class of the module whose forward is being traced."""

    def __init__(self, module_path: str, module_type: Any) -> None:
        self.module_path, self.module_type = module_path, module_type


class ScopeContextManager:
    """Has a scope say what another says, until it ends."""

    def __init__(self, scope: Scope, current_scope: Scope) -> None:
        self._scope, self._before = scope, copy.copy(scope)
        vars(scope).update(vars(current_scope))

    def __enter__(self) -> Scope:
        return self._scope

    def __exit__(self, *error: object) -> None:
        vars(self._scope).update(vars(self._before))


class TraceError(ValueError):
    """A value was asked for that is not known while a function is traced."""


def assert_fn(x: Any) -> None:
    """AssertionError for what is false: an `assert` of a traced function."""
    if not x:
        raise AssertionError("Assertion failed")


class TracerBase:
    """Makes nodes of calls: what tracers have in common.

    `record_stack_traces` has nodes note where in the program they were made, `trace_asserts` has
    `assert` of a proxy be a node, and `proxy_buffer_attributes` has buffers be proxies, as
    parameters are. `traced_func_name` is the method of a module that is traced.
    """

    graph: Graph
    record_stack_traces = False
    trace_asserts = False
    proxy_buffer_attributes = False
    traced_func_name = "forward"

    def __init__(self) -> None:
        self.scope = Scope("", None)
        self.module_stack: OrderedDict[str, tuple[str, Any]] = OrderedDict()
        self.node_name_to_scope: dict[str, tuple[str, Any]] = {}

    def create_node(
        self, kind: str, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Argument],
        name: str | None = None, type_expr: Any = None,
    ) -> Node:  # fmt: skip
        """A new node at the end of the graph; subclasses may check or change what it gets."""
        node = self.graph.create_node(kind, target, args, kwargs, name, type_expr)
        self.node_name_to_scope[node.name] = (self.scope.module_path, self.scope.module_type)
        if self.module_stack:
            node.meta["nn_module_stack"] = copy.copy(self.module_stack)
        if self.record_stack_traces and not node.stack_trace:
            frames = [f for f in traceback.extract_stack() if f.filename not in _OWN_FILES]
            names = [f.name for f in frames]
            if "forward" in names:
                shown = traceback.StackSummary.from_list(frames[names.index("forward") :])
                node.stack_trace = "".join(shown.format()).strip()
        return node

    def proxy(self, node: Node) -> Proxy:
        """What stands for a node's result."""
        return Proxy(node, self)

    def create_proxy(
        self, kind: str, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any],
        name: str | None = None, type_expr: Any = None,
        proxy_factory_fn: Callable[[Node], Proxy] | None = None,
    ) -> Any:  # fmt: skip
        """What stands for the result of a call whose arguments may be proxies."""
        node = self.create_node(
            kind, target, self.create_arg(args), self.create_arg(kwargs), name, type_expr
        )
        return (proxy_factory_fn or self.proxy)(node)

    def create_arg(self, a: Any) -> Argument:
        """An argument as nodes have them: with nodes in the places of proxies.

        NotImplementedError for a value that no code can be written of; RuntimeError for a dict with
        a proxy as a key.
        """
        if isinstance(a, Proxy):
            return a.node
        if hasattr(a, "__fx_create_arg__"):
            return a.__fx_create_arg__(self)
        if isinstance(a, tuple) and not isinstance(a, Size):
            parts = [self.create_arg(x) for x in a]
            return type(a)(*parts) if hasattr(a, "_fields") else type(a)(parts)
        if isinstance(a, list):
            return [self.create_arg(x) for x in a]
        if isinstance(a, dict):
            return {self._key(k): self.create_arg(v) for k, v in a.items()}
        if isinstance(a, (slice, range)):
            return type(a)(*(self.create_arg(x) for x in (a.start, a.stop, a.step)))
        if is_dataclass(a) and not isinstance(a, type):
            named = {f.name: self.create_arg(getattr(a, f.name)) for f in fields(a)}
            return self.create_node("call_function", type(a), (), named)
        if isinstance(a, (*base_types, enum.Enum)) or a is None or a is ...:
            return a
        raise NotImplementedError(f"argument of type: {type(a)}")

    def _key(self, key: Any) -> Any:
        if isinstance(key, str):
            return key

        def refuse(node: Node) -> None:
            raise RuntimeError(
                f"Keys for dictionaries used as an argument cannot contain a Node. Got key: {node}"
            )

        key = self.create_arg(key)
        map_arg(key, refuse)
        return key

    def to_bool(self, obj: Proxy) -> bool:
        """Whether a proxy is true: it is not known, so TraceError; a subclass may answer."""
        raise TraceError("symbolically traced variables cannot be used as inputs to control flow")

    def iter(self, obj: Proxy) -> Iterator[Any]:
        """What is in a proxy: it is not known, so TraceError; a subclass may answer."""
        raise TraceError(
            "Proxy object cannot be iterated. This can be attempted when the Proxy is used in a "
            "loop or as a *args or **kwargs function argument. See the torch.fx docs on "
            "pytorch.org for a more detailed explanation of what types of control flow can be "
            "traced, and check out the Proxy docstring for help troubleshooting Proxy iteration "
            "errors"
        )

    def keys(self, obj: Proxy) -> Any:
        """The keys of a proxy, which `**proxy` asks for: a call of its method."""
        return Attribute(obj, "keys")()


class GraphAppendingTracer(TracerBase):
    """Makes nodes at the insert point of a graph, while nothing is traced."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.graph = graph


class Proxy:
    """Stands for the result of a node. What is done to it becomes a node of its graph.

    It can be no condition, and no loop can go along it, because its value is not known: a
    TraceError. `fx.wrap` makes one node of a function that does so.

    >>> import cugrad as torch
    >>> graph = torch.fx.Graph()
    >>> x = torch.fx.Proxy(graph.placeholder("x"))
    >>> torch.relu(x) + 1, x.mean(0), x.shape
    (Proxy(add), Proxy(mean), Proxy(getattr_1))
    """

    def __init__(self, node: Node, tracer: TracerBase | None = None) -> None:
        switch_on()  # functions ask it, also outside of a trace
        self.tracer = GraphAppendingTracer(node.graph) if tracer is None else tracer
        self.node = node

    def __repr__(self) -> str:
        return f"Proxy({self.node.name})"

    def __getattr__(self, k: str) -> Attribute:
        return Attribute(self, k)  # a node of its own only if it is not called

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__

    def __setstate__(self, d: dict[str, Any]) -> None:
        self.__dict__ = d

    def __deepcopy__(self, memo: dict[int, Any]) -> Proxy:
        copied = Proxy.__new__(Proxy)
        copied.__dict__ = {k: copy.deepcopy(v, memo) for k, v in self.__dict__.items()}
        return copied

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.tracer.create_proxy("call_method", "__call__", (self, *args), kwargs)

    def __iter__(self) -> Iterator[Any]:
        at = _instructions(inspect.currentframe())
        if at is not None:
            first = at[0][at[1]]
            if first.opname == "UNPACK_SEQUENCE":  # a, b = proxy
                return (self[i] for i in range(first.argval))
        return self.tracer.iter(self)

    def __abs__(self) -> Any:
        return self.tracer.create_proxy("call_function", operator.abs, (self,), {})

    def __bool__(self) -> bool:
        if self.tracer.trace_asserts and _is_asserted(inspect.currentframe()):
            self.tracer.create_proxy("call_function", assert_fn, (self,), {})
            return True
        return self.tracer.to_bool(self)

    def __getitem__(self, key: Any) -> Any:
        return self.tracer.create_proxy("call_function", operator.getitem, (self, key), {})

    def keys(self) -> Any:
        """The keys, where the value is a dict."""
        return self.tracer.keys(self)

    def __len__(self) -> int:
        raise RuntimeError(
            "'len' is not supported in symbolic tracing by default. If you want this call to be "
            "recorded, please call torch.fx.wrap('len') at module scope"
        )

    @classmethod
    def __torch_function__(
        cls, orig_method: Any, types: Any, args: Any = None, kwargs: Any = None
    ) -> Any:
        args, kwargs = args or (), kwargs or {}
        tracers: dict[TracerBase, None] = {}

        def note(x: Any) -> None:
            if isinstance(x, cls):
                tracers[x.tracer] = None

        map_aggregate((args, kwargs), note)
        if len(tracers) > 1:
            raise RuntimeError(
                f"Found multiple different tracers {list(tracers)} while "
                f"trying to trace operations {orig_method}"
            )
        (tracer,) = tracers
        name = orig_method.__name__
        if is_tensor_method_or_property(orig_method):
            return tracer.create_proxy("call_method", name, args, kwargs)
        kind, target, args, kwargs = as_pytorch_calls(orig_method, args, kwargs)
        hint = None if kind == "call_method" else Graph._target_to_str(name)
        return tracer.create_proxy(kind, target, args, kwargs, name=hint)


class Attribute(Proxy):
    """Stands for an attribute of a proxy; a call of it is a node for the method."""

    def __init__(self, root: Proxy, attr: str) -> None:
        self.root, self.attr, self.tracer = root, attr, root.tracer
        self._node: Node | None = None

    @property
    def node(self) -> Node:  # type: ignore[override]
        """The node that reads the attribute, which is made when it is asked for."""
        if self._node is None:
            self._node = self.tracer.create_proxy(
                "call_function", getattr, (self.root, self.attr), {}
            ).node
        return self._node

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.tracer.create_proxy("call_method", self.attr, (self.root, *args), kwargs)


class ParameterProxy(Proxy):
    """Stands for a parameter whose shape is taken for a constant."""

    def __init__(self, tracer: TracerBase, node: Node, name: str, param: Parameter) -> None:
        super().__init__(node, tracer)
        if not isinstance(param, Parameter):
            raise AssertionError(f"Expected Parameter, got {type(param)}")
        self.param, self.name = param, name

    def __repr__(self) -> str:
        return f"ParameterProxy({self.name})"

    @property
    def shape(self) -> Size:
        """The parameter's shape."""
        return self.param.shape

    def size(self) -> Size:
        """The parameter's shape."""
        return self.param.size()

    def dim(self) -> int:
        """How many dims the parameter has."""
        return self.param.dim()

    @property
    def ndim(self) -> int:
        """How many dims the parameter has."""
        return self.param.ndim

    def numel(self) -> int:
        """How many elements the parameter has."""
        return self.param.numel()

    nelement = numel


def _take_operators() -> None:
    """Gives proxies Python's operators."""

    def forward(name: str) -> Callable[..., Any]:
        def apply(*args: Any, **kwargs: Any) -> Any:
            target = getattr(operator, name)
            return args[0].tracer.create_proxy("call_function", target, args, kwargs)

        return apply

    def reflected(name: str) -> Callable[..., Any]:
        def apply(self: Proxy, rhs: Any) -> Any:
            target = getattr(operator, name)
            return self.tracer.create_proxy("call_function", target, (rhs, self), {})

        return apply

    for names, kind, prefix in ((OPERATORS, forward, ""), (REFLECTED, reflected, "r")):
        for name in names:
            method = kind(name)
            method.__name__ = f"__{prefix}{name.strip('_')}__"
            setattr(Proxy, method.__name__, method)
    Proxy.__hash__ = object.__hash__  # type: ignore[method-assign]


_take_operators()
_OWN_FILES = {__file__, __file__.replace("proxy.py", "_symbolic_trace.py")}


def _instructions(frame: FrameType | None) -> tuple[list[dis.Instruction], int] | None:
    """The instructions of who called the function of a frame, and at which that one is."""
    caller = None if frame is None else frame.f_back
    if caller is None:
        return None
    all_of_it = list(dis.get_instructions(caller.f_code))
    return all_of_it, bisect_left(all_of_it, caller.f_lasti, key=lambda x: x.offset)


def _is_asserted(frame: FrameType | None) -> bool:
    """Whether who called the function of a frame is at `assert`."""
    at = _instructions(frame)
    if at is None:
        return False
    steps, current = at
    is_jump = steps[current].opname.startswith("POP_JUMP") and "TRUE" in steps[current].opname
    behind = steps[current + 1].opname if current + 1 < len(steps) else ""
    return is_jump and behind == "LOAD_ASSERTION_ERROR"


explain(__name__)
