"""Rows of linear algebra: products, systems and inverses, determinants, factors, eigenvalues.

The last two dims are the matrix, all before them a batch. Each file has the rows of one kind:
`products.py` is the simplest, so begin there. `matrices.py` has what formulas share. Other rooms
ask the table for a row by its name.
"""

from __future__ import annotations
