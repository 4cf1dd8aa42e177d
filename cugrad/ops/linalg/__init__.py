"""Rows of linear algebra: products, systems and inverses, determinants, factors, eigenvalues.

The last two dims are the matrix, all before them a batch. `products.py` is the simplest: begin
there. `decompose.py` has systems and factors, `lu.py` LU factors, `eigen.py` eigenvalues. Other
rooms ask the table for a row by its name.
"""

from __future__ import annotations
