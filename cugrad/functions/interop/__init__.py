"""Tensors beside other things: NumPy, DLPack, Python's numbers, text.

`conversion.py` has casts, moves and numbers: begin there. `exchange.py` shares memory with other
libraries, `printing.py` has what `repr` says, and `legacy.py` PyTorch's old names of types.
`cugrad` and `functions/methods.py` take from here.
"""

from __future__ import annotations
