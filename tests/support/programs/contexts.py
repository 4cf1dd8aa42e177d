"""The contexts that must not change what a program of cugrad's computes, by name."""

from __future__ import annotations

import functools
import gc
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import numpy as np

import cugrad as t
from cugrad import memory
from cugrad.autograd import profiler
from cugrad.autograd.graph import saved_tensors_hooks
from cugrad.autograd.recording.views import is_part_of_leaf
from cugrad.backends import simulated
from tests.support import fake_cuda

from .elsewhere import STATES, states
from .fused_on_host import fused_on_host


class Exact:
    """A codec that loses nothing: what is encoded takes the path of codecs, bitwise."""

    name = "exact"

    def applies(self, dtype: Any) -> bool:
        return np.dtype(dtype).kind in "fc"

    def encode(self, xp: Any, array: Any) -> Any:
        return xp.ascontiguousarray(array).reshape(-1).view(np.uint8)[::-1].copy()

    def decode(self, xp: Any, payload: Any, dtype: Any, shape: Any) -> Any:
        return payload[::-1].copy().view(dtype).reshape(shape)


def budget(limit: str, *placements: str) -> Any:
    """A budget for the device of the program, whose plans choose among these placements, or all."""
    more: Any = {"placements": ("keep", *placements)} if placements else {}
    return memory.budget(limit, device=str(t.get_default_device()), **more)


def to_disk(**options: Any) -> Any:
    return memory.save_on_disk(tempfile.gettempdir(), min_bytes=0, **options)


def to_numpy(x: Any) -> Any:
    return x.detach().cpu().numpy(force=True).copy(), x.device


def copies() -> Any:
    """What offloading does, in the simplest way: leaves stay; of all else there is a copy."""
    return saved_tensors_hooks(
        lambda x: x if is_part_of_leaf(x) else x.detach().clone(), lambda x: x
    )


@functools.cache
def passing() -> Any:
    """A mode that calls what it is asked for. The first such class gives functions other code."""

    class Passing(t.overrides.TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None):
            return func(*args, **(kwargs or {}))

    return Passing


# The CuPy made of NumPy, where this process has it: it is the device of programs then.
ON_CUDA = fake_cuda.REAL
ON_GPU = "tests.support.on_gpu" in sys.modules  # where CuPy is no stand-in

# Entered around some of a program's statements.
CONTEXTS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "profile": lambda: profiler.profile(),
    "profile all": lambda: profiler.profile(
        profile_memory=True, record_shapes=True, with_stack=True, with_flops=True),
    "kineto": lambda: t.profiler.profile(),
    "timeline": lambda: t.profiler.MemoryTimeline(),
    "nvtx": lambda: profiler.emit_nvtx(record_shapes=True),
    "itt": lambda: profiler.emit_itt(record_shapes=True),
    "anomaly": lambda: t.autograd.detect_anomaly(check_nan=False),
    "recompute": lambda: memory.recompute(),
    "recompute all": lambda: memory.recompute(ops="all"),
    "budget 1GB": lambda: budget("1GB"),
    "budget 4KB": lambda: budget("4KB"),
    "budget 2KB": lambda: budget("2KB"),
    "budget of offload": lambda: budget("2KB", "offload"),
    "budget of recompute": lambda: budget("2KB", "recompute"),
    "budget of disk": lambda: budget("2KB", "disk"),
    "budget of both": lambda: budget("3KB", "offload", "recompute"),
    "offload": lambda: memory.offload(min_bytes=0, keep_last=0),
    "offload learns": lambda: memory.offload(min_bytes=0),
    "offload exact": lambda: memory.offload(min_bytes=0, keep_last=0, compress=Exact()),
    "offload host 0": lambda: memory.offload(min_bytes=0, keep_last=0, host_limit=0),
    "offload spill": lambda: memory.offload(
        min_bytes=0, keep_last=0, host_limit="1KB", spill=memory.DiskStore(tempfile.gettempdir())),
    "offload narrow": lambda: memory.offload(
        min_bytes=0, keep_last=0, backlog=64, lookahead=64, timing=False),
    "offload some": lambda: memory.offload(
        min_bytes=0, keep_last=0, filter=lambda x: x.numel() % 2 == 0),
    "save_on_cpu": lambda: memory.save_on_cpu(),
    "save_on_cpu pinned": lambda: memory.save_on_cpu(
        pin_memory=True, device_type="simulated" if ON_CUDA is None else "cuda"),
    "save_on_disk": to_disk,
    "save_on_disk exact": lambda: to_disk(compress=Exact()),
    "save_on_disk full": lambda: to_disk(limit="1KB", backlog=64),
    "recompute chain": lambda: memory.recompute(chain=1),
    "mutation": t.autograd.graph.allow_mutation_on_saved_tensors,
    "identity": lambda: saved_tensors_hooks(lambda x: x, lambda x: x),
    "clone": lambda: saved_tensors_hooks(lambda x: x.detach().clone(), lambda x: x),
    "copies": copies,
    "numpy": lambda: saved_tensors_hooks(to_numpy, lambda p: t.tensor(p[0], device=p[1])),
    "autocast off": lambda: t.amp.autocast("cpu", enabled=False),
    "fused": fused_on_host,
    "range": lambda: profiler.record_function("all"),
    "function mode": lambda: passing()(),
}  # fmt: skip

