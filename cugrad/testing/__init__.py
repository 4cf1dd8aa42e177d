"""torch.testing: comparisons of results with what is expected, and random tensors to try with.

`_comparison.py` has `assert_close`: begin there. `pairs.py` compares two leaves, `mismatches.py`
has the words of an error. `making.py` has `make_tensor`. The library itself does not use this room.
"""

from ..runtime.absent import explain
from ._comparison import assert_allclose, assert_close
from .making import make_tensor

__all__ = ["assert_allclose", "assert_close", "make_tensor"]

explain(__name__)
