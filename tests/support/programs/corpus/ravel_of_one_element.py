"""`ravel` of what lies one element behind the other is a view, of one element of a batch too."""

import cugrad as t  # or torch

v1 = t.arange(6.0).reshape(2, 3).mT.clone()
v2 = t.func.vmap(t.func.vmap(lambda x: x.ravel()))(v1)
v3 = t.func.vmap(lambda x: x.ravel())(v1)
v4 = v1.ravel()
v1.add_(1)
