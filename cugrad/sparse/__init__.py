"""torch.sparse: tensors of which only some elements are kept, in coordinate format (COO).

`coo.py` has the SparseTensor: places, and the values there, which are tensors themselves. All that
is computed with one is computed with these by recorded ops, so gradients of any order are there,
and no row knows of it: begin there. `described.py` has what needs no computation. `making.py` makes
them, `products.py` multiplies, `parts.py` takes parts and computes element by element, `grouped.py`
has softmax, `types.py` PyTorch's old names. Users import the functions from `cugrad.sparse` and
`cugrad`, other rooms `SparseTensor`.
"""

from __future__ import annotations

from ..runtime.absent import explain as _explain
from .coo import SparseTensor as SparseTensor
from .grouped import log_softmax as log_softmax
from .grouped import softmax as softmax
from .making import METHODS as METHODS
from .making import sparse_coo_tensor as sparse_coo_tensor
from .making import spdiags as spdiags
from .parts import sum as sum
from .products import addmm as addmm
from .products import dsmm as dsmm
from .products import mm as mm
from .products import smm as smm
from .products import spmm as spmm
from .types import TYPES as _TYPES

__all__ = ["addmm", "log_softmax", "mm", "softmax", "spdiags", "sum"]

globals().update(_TYPES)
_explain(__name__)
