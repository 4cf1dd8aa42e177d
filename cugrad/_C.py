"""PyTorch's private names that its own tests, and some libraries, read: what a pass will do."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from .autograd.engine.backward_pass import task
from .autograd.function import Function, once_differentiable
from .autograd.mode import no_grad as _AutoDispatchBelowAutograd  # noqa: F401
from .autograd.mode import state
from .autograd.recording.node import AccumulateGrad, Node
from .autograd.transforms import running
from .device import device as Device
from .dtypes import dtype as Dtype
from .nn import functional
from .runtime.absent import explain
from .runtime.dispatching import DisableTorchFunction as DisableTorchFunction
from .runtime.dispatching import DisableTorchFunctionSubclass as DisableTorchFunctionSubclass
from .runtime.dispatching import here
from .runtime.dispatching import plainly as _disabled_torch_function_impl  # noqa: F401
from .tensor import Tensor

__all__: list[str] = []

_TensorMeta = type(Tensor)


def _will_engine_execute_node(node: Any) -> bool:
    """Whether the backward pass that is running computes what a node makes, or has done so.

    RuntimeError outside of a pass, and for a leaf in `autograd.grad()`, whose node does not run.
    """
    if not task.running:
        raise RuntimeError(
            "_get_should_execute_nodes should only be called during the backward pass"
        )
    if not isinstance(node, Node):
        raise RuntimeError(
            f"_will_engine_execute_node expects an grad_fn, but got {type(node).__name__}"
        )
    run = task.running[-1]
    end: Any = node.variable if isinstance(node, AccumulateGrad) else node
    if end is not node and (end, 0) in (run.captures or ()):
        raise RuntimeError(
            "A leaf node was passed to _will_engine_execute_node but we are currently running "
            "autograd.grad(). This is currently not supported."
        )
    return run.will_visit(end)


def _current_graph_task_id() -> int:
    """The number of the backward pass that is running, -1 outside of one."""
    return task.running[-1].number if task.running else -1


def _saved_tensors_hooks_is_enabled() -> bool:
    """Whether `disable_saved_tensors_hooks` is not in force."""
    return state.hooks_disabled is None


def _is_torch_function_enabled() -> bool:
    """Whether the classes of arguments take calls in this thread."""
    return here.subclasses


def _is_torch_function_mode_enabled() -> bool:
    """Whether a mode takes calls in this thread."""
    return here.all and bool(here.modes)


def _len_torch_function_stack() -> int:
    """How many modes this thread has entered."""
    return len(here.modes)


def _get_tracing_state() -> None:
    """Nothing is traced."""


def _is_tracing() -> bool:
    """False: nothing is traced."""
    return False


def _log_api_usage_once(event: str) -> None:
    """Uses are not counted."""


def _are_functorch_transforms_active() -> bool:
    """Whether a transform of `torch.func` runs in this thread."""
    return bool(running.transforms)


class _Undefined(Function):
    """Passes values on, and no gradient."""

    @staticmethod
    def forward(ctx: Any, *tensors: Tensor) -> Any:
        return tuple([t.clone() for t in tensors])

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return (None,) * len(grads)


class UndefinedGrad:
    """A call that returns its tensor, and stops its gradient: none arrives, not one of zeros."""

    def __call__(self, *tensors: Tensor) -> Any:
        results = _Undefined.apply(*tensors)
        return results[0] if len(results) == 1 else results


class DelayedError:
    """A call that returns its tensors, whose gradient is an error of this text."""

    def __init__(self, msg: str, num_inputs: int) -> None:
        self.msg, self.num_inputs = msg, num_inputs

    def __call__(self, *tensors: Tensor) -> Any:
        results = _Delayed.apply(self.msg, *tensors)
        return results[0] if self.num_inputs == 1 else results


class _Delayed(Function):
    """Passes values on, and raises for a gradient."""

    @staticmethod
    def forward(ctx: Any, msg: str, *tensors: Tensor) -> Any:
        ctx.msg = msg
        return tuple([t.clone() for t in tensors])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Any) -> Any:
        raise RuntimeError(ctx.msg)


_functions = SimpleNamespace(
    AccumulateGrad=AccumulateGrad, DelayedError=DelayedError, UndefinedGrad=UndefinedGrad
)


def _unsafe_set_version_counter(tensors: Any, versions: Any) -> None:
    """Says of each tensor how often it was changed: for code that knows what that does."""
    for x, version in zip(tensors, versions, strict=True):
        if version < 0:
            raise RuntimeError(f"Cannot set a version_counter to a value below 0: {version}")
        x.counter[0] = version


_autograd = SimpleNamespace(
    _saved_tensors_hooks_is_enabled=_saved_tensors_hooks_is_enabled,
    _unsafe_set_version_counter=_unsafe_set_version_counter,
)


def _parse_to(*args: Any, **kwargs: Any) -> Any:
    """Device, dtype, non_blocking and memory format of the arguments of a `to`."""
    device, dtype = kwargs.get("device"), kwargs.get("dtype")
    for value in args:
        if isinstance(value, Tensor):
            device, dtype = value.device, value.dtype
        elif isinstance(value, Dtype):
            dtype = value
        elif not isinstance(value, bool) and value is not None:
            device = value
    flags = [value for value in args if isinstance(value, bool)]
    non_blocking = kwargs.get("non_blocking", flags[0] if flags else False)
    place = None if device is None else Device(device)
    return place, dtype, non_blocking, kwargs.get("memory_format")


class _InC(SimpleNamespace):
    """Functions of nn.functional that PyTorch has in C, where code of `torch.fx` calls them."""

    def __getattr__(self, name: str) -> Any:
        return getattr(functional, name)


_nn = _InC(_parse_to=_parse_to)


explain(__name__)
