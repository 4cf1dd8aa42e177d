"""Functions that turn, cut, join and copy tensors and do no arithmetic.

`views.py` has the views that rows know, and `copies.py` copies and joins: begin with these.
`strided.py` sees memory by strides and in other dtypes, `view_copies.py` makes the copying and the
in-place twin of each view. Rooms above import a function from its file.
"""

from __future__ import annotations
