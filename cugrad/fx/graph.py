"""A graph: nodes in the order in which they run, and what is done with them."""

from __future__ import annotations

import copy
import inspect
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

from ..nn import Module, Parameter
from .codegen import CodeGen, PythonCode, Style, _PyTreeCodeGen, _PyTreeInfo, written
from .immutable_collections import immutable_dict
from .naming import Namespace, qualified_name, snake_case, type_name
from .node import OPS, Argument, Node, Target, map_arg

if TYPE_CHECKING:
    from .graph_module import GraphModule

__all__ = ["CodeGen", "Graph", "PythonCode"]
_Namespace, _get_qualified_name, _type_repr = Namespace, qualified_name, type_name
_PyTreeCodeGen, _PyTreeInfo = _PyTreeCodeGen, _PyTreeInfo  # type: ignore[misc]  # PyTorch's place


class _InsertPoint:
    """Where new nodes go from now on; as a context, until it ends."""

    def __init__(self, graph: Graph, insert: Callable[[Node], None]) -> None:
        self.graph = graph
        self.before, graph._insert = graph._insert, insert

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        self.graph._insert = self.before


class _node_list:
    """A graph's nodes in order. They may be added and erased while one walks along them."""

    def __init__(self, graph: Graph, direction: str = "_next") -> None:
        self.graph, self.direction = graph, direction

    def __len__(self) -> int:
        return self.graph._len

    def __iter__(self) -> Iterator[Any]:
        root = self.graph._root
        node = getattr(root, self.direction)
        while node is not root:
            if not node._erased:
                yield node
            node = getattr(node, self.direction)

    def __reversed__(self) -> Iterator[Any]:
        return iter(_node_list(self.graph, "_prev" if self.direction == "_next" else "_next"))


