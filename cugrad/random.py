"""torch.random: random tensors, and the generators whose state decides them."""

from __future__ import annotations

from .functions.creation import random as _functions
from .functions.creation.random import *  # noqa: F403  this is its face
from .runtime.absent import explain

__all__ = list(_functions.__all__)

explain(__name__)
