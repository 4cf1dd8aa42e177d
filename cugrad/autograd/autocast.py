"""Autocast: the dtype in which an op runs, by its name and by the device of what it takes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from typing import Any, NamedTuple, ParamSpec, TypeVar

from .. import dtypes
from ..backends import BY_ARRAY_TYPE
from ..device import ELSEWHERE
from ..dtypes import is_floating
from ..errors import NoArray
from ..ops.table import Op
from ..runtime.kept import Switch, of_thread
from ..tensor import Tensor
from .mode import state
from .recording.recorded import recorded
from .transforms import running

__all__ = [
    "AutocastSetting", "autocasts", "casting", "clear_autocast_cache", "is_autocast_cache_enabled",
    "leave", "nothing_cast", "setting", "settings", "switch_autocast",
]  # fmt: skip

P = ParamSpec("P")
R = TypeVar("R")

# Which ops run in the lower precision, which in float32, and which in the widest dtype that they
# are given: PyTorch's lists (aten/src/ATen/autocast_mode.h), by the names of rows and functions.
# AS_GIVEN are functions that call ops of these lists and are not to be cast themselves.
LOWER, FULL, WIDEST, AS_GIVEN, REFUSED = "lower", "float32", "widest", "as given", "refused"

_LOWER = """
    linear linear_weight mm bmm matmul baddbmm addmm addbmm convolution convolution_input prelu
    prelu_kernel
    conv_transpose1d conv_transpose2d conv_transpose3d scaled_dot_product_attention vecdot
"""
_LOSSES = """
    cross_entropy nll_loss mse_loss l1_loss smooth_l1_loss huber_loss kl_div ctc_loss
    binary_cross_entropy_with_logits poisson_nll_loss cosine_embedding_loss hinge_embedding_loss
    margin_ranking_loss multi_margin_loss multilabel_margin_loss soft_margin_loss
    triplet_margin_loss
