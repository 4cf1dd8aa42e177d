"""What generated code calls to take arguments apart that were nested when it was traced."""

from __future__ import annotations

from typing import Any

from ..utils._pytree import TreeSpec, tree_flatten

__all__ = ["tree_flatten_spec"]


def tree_flatten_spec(pytree: Any, spec: TreeSpec) -> list[Any]:
    """The leaves of a tree, by the form of another that has no more parts than this one.

    RuntimeError where a container of a class of its own has another form.

    >>> from cugrad.utils._pytree import tree_flatten
    >>> tree_flatten_spec({"b": 2, "a": [1, 5]}, tree_flatten({"a": [0, 0], "b": 0})[1])
    [1, 5, 2]
    """
    leaves: list[Any] = []
    rest = [(pytree, spec)]
    while rest:
        tree, form = rest.pop()
        if form.is_leaf():
            leaves.append(tree)
        elif isinstance(tree, (dict, list, tuple)):
            keys = form.context if isinstance(tree, dict) else range(form.num_children)
            rest += [(tree[k], child) for k, child in zip(keys, form.children())][::-1]
        else:
            parts, real = tree_flatten(tree)
            if real != form:
                raise RuntimeError(
                    f"Real spec {real} of object {tree} is different from expected spec {form}."
                )
            leaves += parts
    return leaves
