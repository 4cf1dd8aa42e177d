"""torch._subclasses: there are no tensors without values that stand for others."""

from __future__ import annotations

from ...runtime.absent import COMPILED
from ..refusals import refusal, refuse_the_rest

__all__ = ["FakeTensor", "FakeTensorMode", "is_fake"]

FakeTensor = refusal("torch._subclasses.FakeTensor", COMPILED)
FakeTensorMode = refusal("torch._subclasses.FakeTensorMode", COMPILED)


def is_fake(x: object) -> bool:
    """False."""
    return False


refuse_the_rest(__name__, "_subclasses", COMPILED)
