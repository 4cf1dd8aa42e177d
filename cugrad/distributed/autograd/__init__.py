"""torch.distributed.autograd: backward through remote calls, of which there are none.

`is_available()` says so; `context` refuses. Nothing imports from here. Begin with
`distributed.nn.functional`, which has collectives with gradients.
"""

from __future__ import annotations

from typing import Any, NoReturn

from ...runtime.absent import explain

__all__ = ["context", "is_available"]


def is_available() -> bool:
    """False: see `distributed.nn.functional` for collectives with gradients."""
    return False


class context:
    """NotImplementedError: there are no remote calls to go back through."""

    def __new__(cls, *args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(
            "distributed.autograd.context: there are no remote calls; collectives with gradients "
            "are in distributed.nn.functional"
        )


explain(__name__)
