# Written by python -m tests.documents.stubs --write, and checked by tests/typing.
# mypy: disable-error-code="override, overload-overlap, overload-cannot-match"

import builtins
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, overload

import numpy

from cugrad._types import (
    DeviceLikeType, Generator, Number, _bool, _complex, _device, _dtype, _float, _Index, _int,
    _layout, _Node, _size, memory_format,
)
from cugrad.tensor import Tensor
from cugrad.nn.utils import clip_grad as clip_grad
from cugrad.nn.utils.clip_grad import clip_grad_norm as clip_grad_norm
from cugrad.nn.utils.clip_grad import clip_grad_norm_ as clip_grad_norm_
from cugrad.nn.utils.clip_grad import clip_grad_value_ as clip_grad_value_
from cugrad.nn.utils.clip_grad import clip_grads_with_norm_ as clip_grads_with_norm_
from cugrad.nn.utils.memory_format import convert_conv2d_weight_memory_format as convert_conv2d_weight_memory_format
from cugrad.nn.utils.memory_format import convert_conv3d_weight_memory_format as convert_conv3d_weight_memory_format
from cugrad.nn.utils import convert_parameters as convert_parameters
from cugrad.nn.utils.fusion import fuse_conv_bn_eval as fuse_conv_bn_eval
from cugrad.nn.utils.fusion import fuse_conv_bn_weights as fuse_conv_bn_weights
from cugrad.nn.utils.fusion import fuse_linear_bn_eval as fuse_linear_bn_eval
from cugrad.nn.utils.fusion import fuse_linear_bn_weights as fuse_linear_bn_weights
from cugrad.nn.utils import fusion as fusion
from cugrad.nn.utils.clip_grad import get_total_norm as get_total_norm
from cugrad.nn.utils import init as init
from cugrad.nn.utils import memory_format as memory_format
from cugrad.nn.utils.convert_parameters import parameters_to_vector as parameters_to_vector
from cugrad.nn.utils import parametrizations as parametrizations
from cugrad.nn.utils import parametrize as parametrize
from cugrad.nn.utils import prune as prune
from cugrad.nn.utils.spectral_norm import remove_spectral_norm as remove_spectral_norm
from cugrad.nn.utils.weight_norm import remove_weight_norm as remove_weight_norm
from cugrad.nn.utils import rnn as rnn
from cugrad.nn.utils.init import skip_init as skip_init
from cugrad.nn.utils.spectral_norm import spectral_norm as spectral_norm
from cugrad.nn.utils.convert_parameters import vector_to_parameters as vector_to_parameters
from cugrad.nn.utils.weight_norm import weight_norm as weight_norm
