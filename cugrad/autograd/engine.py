"""Runs a recorded graph backwards. Knows nodes and edges; knows no op and no device."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from heapq import heappop, heappush
from sys import getrefcount
from typing import Any

from ..backends import backend_of
from ..tensor import Tensor, make
from .anomaly_mode import guarded
from .logs import is_logged, logged
from .mode import anomaly, state, switch_grad
from .node import FREED, NodeRare, Output, accumulator
from .record import OpNode
from .saved import FREED_TEXT

__all__ = ["run_backward"]

LEAVES_LAST = 1 << 62


def _count_unshared() -> int:
    fresh = object()
    count = getrefcount(fresh)
    return count


UNSHARED = _count_unshared()  # what only a local variable refers to: 2 references, later 1


class Task(threading.local):
    """What this thread's innermost running backward is; for hooks that ask."""

    running: tuple[Run, ...] = ()


task = Task()
leaf_lock = threading.RLock()  # passes of several threads may end in one leaf


class Run:
    """One backward pass: gradients on their way, the nodes they wait at, and what is wanted."""

    def __init__(
        self,
        keep_graph: bool,
        create_graph: bool,
        captures: dict[Any, list[int]] | None,
        needed: set[Any] | None,
    ) -> None:
        self.keep_graph = keep_graph
        self.recording = create_graph or bool(state.levels)  # gradients are Tensors, not arrays
        self.captures, self.needed = captures, needed
        self.captured: dict[int, Any] = {}
        self.grads: dict[Any, Any] = {}  # node -> its gradient, or a list of them by output
        self.owned: set[Any] = set()  # nodes whose gradient is a buffer of ours
        self.heap: list[tuple[int, Any]] = []  # (-seq, node): the youngest node runs first
        self.leaves = LEAVES_LAST
        self.callbacks: list[Callable[[], Any]] = []
        self.starts: list[Any] = []  # the nodes that gradients were first sent to
        self._reached: set[Any] | None = None

    def will_visit(self, edge: Any) -> bool:
        """Whether this pass computes the gradient of an edge (or has done so)."""
        node = edge.grad_fn if type(edge) is Output else edge
        if self.needed is not None:
            return node in self.needed
        if self._reached is None:
            self._reached = set(reachable(self.starts))
        return node in self._reached

    def send(self, edge: Any, g: Any) -> None:
        """Adds a gradient to what waits at an edge's end."""
        node = edge.grad_fn if type(edge) is Output else edge
        if self.needed is not None and node not in self.needed:
            return
        seen = self.grads.get(node)
        if seen is None:
            if isinstance(node, Tensor):
                self.leaves += 1
                heappush(self.heap, (self.leaves, node))
            else:
                heappush(self.heap, (-node.seq, node))
            if type(edge) is Output:
                seen = self.grads[node] = [None] * node.output_count
                seen[edge.output_nr] = g
            else:
                self.grads[node] = g
        elif type(edge) is Output:
            known = seen[edge.output_nr]
            seen[edge.output_nr] = g if known is None else known + g
        elif node in self.owned:
            seen += g
            self.grads[node] = seen
        else:
            self.grads[node] = seen + g  # not +=: the first gradient may alias the caller's
            if not self.recording:
                self.owned.add(node)

    def run(self) -> None:
        """Runs nodes, youngest first, until no gradient is on its way."""
        heap, grads, needed, owned = self.heap, self.grads, self.needed, self.owned
        recording, keep = self.recording, self.keep_graph
        watched = self.captures is not None or bool(state.observers) or anomaly.enabled
        visit, visit_leaf = self.visit, self.visit_leaf
        if anomaly.enabled:
            visit, visit_leaf = partial(guarded, visit), partial(guarded, visit_leaf)
        node = heappop(heap)[1] if heap else None
        while node is not None:
            g = grads.pop(node)
            if isinstance(node, Tensor):
                exclusive = getrefcount(g) <= UNSHARED  # asked before the call below adds its own
                visit_leaf(node, g, exclusive)
                results = None
            elif type(node) is not OpNode or watched or node.rare is not None:
                results = visit(node, g)
            else:
                if node.saved is FREED:
                    raise RuntimeError(FREED_TEXT)
                results = node.plan.vjp_recorded(node, g) if recording else node.plan.vjp(node, g)
                if not keep and node.saved:
                    node.saved = FREED
                    node.versions = None
            following = None
            if results:
                for edge, g in zip(node.edges, results):
                    if edge is None or g is None:
                        continue
                    if type(edge) is OpNode and needed is None:
                        seen = grads.get(edge)
                        if seen is None:
                            grads[edge] = g
                            if following is None:
                                following = edge
                            else:
                                heappush(heap, (-edge.seq, edge))
                        elif edge in owned:
                            seen += g
                            grads[edge] = seen
                        else:
                            grads[edge] = seen + g
                            if not recording:
                                owned.add(edge)
                    else:
                        self.send(edge, g)
                results = None  # or it would share the gradients that wait
            if following is not None:
                if heap and heap[0][0] < -following.seq:
                    heappush(heap, (-following.seq, following))
                else:  # the common case of a chain: no heap traffic
                    node = following
                    continue
            node = heappop(heap)[1] if heap else None

    def visit(self, node: Any, g: Any) -> Any:
        """The unhurried way through a node: hooks, captures, observers."""
        several = type(g) is list
        gradients = g if several else [g]
        rare: NodeRare | None = node.rare
        if rare is not None:
            gradients = self.before(node, rare, gradients)
        if self.captures is not None:
            for nr in range(len(gradients)):
                for index in self.captures.get((node, nr), ()):
                    self.captured[index] = gradients[nr]
            if self.needed is not None and not self.leads_on(node):
                return None
        if node.is_freed:
            raise RuntimeError(FREED_TEXT)
        if all(x is None for x in gradients):  # a pre-hook has said so
            if not self.keep_graph:
                node.release()
            return None
        given = tuple(gradients) if several else gradients[0]
        observers = state.observers
        for observer in observers:
            observer.node_begin(node)
        try:
            plan = node.plan
            results = plan.vjp_recorded(node, given) if self.recording else plan.vjp(node, given)
        finally:
            for observer in reversed(observers):
                observer.node_end(node)
        if rare is not None and rare.post_hooks:
            results = self.after(node, rare, results, gradients)
        if not self.keep_graph:
            node.release()
        return results

    def leads_on(self, node: Any) -> bool:
        """Whether a node has to run for something that was asked for."""
        assert self.needed is not None
        return any(
            (edge.grad_fn if type(edge) is Output else edge) in self.needed
            for edge in node.edges
            if edge is not None
        )

    # ------------------------------------------------------------------ hooks

    def as_tensor(self, g: Any) -> Any:
        if g is None or isinstance(g, Tensor):
            return g
        return make(backend_of(g).wrap(g))

    def as_gradient(self, value: Any) -> Any:
        if value is None or self.recording:
            return value
        return value._array if isinstance(value, Tensor) else value

    def before(self, node: Any, rare: NodeRare, gradients: list[Any]) -> list[Any]:
        """Tensor hooks, retained gradients and pre-hooks of a node, in this order."""
        current = [self.as_tensor(g) for g in gradients]
        for nr, hooks in list(rare.tensor_hooks.items()):
            for hook in list(hooks.values()):
                if current[nr] is not None:
                    current[nr] = _checked(hook(current[nr]), current[nr], "hook")
        for nr, ref in rare.retained.items():
            keeper = ref()
            if keeper is not None and current[nr] is not None:
                kept = current[nr] if self.recording else make(current[nr]._array.copy())
                keeper._grad = kept if keeper._grad is None else keeper._grad + kept
        for hook in list(rare.pre_hooks.values()):
            answer = hook(tuple(current))
            if answer is not None:
                current = _replaced(answer, current, "prehook")
        return [self.as_gradient(x) for x in current]

    def after(self, node: Any, rare: NodeRare, results: Any, gradients: list[Any]) -> Any:
        """The post-hooks of a node, which see, and may replace, the gradients of its inputs."""
        inputs = [self.as_tensor(g) for g in results]
        outputs = tuple(self.as_tensor(g) for g in gradients)
        for hook in list(rare.post_hooks.values()):
            answer = hook(tuple(inputs), outputs)
            if answer is not None:
                inputs = _replaced(answer, inputs, "hook")
        return tuple(self.as_gradient(x) for x in inputs)

    # ------------------------------------------------------------------ leaves

    def visit_leaf(self, leaf: Tensor, g: Any, exclusive: bool) -> None:
        """Hooks of a leaf, then its gradient is captured or accumulated."""
        rare = leaf._rare
        hooks: NodeRare | None = None if rare is None else rare.leaf
        if hooks is not None:
            g, exclusive = self.before(leaf, hooks, [g])[0], False  # a hook may have kept it
        if self.captures is not None:
            wanted = self.captures.get((leaf, 0))
            if wanted is not None:
                for index in wanted:
                    self.captured[index] = g
                return
        observers = state.observers
        for observer in observers:
            observer.node_begin(accumulator(leaf))
        with leaf_lock:
            if self.recording:
                leaf._grad = g if leaf._grad is None else leaf._grad + g
            else:
                accumulate(leaf, g, exclusive)
        for observer in reversed(observers):
            observer.node_end(accumulator(leaf))
        if hooks is not None and hooks.post_hooks:
            for hook in list(hooks.post_hooks.values()):
                hook((), (self.as_tensor(g),))
        if rare is not None and rare.post_hooks:
            for hook in list(rare.post_hooks.values()):
                hook(leaf)


