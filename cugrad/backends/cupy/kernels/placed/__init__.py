"""Kernels that move elements to where indices say, or beside each other.

A module here has the kernels of the one of its name in `cugrad/backends/cupy/written/placed`; begin
with `sums.py`. `borders.py` has those of windows and of what is around them, `grids.py` those of
nearest elements. Only `cugrad/backends/cupy` imports from here.
"""
