"""Regions in which ops choose their dtype: `autocast`, and custom functions within them."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import dtypes
from ..autograd.autocast import (
    AutocastSetting,
    leave,
    setting,
    settings,
    switch_autocast,
)
from ..cuda import is_available as cuda_is_available
from ..runtime.absent import explain
from ..runtime.contexts import Context
from ..runtime.kept import Switch
from ..tensor import Tensor

__all__ = ["autocast", "custom_bwd", "custom_fwd", "is_autocast_available"]

SUPPORTED = (dtypes.bfloat16, dtypes.float16)


def is_autocast_available(device_type: str) -> bool:
    """Whether there is autocast for a type of device.

    >>> import cugrad as torch
    >>> torch.amp.is_autocast_available("cuda"), torch.amp.is_autocast_available("mps")
    (True, False)
    """
    return device_type in settings.of


def check_usable(device_type: str, kind: dtypes.dtype) -> None:
    """RuntimeError where a dtype needs a package that is absent: here, not in the first product."""
    try:
        _ = kind.numpy
    except RuntimeError as error:
        raise RuntimeError(
            f"autocast({device_type!r}): {error}, or give dtype=torch.float16"
        ) from None


class autocast(Switch, Context):
    """Within it ops run in the dtype that suits them: a context manager, and a decorator.

    Products and convolutions run in `dtype`, what needs range or precision in float32, the rest in
    what they are given. Inputs are cast, float64 excepted; a weight is cast once in the outermost
    region. Backward runs outside of it, in the dtypes that forward chose.

    Args:
        device_type: "cuda", "cpu" or "simulated": ops on tensors there are cast.
        dtype: float16 or bfloat16; None: float16, on a CPU bfloat16.
        enabled: False: within the region nothing is cast.
        cache_enabled: whether weights are cast once only; None: as it is.

    The lists of ops are PyTorch's.

    >>> import cugrad as torch
    >>> x, w = torch.ones(2, 3), torch.ones(3, 4)
    >>> with torch.autocast("cpu", dtype=torch.bfloat16):
    ...     y = x @ w
    ...     loss = torch.nn.functional.mse_loss(y, torch.zeros(2, 4))
    >>> y.dtype, loss.dtype
    (torch.bfloat16, torch.float32)
    """

    def __init__(
        self,
        device_type: str,
        dtype: dtypes.dtype | None = None,
        enabled: bool = True,
        cache_enabled: bool | None = None,
    ) -> None:
        if not isinstance(device_type, str):
            raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
        self.device = device_type
        self.fast_dtype = setting(device_type).dtype if dtype is None else dtypes.as_dtype(dtype)
        self._cache_enabled = settings.cache_enabled if cache_enabled is None else cache_enabled
        if enabled and device_type == "cuda" and not cuda_is_available():
            warnings.warn("CUDA is not available. Disabling autocast.", stacklevel=2)
            enabled = False
        elif enabled and self.fast_dtype not in SUPPORTED:
            warnings.warn(
                f"In {device_type.upper()} autocast, but the target dtype is not supported. "
                f"Disabling autocast.\n{device_type.upper()} Autocast only supports dtypes of "
                f"{', '.join(map(str, SUPPORTED))} currently.",
                stacklevel=2,
            )
            enabled = False
        if enabled:
            check_usable(device_type, self.fast_dtype)
        self._enabled = enabled

    def __repr__(self) -> str:
        off = "" if self._enabled else ", enabled=False"
        return f"autocast({self.device!r}, dtype={self.fast_dtype}{off})"

    def clone(self) -> autocast:
        return autocast(self.device, self.fast_dtype, self._enabled, self._cache_enabled)

    def as_is(self) -> tuple[AutocastSetting, bool, int]:
        return setting(self.device), settings.cache_enabled, settings.nesting

    def change(self, before: tuple[AutocastSetting, bool, int]) -> autocast:
        settings.nesting, settings.cache_enabled = before[2] + 1, self._cache_enabled
        switch_autocast(self.device, AutocastSetting(self._enabled, self.fast_dtype))
        return self

    def put_back(self, before: tuple[AutocastSetting, bool, int]) -> None:
        was, settings.cache_enabled, nesting = before
        leave(nesting)
        switch_autocast(self.device, was)

    def __call__(self, function: Any) -> Any:
        if not callable(function):
            raise TypeError(
                f"autocast()(func) requires a callable, but got {type(function).__name__}. "
                "Did you mean to use autocast as a context manager? For example:\n"
                "    with torch.autocast(device_type=...):\n        output = model(input)"
            )
        return super().__call__(function)


def _cast(value: Any, device_type: str, dtype: Any) -> Any:
    if isinstance(value, Tensor):
        fits = value.is_floating_point() and value.device.type == device_type
        return value.to(dtype) if fits and value.dtype is not dtypes.float64 else value
    if isinstance(value, (str, bytes, np.ndarray)):
        return value
    if isinstance(value, dict):
        return {key: _cast(item, device_type, dtype) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_cast(item, device_type, dtype) for item in value)
    return value


def custom_fwd(
    fwd: Callable[..., Any] | None = None,
    *,
    device_type: str,
    cast_inputs: dtypes.dtype | None = None,
) -> Any:
    """Decorates the `forward` of an `autograd.Function` that is called within `autocast`.

    Args:
        fwd: the static method's function.
        device_type: the type of device that it is for.
        cast_inputs: a dtype: floating-point tensors are cast to it, and `forward` runs with
            autocast off; None: it runs with autocast as it is.

    >>> import cugrad as torch
    >>> class Product(torch.autograd.Function):
    ...     @staticmethod
    ...     @torch.amp.custom_fwd(device_type="cpu", cast_inputs=torch.float32)
    ...     def forward(ctx, a, b):
    ...         ctx.save_for_backward(a, b)
    ...         return a @ b
    ...     @staticmethod
    ...     @torch.amp.custom_bwd(device_type="cpu")
    ...     def backward(ctx, g):
    ...         a, b = ctx.saved_tensors
    ...         return g @ b.mT, a.mT @ g
    >>> x = torch.ones(2, 2, dtype=torch.bfloat16)
    >>> with torch.autocast("cpu"):
    ...     Product.apply(x, x).dtype
    torch.float32
    """
    if not isinstance(device_type, str):
        raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)

    @functools.wraps(fwd)
    def decorated(ctx: Any, *args: Any, **kwargs: Any) -> Any:
        enabled, ctx._dtype = setting(device_type)
        ctx._fwd_used_autocast = enabled and cast_inputs is None
        if not enabled or cast_inputs is None:
            return fwd(ctx, *args, **kwargs)
        with autocast(device_type, enabled=False):
            args = _cast(args, device_type, cast_inputs)
            return fwd(ctx, *args, **_cast(kwargs, device_type, cast_inputs))

    return decorated


def custom_bwd(bwd: Callable[..., Any] | None = None, *, device_type: str) -> Any:
    """Decorates the `backward` that goes with a `custom_fwd`: autocast is as forward found it."""
    if not isinstance(device_type, str):
        raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)

    @functools.wraps(bwd)
    def decorated(ctx: Any, *args: Any, **kwargs: Any) -> Any:
        with autocast(device_type, ctx._dtype, enabled=ctx._fwd_used_autocast):
            return bwd(ctx, *args, **kwargs)

    return decorated


explain(__name__)
