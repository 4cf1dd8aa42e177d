"""Nested tuples, lists and dicts of tensors: taken apart, and put together again.

A tree's form is a `TreeSpec`. `utils/_pytree.py` has PyTorch's import path for what is here.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from ..tensor import Size

__all__ = [
    "LEAF", "LeafSpec", "NODES", "NodeKind", "TreeSpec", "broadcast", "flatten", "flattened_with",
    "is_namedtuple_class", "kind_of", "mismatch", "spelled", "structure", "tree_map", "unflatten",
]  # fmt: skip

IsLeaf = Callable[[Any], bool]


class NodeKind(NamedTuple):
    """How a container is taken apart, into children and what else it takes, and made again."""

    flatten: Callable[[Any], tuple[Iterable[Any], Any]]
    unflatten: Callable[[Any, Any], Any]  # of the children, and of what else it takes
    keys: Callable[[Any], Iterable[Any]] | None = None  # of the children, as paths name them

    @property
    def flatten_fn(self) -> Callable[[Any], tuple[Iterable[Any], Any]]:
        """PyTorch's name of `flatten`."""
        return self.flatten

    @property
    def unflatten_fn(self) -> Callable[[Any, Any], Any]:
        """PyTorch's name of `unflatten`."""
        return self.unflatten


class SequenceKey(NamedTuple):
    """The place of a child in a sequence."""

    idx: int

    def __str__(self) -> str:
        return f"[{self.idx!r}]"

    def get(self, sequence: Any) -> Any:
        """The child."""
        return sequence[self.idx]


class MappingKey(NamedTuple):
    """The key of a child in a mapping."""

    key: Any

    def __str__(self) -> str:
        return f"[{self.key!r}]"

    def get(self, mapping: Any) -> Any:
        """The child."""
        return mapping[self.key]


class GetAttrKey(NamedTuple):
    """The name of a child that is an attribute."""

    name: str

    def __str__(self) -> str:
        return f".{self.name}"

    def get(self, obj: Any) -> Any:
        """The child."""
        return getattr(obj, self.name)


def _indices(sequence: Any) -> list[SequenceKey]:
    return [SequenceKey(i) for i in range(len(sequence))]


def _keys(mapping: Any) -> list[MappingKey]:
    return [MappingKey(key) for key in mapping]


def _paired(keys: Any, values: Any) -> Any:
    return zip(keys, values, strict=True)


NAMED = NodeKind(
    lambda t: (t, type(t)),
    lambda children, kind: kind(*children),
    lambda t: [GetAttrKey(name) for name in t._fields],
)
NODES: dict[type, NodeKind] = {
    tuple: NodeKind(lambda t: (t, None), lambda children, _: tuple(children), _indices),
    list: NodeKind(lambda t: (t, None), lambda children, _: list(children), _indices),
    dict: NodeKind(
        lambda d: (d.values(), list(d)), lambda children, keys: dict(_paired(keys, children)), _keys
    ),
    OrderedDict: NodeKind(
        lambda d: (d.values(), list(d)),
        lambda children, keys: OrderedDict(_paired(keys, children)),
        _keys,
    ),
    defaultdict: NodeKind(
        lambda d: (d.values(), [d.default_factory, list(d)]),
        lambda children, how: defaultdict(how[0], _paired(how[1], children)),
        _keys,
    ),
    deque: NodeKind(
        lambda d: (d, d.maxlen), lambda children, maxlen: deque(children, maxlen), _indices
    ),
    Size: NodeKind(lambda t: (t, None), lambda children, _: tuple(children), _indices),
}
MAPPINGS = (dict, OrderedDict, defaultdict)


def is_namedtuple_class(cls: Any) -> bool:
    """Whether a class was made by `namedtuple`, or derives from one that was."""
    return isinstance(cls, type) and issubclass(cls, tuple) and hasattr(cls, "_fields")


def kind_of(node: Any) -> NodeKind | None:
    """How a container is taken apart; None for a leaf."""
    kind = NODES.get(type(node))
    return NAMED if kind is None and is_namedtuple_class(type(node)) else kind