class Graph:
    """Nodes in the order in which they run, from placeholders to the output.

    >>> import cugrad as torch
    >>> graph = torch.fx.Graph()
    >>> x = graph.placeholder("x")
    >>> y = graph.call_function(torch.relu, (x,))
    >>> _ = graph.output(y)
    >>> print(graph)
    graph():
        %x : [num_users=1] = placeholder[target=x]
        %relu : [num_users=1] = call_function[target=torch.relu](args = (%x,), kwargs = {})
        return relu
    >>> torch.fx.GraphModule(torch.nn.Module(), graph)(torch.tensor([-1.0, 2.0]))
    tensor([0., 2.])
    """

    def __init__(
        self, owning_module: GraphModule | None = None, tracer_cls: type[Any] | None = None,
        tracer_extras: dict[str, Any] | None = None,
    ) -> None:  # fmt: skip
        self._order: dict[Node, int] | None = None
        self._root = Node(self, "", "root", "", (), {})
        self._insert: Callable[[Node], None] = self._root.prepend
        self._len = 0
        self._graph_namespace = Namespace()
        self._owning_module = owning_module
        self._tracer_cls, self._tracer_extras = tracer_cls, tracer_extras
        self._codegen = CodeGen()

    def _moved(self) -> None:
        self._order = None

    def _position(self, node: Node) -> int:
        """Where in the order a node is, -1 for one that was erased."""
        if self._order is None:
            self._order = {n: i for i, n in enumerate(self.nodes)}
        return self._order.get(node, -1)

    @property
    def owning_module(self) -> GraphModule | None:
        """The module that runs the graph, None if there is none."""
        return self._owning_module

    @owning_module.setter
    def owning_module(self, mod: GraphModule | None) -> None:
        self._owning_module = mod

    @property
    def nodes(self) -> _node_list:
        """All nodes in order. They have a length and can be walked along in both directions."""
        return _node_list(self)

    def output_node(self) -> Node:
        """The last node; AssertionError where that is no output."""
        node = next(reversed(self.nodes))
        if node.op != "output":
            raise AssertionError(f"Expected output node, got op={node.op}")
        return node

    def find_nodes(self, *, op: str, target: Target | None = None, sort: bool = True) -> list[Any]:
        """The nodes of an op, and of a target if one is named, in order whatever `sort` says.

        AssertionError for functions' calls without a target.
        """
        if op == "call_function" and target is None:
            raise AssertionError("target must not be None for call_function op")
        return [n for n in self.nodes if n.op == op and target in (None, n.target)]

    # ------------------------------------------------------------------ new nodes

    def create_node(
        self, op: str, target: Target, args: tuple[Argument, ...] | None = None,
        kwargs: dict[str, Argument] | None = None, name: str | None = None,
        type_expr: Any = None,
    ) -> Node:  # fmt: skip
        """A new node at the insert point, which is the end where nothing else was said.

        Its name is like `name`, or like the target's. AssertionError for arguments that are no
        tuple and dict.
        """
        for what, value, kind in (("args", args, tuple), ("kwargs", kwargs, dict)):
            if value and not isinstance(value, kind):
                raise AssertionError(f"{what} must be a {kind.__name__}, got {type(value)}")
        candidate = name if name is not None else self._target_to_str(target)
        name = self._graph_namespace.create_name(candidate, None)
        node = Node(self, name, op, target, args or (), kwargs or immutable_dict(), type_expr)
        self._graph_namespace.associate_name_with_obj(name, node)
        self._insert(node)
        self._len += 1
        return node

    def placeholder(
        self, name: str, type_expr: Any = None, default_value: Any = inspect.Signature.empty
    ) -> Node:
        """A node for an argument of the function."""
        args = () if default_value is inspect.Signature.empty else (default_value,)
        return self.create_node("placeholder", name, args=args, type_expr=type_expr)

    def get_attr(self, qualified_name: str, type_expr: Any = None) -> Node:
        """A node for a tensor or module of the owning module's; a warning where there is none."""
        owner = self.owning_module
        if owner is not None and not _is_registered(owner, qualified_name):
            warnings.warn(
                "Attempted to insert a get_attr Node with no underlying reference in the owning "
                "GraphModule! Call GraphModule.add_submodule to add the necessary submodule, "
                "GraphModule.add_parameter to add the necessary Parameter, or "
                "nn.Module.register_buffer to add the necessary buffer",
                stacklevel=2,
            )
        return self.create_node("get_attr", qualified_name, type_expr=type_expr)

    def call_module(
        self, module_name: str, args: tuple[Argument, ...] | None = None,
        kwargs: dict[str, Argument] | None = None, type_expr: Any = None,
    ) -> Node:  # fmt: skip
        """A node for a call of a module of the owning module's; AttributeError if it has none."""
        if self.owning_module is not None:
            self.owning_module.get_submodule(module_name)
        return self.create_node("call_module", module_name, args, kwargs, type_expr=type_expr)

    def call_method(
        self, method_name: str, args: tuple[Argument, ...] | None = None,
        kwargs: dict[str, Argument] | None = None, type_expr: Any = None,
    ) -> Node:  # fmt: skip
        """A node for a call of a method of the first argument."""
        return self.create_node("call_method", method_name, args, kwargs, type_expr=type_expr)

    def call_function(
        self, the_function: Callable[..., Any], args: tuple[Argument, ...] | None = None,
        kwargs: dict[str, Argument] | None = None, type_expr: Any = None,
        name: str | None = None,
    ) -> Node:  # fmt: skip
        """A node for a call of a function."""
        return self.create_node("call_function", the_function, args, kwargs, name, type_expr)

    def output(self, result: Argument, type_expr: Any = None) -> Node:
        """The node that returns."""
        return self.create_node("output", "output", (result,), type_expr=type_expr)

    def node_copy(
        self, node: Node, arg_transform: Callable[[Node], Argument] = lambda x: x
    ) -> Node:
        """A copy of a node, maybe of another graph, with `arg_transform` of the nodes it uses."""
        args, kwargs = map_arg(node.args, arg_transform), map_arg(node.kwargs, arg_transform)
        copied = self.create_node(node.op, node.target, args, kwargs, node.name, node.type)
        copied.meta = copy.copy(node.meta)
        return copied

    def graph_copy(
        self, g: Graph, val_map: dict[Node, Node], return_output_node: bool = False
    ) -> Any:
        """Copies another graph's nodes to the insert point; what that graph returns, in copies.

        `val_map` says what some nodes are here, and comes to say it of all. With
        `return_output_node` the result is a pair with the output node that was not copied. None
        where there is no output.
        """
        for node in g.nodes:
            if node in val_map:
                continue
            if node.op == "output":
                result = map_arg(node.args[0], lambda n: val_map[n])
                return (result, node) if return_output_node else result
            val_map[node] = self.node_copy(node, lambda n: val_map[n])
        return None

    def __deepcopy__(self, memo: dict[Any, Any] | None = None) -> Graph:
        graph = Graph(tracer_cls=self._tracer_cls)
        both = graph.graph_copy(self, val_map={}, return_output_node=True)
        graph._codegen = copy.deepcopy(self._codegen)
        if both is not None:
            result, output = both
            node = graph.output(result, type_expr=output.type)
            node.meta = copy.copy(output.meta)
        return graph

    # ------------------------------------------------------------------ changes

    def inserting_before(self, n: Node | None = None) -> _InsertPoint:
        """Has new nodes go before a node, of this graph, in a `with` block or from now on.

        None means the beginning of the graph. AssertionError for a node of another's.
        """
        return self._inserting(self._root.append if n is None else n.prepend, n, "before")

    def inserting_after(self, n: Node | None = None) -> _InsertPoint:
        """Has new nodes go behind a node, of this graph; None means the end of the graph."""
        return self._inserting(self._root.prepend if n is None else n.append, n, "after")

    def _inserting(self, insert: Callable[[Node], None], n: Node | None, side: str) -> Any:
        if n is not None and n.graph is not self:
            raise AssertionError(f"Node to insert {side} is not in graph.")
        return _InsertPoint(self, insert)

    def erase_node(self, to_erase: Node) -> None:
        """Takes a node out; RuntimeError while others use it, or if it is of another graph."""
        if to_erase.users:
            raise RuntimeError(
                f"Tried to erase Node {to_erase} but it still had {len(to_erase.users)} "
                f"users in the graph: {to_erase.users}!"
            )
        if to_erase.graph is not self:
            raise RuntimeError(f"Attempting to remove {to_erase} from wrong graph!")
        if to_erase._erased:
            warnings.warn(f"erase_node({to_erase}) on an already erased node", stacklevel=2)
            return
        to_erase._remove_from_list()
        to_erase._erased = True  # who walks along the nodes may be at this one
        self._len -= 1
        to_erase.args = map_arg(to_erase.args, lambda n: None)
        to_erase.kwargs = map_arg(to_erase.kwargs, lambda n: None)

    def eliminate_dead_code(self, is_impure_node: Callable[[Node], bool] | None = None) -> bool:
        """Takes out nodes whose results are not used, and that do nothing else; whether there were.

        `is_impure_node` says which do something else, `Node.is_impure` if it is None. The graph is
        checked by `lint` first.
        """
        self.lint()
        stays = is_impure_node or Node.is_impure
        changed = False
        for node in reversed(self.nodes):
            if not node.users and not stays(node):
                self.erase_node(node)
                changed = True
        return changed

    def lint(self) -> None:
        """RuntimeError or ValueError for a graph that cannot run: arguments that come later, twice
        the same name, targets that the owning module does not have."""
        names: set[str] = set()
        seen: set[Node] = set()
        for node in self.nodes:
            if node.op not in OPS:
                raise RuntimeError(f"Node {node} had unknown opcode {node.op}!")
            if node.graph is not self:
                raise RuntimeError(f"Node '{node}' does not belong to this Graph!")
            for arg in node._input_nodes:
                if arg.graph is not self:
                    raise RuntimeError(
                        f"Argument '{arg}' of Node '{node}' does not belong to this Graph, but was "
                        "used as an argument! If you are copying nodes from another graph, make "
                        f"sure to use ``arg_transform`` on node_copy() to remap values\n{self}"
                    )
                if arg not in seen:
                    raise RuntimeError(
                        f"Argument '{arg}' of Node '{node}' was used before it has been defined! "
                        f"Please check that Nodes in the graph are topologically ordered\n{self}"
                    )
            seen.add(node)
            if node.name in names:
                raise RuntimeError(f"Node redefined name {node.name}!")
            names.add(node.name)
            if self.owning_module is not None:
                _check_target(node, self.owning_module)

    # ------------------------------------------------------------------ texts

    @staticmethod
    def _target_to_str(target: Target) -> str:
        name = target if isinstance(target, str) else target.__name__
        is_magic = isinstance(target, str) and name.startswith("__") and name.endswith("__")
        return snake_case(name[2:-2] if is_magic else name)

    def python_code(
        self, root_module: str, *, verbose: bool = False, include_stride: bool = False,
        include_device: bool = False, colored: bool = False, expanded_def: bool = False,
    ) -> PythonCode:  # fmt: skip
        """The graph as the code of a function `forward`, whose module goes by `root_module`.

        With `verbose` it says where calls were made and, of nodes that know it, dtype and shape;
        `include_stride` and `include_device` add these, `colored` the terminal's colors.
        """
        names = Namespace()
        style = Style(verbose, include_stride, include_device, colored, expanded_def)
        before = {node: node._repr_fn for node in self.nodes}
        for node in before:
            node._repr_fn = lambda n: names.create_name(n.name, n)
        try:
            return written(self.nodes, self._codegen, root_module, names, style)
        finally:
            for node, shown in before.items():
                node._repr_fn = shown

    def __str__(self) -> str:
        lines = [node.format_node() for node in self.nodes]
        return "\n    ".join(["graph():", *filter(None, lines)])

    def print_tabular(self) -> None:
        """Prints the nodes as a table, by the package tabulate; ImportError without it."""
        try:
            from tabulate import tabulate
        except ImportError:
            print("`print_tabular` relies on the library `tabulate`, which could not be found on "
                  "this machine. Run `pip install tabulate` to install the library.")  # fmt: skip
            raise
        rows = [[n.op, n.name, n.target, n.args, n.kwargs] for n in self.nodes]
        print(tabulate(rows, headers=["opcode", "name", "target", "args", "kwargs"]))

    # ------------------------------------------------------------------ how code is written

    def process_inputs(self, *args: Any) -> Any:
        """The values of the placeholders, of the arguments of the code."""
        return self._codegen.process_inputs(*args)

    def process_outputs(self, out: Any) -> Any:
        """What the code returns, of what the output node does."""
        return self._codegen.process_outputs(out)

    def set_codegen(self, codegen: CodeGen) -> None:
        """Has another object write the first and the last line of the code."""
        self._codegen = codegen

    def on_generate_code(
        self, make_transformer: Callable[[Callable[[list[str]], list[str]] | None], Any]
    ) -> AbstractContextManager[None]:
        """Has a function change the lines of the code; `make_transformer` makes it of that before.

        As a context, until that ends.
        """
        before = self._codegen._body_transformer
        self._codegen._body_transformer = make_transformer(before)

        @contextmanager
        def until() -> Iterator[None]:
            try:
                yield
            finally:
                self._codegen._body_transformer = before

        return until()


def _is_registered(owner: Module, path: str) -> bool:
    """Whether a module has a module, parameter or buffer at a path."""
    home, _, name = path.rpartition(".")
    try:
        module = owner.get_submodule(home)
    except AttributeError:
        warnings.warn(f"Failed to fetch module {home}!", stacklevel=4)
        return False
    value = getattr(module, name, None)
    return isinstance(value, (Module, Parameter)) or name in module._buffers


def _check_target(node: Node, owner: Module) -> None:
    if node.op != "call_function" and not isinstance(node.target, str):
        raise ValueError(f"Node {node} target {node.target} has type {type(node.target)} but "
                         "a str is expected")  # fmt: skip
    if node.op not in ("get_attr", "call_module"):
        return
    value: Any = owner
    parts = str(node.target).split(".")
    for i, part in enumerate(parts):
        value, path = getattr(value, part, None), ".".join(parts[:i])
        if value is None:
            raise RuntimeError(f"Node {node} target {node.target} references nonexistent attribute "
                               f"{part} of {path}")  # fmt: skip
        if node.op == "call_module" and not isinstance(value, Module):
            raise RuntimeError(f"Node {node} target {node.target} {part} of {path} does "
                               "not reference an nn.Module")  # fmt: skip
