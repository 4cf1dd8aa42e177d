"""Custom functions: a forward and a backward written by the user, as one node of the graph."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable
from typing import Any

from ..backends import backend_of
from ..backends.batched import arrays as batched
from ..backends.several import place_of, zeros_like
from ..dtypes import is_differentiable
from ..runtime.absent import explain
from ..runtime.frames import warn_user
from ..tensor import Tensor, make
from .anomaly_mode import note
from .custom.context import BackwardCFunction, FunctionCtx
from .custom.tangents import among, check_saved, check_tangent, handed_on, viewed
from .custom.vmap import VmapInfo, apply_transformed
from .forward.dual import below, highest, laid_out, note_tangent, set_tangent, tangent_of, unshared
from .forward.dual_inplace import written
from .mode import anomaly, no_grad, state, unrecorded
from .recording.node import announced_seq, edge_of, next_seq, take_seq
from .recording.views import CUSTOM, MULTIPLE, NO_GRAD, check_inplace, rebase, register
from .transforms import running

__all__ = [
    "BackwardCFunction", "Function", "FunctionCtx", "FunctionMeta", "InplaceFunction",
    "once_differentiable",
]  # fmt: skip

DIRTY_VIEW = (
    "If your Function modifies inplace an input that is a view of another Tensor, your Function "
    "cannot return more than one Tensor. This is not supported by the current autograd engine. You "
    "should either make sure the input is not a view (using .clone() for example) or make your "
    "Function only return one Tensor (potentially splitting it into two Functions: one doing the "
    "inplace that returns a single Tensor and a second one that does the other operations)."
)


class FunctionMeta(type):
    """Gives every Function the class of its nodes, `_backward_cls`."""

    _backward_cls: type[BackwardCFunction]

    def __init__(cls, name: str, bases: tuple[type, ...], attrs: dict[str, Any]) -> None:
        super().__init__(name, bases, attrs)
        cls._backward_cls = type(name + "Backward", (BackwardCFunction,), {"_forward_cls": cls})


def _overridden(function: Any) -> Any:
    """For type checkers: those that override the function may have arguments of their own."""
    return function


class Function(metaclass=FunctionMeta):
    """A differentiable operation with a gradient of its own.

    Subclass it with static methods `forward(ctx, *args)` and `backward(ctx, *grad_outputs)`, and
    call `apply`. Or write `forward(*args)` and `setup_context(ctx, inputs, output)`, which the
    transforms of `torch.func` need. `backward` returns one gradient, or None, per argument of
    `forward`. For `torch.vmap` set `generate_vmap_rule = True`, where `forward`, `backward` and
    `jvp` are written with tensor functions; else write `vmap`.


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

    generate_vmap_rule = False
    _signature: tuple[Any, inspect.Signature]  # a forward, and how it is called

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        warnings.warn(
            f"{type(self)} should not be instantiated. Methods on autograd functions are all "
            "static, so you should invoke them on the class itself. Instantiating an autograd "
            "function will raise an error in a future version of PyTorch.",
            DeprecationWarning,
            stacklevel=2,
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(
            "Legacy autograd function with non-static forward method is deprecated. Please use "
            "new-style autograd function with static forward method. (Example: "
            "https://pytorch.org/docs/stable/autograd.html#torch.autograd.Function)"
        )

    def __getattr__(self, name: str) -> Any:
        if hasattr(BackwardCFunction, name):
            raise RuntimeError(
                f"Attribute '{name}' is invalid for this instance of _C._FunctionBase. Accessing "
                "this attribute directly on an instance of autograd.Function is a legacy access "
                "pattern that is no longer supported: it is at `ctx`, and at `grad_fn`."
            )
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

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
    @_overridden
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        """The vector-Jacobian product; to be overridden (or `vjp`)."""
        raise NotImplementedError(
            "You must implement either the backward or vjp method for your custom "
            "autograd.Function to use it with backward mode AD."
        )

    vjp = backward

    @staticmethod
    @_overridden
    def jvp(ctx: Any, *grad_inputs: Any) -> Any:
        """The Jacobian-vector product, for forward mode; to be overridden.

        Gets one tangent per argument of `forward`, None for what is no tensor, and returns one per
        output.
        """
        raise NotImplementedError(
            "You must implement the jvp function for custom autograd.Function to use it with "
            "forward mode AD."
        )

    @staticmethod
    @_overridden
    def vmap(info: VmapInfo, in_dims: tuple[int | None, ...], *args: Any) -> Any:
        """The function of all examples of a `torch.vmap` at once; to be overridden.

        Gets `info.batch_size` and `info.randomness`, per argument of `forward` the dimension that
        is mapped over, or None, and the arguments with that dimension in sight. Returns
        `(output, out_dims)`.
        """
        raise NotImplementedError(
            "To use autograd.Function with vmap, you must either override the vmap staticmethod or "
            "set generate_vmap_rule=True."
        )

    @classmethod
    def has_vmap_rule(cls) -> bool:
        return cls.vmap is not Function.vmap

    @classmethod
    def has_setup_context(cls) -> bool:
        return cls.setup_context is not Function.setup_context

    @classmethod
    def backward_of(cls) -> Callable[..., Any]:
        """The user's backward, which may be called `backward` or `vjp`."""
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
        separate = cls.setup_context is not Function.setup_context
        if separate and (kwargs or getattr(cls.forward, "__defaults__", None)):
            cached = cls.__dict__.get("_signature")
            if cached is None or cached[0] != cls.forward:
                cls._signature = cached = cls.forward, inspect.signature(cls.forward)
            bound = cached[1].bind(*args, **kwargs)
            bound.apply_defaults()  # setup_context and backward know every argument
            args, kwargs = bound.args, bound.kwargs
        if not state.observers:
            return _apply(cls, args, kwargs, 0)
        seq, result, observers = announced_seq(args), None, state.observers
        begun = 0
        try:
            for observer in observers:
                observer.op_begin(cls.__name__, seq, args)
                begun += 1
            result = _apply(cls, args, kwargs, seq)
            return result
        finally:
            for observer in reversed(observers[:begun]):
                observer.op_end(cls.__name__, seq, result)


def _apply(cls: type[Function], args: tuple[Any, ...], kwargs: dict[str, Any], seq: int) -> Any:
    if not running.transforms:
        forward = functools.partial(cls.forward, **kwargs) if kwargs else cls.forward
        return _dual(cls, args, forward, seq)
    return apply_transformed(cls, args, kwargs, lambda forward: _dual(cls, args, forward, seq))


def _dual(cls: type[Function], args: tuple[Any, ...], forward: Any, seq: int) -> Any:
    """The function as one node, and the user's jvp where an argument carries a tangent."""
    node = cls._backward_cls()
    result = _tangents(node, args, forward, seq) if state.levels else None
    if result is None:
        result = (_execute(node, args, forward, seq),)
    node.saved_for_forward = None
    return result[0]


def _tangents(
    node: BackwardCFunction, args: tuple[Any, ...], forward: Any, seq: int
) -> tuple[Any] | None:
    """The result, as a tuple of one, with its tangents; None where no argument has one."""
    level = highest(args)
    if level is None:
        return None
    cls = node._forward_cls
    tangents: list[Any] = [tangent_of(a, level) for a in args]
    node.viewing = {}
    with below(level):
        result = _tangents(node, args, forward, seq) or (_execute(node, args, forward, seq),)
        if node.materialize_grads:
            for i, (a, t) in enumerate(zip(args, tangents, strict=True)):
                if t is None and isinstance(a, Tensor) and is_differentiable(a._array.dtype):
                    tangents[i] = make(zeros_like(a._array))
        for a in node.dirty_tensors or ():  # their tangents are changed in place by jvp
            nr = next((i for i, x in enumerate(args) if x is a), None)
            if nr is not None and tangent_of(a, level) is not None:
                tangents[nr] = written(a, level)
        incoming = list(tangents)
        versions = [t.counter[0] if isinstance(t, Tensor) else 0 for t in incoming]
        if node.saved_for_forward is None:
            node.saved_for_forward = ()  # what was saved for backward is not for jvp to read
        outgoing = cls.jvp(node, *tangents)
    outputs = result[0] if isinstance(result[0], tuple) else (result[0],)
    outgoing = outgoing if isinstance(outgoing, tuple) else (outgoing,)
    if len(outgoing) != len(outputs):
        raise RuntimeError(
            f"Function's jvp returned an invalid number of forward gradients (expected "
            f"{len(outputs)} but got {len(outgoing)}) by {cls.__name__}"
        )
    for nr, (out, t) in enumerate(zip(outputs, outgoing, strict=True)):
        if t is None or not isinstance(out, Tensor):
            continue
        check_tangent(node, nr, out, t, args, incoming, versions)
        if among(node.dirty_tensors or (), out):
            note_tangent(node, nr, level, t)  # a view's own node may be another one
        else:
            own = t if nr in (node.viewing or ()) else laid_out(unshared(t, level, ()), out)
            set_tangent(out, level, own)
    return result


def _execute(node: BackwardCFunction, args: tuple[Any, ...], forward: Any, seq: int) -> Any:
    cls = node._forward_cls
    needed = node.needs_input_grad = tuple(
        [isinstance(a, Tensor) and a._requires_grad for a in args]
    )
    recording = state.grad_enabled and True in needed
    before = [edge_of(a) if needs else None for a, needs in zip(args, needed)]
    seq = seq or next_seq()  # as where observers are told: before those of the ops in forward

    def run() -> Any:
        if cls.setup_context is Function.setup_context:
            return forward(node, *args)
        result = forward(*args)
        cls.setup_context(node, args, result)
        if node.to_save or node.saved_for_forward:
            check_saved(node, args, result)
        return result

    result = unrecorded(run)
    outputs = list(result) if isinstance(result, tuple) else [result]
    dirty = _marked(node, outputs)
    for t in dirty:
        if state.grad_enabled and t._requires_grad and t.is_leaf:
            raise RuntimeError(
                "a leaf Variable that requires grad has been used in an in-place operation. "
                f"({cls.__name__} marked it dirty)"
            )
        check_inplace(t, cls.__name__)
        t.counter[0] += 1
        if recording and not among(args, t):
            warn_user(
                "ctx.mark_dirty() received a tensor that was not an input. Only input Tensors that "
                "have been mutated should be passed to ctx.mark_dirty()."
            )
    if node.viewing is not None:
        node.viewing = {
            nr: k for nr, out in enumerate(outputs) if (k := viewed(out, args, dirty)) is not None
        }
    if recording:
        _connect(node, args, before, outputs, seq)
    else:
        outputs = [_own(out, args, dirty) for out in outputs]
    return tuple(outputs) if isinstance(result, tuple) else outputs[0]


def _marked(node: BackwardCFunction, outputs: list[Any]) -> tuple[Tensor, ...]:
    """The inputs that were marked as dirty. Checks all marks."""
    dirty, hidden = node.dirty_tensors, node.non_differentiable
    if dirty is None and hidden is None:
        return ()
    for name, marked in (("dirty_tensors", dirty), ("non_differentiable", hidden)):
        if marked is not None and not isinstance(marked, tuple):
            raise RuntimeError(
                f"autograd internal error: {name} attribute is expected to be a tuple but is "
                f"{type(marked).__name__}"
            )
    for i, t in enumerate(dirty or ()):
        if not isinstance(t, Tensor):
            raise RuntimeError(
                f"mark_dirty can only accept variables, but argument {i} is of type "
                f"{type(t).__name__}"
            )
        if not among(outputs, t):
            raise RuntimeError(
                "Some elements marked as dirty during the forward method were not returned as "
                "output. The inputs that are modified inplace must all be outputs of the Function."
            )
    for i, t in enumerate(hidden or ()):
        if not isinstance(t, Tensor):
            raise RuntimeError(
                f"mark_non_differentiable only accepts variable arguments, but got "
                f"{type(t).__name__} as argument {i}"
            )
    return dirty or ()


def _own(out: Any, args: tuple[Any, ...], dirty: tuple[Tensor, ...]) -> Any:
    """An input that is returned as it is becomes a tensor of its own, unless changed in place.

    So does a tensor that requires grad, whether it was made inside or elsewhere, because its own
    history is not followed. A view that was made inside stays a view, but may not be changed in
    place.
    """
    if not isinstance(out, Tensor) or among(dirty, out):
        return out
    if out._requires_grad and (out._node is not None or out._base is None):
        return out.detach()
    if among(args, out):
        if out._requires_grad or out.is_inference() or state.inference:
            return out.detach()
        alias = handed_on(out)
        register(alias, out if out._base is None else out._base, (), CUSTOM)
        return alias
    if out._rare is not None and out._rare.view is not None:
        if out._rare.view.creation == NO_GRAD:
            out._rare.view.creation = CUSTOM
    return out


def _connect(
    node: BackwardCFunction, args: tuple[Any, ...], before: list[Any], outputs: list[Any], seq: int
) -> None:
    """Makes `node` the history of the outputs, which are replaced where they must be."""
    hidden, marked = node.non_differentiable or (), node.dirty_tensors or ()
    node.inputs_like = [
        None if not isinstance(a, Tensor)
        else (a.outline.shape, a.outline.dtype, ()) if a.is_sparse
        else (a._array.shape, a._array.dtype, _shared_by(a))
        for a in args
    ]  # fmt: skip
    node.edges = tuple(
        [edge for a, edge in zip(args, before, strict=True) if isinstance(a, Tensor)]
    )
    node.seq = next_seq()
    take_seq(node, seq)
    if anomaly.enabled:
        note(node)
    differentiable: dict[int, Tensor] = {}
    for nr, out in enumerate(outputs):
        if not isinstance(out, Tensor):
            continue
        dirty, is_input = bool(marked) and among(marked, out), among(args, out)
        if among(hidden, out) or not is_differentiable(out._array.dtype):
            outputs[nr] = out.detach() if is_input and (out._requires_grad or not dirty) else out
            continue
        if dirty and len(outputs) > 1 and out._base is not None:
            raise RuntimeError(DIRTY_VIEW)
        has_history = out._requires_grad and (out._node is not None or out._base is None)
        if not dirty and (is_input or has_history):
            outputs[nr] = alias = handed_on(out)
            if is_input:  # as a view of the input, which in-place changes may not follow
                base = out if out._base is None else out._base
                register(alias, base, (), CUSTOM)
            else:
                node.to_save = tuple([alias if t is out else t for t in node.to_save or ()])
            out = alias
        if out._rare is not None and out._rare.view is not None and not dirty:
            out._rare.view.creation = CUSTOM
        differentiable[nr] = out
    node.outputs_like = [
        (a.shape, a.dtype, backend_of(a), place_of(a), nr in differentiable)
        if isinstance(out, Tensor) and (a := out._array) is not None else None
        for nr, out in enumerate(outputs)
    ]  # fmt: skip
    if len(differentiable) > 1:
        for out in differentiable.values():
            if out._rare is not None and out._rare.view is not None:
                out._rare.view.creation = MULTIPLE
    node.keep(differentiable)
    for nr, out in differentiable.items():
        if among(marked, out):
            rebase(out, node.output(nr))
        else:
            out._requires_grad, out._node = True, node.output(nr)


def _shared_by(t: Tensor) -> tuple[batched.BatchLevel, ...]:
    """The running vmaps for whose examples `t` is the same: its gradient adds up over them."""
    if not running.transforms:
        return ()
    has = batched.levels_of(t._array)
    return tuple([level for level in running.levels if level not in has])


class InplaceFunction(Function):
    """Deprecated: use Function, which does the same."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace


class Error(BackwardCFunction):
    """The node that refuses, with PyTorch's name; an edge for each gradient that is not None."""

    places: tuple[bool, ...] = ()

    def name(self) -> str:
        return "torch::autograd::Error"

    @property
    def next_functions(self) -> tuple[tuple[Any, int], ...]:
        ends = iter(super().next_functions)
        return tuple([next(ends) if there else (None, 0) for there in self.places])


class _Twice(Function):
    """Passes gradients through; raises an error when it is differentiated itself."""

    generate_vmap_rule = True

    @staticmethod
    def forward(*tensors: Tensor) -> Any:
        return tuple([t.clone() for t in tensors])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        """Saves nothing: there is no backward."""

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise RuntimeError(
            "trying to differentiate twice a function that was marked with @once_differentiable"
        )


Error._forward_cls, _Twice._backward_cls = _Twice, Error


def once_differentiable(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates a `backward` that is not itself differentiable: differentiating it is an error."""

    @functools.wraps(fn)
    def wrapper(ctx: Any, *args: Any) -> Any:
        with no_grad():
            outputs = fn(ctx, *args)
        needed = any(isinstance(a, Tensor) and a._requires_grad for a in args)
        if not (needed and state.grad_enabled):
            return outputs
        several = isinstance(outputs, tuple)
        values = list(outputs) if several else [outputs]
        indices = [i for i, v in enumerate(values) if isinstance(v, Tensor)]
        sealed = _Twice.apply(*[values[i].detach().requires_grad_() for i in indices])
        for i, t in zip(indices, sealed, strict=True):
            values[i] = t
            t.grad_fn.places = tuple([isinstance(v, Tensor) for v in values])
        return tuple(values) if several else values[0]

    return wrapper


explain(__name__)
