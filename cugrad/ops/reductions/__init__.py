"""Rows that make one number of many, or that need the order of elements along a dim.

`reduce.py` has sums and variances, and what formulas of reductions share: begin there.
Extrema, scans, sorts and counts stand beside it. Other rooms ask the table for a row by its name.
"""

from __future__ import annotations
