"""Rows that move elements to where indices say, or beside each other.

`copies.py` has those that only copy, of any dtype; begin there. `sums.py` has dropout, gather,
scatter, and sums by indices, `reduced.py` products and extrema by indices, `several.py` what
several arrays of indices name, `puts.py` what is put there, `changes.py` what is put or added in
place, `bags.py` embedding_bag, `counts.py` histc, `neighbours.py` gradients that lie as their
operands do. Only `cugrad/backends/cupy/written` imports from here.
"""

from . import bags, changes, copies, counts, neighbours, puts, reduced, several, sums

__all__ = [
    "bags",
    "changes",
    "copies",
    "counts",
    "neighbours",
    "puts",
    "reduced",
    "several",
    "sums",
]
