"""Rows that the host computes by code of their own, a block of elements or of rows at a time.

Begin with `registry`. A function here declines, by None, what it does not take. The row stays the
definition, which tests compare with; what is here reads and writes memory less often.
Imported from outside: `backends/numpy/rows.py` asks `registry` alone.
"""
