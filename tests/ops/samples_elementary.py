"""Samples of the rows that take floating-point numbers apart."""

import operator

from tests.ops import samples
from tests.ops.sampling import away, sample

sample("nextafter", (3, 4), (4,))
sample("frexp", away((3, 4), 0), reference=lambda np, self: np.frexp(self),
       torch=lambda torch, self: operator.itemgetter(0, 1)(torch.frexp(self)))  # fmt: skip
samples.REAL_ONLY |= {"nextafter", "frexp"}
samples.NO_HALF |= {"nextafter": "PyTorch has none", "frexp": "the exponent is of its own"}
