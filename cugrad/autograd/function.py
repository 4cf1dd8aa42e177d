"""Custom functions: a forward and a backward written by the user, as one node of the graph."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ..backends import backend_of
from ..tensor import Tensor, make
from . import saved as saving
from .dual import below, highest, set_tangent, tangent_of
from .mode import no_grad, state
from .node import FREED, Node, Output, edge_of, next_seq
from .record import recorded
from .views import CUSTOM, check_inplace, rebase, register

__all__ = ["Function", "FunctionCtx", "once_differentiable"]


class FunctionCtx:
    """What `forward` and `backward` of a custom Function share: `ctx`."""

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Saves tensors (inputs, outputs, or others) for `ctx.saved_tensors` in backward.

        Saved this way they go through saved-tensor hooks, are checked for in-place changes, and
        are freed after backward. TypeError for anything but tensors and None.
        """
        for i, t in enumerate(tensors):
            if t is not None and not isinstance(t, Tensor):
                raise TypeError(
                    f"save_for_backward can only save variables, but argument {i} is of type "
                    f"{type(t).__name__}"
                )
        self.to_save = tensors

    def save_for_forward(self, *tensors: Tensor | None) -> None:
        """Saves tensors for `jvp`."""
        self.saved_for_forward = tensors

    def mark_dirty(self, *args: Tensor) -> None:
        """Says which inputs `forward` changed in place; each must be an output too."""
        self.dirty_tensors = args

    def mark_non_differentiable(self, *args: Tensor) -> None:
        """Says which outputs have no gradient; integer outputs need not be named."""
        self.non_differentiable = args

    def set_materialize_grads(self, value: bool) -> None:
        """Whether backward gets zeros (True, the default) or None for outputs without gradient."""
        self.materialize_grads = value


class FunctionPlan:
    """How the engine runs the node of a custom Function."""

    saves = ()

    def saved_name(self, index: int) -> str:
        return f"saved_tensors[{index}]"

    def vjp(self, node: FunctionNode, g: Any) -> Any:
        given = g if type(g) is tuple else (g,)
        wrapped = [None if x is None else make(backend_of(x).wrap(x)) for x in given]
        with no_grad():
            results = node.call_backward(wrapped)
        return [None if r is None else r._array for r in results]

    def vjp_recorded(self, node: FunctionNode, g: Any) -> Any:
        return node.call_backward(list(g) if type(g) is tuple else [g])


