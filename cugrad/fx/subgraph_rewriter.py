"""Puts one piece of graph in the place of another, wherever that is."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..nn import Module
from ._symbolic_trace import symbolic_trace
from .graph import Graph
from .graph_module import GraphModule
from .node import Node
from .passes.utils.matcher_utils import InternalMatch, SubgraphMatcher

__all__ = ["Match", "ReplacedPatterns", "replace_pattern", "replace_pattern_with_filters"]

Pattern = Callable[..., Any] | Graph | GraphModule
Filter = Callable[[InternalMatch, Graph, Graph], bool]


class Match(NamedTuple):
    """Where a pattern was: its last node, and the graph's node for each of the pattern's."""

    anchor: Node
    nodes_map: dict[Node, Node]


@dataclass
class ReplacedPatterns:
    """Where a pattern was, and the nodes that are there now."""

    anchor: Node
    nodes_map: dict[Node, Node]
    replacements: list[Node]


def replace_pattern(gm: GraphModule, pattern: Any, replacement: Any) -> list[Match]:
    """Puts `replacement` wherever `pattern` is in a module's graph; where that was.

    Both are functions, which are traced, or modules with a graph. Their arguments stand for
    whatever is there.

    >>> import cugrad as torch
    >>> module = torch.fx.symbolic_trace(lambda x: torch.relu(x.neg()).sum())
    >>> len(torch.fx.replace_pattern(module, lambda a: torch.relu(a), lambda a: a.clamp(min=0)))
    1
    >>> print(module.code.strip())
    def forward(self, x):
        neg = x.neg();  x = None
        clamp = neg.clamp(min = 0);  neg = None
        sum_1 = clamp.sum();  clamp = None
        return sum_1
    """
    replaced = replace_pattern_with_filters(gm, pattern, replacement)
    return [Match(anchor=m.anchor, nodes_map=m.nodes_map) for m in replaced]


def replace_pattern_with_filters(
    gm: GraphModule, pattern: Pattern, replacement: Pattern | None = None,
    match_filters: list[Filter] | None = None, ignore_literals: bool = False,
    replacement_callback: Callable[[InternalMatch, Graph, Graph], Graph] | None = None,
    node_name_match: str = "",
) -> list[ReplacedPatterns]:  # fmt: skip
    """`replace_pattern` where each filter, of the match and both graphs, says so.

    With `ignore_literals` numbers in the pattern stand for any. `replacement_callback` makes the
    replacement of a match. A node whose name has `node_name_match` in it matches any.
    AssertionError where pattern and replacement have other numbers of arguments or results, or
    there is no replacement.
    """
    graph, pattern_graph = gm.graph, _graph_of(pattern)
    matcher = SubgraphMatcher(pattern_graph, ignore_literals=ignore_literals)
    matches = [
        m for m in matcher.match(graph, node_name_match=node_name_match)
        if all(keep(m, graph, pattern_graph) for keep in match_filters or ())
    ]  # fmt: skip
    common = None if replacement is None else _graph_of(replacement)
    changed: dict[Node, Node] = {}
    replaced = []
    for match in matches:
        if replacement_callback is not None:
            new: Graph | None = replacement_callback(match, graph, pattern_graph)
        else:
            new = common
        if new is None:
            raise AssertionError(
                "Must provide either a replacement GraphModule or a replacement callback"
            )
        nodes = _replace(graph, pattern_graph, new, match, changed)
        replaced.append(ReplacedPatterns(match.anchors[0], match.nodes_map, nodes))
    gm.recompile()
    if isinstance(replacement, Module):
        _take_attributes(gm, replacement)
    return replaced


def _graph_of(pattern: Any) -> Graph:
    if isinstance(pattern, GraphModule):
        return pattern.graph
    return pattern if isinstance(pattern, Graph) else symbolic_trace(pattern).graph


def _replace(
    graph: Graph, pattern: Graph, new: Graph, match: InternalMatch, changed: dict[Node, Node]
) -> list[Node]:
    """Puts a graph in the place of a match. `changed` is what earlier matches have replaced."""
    arguments = [n for n in new.nodes if n.op == "placeholder"]
    _same_length(match.placeholder_nodes, arguments, "Placeholder")
    values: dict[Node, Any] = {}
    for i, (argument, node) in enumerate(zip(arguments, match.placeholder_nodes)):
        current = changed.get(node, node) if isinstance(node, Node) else node
        if current is not node:
            match.placeholder_nodes[i] = current
            for key, value in match.nodes_map.items():
                if value is node:
                    match.nodes_map[key] = current
        values[argument] = current
    with graph.inserting_before(_place_for(graph, match.returning_nodes)):
        results = graph.graph_copy(new, values)
    if isinstance(results, Node):
        results = (results,)
    nodes = [v for v in values.values() if v not in match.placeholder_nodes]
    _same_length(match.returning_nodes, results, "Returning nodes")
    for old, node in zip(match.returning_nodes, results):
        old.replace_all_uses_with(node)
        changed[old] = node
    for node in reversed(pattern.nodes):
        if node.op not in ("placeholder", "output"):
            graph.erase_node(match.nodes_map[node])
    return nodes


def _same_length(theirs: Any, ours: Any, what: str) -> None:
    if len(theirs) != len(ours):
        raise AssertionError(f"{what} count mismatch: {len(theirs)} vs {len(ours)}")


def _place_for(graph: Graph, results: list[Node]) -> Node:
    """Before the first user of some results; without users, behind the last of these."""
    users = {user for node in results for user in node.users}
    for node in graph.nodes:
        if node in users:
            return node
    return max(results).next


def _take_attributes(gm: GraphModule, replacement: Module) -> None:
    """Gives a module what nodes of its graph name and only the replacement has."""
    gm.delete_all_unused_submodules()
    for node in gm.graph.nodes:
        if node.op not in ("call_module", "get_attr") or _at(gm, node.target) is not None:
            continue
        value = _at(replacement, node.target)
        if value is None:
            raise RuntimeError(
                f'Attempted to create a "{node.op}" node during subgraph rewriting with target '
                f"{node.target}, but the referenced attribute does not exist in the replacement "
                "GraphModule"
            )
        value = copy.deepcopy(value)
        if isinstance(value, Module):
            gm.add_submodule(node.target, value)
        else:
            setattr(gm, node.target, value)
    gm.graph.lint()


def _at(module: Module, target: str) -> Any:
    path, _, name = target.rpartition(".")
    try:
        return getattr(module.get_submodule(path), name, None)
    except AttributeError:
        return None
