"""Windows that slide over planes: convolutions and pooling.

`windows.py` says how they slide, so begin there; `convolution.py` has the rows, with columns and
products of matrices, which `convolution_last.py` makes of channels that lie last, `direct.py` has
convolutions that are one kernel, `depthwise.py` those of single channels. `pooling.py` is of its
own, `borders.py` has what is around windows: borders, and where maxima lie, and `grids.py` the
nearest elements of grids.
"""

from . import borders, convolution, grids, pooling

__all__ = ["borders", "convolution", "grids", "pooling"]