class FunctionNode(Node, FunctionCtx):
    """The node of a custom Function, which is also its `ctx`."""

    plan = FunctionPlan()
    _forward_cls: type[Function]
    # defaults of what the user may set on ctx
    to_save: tuple[Tensor | None, ...] = ()
    saved_for_forward: tuple[Tensor | None, ...] = ()
    dirty_tensors: tuple[Tensor, ...] = ()
    non_differentiable: tuple[Tensor, ...] = ()
    materialize_grads = True
    needs_input_grad: tuple[bool, ...] = ()

    def __init__(self) -> None:
        self.seq, self.edges, self.saved = 0, (), ()
        self.versions = self.meta = self.rare = None
        self.inputs_like: list[Any] = []  # per argument: (shape, dtype) of a tensor, else None
        self.outputs_like: list[Any] = []  # per output: (shape, dtype, backend) of a tensor

    def name(self) -> str:
        return type(self).__name__

    def __repr__(self) -> str:
        return f"<torch.autograd.function.{self.name()} object at {id(self):#x}>"

    @property
    def output_count(self) -> int:  # type: ignore[override]
        return len(self.outputs_like)

    @property
    def is_freed(self) -> bool:
        return self.saved is FREED

    def output(self, output_nr: int) -> Any:
        return self if self.output_count == 1 else Output(self, output_nr)

    def edge_of_entry(self, index: int) -> Any:
        return edge_of(self.saved[index])

    def keep_packed(self, entries: tuple[Any, ...]) -> None:
        self.saved = entries

    def release(self) -> None:
        self.to_save = ()
        if self.saved:
            self.saved, self.versions = FREED, None

    @property
    def saved_tensors(self) -> tuple[Tensor | None, ...]:
        """The tensors given to `save_for_backward`, unpacked and checked."""
        if self.is_freed:
            raise RuntimeError(saving.FREED_TEXT)
        if not self.saved and self.to_save:  # nothing was recorded: straight from forward
            return self.to_save
        return saving.tensors(self)

    def keep(self, outputs: dict[int, Tensor]) -> None:
        """Turns what `save_for_backward` was given into saved entries; outputs go by number."""
        entries = []
        for t in self.to_save:
            nr = next((i for i, out in outputs.items() if out is t), None)
            entries.append(t if t is None or nr is None else saving.keep_result(t, nr))
        self.saved, self.to_save = tuple(entries), ()
        self.versions = saving.versions_of(self.saved) if entries else None
        if state.hooks:
            saving.pack(self)

    def call_backward(self, grads: list[Any]) -> list[Any]:
        """Runs the user's backward; the gradients of the tensor arguments, checked."""
        if self.materialize_grads:
            for i, (g, like) in enumerate(zip(grads, self.outputs_like, strict=True)):
                if g is None and like is not None:
                    shape, dtype, backend = like
                    grads[i] = make(backend.xp.zeros(shape, dtype))
        results = self._forward_cls.backward_of()(self, *grads)
        results = list(results) if isinstance(results, (tuple, list)) else [results]
        expected = len(self.inputs_like)
        while len(results) > expected and results[-1] is None:
            results.pop()
        if len(results) != expected:
            raise RuntimeError(
                f"function {self.name()} returned an incorrect number of gradients (expected "
                f"{expected}, got {len(results)})"
            )
        return [
            self._checked(i, r, like)
            for i, (r, like) in enumerate(zip(results, self.inputs_like, strict=True))
            if like is not None or self._must_be_none(i, r)
        ]

    def _must_be_none(self, i: int, r: Any) -> bool:
        if r is not None:
            raise RuntimeError(
                f"function {self.name()} returned a gradient different than None at position "
                f"{i + 1}, but the corresponding forward input was not a Variable"
            )
        return False

    def _checked(self, i: int, r: Any, like: Any) -> Tensor | None:
        if r is None:
            return None
        if not isinstance(r, Tensor):
            raise TypeError(
                f"function {self.name()}: expected Variable or None for gradient {i} (got "
                f"{type(r).__name__})"
            )
        shape, dtype = like
        if r._array.shape != shape:
            if not _broadcasts(shape, r._array.shape):
                raise RuntimeError(
                    f"Function {self.name()} returned an invalid gradient at index {i} - got "
                    f"{list(r.shape)} but expected shape compatible with {list(shape)}"
                )
            r = recorded.sum_to_shape(r, shape)
        if r._array.dtype != dtype:
            if r._array.dtype.kind == "c" and dtype.kind != "c":
                r = recorded.real(r)
            r = recorded.to_dtype(r, dtype)
        return r


def _broadcasts(shape: tuple[int, ...], wide: tuple[int, ...]) -> bool:
    """Whether a tensor of `shape` can be broadcast to `wide`."""
    pairs = zip(reversed(shape), reversed(wide))
    return len(shape) <= len(wide) and all(n in (1, m) for n, m in pairs)


