"""utils._pytree beside PyTorch's: the same leaves, forms, paths and errors."""

from __future__ import annotations

import collections
import dataclasses
from typing import Any, NamedTuple

import pytest

from cugrad.utils import _pytree as ours

theirs = pytest.importorskip("torch.utils._pytree")


class Named(NamedTuple):
    """A named tuple."""

    u: Any
    v: Any


TREES: list[Any] = [
    3, None, [], (), {}, [1, 2], (1, [2, (3, None)]), {"a": 1, "b": {"c": [2]}},
    Named(1, [2, 3]), collections.OrderedDict(b=1, a=[2]), collections.deque([1, [2]], maxlen=4),
    collections.defaultdict(list, {"k": (1, 2)}), [{"x": Named(1, 2)}, (3,)], "text",
]  # fmt: skip


def outcome(call: Any) -> Any:
    try:
        return call()
    except Exception as error:
        return type(error).__name__, str(error)


@pytest.mark.parametrize("tree", TREES, ids=str)
def test_a_tree_comes_apart_as_in_pytorch(tree: Any) -> None:
    (leaves, form), (want, theirs_form) = ours.tree_flatten(tree), theirs.tree_flatten(tree)
    assert leaves == want
    assert str(form) == str(theirs_form)
    assert (form.num_leaves, form.num_nodes, form.num_children) == (
        theirs_form.num_leaves, theirs_form.num_nodes, theirs_form.num_children,
    )  # fmt: skip
    assert ours.tree_unflatten(leaves, form) == tree
    assert type(ours.tree_unflatten(leaves, form)) is type(tree)
    assert form == ours.tree_structure(tree)
    assert hash(form) == hash(ours.tree_structure(tree))
    paths = [(ours.keystr(path), leaf) for path, leaf in ours.tree_leaves_with_path(tree)]
    assert paths == [
        (theirs.keystr(path), leaf) for path, leaf in theirs.tree_leaves_with_path(tree)
    ]
    for path, leaf in ours.tree_leaves_with_path(tree):
        assert ours.key_get(tree, path) == leaf


@pytest.mark.parametrize("tree", TREES, ids=str)
@pytest.mark.parametrize("other", TREES, ids=str)
def test_trees_meet_as_in_pytorch(tree: Any, other: Any) -> None:
    got, want = (
        outcome(lambda p=p: p.tree_map(lambda a, b: (a, b), tree, other))  # type: ignore[misc]
        for p in (ours, theirs)
    )
    if isinstance(want, tuple) and want and want[0] in ("ValueError", "TypeError"):
        assert got[0] == want[0]
    else:
        assert got == want


def marked(tree: Any) -> Any:
    """A tree of a class that PyTorch 2.13 is the first to write as it does."""
    newer = isinstance(tree, collections.OrderedDict)
    return pytest.param(tree, marks=[pytest.mark.pinned_torch] * newer)


@pytest.mark.parametrize("tree", [*map(marked, TREES)], ids=str)
def test_forms_are_written_as_in_pytorch(tree: Any) -> None:
    form = ours.tree_structure(tree)
    assert ours.treespec_pprint(form) == theirs.treespec_pprint(theirs.tree_structure(tree))
    text = outcome(lambda: theirs.treespec_dumps(theirs.tree_structure(tree)))
    if isinstance(text, str) and "defaultdict" not in text:
        assert ours.treespec_dumps(form) == text
        assert ours.treespec_loads(text) == form


@pytest.mark.parametrize(
    "call",
    [
        lambda p: p.tree_map_only(int, lambda x: x + 1, [1, 2.0, ["a", 3]]),
        lambda p: p.tree_map_only((int, str), str, [1, 2.0, ["a", 3]]),
        lambda p: p.tree_map_only(lambda x: x == 1, str, [1, 2.0]),
        lambda p: p.tree_all(lambda x: x > 0, [1, (2, -3)]),
        lambda p: p.tree_any(lambda x: x < 0, [1, (2, -3)]),
        lambda p: p.tree_all_only(int, lambda x: x > 0, [1, -2.0]),
        lambda p: p.tree_any_only(float, lambda x: x > 0, [1, -2.0]),
        lambda p: p.tree_leaves([(1, 2), 3], is_leaf=lambda x: isinstance(x, tuple)),
        lambda p: p.tree_map(lambda x: x, [(1, 2), 3], is_leaf=lambda x: isinstance(x, tuple)),
        lambda p: p.tree_is_leaf([]),
        lambda p: p.arg_tree_leaves(1, [2], a=3),
        lambda p: p.tree_map_with_path(lambda k, x: (p.keystr(k), x), {"a": [1, 2]}),
        lambda p: p.tree_unflatten([1], p.tree_structure([1, 2])),
        lambda p: p.tree_unflatten([1], 3),
        lambda p: p.register_pytree_node(list, None, None),
    ],
)
def test_functions_agree(call: Any) -> None:
    got, want = outcome(lambda: call(ours)), outcome(lambda: call(theirs))
    if isinstance(want, tuple) and want[0] == "TypeError":
        assert got[0] == want[0]
    else:
        assert got == want


@dataclasses.dataclass
class Point:
    """A dataclass that is made a container."""

    x: Any
    y: Any = None


def test_a_dataclass_becomes_a_container_of_vmap_too() -> None:
    import cugrad

    ours.register_dataclass(Point)
    try:
        assert ours.tree_leaves([Point(1, 2), Point(3)]) == [1, 2, 3]
        assert ours.tree_map(lambda x: x + 1, Point(3)) == Point(4)
        out = cugrad.vmap(lambda p: p.x * p.y)(Point(cugrad.arange(3.0), cugrad.arange(3.0)))
        assert out.tolist() == [0.0, 1.0, 4.0]
    finally:
        del ours.SUPPORTED_NODES[Point]