class TreeSpec:
    """The form of a tree: its class, what else that takes, and the forms of its children.

    >>> form = flatten({"a": 1, "b": (2, [3])})[1]
    >>> form.num_leaves, form.num_children, form.type.__name__
    (3, 2, 'dict')
    """

    __slots__ = ("children_specs", "context", "num_children", "num_leaves", "num_nodes", "type")

    def __init__(self, type: Any, context: Any, children_specs: list[TreeSpec]) -> None:
        self.type, self.context, self.children_specs = type, context, children_specs
        self.num_children = len(children_specs)
        is_leaf = type is None
        leaves = [child.num_leaves for child in children_specs]
        self.num_leaves: int = 1 if is_leaf else sum(leaves)
        self.num_nodes: int = 1 + sum([child.num_nodes for child in children_specs])

    def is_leaf(self) -> bool:
        """Whether this stands for one leaf."""
        return self.type is None

    def children(self) -> list[TreeSpec]:
        """The forms of the children."""
        return list(self.children_specs)

    def child(self, index: int) -> TreeSpec:
        """The form of one child."""
        return self.children_specs[index]

    def unflatten(self, leaves: Iterable[Any]) -> Any:
        """The tree of this form with these leaves; ValueError for another number of them."""
        leaves = list(leaves)
        if len(leaves) != self.num_leaves:
            raise ValueError(
                f"treespec.unflatten(leaves): `leaves` has length {len(leaves)} but the spec "
                f"refers to a pytree that holds {self.num_leaves} items ({self})."
            )
        return _put_together(self, iter(leaves))

    def flatten_up_to(self, tree: Any) -> list[Any]:
        """What `tree` has in the place of each leaf of this form; ValueError where it differs."""
        if self.type is None:
            return [tree]
        kind = kind_of(tree)
        both_dicts = self.type in MAPPINGS and type(tree) in MAPPINGS
        if not both_dicts and (kind is None or type(tree) is not self.type):
            raise ValueError(f"Node type mismatch; expected {self.type!r}, but got {type(tree)!r}.")
        assert kind is not None
        children, context = kind.flatten(tree)
        children = list(children)
        if len(children) != self.num_children:
            raise ValueError(
                f"Node arity mismatch; expected {self.num_children}, but got {len(children)}."
            )
        if both_dicts:
            keys = self.context[1] if self.type is defaultdict else self.context
            if set(keys) != set(tree):
                raise ValueError(
                    f"Node keys mismatch; missing key(s): {set(keys) - set(tree)}; extra key(s): "
                    f"{set(tree) - set(keys)}."
                )
            children = [tree[key] for key in keys]
        elif context != self.context:
            raise ValueError(
                f"Node context mismatch for custom node type {self.type!r}: expected "
                f"{self.context!r}, but got {context!r}."
            )
        parts = [s.flatten_up_to(c) for s, c in zip(self.children_specs, children, strict=True)]
        return [leaf for part in parts for leaf in part]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TreeSpec):
            return NotImplemented
        return (
            self.type is other.type
            and self.context == other.context
            and self.children_specs == other.children_specs
        )

    def __hash__(self) -> int:
        return hash((self.type, repr(self.context), tuple(self.children_specs)))

    def __repr__(self, indent: int = 0) -> str:
        if self.type is None:
            return "*"
        name = "namedtuple" if _is_named(self) else self.type.__name__
        parts = [child.__repr__(indent + 2) for child in self.children_specs]
        inner = (",\n" + " " * (indent + 2)).join(parts)
        return f"TreeSpec({name}, {self.context}, [{inner}])"

    def __reduce__(self) -> Any:
        return type(self), (self.type, self.context, self.children_specs)


