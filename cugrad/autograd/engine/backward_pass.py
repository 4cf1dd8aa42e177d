"""Runs a recorded graph backwards. Knows nodes and edges; knows no op and no device."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from heapq import heapify, heappop, heappush
from itertools import count
from sys import getrefcount
from typing import Any

from ...backends import backend_of
from ...backends.copies import is_dense
from ...backends.lending.queues import usual_again
from ...backends.owners import has_all_alone
from ...backends.several import several, there
from ...errors import NoArray
from ...runtime.dispatching import unasked
from ...runtime.kept import of_thread
from ...tensor import Tensor, make
from ..anomaly_mode import guarded
from ..mode import anomaly, show_node, state, will_change
from ..recording.node import FREED, FREED_TEXT, NodeRare, Output, accumulator, end_of
from ..recording.op_node import OpNode
from ..recording.recorded import recorded
from ..recording.views import changed
from .hooks import (
    has_hooks,
    has_node_hooks,
    run_leaf_hooks,
    run_post_hooks,
    run_pre_hooks,
    run_tensor_hooks,
)
from .leaf_schedule import LeafSchedule
from .reach import leads_to, reachable
from .sums import add_to, plus
from .undefined import NOTHING, listeners

__all__ = ["BackwardPass", "task"]

next_pass = count().__next__


def _count_unshared() -> int:
    fresh = object()
    count = getrefcount(fresh)
    return count


UNSHARED = _count_unshared()  # what only a local variable refers to: 2 references, later 1


class ThreadPasses(threading.local):
    """The backward passes that run in this thread, the innermost last, for hooks that ask."""

    running: tuple[BackwardPass, ...] = ()
    group: Any = None  # passes that share what checkpoints compute again, if they are one


task = of_thread(ThreadPasses())
leaf_lock = threading.RLock()  # passes of several threads may end in one leaf


class BackwardPass:
    """One backward pass: gradients on their way, the nodes they wait at, and what is wanted."""

    def __init__(
        self,
        starts: list[Any],
        keep_graph: bool,
        create_graph: bool,
        captures: dict[Any, list[int]] | None,
        needed: set[Any] | None,
        accumulating: bool,
    ) -> None:
        self.starts = starts  # the nodes that gradients were first sent to
        self.keep_graph = keep_graph
        self.recording = create_graph or bool(state.levels)  # gradients are Tensors, not arrays
        self.captures, self.needed = captures, needed
        self.captured: dict[int, Any] = {}
        self.accumulating = accumulating  # into `.grad`, else captured
        self.grads: dict[Any, Any] = {}  # node -> its gradient, or a list of them by output
        self.owned: set[Any] = set()  # nodes whose gradient is a buffer of ours
        self.passed: set[Any] = set()  # ops that were told of no gradient
        # those that run in the general way: they are asked for, or may have got no gradient
        self.general: set[Any] = set() if captures is None else {key[0] for key in captures}
        self.heap: list[tuple[int, Any]] = []  # (-seq, node): the youngest node runs first
        self.leaves = LeafSchedule(starts, needed, self.grads, accumulating)
        self.callbacks: list[Callable[[], Any]] = []
        self.number = next_pass()
        self.kind: type = Tensor  # of most gradients
        self._reached: set[Any] | None = None
        self.streams: list[Any] = []  # that hooks have made current, and not others again
        self.visited: Any = None  # a node that runs, or has, of those for which there is `visit`

    def will_visit(self, edge: Any) -> bool:
        """Whether this pass computes the gradient of an edge (or has done so)."""
        if self.needed is not None:
            return end_of(edge) in self.needed
        if self._reached is None:
            self._reached = set(reachable(self.starts))
        return end_of(edge) in self._reached

    def send(self, edge: Any, g: Any) -> None:
        """Adds a gradient to what waits at an edge's end; None is no gradient."""
        node = edge.grad_fn if type(edge) is Output else edge  # `end_of`, written out
        if self.needed is not None and node not in self.needed:
            return
        if g is None:
            self.send_nothing(edge)
            return
        waiting = self.grads.get(node)
        if waiting is None:
            self.schedule(node)
            if type(edge) is Output:
                waiting = [None] * node.output_count
                waiting[edge.output_nr] = g
                g = waiting
            self.grads[node] = g
        elif type(edge) is Output:
            before = waiting[edge.output_nr]
            waiting[edge.output_nr] = g if before is None else plus(before, g)
        else:
            self.add(node, waiting, g)
        if self.leaves.awaited and isinstance(node, Tensor):
            self.count(node)

    def add(self, node: Any, waiting: Any, g: Any) -> None:
        """Adds to the gradient that waits at a leaf, or at a node that has one output."""
        if node in self.owned and not isinstance(g, Tensor):  # as sparse ones are
            self.grads[node] = add_to(waiting, g)
            return
        waiting = self.grads[node] = plus(waiting, g)  # not +=: the first may alias the caller's
        if not isinstance(waiting, Tensor):
            self.owned.add(node)

    def send_nothing(self, edge: Any) -> None:
        """No gradient goes along an edge: nodes that run without one are still visited."""
        if isinstance(edge, Tensor):
            if self.leaves.awaits(edge):
                self.count(edge)
            return
        told = self.leaves.all_are_told()
        for node in (end_of(edge),) if told else listeners(edge, self.passed):
            self.general.add(node)
            if node not in self.grads and (self.needed is None or node in self.needed):
                several = node.output_count
                self.grads[node] = NOTHING if several == 1 else [None] * several
                self.schedule(node)

    def schedule(self, node: Any) -> None:
        """Puts a node, or a leaf, where it comes in the order."""
        place = self.leaves.place(node) if isinstance(node, Tensor) else -node.seq
        if place is not None:
            heappush(self.heap, (place, node))

    def count(self, leaf: Tensor) -> None:
        """Tells an eager leaf that a gradient has come, or will not; the last puts it in order."""
        place = self.leaves.arrived(leaf)
        if place is not None:
            self.grads.setdefault(leaf, NOTHING)
            heappush(self.heap, (place, leaf))

    def run(self) -> None:
        """Runs nodes, youngest first, until no gradient is on its way."""
        heap, grads, kind, recording = self.heap, self.grads, self.kind, self.recording
        keep, needed, owned, near = self.keep_graph, self.needed, self.owned, not several.devices
        general = self.general
        visit, visit_leaf, send, watched = self._steps()
        add = self.add
        node = heappop(heap)[1] if heap else self.leaves.left_over()
        try:
            while node is not None:
                g = grads.pop(node)
                if type(g) is not kind:  # the one place where 0-d gradients become arrays again
                    g = wrapped(g)
                if type(node) is OpNode and node.rare is None and not (watched or node in general):
                    # `visit`, written out: benchmarks/overhead.py, backward of small ops
                    if node.saved is FREED:
                        raise RuntimeError(FREED_TEXT)
                    results = (
                        node.plan.vjp_recorded(node, g) if recording else node.plan.vjp(node, g)
                    )
                    if not keep and node.saved:
                        node.saved = FREED
                        node.versions = None
                elif isinstance(node, Tensor):
                    exclusive = getrefcount(g) <= UNSHARED  # before the call below adds its own
                    visit_leaf(node, g, exclusive)
                    results = None
                else:
                    results = visit(node, g)
                following = None
                if results:
                    for edge, g in zip(node.edges, results):
                        if edge is None:
                            continue
                        if type(edge) is OpNode and g is not None and near:
                            # `send`, written out: the same benchmark
                            if needed is not None and edge not in needed:
                                continue
                            waiting = grads.get(edge)
                            if waiting is None:
                                grads[edge] = g
                                if following is None:
                                    following = edge
                                else:
                                    heappush(heap, (-edge.seq, edge))
                            elif edge in owned:
                                add(edge, waiting, g)
                            else:
                                grads[edge] = plus(waiting, g)
                                if not recording:
                                    owned.add(edge)
                        else:
                            send(edge, g)
                    results = waiting = None  # gradients on their way have no other reference
                if following is not None:
                    if heap and heap[0][0] < -following.seq:
                        heappush(heap, (-following.seq, following))
                    else:  # the common case of a chain: no heap traffic
                        node = following
                        continue
                node = heappop(heap)[1] if heap else self.leaves.left_over()
        except MemoryError as error:
            raise self._full(node, g, error) from None

    def visit_whole(self) -> None:
        """Visits the leaves to which no more gradients come: before a pass within this one, which
        may add to them too. So sums have PyTorch's order.
        """
        leaves = [end for _, end in self.heap if isinstance(end, Tensor)]
        if not leaves or not self.accumulating:
            return
        edges = () if self.visited is None else self.visited.edges
        ahead = [end for _, end in self.heap if not isinstance(end, Tensor)]
        ahead += [end_of(edge) for edge in edges if edge is not None]
        whole = set(leaves).difference(reachable(ahead))
        self.heap[:] = [entry for entry in self.heap if entry[1] not in whole]
        heapify(self.heap)
        visit_leaf = self._steps()[1]
        for leaf in [x for x in leaves if x in whole]:
            visit_leaf(leaf, wrapped(self.grads.pop(leaf)), False)

    def _steps(self) -> tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any], bool]:
        """Visiting a node, visiting a leaf and sending a gradient, with what this pass needs
        around each; and whether every node is to be visited so, and none in the loop itself.
        """
        visit, visit_leaf, send = self.visit, self.visit_leaf, self.send
        watched = bool(state.observers) or anomaly.enabled
        if self.captures is not None and self.accumulating:
            watched = True  # those that are asked for are not captured
        if several.devices:
            visit, visit_leaf, send = (partial(there, f) for f in (visit, visit_leaf, send))
            watched = True
        if anomaly.enabled:
            visit, visit_leaf = partial(guarded, visit), partial(guarded, visit_leaf)
        return visit, visit_leaf, send, watched

    @staticmethod
    def _full(node: Any, g: Any, error: MemoryError) -> MemoryError:
        """What to raise where there is no memory for a node's gradients: who holds the device's."""
        from ..recording.holders import out_of_memory  # wanted where there is no memory alone

        gradients = [getattr(x, "_array", x) for x in (g if type(g) is list else [g])]
        arrays = [x for x in gradients if x is not None and x is not NOTHING]
        backend = backend_of(arrays[0]) if arrays else None
        if backend is None or backend.device_type == "cpu":
            return error
        name = "accumulation of gradients" if isinstance(node, Tensor) else node.name()
        return out_of_memory(name, backend, error)

    def visit(self, node: Any, g: Any) -> Any:
        """Runs a node in the general way: with hooks, captures and observers."""
        self.visited = node
        several = type(g) is list
        gradients = g if several else [None if g is NOTHING else g]
        rare: NodeRare | None = node.rare
        if rare is not None:
            gradients = run_tensor_hooks(rare, gradients, self.recording)
        if self.captures is not None:
            for nr in range(len(gradients)):
                for index in self.captures.get((node, nr), ()):
                    self.captured[index] = gradients[nr]
            if self.needed is not None and not leads_to(node, self.needed):
                if not (self.accumulating and rare is not None and has_node_hooks(rare)):
                    return None
        if rare is not None and rare.pre_hooks:
            gradients = run_pre_hooks(rare, gradients, self.recording)
        if self.streams:
            usual_again(self.streams)
        if node.is_freed:
            raise RuntimeError(FREED_TEXT)
        nothing = gradients[0] is None and all(x is None for x in gradients)
        if nothing and isinstance(node, OpNode):  # none in, none out
            if rare is not None and rare.post_hooks:
                run_post_hooks(rare, [None] * len(node.edges), gradients, self.recording)
            if not self.keep_graph:
                node.release()
            return [None] * len(node.edges)
        incoming = tuple(gradients) if several else gradients[0]
        observers = state.observers
        if observers:
            show_node(observers, node, gradients)
        try:
            plan = node.plan
            results = (
                plan.vjp_recorded(node, incoming) if self.recording else plan.vjp(node, incoming)
            )
        finally:
            for observer in reversed(observers):
                observer.node_end(node)
        if rare is not None and rare.post_hooks:
            results = wrapped(list(results))
            if self.needed is not None and isinstance(node, OpNode):  # hooks see what was asked for
                results = [g if edge is not None and end_of(edge) in self.needed else None
                           for g, edge in zip(results, node.edges, strict=True)]  # fmt: skip
            results = run_post_hooks(rare, results, gradients, self.recording)
        if self.streams:
            usual_again(self.streams)
        if not self.keep_graph:
            node.release()
        return results

    # ------------------------------------------------------------------ leaves

    def visit_leaf(self, leaf: Tensor, g: Any, exclusive: bool) -> None:
        """Hooks of a leaf, then its gradient is captured or accumulated."""
        self.visited = None
        rare = leaf._rare
        hooks: NodeRare | None = None if rare is None else rare.leaf
        g = None if g is NOTHING else g
        if hooks is not None:
            original = g
            shared = getrefcount(g)
            (g,) = run_tensor_hooks(hooks, [g], self.recording)
        if self.captures is not None:
            indices = self.captures.get((leaf, 0))
            if indices is not None:
                for index in indices:
                    self.captured[index] = g
                return
        if hooks is not None and hooks.pre_hooks:
            (g,) = run_pre_hooks(hooks, [g], self.recording)
        if self.streams:
            usual_again(self.streams)
        if hooks is not None:  # which may have kept it, or made another
            count = getrefcount(g)
            exclusive = exclusive and count <= shared if g is original else count <= UNSHARED
        observers = state.observers
        if observers:
            show_node(observers, accumulator(leaf), (g,))
        with leaf_lock:
            if g is None or not leaf._requires_grad:  # as it may be since the graph was made
                pass
            elif self.recording:
                unasked(accumulate_recorded, leaf, g)
            else:
                accumulate(leaf, g, exclusive)
        for observer in reversed(observers):
            observer.node_end(accumulator(leaf))
        if rare is not None and has_hooks(leaf):
            run_leaf_hooks(leaf, g)
            if self.streams:
                usual_again(self.streams)


