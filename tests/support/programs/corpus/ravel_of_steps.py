"""`ravel` is one element behind the other in memory: of steps, a copy."""

import cugrad as t  # or torch

v1 = t.arange(6.0)[::2]
v2 = v1.ravel()
v1.add_(1)
