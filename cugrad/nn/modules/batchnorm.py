"""Batch norms, and what they share with instance norms."""

from __future__ import annotations

from functools import partial
from typing import Any

from ... import dtypes
from ...functions.creation.factories import empty, ones, tensor, zeros
from ...functions.shapes.copies import cat
from ...runtime.dispatching import are_asked
from ...tensor import Tensor
from .. import init
from ..functional.norm import batch_norm, counted_batch_norm
from ..parameter import Parameter, UninitializedBuffer
from .lazy import LazyModuleMixin
from .module import Module

__all__ = [
    "BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "LazyBatchNorm1d", "LazyBatchNorm2d",
    "LazyBatchNorm3d", "SyncBatchNorm",
]  # fmt: skip


class _NormBase(Module):
    """Normalise every channel of (N, C, ...) to mean 0, variance 1, then scale and shift.

    In training mode with the batch's own statistics, which also update the running ones:
    running = (1 - momentum) * running + momentum * batch, or the plain average over all batches
    when `momentum` is None. In evaluation mode with the running ones, where they are tracked.
    Source: Ioffe & Szegedy 2015, https://arxiv.org/abs/1502.03167.
    """

    _dims: tuple[int, ...] = ()  # what inputs may have
    _version = 2  # num_batches_tracked came with 2

    running_mean: Tensor | None
    running_var: Tensor | None
    num_batches_tracked: Tensor | None

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: dtypes.dtype | None = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.num_features = num_features
        self.eps = eps
        self.momentum = momentum
        self.affine = affine
        self.track_running_stats = track_running_stats

        def parameter(present: bool) -> Parameter | None:
            if not present:
                return None
            return Parameter(empty(num_features, device=device, dtype=dtype))

        self.register_parameter("weight", parameter(affine))
        self.register_parameter("bias", parameter(affine and bias))
        stats: list[Tensor | None] = [None, None, None]
        if track_running_stats:
            stats = [
                zeros(num_features, device=device, dtype=dtype),
                ones(num_features, device=device, dtype=dtype),
                tensor(0, device=device, dtype=dtypes.int64),
            ]
        for name, value in zip(("running_mean", "running_var", "num_batches_tracked"), stats):
            self.register_buffer(name, value)
        self.reset_parameters()

    def reset_running_stats(self) -> None:
        """Forget what was seen: mean 0, variance 1, no batches."""
        if self.running_mean is not None:
            init.zeros_(self.running_mean)
        if self.running_var is not None:
            init.ones_(self.running_var)
        if self.num_batches_tracked is not None:
            self.num_batches_tracked.zero_()

    def reset_parameters(self) -> None:
        """Scale 1, shift 0, and no statistics."""
        self.reset_running_stats()
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        """Normalise `input`, whose channels are dim 1."""
        self._check_input_dim(input)
        factor: float | Tensor = 0.0 if self.momentum is None else self.momentum
        counts = self.training and self.track_running_stats
        batches = self.num_batches_tracked if counts else None
        if batches is not None and (self.momentum is None or are_asked((input,))):
            batches.add_(1)
            if self.momentum is None:
                factor = 1.0 / batches.double()  # no waiting for the device
            batches = None
        tracked = self.track_running_stats or not self.training
        norm = batch_norm if batches is None else partial(counted_batch_norm, batches=batches)
        return norm(
            input,
            self.running_mean if tracked else None,
            self.running_var if tracked else None,
            self.weight,
            self.bias,
            self.training or self.running_mean is None,
            factor,
            self.eps,
        )

    def _check_input_dim(self, input: Tensor) -> None:
        if not self._dims:  # of a class of the program's own, which has to say it
            raise NotImplementedError
        if input.dim() not in self._dims:
            dims = " or ".join(f"{n}D" for n in self._dims)
            raise ValueError(f"expected {dims} input (got {input.dim()}D input)")

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        if local_metadata.get("version", 1) < 2 and self.num_batches_tracked is not None:
            # a plain dict carries no version: the counter may be absent, as in old checkpoints
            state_dict.setdefault(prefix + "num_batches_tracked", self.num_batches_tracked)
        super()._load_from_state_dict(
            state_dict,
            prefix,
            local_metadata,
            strict,
            missing_keys,
            unexpected_keys,
            error_msgs,
        )

    def extra_repr(self) -> str:
        """Size and settings."""
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, "
            f"affine={self.affine}, bias={self.bias is not None}, "
            f"track_running_stats={self.track_running_stats}"
        )


class _BatchNorm(_NormBase):
    """What batch norms are, for `isinstance`."""


class BatchNorm1d(_BatchNorm):
    """Normalise every channel of (N, C) or (N, C, L) to mean 0, variance 1, then scale and shift.

    The batch's own statistics count in training mode, and move the running ones, which count in
    evaluation mode. Source: Ioffe & Szegedy 2015, https://arxiv.org/abs/1502.03167.

    >>> import cugrad as torch
    >>> torch.nn.BatchNorm1d(3)(torch.tensor([[1., 2., 3.], [3., 2., 1.]])).shape
    torch.Size([2, 3])
    """

    _dims = (2, 3)


class BatchNorm2d(_BatchNorm):
    """Normalise every channel of (N, C, H, W); see `BatchNorm1d`.

    >>> import cugrad as torch
    >>> from cugrad import nn
    >>> norm = nn.BatchNorm2d(3)
    >>> norm(torch.ones(2, 3, 4, 4)).shape
    torch.Size([2, 3, 4, 4])
    """

    _dims = (4,)


