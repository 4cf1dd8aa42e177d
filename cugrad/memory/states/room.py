"""Whether a disk has room for what is to live there, said before anything is computed."""

from __future__ import annotations

import os
from typing import Any

from ...tensor import Tensor
from ..disk.files import FULL, DiskFullError, scratch_directory
from ..sizes import size
from .placed import tensors_in
from .steps import home_of

__all__ = ["check_disk"]


def check_disk(
    params: list[Tensor], optimizers: list[Any], names: dict[int, str], places: dict[str, str],
    least: int, has_masters: bool, directory: Any,
) -> None:  # fmt: skip
    """DiskFullError if a directory has less room than weights and states need at least, and what
    of them is the most. What is in files already is counted there.
    """
    kinds = [kind for kind in ("weights", "states") if places[kind] == "disk"]
    if not kinds:
        return
    moving = [p for p in params if p.ndim and p.nbytes >= least and not p.is_meta]
    needed = dict.fromkeys(kinds, 0)
    if "weights" in kinds:
        needed["weights"] = sum([p.nbytes for p in moving if not _is_in_file(p)])
    if "states" in kinds:
        groups = {id(p): (o, g) for o in optimizers for g in o.param_groups for p in g["params"]}
        needed["states"] = sum([
            _bytes_of_states(*groups[id(p)], p, has_masters) for p in moving if id(p) in groups
        ])  # fmt: skip
    directory, total = scratch_directory(directory), sum(needed.values())
    free = _free(directory)
    if free is None or total <= free:
        return
    largest = max(moving, key=lambda param: param.nbytes)
    said = " and ".join([f"{size(nbytes)} of {kind}" for kind, nbytes in needed.items()])
    other = {"weights": "host", "states": "stream"}
    advice = " or ".join([f'{kind}="{other[kind]}"' for kind in kinds])
    raise DiskFullError(
        FULL[0],
        f"offload_states: {directory} has {size(free)} free, and {size(total)} are needed at "
        f"least: {said}, of which {names.get(id(largest), 'a parameter')} with "
        f"{size(largest.nbytes)} is the largest; want another directory, or {advice}, which the "
        "host has to have room for",
    )


def _free(directory: str) -> int | None:
    """Bytes that a file system has left for this user; None where it does not say."""
    try:
        status = os.statvfs(directory)
    except (OSError, AttributeError):  # not on Windows
        return None
    return status.f_bavail * status.f_frsize


def _is_in_file(tensor: Any) -> bool:
    """Whether a file has a tensor already, as what another context has left there."""
    home = home_of(tensor)
    return home is not None and home.span is not None and not home.engine.is_on_host(home.span)


def _bytes_of_states(optimizer: Any, group: Any, param: Tensor, has_masters: bool) -> int:
    """Bytes of states that are to go to files: what a parameter has, or will have at least."""
    kept = optimizer.state.get(param)
    if kept:
        several = [each for each in tensors_in(kept) if each.ndim]
        return sum([each.nbytes for each in several if not _is_in_file(each)])
    if not param.requires_grad or not optimizer._by_element:
        return 0  # nothing is known of it
    has_masters = has_masters and param.itemsize == 2
    count = len(optimizer._rule.arrays_of(group)) if optimizer._remembers(group) else 0
    return (count + has_masters) * (4 * param.numel() if has_masters else param.nbytes)
