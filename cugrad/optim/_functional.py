"""The functions of the optimizers in one place, PyTorch's `torch.optim._functional`."""

from ._adafactor import adafactor as adafactor
from ._muon import muon as muon
from .adadelta import adadelta as adadelta
from .adagrad import adagrad as adagrad
from .adam import adam as adam
from .adamax import adamax as adamax
from .adamw import adamw as adamw
from .asgd import asgd as asgd
from .nadam import nadam as nadam
from .radam import radam as radam
from .rmsprop import rmsprop as rmsprop
from .rprop import rprop as rprop
from .sgd import sgd as sgd
