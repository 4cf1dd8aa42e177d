"""torch.torch_version: a version as a string that compares with versions and with tuples."""

from __future__ import annotations

import re
from typing import Any

__all__ = ["TorchVersion"]


class TorchVersion(str):
    """A version. It compares with a string, a tuple or a version of `packaging` by its numbers.

    >>> TorchVersion("2.13.0+cugrad") >= (2, 4), TorchVersion("2.13.0") < "2.9"
    (True, False)
    """

    __slots__ = ()
    __hash__ = str.__hash__

    def _numbers(self, other: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
        sides = []
        for version in (str(self), other):
            if isinstance(version, (tuple, list)):
                version = ".".join(str(part) for part in version)
            release = re.match(r"[\d.]*", str(version).partition("+")[0])
            parts = release.group().split(".") if release else []
            sides.append([int(part) for part in parts if part])
        length = max(map(len, sides))
        first, second = [tuple(side + [0] * (length - len(side))) for side in sides]
        return first, second

    def __lt__(self, other: Any) -> bool:
        first, second = self._numbers(other)
        return first < second

    def __le__(self, other: Any) -> bool:
        first, second = self._numbers(other)
        return first <= second

    def __gt__(self, other: Any) -> bool:
        return not self <= other

    def __ge__(self, other: Any) -> bool:
        return not self < other

    def __eq__(self, other: Any) -> bool:
        if type(other) is str:
            return str(self) == other
        first, second = self._numbers(other)
        return first == second

    def __ne__(self, other: Any) -> bool:
        return not self == other
