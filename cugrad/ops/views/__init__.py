"""Rows that move elements and do no arithmetic: views, copies, joins, and parts of a tensor.

`shape.py` has the plain ones: begin there. `strided.py` sees memory by strides, `regions.py` writes
the part that a view shows, `batch.py` takes arrays into a vmap and out of it. Other rooms ask the
table for a row by its name.
"""

from __future__ import annotations
