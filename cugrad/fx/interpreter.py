"""Interpreters run a graph node by node, and transformers make another graph of it so."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from ..nn import Module
from ._symbolic_trace import Tracer
from .codegen import last_uses
from .graph import Graph
from .graph_module import GraphModule
from .node import Argument, Node, Target, map_aggregate, map_arg
from .proxy import Proxy

__all__ = ["Interpreter", "Transformer"]

Args = tuple[Argument, ...]
Kwargs = dict[str, Any]


class Interpreter:
    """Runs a module's graph node by node. Subclasses change what a kind of node does.

    `module` has the graph, or `graph` is one whose names it has. With `garbage_collect_values`
    results are let go after their last use.

    >>> import cugrad as torch
    >>> class Halved(torch.fx.Interpreter):
    ...     def call_method(self, target, args, kwargs):
    ...         return super().call_method(target, args, kwargs) / 2
    >>> module = torch.fx.symbolic_trace(lambda x: x.sum() + 1)
    >>> Halved(module).run(torch.ones(4))
    tensor(3.)
    """

    def __init__(
        self, module: Module, garbage_collect_values: bool = True, graph: Graph | None = None
    ) -> None:
        self.module: Any = module
        self.submodules = dict(module.named_modules())
        self.graph: Graph = self.module.graph if graph is None else graph
        self.env: dict[Node, Any] = {}
        self.name = "Interpreter"
        self.garbage_collect_values = garbage_collect_values
        self.extra_traceback = True
        self.user_to_last_uses = last_uses(self.graph.nodes) if garbage_collect_values else {}

    def run(
        self, *args: Any, initial_env: dict[Node, Any] | None = None,
        enable_io_processing: bool = True,
    ) -> Any:  # fmt: skip
        """What the graph returns for some arguments; nodes of `initial_env` have their results.

        An error is told which node was run; a KeyError becomes a RuntimeError.
        """
        self.env = {} if initial_env is None else initial_env
        if enable_io_processing:
            args = self.graph.process_inputs(*args)
        self.args_iter: Iterator[Any] = iter(args)
        for node in self.graph.nodes:
            if node in self.env:
                continue
            try:
                self.env[node] = self.run_node(node)
            except Exception as error:
                if self.extra_traceback:
                    self._explain(node, error)
                raise
            for gone in self.user_to_last_uses.get(node, ()):
                del self.env[gone]
            if node.op == "output":
                result = self.env[node]
                return self.graph.process_outputs(result) if enable_io_processing else result
        return None

    @staticmethod
    def _explain(node: Node, error: Exception) -> None:
        told = f"While executing {node.format_node()}\nOriginal traceback:\n{node.stack_trace}"
        before = f"{error.args[0]}\n\n" if error.args else ""
        error.args = (before + told, *error.args[1:])
        if isinstance(error, KeyError):
            raise RuntimeError(*error.args) from error

    def boxed_run(self, args_list: list[Any]) -> Any:
        """`run` with arguments in a list, which is emptied; RuntimeError for another number."""
        nodes = [n for n in self.graph.nodes if n.op == "placeholder"]
        if len(args_list) != len(nodes):
            detail = "extra arguments" if len(args_list) > len(nodes) else "missing arguments"
            raise RuntimeError(
                f"Interpreter.boxed_run expected {len(nodes)} arguments for placeholders "
                f"but received {len(args_list)} ({detail})"
            )
        env = dict(zip(nodes, args_list))
        args_list.clear()
        return self.run(initial_env=env)

    def run_node(self, n: Node) -> Any:
        """The result of one node: what the method of its op returns."""
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        return getattr(self, n.op)(n.target, args, kwargs)

    def placeholder(self, target: Target, args: Args, kwargs: Kwargs) -> Any:
        """The next argument, or its default; RuntimeError where there is neither."""
        if str(target).startswith("*"):
            return list(self.args_iter)
        for value in self.args_iter:
            return value
        if args:
            return args[0]
        raise RuntimeError(
            f"Expected positional argument for parameter {target}, but one was not passed in!"
        )

    def get_attr(self, target: Target, args: Args, kwargs: Kwargs) -> Any:
        """What the module has at a path."""
        return self.fetch_attr(str(target))

    def call_function(self, target: Any, args: Args, kwargs: Kwargs) -> Any:
        """What a function returns."""
        return target(*args, **kwargs)

    def call_method(self, target: Target, args: Args, kwargs: Kwargs) -> Any:
        """What a method of the first argument returns."""
        return getattr(args[0], str(target))(*args[1:], **kwargs)

    def call_module(self, target: Target, args: Args, kwargs: Kwargs) -> Any:
        """What the module at a path returns."""
        return self.fetch_attr(str(target))(*args, **kwargs)

    def output(self, target: Target, args: Args, kwargs: Kwargs) -> Any:
        """What the graph returns."""
        return args[0]

    def fetch_attr(self, target: str) -> Any:
        """What the module has at a path; RuntimeError if it has nothing there."""
        value = self.module
        parts = target.split(".")
        for i, part in enumerate(parts):
            if not hasattr(value, part):
                path = ".".join(parts[: i + 1])
                raise RuntimeError(f"Node referenced nonexistent target {path}")
            value = getattr(value, part)
        return value

    def fetch_args_kwargs_from_env(self, n: Node) -> tuple[Any, Any]:
        """A node's arguments, with results in the places of nodes."""
        return self.map_nodes_to_values(n.args, n), self.map_nodes_to_values(n.kwargs, n)

    def map_nodes_to_values(self, args: Argument, n: Node) -> Any:
        """Arguments with results in the places of nodes; RuntimeError for one that has none."""

        def result(node: Node) -> Any:
            if node not in self.env:
                raise RuntimeError(f"Node {n} referenced nonexistent value {node}! Run "
                                   "Graph.lint() to diagnose such issues")  # fmt: skip
            return self.env[node]

        return map_arg(args, result)


