"""Reading and writing by index: `x[...]`, gather and scatter, masks.

`subscripts.py` reads what stands in the brackets, `bounds.py` looks whether indices point into the
tensor; `index.py`, `scatter.py` and `puts.py` are PyTorch's functions. Begin with `index.py`.
`getitem` and `setitem` are for all rooms above.
"""

from __future__ import annotations
