"""Functions of mathematics: element by element, over dims, in order, of matrices, of samples.

`arithmetic.py` makes functions, methods and operators of the elementwise rows, `inplace.py` the
methods that change a tensor; `composites.py` has what PyTorch composes of several ops. Begin with
`reduce.py`. Rooms above import a function from its file.
"""

from __future__ import annotations
