"""A node of a graph: one call, its arguments, and who uses its result."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from ..functions.control import _assert, _assert_async
from ..tensor import Tensor
from .immutable_collections import immutable_dict, immutable_list
from .metadata import dtype_name
from .naming import LIBRARY, qualified_name, type_name

if TYPE_CHECKING:
    from .graph import Graph

__all__ = ["Argument", "Node", "Target", "has_side_effect", "map_aggregate", "map_arg"]

Argument = Any
Target = Callable[..., Any] | str
F = TypeVar("F", bound=Callable[..., Any])
OPS = ("placeholder", "call_method", "call_module", "call_function", "get_attr", "output")
_get_qualified_name = qualified_name
_type_repr = type_name


# Functions whose calls stay in a graph although what they return is not used.
_side_effectful_functions: set[Callable[..., Any]] = {
    _assert, _assert_async, operator.setitem,
    *(getattr(sys.modules[LIBRARY], name) for name in (
        "bernoulli", "multinomial", "normal", "poisson", "rand", "rand_like", "randint",
        "randint_like", "randn", "randn_like", "randperm",
    )),
}  # fmt: skip


def has_side_effect(fn: F) -> F:
    """Has calls of a function stay in graphs, though what it returns is not used."""
    _side_effectful_functions.add(fn)
    return fn


def map_aggregate(a: Argument, fn: Callable[[Any], Any]) -> Any:
    """Nested tuples, lists, dicts and slices with `fn` of what is in them.

    >>> map_aggregate([1, {"a": (2, slice(3))}], str)
    ['1', {'a': ('2', slice('None', '3', 'None'))}]
    """
    if isinstance(a, tuple):
        items = [map_aggregate(x, fn) for x in a]
        return type(a)(*items) if hasattr(a, "_fields") else tuple(items)
    if isinstance(a, list):
        return immutable_list([map_aggregate(x, fn) for x in a])
    if isinstance(a, dict):
        return immutable_dict({k: map_aggregate(x, fn) for k, x in a.items()})
    if isinstance(a, slice):
        return slice(*(map_aggregate(x, fn) for x in (a.start, a.stop, a.step)))
    return fn(a)


def map_arg(a: Argument, fn: Callable[[Node], Any]) -> Any:
    """Nested arguments with `fn` of the nodes in them; AssertionError if `fn` is no function."""
    if not callable(fn):
        raise AssertionError("torch.fx.map_arg(a, fn): fn must be a callable")
    return map_aggregate(a, lambda x: fn(x) if isinstance(x, Node) else x)


def _format_arg(arg: Any) -> str:
    if isinstance(arg, list):
        return f"[{', '.join(map(_format_arg, arg))}]"
    if isinstance(arg, tuple):
        return f"({', '.join(map(_format_arg, arg))}{',' if len(arg) == 1 else ''})"
    if isinstance(arg, dict):
        return "{" + ", ".join(f"{k}: {_format_arg(v)}" for k, v in arg.items()) + "}"
    return f"%{arg}" if isinstance(arg, Node) else str(arg)


class Node:
    """One call in a `Graph`, in its place in the graph's order.

    `op` says what `target` is: "placeholder" an argument's name, "get_attr" the path of a tensor in
    the module, "call_function" the function itself, "call_module" a module's path, "call_method" a
    method's name, whose object is the first of `args`, and "output", whose only argument is what
    the graph returns. Nodes among `args` and `kwargs` stand for their results. `users` are the
    nodes that have this one as an argument, and `meta` is the program's to write notes in.

    ValueError for a target that the op cannot call, AssertionError for an op that is none.
    """

    _prev: Node
    _next: Node

    def __init__(
        self, graph: Graph, name: str, op: str, target: Target,
        args: tuple[Argument, ...], kwargs: dict[str, Argument], return_type: Any = None,
    ) -> None:  # fmt: skip
        if op != "call_function" and op not in (*OPS, "root"):
            raise AssertionError(f"op '{op}' is not in _legal_ops")
        if callable(target) if op != "call_function" else not callable(target):
            wants = "a Callable" if op == "call_function" else "a str"
            raise ValueError(
                f"Node [graph = {graph}, name = '{name}'] target {target} has type "
                f"{type_name(type(target))} but {wants} is expected"
            )
        self._prev = self._next = self
        self._erased = False
        self._repr_fn: Callable[[Node], str] | None = None
        self._args: tuple[Argument, ...] = ()
        self._kwargs: dict[str, Argument] = {}
        self._input_nodes: dict[Node, None] = {}
        self.graph, self.name, self.op, self.target = graph, name, op, target
        self.type = return_type
        self.users: dict[Node, None] = {}
        self.meta: dict[str, Any] = {}
        self._update_args_kwargs(args, kwargs)

    # ------------------------------------------------------------------ its place

    @property
    def next(self) -> Node:
        """The node behind this one; behind the last is the graph's root."""
        return self._next

    @property
    def prev(self) -> Node:
        """The node before this one; before the first is the graph's root."""
        return self._prev

    def prepend(self, x: Node) -> None:
        """Puts `x`, of the same graph, before this node; AssertionError for another's."""
        if x.graph is not self.graph:
            raise AssertionError("Attempting to move a Node into a different Graph")
        if x is self:
            return
        x._remove_from_list()
        self._prev._next, x._prev, x._next, self._prev = x, self._prev, self, x
        self.graph._moved()

    def append(self, x: Node) -> None:
        """Puts `x`, of the same graph, behind this node."""
        self._next.prepend(x)

    def _remove_from_list(self) -> None:
        self._prev._next, self._next._prev = self._next, self._prev
        self.graph._moved()

    def __lt__(self, other: Node) -> bool:
        return self.graph._position(self) < self.graph._position(other)

    def __gt__(self, other: Node) -> bool:
        return self.graph._position(self) > self.graph._position(other)

    def __le__(self, other: Node) -> bool:
        return self is other or self < other

    def __ge__(self, other: Node) -> bool:
        return self is other or self > other

    # ------------------------------------------------------------------ its arguments

    @property
    def args(self) -> tuple[Argument, ...]:
        """The arguments by position; assigning others keeps `users` right."""
        return self._args

    @args.setter
    def args(self, a: tuple[Argument, ...]) -> None:
        self._update_args_kwargs(a, self._kwargs)

    @property
    def kwargs(self) -> dict[str, Argument]:
        """The arguments by name; assigning others keeps `users` right."""
        return self._kwargs

    @kwargs.setter
    def kwargs(self, k: dict[str, Argument]) -> None:
        self._update_args_kwargs(self._args, k)

    @property
    def all_input_nodes(self) -> list[Node]:
        """The nodes among the arguments, each once."""
        return list(self._input_nodes)

    def _update_args_kwargs(self, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> None:
        for node in self._input_nodes:
            node.users.pop(self, None)
        self._input_nodes = {}

        def used(node: Node) -> Node:
            self._input_nodes.setdefault(node)
            node.users.setdefault(self)
            return node

        self._args, self._kwargs = map_arg(tuple(args), used), map_arg(dict(kwargs), used)

    def update_arg(self, idx: int, arg: Argument) -> None:
        """Puts `arg` in the place of an argument by position."""
        args = list(self.args)
        args[idx] = arg
        self.args = tuple(args)

    def insert_arg(self, idx: int, arg: Argument) -> None:
        """Puts `arg` before an argument by position; AssertionError where there is none."""
        if not 0 <= idx <= len(self.args):
            raise AssertionError(
                f"insert_args index must be between 0 and len(self.args), got {idx}"
            )
        self.args = (*self.args[:idx], arg, *self.args[idx:])

    def update_kwarg(self, key: str, arg: Argument) -> None:
        """Puts `arg` in the place of an argument by name."""
        self.kwargs = {**self.kwargs, key: arg}

    def replace_all_uses_with(
        self, replace_with: Node, delete_user_cb: Callable[[Node], bool] | None = None,
        *, propagate_meta: bool = False,
    ) -> list[Node]:  # fmt: skip
        """Has this node's users use another; these users.

        `delete_user_cb` says which users, all if it is None. With `propagate_meta` the other
        gets this one's notes; AssertionError where it has notes already.
        """
        if propagate_meta:
            if replace_with.meta:
                raise AssertionError(
                    "Called node.replace_all_uses_with(replace_with, propagate_meta=True), "
                    "but replace_with already has .meta keys"
                )
            replace_with.meta.update(self.meta)
        users = [u for u in self.users if delete_user_cb is None or delete_user_cb(u)]
        for user in users:
            user.replace_input_with(self, replace_with)
        return users

    def replace_input_with(self, old_input: Node, new_input: Node) -> None:
        """Puts a node in the place of another among the arguments."""

        def swapped(node: Node) -> Node:
            return new_input if node is old_input else node

        self._update_args_kwargs(map_arg(self._args, swapped), map_arg(self._kwargs, swapped))

    # ------------------------------------------------------------------ what it is

    @property
    def stack_trace(self) -> str | None:
        """Where in the program the call was made; None where that was not recorded."""
        return self.meta.get("stack_trace")

    @stack_trace.setter
    def stack_trace(self, trace: str | None) -> None:
        self.meta["stack_trace"] = trace

    def is_impure(self) -> bool:
        """Whether the node must stay though its result is not used: it draws numbers, or asserts.

        AssertionError for a module's call in a graph that belongs to no module.
        """
        if self.op in ("placeholder", "output"):
            return True
        if self.op == "call_module":
            if self.graph.owning_module is None:
                raise AssertionError("self.graph.owning_module not set for purity check")
            module = self.graph.owning_module.get_submodule(str(self.target))
            return getattr(module, "_is_impure", False)
        if self.op == "call_function":
            return self.target in _side_effectful_functions
        return False

    def _rename(self, candidate: str) -> None:
        if candidate != self.name:
            names = self.graph._graph_namespace
            self.name = names.create_name(candidate, None)
            names._rename_object(self, self.name)

    def __repr__(self) -> str:
        return self.name if self._repr_fn is None else self._repr_fn(self)

    @staticmethod
    def _pretty_print_target(target: Any) -> str:
        if isinstance(target, str):
            return target
        name = getattr(target, "__name__", None)
        home = {"builtins": "builtins", "_operator": "operator"}.get(target.__module__)
        return qualified_name(target) if home is None or name is None else f"{home}.{name}"

    def format_node(
        self, placeholder_names: list[str] | None = None,
        maybe_return_typename: list[str] | None = None, *, include_tensor_metadata: bool = False,
    ) -> str | None:  # fmt: skip
        """The node as a line of a printed graph.

        A placeholder is appended to `placeholder_names` instead, if there are any, and the result
        is None. An output's type becomes the first of `maybe_return_typename`. With
        `include_tensor_metadata` a tensor among the notes is described.
        """
        kind = f"{type_name(self.type)} " if self.type is not None else ""
        start = f"%{self.name} : {kind}[num_users={len(self.users)}] = {self.op}[target="
        if self.op == "placeholder":
            target = str(self.target)
            if placeholder_names:
                placeholder_names.append(
                    f"{target}{target}: {type_name(self.type)}" if self.type else target
                )
                return None
            default = f"(default={self.args[0]})" if self.args else ""
            return f"{start}{target}]{default}"
        if self.op == "get_attr":
            return f"{start}{self._pretty_print_target(self.target)}]"
        if self.op == "output":
            if self.type and maybe_return_typename:
                maybe_return_typename[0] = f" -> {type_name(self.type)}"
            return f"return {self.args[0]}"
        value = self.meta.get("val", self.meta.get("tensor_meta", self.meta.get("example_value")))
        if include_tensor_metadata and isinstance(value, Tensor):
            shown = f"{list(value.shape)}{list(value.stride())}{value.device}"
            text = f' : Tensor "{dtype_name(value.dtype)}{shown}"'
            start = start.replace(f" : {kind}", text)
        return (
            f"{start}{self._pretty_print_target(self.target)}]("
            f"args = {_format_arg(self.args)}, kwargs = {_format_arg(self.kwargs)})"
        )
