"""torch.utils.model_zoo: where older programs look for what loads weights and shows how far it is.

`tqdm` is that of the package of this name, where it is installed; torchvision's datasets import it
from here.
"""

from __future__ import annotations

from typing import Any

from ...hub import load_state_dict_from_url as load_url

__all__ = ["load_url", "tqdm"]


class Quiet:
    """A bar of progress that shows nothing."""

    def __init__(self, total: float | None = None, *args: Any, **kwargs: Any) -> None:
        self.total, self.n = total, 0.0

    def update(self, n: float = 1) -> None:
        self.n += n

    def set_description(self, *args: Any, **kwargs: Any) -> None:
        pass

    def close(self) -> None:
        pass

    def __enter__(self) -> Quiet:
        return self

    def __exit__(self, *error: object) -> None:
        pass


tqdm: Any
try:
    from tqdm import tqdm
except ImportError:
    tqdm = Quiet
