"""cugrad: tensors and autograd with PyTorch's names, for models that do not fit the GPU.

Beside this file stand the ground that all rooms share (dtypes, devices, errors), Tensor, and the
modules whose import paths are PyTorch's; everything else has a room. Users import names from here;
rooms import from rooms below their own, as docs/design.md lists them. Begin with its four ideas.
"""

from __future__ import annotations

import sys as _sys
import typing as _typing
from math import e, inf, nan, pi

from . import ops  # declares the rows that everything below looks up  # isort: skip
from . import (
    autograd,
    backends,
    cuda,
    dtypes,
    fft,
    func,
    functions,
    linalg,
    memory,
    profiler,
    random,
    signal,
    sparse,
    special,
    version,
)
from .absent import refuse as _refuse
from .autograd import enable_grad, inference_mode, is_grad_enabled, no_grad, set_grad_enabled
from .autograd.anomaly_mode import (
    is_anomaly_check_nan_enabled,
    is_anomaly_enabled,
    set_anomaly_enabled,
)
from .autograd.inference import is_inference, is_inference_mode_enabled
from .device import device, get_default_device, set_default_device
from .dtypes import (
    bfloat16,
    cdouble,
    cfloat,
    complex64,
    complex128,
    double,
    dtype,
    float8_e4m3fn,
    float8_e4m3fnuz,
    float8_e5m2,
    float8_e5m2fnuz,
    float8_e8m0fnu,
    float16,
    float32,
    float64,
    get_default_dtype,
    half,
    int8,
    int16,
    int32,
    int64,
    long,
    promote_types,
    set_default_dtype,
    short,
    uint8,
    uint16,
    uint32,
    uint64,
)
from .dtypes import bool_ as bool
from .dtypes import float_ as float
from .dtypes import int_ as int
from .errors import OutOfMemoryError
from .func import vmap
from .functions import methods
from .functions.calls.out import layout, sparse_coo, strided
from .functions.creation import drawing, windows
from .functions.creation import factories as creation
from .functions.creation.drawing import binomial, poisson
from .functions.creation.factories import *
from .functions.creation.random import *
from .functions.creation.windows import (
    bartlett_window,
    blackman_window,
    hamming_window,
    hann_window,
    kaiser_window,
)
from .functions.interop import array_api, legacy
from .functions.interop.exchange import from_dlpack, frombuffer, to_dlpack
from .functions.interop.legacy import typename
from .functions.interop.printing import set_printoptions
from .functions.shapes.layouts import (
    channels_last,
    channels_last_3d,
    contiguous_format,
    preserve_format,
)
from .functions.switches import *
from .lazy import lazily as _lazily
from .profiler import of_autograd as _autograd_profiler
from .sparse import smm, sparse_coo_tensor, spmm
from .tensor import Size, Tensor
from .version import __version__

if _typing.TYPE_CHECKING:  # what is imported when it is asked for
    from . import accelerator as accelerator
    from . import compiler as compiler
    from . import distributed as distributed
    from . import distributions as distributions
    from . import jit as jit
    from . import multiprocessing as multiprocessing
    from . import nn as nn
    from . import optim as optim
    from . import testing as testing
    from .accelerator import Event as Event
    from .accelerator import Stream as Stream
    from .accelerator import get_device_module as get_device_module
    from .compiler import compile as compile
    from .func.fusing import fuse as fuse
    from .nn.of_torch import *
    from .nn.recurrent.stacks import *
    from .serialization import load as load
    from .serialization import load_file as load_file
    from .serialization import save as save
    from .serialization import save_file as save_file

newaxis = None

methods.attach(drawing.METHODS, linalg.METHODS, array_api.METHODS, sparse.METHODS)
globals().update(functions.declared(functions.FUNCTIONS, linalg.FUNCTIONS))
globals().update(functions.accepting({
    name: globals()[name]
    for name in (*creation.__all__, *random.__all__, *drawing.__all__)
    if name[0].islower() and callable(globals().get(name))
}, functions.TAKES_OUT))  # fmt: skip
globals().update(legacy.TYPES)
array_api.fill(globals(), linalg, fft)

# What a script may never want is imported when it is asked for: where it is -> names.
__getattr__, __dir__ = _lazily(
    __name__,
    {
        "_C": "_C", "accelerator": "accelerator Event Stream get_device_module",
        "alias": "as_torch", "compiler": "compiler compile", "jit": "jit",
        "distributed": "distributed", "func.fusing": "fuse", "multiprocessing": "multiprocessing",
        "distributions": "distributions",
        "models": "models", "nn": "nn", "optim": "optim", "utils": "utils",
        "serialization": "serialization save load save_file load_file", "testing": "testing",
        "nn.of_torch": """
            adaptive_avg_pool1d adaptive_max_pool1d addmv_ alpha_dropout alpha_dropout_
            as_strided_ avg_pool1d batch_norm binary_cross_entropy_with_logits celu celu_
            conj_physical_ conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d
            conv_transpose3d cosine_embedding_loss cosine_similarity ctc_loss detach detach_
            dropout dropout_ embedding embedding_bag feature_alpha_dropout
            feature_alpha_dropout_ feature_dropout feature_dropout_ group_norm
            hinge_embedding_loss index_put_ instance_norm kl_div layer_norm ldexp_ log_softmax
            margin_ranking_loss max_pool1d max_pool1d_with_indices max_pool2d max_pool3d
            pairwise_distance poisson_nll_loss prelu rms_norm rrelu rrelu_ selu selu_ softmax
            threshold threshold_ triplet_margin_loss
        """,
        "functions.control": """
            _assert_async _check _check_is_size _check_tensor_all _check_with _shape_as_tensor cond
            while_loop
        """,
        "functions.foreach": "_foreach_*",
        "nn.utils.weight_norm": "norm_except_dim _weight_norm",
        "nn.recurrent.stacks": """
            gru gru_cell lstm lstm_cell rnn_relu rnn_relu_cell rnn_tanh rnn_tanh_cell
        """,
        "amp": """
            amp GradScaler autocast clear_autocast_cache get_autocast_dtype
            is_autocast_cache_enabled is_autocast_enabled set_autocast_cache_enabled
            set_autocast_dtype set_autocast_enabled
        """,
    },
)  # fmt: skip


# PyTorch's import paths for what lives in a higher room here.
def _placement(name: str) -> _typing.Any:
    if name not in ("save_on_cpu", "save_on_disk"):  # the latter is our own
        return _refuse("cugrad.autograd.graph", name)
    return vars(autograd.graph).setdefault(name, getattr(memory, name))


autograd.graph.__getattr__ = _placement
vars(cuda).update(legacy.types_on("cuda"))
func.__getattr__, func.__dir__ = _lazily(
    func.__name__,
    {"nn.stateless": "functional_call replace_all_batch_norm_modules_ stack_module_state"},
    __name__,
)
autograd.profiler = _autograd_profiler
_sys.modules[__name__ + ".autograd.profiler"] = _autograd_profiler
_sys.modules[__name__ + ".signal.windows"] = windows
_sys.modules[__name__ + ".array_api"] = array_api