def wrapped(g: Any) -> Any:
    """A gradient, or a list of them by output, with arrays for NumPy's scalars.

    Operators make scalars of 0-d arrays, in formulas and where gradients add up.
    """
    if type(g) is list:
        return [x if x is None else wrapped(x) for x in g]
    return g if g is NOTHING or isinstance(g, Tensor) else backend_of(g).wrap(g)


# Gradients of leaves ----------------------------------------------------------------------------


def accumulate(leaf: Tensor, g: Any, exclusive: bool) -> None:
    """Adds an array to `leaf.grad`: in place if there is one, else with the layout of the leaf.

    An `exclusive` array has no other reference, so it may become the gradient itself, if its memory
    has none.
    """
    array = leaf._array
    backend = backend_of(array)
    grad = leaf._grad
    if type(g) is not type(array):
        if isinstance(g, Tensor):  # a sparse one, which adds up by itself
            if grad is None:
                leaf._grad = g.detach()  # a tensor of its own: sums are kept in it
            else:
                g.add_into(grad)
            return
        if backend_of(g) is not backend:
            g = backend.asarray(g)
    if grad is not None:
        try:
            will_change(grad)
            grad._form, grad._array = None, add_to(grad._array, g)
        except NoArray:  # the one that is there is sparse
            leaf._grad = grad + make(g)
            return
        except ValueError:  # NumPy refuses to write to expanded arrays
            raise RuntimeError(
                "unsupported operation: more than one element of the written-to tensor refers to a "
                "single memory location. Please clone() the tensor before performing the "
                f"operation. (the .grad of shape {list(grad.shape)} to which backward adds)"
            ) from None
        changed(grad)
        return
    if exclusive and g.strides == array.strides and g.dtype == array.dtype and has_all_alone(g):
        leaf._grad = make(g)
    else:
        leaf._grad = make(_laid_out(g, array))


def accumulate_recorded(leaf: Tensor, g: Tensor) -> None:
    """Sets `leaf.grad` to a copy of `g` with the layout of the leaf, or to a new sum; recorded."""
    grad = leaf._grad
    if g.is_sparse or (grad is not None and grad.is_sparse):
        leaf._grad = g if grad is None else grad + g
        return
    kept = recorded.copy(make(leaf._array), g) if grad is None else grad + g
    like = (leaf if grad is None else grad)._array
    if type(kept._array) is type(like) and kept._array.strides != like.strides:
        if grad is None or is_dense(like):
            array = _laid_out(kept._array, like)
            kept._form, kept._array = None, array  # no one else has a reference yet
    leaf._grad = kept


def _laid_out(g: Any, like: Any) -> Any:
    """A copy of an array with the strides of a dense one, and else row by row."""
    xp = backend_of(like).xp
    kept = xp.empty_like(like) if is_dense(like) else xp.empty(like.shape, like.dtype)
    try:
        xp.copyto(kept, g)
    except ValueError:
        raise RuntimeError(
            f"the gradient of shape {list(g.shape)} does not fit the leaf, which was used in that "
            f"shape and is of {list(like.shape)} now: give it its shape back before backward"
        ) from None
    return kept