def accumulate(leaf: Tensor, g: Any, exclusive: bool) -> None:
    """Adds an array to `leaf.grad`: in place if there is one, else with the layout of the leaf.

    An `exclusive` array is seen by nobody else, so it may become the gradient itself.
    """
    array = leaf._array
    backend = backend_of(array)
    if type(g) is not type(array):
        g = backend.asarray(g) if backend_of(g) is not backend else backend.wrap(g)
    known = leaf._grad
    if known is not None:
        if known._requires_grad:
            leaf._grad = make(known._array + g)
        else:
            known._array += g
            known.counter[0] += 1
        return
    if exclusive and g.base is None and g.strides == array.strides and g.dtype == array.dtype:
        leaf._grad = make(g)
        return
    kept = backend.xp.empty_like(array) if is_dense(array) else backend.xp.empty(
        array.shape, array.dtype
    )
    backend.xp.copyto(kept, g)
    leaf._grad = make(kept)


def is_dense(array: Any) -> bool:
    """Whether the elements fill one block of memory with no overlap, in whatever order."""
    if array.flags.c_contiguous or array.flags.f_contiguous:
        return True
    extent = array.itemsize
    for stride, n in sorted(zip(array.strides, array.shape, strict=True)):
        if n == 1:
            continue
        if stride != extent:
            return False
        extent *= n
    return True


