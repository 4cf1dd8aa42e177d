# Written by python -m tests.documents.stubs --write, and checked by tests/typing.
# mypy: disable-error-code="override, overload-overlap, overload-cannot-match"
from typing import Any

from ._functions import (
    abs as abs,
    abs_ as abs_,
    absolute as absolute,
    acos as acos,
    acos_ as acos_,
    acosh as acosh,
    acosh_ as acosh_,
    adaptive_avg_pool1d as adaptive_avg_pool1d,
    adaptive_max_pool1d as adaptive_max_pool1d,
    add as add,
    addbmm as addbmm,
    addcdiv as addcdiv,
    addcmul as addcmul,
    addmm as addmm,
    addmv as addmv,
    addmv_ as addmv_,
    addr as addr,
    adjoint as adjoint,
    alias_copy as alias_copy,
    all as all,
    allclose as allclose,
    alpha_dropout as alpha_dropout,
    alpha_dropout_ as alpha_dropout_,
    amax as amax,
    amin as amin,
    aminmax as aminmax,
    angle as angle,
    any as any,
    arange as arange,
    arccos as arccos,
    arccos_ as arccos_,
    arccosh as arccosh,
    arccosh_ as arccosh_,
    arcsin as arcsin,
    arcsin_ as arcsin_,
    arcsinh as arcsinh,
    arcsinh_ as arcsinh_,
    arctan as arctan,
    arctan2 as arctan2,
    arctan_ as arctan_,
    arctanh as arctanh,
    arctanh_ as arctanh_,
    argmax as argmax,
    argmin as argmin,
    argsort as argsort,
    argwhere as argwhere,
    as_strided as as_strided,
    as_strided_ as as_strided_,
    as_strided_copy as as_strided_copy,
    as_strided_scatter as as_strided_scatter,
    as_tensor as as_tensor,
    asarray as asarray,
    asin as asin,
    asin_ as asin_,
    asinh as asinh,
    asinh_ as asinh_,
    atan as atan,
    atan2 as atan2,
    atan_ as atan_,
    atanh as atanh,
    atanh_ as atanh_,
    avg_pool1d as avg_pool1d,
    baddbmm as baddbmm,
    bartlett_window as bartlett_window,
    batch_norm as batch_norm,
    bernoulli as bernoulli,
    bilinear as bilinear,
    binary_cross_entropy_with_logits as binary_cross_entropy_with_logits,
    bincount as bincount,
    binomial as binomial,
    bitwise_and as bitwise_and,
    bitwise_left_shift as bitwise_left_shift,
    bitwise_not as bitwise_not,
    bitwise_or as bitwise_or,
    bitwise_right_shift as bitwise_right_shift,
    bitwise_xor as bitwise_xor,
    blackman_window as blackman_window,
    bmm as bmm,
    broadcast_to as broadcast_to,
    bucketize as bucketize,
    can_cast as can_cast,
    cat as cat,
    ceil as ceil,
    ceil_ as ceil_,
    celu as celu,
    celu_ as celu_,
    channel_shuffle as channel_shuffle,
    cholesky as cholesky,
    cholesky_inverse as cholesky_inverse,
    cholesky_solve as cholesky_solve,
    chunk as chunk,
    clamp as clamp,
    clamp_ as clamp_,
    clamp_max as clamp_max,
    clamp_max_ as clamp_max_,
    clamp_min as clamp_min,
    clamp_min_ as clamp_min_,
    clip as clip,
    clip_ as clip_,
    clone as clone,
    column_stack as column_stack,
    combinations as combinations,
    complex as complex,
    concat as concat,
    concatenate as concatenate,
    conj as conj,
    conj_physical as conj_physical,
    conj_physical_ as conj_physical_,
    constant_pad_nd as constant_pad_nd,
    conv1d as conv1d,
    conv2d as conv2d,
    conv3d as conv3d,
    conv_tbc as conv_tbc,
    conv_transpose1d as conv_transpose1d,
    conv_transpose2d as conv_transpose2d,
    conv_transpose3d as conv_transpose3d,
    copysign as copysign,
    corrcoef as corrcoef,
    cos as cos,
    cos_ as cos_,
    cosh as cosh,
    cosh_ as cosh_,
    cosine_embedding_loss as cosine_embedding_loss,
    cosine_similarity as cosine_similarity,
    count_nonzero as count_nonzero,
    cov as cov,
    cross as cross,
    ctc_loss as ctc_loss,
    cummax as cummax,
    cummin as cummin,
    cumprod as cumprod,
    cumsum as cumsum,
    cumulative_trapezoid as cumulative_trapezoid,
    deg2rad as deg2rad,
    deg2rad_ as deg2rad_,
    det as det,
    detach as detach,
    detach_ as detach_,
    detach_copy as detach_copy,
    diag as diag,
    diag_embed as diag_embed,
    diagflat as diagflat,
    diagonal as diagonal,
    diagonal_copy as diagonal_copy,
    diagonal_scatter as diagonal_scatter,
    diff as diff,
    digamma as digamma,
    dist as dist,
    div as div,
    divide as divide,
    dot as dot,
    dropout as dropout,
    dropout_ as dropout_,
    dsmm as dsmm,
    dsplit as dsplit,
    dstack as dstack,
    embedding as embedding,
    embedding_bag as embedding_bag,
    empty as empty,
    empty_like as empty_like,
    empty_permuted as empty_permuted,
    empty_strided as empty_strided,
    eq as eq,
    equal as equal,
    erf as erf,
    erf_ as erf_,
    erfc as erfc,
    erfc_ as erfc_,
    erfinv as erfinv,
    exp as exp,
    exp2 as exp2,
    exp2_ as exp2_,
    exp_ as exp_,
    expand_copy as expand_copy,
    expm1 as expm1,
    expm1_ as expm1_,
    eye as eye,
    feature_alpha_dropout as feature_alpha_dropout,
    feature_alpha_dropout_ as feature_alpha_dropout_,
    feature_dropout as feature_dropout,
    feature_dropout_ as feature_dropout_,
    fill as fill,
    fill_ as fill_,
    fix as fix,
    fix_ as fix_,
    flatten as flatten,
    flip as flip,
    fliplr as fliplr,
    flipud as flipud,
    float_power as float_power,
    floor as floor,
    floor_ as floor_,
    floor_divide as floor_divide,
    fmax as fmax,
    fmin as fmin,
    fmod as fmod,
    frac as frac,
    frac_ as frac_,
    frexp as frexp,
    frobenius_norm as frobenius_norm,
    from_numpy as from_numpy,
    frombuffer as frombuffer,
    full as full,
    full_like as full_like,
    gather as gather,
    gcd as gcd,
    gcd_ as gcd_,
    ge as ge,
    geqrf as geqrf,
    ger as ger,
    get_default_dtype as get_default_dtype,
    get_num_interop_threads as get_num_interop_threads,
    get_num_threads as get_num_threads,
    gradient as gradient,
    greater as greater,
    greater_equal as greater_equal,
    group_norm as group_norm,
    gru as gru,
    gru_cell as gru_cell,
    gt as gt,
    hamming_window as hamming_window,
    hann_window as hann_window,
    hardshrink as hardshrink,
    heaviside as heaviside,
    hinge_embedding_loss as hinge_embedding_loss,
    histc as histc,
    histogram as histogram,
    histogramdd as histogramdd,
    hsplit as hsplit,
    hstack as hstack,
    hypot as hypot,
    i0 as i0,
    i0_ as i0_,
    igamma as igamma,
    igammac as igammac,
    imag as imag,
    index_add as index_add,
    index_copy as index_copy,
    index_fill as index_fill,
    index_put as index_put,
    index_put_ as index_put_,
    index_reduce as index_reduce,
    index_select as index_select,
    inner as inner,
    instance_norm as instance_norm,
    inverse as inverse,
    is_complex as is_complex,
    is_conj as is_conj,
    is_floating_point as is_floating_point,
    is_grad_enabled as is_grad_enabled,
    is_inference as is_inference,
    is_inference_mode_enabled as is_inference_mode_enabled,
    is_neg as is_neg,
    is_nonzero as is_nonzero,
    is_same_size as is_same_size,
    is_signed as is_signed,
    isclose as isclose,
    isfinite as isfinite,
    isin as isin,
    isinf as isinf,
    isnan as isnan,
    isneginf as isneginf,
    isposinf as isposinf,
    isreal as isreal,
    istft as istft,
    kaiser_window as kaiser_window,
    kl_div as kl_div,
    kron as kron,
    kthvalue as kthvalue,
    layer_norm as layer_norm,
    lcm as lcm,
    lcm_ as lcm_,
    ldexp as ldexp,
    ldexp_ as ldexp_,
    le as le,
    lerp as lerp,
    less as less,
    less_equal as less_equal,
    lgamma as lgamma,
    linspace as linspace,
    log as log,
    log10 as log10,
    log10_ as log10_,
    log1p as log1p,
    log1p_ as log1p_,
    log2 as log2,
    log2_ as log2_,
    log_ as log_,
    log_softmax as log_softmax,
    logaddexp as logaddexp,
    logaddexp2 as logaddexp2,
    logcumsumexp as logcumsumexp,
    logdet as logdet,
    logical_and as logical_and,
    logical_not as logical_not,
    logical_or as logical_or,
    logical_xor as logical_xor,
    logit as logit,
    logit_ as logit_,
    logspace as logspace,
    logsumexp as logsumexp,
    lstm as lstm,
    lstm_cell as lstm_cell,
    lt as lt,
    lu_solve as lu_solve,
    lu_unpack as lu_unpack,
    margin_ranking_loss as margin_ranking_loss,
    masked_fill as masked_fill,
    masked_scatter as masked_scatter,
    masked_select as masked_select,
    matmul as matmul,
    matrix_exp as matrix_exp,
    matrix_power as matrix_power,
    max as max,
    max_pool1d as max_pool1d,
    max_pool1d_with_indices as max_pool1d_with_indices,
    max_pool2d as max_pool2d,
    max_pool3d as max_pool3d,
    maximum as maximum,
    mean as mean,
    median as median,
    min as min,
    minimum as minimum,
    mm as mm,
    mode as mode,
    moveaxis as moveaxis,
    movedim as movedim,
    msort as msort,
    mul as mul,
    multinomial as multinomial,
    multiply as multiply,
    mv as mv,
    mvlgamma as mvlgamma,
    nan_to_num as nan_to_num,
    nan_to_num_ as nan_to_num_,
    nanmean as nanmean,
    nanmedian as nanmedian,
    nanquantile as nanquantile,
    nansum as nansum,
    narrow as narrow,
    narrow_copy as narrow_copy,
    ne as ne,
    neg as neg,
    neg_ as neg_,
    negative as negative,
    negative_ as negative_,
    nextafter as nextafter,
    nonzero as nonzero,
    nonzero_static as nonzero_static,
    norm_except_dim as norm_except_dim,
    normal as normal,
    not_equal as not_equal,
    nuclear_norm as nuclear_norm,
    numel as numel,
    ones as ones,
    ones_like as ones_like,
    orgqr as orgqr,
    ormqr as ormqr,
    outer as outer,
    pairwise_distance as pairwise_distance,
    pdist as pdist,
    permute as permute,
    permute_copy as permute_copy,
    pinverse as pinverse,
    pixel_shuffle as pixel_shuffle,
    pixel_unshuffle as pixel_unshuffle,
    poisson as poisson,
    poisson_nll_loss as poisson_nll_loss,
    polar as polar,
    polygamma as polygamma,
    positive as positive,
    pow as pow,
    prelu as prelu,
    prod as prod,
    promote_types as promote_types,
    put as put,
    qr as qr,
    quantile as quantile,
    rad2deg as rad2deg,
    rad2deg_ as rad2deg_,
    rand as rand,
    rand_like as rand_like,
    randint as randint,
    randint_like as randint_like,
    randn as randn,
    randn_like as randn_like,
    randperm as randperm,
    range as range,
    ravel as ravel,
    real as real,
    reciprocal as reciprocal,
    reciprocal_ as reciprocal_,
    relu as relu,
    relu_ as relu_,
    remainder as remainder,
    renorm as renorm,
    repeat_interleave as repeat_interleave,
    reshape as reshape,
    resize_as_ as resize_as_,
    resolve_conj as resolve_conj,
    resolve_neg as resolve_neg,
    result_type as result_type,
    rms_norm as rms_norm,
    rnn_relu as rnn_relu,
    rnn_relu_cell as rnn_relu_cell,
    rnn_tanh as rnn_tanh,
    rnn_tanh_cell as rnn_tanh_cell,
    roll as roll,
    rot90 as rot90,
    round as round,
    round_ as round_,
    row_stack as row_stack,
    rrelu as rrelu,
    rrelu_ as rrelu_,
    rsqrt as rsqrt,
    rsqrt_ as rsqrt_,
    rsub as rsub,
    scalar_tensor as scalar_tensor,
    scatter as scatter,
    scatter_add as scatter_add,
    scatter_reduce as scatter_reduce,
    searchsorted as searchsorted,
    segment_reduce as segment_reduce,
    select as select,
    select_copy as select_copy,
    select_scatter as select_scatter,
    selu as selu,
    selu_ as selu_,
    set_flush_denormal as set_flush_denormal,
    set_num_interop_threads as set_num_interop_threads,
    set_num_threads as set_num_threads,
    sgn as sgn,
    sigmoid as sigmoid,
    sigmoid_ as sigmoid_,
    sign as sign,
    signbit as signbit,
    sin as sin,
    sin_ as sin_,
    sinc as sinc,
    sinc_ as sinc_,
    sinh as sinh,
    sinh_ as sinh_,
    slice_copy as slice_copy,
    slice_scatter as slice_scatter,
    slogdet as slogdet,
    smm as smm,
    softmax as softmax,
    sort as sort,
    sparse_coo_tensor as sparse_coo_tensor,
    split_copy as split_copy,
    split_with_sizes as split_with_sizes,
    split_with_sizes_copy as split_with_sizes_copy,
    spmm as spmm,
    sqrt as sqrt,
    sqrt_ as sqrt_,
    square as square,
    square_ as square_,
    squeeze as squeeze,
    squeeze_copy as squeeze_copy,
    stack as stack,
    std as std,
    std_mean as std_mean,
    sub as sub,
    subtract as subtract,
    sum as sum,
    svd as svd,
    swapaxes as swapaxes,
    swapdims as swapdims,
    t as t,
    t_copy as t_copy,
    take as take,
    take_along_dim as take_along_dim,
    tan as tan,
    tan_ as tan_,
    tanh as tanh,
    tanh_ as tanh_,
    tensor as tensor,
    tensor_split as tensor_split,
    threshold as threshold,
    threshold_ as threshold_,
    tile as tile,
    topk as topk,
    trace as trace,
    transpose as transpose,
    transpose_copy as transpose_copy,
    trapezoid as trapezoid,
    trapz as trapz,
    triangular_solve as triangular_solve,
    tril as tril,
    tril_indices as tril_indices,
    triplet_margin_loss as triplet_margin_loss,
    triu as triu,
    triu_indices as triu_indices,
    true_divide as true_divide,
    trunc as trunc,
    trunc_ as trunc_,
    unbind as unbind,
    unbind_copy as unbind_copy,
    unflatten as unflatten,
    unfold_copy as unfold_copy,
    unsafe_chunk as unsafe_chunk,
    unsafe_split as unsafe_split,
    unsafe_split_with_sizes as unsafe_split_with_sizes,
    unsqueeze as unsqueeze,
    unsqueeze_copy as unsqueeze_copy,
    vander as vander,
    var as var,
    var_mean as var_mean,
    vdot as vdot,
    view_as_complex as view_as_complex,
    view_as_complex_copy as view_as_complex_copy,
    view_as_real as view_as_real,
    view_as_real_copy as view_as_real_copy,
    view_copy as view_copy,
    vsplit as vsplit,
    vstack as vstack,
    where as where,
    xlogy as xlogy,
    xlogy_ as xlogy_,
    zero_ as zero_,
    zeros as zeros,
    zeros_like as zeros_like,
)
from cugrad.version import __version__ as __version__
BFloat16Storage: Any
class BFloat16Tensor(Tensor): ...
BoolStorage: Any
class BoolTensor(Tensor): ...
ByteStorage: Any
class ByteTensor(Tensor): ...
CharStorage: Any
class CharTensor(Tensor): ...
ComplexDoubleStorage: Any
ComplexFloatStorage: Any
DoubleStorage: Any
class DoubleTensor(Tensor): ...
from cugrad.accelerator import Event as Event
FloatStorage: Any
class FloatTensor(Tensor): ...
from cugrad.functions.creation.random import Generator as Generator
from cugrad.amp.grad_scaler import GradScaler as GradScaler
HalfStorage: Any
class HalfTensor(Tensor): ...
IntStorage: Any
class IntTensor(Tensor): ...
LongStorage: Any
class LongTensor(Tensor): ...
from cugrad.errors import OutOfMemoryError as OutOfMemoryError
ShortStorage: Any
class ShortTensor(Tensor): ...
from cugrad.tensor import Size as Size
from cugrad.accelerator import Stream as Stream
from cugrad.tensor import Tensor as Tensor
from cugrad.functions.shapes.storages import TypedStorage as TypedStorage
from cugrad.functions.shapes.storages import UntypedStorage as UntypedStorage
from cugrad import accelerator as accelerator
from cugrad import amp as amp
from cugrad.functions.switches import are_deterministic_algorithms_enabled as are_deterministic_algorithms_enabled
from cugrad import array_api as array_api
from cugrad import as_torch as as_torch
from cugrad.functions.shapes.arranging import atleast_1d as atleast_1d
from cugrad.functions.shapes.arranging import atleast_2d as atleast_2d
from cugrad.functions.shapes.arranging import atleast_3d as atleast_3d
from cugrad.amp.autocast_mode import autocast as autocast
from cugrad.amp.old_settings import autocast_decrement_nesting as autocast_decrement_nesting
from cugrad.amp.old_settings import autocast_increment_nesting as autocast_increment_nesting
from cugrad import autograd as autograd
from cugrad import backends as backends
from cugrad.dtypes import bfloat16 as bfloat16
from cugrad.functions.shapes.arranging import block_diag as block_diag
from .dtypes import bool_