class LeafSpec(TreeSpec):
    """The form of one leaf."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(None, None, [])

    def __reduce__(self) -> Any:
        return LeafSpec, ()


LEAF = LeafSpec()


def _is_named(form: TreeSpec) -> bool:
    return form.type is not None and form.type not in NODES and is_namedtuple_class(form.type)


def flatten(tree: Any, is_leaf: IsLeaf | None = None) -> tuple[list[Any], TreeSpec]:
    """The leaves of a tree in order, and its form for `unflatten`. None is a leaf.

    >>> flatten({"a": 1, "b": (2, [3])})[0]
    [1, 2, 3]
    """
    leaves: list[Any] = []
    return leaves, _taken_apart(tree, leaves, is_leaf)


def _taken_apart(node: Any, leaves: list[Any], is_leaf: IsLeaf | None) -> TreeSpec:
    """The form of a tree, whose leaves are appended. No closure: one that calls itself is a cycle,
    which would keep the leaves until the garbage collector comes.
    """
    kind = kind_of(node)
    if kind is None or (is_leaf is not None and is_leaf(node)):
        leaves.append(node)
        return LEAF
    children, context = kind.flatten(node)
    return TreeSpec(type(node), context, [_taken_apart(c, leaves, is_leaf) for c in children])


def flattened_with(
    tree: Any, is_leaf: IsLeaf | None = None, path: tuple[Any, ...] = ()
) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """The leaves of a tree in order, each behind the keys that lead to it."""
    kind = kind_of(tree)
    if kind is None or (is_leaf is not None and is_leaf(tree)):
        yield path, tree
        return
    if kind.keys is None:
        raise ValueError(f"Did not find a flatten_with_keys_fn for type: {type(tree)}.")
    for key, child in zip(kind.keys(tree), kind.flatten(tree)[0], strict=True):
        yield from flattened_with(child, is_leaf, (*path, key))


def unflatten(form: TreeSpec, leaves: Iterable[Any]) -> Any:
    """The tree of a form with these leaves."""
    return _put_together(form, iter(leaves))


def _put_together(form: TreeSpec, leaves: Iterator[Any]) -> Any:
    if form.type is None:
        return next(leaves)
    kind = NODES.get(form.type, NAMED)
    return kind.unflatten([_put_together(c, leaves) for c in form.children_specs], form.context)


def spelled(treespec: TreeSpec) -> str:
    """A form in short, as PyTorch's errors print it.

    >>> spelled(flatten({"a": 1, "b": (2, [3])})[1])
    "{'a': *, 'b': (*, [*])}"
    """
    if treespec.type is None:
        return "*"
    texts = [spelled(child) for child in treespec.children_specs]
    inner, name = ", ".join(texts), treespec.type.__name__
    if treespec.type in MAPPINGS:
        factory, keys = (
            treespec.context if treespec.type is defaultdict else (None, treespec.context)
        )
        pairs = list(zip(keys, texts, strict=True))
        if treespec.type is OrderedDict:
            return "OrderedDict([" + ", ".join([f"({k!r}, {t})" for k, t in pairs]) + "])"
        items = "{" + ", ".join([f"{key!r}: {text}" for key, text in pairs]) + "}"
        return items if treespec.type is dict else f"{name}({factory}, {items})"
    if treespec.type is list:
        return f"[{inner}]"
    if treespec.type is tuple:
        return f"({inner},)" if len(texts) == 1 else f"({inner})"
    if treespec.type is deque:
        return f"deque([{inner}]" + (f", maxlen={treespec.context})" if treespec.context else ")")
    if _is_named(treespec):
        inner = ", ".join([f"{n}={t}" for n, t in zip(treespec.type._fields, texts, strict=True)])
    return f"{name}({inner})"


def structure(form: TreeSpec) -> str:
    """A form as PyTorch's `TreeSpec` prints it.

    >>> structure(flatten([1, 2])[1])
    'TreeSpec(list, None, [*,\\n  *])'
    """
    return repr(form)


def tree_map(
    func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: IsLeaf | None = None
) -> Any:
    """The tree with `func` applied to every leaf, and to what `rests` have in its place."""
    leaves, form = flatten(tree, is_leaf)
    columns = [leaves, *[form.flatten_up_to(rest) for rest in rests]]
    return unflatten(form, [func(*row) for row in zip(*columns, strict=True)])


def broadcast(prefix: Any, tree: Any, what: str, of: str) -> list[Any]:
    """One entry of `prefix` per leaf of `tree`: an entry stands for everything below its place.

    ValueError where the two have different forms: `what` is not as the `of` are.
    """
    entries: list[Any] = []
    places = [(prefix, tree)]
    while places:
        entry, node = places.pop()
        if not isinstance(entry, (list, tuple, dict)):
            entries += [entry] * len(flatten(node)[0])
            continue
        both_dicts = isinstance(entry, dict) and isinstance(node, dict)
        same = (both_dicts or type(node) is type(entry)) and len(node) == len(entry)
        if not same or isinstance(entry, dict) and set(entry) != set(node):
            raise ValueError(mismatch(what, prefix, tree, of))
        keys: Any = list(node) if isinstance(node, dict) else range(len(node))
        places += [(entry[k], node[k]) for k in reversed(keys)]
    return entries


def mismatch(what: str, prefix: Any, tree: Any, of: str) -> str:
    """The words for a prefix that does not fit a tree."""
    return (
        f"{what} is not compatible with the structure of `{of}`. {what.rpartition(' ')[2]} has "
        f"structure {structure(flatten(prefix)[1])} but {of} has structure "
        f"{structure(flatten(tree)[1])}."
    )
