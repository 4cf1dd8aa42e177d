"""fuse: a function of elementwise ops as one kernel each way, where a GPU runs it."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import numpy as np

from ..autograd.engine.differentiate import grad
from ..autograd.function import Function
from ..autograd.mode import state, unseen
from ..autograd.recording.record import recorded
from ..backends import backend_of
from ..backends.traced.arrays import Trace, Traced, Untraceable, reached_from
from ..backends.wanted import wanted
from ..dtypes import is_floating
from ..runtime.dispatching import are_asked, here
from ..runtime.kept import kept
from ..tensor import Tensor, make

__all__ = ["fuse"]

MOST_PLANS = 1024  # of one function; then it begins anew
NUMBERS = (bool, int, float, str, type(None))


def fuse(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that computes what `function` does, in one kernel each way on CUDA.

    `function` takes tensors that broadcast together, and numbers, strings or None, and computes
    elementwise: arithmetic, comparisons, activations, `where`, and their like. It returns a tensor,
    or a tuple of tensors, of the shape to which its tensors broadcast. Forward, its ops become one
    CUDA kernel; backward, all gradients are another. Between the two only those arguments are kept
    that the gradients need, whatever the ops in between would have kept: what lies between is
    computed again, in registers. Half precision is computed in float32 and rounded once, so
    results may differ in the last place from those of `function`. They have memory of their own,
    also where `function` hands on an argument.

    The function is called once for each kind of arguments, with tensors that have no values, and
    must not depend on values nor have side effects. Where it cannot be one kernel, since it uses a
    tensor that is no argument, or an op that is no function of elements, it runs as it is, and a
    UserWarning says why, once. So it does without a warning on the CPU, under autocast, in forward
    mode, in `vmap`, and with complex or whole numbers. Gradients can be differentiated again; these
    second derivatives run op by op.

    >>> import cugrad as torch
    >>> @torch.fuse
    ... def scaled_gelu(x, bias, scale):
    ...     return torch.nn.functional.gelu(x + bias) * scale
    >>> x = torch.tensor([[1.0, -2.0], [0.5, 3.0]], requires_grad=True)
    >>> y = scaled_gelu(x, torch.tensor([0.0, 1.0]), 0.5)
    >>> y.sum().backward()
    >>> y.shape, x.grad.shape
    (torch.Size([2, 2]), torch.Size([2, 2]))
    """
    if not callable(function):
        raise TypeError(f"fuse: function: got {type(function).__name__}, want a callable")
    plans: dict[Any, Any] = {}
    warned: list[str] = []

    @wraps(function)
    def fused(*args: Any) -> Any:
        tensors = [x for x in args if isinstance(x, Tensor)]
        if not _may_fuse(tensors, args):
            return function(*args)
        key = tuple([_kind(x) for x in args])
        plan = plans.get(key)
        if plan is None:
            if len(plans) >= MOST_PLANS:
                plans.clear()
            plan = plans[key] = _planned(function, args, tensors)
        if type(plan) is FusedPlan:
            return FusedCall.apply(plan, *plan.linked(tensors))
        if plan and not warned:
            warned.append(plan)
            name = getattr(function, "__name__", "function")
            warnings.warn(f"fuse: {name} runs op by op, since {plan}", stacklevel=2)
        return function(*args)

    return fused


def _may_fuse(tensors: Sequence[Tensor], args: Sequence[Any]) -> bool:
    """Whether a kernel could be made for these arguments, as things stand."""
    if not tensors or not wanted.fused or state.levels or state.autocast is not None:
        return False
    if here.op_by_op or are_asked(tensors):  # of each op
        return False
    return _are_read(tensors) and all(isinstance(x, (Tensor, *NUMBERS)) for x in args)


def _are_read(tensors: Sequence[Tensor]) -> bool:
    """Whether a kernel can read the arrays of all of these."""
    backend, kind = backend_of(tensors[0]._array), type(tensors[0]._array)
    return backend.makes_kernels and all(type(x._array) is kind for x in tensors)


def _kind(x: Any) -> Any:
    if isinstance(x, Tensor):
        array = x._array
        return array.dtype, array.shape, array.strides, x._requires_grad
    return type(x), repr(x)


