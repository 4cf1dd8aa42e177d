"""Optimizers: they change parameters in place along their gradients.

`optimizer.py` has what all share, state and hooks included; `sgd.py` is the shortest of them:
begin there. Each has its update rule, a pure function written once, and the function of lists that
PyTorch has; `rules` turns a rule into steps. `lr_scheduler` changes settings from epoch to epoch,
`swa_utils` averages models. Programs import the classes from here; `amp` unscales what they are
given.
"""

from ..runtime.absent import explain
from . import lr_scheduler as lr_scheduler
from . import swa_utils as swa_utils
from ._adafactor import Adafactor
from ._muon import Muon
from ._stateless import swap_in_optimizer_params_and_state
from .adadelta import Adadelta
from .adagrad import Adagrad
from .adam import Adam
from .adamax import Adamax
from .adamw import AdamW
from .asgd import ASGD
from .lbfgs import LBFGS
from .nadam import NAdam
from .optimizer import Optimizer
from .radam import RAdam
from .rmsprop import RMSprop
from .rprop import Rprop
from .sgd import SGD
from .sparse_adam import SparseAdam

__all__ = [
    "ASGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "LBFGS", "Muon",
    "NAdam", "Optimizer", "RAdam", "RMSprop", "Rprop", "SGD", "SparseAdam", "lr_scheduler",
    "swa_utils", "swap_in_optimizer_params_and_state",
]  # fmt: skip


explain(__name__)