"""
CUDA = {
    LOWER: _LOWER + """
        addmv addr mv einsum multi_dot chain_matmul lstm gru rnn_tanh rnn_relu lstm_cell gru_cell
        rnn_tanh_cell rnn_relu_cell
    """,
    FULL: _LOSSES + """
        acos asin cosh tan sinh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt pow square
        softplus native_layer_norm native_group_norm rms_norm cosine_similarity dist pdist cdist
        renorm logsumexp prod sum cumprod cumsum softmax log_softmax linalg_vector_norm norm
        interpolate
    """,
    WIDEST: "addcdiv addcmul atan2 bilinear cross linalg_cross dot vdot tensordot grid_sample "
            "index_put scatter_add cat stack",
    REFUSED: "binary_cross_entropy",
}  # fmt: skip
CPU = {
    LOWER: _LOWER + "lstm rnn_tanh rnn_relu rnn_tanh_cell rnn_relu_cell",
    FULL: _LOSSES + """
        binary_cross_entropy avg_pool3d adaptive_avg_pool3d max_pool3d_with_indices max_unpool2d
        pad_edges cdist prod trace quantile nanquantile grid_sample fft_c2c fft_c2r fft_r2c polar
        view_as_complex cholesky cholesky_ex cholesky_inverse cholesky_solve eig eigh eigvals
        eigvalsh geqrf householder_product inv inv_ex inverse lstsq lu_solve orgqr ormqr
        triangular_solve matrix_rank cond pinverse qr solve svd svdvals tensorinv tensorsolve
    """,
    AS_GIVEN: "bilinear interpolate constant_pad_nd",
    WIDEST: "cat stack index_copy gru lstm_cell gru_cell",
}  # fmt: skip


def _by_name(lists: dict[str, str]) -> dict[str, str]:
    return {name: kind for kind, names in lists.items() for name in names.split()}


POLICIES = dict.fromkeys(("cuda", "simulated"), _by_name(CUDA)) | {"cpu": _by_name(CPU)}
FLOAT32 = dtypes.float32.numpy


class AutocastSetting(NamedTuple):
    """What autocast does with tensors of one type of device."""

    enabled: bool
    dtype: dtypes.dtype


class AutocastState(threading.local):
    """What this thread has asked for, by type of device, and the weights it has cast."""

    def __init__(self) -> None:
        self.of = {
            "cpu": AutocastSetting(False, dtypes.bfloat16),
            "cuda": AutocastSetting(False, dtypes.float16),
            "simulated": AutocastSetting(False, dtypes.float16),
        }
        self.lower: dict[str, dtypes.dtype] = {}  # settings of the types for which autocast is on
        self.cache_enabled = True
        self.nesting = 0
        self.cache: dict[tuple[int, bool], tuple[Tensor, int, Tensor]] = {}  # by id of the weight


settings = of_thread(AutocastState())


def setting(device_type: str) -> AutocastSetting:
    """What autocast does on a type of device. RuntimeError for one that it does not know."""
    entry = settings.of.get(device_type)
    if entry is None and device_type in (*ELSEWHERE, "meta"):
        return AutocastSetting(False, dtypes.float16)
    if entry is None:
        raise RuntimeError(
            f"User specified an unsupported autocast device_type '{device_type}'; "
            f"want one of {', '.join(settings.of)}"
        )
    return entry


def switch_autocast(device_type: str, to: AutocastSetting) -> None:
    """Sets what autocast does on a type of device, in this thread, from now on."""
    settings.of = {**settings.of, device_type: to}
    _refresh()


def _refresh() -> None:
    lower = {kind: s.dtype for kind, s in settings.of.items() if s.enabled}
    if lower or settings.lower:
        _switch(cast_inputs if lower else None)
        settings.lower = lower  # last: after an interrupt before this line all of it is done again


def _switch(to: Any) -> None:
    if state.autocast is not to:
        state.switch(autocast=to)


def clear_autocast_cache() -> None:
    """Lets go of the weights that autocast has cast in this thread."""
    settings.cache.clear()


def is_autocast_cache_enabled() -> bool:
    """Whether weights are cast once for the whole outermost region, in this thread."""
    return settings.cache_enabled


class nothing_cast(Switch):
    """Within it, no op is cast."""

    def as_is(self) -> Any:
        return state.autocast

    def change(self, before: Any) -> None:
        _switch(None)

    def put_back(self, before: Any) -> None:
        _switch(before)


class casting(Switch):
    """Within it autocast is set to what it was when this was made, in whatever thread."""

    def __init__(self) -> None:
        self._settings = settings.of, settings.cache_enabled

    def as_is(self) -> tuple[Any, bool, int]:
        return settings.of, settings.cache_enabled, settings.nesting

    def change(self, before: tuple[Any, bool, int]) -> None:
        settings.nesting = before[2] + 1
        settings.of, settings.cache_enabled = self._settings
        _refresh()

    def put_back(self, before: tuple[Any, bool, int]) -> None:
        settings.of, settings.cache_enabled, nesting = before
        leave(nesting)
        _refresh()


def leave(nesting: int) -> None:
    """Ends a region that is nested this deep. With the outermost region the casts of weights go."""
    settings.nesting = nesting
    if nesting == 0:
        clear_autocast_cache()


# ---------------------------------------------------------------------- casts


def cast_inputs(op: Op, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The inputs of a row in the dtypes that the thread's autocast wants."""
    inputs = args[0] if op.variadic else args
    cast = _cast(op.name, inputs)
    if cast is inputs:
        return args
    return (cast,) if op.variadic else tuple(cast)


def autocasts(function: Callable[P, R], name: str = "") -> Callable[P, R]:
    """Decorates a function that autocast treats as one op, by its name, although it calls several.
    Its tensors are cast; the ops that it calls cast nothing.
    """
    name = name or function.__name__

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        if state.autocast is None:
            return function(*args, **kwargs)
        flat = [*args, *kwargs.values()]
        try:
            kind = _policy(name, _flat(flat))
            cast = None if kind is None else _cast_nested(name, flat)
        except NoArray:  # of sparse tensors other ops are called, each of which is asked for
            cast = None
        if cast is None:
            return function(*args, **kwargs)
        with nothing_cast():
            return function(*cast[: len(args)], **dict(zip(kwargs, cast[len(args) :], strict=True)))

    return run


