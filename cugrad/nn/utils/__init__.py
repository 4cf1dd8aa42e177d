"""torch.nn.utils: what is done to the parameters and gradients of a model, and packed sequences.

Each file is PyTorch's, by its name. `clip_grad.py` is what most programs use: begin there.
`nn.modules` imports `rnn.py`; users import from `cugrad.nn.utils`.
"""

import typing as _typing

from ...lazy import lazily as _lazily
from .. import stateless as stateless

if _typing.TYPE_CHECKING:  # what is imported when it is asked for
    from . import rnn as rnn
    from .clip_grad import *
    from .convert_parameters import *

# Imported when they are asked for: where they are -> names.
__getattr__, __dir__ = _lazily(
    __name__,
    {
        "rnn": "rnn",
        "clip_grad": """
            clip_grad clip_grad_norm clip_grad_norm_ clip_grad_value_ clip_grads_with_norm_
            get_total_norm
        """,
        "convert_parameters": """
            convert_parameters parameters_to_vector vector_to_parameters
        """,
    },
)