class BatchNorm3d(_BatchNorm):
    """Normalise every channel of (N, C, D, H, W); see `BatchNorm1d`."""

    _dims = (5,)


class _LazyNormBase(LazyModuleMixin, _NormBase):
    """A norm whose `num_features` are the channels of its first input."""

    running_mean: Any
    running_var: Any

    def __init__(
        self, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = True,
        track_running_stats: bool = True, device: Any = None, dtype: dtypes.dtype | None = None,
        *, bias: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(0, eps, momentum, False, False, device, dtype, bias=False)
        self.affine, self.track_running_stats = affine, track_running_stats
        if affine:
            self._declare("weight bias" if bias else "weight", device, dtype)
        if track_running_stats:
            self.running_mean = UninitializedBuffer(device=device, dtype=dtype)
            self.running_var = UninitializedBuffer(device=device, dtype=dtype)
            self.num_batches_tracked = tensor(0, device=device, dtype=dtypes.int64)

    def reset_parameters(self) -> None:
        """Scale 1, shift 0, and no statistics, once there is room for them."""
        if not self.has_uninitialized_params() and self.num_features != 0:
            super().reset_parameters()

    def initialize_parameters(self, input: Tensor) -> None:
        """Take the number of channels of `input`, dim 1."""
        if self.num_features == 0:  # also where the parameters were loaded
            self.num_features = input.shape[1]
        if not self.has_uninitialized_params():
            return
        for t in (self.weight, self.bias, self.running_mean, self.running_var):
            if t is not None:
                t.materialize((self.num_features,))
        self.reset_parameters()


class LazyBatchNorm1d(_LazyNormBase, _BatchNorm):
    """A BatchNorm1d whose `num_features` are the channels of its first input.

    >>> import cugrad as torch
    >>> torch.nn.LazyBatchNorm1d()(torch.ones(2, 3)).shape
    torch.Size([2, 3])
    """

    cls_to_become = BatchNorm1d


class LazyBatchNorm2d(_LazyNormBase, _BatchNorm):
    """A BatchNorm2d whose `num_features` are the channels of its first input."""

    cls_to_become = BatchNorm2d


class LazyBatchNorm3d(_LazyNormBase, _BatchNorm):
    """A BatchNorm3d whose `num_features` are the channels of its first input."""

    cls_to_become = BatchNorm3d


class SyncBatchNorm(_BatchNorm):
    """A batch norm of (N, C, ...) whose statistics in training are those of all ranks' batches.

    `process_group` are the ranks that share statistics, by default all ranks; in one process, or
    before `distributed.init_process_group`, it is a batch norm.

    >>> import cugrad as torch
    >>> torch.nn.SyncBatchNorm(3)(torch.randn(4, 3, 5)).shape
    torch.Size([4, 3, 5])
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_group: Any = None,
        device: Any = None,
        dtype: dtypes.dtype | None = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(
            num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias
        )
        self.process_group = process_group

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"expected at least 2D input (got {input.dim()}D input)")
        if input.shape[1] == 0:
            raise ValueError("SyncBatchNorm number of input channels should be non-zero")

    def forward(self, input: Tensor) -> Tensor:
        """Normalise `input`, whose channels are dim 1."""
        from ... import distributed as dist  # wanted only here

        group = self.process_group
        batch = self.training or self.running_mean is None
        if not batch or not dist.is_initialized() or dist.get_world_size(group) == 1:
            return super().forward(input)
        self._check_input_dim(input)
        x = input.float() if input.dtype.itemsize < 4 else input
        dims, shape = [0, *range(2, x.dim())], (1, -1, *[1] * (x.dim() - 2))
        count = x.numel() // x.shape[1]
        own = x.mean(dims) if count else x.sum(dims)
        squares = ((x - own.reshape(shape)) ** 2).sum(dims)
        counts = zeros(1, dtype=x.dtype, device=x.device) + count
        reduce = dist.nn.functional.all_reduce
        total = reduce(cat([own * count, counts]), group=group)
        mean, number = total[:-1] / total[-1], total[-1]
        # of all ranks' squares around their own means, those around the mean of all
        var = reduce(squares + count * (own - mean) ** 2, group=group) / number
        if self.training and self.track_running_stats:
            self._move(mean.detach(), (var * number / (number - 1)).detach())
        out = (x - mean.reshape(shape)) * (var + self.eps).rsqrt().reshape(shape)
        if self.weight is not None:
            out = out * self.weight.reshape(shape)
        if self.bias is not None:
            out = out + self.bias.reshape(shape)
        return out.to(input.dtype)

    def _move(self, mean: Tensor, var: Tensor) -> None:
        """Moves the running statistics towards those of a batch."""
        assert self.num_batches_tracked is not None
        self.num_batches_tracked.add_(1)
        share: Any = self.momentum
        if share is None:
            share = 1.0 / self.num_batches_tracked.double()
        for running, value in ((self.running_mean, mean), (self.running_var, var)):
            assert running is not None
            running.copy_(running + (value - running) * share)

    @classmethod
    def convert_sync_batchnorm(cls, module: Module, process_group: Any = None) -> Module:
        """The module with a SyncBatchNorm in the place of each batch norm in it."""
        converted = module
        if isinstance(module, _BatchNorm):
            twin = SyncBatchNorm(
                module.num_features, module.eps, module.momentum, module.affine,
                module.track_running_stats, process_group, bias=module.bias is not None,
            )  # fmt: skip
            for name in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked"):
                setattr(twin, name, getattr(module, name))
            converted = twin.train(module.training)
        for name, child in module.named_children():
            converted.add_module(name, cls.convert_sync_batchnorm(child, process_group))
        return converted
