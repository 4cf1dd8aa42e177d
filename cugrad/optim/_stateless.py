"""An optimizer that works on other parameters and states for a while."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..tensor import Tensor
from .optimizer import Optimizer

__all__ = ["swap_in_optimizer_params_and_state"]

NAME = "swap_in_optimizer_params_and_state"


@contextmanager
def swap_in_optimizer_params_and_state(
    optimizer: Optimizer, swapin_parameters: dict[str, Tensor], swapin_optim_state: dict[str, Any]
) -> Iterator[None]:
    """Within it an optimizer has other parameters, and the settings and states of a state dict.

    The parameters are in the order of the optimizer's groups. States are in new dictionaries, but
    their tensors are those of the state dict, and are changed. All is put back at the end.

    Raises:
        RuntimeError: the optimizer has no state yet; the state dict is not that of an optimizer
            with groups of the same sizes and settings; there are too few parameters.

    >>> import cugrad as torch
    >>> w = torch.ones(1, requires_grad=True)
    >>> optimizer = torch.optim.SGD([w], lr=0.5, momentum=0.9)
    >>> w.grad = torch.ones(1)
    >>> optimizer.step()
    >>> other = torch.zeros(1, requires_grad=True)
    >>> saved = optimizer.state_dict()
    >>> with torch.optim.swap_in_optimizer_params_and_state(optimizer, {"w": other}, saved):
    ...     optimizer.param_groups[0]["params"][0] is other
    True
    """
    states = _checked_states(optimizer, swapin_optim_state)
    swaps = list(_swaps(optimizer, swapin_parameters, swapin_optim_state["param_groups"], states))
    before, groups = optimizer.state, [dict(group) for group in optimizer.param_groups]
    try:
        optimizer.state = defaultdict(dict)
        for group, settings, params in swaps:
            group.update({key: v for key, v in settings.items() if key != "params"}, params=params)
            for param, number in zip(params, settings["params"]):
                optimizer.state[param] = dict(states.get(number, {}))
        yield
    finally:
        for group, entries in zip(optimizer.param_groups, groups, strict=True):
            group.clear()
            group.update(entries)
        optimizer.state = before


def _checked_states(optimizer: Optimizer, saved: Any) -> dict[Any, Any]:
    """The states by number. RuntimeError unless it is a state dict that fits."""
    if not optimizer.state:
        raise RuntimeError(f"{NAME} requires initialized optimizer state.")
    if not isinstance(saved, dict):
        raise RuntimeError(f"{NAME} requires a DCP-style optimizer state_dict.")
    states, groups = saved.get("state"), saved.get("param_groups")
    if not isinstance(states, dict):
        raise RuntimeError(
            f"{NAME} requires swapin_optim_state['state'] to be a dict mapping packed parameter "
            f"ids to per-param state dicts, got {type(states).__name__}."
        )
    if any(isinstance(key, Tensor) for key in states):
        raise RuntimeError(
            f"{NAME} requires optimizer.state_dict()-style state keyed by packed parameter ids."
        )
    if any(isinstance(key, int) and not isinstance(v, dict) for key, v in states.items()):
        raise RuntimeError(
            f"{NAME} requires per-parameter optimizer state entries to be dictionaries."
        )
    if not isinstance(groups, list):
        raise RuntimeError(
            f"{NAME} requires swapin_optim_state['param_groups'] to be a list of param-group "
            f"dicts, got {type(groups).__name__}."
        )
    if len(optimizer.param_groups) != len(groups):
        raise RuntimeError(
            "swapin_optim_state has a different number of parameter groups than the live optimizer."
        )
    return states


def _swaps(
    optimizer: Optimizer, parameters: dict[str, Tensor], groups: list[Any], states: dict[Any, Any]
) -> Iterator[tuple[dict[str, Any], dict[str, Any], list[Tensor]]]:
    """Each group of the optimizer, with the settings and the parameters that it is to have."""
    flat, numbers = list(parameters.values()), set()
    for at, (group, settings) in enumerate(zip(optimizer.param_groups, groups, strict=True)):
        ids = settings.get("params") if isinstance(settings, dict) else None
        if not isinstance(ids, list) or not all(isinstance(number, int) for number in ids):
            raise RuntimeError(
                f"{NAME} requires optimizer.state_dict()-style param_groups[*]['params'] entries "
                "keyed by packed parameter ids."
            )
        if len(group["params"]) != len(ids):
            raise RuntimeError(
                f"swapin_optim_state param group {at} has a different number of params than the "
                "live optimizer param group."
            )
        if settings.keys() != group.keys():
            raise RuntimeError(
                f"{NAME} requires optimizer.state_dict()-style param group keys to exactly match "
                f"the live optimizer group keys for group {at}. Keys only in swap-in: "
                f"{sorted(settings.keys() - group.keys())}. Keys only in live: "
                f"{sorted(group.keys() - settings.keys())}."
            )
        if len(flat) < len(ids):
            raise RuntimeError(
                f"{NAME} requires the explicit parameter state to match optimizer.param_groups "
                "ordering."
            )
        numbers.update(ids)
        yield group, settings, flat[: len(ids)]
        flat = flat[len(ids) :]
    extra = [key for key in states if key not in numbers]
    if extra:
        raise RuntimeError(
            f"{NAME} requires swapin_optim_state['state'] to be keyed only by packed parameter ids "
            f"from param_groups[*]['params']; got extra keys {extra!r}."
        )
