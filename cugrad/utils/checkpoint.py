"""torch.utils.checkpoint: saved tensors that are computed again instead of kept."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from ..autograd.mode import state
from ..runtime.contexts import Context
from ..runtime.kept import Switch
from .comparison import TRAITS, CheckpointError
from .op_log import OpLogs
from .reentrant import CheckpointFunction, check_backward_validity, detach_variable
from .regions import CheckpointedRegion, GraphExecGroup
from .selective import (
    SAC_IGNORED_OPS,
    CheckpointPolicy,
    SelectiveCheckpointContext,
    create_selective_checkpoint_contexts,
)
from .surroundings import DefaultDeviceType, Surroundings, get_device_states, set_device_states

__all__ = [
    "SAC_IGNORED_OPS", "CheckpointError", "CheckpointFunction", "CheckpointPolicy",
    "DefaultDeviceType", "GraphExecGroup", "SelectiveCheckpointContext", "check_backward_validity",
    "checkpoint", "checkpoint_sequential", "create_selective_checkpoint_contexts",
    "detach_variable", "get_device_states", "noop_context_fn", "set_checkpoint_debug_enabled",
    "set_checkpoint_early_stop", "set_device_states",
]  # fmt: skip

Contexts = tuple[AbstractContextManager[Any], AbstractContextManager[Any]]


class _Switches:
    """What the two context managers below have set; None: as each call says."""

    early_stop: bool | None = None
    debug: bool | None = None


def noop_context_fn() -> Contexts:
    """Two contexts that do nothing."""
    return nullcontext(), nullcontext()


def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    use_reentrant: bool | None = None,
    context_fn: Callable[[], Contexts] = noop_context_fn,
    determinism_check: str = "default",
    debug: bool = False,
    early_stop: bool = True,
    **kwargs: Any,
) -> Any:
    """`function(*args, **kwargs)`; keeps the arguments, and computes all else again in backward.

    Args:
        use_reentrant: False: what the function's ops would save is computed when backward first
            asks for it, and everything that works without a checkpoint works with it. True: the
            function runs unrecorded, and then again as a graph of its own within backward; only
            `Tensor.backward` without `inputs`, only tensors that are arguments themselves. Without
            it PyTorch's warning comes, and True is meant.
        preserve_rng_state: a keyword that the function does not get; True: random numbers are those
            of forward, whatever device or generator they come from.
        context_fn: answers two contexts, for forward and for the run that computes again.
        determinism_check: what must be the same of each tensor that both runs save. "default":
            shape, dtype, device; "ops": and the op that saves it; "bits": and all elements, for
            which the host waits; "none": nothing.
        debug: an error shows the ops of both runs, and the lines that called them.
        early_stop: the second run ends when everything that was saved is there.

    Raises CheckpointError, in backward, where the second run saves other tensors than the first.

    >>> import cugrad as torch
    >>> from cugrad.utils.checkpoint import checkpoint
    >>> x = torch.tensor([0.5, 1.0], requires_grad=True)
    >>> y = checkpoint(lambda x: x.exp().sin().exp(), x, use_reentrant=False)
    >>> y.sum().backward()
    >>> x.grad
    tensor([-0.3478, -3.7373])
    """
    if use_reentrant is None:
        warnings.warn(
            "torch.utils.checkpoint: the use_reentrant parameter should be passed explicitly. "
            "Starting in PyTorch 2.9, calling checkpoint without use_reentrant will raise an "
            "exception. use_reentrant=False is recommended, but if you need to preserve the "
            "current default behavior, you can pass use_reentrant=True. Refer to docs for more "
            "details on the differences between the two variants.",
            stacklevel=2,
        )
        use_reentrant = True
    preserve = kwargs.pop("preserve_rng_state", True)
    if use_reentrant:
        if kwargs:
            raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs))
        if context_fn is not noop_context_fn or debug is not False:
            raise ValueError(
                "Passing `context_fn` or `debug` is only supported when use_reentrant=False."
            )
        return CheckpointFunction.apply(function, preserve, *args)
    debug = bool(debug if _Switches.debug is None else _Switches.debug)
    early_stop = early_stop if _Switches.early_stop is None else _Switches.early_stop
    traces = None
    if debug:
        if context_fn is not noop_context_fn:
            raise ValueError("debug=True is incompatible with non-default context_fn")
        traces = OpLogs()
        context_fn = traces.contexts
    if determinism_check not in TRAITS:
        raise ValueError(
            f"determinism_check should be one of {list(TRAITS)}, but got {determinism_check}"
        )
    forward, again = _contexts_of(context_fn)
    if not state.grad_enabled:
        return function(*args, **kwargs)
    surroundings = Surroundings(preserve)

    def run_again(*args: Any) -> None:
        with surroundings.again(), again:
            function(*args, **kwargs)

    explain = None if traces is None else traces.explain
    region = CheckpointedRegion(run_again, args, TRAITS[determinism_check], early_stop, explain)
    with surroundings.noted(), region.saving(), forward:
        result = function(*args, **kwargs)
        region.is_complete = True
    if not region.is_complete:
        raise RuntimeError(
            "torch.utils.checkpoint: the forward context provided by context_fn suppressed an "
            "exception raised during the checkpointed forward. This is not supported because "
            "checkpoint cannot return a value for a failed forward."
        )
    return result


def _contexts_of(context_fn: Any) -> tuple[Any, Any]:
    """The contexts of the two runs; TypeError for what gives none."""
    description = (
        "a function that returns two contexts, for forward and for the second run, as "
        "functools.partial(create_selective_checkpoint_contexts, ops)"
    )
    if not callable(context_fn):
        raise TypeError(f"checkpoint: context_fn: got {context_fn!r}, want {description}")
    contexts = context_fn()
    if not isinstance(contexts, (tuple, list)) or len(contexts) != 2:
        raise TypeError(f"checkpoint: context_fn: it returned {contexts!r}, want {description}")
    return contexts[0], contexts[1]


def checkpoint_sequential(
    functions: Any, segments: int, input: Any, use_reentrant: bool | None = None, **kwargs: Any
) -> Any:
    """Runs functions, or the children of a module, one after the other: in `segments` segments, all
    but the last of which are checkpointed.

    Args:
        use_reentrant, preserve_rng_state: as of `checkpoint`.

    >>> import cugrad as torch
    >>> x = torch.ones(2, requires_grad=True)
    >>> checkpoint_sequential([torch.exp, torch.log, torch.sin], 3, x, use_reentrant=False)
    tensor([0.8415, 0.8415], grad_fn=<SinBackward0>)
    """
    if use_reentrant is None:
        warnings.warn(
            "torch.utils.checkpoint.checkpoint_sequential: the use_reentrant parameter should be "
            "passed explicitly. In version 2.9 we will raise an exception if use_reentrant is not "
            "passed. use_reentrant=False is recommended, but if you need to preserve the current "
            "default behavior, you can pass use_reentrant=True. Refer to docs for more details on "
            "the differences between the two variants.",
            stacklevel=2,
        )
        use_reentrant = True
    preserve = kwargs.pop("preserve_rng_state", True)
    if kwargs:
        raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs))
    if not isinstance(segments, int) or segments < 1:
        raise ValueError(
            f"checkpoint_sequential: segments: got {segments!r}, want a number, 1 or more"
        )
    steps = list(functions.children()) if hasattr(functions, "children") else list(functions)
    size = len(steps) // segments

    def segment(start: int, end: int) -> Callable[[Any], Any]:
        def run(input: Any) -> Any:
            for step in steps[start:end]:
                input = step(input)
            return input

        return run

    for k in range(segments - 1):
        input = checkpoint(
            segment(k * size, (k + 1) * size), input, use_reentrant=use_reentrant,
            preserve_rng_state=preserve,
        )  # fmt: skip
    return segment((segments - 1) * size, len(steps))(input)


class set_checkpoint_early_stop(Switch, Context):
    """Within it, `early_stop` of every checkpoint is this; backward may run outside."""

    def __init__(self, enable: bool) -> None:
        self.enable = enable

    def as_is(self) -> bool | None:
        return _Switches.early_stop

    def change(self, before: bool | None) -> None:
        _Switches.early_stop = self.enable

    def put_back(self, before: bool | None) -> None:
        _Switches.early_stop = before

    def clone(self) -> set_checkpoint_early_stop:
        return type(self)(self.enable)


class set_checkpoint_debug_enabled(Switch, Context):
    """Within it, `debug` of every checkpoint is this; None: as each call says."""

    def __init__(self, enabled: bool | None) -> None:
        self.enabled = enabled

    def as_is(self) -> bool | None:
        return _Switches.debug

    def change(self, before: bool | None) -> None:
        _Switches.debug = self.enabled

    def put_back(self, before: bool | None) -> None:
        _Switches.debug = before

    def clone(self) -> set_checkpoint_debug_enabled:
        return type(self)(self.enabled)
