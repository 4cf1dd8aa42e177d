"""The contexts that must not change what a program of cugrad's computes, by name."""

from __future__ import annotations

import gc
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


class Exact:
    """A codec that loses nothing: what is encoded takes the path of codecs, bitwise."""

    name = "exact"

    def applies(self, dtype: Any) -> bool:
        return np.dtype(dtype).kind in "fc"

    def encode(self, xp: Any, array: Any) -> Any:
        return xp.ascontiguousarray(array).reshape(-1).view(np.uint8)[::-1].copy()

    def decode(self, xp: Any, payload: Any, dtype: Any, shape: Any) -> Any:
        return payload[::-1].copy().view(dtype).reshape(shape)


def budget(limit: str) -> Any:
    return memory.budget(limit, device=str(t.get_default_device()))


def to_numpy(x: Any) -> Any:
    return x.detach().cpu().numpy().copy(), x.device


def copies() -> Any:
    """What offloading does, in the simplest way: leaves stay, and what has no elements; of all else
    there is a copy.
    """
    return saved_tensors_hooks(
        lambda x: x if is_part_of_leaf(x) or not x.numel() else x.detach().clone(), lambda x: x
    )


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
    "offload": lambda: memory.offload(min_bytes=0, keep_last=0),
    "offload learns": lambda: memory.offload(min_bytes=0),
    "offload exact": lambda: memory.offload(min_bytes=0, keep_last=0, compress=Exact()),
    "offload host 0": lambda: memory.offload(min_bytes=0, keep_last=0, host_limit=0),
    "save_on_cpu": lambda: memory.save_on_cpu(),
    "save_on_cpu pinned": lambda: memory.save_on_cpu(pin_memory=True, device_type="simulated"),
    "save_on_disk": lambda: memory.save_on_disk(tempfile.gettempdir(), min_bytes=0),
    "identity": lambda: saved_tensors_hooks(lambda x: x, lambda x: x),
    "clone": lambda: saved_tensors_hooks(lambda x: x.detach().clone(), lambda x: x),
    "copies": copies,
    "numpy": lambda: saved_tensors_hooks(to_numpy, lambda p: t.tensor(p[0], device=p[1])),
    "autocast off": lambda: t.amp.autocast("cpu", enabled=False),
    "range": lambda: profiler.record_function("all"),
}  # fmt: skip

# Those that copy what is saved: what a program changes in place after it was saved is an error
# without them, and none with them.
COPYING = {name for name in CONTEXTS if name.startswith(("offload", "save_on", "budget"))} | {
    "clone", "copies", "numpy", "recompute", "recompute all",
}  # fmt: skip

# Those that must do then what "copies" does; from the host only one of them moves anything.
MOVING = {
    "offload", "offload learns", "offload exact", "offload host 0", "save_on_cpu",
    "save_on_cpu pinned", "save_on_disk",
}  # fmt: skip
MOVING_ON_HOST = {"save_on_disk"}

# Around all of a program: where its tensors are, and in which thread it runs.
PLACES = ("thread", "simulated earliest", "simulated latest", "simulated random")


def entered(names: tuple[str, ...]) -> Callable[[], AbstractContextManager[Any]]:
    """What a program calls `context`: all that is named, from the outside in."""

    def enter() -> AbstractContextManager[Any]:
        stack = ExitStack()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                for name in names:
                    if name not in PLACES:
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
        yield


def aftermath() -> str:
    """What is wrong on the simulated device once a program is gone: it is collected, others run."""
    gc.collect(1)
    try:
        for size in (1, 3, 16, 40):
            (t.ones(size, dtype=t.float64, device="simulated") * 2).sum().item()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""
