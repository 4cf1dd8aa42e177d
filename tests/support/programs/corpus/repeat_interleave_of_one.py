"""Repeats of one element were views of it."""

import cugrad as t  # or torch

v1 = t.ones(1)
v2 = v1.repeat_interleave(2, 0)
v1.add_(1)
