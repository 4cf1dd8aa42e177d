"""cugrad: tensors that train what does not fit the GPU, with PyTorch's names."""

from . import ops  # noqa: I001  (declares the rows that everything below looks up)
from . import methods, creation, dtypes, autograd
from .autograd import *
from .creation import *
from .tensor import Tensor, Size
methods.attach({}, {})
globals().update(methods.FUNCTIONS)
for _d in dtypes.ALL:
    globals()[_d.name] = _d
