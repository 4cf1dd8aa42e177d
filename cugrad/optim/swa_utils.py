"""Averages of a model's weights over training, and the rates and running statistics for them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from itertools import chain
from typing import Any

from ..autograd.mode import no_grad
from ..dtypes import int64
from ..functions.creation.factories import tensor
from ..nn.modules.batchnorm import _BatchNorm
from ..nn.modules.module import Module
from ..runtime.absent import explain
from ..tensor import Tensor
from .lr_scheduler.scheduler import LRScheduler, Rates, one_for_each_group
from .optimizer import Optimizer

__all__ = [
    "AveragedModel", "SWALR", "get_ema_avg_fn", "get_ema_multi_avg_fn", "get_swa_avg_fn",
    "get_swa_multi_avg_fn", "update_bn",
]  # fmt: skip

Average = Callable[[Tensor, Tensor, Any], Tensor]
MultiAverage = Callable[[Sequence[Tensor], Sequence[Tensor], Any], None]


def _check_decay(decay: float) -> None:
    if decay < 0.0 or decay > 1.0:
        raise ValueError(
            f"Invalid decay value {decay} provided. Please provide a value in [0,1] range."
        )


def get_ema_avg_fn(decay: float = 0.999) -> Average:
    """A function of an average and a new value: decay * average + (1 - decay) * value.

    ValueError unless decay is in [0, 1].

    >>> import cugrad as torch
    >>> average = torch.optim.swa_utils.get_ema_avg_fn(0.75)
    >>> average(torch.tensor(0.0), torch.tensor(4.0), 1)
    tensor(1.)
    """
    _check_decay(decay)

    @no_grad()
    def ema_update(ema_param: Tensor, current_param: Tensor, num_averaged: Any) -> Tensor:
        return decay * ema_param + (1 - decay) * current_param

    return ema_update


def get_swa_avg_fn() -> Average:
    """A function of the mean of n values and a new one: the mean of all n + 1.

    >>> import cugrad as torch
    >>> average = torch.optim.swa_utils.get_swa_avg_fn()
    >>> average(torch.tensor(0.0), torch.tensor(4.0), 1)
    tensor(2.)
    """

    @no_grad()
    def swa_update(averaged_param: Tensor, current_param: Tensor, num_averaged: Any) -> Tensor:
        return averaged_param + (current_param - averaged_param) / (num_averaged + 1)

    return swa_update


def get_ema_multi_avg_fn(decay: float = 0.999) -> MultiAverage:
    """What `get_ema_avg_fn` does, for lists of averages and values, in place.

    ValueError unless decay is in [0, 1].

    >>> import cugrad as torch
    >>> average = torch.zeros(1)
    >>> torch.optim.swa_utils.get_ema_multi_avg_fn(0.75)([average], [torch.ones(1) * 4], 1)
    >>> average
    tensor([1.])
    """
    _check_decay(decay)
    return _in_place(get_ema_avg_fn(decay), lambda num_averaged: 1 - decay)


def get_swa_multi_avg_fn() -> MultiAverage:
    """What `get_swa_avg_fn` does, for lists of averages and values, in place.

    >>> import cugrad as torch
    >>> average = torch.zeros(1)
    >>> torch.optim.swa_utils.get_swa_multi_avg_fn()([average], [torch.ones(1) * 4], 1)
    >>> average
    tensor([2.])
    """
    return _in_place(get_swa_avg_fn(), lambda num_averaged: 1 / (num_averaged + 1))


def _in_place(average: Average, weight: Callable[[Any], Any]) -> MultiAverage:
    """An average of lists: averages go a share `weight(num_averaged)` of the way to new values."""

    @no_grad()
    def update(averages: Sequence[Tensor], values: Sequence[Tensor], num_averaged: Any) -> None:
        for mean, value in zip(averages, values, strict=True):
            if mean.is_floating_point() or mean.is_complex():
                mean.lerp_(value.to(mean.dtype), _number(weight(num_averaged)))
            else:
                mean.copy_(average(mean, value, num_averaged))

    return update


def _number(x: Any) -> Any:
    return x.item() if isinstance(x, Tensor) else x


class AveragedModel(Module):
    """A copy of a model whose parameters are the average of those that it is shown.

    `update_parameters(model)` takes the model's parameters into the average: the first are copied,
    the next averaged, each as often as the others unless `avg_fn(average, value, count)` or
    `multi_avg_fn(averages, values, count)`, which works in place, says otherwise. Buffers are
    averaged with `use_buffers`, and copied otherwise. Source: Izmailov et al. 2018,
    https://arxiv.org/abs/1803.05407, and for exponential averages Polyak & Juditsky 1992.

    Args:
        device: where the copy is; that of the model if None.

    Raises:
        AssertionError: both functions are given.

    >>> import cugrad as torch
    >>> model = torch.nn.Linear(1, 1, bias=False)
    >>> averaged = torch.optim.swa_utils.AveragedModel(model)
    >>> for value in (1.0, 3.0):
    ...     _ = model.weight.data.fill_(value)
    ...     averaged.update_parameters(model)
    >>> averaged.module.weight.item()
    2.0
    """

    n_averaged: Tensor

    def __init__(
        self,
        model: Module,
        device: Any = None,
        avg_fn: Average | None = None,
        multi_avg_fn: MultiAverage | None = None,
        use_buffers: bool = False,
    ) -> None:
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise AssertionError("Only one of avg_fn and multi_avg_fn should be provided")
        self.module = deepcopy(model)
        if device is not None:
            self.module = self.module.to(device)
        self.register_buffer("n_averaged", tensor(0, dtype=int64, device=device))
        self.avg_fn, self.multi_avg_fn = avg_fn, multi_avg_fn
        self.use_buffers = use_buffers

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the averaged model makes of its arguments."""
        return self.module(*args, **kwargs)

    @no_grad()
    def update_parameters(self, model: Module) -> None:
        """Takes the parameters of a model, which is of the same kind, into the average."""
        means, values = self._averaged_of(self.module), self._averaged_of(model)
        pairs = [(m.detach(), v.detach().to(m.device)) for m, v in zip(means, values)]
        count = int(self.n_averaged.item())
        if count == 0:
            for mean, value in pairs:
                mean.copy_(value)
        elif self.avg_fn is None:
            average = self.multi_avg_fn or get_swa_multi_avg_fn()
            groups: dict[Any, list[tuple[Tensor, Tensor]]] = {}
            for mean, value in pairs:
                groups.setdefault((mean.device, mean.dtype), []).append((mean, value))
            for (device, _), members in groups.items():
                of_group, new = zip(*members)
                average(of_group, new, self.n_averaged.to(device))
        else:
            for mean, value in pairs:
                mean.copy_(self.avg_fn(mean, value, self.n_averaged.to(mean.device)))
        if not self.use_buffers:
            for mean, value in zip(self.module.buffers(), model.buffers(), strict=True):
                mean.detach().copy_(value.detach())
        self.n_averaged += 1

    def _averaged_of(self, model: Module) -> Iterable[Tensor]:
        """What is averaged: parameters, and with `use_buffers` buffers."""
        return chain(model.parameters(), model.buffers() if self.use_buffers else ())