class Function:
    """A differentiable operation with a gradient of its own.

    Subclass it with static methods `forward(ctx, *args)` and `backward(ctx, *grad_outputs)`, and
    call `apply`. Or write `forward(*args)` and `setup_context(ctx, inputs, output)`.
    `backward` returns one gradient, or None, per argument of `forward`.

    >>> import cugrad as torch
    >>> class Exp(torch.autograd.Function):
    ...     @staticmethod
    ...     def forward(ctx, i):
    ...         result = i.exp()
    ...         ctx.save_for_backward(result)
    ...         return result
    ...     @staticmethod
    ...     def backward(ctx, grad_output):
    ...         result, = ctx.saved_tensors
    ...         return grad_output * result
    >>> x = torch.zeros(2, requires_grad=True)
    >>> Exp.apply(x).sum().backward()
    >>> x.grad
    tensor([1., 1.])
    """

    _node_class: type[FunctionNode]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise RuntimeError(
            f"{type(self)} should not be instantiated. Methods on autograd functions are all "
            "static, so you should invoke them on the class itself."
        )

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._node_class = type(cls.__name__ + "Backward", (FunctionNode,), {"_forward_cls": cls})

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        """Computes the outputs; to be overridden."""
        raise NotImplementedError(
            "You must implement the forward function for custom autograd.Function."
        )

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> Any:
        """Fills `ctx` when `forward` takes none; overridden where that style is used."""
        raise NotImplementedError("setup_context is not implemented.")

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        """The vector-Jacobian product; to be overridden (or `vjp`)."""
        raise NotImplementedError(
            "You must implement either the backward or vjp method for your custom "
            "autograd.Function to use it with backward mode AD."
        )

    vjp = backward

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any) -> Any:
        """The Jacobian-vector product, for forward mode; to be overridden.

        Gets one tangent per argument of `forward`, None for what is no tensor, and returns one per
        output.
        """
        raise NotImplementedError(
            "You must implement the jvp function for custom autograd.Function to use it with "
            "forward mode AD."
        )

    @classmethod
    def backward_of(cls) -> Callable[..., Any]:
        """The user's backward, by whichever of its two names he wrote it."""
        by_backward = cls.backward is not Function.backward
        if by_backward and cls.vjp is not Function.vjp:
            raise RuntimeError(
                "Implementing both 'backward' and 'vjp' for a custom Function is not allowed. You "
                "should only implement one of them."
            )
        return cls.backward if by_backward else cls.vjp

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Runs the function on its arguments and records it."""
        if not hasattr(cls, "_node_class"):
            raise RuntimeError("Function.apply: call it on a subclass of Function")
        if not state.observers:
            return _apply_dual(cls, args, kwargs, 0)
        seq, result, observers = next_seq(), None, state.observers
        for observer in observers:
            observer.op_begin(cls.__name__, seq, args)
        try:
            result = _apply_dual(cls, args, kwargs, seq)
            return result
        finally:
            for observer in reversed(observers):
                observer.op_end(cls.__name__, seq, result)


def _apply_dual(cls: type[Function], args: tuple[Any, ...], kwargs: Any, seq: int) -> Any:
    """`_apply`, and the user's jvp where an argument carries a tangent."""
    level = highest(args) if state.levels else None
    node = cls._node_class()
    if level is None:
        return _apply(cls, node, args, kwargs, seq)
    tangents: list[Any] = [tangent_of(a, level) for a in args]
    with below(level):
        result = _apply(cls, node, args, kwargs, seq)
        if node.materialize_grads:
            for i, (a, t) in enumerate(zip(args, tangents, strict=True)):
                if t is None and isinstance(a, Tensor) and a._array.dtype.kind in "fcV":
                    tangents[i] = make(backend_of(a._array).xp.zeros_like(a._array))
        found = cls.jvp(node, *tangents)
    outputs = result if isinstance(result, tuple) else (result,)
    found = tuple(found) if isinstance(found, (tuple, list)) else (found,)
    if len(found) != len(outputs):
        raise RuntimeError(
            f"{cls.__name__}.jvp returned {len(found)} tangents, but forward has {len(outputs)} "
            "outputs"
        )
    for nr, (out, t) in enumerate(zip(outputs, found, strict=True)):
        if t is None or not isinstance(out, Tensor) or out._array.dtype.kind not in "fcV":
            continue
        if not isinstance(t, Tensor):
            raise TypeError(
                f"{cls.__name__}.jvp: want a Tensor or None for output {nr}, got {type(t).__name__}"
            )
        if t.shape != out.shape:
            raise RuntimeError(
                f"{cls.__name__}.jvp returned a tangent of shape {list(t.shape)} for output {nr} "
                f"of shape {list(out.shape)}"
            )
        set_tangent(out, level, t)
    return result


