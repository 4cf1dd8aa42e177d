"""Nodes of the recorded graph: what an op leaves behind for its backward."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from itertools import count
from typing import Any

from ...runtime.sequence import next_seq
from ...tensor import Tensor
from ..mode import state

__all__ = [
    "AccumulateGrad", "Node", "Output", "RemovableHandle", "announced_seq", "edge_of", "end_of",
    "next_seq", "take_seq",
]  # fmt: skip

# Sequence numbers grow with time, so creation order is a topological order, in every thread.
LEAF_SEQ = 2**64 - 1  # of AccumulateGrad, which is not ordered by time
SEQ_LIMIT = 2**62  # numbers from here on belong to leaves, in PyTorch's traces too

FREED_TEXT = (
    "Trying to backward through the graph a second time (or directly access saved tensors after "
    "they have already been freed). Saved intermediate values of the graph are freed when you "
    "call .backward() or autograd.grad(). Specify retain_graph=True if you need to backward "
    "through the graph a second time or if you need to access saved tensors after calling "
    "backward."
)


class Freed(tuple[Any, ...]):
    """What `saved` is after backward has released it: empty, and an error where it is read.

    A thread may find this in a node that was not freed when it looked, if another thread freed it.
    """

    __slots__ = ()

    def __iter__(self) -> Any:
        raise RuntimeError(FREED_TEXT)

    def __getitem__(self, index: Any) -> Any:
        raise RuntimeError(FREED_TEXT)


FREED: Any = Freed()


class RemovableHandle:
    """What registering a hook returns; `remove()` takes the hook away, and may be called twice."""

    _ids = count().__next__

    def __init__(self, hooks: dict[int, Any]) -> None:
        self.id = self._ids()
        self._hooks = weakref.ref(_as_weak(hooks))

    def remove(self) -> None:
        hooks = self._hooks()
        if hooks is not None:
            hooks.pop(self.id, None)

    def __getstate__(self) -> tuple[HookDict | None, int]:
        return self._hooks(), self.id  # copied together with what has the hooks

    def __setstate__(self, state: tuple[HookDict | None, int]) -> None:
        hooks, self.id = state
        self._hooks = weakref.ref(HookDict() if hooks is None else hooks)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()


class HookDict(dict[int, Any]):
    """Hooks in the order of registration; a dict that a handle can refer to weakly."""

    __slots__ = ("__weakref__",)


def _as_weak(hooks: dict[int, Any]) -> HookDict:
    assert isinstance(hooks, HookDict)
    return hooks


def add_hook(hooks: HookDict, hook: Callable[..., Any]) -> RemovableHandle:
    """Puts a hook behind those that are there."""
    if not callable(hook):
        raise TypeError(f"a hook must be callable, got {type(hook).__name__}")
    handle = RemovableHandle(hooks)
    hooks[handle.id] = hook
    return handle


class NodeRare:
    """What most nodes never have: hooks, tensors that retain their gradient, metadata."""

    __slots__ = ("tensor_hooks", "pre_hooks", "post_hooks", "retained", "metadata", "tangents")

    def __init__(self) -> None:
        self.tensor_hooks: dict[int, HookDict] = {}  # by output number
        self.pre_hooks: HookDict = HookDict()
        self.post_hooks: HookDict = HookDict()
        self.retained: dict[int, weakref.ref[Tensor]] = {}
        self.metadata: dict[Any, Any] | None = None
        # of outputs, by level, with their versions
        self.tangents: dict[Any, dict[int, tuple[Tensor, int]]] | None = None

    def is_heard(self) -> bool:
        """Whether there are hooks, or tensors that retain gradients: a trace is no listener."""
        return bool(self.tensor_hooks or self.pre_hooks or self.post_hooks or self.retained)


class Node:
    """One recorded op: where its gradients go, and what its formulas need.

    `edges` has one entry per tensor input: None, another node, an `Output` of one, or the leaf
    Tensor itself.
    """

    __slots__ = ("seq", "plan", "edges", "saved", "versions", "meta", "rare", "__weakref__")
    seq: int
    plan: Any
    edges: tuple[Any, ...]
    saved: tuple[Any, ...]
    versions: tuple[int, ...] | None  # of the saved inputs; None when all were 0
    meta: Any
    rare: NodeRare | None

    output_nr = 0
    output_count = 1

    @property
    def grad_fn(self) -> Node:
        return self

    def name(self) -> str:
        """The name of the node, such as `MulBackward0`."""
        raise NotImplementedError

    def shown(self) -> Node:
        """This node as users get it: of a class that has the name of the node."""
        return self

    @property
    def next_functions(self) -> tuple[tuple[Any, int], ...]:
        """The nodes that this node sends gradients to, each with the output number it means."""
        return tuple(as_function(edge) for edge in self.edges)

    @property
    def metadata(self) -> dict[Any, Any]:
        """A dict for the user, kept with the node."""
        rare = self.get_rare()
        if rare.metadata is None:
            rare.metadata = {}
        return rare.metadata

    @property
    def requires_grad(self) -> bool:
        return True

    def _sequence_nr(self) -> int:
        return self.seq

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(f"cannot pickle '{self.name()}' object")

    def __call__(self, *grad_outputs: Tensor | None) -> Any:
        """The gradients of the inputs for these of the outputs: this node alone, without hooks.

        >>> import cugrad as torch
        >>> x = torch.zeros(2, requires_grad=True)
        >>> (x * 3).grad_fn(torch.ones(2))
        (tensor([3., 3.]), None)
        """
        if len(grad_outputs) != self.output_count:
            raise TypeError(
                f"expected {self.output_count} arguments, got {len(grad_outputs)} instead "
                f"({self.name()} wants a gradient of each output)"
            )
        for i, g in enumerate(grad_outputs):
            if g is not None and not isinstance(g, Tensor):
                raise TypeError(f"argument {i} is not a Variable")
        incoming = grad_outputs[0] if len(grad_outputs) == 1 else grad_outputs
        gradients = tuple(self.plan.vjp_recorded(self, incoming))
        return gradients[0] if len(gradients) == 1 else gradients

    def get_rare(self) -> NodeRare:
        if self.rare is None:
            self.rare = NodeRare()
        return self.rare

    def counter_of(self, nr: int = 0) -> list[int] | None:
        """The version counter of what is saved of differentiable output `nr`, or None."""
        return None

    def register_hook(self, fn: Callable[..., Any]) -> RemovableHandle:
        """Calls `fn(grad_inputs, grad_outputs)` after the node ran; it may return new grad_inputs.

        Returns a handle with `remove()`.

        >>> import cugrad as torch
        >>> a = torch.tensor([0., 0.], requires_grad=True)
        >>> b = a.clone()
        >>> handle = b.grad_fn.register_hook(lambda gI, gO: (gO[0] * 2,))
        >>> b.sum().backward()
        >>> a.grad
        tensor([2., 2.])
        """
        rare = self.get_rare()
        handle = RemovableHandle(rare.post_hooks)
        rare.post_hooks[handle.id] = fn  # checked when it is called, as in PyTorch
        return handle

    def register_prehook(self, fn: Callable[..., Any]) -> RemovableHandle:
        """Calls `fn(grad_outputs)` before the node runs; it may return new grad_outputs.

        >>> import cugrad as torch
        >>> a = torch.tensor([0., 0.], requires_grad=True)
        >>> b = a.clone()
        >>> handle = b.grad_fn.register_prehook(lambda gO: (gO[0] * 3,))
        >>> b.sum().backward()
        >>> a.grad
        tensor([3., 3.])
        """
        return add_hook(self.get_rare().pre_hooks, fn)

    def __repr__(self) -> str:
        return f"<{self.short_name()} object at {id(self):#x}>"

    def short_name(self) -> str:
        """The name without the namespaces that PyTorch puts before some."""
        return self.name().rpartition("::")[2]


class Output:
    """Output number `output_nr` of a node that has several differentiable ones."""

    __slots__ = ("grad_fn", "output_nr")

    def __init__(self, node: Node, output_nr: int) -> None:
        self.grad_fn, self.output_nr = node, output_nr

    def counter_of(self) -> list[int] | None:
        return self.grad_fn.counter_of(self.output_nr)


def end_of(edge: Any) -> Any:
    """The node, or leaf, at the end of an edge."""
    return edge.grad_fn if type(edge) is Output else edge


class AccumulateGrad(Node):
    """What users see at the end of the graph. The graph itself refers to the leaf, not to this."""

    __slots__ = ("variable",)
    variable: Tensor

    def __init__(self, variable: Tensor) -> None:
        self.seq, self.plan, self.edges, self.saved = LEAF_SEQ, None, (), ()
        self.versions = self.meta = self.rare = None
        self.variable = variable

    def name(self) -> str:
        return "torch::autograd::AccumulateGrad"

    def get_rare(self) -> NodeRare:
        if self.rare is None:  # the leaf keeps the hooks, which outlive this object
            self.rare = leaf_rare(self.variable)
        return self.rare


def leaf_rare(leaf: Tensor) -> NodeRare:
    """The hooks of a leaf, made when first asked for."""
    if leaf.rare.leaf is None:
        leaf.rare.leaf = NodeRare()
    return leaf.rare.leaf


def accumulator(leaf: Tensor) -> AccumulateGrad:
    """The AccumulateGrad of a leaf, the same object while there is a reference to it."""
    rare = leaf.rare
    node = None if rare.accumulator is None else rare.accumulator()
    if node is None:
        node = AccumulateGrad(leaf)
        rare.accumulator = weakref.ref(node)
        node.rare = rare.leaf
    return node


def as_function(edge: Any) -> tuple[Any, int]:
    """An edge as users see it: (node, output number), (None, 0) where no gradient goes."""
    if edge is None:
        return None, 0
    if isinstance(edge, Tensor):
        return accumulator(edge), 0
    return edge.grad_fn.shown(), edge.output_nr


def edge_of(t: Tensor) -> Any:
    """Where the gradient of `t` goes: its node, an output of one, or the leaf itself.

    None for a view with no history, made where nothing was recorded, unless the user has asked for
    its gradient.
    """
    node, rare = t._node, t._rare
    if node is not None or rare is None:
        return t if node is None else node
    if rare.stands_for is not None:
        return rare.stands_for
    if rare.view is None:
        return t
    node = rare.view.regenerate(t)
    if node is None:
        return t if rare.view.accumulates else None
    return node


# ---------------------------------------------------------------------- numbers told to observers


def announced_seq(inputs: Any) -> int:
    """The number that observers get for an op before it runs, and that its node gets later. Views
    whose base has changed, among the inputs that its node will lead to, get their new nodes first,
    because a node must be younger than all of those.
    """
    for x in inputs:
        if isinstance(x, Tensor) and x._node is None and x._rare is not None:
            if x._requires_grad and x._rare.view is not None and x._rare.view.is_followed:
                if state.grad_enabled:
                    edge_of(x)
    return next_seq()


def take_seq(node: Node, seq: int) -> None:
    """Gives a node the number that observers were told, unless it leads to a younger node. Then it
    keeps its own number, because the engine sorts by numbers.
    """
    if node.seq != seq + 1:  # some node was made between the two
        for edge in node.edges:
            if edge is not None and not isinstance(edge, Tensor) and edge.grad_fn.seq >= seq:
                return
    node.seq = seq
