"""Optimizers: they change parameters in place along their gradients.

`optimizer.py` has what all share, state and hooks included; `sgd.py` is the shortest of them:
begin there. Programs import the classes from here; `amp` unscales what they are given.
"""

from ..absent import explain
from .adam import Adam
from .adamw import AdamW
from .optimizer import Optimizer
from .sgd import SGD

__all__ = ["Adam", "AdamW", "Optimizer", "SGD"]


explain(__name__)
