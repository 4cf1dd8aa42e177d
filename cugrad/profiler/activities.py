"""What a profile can look at."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Any

from .. import backends

__all__ = ["ProfilerActivity", "kineto_available", "parse_activities", "supported_activities"]


class ProfilerActivity(Enum):
    """The host, or a kind of device; PrivateUse1 is the simulated one."""

    CPU = 0
    CUDA = 1
    PrivateUse1 = 2


def supported_activities() -> set[ProfilerActivity]:
    """What there is to look at here: the CPU, and CUDA where there is a GPU.

    >>> ProfilerActivity.CPU in supported_activities()
    True
    """
    activities = {ProfilerActivity.CPU}
    if backends.is_usable("cuda"):
        activities.add(ProfilerActivity.CUDA)
    return activities


def kineto_available() -> bool:
    """Whether Kineto, PyTorch's own library, is used: no, Python and CUPTI do its work.

    >>> kineto_available()
    False
    """
    return False


def parse_activities(
    activities: Iterable[Any] | None,
) -> tuple[set[ProfilerActivity], dict[ProfilerActivity, set[str]]]:
    """Activities, and for some of them the names of what is wanted of them.

    >>> parse_activities([ProfilerActivity.CPU, {ProfilerActivity.CUDA: ["GPU_MEMCPY"]}])[1]
    {<ProfilerActivity.CUDA: 1>: {'GPU_MEMCPY'}}
    """
    if activities is None:
        return supported_activities(), {}
    if not isinstance(activities, Iterable):
        raise TypeError(f"profile: activities: got {activities!r}, want several, as [{activities}]")
    selected: set[ProfilerActivity] = set()
    filters: dict[ProfilerActivity, set[str]] = {}
    for item in activities:
        if not isinstance(item, (ProfilerActivity, dict)):
            raise TypeError(f"Expected ProfilerActivity or dict, got {type(item)}")
        for activity in [item] if isinstance(item, ProfilerActivity) else item:
            if activity in selected:
                raise ValueError(f"Activity {activity} specified more than once")
            selected.add(activity)
        if isinstance(item, dict):
            filters.update({key: set(names) for key, names in item.items()})
    return selected, filters