# Those that copy what is saved: what a program changes in place after it was saved is an error
# without them, and none with them.
COPYING = {name for name in CONTEXTS if name.startswith(("offload", "save_on", "budget"))} | {
    "clone", "copies", "numpy", "recompute", "recompute all", "recompute chain", "mutation",
}  # fmt: skip

# Those in which sums may be added up in another order: a number may be rounded otherwise. A hook's
# copy of what has gaps or is expanded has none, and NumPy's lies in the order of its dims.
ROUNDING = {"fused", "numpy", "clone", "copies"}

# Those that must do then what "copies" does, of what stays where it is, too.
MOVING = {
    "offload", "offload learns", "offload exact", "offload host 0", "offload spill",
    "offload narrow", "save_on_cpu", "save_on_cpu pinned", "save_on_disk", "save_on_disk exact",
    "save_on_disk full", "offload some",
}  # fmt: skip

# Around all of a program: where its tensors are, and in which thread it runs.
DEVICES = ("simulated earliest", "simulated latest", "simulated random", "simulated timed")
if ON_CUDA is not None:
    DEVICES = tuple([f"cuda:{index}" for index in range(fake_cuda.COUNT)])
    del CONTEXTS["fused"]  # by kernels, and not on the host
    ROUNDING.update(CONTEXTS, STATES)  # sums by atomics are added up in any order
PLACES = ("thread", *DEVICES)


def entered(names: tuple[str, ...]) -> Callable[[dict[str, Any]], AbstractContextManager[Any]]:
    """What a program calls `context`: all that is named, from the outside in."""

    def enter(env: dict[str, Any]) -> AbstractContextManager[Any]:
        stack = ExitStack()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                for name in names:
                    if name in STATES:
                        stack.enter_context(states(env, name))
                    elif name not in PLACES:
                        stack.enter_context(CONTEXTS[name]())
            except BaseException:
                stack.close()
                raise
        return stack

    return enter


@contextmanager
def placed(names: tuple[str, ...]) -> Iterator[None]:
    """Where the tensors of a program are made."""
    with ExitStack() as stack:
        for name in names:
            if name.startswith("simulated"):
                gc.collect(1)  # what programs before have left
                simulated.reset()
                policy = name.partition(" ")[2]
                stack.enter_context(simulated.configured(policy=policy, seed=0))
                stack.enter_context(t.device("simulated"))
            elif name in DEVICES:
                stack.enter_context(t.device(name))
        yield


def aftermath() -> str:
    """What is wrong on the device once a program is gone: it is collected, others run."""
    gc.collect(1)
    try:
        for size in (1, 3, 16, 40):
            (t.ones(size, dtype=t.float64, device=DEVICES[0].split()[0]) * 2).sum().item()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""