@no_grad()
def update_bn(loader: Iterable[Any], model: Module, device: Any = None) -> None:
    """Computes the running statistics of batch norms anew, as the mean over a loader's batches.

    A batch is a tensor, or a list or tuple that begins with one; it is moved to `device`.

    >>> import cugrad as torch
    >>> model = torch.nn.BatchNorm1d(1)
    >>> torch.optim.swa_utils.update_bn([torch.ones(2, 1), torch.ones(2, 1) * 3], model)
    >>> model.running_mean
    tensor([2.])
    """
    momenta: dict[Any, Any] = {}
    for module in model.modules():
        if isinstance(module, _BatchNorm):
            module.reset_running_stats()
            momenta[module] = module.momentum
    if not momenta:
        return
    was_training = model.training
    model.train()
    for module in momenta:
        module.momentum = None
    for batch in loader:
        first = batch[0] if isinstance(batch, (list, tuple)) else batch
        model(first if device is None else first.to(device))
    for module, momentum in momenta.items():
        module.momentum = momentum
    model.train(was_training)


class SWALR(LRScheduler):
    """Has the rates go to `swa_lr` in `anneal_epochs`, along half a cosine or a line, and stay.

    Raises:
        ValueError: for another `anneal_strategy` than "cos" and "linear"; anneal_epochs is no
            integer, or negative; a list of rates has the wrong length.

    >>> import cugrad as torch
    >>> optimizer = torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=1.0)
    >>> scheduler = torch.optim.swa_utils.SWALR(
    ...     optimizer, swa_lr=0.5, anneal_epochs=2, anneal_strategy="linear"
    ... )
    >>> optimizer.step()
    >>> scheduler.step()
    >>> scheduler.get_last_lr()
    [0.75]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        swa_lr: float | list[float],
        anneal_epochs: int = 10,
        anneal_strategy: str = "cos",
        last_epoch: int = -1,
    ) -> None:
        rates = one_for_each_group("swa_lr", optimizer, swa_lr)
        for rate, group in zip(rates, optimizer.param_groups, strict=True):
            group["swa_lr"] = rate
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(
                f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}"
            )
        self._anneal_strategy = anneal_strategy
        if not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            raise ValueError(f"anneal_epochs must be equal or greater than 0, got {anneal_epochs}")
        self.anneal_epochs = anneal_epochs
        super().__init__(optimizer, last_epoch)

    def anneal_func(self, t: float) -> float:
        """The share of the way that is gone after a share `t` of the epochs."""
        return (1 - math.cos(math.pi * t)) / 2 if self._anneal_strategy == "cos" else t

    @staticmethod
    def _get_initial_lr(lr: Any, swa_lr: Any, alpha: float) -> Any:
        """The rate at the beginning, of which the share `alpha` of the way to `swa_lr` is gone."""
        return swa_lr if alpha == 1 else (lr - alpha * swa_lr) / (1 - alpha)

    def get_lr(self) -> Rates:
        """The rates of the next epoch, from those before."""
        self._warn_unless_stepping()
        step = self._step_count - 1
        if self.anneal_epochs == 0:
            step = max(1, step)
        shares = [max(0, min(1, each / max(1, self.anneal_epochs))) for each in (step - 1, step)]
        before, now = map(self.anneal_func, shares)
        rates = []
        for group in self.optimizer.param_groups:
            initial = self._get_initial_lr(group["lr"], group["swa_lr"], before)
            rates.append(group["swa_lr"] * now + initial * (1 - now))
        return rates


explain(__name__)