def _flat(values: Any) -> list[Tensor]:
    tensors = []
    for value in values:
        if isinstance(value, Tensor):
            tensors.append(value)
        elif type(value) in (list, tuple):
            tensors.extend(_flat(value))
    return tensors


def _cast_nested(name: str, values: list[Any]) -> list[Any]:
    """Values with their tensors cast, also those in lists and tuples of them."""
    cast = iter(_cast(name, _flat(values)))
    return [_replaced(value, cast) for value in values]


def _replaced(value: Any, cast: Iterator[Any]) -> Any:
    if isinstance(value, Tensor):
        return next(cast)
    if type(value) in (list, tuple):
        return type(value)(_replaced(v, cast) for v in value)
    return value


def _policy(name: str, tensors: Sequence[Any]) -> str | None:
    """What autocast says of an op on these, if it is on for the device of one of them."""
    for tensor in tensors:
        if isinstance(tensor, Tensor) and (kind := _type_of(tensor)) in settings.lower:
            return POLICIES[kind].get(name)
    return None


def _type_of(tensor: Tensor) -> str:
    """The type of a tensor's device."""
    backend = BY_ARRAY_TYPE.get(type(tensor._array))
    return tensor.device.type if backend is None else backend.device_type


def _cast(name: str, values: Sequence[Any]) -> Sequence[Any]:
    """The inputs of an op with floating-point tensors cast; the same sequence if none is cast."""
    policy = _policy(name, values)
    if policy is None or policy == AS_GIVEN:
        return values
    if policy == REFUSED:
        raise RuntimeError(
            "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to "
            "autocast.\nMany models use a sigmoid layer right before the binary cross entropy "
            "layer.\n"
            "In this case, combine the two layers using torch.nn.functional.binary_cross_entropy_"
            "with_logits\nor torch.nn.BCEWithLogitsLoss.  binary_cross_entropy_with_logits and "
            "BCEWithLogits are\nsafe to autocast."
        )
    target_dtypes = [_wanted(policy, value) for value in values]
    if policy == WIDEST and FLOAT32 not in [
        value._array.dtype
        for value, dtype in zip(values, target_dtypes, strict=True)
        if dtype is not None
    ]:
        return values
    if all(
        dtype is None or value._array.dtype == dtype
        for value, dtype in zip(values, target_dtypes, strict=True)
    ):
        return values
    return [
        value if dtype is None else converted(value, dtype)
        for value, dtype in zip(values, target_dtypes, strict=True)
    ]


def _wanted(policy: str, value: Any) -> Any:
    """The dtype for one value; None for values that stay: integers, float64, other devices."""
    if not isinstance(value, Tensor) or not is_floating(value._array.dtype):
        return None
    if value._array.dtype.itemsize > 4:
        return None
    lower = settings.lower.get(_type_of(value))
    if lower is None:
        return None
    return lower.numpy if policy == LOWER else FLOAT32


def converted(value: Tensor, dtype: Any) -> Tensor:
    """Casts a tensor. The cast of a weight is kept until the outermost region ends."""
    if value._array.dtype == dtype:
        return value
    if not (
        settings.cache_enabled
        and settings.nesting
        and dtype is not FLOAT32
        and value._array.dtype == FLOAT32
        and value._requires_grad
        and value.is_leaf
        and not value._is_view()
        and not (state.levels or state.inference or running.transforms)
    ):
        return recorded.to_dtype(value, dtype)
    key = id(value), state.grad_enabled
    entry = settings.cache.get(key)
    if entry is None or entry[1] != value._version or entry[2]._array.dtype != dtype:
        entry = settings.cache[key] = value, value._version, recorded.to_dtype(value, dtype)
    return entry[2]
