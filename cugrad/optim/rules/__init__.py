"""Update rules: what an optimizer makes of a parameter, a gradient and its states.

A rule is a function, written once: `rule.py` says how, so begin there; `steps.py` runs it. On
tensors it is a step that autograd records (`recorded.py`). On symbols (`symbols.py`) it becomes the
text of a function that changes arrays in place with few temporaries (`program.py`), which runs by
blocks that stay in the processor's cache (`blocks.py`). Where Numba is installed large arrays take
the same calls in one compiled loop (`loops.py`). On CUDA it is a kernel for many parameters at once
(`together.py`). A rule of whole tensors runs there on stacks of those of one shape (`batches.py`).
Optimizers import `rule` and `advance` from here.
"""

from .rule import Rule, nonzero, rule
from .steps import advance, noting

__all__ = ["Rule", "advance", "nonzero", "noting", "rule"]
