"""Syntax trees of source files, quickly: the tests of names and of layers look at all of them."""

from __future__ import annotations

import ast
import gc

__all__ = ["nodes_of"]


def nodes_of(source: str) -> list[ast.AST]:
    """All nodes of a file, in no order; in a third of the time of `ast.walk`."""
    was_on = gc.isenabled()
    gc.disable()  # a tree is a hundred thousand things, of which none is garbage
    try:
        nodes: list[ast.AST] = [ast.parse(source)]
        for node in nodes:  # which grows
            for part in node.__dict__.values():
                if isinstance(part, list):
                    nodes += [each for each in part if isinstance(each, ast.AST)]
                elif isinstance(part, ast.AST):
                    nodes.append(part)
        return nodes
    finally:
        if was_on:
            gc.enable()
