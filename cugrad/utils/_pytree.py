"""torch.utils._pytree: nested containers of tensors, taken apart and put together.

`func/trees.py` does the work. Containers are tuples, lists, dicts, OrderedDicts, defaultdicts,
deques, named tuples, and classes that `register_pytree_node` or `register_dataclass` made one;
anything else, None too, is a leaf.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable
from typing import Any

from ..func.trees import (
    LEAF,
    NODES,
    GetAttrKey,
    LeafSpec,
    MappingKey,
    NodeKind,
    SequenceKey,
    TreeSpec,
    flatten,
    flattened_with,
    is_namedtuple_class,
    kind_of,
    spelled,
    tree_map,
)

__all__ = [
    "GetAttrKey", "LeafSpec", "MappingKey", "PyTree", "SequenceKey", "SUPPORTED_NODES",
    "TreeSpec", "arg_tree_leaves", "is_namedtuple", "is_namedtuple_class",
    "is_namedtuple_instance", "is_structseq", "is_structseq_class", "is_structseq_instance",
    "key_get", "keystr", "register_constant", "register_dataclass",
    "register_pytree_node",
    "tree_all", "tree_all_only", "tree_any", "tree_any_only", "tree_flatten",
    "tree_flatten_with_path", "tree_is_leaf", "tree_iter", "tree_leaves",
    "tree_leaves_with_path", "tree_map", "tree_map_", "tree_map_only", "tree_map_only_",
    "tree_map_with_path", "tree_structure", "tree_unflatten", "treespec_dict", "treespec_dumps",
    "treespec_leaf", "treespec_loads", "treespec_pprint", "treespec_tuple",
]  # fmt: skip

PyTree = Context = DumpableContext = Any
IsLeaf = Callable[[Any], bool] | None
SUPPORTED_NODES = NODES
treespec_pprint = spelled
_names: dict[str, type] = {f"{k.__module__}.{k.__qualname__}": k for k in NODES}


def treespec_leaf() -> TreeSpec:
    """The form of one leaf."""
    return LEAF


def treespec_tuple(iterable: Iterable[TreeSpec] = (), /) -> TreeSpec:
    """The form of a tuple whose children have these forms; ValueError for what is no form."""
    children = list(iterable)
    if not all(isinstance(child, TreeSpec) for child in children):
        raise ValueError(f"Expected a tuple of TreeSpec values, got: {children!r}.")
    return TreeSpec(tuple, None, children)


def treespec_dict(mapping: Any = (), /, **kwargs: TreeSpec) -> TreeSpec:
    """The form of a dict whose entries have these forms; ValueError for what is no form."""
    children = dict(mapping, **kwargs)
    if not all(isinstance(child, TreeSpec) for child in children.values()):
        raise ValueError(f"Expected a dictionary of TreeSpec values, got: {children!r}.")
    return TreeSpec(dict, list(children), list(children.values()))


def register_pytree_node(
    cls: type,
    flatten_fn: Callable[[Any], tuple[Iterable[Any], Any]],
    unflatten_fn: Callable[[Iterable[Any], Any], Any],
    *,
    serialized_type_name: str | None = None,
    to_dumpable_context: Callable[[Any], Any] | None = None,
    from_dumpable_context: Callable[[Any], Any] | None = None,
    flatten_with_keys_fn: Callable[[Any], tuple[list[tuple[Any, Any]], Any]] | None = None,
) -> None:
    """Makes a class a container: vmap, jacrev and the functions here look into it from now on.

    `flatten_fn(x)` gives the children and what else `unflatten_fn(children, context)` needs.
    ValueError for a class that is one already. Contexts are written by `treespec_dumps` as JSON;
    `to_dumpable_context` and `from_dumpable_context` translate one that JSON does not know.

    >>> class Pair:
    ...     def __init__(self, a, b):
    ...         self.a, self.b = a, b
    >>> register_pytree_node(Pair, lambda p: ([p.a, p.b], None), lambda c, _: Pair(*c))
    >>> tree_leaves([Pair(1, 2), 3])
    [1, 2, 3]
    """
    if cls in NODES:
        raise ValueError(f"{cls!r} is already registered as pytree node.")
    if (to_dumpable_context is None) != (from_dumpable_context is None):
        raise ValueError(
            f"Both to_dumpable_context and from_dumpable_context for {cls} must be None or "
            "registered."
        )
    keys = None
    if flatten_with_keys_fn is not None:
        with_keys = flatten_with_keys_fn
        keys = lambda node: [key for key, _ in with_keys(node)[0]]
    NODES[cls] = NodeKind(flatten_fn, unflatten_fn, keys)
    name = serialized_type_name or f"{cls.__module__}.{cls.__qualname__}"
    _names[name] = cls
    if to_dumpable_context is not None:
        _translations[cls] = to_dumpable_context, from_dumpable_context


def register_constant(cls: type) -> None:
    """Makes a class a container without leaves: its instances belong to the form of a tree.

    TypeError for a class that has no `__eq__` and `__hash__` of its own.
    """
    for name in ("__eq__", "__hash__"):
        if getattr(cls, name) in (None, object.__eq__):
            raise TypeError(
                f"register_constant(cls) expects `cls` to have a non-default `{name}` "
                "implementation."
            )
    register_pytree_node(
        cls, lambda x: ([], x), lambda _, x: x, flatten_with_keys_fn=lambda x: ([], x)
    )


_translations: dict[type, tuple[Any, Any]] = {}


def register_dataclass(
    cls: type, *, field_names: list[str] | None = None, drop_field_names: list[str] | None = None,
    serialized_type_name: str | None = None,
) -> None:  # fmt: skip
    """Makes a dataclass a container of its fields; None and fields left out stay as they are."""
    if not dataclasses.is_dataclass(cls) and field_names is None:
        raise ValueError(f"field_names must be specified for non-dataclass {cls}")
    names = field_names or [f.name for f in dataclasses.fields(cls) if f.init]
    names = [n for n in names if n not in (drop_field_names or ())]

    def taken_apart(node: Any) -> tuple[list[Any], Any]:
        there = [n for n in names if getattr(node, n) is not None]
        return [getattr(node, n) for n in there], [there, [n for n in names if n not in there]]

    def rebuilt(children: Iterable[Any], context: Any) -> Any:
        there, absent = context
        return cls(**dict(zip(there, children, strict=True)), **dict.fromkeys(absent))

    def with_keys(node: Any) -> tuple[list[tuple[Any, Any]], Any]:
        children, context = taken_apart(node)
        return [(GetAttrKey(n), c) for n, c in zip(context[0], children, strict=True)], context

    register_pytree_node(
        cls, taken_apart, rebuilt, serialized_type_name=serialized_type_name,
        flatten_with_keys_fn=with_keys,
    )  # fmt: skip


# Taking apart -------------------------------------------------------------------------------------


def tree_flatten(tree: Any, is_leaf: IsLeaf = None) -> tuple[list[Any], TreeSpec]:
    """The leaves of a tree in order, and its form.

    >>> tree_flatten({"a": 1, "b": [2, 3]})
    ([1, 2, 3], TreeSpec(dict, ['a', 'b'], [*,
      TreeSpec(list, None, [*,
        *])]))
    """
    return flatten(tree, is_leaf)


def tree_unflatten(leaves: Iterable[Any], treespec: TreeSpec) -> Any:
    """The tree of a form with these leaves; ValueError for another number of them."""
    if not isinstance(treespec, TreeSpec):
        raise TypeError(
            "Expected `treespec` to be an instance of PyTreeSpec but got item of type "
            f"{type(treespec)}."
        )
    return treespec.unflatten(leaves)


def tree_is_leaf(tree: Any, is_leaf: IsLeaf = None) -> bool:
    """Whether a value is a leaf and no container."""
    return kind_of(tree) is None or (is_leaf is not None and is_leaf(tree))


def tree_iter(tree: Any, is_leaf: IsLeaf = None) -> Iterable[Any]:
    """The leaves of a tree in order."""
    return iter(flatten(tree, is_leaf)[0])


def tree_leaves(tree: Any, is_leaf: IsLeaf = None) -> list[Any]:
    """The leaves of a tree in order, as a list."""
    return flatten(tree, is_leaf)[0]


def tree_structure(tree: Any, is_leaf: IsLeaf = None) -> TreeSpec:
    """The form of a tree."""
    return flatten(tree, is_leaf)[1]


def arg_tree_leaves(*args: Any, **kwargs: Any) -> list[Any]:
    """The leaves of all arguments."""
    return flatten((args, kwargs))[0]


def tree_flatten_with_path(
    tree: Any, is_leaf: IsLeaf = None
) -> tuple[list[tuple[tuple[Any, ...], Any]], TreeSpec]:
    """Pairs of path and leaf, and the form of the tree.

    >>> [(keystr(path), leaf) for path, leaf in tree_flatten_with_path({"a": [1, 2]})[0]]
    [("['a'][0]", 1), ("['a'][1]", 2)]
    """
    return tree_leaves_with_path(tree, is_leaf), flatten(tree, is_leaf)[1]


def tree_leaves_with_path(tree: Any, is_leaf: IsLeaf = None) -> list[tuple[tuple[Any, ...], Any]]:
    """Pairs of path and leaf."""
    return list(flattened_with(tree, is_leaf))


def keystr(kp: tuple[Any, ...]) -> str:
    """A path as it is written in Python."""
    return "".join([str(key) for key in kp])


def key_get(obj: Any, kp: tuple[Any, ...]) -> Any:
    """What a path leads to in a tree."""
    for key in kp:
        obj = key.get(obj)
    return obj


# Mapping ------------------------------------------------------------------------------------------


def tree_map_(func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: IsLeaf = None) -> Any:
    """Calls `func` for every leaf, and returns the tree as it was."""
    tree_map(func, tree, *rests, is_leaf=is_leaf)
    return tree


def tree_map_with_path(
    func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: IsLeaf = None
) -> Any:
    """As `tree_map`, of a function that gets the path before the leaf."""
    leaves, form = tree_flatten_with_path(tree, is_leaf)
    columns = [form.flatten_up_to(rest) for rest in rests]
    rows = zip(leaves, *columns, strict=True)
    return form.unflatten([func(path, leaf, *others) for (path, leaf), *others in rows])


def _is_chosen(chosen: Any) -> Callable[[Any], bool]:
    """Whether a leaf is of a class, of one of several, or fulfils a predicate."""
    if isinstance(chosen, type) or not callable(chosen):
        return lambda leaf: isinstance(leaf, chosen)
    return chosen


def tree_map_only(
    type_or_types_or_pred: Any, func: Callable[[Any], Any], tree: Any, is_leaf: IsLeaf = None
) -> Any:
    """The tree with `func` applied to the leaves of some classes, or those a predicate chooses.

    >>> tree_map_only(int, lambda x: x + 1, [1, 2.5, "a"])
    [2, 2.5, 'a']
    """
    is_chosen = _is_chosen(type_or_types_or_pred)
    return tree_map(lambda x: func(x) if is_chosen(x) else x, tree, is_leaf=is_leaf)


def tree_map_only_(
    type_or_types_or_pred: Any, func: Callable[[Any], Any], tree: Any, is_leaf: IsLeaf = None
) -> Any:
    """Calls `func` for the chosen leaves, and returns the tree as it was."""
    tree_map_only(type_or_types_or_pred, func, tree, is_leaf)
    return tree


def tree_all(pred: Callable[[Any], bool], tree: Any, is_leaf: IsLeaf = None) -> bool:
    """Whether `pred` is true of every leaf."""
    return all(pred(x) for x in tree_iter(tree, is_leaf))


def tree_any(pred: Callable[[Any], bool], tree: Any, is_leaf: IsLeaf = None) -> bool:
    """Whether `pred` is true of some leaf."""
    return any(pred(x) for x in tree_iter(tree, is_leaf))


def tree_all_only(
    type_or_types: Any, pred: Callable[[Any], bool], tree: Any, is_leaf: IsLeaf = None
) -> bool:
    """Whether `pred` is true of every leaf of some classes."""
    return all(pred(x) for x in tree_iter(tree, is_leaf) if isinstance(x, type_or_types))


def tree_any_only(
    type_or_types: Any, pred: Callable[[Any], bool], tree: Any, is_leaf: IsLeaf = None
) -> bool:
    """Whether `pred` is true of some leaf of some classes."""
    return any(pred(x) for x in tree_iter(tree, is_leaf) if isinstance(x, type_or_types))


def is_namedtuple(obj: Any) -> bool:
    """Whether a class, or the class of an object, is a named tuple."""
    return is_namedtuple_class(obj if isinstance(obj, type) else type(obj))


def is_namedtuple_instance(obj: Any) -> bool:
    """Whether an object is a named tuple."""
    return is_namedtuple_class(type(obj))


def _broadcast_to_and_flatten(
    tree: Any, treespec: TreeSpec, is_leaf: IsLeaf = None
) -> list[Any] | None:
    """One leaf of `tree` for each of a form that may go deeper; None where they do not fit."""
    leaves: list[Any] = []
    whole = treespec.unflatten([0] * treespec.num_leaves)
    try:
        tree_map_(
            lambda x, part: leaves.extend([x] * tree_structure(part, is_leaf).num_leaves),
            tree, whole, is_leaf=is_leaf,
        )  # fmt: skip
    except ValueError:
        return None
    return leaves


# Forms as text ------------------------------------------------------------------------------------


def is_structseq_class(cls: type) -> bool:
    """Whether a class is one of C's named tuples, such as `time.struct_time`."""
    counts = ("n_fields", "n_sequence_fields", "n_unnamed_fields")
    direct = isinstance(cls, type) and cls.__bases__ == (tuple,)
    return direct and all(isinstance(getattr(cls, name, None), int) for name in counts)


