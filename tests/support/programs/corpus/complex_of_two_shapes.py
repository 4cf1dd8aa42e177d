"""Shapes that do not meet are a RuntimeError."""

import cugrad as t  # or torch

v1 = t.complex(t.ones(2), t.ones(3))
