"""torch.testing: comparisons of results with what is expected, and random tensors to try with.

`comparison.py` has `assert_close`: begin there. `making.py` has `make_tensor`. The library itself
does not use this room.
"""

from ..runtime.absent import explain
from .comparison import assert_allclose, assert_close
from .making import make_tensor

__all__ = ["assert_allclose", "assert_close", "make_tensor"]

explain(__name__)
