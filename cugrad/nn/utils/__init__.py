"""torch.nn.utils: what is done to the parameters and gradients of a model, and packed sequences.

Each file is PyTorch's, by its name. `clip_grad.py` is what most programs use: begin there.
`nn.modules` imports `rnn.py`; users import from `cugrad.nn.utils`. `parametrize.py` computes
parameters from others, as `parametrizations.py` asks; `weight_norm.py` and `spectral_norm.py` do so
in the older way, by hooks; so does `prune.py`.
"""

import sys as _sys
import typing as _typing

from ...runtime.lazy import lazily as _lazily
from .. import stateless as stateless
from .spectral_norm import remove_spectral_norm as remove_spectral_norm
from .spectral_norm import spectral_norm as spectral_norm
from .weight_norm import remove_weight_norm as remove_weight_norm
from .weight_norm import weight_norm as weight_norm

_sys.modules[f"{__name__}.stateless"] = stateless  # PyTorch's path of it

if _typing.TYPE_CHECKING:  # what is imported when it is asked for
    from . import parametrizations as parametrizations
    from . import parametrize as parametrize
    from . import prune as prune
    from . import rnn as rnn
    from .clip_grad import *
    from .convert_parameters import *
    from .fusion import *
    from .init import skip_init as skip_init
    from .memory_format import *

# Imported when they are asked for: where they are -> names.
__getattr__, __dir__ = _lazily(
    __name__,
    {
        "fusion": """
            fusion fuse_conv_bn_eval fuse_conv_bn_weights fuse_linear_bn_eval fuse_linear_bn_weights
        """,
        "init": "init skip_init",
        "memory_format": """
            memory_format convert_conv2d_weight_memory_format convert_conv3d_weight_memory_format
        """,
        "parametrizations": "parametrizations",
        "parametrize": "parametrize",
        "prune": "prune",
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
