"""Rows that make one number of many, or that need the order of elements along a dim.

`reduce.py` has sums, extrema and variances, and what their formulas share: begin there. Scans,
sorts and counts stand beside it. Other rooms ask the table for a row by its name.
"""

from __future__ import annotations
