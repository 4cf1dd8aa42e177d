"""DataParallel: a module on several devices at once, each with a part of the batch."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

from ... import cuda
from ...autograd.mode import is_grad_enabled
from ..modules.module import Module
from .parallel_apply import parallel_apply
from .replicate import replicate
from .scatter_gather import device_of, gather, scatter_kwargs

__all__ = ["DataParallel", "data_parallel"]


def _devices(device_ids: Sequence[Any] | None) -> list[Any]:
    """The devices of these numbers or names, of all GPUs for None; none where there is no GPU."""
    if device_ids is None:
        device_ids = range(cuda.device_count()) if cuda.is_available() else ()
    elif not cuda.is_available():
        device_ids = [d for d in device_ids if not isinstance(d, int)]
    return [device_of(d) for d in device_ids]


class DataParallel(Module):
    """Calls `module` on several devices, each with its part of the inputs along `dim`.

    In each call the module is copied to all devices, the copies run in threads, and the outputs are
    joined on `output_device`. Gradients add up in the one module. On one device, or where there is
    no GPU, it is the call of the module.

    Args:
        module: its parameters and buffers lie on the first device.
        device_ids: numbers of GPUs, or devices; default all GPUs.
        output_device: default the first device.
        dim: the dimension of the batch.

    >>> import cugrad as torch
    >>> net = torch.nn.DataParallel(torch.nn.Linear(3, 2), device_ids=["cpu", "cpu"])
    >>> net(torch.ones(4, 3, device="cpu")).shape
    torch.Size([4, 2])
    """

    def __init__(
        self,
        module: Module,
        device_ids: Sequence[Any] | None = None,
        output_device: Any = None,
        dim: int = 0,
    ) -> None:
        super().__init__()
        self.module, self.dim = module, dim
        self.device_ids = _devices(device_ids)
        if not self.device_ids:
            return
        first = self.device_ids[0]
        self.output_device = first if output_device is None else device_of(output_device)
        self.src_device_obj = first
        if len(self.device_ids) == 1:
            module.to(first)

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        if not self.device_ids:
            return self.module(*inputs, **kwargs)
        _check_home(self.module, self.src_device_obj)
        pieces, named = self.scatter(inputs, kwargs, self.device_ids)
        if not pieces and not named:
            pieces, named = ((),), ({},)
        if len(self.device_ids) == 1:
            return self.module(*pieces[0], **named[0])
        replicas = self.replicate(self.module, self.device_ids[: len(pieces)])
        return self.gather(self.parallel_apply(replicas, pieces, named), self.output_device)

    def replicate(self, module: Module, device_ids: Sequence[Any]) -> list[Any]:
        return replicate(module, device_ids, not is_grad_enabled())

    def scatter(self, inputs: Any, kwargs: Any, device_ids: Sequence[Any]) -> Any:
        return scatter_kwargs(inputs, kwargs, device_ids, dim=self.dim)

    def parallel_apply(self, replicas: Sequence[Any], inputs: Any, kwargs: Any) -> list[Any]:
        return parallel_apply(replicas, inputs, kwargs, self.device_ids[: len(replicas)])

    def gather(self, outputs: Any, output_device: Any) -> Any:
        return gather(outputs, output_device, dim=self.dim)


def _check_home(module: Module, home: Any) -> None:
    for t in chain(module.parameters(), module.buffers()):
        if (t.device.type, t.device.index or 0) != (home.type, home.index or 0):
            raise RuntimeError(
                f"module must have its parameters and buffers on device {home} (device_ids[0]) but "
                f"found one of them on device: {t.device}"
            )


def data_parallel(
    module: Module,
    inputs: Any,
    device_ids: Sequence[Any] | None = None,
    output_device: Any = None,
    dim: int = 0,
    module_kwargs: dict[str, Any] | None = None,
) -> Any:
    """`module(*inputs, **module_kwargs)` on several devices: DataParallel, as a function.

    RuntimeError where no device is named and there is no GPU.
    """
    args = inputs if isinstance(inputs, tuple) else () if inputs is None else (inputs,)
    devices = _devices(device_ids)
    if not devices:
        raise RuntimeError("data_parallel: no available devices were found; call the module itself")
    whole = DataParallel(module, devices, output_device, dim)
    return whole(*args, **(module_kwargs or {}))
