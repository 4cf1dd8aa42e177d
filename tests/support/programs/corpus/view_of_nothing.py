"""The memory of no elements may be seen in another dtype."""

import cugrad as t  # or torch

v1 = t.zeros(0).view(t.int64)
