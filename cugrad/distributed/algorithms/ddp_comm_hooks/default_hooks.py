"""Hooks for `DistributedDataParallel.register_comm_hook`: an average, in full or half precision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .... import dtypes
from ....futures import Future
from ....tensor import Tensor
from ...collectives import all_reduce
from ...groups import ProcessGroup, default_group

__all__ = [
    "allreduce_hook", "bf16_compress_hook", "bf16_compress_wrapper", "fp16_compress_hook",
    "fp16_compress_wrapper",
]  # fmt: skip

Hook = Callable[[Any, Any], Future[Any]]


def _averaged(group: ProcessGroup | None, tensor: Tensor) -> Future[Any]:
    group = group or default_group()
    work = all_reduce(tensor.div_(group.size()), group=group, async_op=True)
    assert work is not None
    return work.get_future().then(lambda future: future.value()[0])


def _compressed(group: ProcessGroup | None, bucket: Any, dtype: Any) -> Future[Any]:
    buffer = bucket.buffer()
    future = _averaged(group, buffer.to(dtype))
    return future.then(lambda f: buffer.copy_(f.value()))


def allreduce_hook(process_group: ProcessGroup | None, bucket: Any) -> Future[Any]:
    """The average of all ranks' gradients: what is done without a hook."""
    return _averaged(process_group, bucket.buffer())


def fp16_compress_hook(process_group: ProcessGroup | None, bucket: Any) -> Future[Any]:
    """The average, of gradients that travel as float16."""
    return _compressed(process_group, bucket, dtypes.float16)


def bf16_compress_hook(process_group: ProcessGroup | None, bucket: Any) -> Future[Any]:
    """The average, of gradients that travel as bfloat16."""
    return _compressed(process_group, bucket, dtypes.bfloat16)


def _wrapped(hook: Hook, dtype: Any) -> Hook:
    def compressing(state: Any, bucket: Any) -> Future[Any]:
        buffer = bucket.buffer()
        bucket.set_buffer(buffer.to(dtype))
        return hook(state, bucket).then(lambda f: buffer.copy_(f.value()))

    return compressing


def fp16_compress_wrapper(hook: Hook) -> Hook:
    """A hook whose bucket is given to it in float16."""
    return _wrapped(hook, dtypes.float16)


def bf16_compress_wrapper(hook: Hook) -> Hook:
    """A hook whose bucket is given to it in bfloat16."""
    return _wrapped(hook, dtypes.bfloat16)
