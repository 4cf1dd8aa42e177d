"""Tensors beside other things: NumPy, DLPack, the array API standard, Python's numbers, text.

`conversion.py` has casts, moves and numbers: begin there. `exchange.py` shares memory with other
libraries, `array_api.py` is the standard's namespace, `printing.py` has what `repr` says, and
`legacy.py` PyTorch's old names of types. `cugrad` and `functions/methods.py` take from here.
"""

from __future__ import annotations