bool = bool_
from cugrad.functions.shapes.arranging import broadcast_shapes as broadcast_shapes
from cugrad.functions.shapes.views import broadcast_tensors as broadcast_tensors
from cugrad.functions.creation.grids import cartesian_prod as cartesian_prod
from cugrad.linalg.distances import cdist as cdist
from cugrad.dtypes import cdouble as cdouble
from cugrad.dtypes import cfloat as cfloat
from cugrad.linalg.older import chain_matmul as chain_matmul
from cugrad.functions.shapes.layouts import channels_last as channels_last
from cugrad.functions.shapes.layouts import channels_last_3d as channels_last_3d
from cugrad.autograd.autocast import clear_autocast_cache as clear_autocast_cache
from cugrad.compiler import compile as compile
from cugrad import compiler as compiler
from cugrad.dtypes import complex128 as complex128
from cugrad.dtypes import complex64 as complex64
from cugrad.functions.control import cond as cond
from cugrad.functions.shapes.layouts import contiguous_format as contiguous_format
from cugrad import cpu as cpu
from cugrad import cuda as cuda
from cugrad.functions.creation.random import default_generator as default_generator
from cugrad.device import device as device
from cugrad import distributed as distributed
from cugrad import distributions as distributions
from cugrad.dtypes import double as double
from cugrad.dtypes import dtype as dtype
from math import e as e
from cugrad.functions.maths.einsum import einsum as einsum
from cugrad.autograd import enable_grad as enable_grad
from cugrad import errors as errors
from cugrad import fft as fft
from cugrad.functions.queries import finfo as finfo
from .dtypes import float_