def is_structseq(obj: Any) -> bool:
    """Whether it is an instance of such a class, or the class."""
    return is_structseq_class(obj if isinstance(obj, type) else type(obj))


def is_structseq_instance(obj: Any) -> bool:
    """Whether it is an instance of such a class."""
    return is_structseq_class(type(obj))


def treespec_dumps(treespec: TreeSpec, protocol: int | None = None) -> str:
    """A form as JSON, in PyTorch's protocol 1; NotImplementedError for a class without a name.

    >>> form = tree_structure({"a": [1, 2]})
    >>> treespec_loads(treespec_dumps(form)) == form
    True
    """
    if not isinstance(treespec, TreeSpec):
        raise TypeError(
            "treespec_dumps(treespec, protocol): Expected `treespec` to be instance of PyTreeSpec "
            f"but got item of type {type(treespec)}."
        )
    if protocol not in (None, 1):
        raise ValueError(f"Unknown protocol {protocol}. Available protocols: [1]")
    return json.dumps([1, _as_json(treespec)])


def _as_json(form: TreeSpec) -> dict[str, Any]:
    if form.type is None:
        return {"type": None, "context": None, "children_spec": []}
    name = next((n for n, kind in _names.items() if kind is form.type), None)
    if name is None:
        raise NotImplementedError(
            f"Serializing {form.type} in pytree is not registered: see register_pytree_node"
        )
    translate = _translations.get(form.type)
    context = json.dumps(form.context) if translate is None else translate[0](form.context)
    return {
        "type": name, "context": context,
        "children_spec": [_as_json(child) for child in form.children_specs],
    }  # fmt: skip


