"""A source without dims is none for a vector."""

import cugrad as t  # or torch

v1 = t.tensor([1.271], dtype=t.float32, requires_grad=True)
v4 = v1 * 2
v11 = v1.max(0)[0]
v4.index_add_(-1, t.tensor([0]), v11.index_select(-1, t.tensor([0])))
