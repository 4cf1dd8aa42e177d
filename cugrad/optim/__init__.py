"""Optimizers: they change parameters in place along their gradients."""

from ..absent import explain
from .adam import Adam
from .adamw import AdamW
from .optimizer import Optimizer
from .sgd import SGD

__all__ = ["Adam", "AdamW", "Optimizer", "SGD"]


explain(__name__)