def treespec_loads(serialized: str) -> TreeSpec:
    """The form that `treespec_dumps` wrote."""
    protocol, schema = json.loads(serialized)
    if protocol != 1:
        raise ValueError(f"Unknown protocol {protocol}. Available protocols: [1]")
    return _of_json(schema)


def _of_json(schema: dict[str, Any]) -> TreeSpec:
    if schema["type"] is None:
        return LEAF
    kind = _names.get(schema["type"])
    if kind is None:
        raise NotImplementedError(
            f"Deserializing {schema['type']} in pytree is not registered: see register_pytree_node"
        )
    translate = _translations.get(kind)
    text = schema["context"]
    context = json.loads(text) if translate is None else translate[1](text)
    return TreeSpec(kind, context, [_of_json(child) for child in schema["children_spec"]])


# What programs register again for classes of theirs that are lists, dicts and the like.
_list_flatten, _list_unflatten = NODES[list].flatten, NODES[list].unflatten
_tuple_flatten, _tuple_unflatten = NODES[tuple].flatten, NODES[tuple].unflatten
_dict_flatten, _dict_unflatten = NODES[dict].flatten, NODES[dict].unflatten


def _list_flatten_with_keys(d: Any) -> tuple[list[tuple[Any, Any]], Any]:
    values, context = _list_flatten(d)
    return [(SequenceKey(place), value) for place, value in enumerate(values)], context


_tuple_flatten_with_keys = _list_flatten_with_keys


def _dict_flatten_with_keys(d: dict[Any, Any]) -> tuple[list[tuple[Any, Any]], Any]:
    """Pairs of the place and the value of each entry, and the keys."""
    return [(MappingKey(key), value) for key, value in d.items()], list(d)


def _get_node_type(tree: Any) -> type:
    """The class of a container, by which `SUPPORTED_NODES` has it."""
    return type(tree)


_register_pytree_node = register_pytree_node
