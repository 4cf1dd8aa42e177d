"""`materialise`: a model that is built without memory, and filled weight by weight in its place."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from ..autograd.mode import no_grad
from ..device import default_device
from ..device import device as Device
from ..memory.states.context import offload_states
from ..tensor import Tensor
from .sharded import load_checkpoint

__all__ = ["materialise"]

SHOWN = 5  # names in an error


def materialise(
    model_fn: Callable[[], Any],
    state_dict: Mapping[str, Tensor] | str | os.PathLike[str],
    *,
    device: Device | str | None = None,
    weights: str = "device",
    window: int | str | None = None,
    min_bytes: int | str = 1 << 16,
    host_limit: int | str | None = None,
    directory: Any = None,
) -> Any:
    """The model that `model_fn` builds, with the values of a state dict, where it need never fit.

    It is built on the meta device, so that nothing is allocated or drawn. Then each weight is read,
    goes to the device in the dtype that the model says, and on to its place before the next one.
    The elements of a file are read just then, and so are those of what `load_file(path)`,
    `load_checkpoint(path)` or `load(path, mmap=True)` make of one. An `offload_states` on the model
    takes over what is elsewhere.

    Args:
        model_fn: builds a Module; what it computes with elements, it cannot.
        state_dict: a tensor for each parameter and buffer, by name, as `model.state_dict()` has; or
            the path of a file with them, ".safetensors" or what `save` wrote, of an index of
            several, or of a folder that has one of these.
        device: None: the default device.
        weights: "device", "host" or "disk": where parameters of `min_bytes` and more go.
        window, min_bytes, host_limit, directory: as of `offload_states`.

    RuntimeError, before anything is read, for names that are missing or not the model's, for shapes
    that differ, and for buffers that no state dict has.

    >>> import cugrad as torch
    >>> values = {"weight": torch.ones(2, 3), "bias": torch.zeros(2)}
    >>> net = torch.memory.materialise(lambda: torch.nn.Linear(3, 2), values, device="cpu")
    >>> net(torch.ones(3)).tolist()
    [3.0, 3.0]
    """
    if isinstance(state_dict, (str, os.PathLike)):
        state_dict = load_checkpoint(state_dict)
    if not isinstance(state_dict, Mapping):
        raise TypeError(
            f"materialise: state_dict: got {type(state_dict).__name__}, want a mapping of names to "
            "tensors, or a path"
        )
    with Device("meta"):
        model = model_fn()
    _check(model, state_dict)
    target = default_device() if device is None else Device(device)
    made_of: dict[int, Any] = {}  # what has been filled, by the id of what is on the meta device
    elsewhere = offload_states(
        [], weights=weights, window=window, min_bytes=min_bytes, host_limit=host_limit,
        directory=directory, bring_back=False,
    )  # fmt: skip
    with elsewhere, no_grad():
        for prefix, module in model.named_modules():
            for kept in (module._parameters, module._buffers):
                for name, empty in list(kept.items()):
                    if empty is None:
                        continue
                    if id(empty) not in made_of:
                        value = state_dict[f"{prefix}.{name}" if prefix else name]
                        value = value.detach().to(target, empty.dtype, copy=True)
                        if kept is module._parameters:
                            value = type(empty)(value, empty.requires_grad)
                            elsewhere.take_over(value)
                        made_of[id(empty)] = empty, value
                    kept[name] = made_of[id(empty)][1]
    return model


def _check(model: Any, state_dict: Mapping[str, Tensor]) -> None:
    expected = model.state_dict()
    lost = [name for name, buffer in model.named_buffers() if name not in expected]
    if lost:
        raise RuntimeError(
            f"materialise: no state dict has the buffers {_names(lost)}, which are not persistent, "
            "and what they were computed from is not there on the meta device; have the model make "
            "them in forward"
        )
    missing = [name for name in expected if name not in state_dict]
    others = [name for name in state_dict if name not in expected]
    if missing or others:
        raise RuntimeError(
            f"materialise: the state dict lacks {_names(missing) or 'nothing'}, and has "
            f"{_names(others) or 'nothing'} that {type(model).__name__} does not have"
        )
    for name, tensor in expected.items():
        if tensor.shape != state_dict[name].shape:
            raise RuntimeError(
                f"materialise: {name}: got {tuple(state_dict[name].shape)}, want "
                f"{tuple(tensor.shape)}"
            )


def _names(names: list[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