float = float_
from cugrad.dtypes import float16 as float16
from cugrad.dtypes import float32 as float32
from cugrad.dtypes import float64 as float64
from cugrad.dtypes import float8_e4m3fn as float8_e4m3fn
from cugrad.dtypes import float8_e4m3fnuz as float8_e4m3fnuz
from cugrad.dtypes import float8_e5m2 as float8_e5m2
from cugrad.dtypes import float8_e5m2fnuz as float8_e5m2fnuz
from cugrad.dtypes import float8_e8m0fnu as float8_e8m0fnu
from cugrad.functions.creation.random import fork_rng as fork_rng
from cugrad.functions.interop.exchange import from_dlpack as from_dlpack
from cugrad import func as func
from cugrad import functional as functional
from cugrad.func.fusing import fuse as fuse
from cugrad import futures as futures
from cugrad import fx as fx
from cugrad.amp.old_settings import get_autocast_cpu_dtype as get_autocast_cpu_dtype
from cugrad.amp.settings import get_autocast_dtype as get_autocast_dtype
from cugrad.amp.old_settings import get_autocast_gpu_dtype as get_autocast_gpu_dtype
from cugrad.device import get_default_device as get_default_device
from cugrad.functions.switches import get_deterministic_debug_mode as get_deterministic_debug_mode
from cugrad.accelerator import get_device_module as get_device_module
from cugrad.functions.switches import get_float32_matmul_precision as get_float32_matmul_precision
from cugrad.functions.creation.random import get_rng_state as get_rng_state
from cugrad.dtypes import half as half
from cugrad import hub as hub
from cugrad.functions.queries import iinfo as iinfo
from math import inf as inf
from cugrad.autograd import inference_mode as inference_mode
from cugrad.functions.creation.random import initial_seed as initial_seed
from .dtypes import int_

