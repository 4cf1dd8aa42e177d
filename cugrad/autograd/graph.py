"""Looks into the recorded graph, and interposes on it: hooks for saved tensors and gradients."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

from ..backends import backend_of
from ..runtime.absent import explain
from ..runtime.contexts import Context, described
from ..runtime.kept import Switch
from ..tensor import Tensor
from .engine.backward_pass import task
from .mode import pop_hooks, push_hooks, state
from .recording.mutation import allow_mutation_on_saved_tensors
from .recording.node import Node, RemovableHandle, as_function, edge_of
from .recording.views import changed

__all__ = [
    "GradientEdge", "Node", "allow_mutation_on_saved_tensors", "disable_saved_tensors_hooks",
    "get_gradient_edge", "increment_version", "register_multi_grad_hook", "saved_tensors_hooks",
]  # fmt: skip


class Origin(NamedTuple):
    """The shape, dtype and backend of the tensor that a gradient edge was made from."""

    shape: Any
    dtype: Any
    backend: Any


class GradientEdge(NamedTuple):
    """Where in the graph the gradient of a tensor is computed: a node and its output number."""

    node: Node
    output_nr: int
    ownership_token: Origin | None = None  # no node needs it: it says what the gradient looks like


def get_gradient_edge(tensor: Tensor) -> GradientEdge:
    """The gradient edge of a tensor: `grad(y, get_gradient_edge(x))` is `grad(y, x)`.

    RuntimeError when the tensor does not require gradients.

    >>> import cugrad as torch
    >>> x = torch.tensor(3., requires_grad=True)
    >>> torch.autograd.grad(x * x, torch.autograd.graph.get_gradient_edge(x))
    (tensor(6.),)
    """
    if not tensor._requires_grad:
        raise RuntimeError(
            "It is not possible to get the gradient edge for a Tensor that does not require "
            "gradients"
        )
    array = tensor._array
    origin = Origin(tensor.shape, tensor.dtype, backend_of(array))
    return GradientEdge(*as_function(edge_of(tensor)), origin)


def increment_version(tensor: Tensor | Sequence[Tensor]) -> None:
    """Says that a tensor's elements were changed by code that cugrad cannot see.

    >>> import cugrad as torch
    >>> x = torch.zeros(2)
    >>> torch.autograd.graph.increment_version(x)
    >>> x._version
    1
    """
    several = (tensor,) if isinstance(tensor, Tensor) else tensor
    if not isinstance(several, Iterable):
        raise RuntimeError(
            f"increment_version expect a Iterable[Tensor] as input, got {type(tensor).__name__}"
        )
    for t in several:
        if not isinstance(t, Tensor):
            raise RuntimeError(
                "increment_version expects each element of the iterable to be a tensor, got "
                f"{type(t).__name__}"
            )
        changed(t)


class saved_tensors_hooks(Switch):
    """Within it, what ops save for backward is packed by one hook, and unpacked by the other.

    `pack_hook(tensor) -> anything` runs when an op saves a tensor; `unpack_hook(packed) -> Tensor`
    when backward, or `grad_fn._saved_*`, needs it: as often as that happens, in any thread, and
    after the context has closed. The innermost pair is the one that applies, as in PyTorch; with
    `compose=True`, cugrad's own, a Tensor that `pack_hook` returns is handed to the pair outside,
    and so on, and comes back through all of them. Neither hook may change its argument in place.

    >>> import cugrad as torch
    >>> x = torch.tensor([1., 2.], requires_grad=True)
    >>> with torch.autograd.graph.saved_tensors_hooks(lambda t: t * 4, lambda t: t / 4):
    ...     y = torch.pow(x, 2)
    >>> y.sum().backward()
    >>> x.grad
    tensor([2., 4.])
    """

    compose = False  # for subclasses that set the hooks themselves
    is_placement = False  # True for cugrad's own: users do not see where the tensor waits

    def __init__(
        self,
        pack_hook: Callable[[Tensor], Any],
        unpack_hook: Callable[[Any], Tensor],
        *,
        compose: bool = False,
    ) -> None:
        self.pack_hook, self.unpack_hook, self.compose = pack_hook, unpack_hook, compose

    def as_is(self) -> Any:
        pair = self.pack_hook, self.unpack_hook
        return _piped(*pair, *state.hooks[-1]) if self.compose and state.hooks else pair

    def change(self, before: Any) -> Any:
        push_hooks(before)

    def put_back(self, before: Any) -> None:
        pop_hooks(before)

    __repr__ = described


class _Piped:
    """What the pair outside made of a Tensor that the pair inside had packed."""

    __slots__ = ("packed",)

    def __init__(self, packed: Any) -> None:
        self.packed = packed


def _piped(pack: Any, unpack: Any, outer_pack: Any, outer_unpack: Any) -> tuple[Any, Any]:
    """A pair of hooks that is the inner one, then the outer one."""

    def both(tensor: Tensor) -> Any:
        packed = pack(tensor)
        return _Piped(outer_pack(packed)) if isinstance(packed, Tensor) else packed

    def back(packed: Any) -> Tensor:
        return unpack(outer_unpack(packed.packed) if type(packed) is _Piped else packed)

    return both, back


class disable_saved_tensors_hooks(Switch, Context):
    """Within it, entering `saved_tensors_hooks` raises a RuntimeError with this message.

    >>> import cugrad as torch
    >>> with torch.autograd.graph.disable_saved_tensors_hooks("no hooks here"):
    ...     with torch.autograd.graph.saved_tensors_hooks(abs, abs):
    ...         pass
    Traceback (most recent call last):
    RuntimeError: no hooks here
    """

    def __init__(self, error_message: str) -> None:
        self.error_message = error_message

    def as_is(self) -> str | None:
        if state.hooks:
            raise RuntimeError(self.error_message)
        return state.hooks_disabled

    def change(self, before: str | None) -> None:
        state.hooks_disabled = self.error_message

    def put_back(self, before: str | None) -> None:
        state.hooks_disabled = before

    def clone(self) -> disable_saved_tensors_hooks:
        return type(self)(self.error_message)


class _Handles(RemovableHandle):
    """The handle of a hook that sits on several tensors."""

    def __init__(self, handles: Sequence[RemovableHandle]) -> None:
        self.handles = tuple(handles)

    def remove(self) -> None:
        for handle in self.handles:
            handle.remove()


def register_multi_grad_hook(
    tensors: Sequence[Tensor],
    fn: Callable[[Any], None],
    *,
    mode: str = "all",
) -> RemovableHandle:
    """Calls `fn` when the gradients of several tensors have been computed in one backward pass.

    With mode "all" `fn` gets the list of gradients, None for tensors that took no part; with mode
    "any" it gets the first gradient that arrives. Returns a handle with `remove()`.

    >>> import cugrad as torch
    >>> a, b = torch.rand(2, requires_grad=True), torch.rand(2, requires_grad=True)
    >>> c, d = a * b, a * b
    >>> def fn(grads):
    ...     print([g is not None for g in grads])
    >>> handle = torch.autograd.graph.register_multi_grad_hook((a, b, c, d), fn)
    >>> c.sum().backward(retain_graph=True)
    [True, True, True, False]
    >>> c.sum().backward(inputs=(a,), retain_graph=True)
    [True, False, True, False]
    """
    if mode not in ("all", "any"):
        raise ValueError(f"Expects mode to be one of ('all', 'any') but got {mode}")
    tensors = [t for t in tensors if mode == "all" or t.requires_grad]
    edges = [edge_of(t) if t.requires_grad else None for t in tensors]
    if mode == "all" and any(edge is None for edge in edges):  # and no hook is anywhere
        raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
    lock = threading.Lock()
    runs: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()  # a pass that fails leaves nothing
    # weak, because a hook of a leaf that holds the leaf is a cycle
    ends = [weakref.ref(edge if isinstance(edge, Tensor) else edge.grad_fn)
            for edge in edges if edge is not None]  # fmt: skip
    del edges

    def expected(run: Any) -> int:
        return sum(end() is not None and run.will_visit(end()) for end in ends)

    def hook_of(index: int) -> Callable[[Tensor], None]:
        def hook(grad: Tensor) -> None:
            run = task.running[-1]
            with lock:
                if run not in runs:
                    runs[run] = [None] * len(ends), [expected(run)]
                    run.callbacks.append(lambda: runs.pop(run, None))
                gradients, left = runs[run]
                gradients[index] = grad
                left[0] -= 1
                complete = left[0] == 0
                if complete:
                    del runs[run]
            if complete:
                fn(gradients)

        return hook

    def first(grad: Tensor) -> None:
        run = task.running[-1]
        with lock:
            if run in runs:
                return
            runs[run] = []
            run.callbacks.append(lambda: runs.pop(run, None))
        fn(grad)

    return _Handles([
        t.register_hook(hook_of(i) if mode == "all" else first) for i, t in enumerate(tensors)
    ])  # fmt: skip


if TYPE_CHECKING:  # save_on_cpu comes from cugrad.memory

    def __getattr__(name: str) -> Any: ...


explain(__name__)