class Transformer(Interpreter):
    """Runs a module's graph with proxies, whose calls become another graph.

    >>> import cugrad as torch
    >>> class Smooth(torch.fx.Transformer):
    ...     def call_function(self, target, args, kwargs):
    ...         target = torch.sigmoid if target is torch.relu else target
    ...         return super().call_function(target, args, kwargs)
    >>> module = torch.fx.symbolic_trace(lambda x: torch.relu(x))
    >>> print(Smooth(module).transform().code.strip())
    def forward(self, x):
        sigmoid = torch.sigmoid(x);  x = None
        return sigmoid
    """

    def __init__(self, module: GraphModule) -> None:
        super().__init__(module)
        self.new_graph = Graph()
        self.new_graph.set_codegen(module.graph._codegen)
        self.tracer = _TransformerTracer(self.new_graph, module)

    def placeholder(self, target: Target, args: Args, kwargs: Kwargs) -> Any:
        default = args[0] if args else inspect.Signature.empty
        node = self.new_graph.placeholder(str(target), default_value=default)
        return Proxy(node, self.tracer)

    def get_attr(self, target: Target, args: Args, kwargs: Kwargs) -> Any:
        return self.tracer.create_proxy("get_attr", target, args, kwargs)

    def call_module(self, target: Target, args: Args, kwargs: Kwargs) -> Any:
        module = self.fetch_attr(str(target))
        return self.tracer.call_module(module, module.forward, args, kwargs)

    def call_function(self, target: Any, args: Args, kwargs: Kwargs) -> Any:
        return self.tracer.create_proxy("call_function", target, args, kwargs)

    def run_node(self, n: Node) -> Any:
        result = super().run_node(n)
        if isinstance(result, Proxy) and n.meta:
            for key, value in n.meta.items():
                result.node.meta.setdefault(key, value)
        return result

    def transform(self) -> GraphModule:
        """A module with the graph that this makes of the module's."""
        result = self.run(enable_io_processing=False)
        if result is not None:
            output = map_aggregate(result, lambda a: a.node if isinstance(a, Proxy) else a)
            node = self.new_graph.output(output)
            node.meta.update(self.graph.output_node().meta)
        return GraphModule(self.module, self.new_graph)


class _TransformerTracer(Tracer):
    """Makes nodes of a graph that was there before; all modules are nodes."""

    def __init__(self, graph: Graph, root: Module) -> None:
        super().__init__()
        self.graph, self.root, self.tensor_attrs = graph, root, {}

    def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
        return True
