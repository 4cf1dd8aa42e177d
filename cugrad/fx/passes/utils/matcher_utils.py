"""Finds where in a graph another graph is: a pattern, whose arguments stand for anything."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ....tensor import Tensor
from ...graph import Graph
from ...graph_module import _get_attr
from ...node import Node

__all__ = ["InternalMatch", "SubgraphMatcher"]


@dataclass
class InternalMatch:
    """Where a pattern is: the graph's node for each of the pattern's, those that its arguments
    stand for, and those whose results it returns."""

    anchors: list[Node]
    nodes_map: dict[Node, Node] = field(default_factory=dict)
    placeholder_nodes: list[Any] = field(default_factory=list)
    returning_nodes: list[Node] = field(default_factory=list)
    name_node_map: dict[str, Node] = field(default_factory=dict)


class SubgraphMatcher:
    """Finds a pattern in graphs, from its last nodes backwards.

    With `match_output` and `match_placeholder` it must be a whole graph; with `ignore_literals`
    numbers stand for any. ValueError for a pattern without nodes, AssertionError for one with
    nodes that lead nowhere.
    """

    def __init__(
        self, pattern: Graph, match_output: bool = False, match_placeholder: bool = False,
        remove_overlapping_matches: bool = True, ignore_literals: bool = False,
    ) -> None:  # fmt: skip
        self.pattern = pattern
        self.match_output, self.match_placeholder = match_output, match_placeholder
        self.remove_overlapping_matches = remove_overlapping_matches
        self.ignore_literals = ignore_literals
        if not len(pattern.nodes):
            raise ValueError("SubgraphMatcher cannot be initialized with an empty pattern")
        for node in pattern.nodes:
            if node.op != "output" and not node.is_impure() and not node.users:
                raise AssertionError(
                    "SubgraphMatcher cannot be initialized with an pattern with dead code"
                )
        output = next(reversed(pattern.nodes))
        self.pattern_placeholder_nodes = [n for n in pattern.nodes if n.op == "placeholder"]
        self.pattern_returning_nodes: list[Node] = output.all_input_nodes
        self.pattern_anchors = [output] if match_output else [
            n for n in output.all_input_nodes if len(n.users) == 1
        ]  # fmt: skip

    def match(self, graph: Graph, node_name_match: str = "") -> list[InternalMatch]:
        """Where the pattern is in a graph, in order; a name in a node's name makes it match any."""
        candidates = {
            anchor: [n for n in graph.nodes if self._nodes_are_equal(anchor, n, node_name_match)]
            for anchor in self.pattern_anchors
        }
        candidates = {anchor: nodes for anchor, nodes in candidates.items() if nodes}
        maps: list[dict[Node, Any]] = [{}] if candidates else []
        for anchor, nodes in candidates.items():
            maps = [
                extended for so_far in maps for node in nodes
                if (extended := self._extended(anchor, node, so_far, node_name_match)) is not None
            ]  # fmt: skip
        matches = [
            InternalMatch(
                anchors=self.pattern_anchors, nodes_map=nodes,
                placeholder_nodes=[nodes[n] for n in self.pattern_placeholder_nodes],
                returning_nodes=[nodes[n] for n in self.pattern_returning_nodes],
            )
            for nodes in maps if self._is_contained(nodes) and _can_be_one(_inner(nodes))
        ]  # fmt: skip
        return _apart(matches) if self.remove_overlapping_matches else matches

    def _nodes_are_equal(self, pn: Node, gn: Node, node_name_match: str = "") -> bool:
        if not self.match_placeholder and pn.op == "placeholder":
            return True
        if node_name_match and node_name_match in gn.name:
            return True
        if pn.op != gn.op or pn.op in ("placeholder", "output"):
            return pn.op == gn.op
        return self._match_attributes(pn, gn) if pn.op == "get_attr" else pn.target == gn.target

    def _match_attributes(self, pn: Node, gn: Node) -> bool:
        owners = (pn.graph.owning_module, gn.graph.owning_module)
        if owners[0] is None or owners[1] is None:
            raise AssertionError("owning_module must not be None")
        theirs, ours = _get_attr(owners[0], str(pn.target)), _get_attr(owners[1], str(gn.target))
        if type(theirs) is type(ours) and not isinstance(theirs, Tensor):
            raise RuntimeError(f"Unsupported type {theirs} when matching attributes")
        return type(theirs) is type(ours)

    def _extended(
        self, pn: Node, gn: Node, before: dict[Node, Any], name: str
    ) -> dict[Node, Any] | None:
        """A map with a pair of nodes and all before them; None where they do not match."""
        nodes = dict(before)
        pairs: list[tuple[Any, Any]] = [(pn, gn)]
        while pairs:
            theirs, ours = pairs.pop()
            if isinstance(theirs, (list, tuple)) and isinstance(ours, (list, tuple)):
                if len(theirs) != len(ours):
                    return None
                pairs += list(zip(theirs, ours))[::-1]
            elif not isinstance(theirs, Node):
                is_same = type(theirs) is type(ours) and theirs == ours
                if isinstance(ours, Node) or not (is_same or self.ignore_literals):
                    return None
            elif theirs in nodes:
                if nodes[theirs] is not ours and nodes[theirs] != ours:
                    return None
            elif not isinstance(ours, Node):
                if theirs.op != "placeholder":
                    return None
                nodes[theirs] = ours
            elif any(ours is n for n in nodes.values()) or not self._nodes_are_equal(
                theirs, ours, name if theirs is pn else ""
            ):
                return None
            else:
                nodes[theirs] = ours
                if theirs.op != "placeholder":
                    if list(theirs.kwargs) != list(ours.kwargs):
                        return None
                    pairs += [(list(theirs.kwargs.values()), list(ours.kwargs.values())),
                              (theirs.args, ours.args)]  # fmt: skip
        return nodes

    def _is_contained(self, nodes_map: dict[Node, Any]) -> bool:
        """Whether only results that the pattern returns are used outside of the match."""
        inner = {gn: pn for pn, gn in nodes_map.items() if pn.op != "placeholder"}
        return all(
            pn in self.pattern_returning_nodes or all(user in inner for user in gn.users)
            for gn, pn in inner.items()
        )


def _inner(nodes_map: dict[Node, Any]) -> set[Node]:
    return {gn for pn, gn in nodes_map.items() if pn.op not in ("placeholder", "output")}


def _can_be_one(nodes: set[Node]) -> bool:
    """Whether no way leads out of some nodes and back into them."""
    outside = [user for node in nodes for user in node.users if user not in nodes]
    seen: set[Node] = set()
    while outside:
        node = outside.pop()
        if node in nodes:
            return False
        if node not in seen:
            seen.add(node)
            outside += node.users
    return True


def _apart(matches: list[InternalMatch]) -> list[InternalMatch]:
    """The matches that share no node with one before them."""
    kept = list[InternalMatch]()
    taken = set[Any]()
    for match in matches:
        nodes = _inner(match.nodes_map)
        if not nodes & taken:
            kept.append(match)
            taken |= nodes
    return kept
