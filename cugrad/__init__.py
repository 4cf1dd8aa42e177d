"""cugrad: tensors and autograd with PyTorch's names, for models that do not fit the GPU.

Beside this file stand the ground that all rooms share (dtypes, devices, errors), Tensor, and the
modules whose import paths are PyTorch's; everything else has a room. Users import names from here;
rooms import from rooms below their own, as docs/design.md lists them. Begin with its four ideas.
"""

from __future__ import annotations

import sys as _sys
import typing as _typing
from math import e, inf, nan, pi

from .runtime.lazy import Loading as _Loading

with _Loading():
    from . import ops  # declares the rows that everything below looks up  # isort: skip
    from . import autograd as autograd
    from . import backends as backends
    from . import cuda as cuda
    from . import dtypes as dtypes
    from . import functions as functions
    from . import linalg as linalg
    from . import memory as memory
    from . import profiler as profiler
    from . import random as random
    from . import sparse as sparse
    from . import version as version

from .autograd import enable_grad as enable_grad
from .autograd import inference_mode as inference_mode
from .autograd import is_grad_enabled as is_grad_enabled
from .autograd import no_grad as no_grad
from .autograd import set_grad_enabled as set_grad_enabled
from .autograd.anomaly_mode import is_anomaly_check_nan_enabled as is_anomaly_check_nan_enabled
from .autograd.anomaly_mode import is_anomaly_enabled as is_anomaly_enabled
from .autograd.anomaly_mode import set_anomaly_enabled as set_anomaly_enabled
from .autograd.inference import is_inference as is_inference
from .autograd.inference import is_inference_mode_enabled as is_inference_mode_enabled
from .device import device as device
from .device import get_default_device as get_default_device
from .device import set_default_device as set_default_device
from .dtypes import bfloat16 as bfloat16
from .dtypes import bool_ as _bool
from .dtypes import cdouble as cdouble
from .dtypes import cfloat as cfloat
from .dtypes import complex64 as complex64
from .dtypes import complex128 as complex128
from .dtypes import double as double
from .dtypes import dtype as dtype
from .dtypes import float8_e4m3fn as float8_e4m3fn
from .dtypes import float8_e4m3fnuz as float8_e4m3fnuz
from .dtypes import float8_e5m2 as float8_e5m2
from .dtypes import float8_e5m2fnuz as float8_e5m2fnuz
from .dtypes import float8_e8m0fnu as float8_e8m0fnu
from .dtypes import float16 as float16
from .dtypes import float32 as float32
from .dtypes import float64 as float64
from .dtypes import float_ as _float
from .dtypes import get_default_dtype as get_default_dtype
from .dtypes import half as half
from .dtypes import int8 as int8
from .dtypes import int16 as int16
from .dtypes import int32 as int32
from .dtypes import int64 as int64
from .dtypes import int_ as _int
from .dtypes import long as long
from .dtypes import promote_types as promote_types
from .dtypes import set_default_dtype as set_default_dtype
from .dtypes import short as short
from .dtypes import uint8 as uint8
from .dtypes import uint16 as uint16
from .dtypes import uint32 as uint32
from .dtypes import uint64 as uint64
from .errors import OutOfMemoryError as OutOfMemoryError
from .functions import engines as _engines
from .functions import methods
from .functions.calls.out import _mkldnn as _mkldnn
from .functions.calls.out import jagged as jagged
from .functions.calls.out import layout as layout
from .functions.calls.out import sparse_bsc as sparse_bsc
from .functions.calls.out import sparse_bsr as sparse_bsr
from .functions.calls.out import sparse_coo as sparse_coo
from .functions.calls.out import sparse_csc as sparse_csc
from .functions.calls.out import sparse_csr as sparse_csr
from .functions.calls.out import strided as strided
from .functions.creation import drawing
from .functions.creation import factories as creation
from .functions.creation.drawing import binomial as binomial
from .functions.creation.drawing import poisson as poisson
from .functions.creation.factories import *
from .functions.creation.random import *
from .functions.interop import legacy as legacy
from .functions.interop.exchange import from_dlpack as from_dlpack
from .functions.interop.exchange import frombuffer as frombuffer
from .functions.interop.exchange import to_dlpack as to_dlpack
from .functions.interop.legacy import set_default_tensor_type as set_default_tensor_type
from .functions.interop.legacy import typename as typename
from .functions.interop.printing import set_printoptions as set_printoptions
from .functions.shapes import storages
from .functions.shapes.layouts import channels_last as channels_last
from .functions.shapes.layouts import channels_last_3d as channels_last_3d
from .functions.shapes.layouts import contiguous_format as contiguous_format
from .functions.shapes.layouts import contiguous_format as legacy_contiguous_format
from .functions.shapes.layouts import preserve_format as preserve_format
from .functions.shapes.storages import TypedStorage as TypedStorage
from .functions.shapes.storages import UntypedStorage as UntypedStorage
from .functions.shapes.storages import is_storage as is_storage
from .functions.switches import *
from .profiler import of_autograd as _autograd_profiler
from .runtime.absent import listed as _listed
from .runtime.absent import refuse as _refuse
from .runtime.dispatching import when_switched_on as _when_switched_on
from .runtime.lazy import lazily as _lazily
from .sparse import dsmm as dsmm
from .sparse import smm as smm
from .sparse import sparse_coo_tensor as sparse_coo_tensor
from .sparse import spmm as spmm
from .tensor import Size as Size
from .tensor import Tensor as Tensor
from .version import __version__ as __version__

