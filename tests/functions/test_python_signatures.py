"""What PyTorch has written in Python is called here by the same names, and in the same places."""

from __future__ import annotations

import importlib
import inspect
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

import cugrad

torch = pytest.importorskip("torch")

SPACES = [
    "torch", "nn", "nn.functional", "nn.init", "nn.utils", "nn.utils.rnn", "nn.utils.prune",
    "nn.utils.parametrize", "nn.utils.parametrizations", "nn.utils.fusion", "nn.attention",
    "optim", "optim.lr_scheduler", "optim.swa_utils", "utils.data", "utils.data.distributed",
    "utils.benchmark", "utils._pytree", "utils.tensorboard", "testing", "serialization", "amp",
    "cuda", "cuda.memory", "sparse", "multiprocessing", "random", "utils", "func", "hub",
    "accelerator", "autograd.functional", "autograd.graph", "autograd.forward_ad",
    "distributions", "distributions.transforms", "utils.checkpoint", "utils.hooks",
    "utils.flop_counter", "futures", "overrides", "signal.windows",
]  # fmt: skip

# What PyTorch's signature says and no program writes, or what ours does otherwise.
REASONS = {
    "lu unique unique_consecutive compiler.compile": "ours say what they take",
    "Module.to": "ours says what it takes",
    "nn.LSTM": "ours says what it takes, as PyTorch's overloads do",
    "norm tensordot Tensor.split": "`out`, `dtype` and `split_size` are read as in its C++",
    "TypedStorage RemovableHandle": "private names",
    "nn.functional.adaptive_max_pool nn.functional.fractional_max_pool nn.functional.max_pool":
        "PyTorch's say nothing, ours what they take",
    "nn.init": "the old names: PyTorch's say nothing",
    "Optimizer.profile_hook_step": "a decorator, called by position",
    "fork_rng": "two names are private, and `device_type` behind them is by name alone",
    "jacrev": "a private name",
    "Node.metadata": "ours is a dict, too",
    "Transform.domain Transform.codomain": "properties, of a class that says nothing",
}  # fmt: skip
PARAMETER = inspect.Parameter


def faults(theirs: Any, ours: Any) -> list[str]:
    """The arguments that PyTorch's takes and ours does not, by name or at its place."""
    try:
        wanted = inspect.signature(theirs).parameters.values()
    except (ValueError, TypeError):
        return []
    try:
        own = inspect.signature(ours).parameters
    except (ValueError, TypeError):
        return ["says nothing"]
    kinds = {p.kind for p in own.values()}
    places = [p for p in own.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    found, place = [], 0
    for p in wanted:
        if p.kind in (PARAMETER.VAR_KEYWORD, PARAMETER.VAR_POSITIONAL):
            found += [] if p.kind in kinds else [str(p)]
            continue
        mine = own.get(p.name)
        by_name = mine is not None and mine.kind is not PARAMETER.POSITIONAL_ONLY
        if not by_name and p.name != "self" and PARAMETER.VAR_KEYWORD not in kinds:
            found += [p.name] if p.kind is not PARAMETER.POSITIONAL_ONLY else []
        if p.kind is not PARAMETER.KEYWORD_ONLY:
            here = places[place] if place < len(places) else None
            if PARAMETER.VAR_POSITIONAL not in kinds and (
                here is None or (here.name != p.name and mine is not None)
            ):
                found.append(f"{p.name} at place {place}")
            place += 1
        needed = mine is not None and mine.default is PARAMETER.empty and mine.kind not in (
            PARAMETER.VAR_POSITIONAL, PARAMETER.VAR_KEYWORD)  # fmt: skip
        if needed and p.default is not PARAMETER.empty:
            found.append(f"{p.name}, which is needed")
    return found


def pairs(space: str) -> Iterator[tuple[str, Any, Any]]:
    """Functions, constructors and methods of a module of PyTorch's, and ours."""
    path = "" if space == "torch" else f".{space}"
    theirs, ours = (importlib.import_module(f"{lib}{path}") for lib in ("torch", "cugrad"))
    for name in sorted(n for n in dir(theirs) if not n.startswith("_")):
        value, twin = getattr(theirs, name, None), getattr(ours, name, None)
        if not callable(value) or twin is None or not callable(twin):
            continue
        if not str(getattr(value, "__module__", "")).startswith("torch"):
            continue
        full = f"{path[1:]}.{name}".lstrip(".")
        if not isinstance(value, type):
            yield full, value, twin
            continue
        if not isinstance(twin, type):
            continue
        if "__init__" in vars(value):
            own = twin.__init__ if twin.__init__ is not object.__init__ else twin.__new__
            yield full, value.__init__, own
        for method in vars(value):
            if method.startswith("_") or not callable(getattr(value, method, None)):
                continue
            if not isinstance(getattr(value, method), type) and hasattr(twin, method):
                yield f"{full}.{method}", getattr(value, method), getattr(twin, method)


@pytest.mark.parametrize("space", SPACES)
def test_arguments_are_pytorchs(space: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = {name: faults(theirs, ours) for name, theirs, ours in pairs(space)}
    known = [word for names in REASONS for word in names.split()]
    wrong = {name: each for name, each in found.items()
             if each and not any(word in name for word in known)}  # fmt: skip
    assert not wrong


def test_importance_scores_by_position() -> None:
    prune, scores = cugrad.nn.utils.prune, cugrad.tensor([[3.0, 1.0, 2.0]])
    for method, how in ((prune.L1Unstructured, (1,)), (prune.LnStructured, (1, 2, 1))):
        layer = cugrad.nn.Linear(3, 1)
        method.apply(layer, "weight", *how, scores)
        assert layer.weight_mask.tolist() == [[1, 0, 1]]


@pytest.mark.pinned_torch
def test_forks_of_other_devices() -> None:
    for kind, same in (("cpu", True), (None, True), ("meta", False)):
        for lib in (cugrad, torch):
            lib.manual_seed(3)
            with lib.random.fork_rng(devices=[], device_type=kind):
                first = lib.rand(2)
            assert lib.equal(first, lib.rand(2)) is same, (lib, kind)


@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")
def test_trees_of_constants_and_forms() -> None:
    class Frozen(str):
        def __eq__(self, other: object) -> bool:
            return str.__eq__(self, other)

        __hash__ = str.__hash__

    for lib in (cugrad, torch):
        trees = importlib.import_module(f"{lib.__name__}.utils._pytree")
        leaf = trees.tree_structure(3)
        assert (
            isinstance(leaf, trees.LeafSpec) and leaf == trees.LeafSpec() == trees.treespec_leaf()
        )
        pair = trees.treespec_tuple([leaf, trees.treespec_dict({"a": leaf}, b=leaf)])
        assert pair == trees.tree_structure((1, {"a": 2, "b": 3}))
        assert trees._broadcast_to_and_flatten((1, 2), pair) == [1, 2, 2]
        assert trees._broadcast_to_and_flatten((1, 2, 3), pair) is None
        with pytest.raises(ValueError, match="Expected a tuple of TreeSpec"):
            trees.treespec_tuple([3])
        with pytest.raises(TypeError, match="non-default `__eq__`"):
            trees.register_constant(type("Plain", (), {}))
        trees.register_constant(Frozen)
        leaves, form = trees.tree_flatten([Frozen("a"), 1])
        assert leaves == [1] and trees.tree_unflatten([2], form) == [Frozen("a"), 2]


def test_graphs_say_what_they_lack() -> None:
    graph: Any = object()
    for name in ("enable_annotations", "check_input_liveness"):
        with pytest.raises(NotImplementedError, match=name):
            cugrad.cuda.graph(graph, **{name: True})
