"""Rows of neural networks: activations, convolutions, pooling, norms, padding, losses, dropout.

`conv.py` shows the pattern, an op and its adjoints, each the derivative of the others: begin there;
`windows.py` says where windows lie. Other rooms ask the table for a row by its name.
"""

from __future__ import annotations
