"""Whether derivatives are right. The faces are `autograd.gradcheck` and `autograd.functional`.

`numerical` compares derivatives with finite differences: begin there. `edge_cases` checks zero and
absent gradients and batches. `functional` has what the functions of `autograd.functional` share.
Only the two faces import from here; files are loaded when a derivative is checked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...runtime.lazy import lazily

if TYPE_CHECKING:
    from .edge_cases import batches_in_backward as batches_in_backward
    from .edge_cases import batches_in_forward_mode as batches_in_forward_mode
    from .edge_cases import multiplies_by_grad_output as multiplies_by_grad_output
    from .edge_cases import takes_absent_gradients as takes_absent_gradients
    from .edge_cases import takes_absent_tangents as takes_absent_tangents
    from .numerical import Check as Check
    from .numerical import ComplexPart as ComplexPart
    from .numerical import Tolerances as Tolerances
    from .numerical import as_tuple as as_tuple
    from .numerical import differentiable as differentiable
    from .numerical import requires_grad as requires_grad

__getattr__, __dir__ = lazily(
    __name__,
    {
        "edge_cases": """
            batches_in_backward batches_in_forward_mode multiplies_by_grad_output
            takes_absent_gradients takes_absent_tangents
        """,
        "numerical": "Check ComplexPart Tolerances as_tuple differentiable requires_grad",
    },
)
