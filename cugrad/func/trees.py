"""Nested tuples, lists and dicts of tensors: taken apart, and put together again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["flatten", "spelled", "structure", "tree_map", "unflatten"]


def flatten(tree: Any) -> tuple[list[Any], Any]:
    """The leaves of a tree in order, and its form for `unflatten`. None is a leaf.

    >>> flatten({"a": 1, "b": (2, [3])})[0]
    [1, 2, 3]
    """
    leaves: list[Any] = []
    return leaves, _taken_apart(tree, leaves)


def _taken_apart(node: Any, leaves: list[Any]) -> Any:
    """The form of a tree, whose leaves are appended. No closure: one that calls itself is a cycle,
    which would keep the leaves until the garbage collector comes.
    """
    if isinstance(node, dict):
        return type(node), list(node), [_taken_apart(v, leaves) for v in node.values()]
    if isinstance(node, (list, tuple)):
        return type(node), None, [_taken_apart(v, leaves) for v in node]
    leaves.append(node)
    return None


def unflatten(form: Any, leaves: Any) -> Any:
    """The tree of a form with these leaves."""
    return _put_together(form, iter(leaves))


def _put_together(form: Any, leaves: Iterator[Any]) -> Any:
    if form is None:
        return next(leaves)
    kind, keys, parts = form
    values = [_put_together(part, leaves) for part in parts]
    if keys is not None:
        return kind(zip(keys, values, strict=True))
    return kind(*values) if hasattr(kind, "_fields") else kind(values)


def spelled(form: Any) -> str:
    """A form in short, as PyTorch's errors print it.

    >>> spelled(flatten({"a": 1, "b": (2, [3])})[1])
    "{'a': *, 'b': (*, [*])}"
    """
    if form is None:
        return "*"
    kind, keys, parts = form
    texts = [spelled(p) for p in parts]
    if keys is not None:
        return "{" + ", ".join(f"{k!r}: {t}" for k, t in zip(keys, texts, strict=True)) + "}"
    inner = ", ".join(texts)
    if issubclass(kind, list):
        return f"[{inner}]"
    return f"({inner},)" if len(texts) == 1 else f"({inner})"


def structure(form: Any, indent: int = 0) -> str:
    """A form as PyTorch's `TreeSpec` prints it.

    >>> structure(flatten([1, 2])[1])
    'TreeSpec(list, None, [*,\\n  *])'
    """
    if form is None:
        return "*"
    kind, keys, parts = form
    context = kind if hasattr(kind, "_fields") else keys
    name = "namedtuple" if hasattr(kind, "_fields") else kind.__name__
    inner = (",\n" + " " * (indent + 2)).join([structure(p, indent + 2) for p in parts])
    return f"TreeSpec({name}, {context}, [{inner}])"


def tree_map(function: Callable[[Any], Any], tree: Any) -> Any:
    """The tree with `function` applied to every leaf."""
    leaves, form = flatten(tree)
    return unflatten(form, [function(x) for x in leaves])


def broadcast(prefix: Any, tree: Any, what: str, of: str) -> list[Any]:
    """One entry of `prefix` per leaf of `tree`: an entry stands for everything below its place.

    ValueError where the two have different forms: `what` is not as the `of` are.
    """
    found: list[Any] = []
    places = [(prefix, tree)]
    while places:
        entry, node = places.pop()
        if not isinstance(entry, (list, tuple, dict)):
            found += [entry] * len(flatten(node)[0])
            continue
        both_dicts = isinstance(entry, dict) and isinstance(node, dict)
        same = (both_dicts or type(node) is type(entry)) and len(node) == len(entry)
        if not same or isinstance(entry, dict) and set(entry) != set(node):
            raise ValueError(mismatch(what, prefix, tree, of))
        keys: Any = list(node) if isinstance(node, dict) else range(len(node))
        places += [(entry[k], node[k]) for k in reversed(keys)]
    return found


def mismatch(what: str, prefix: Any, tree: Any, of: str) -> str:
    """The words for a prefix that does not fit a tree."""
    return (
        f"{what} is not compatible with the structure of `{of}`. {what.rpartition(' ')[2]} has "
        f"structure {structure(flatten(prefix)[1])} but {of} has structure "
        f"{structure(flatten(tree)[1])}."
    )
