"""Optimizers: they change parameters in place along their gradients."""

from .adamw import AdamW
from .optimizer import Optimizer
from .sgd import SGD

__all__ = ["AdamW", "Optimizer", "SGD"]