def _planned(function: Callable[..., Any], args: Sequence[Any], tensors: Sequence[Tensor]) -> Any:
    """A plan, or in words why there is none; "" where the reason is not reported."""
    if not all(is_floating(d) or d.kind == "b" for d in (x._array.dtype for x in tensors)):
        return ""

    try:
        return unseen(lambda: FusedPlan(function, args, tensors), recording=True)
    except Untraceable as error:
        return str(error)
    except Exception as error:  # an error of the function itself comes when it runs as it is
        return f"tracing it raises {type(error).__name__}: {error}"


class FusedPlan:
    """The two kernels of a function for arguments of one kind, and what the second one needs."""

    def __init__(
        self, function: Callable[..., Any], args: Sequence[Any], tensors: Sequence[Tensor]
    ) -> None:
        self.function, self.args = function, [None if isinstance(x, Tensor) else x for x in args]
        self.at = [i for i, x in enumerate(args) if isinstance(x, Tensor)]
        arrays = [x._array for x in tensors]
        backend, shape = backend_of(arrays[0]), np.broadcast_shapes(*[x.shape for x in arrays])
        if len({a.dtype for a in arrays if a.dtype.kind != "b"}) > 1 and not all(
            a.ndim for a in arrays
        ):
            raise Untraceable("tensors without dims have another dtype than the others")
        name = re.sub(r"\W", "_", f"fused_{getattr(function, '__name__', 'function')}")
        outputs = self._outputs(self._inputs(Trace(shape), tensors), [a.shape for a in arrays])
        self.single = isinstance(outputs, Tensor)
        self.forward = backend.graph_function(name, _elements(outputs), arrays)
        self._backward: dict[Any, Any] = {}  # by how its arrays lie
        self.needed: list[int] = []  # the tensors that backward needs
        self.ends: list[int] = []  # the outputs that have a gradient
        self.wanted: list[int] = []  # the tensors that get one
        if any(x._requires_grad for x in tensors):
            self._differentiate(f"{name}_backward", tensors, shape)

    def _inputs(self, trace: Trace, tensors: Sequence[Tensor]) -> list[Tensor]:
        elements = [trace.input(i, x._array.dtype) for i, x in enumerate(tensors)]
        return [make(e, x._requires_grad) for e, x in zip(elements, tensors, strict=True)]

    def _outputs(self, inputs: Sequence[Tensor], shapes: Sequence[tuple[int, ...]]) -> Any:
        """What the function returns of elements, which are those of arrays of such shapes."""
        outputs, whole = self.called(inputs), np.broadcast_shapes(*shapes)
        for y in outputs if type(outputs) is tuple else (outputs,):
            if not isinstance(y, Tensor) or type(y._array) is not Traced:
                raise Untraceable("it returns what is no tensor of elements")
            nodes = reached_from([y._array])
            read = [shapes[node.value] for node in nodes if node.function == "input"]
            if np.broadcast_shapes(*read) != whole:
                raise Untraceable("it returns a tensor of fewer elements than its tensors make")
        return outputs

    def _differentiate(self, name: str, tensors: Sequence[Tensor], shape: tuple[int, ...]) -> None:
        """Makes the kernel of all gradients, each in the shape of the outputs."""
        trace, count = Trace(shape), len(tensors)
        inputs = self._inputs(trace, tensors)
        outputs = self._outputs(inputs, [x._array.shape for x in tensors])
        outputs = [outputs] if self.single else list(outputs)
        self.ends = [k for k, y in enumerate(outputs) if y._requires_grad]
        ends = [outputs[k] for k in self.ends]
        if not ends:
            return
        vectors = [make(trace.input(count + k, y._array.dtype)) for k, y in enumerate(ends)]
        leaves = [i for i, x in enumerate(inputs) if x._requires_grad]
        grads = grad(ends, [inputs[i] for i in leaves], vectors, allow_unused=True)
        self.wanted = [i for i, g in zip(leaves, grads, strict=True) if g is not None]
        results = [g._array for g in grads if g is not None]
        reached = {node.value for node in reached_from(results) if node.function == "input"}
        self.needed = [i for i in range(count) if i in reached]
        order = [*self.needed, *range(count, count + len(ends))]
        for node in trace.nodes:  # the kernel is given what it needs alone
            if node.function == "input" and node.value in order:
                node.value = order.index(node.value)
        self._results = name, results
        self._targets = [tensors[i]._array.shape for i in self.wanted]

    def backward(self, arrays: Sequence[Any]) -> list[Any]:
        """The gradients, of the tensors that are needed and of the gradients of `ends`."""
        key = tuple([(x.dtype, x.shape, x.strides) for x in arrays])
        run = self._backward.get(key)
        if run is None:
            backend = backend_of(arrays[0])
            run = self._backward[key] = backend.graph_function(
                *self._results, arrays, self._targets
            )
        return run(arrays)

    def linked(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """The tensors, without their history where no gradient goes: then no hook is asked."""
        return [x.detach() if x._requires_grad and i not in self.wanted else x
                for i, x in enumerate(tensors)]  # fmt: skip

    def called(self, tensors: Sequence[Tensor]) -> Any:
        """The function on tensors, with the other arguments as they were."""
        args = list(self.args)
        for i, x in zip(self.at, tensors, strict=True):
            args[i] = x
        return self.function(*args)


def _elements(outputs: Any) -> list[Traced]:
    return [y._array for y in ([outputs] if isinstance(outputs, Tensor) else outputs)]


class FusedCall(Function):
    """The node of a fused function: it keeps what its kernel of gradients reads."""

    @staticmethod
    def forward(plan: FusedPlan, *tensors: Tensor) -> Any:
        outputs = tuple(map(make, plan.forward([x._array for x in tensors])))
        return outputs[0] if plan.single else outputs

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        plan, *tensors = inputs
        ctx.fused = plan
        ctx.arguments = [(x._array.shape, x._array.dtype) for x in tensors]
        ctx.save_for_backward(*[tensors[i] for i in plan.needed])
        results = output if type(output) is tuple else (output,)
        ctx.mark_non_differentiable(*[y for k, y in enumerate(results) if k not in plan.ends])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        plan: FusedPlan = ctx.fused
        vectors = [grads[k] for k in plan.ends]
        gradients = None
        if not (state.grad_enabled or state.levels) and _are_read(vectors):
            # no graph, no tangents and no examples
            try:
                arrays = [x._array for x in (*ctx.saved_tensors, *vectors)]
                gradients = [make(g) for g in plan.backward(arrays)]
            except Untraceable:  # they lie as no kernel reads them
                pass
        if gradients is None:
            again = state.grad_enabled
            gradients = kept(lambda: _differentiable(ctx, vectors, again))
        result: list[Any] = [None] * (1 + len(ctx.arguments))
        for i, g in zip(plan.wanted, gradients, strict=True):
            shape = ctx.arguments[i][0]
            result[1 + i] = g if g._array.shape == shape else g.sum_to_size(shape)
        return tuple(result)


def _differentiable(ctx: Any, vectors: Sequence[Tensor], again: bool) -> Sequence[Tensor]:
    """The gradients by the function itself, op by op; `again`: so that they have gradients.

    Each argument stands for itself, as a view of the tensor that was given: that may be another
    argument too, or be made of one, or have hooks. What it calls is to be called by `kept`.
    """
    state.switch(grad_mode=True, autocast=None)
    plan, kept_ones = ctx.fused, iter(ctx.saved_tensors)
    tensors = []
    for i, (shape, dtype) in enumerate(ctx.arguments):
        if i in plan.needed:
            tensors.append(recorded.view(next(kept_ones), shape))
        else:  # its value does not matter
            xp = backend_of(vectors[0]._array).xp
            tensors.append(make(xp.zeros(shape, dtype), requires_grad=i in plan.wanted))
    outputs = plan.called(tensors)
    outputs = [outputs] if plan.single else list(outputs)
    ends = [outputs[k] for k in plan.ends]
    return grad(ends, [tensors[i] for i in plan.wanted], vectors, create_graph=again)