if _typing.TYPE_CHECKING:  # what is imported when it is asked for
    from . import accelerator as accelerator
    from . import compiler as compiler
    from . import cpu as cpu
    from . import distributed as distributed
    from . import distributions as distributions
    from . import fft as fft
    from . import func as func
    from . import functional as functional
    from . import futures as futures
    from . import fx as fx
    from . import hub as hub
    from . import jit as jit
    from . import multiprocessing as multiprocessing
    from . import nn as nn
    from . import optim as optim
    from . import overrides as overrides
    from . import quasirandom as quasirandom
    from . import return_types as return_types
    from . import signal as signal
    from . import special as special
    from . import testing as testing
    from . import types as types
    from .accelerator import Event as Event
    from .accelerator import Stream as Stream
    from .accelerator import get_device_module as get_device_module
    from .compiler import compile as compile
    from .func import vmap as vmap
    from .func.fusing import fuse as fuse
    from .nn.of_torch import *
    from .nn.recurrent.stacks import *
    from .serialization import load as load
    from .serialization import load_file as load_file
    from .serialization import save as save
    from .serialization import save_file as save_file
    from .signal.windows import bartlett_window as bartlett_window
    from .signal.windows import blackman_window as blackman_window
    from .signal.windows import hamming_window as hamming_window
    from .signal.windows import hann_window as hann_window
    from .signal.windows import kaiser_window as kaiser_window

newaxis = None
bool, float, int = _bool, _float, _int  # of their own, for type checkers


def _array_namespace(self: Tensor, *, api_version: str | None = None) -> _typing.Any:
    """The functions of the array API standard; ValueError for a version that is not there."""
    return __getattr__("array_api").namespace_of(api_version)


methods.attach(
    drawing.METHODS, linalg.METHODS, sparse.METHODS, {"__array_namespace__": _array_namespace}
)
_creating = functions.declared(*(
    {name: getattr(file, name) for name in file.__all__
     if name[0].islower() and callable(getattr(file, name))}
    for file in (creation, random, drawing)
))  # fmt: skip
globals().update(functions.declared(
    functions.FUNCTIONS, linalg.FUNCTIONS, functions.accepting(_creating, functions.TAKES_OUT)
))  # fmt: skip
globals().update(legacy.TYPES | storages.TYPES)

# What a script may never want is imported when it is asked for: where it is -> names.
__getattr__, __dir__ = _lazily(
    __name__,
    {
        "_C": "_C", "__future__": "__future__",
        "accelerator": "accelerator Event Stream get_device_module",
        "array_api": "array_api", "cpu": "cpu", "fft": "fft", "func": "func vmap",
        "functional": "functional", "futures": "futures",
        "fx": "fx", "hub": "hub",
        "signal": "signal",
        "signal.windows": """
            bartlett_window blackman_window hamming_window hann_window kaiser_window
        """,
        "quasirandom": "quasirandom", "return_types": "return_types", "special": "special",
        "alias": "as_torch", "compiler": "compiler compile", "jit": "jit",
        "distributed": "distributed", "func.fusing": "fuse", "multiprocessing": "multiprocessing",
        "distributions": "distributions",
        "models": "models", "nn": "nn", "optim": "optim", "overrides": "overrides",
        "types": "types", "utils": "utils",
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
            _assert _assert_async _check _check_is_size _check_tensor_all _check_with
            _shape_as_tensor cond while_loop
        """,
        "functions.foreach": "_foreach_*",
        "nn.utils.weight_norm": "norm_except_dim _weight_norm",
        "nn.recurrent.stacks": """
            gru gru_cell lstm lstm_cell rnn_relu rnn_relu_cell rnn_tanh rnn_tanh_cell
        """,
        "amp": """
            amp GradScaler autocast autocast_decrement_nesting autocast_increment_nesting
            clear_autocast_cache get_autocast_cpu_dtype get_autocast_dtype get_autocast_gpu_dtype
            is_autocast_cache_enabled is_autocast_cpu_enabled is_autocast_enabled
            set_autocast_cache_enabled set_autocast_cpu_dtype set_autocast_cpu_enabled
            set_autocast_dtype set_autocast_enabled set_autocast_gpu_dtype
        """,
    },
)  # fmt: skip


@_when_switched_on
def _import_overrides() -> None:
    from . import overrides as overrides


# PyTorch's import paths for what lives in a higher room here.
def _placement(name: str) -> _typing.Any:
    if name not in ("save_on_cpu", "save_on_disk"):  # the latter is our own
        return _refuse("cugrad.autograd.graph", name)
    return vars(autograd.graph).setdefault(name, getattr(memory, name))


autograd.graph.__getattr__ = _placement
autograd.graph.__dir__ = lambda: _listed("cugrad.autograd.graph", "save_on_cpu", "save_on_disk")
vars(cuda).update(_types := legacy.types_on("cuda"))
cuda.__all__ += _types
autograd.profiler = _autograd_profiler
_sys.modules[__name__ + ".autograd.profiler"] = _autograd_profiler