int = int_
from cugrad.dtypes import int16 as int16
from cugrad.dtypes import int32 as int32
from cugrad.dtypes import int64 as int64
from cugrad.dtypes import int8 as int8
from cugrad.autograd.anomaly_mode import is_anomaly_check_nan_enabled as is_anomaly_check_nan_enabled
from cugrad.autograd.anomaly_mode import is_anomaly_enabled as is_anomaly_enabled
from cugrad.autograd.autocast import is_autocast_cache_enabled as is_autocast_cache_enabled
from cugrad.amp.old_settings import is_autocast_cpu_enabled as is_autocast_cpu_enabled
from cugrad.amp.settings import is_autocast_enabled as is_autocast_enabled
from cugrad.functions.switches import is_deterministic_algorithms_warn_only_enabled as is_deterministic_algorithms_warn_only_enabled
from cugrad.functions.shapes.storages import is_storage as is_storage
from cugrad.functions.queries import is_tensor as is_tensor
from cugrad.functions.switches import is_warn_always_enabled as is_warn_always_enabled
from cugrad.functions.calls.out import jagged as jagged
from cugrad import jit as jit
from cugrad.functions.calls.out import layout as layout
from cugrad.functions.shapes.layouts import contiguous_format as _legacy_contiguous_format

legacy_contiguous_format = _legacy_contiguous_format
from cugrad import linalg as linalg
from cugrad.serialization import load as load
from cugrad.serialization import load_file as load_file
from cugrad.dtypes import long as long
from cugrad.linalg.older import lu as lu
from cugrad.functions.creation.random import manual_seed as manual_seed
from cugrad import memory as memory
from cugrad.functions.shapes.layouts import memory_format as memory_format
from cugrad.functions.creation.grids import meshgrid as meshgrid
from cugrad import models as models
from cugrad import multiprocessing as multiprocessing
from math import nan as nan
newaxis: None
from cugrad import nn as nn
from cugrad.autograd import no_grad as no_grad
from cugrad.functions.maths.reduce import norm as norm
from cugrad import ops as ops
from cugrad import optim as optim
from cugrad import overrides as overrides
from cugrad.linalg.distances import pca_lowrank as pca_lowrank
from math import pi as pi
from cugrad.functions.shapes.layouts import preserve_format as preserve_format
from cugrad import profiler as profiler
from cugrad import quasirandom as quasirandom
from cugrad import random as random
from cugrad import return_types as return_types
from cugrad.serialization import save as save
from cugrad.serialization import save_file as save_file
from cugrad.functions.creation.random import seed as seed
from cugrad import serialization as serialization
from cugrad.autograd.anomaly_mode import set_anomaly_enabled as set_anomaly_enabled
from cugrad.amp.settings import set_autocast_cache_enabled as set_autocast_cache_enabled
from cugrad.amp.old_settings import set_autocast_cpu_dtype as set_autocast_cpu_dtype
from cugrad.amp.old_settings import set_autocast_cpu_enabled as set_autocast_cpu_enabled
from cugrad.amp.settings import set_autocast_dtype as set_autocast_dtype
from cugrad.amp.settings import set_autocast_enabled as set_autocast_enabled
from cugrad.amp.old_settings import set_autocast_gpu_dtype as set_autocast_gpu_dtype
from cugrad.device import set_default_device as set_default_device
from cugrad.dtypes import set_default_dtype as set_default_dtype
from cugrad.functions.interop.legacy import set_default_tensor_type as set_default_tensor_type
from cugrad.functions.switches import set_deterministic_debug_mode as set_deterministic_debug_mode
from cugrad.functions.switches import set_float32_matmul_precision as set_float32_matmul_precision
from cugrad.autograd import set_grad_enabled as set_grad_enabled
from cugrad.functions.interop.printing import set_printoptions as set_printoptions
from cugrad.functions.creation.random import set_rng_state as set_rng_state
from cugrad.functions.switches import set_warn_always as set_warn_always
from cugrad.dtypes import short as short
from cugrad import signal as signal
from cugrad import sparse as sparse
from cugrad.functions.calls.out import sparse_bsc as sparse_bsc
from cugrad.functions.calls.out import sparse_bsr as sparse_bsr
from cugrad.functions.calls.out import sparse_coo as sparse_coo
from cugrad.functions.calls.out import sparse_csc as sparse_csc
from cugrad.functions.calls.out import sparse_csr as sparse_csr
from cugrad import special as special
from cugrad.functions.shapes.splitting import split as split
from cugrad.functions.maths.spectral import stft as stft
from cugrad.functions.calls.out import strided as strided
from cugrad.linalg.distances import svd_lowrank as svd_lowrank
from cugrad.linalg.products import tensordot as tensordot
from cugrad import testing as testing
from cugrad.functions.interop.exchange import to_dlpack as to_dlpack
from cugrad.functions.interop.legacy import typename as typename
from cugrad import types as types
from cugrad.dtypes import uint16 as uint16
from cugrad.dtypes import uint32 as uint32
from cugrad.dtypes import uint64 as uint64
from cugrad.dtypes import uint8 as uint8
from cugrad.functions.maths.sorting import unique as unique
from cugrad.functions.maths.sorting import unique_consecutive as unique_consecutive
from cugrad.functions.creation.grids import unravel_index as unravel_index
from cugrad.functions.switches import use_deterministic_algorithms as use_deterministic_algorithms
from cugrad import utils as utils
from cugrad import version as version
from cugrad.func import vmap as vmap
from cugrad.functions.control import while_loop as while_loop