def _checked(answer: Any, given: Tensor, what: str) -> Tensor:
    """A hook's answer: None keeps the gradient; a Tensor of the same shape replaces it."""
    if answer is None:
        return given
    if not isinstance(answer, Tensor):
        raise TypeError(
            f"hooks can only return None or a Tensor, got {type(answer).__name__} from a {what}"
        )
    if answer.shape != given.shape:
        raise RuntimeError(
            f"hook has changed the size of value: got {tuple(answer.shape)}, "
            f"want {tuple(given.shape)}"
        )
    return answer


def _replaced(answer: Any, given: list[Any], what: str) -> list[Any]:
    values = list(answer) if isinstance(answer, (tuple, list)) else [answer]
    if len(values) != len(given):
        raise RuntimeError(
            f"{what} has returned an incorrect number of values (got {len(values)}, "
            f"but expected {len(given)})"
        )
    for y, x in zip(values, given, strict=True):
        if y is not None:
            if x is None:
                raise RuntimeError("can't replace a None gradient with a non-None value")
            _checked(y, x, what)
    return values


# ---------------------------------------------------------------------- the pass


def reachable(roots: list[Any]) -> dict[Any, None]:
    """All nodes and leaves that gradients sent to `roots` can come to."""
    seen: dict[Any, None] = {}
    stack = list(roots)
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen[node] = None
        if not isinstance(node, Tensor):
            for edge in node.edges:
                if edge is not None:
                    stack.append(edge.grad_fn if type(edge) is Output else edge)
    return seen


def needed_for(roots: list[Any], targets: set[Any]) -> set[Any]:
    """All nodes from which a target can be reached, and the targets."""
    seen = reachable(roots)
    needed = targets.intersection(seen)
    inner = [node for node in seen if not isinstance(node, Tensor)]
    for node in sorted(inner, key=lambda n: n.seq):
        if any(
            (edge.grad_fn if type(edge) is Output else edge) in needed
            for edge in node.edges
            if edge is not None
        ):
            needed.add(node)
    return needed


def run_backward(
    roots: list[tuple[Any, Any]],
    *,
    keep_graph: bool,
    create_graph: bool,
    targets: list[Any] | None,
    accumulating: bool,
) -> list[Any]:
    """Sends gradients from `roots`, pairs of edge and gradient, through the graph.

    With `targets`, a list of edges, only what leads to them runs. Their gradients are accumulated
    into leaves when `accumulating`, else returned in order, None where none arrived.
    """
    captures: dict[Any, list[int]] | None = None
    needed: set[Any] | None = None
    starts = [e.grad_fn if type(e) is Output else e for e, _ in roots]
    if targets is not None:
        keys = [(e.grad_fn, e.output_nr) if type(e) is Output else (e, 0) for e in targets]
        needed = needed_for(starts, {node for node, _ in keys})
        captures = {}
        for index, (node, nr) in enumerate(keys):
            if not (accumulating and isinstance(node, Tensor)):
                captures.setdefault((node, nr), []).append(index)
    run = Run(keep_graph, create_graph, captures, needed)
    run.starts = starts
    first = roots[0][1]
    backend = backend_of(first._array if isinstance(first, Tensor) else first)
    was, before = switch_grad(create_graph), task.running
    task.running = (*before, run)
    watching = logged(reachable(starts)) if is_logged() else nullcontext()
    try:
        with backend.quiet(), watching:
            for edge, g in roots:
                run.send(edge, g)
            run.run()
        for callback in run.callbacks:
            callback()
    finally:
        run.callbacks.clear()  # they know the pass: a cycle
        task.running = before
        switch_grad(was)
    if targets is None:
        return []
    return [run.captured.get(i) for i in range(len(targets))]