def _apply(
    cls: type[Function], node: FunctionNode, args: tuple[Any, ...], kwargs: Any, seq: int
) -> Any:
    node.needs_input_grad = tuple(isinstance(a, Tensor) and a._requires_grad for a in args)
    recording = state.grad_enabled and any(node.needs_input_grad)
    separate = cls.setup_context is not Function.setup_context
    before = [edge_of(a) if isinstance(a, Tensor) and a._requires_grad else None for a in args]
    with no_grad():
        if separate:
            result = cls.forward(*args, **kwargs)
            cls.setup_context(node, args, result)
        else:
            result = cls.forward(node, *args, **kwargs)
    outputs = list(result) if isinstance(result, (tuple, list)) else [result]
    for t in node.dirty_tensors:
        check_inplace(t, cls.__name__)
        t.counter[0] += 1
    if recording:
        _connect(node, args, before, outputs, seq)
    else:
        outputs = [_own(out, args, node) for out in outputs]
    if isinstance(result, (tuple, list)):
        return tuple(outputs)
    return outputs[0]


def _own(out: Any, args: tuple[Any, ...], node: FunctionNode) -> Any:
    """An input that is returned as it is becomes a tensor of its own, unless changed in place."""
    if isinstance(out, Tensor) and _among(args, out) and not _among(node.dirty_tensors, out):
        return out.detach()
    return out


def _connect(
    node: FunctionNode, args: tuple[Any, ...], before: list[Any], outputs: list[Any], seq: int
) -> None:
    """Makes `node` the history of the outputs, which are replaced where they must be."""
    hidden = node.non_differentiable
    node.seq = seq or next_seq()
    node.inputs_like = [
        (a._array.shape, a._array.dtype) if isinstance(a, Tensor) else None for a in args
    ]
    node.edges = tuple(
        [edge for a, edge in zip(args, before, strict=True) if isinstance(a, Tensor)]
    )
    differentiable: dict[int, Tensor] = {}
    for nr, out in enumerate(outputs):
        if not isinstance(out, Tensor):
            continue
        dirty, given = _among(node.dirty_tensors, out), _among(args, out)
        if _among(hidden, out) or out._array.dtype.kind not in "fcV":
            outputs[nr] = out.detach() if given and not dirty else out
            continue
        if not dirty and (given or out._requires_grad):
            outputs[nr] = alias = make(out._array)
            alias._counter = out.counter
            if given:  # as a view of the input, which in-place changes may not follow
                base = out if out._base is None else out._base
                register(alias, base, (), CUSTOM)
            else:
                node.to_save = tuple([alias if t is out else t for t in node.to_save])
            out = alias
        if out._rare is not None and out._rare.view is not None and not dirty:
            out._rare.view.creation = CUSTOM
        differentiable[nr] = out
    node.outputs_like = [
        (out._array.shape, out._array.dtype, backend_of(out._array))
        if isinstance(out, Tensor) else None
        for out in outputs
    ]  # fmt: skip
    node.keep(differentiable)
    for nr, out in differentiable.items():
        if _among(node.dirty_tensors, out):
            rebase(out, node.output(nr))
        else:
            out._requires_grad, out._node = True, node.output(nr)


def _among(tensors: tuple[Any, ...], t: Tensor) -> bool:
    return any(t is other for other in tensors)


class _Twice(Function):
    """Passes gradients through, and refuses to be differentiated."""

    @staticmethod
    def forward(ctx: Any, *tensors: Tensor) -> Any:
        return tuple(t.clone() for t in tensors)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise RuntimeError(
            "trying to differentiate twice a function that was marked with @once_differentiable"
        )


def once_differentiable(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates a `backward` that is not itself differentiable: differentiating it is an error."""

    @functools.wraps(fn)
    def wrapper(ctx: Any, *args: Any) -> Any:
        with no_grad():
            outputs = fn(ctx, *args)
        if not state.grad_enabled:
            return outputs
        if not any(isinstance(a, Tensor) and a._requires_grad for a in args):
            return outputs
        several = isinstance(outputs, tuple)
        values = list(outputs) if several else [outputs]
        indices = [i for i, v in enumerate(values) if isinstance(v, Tensor)]
        sealed = _Twice.apply(*[values[i].detach().requires_grad_() for i in indices])
        for i, t in zip(indices, sealed, strict=True):
            values[i] = t
        return tuple(values) if several else values[0]

    return wrapper
