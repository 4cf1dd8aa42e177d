"""The namespace of the Python array API standard, 2024.12, that `Tensor.__array_namespace__` gives.

Source: https://data-apis.org/array-api/2024.12. Functions of the same meaning are those of cugrad;
`functions.py` has those whose names or arguments differ. Begin with the lists below, which say
where each name comes from. No other room imports from here: it is loaded when a program asks for
the namespace.
"""

from __future__ import annotations

import math
import types
from typing import Any

import cugrad

from .functions import FUNCTIONS, KINDS, matrix_transpose

__all__ = ["VERSION", "namespace_of"]

VERSION = "2024.12"

# Functions that cugrad has under the same name and with the same arguments, or PyTorch's other.
_SAME = """
abs acos acosh add any asin asinh atan atan2 atanh bitwise_and bitwise_left_shift bitwise_or
bitwise_right_shift bitwise_xor broadcast_to ceil clip conj copysign cos
cosh count_nonzero diff divide empty empty_like equal exp expm1 finfo floor floor_divide
from_dlpack full full_like greater greater_equal hypot iinfo imag isfinite isinf isnan less
less_equal log log10 log1p log2 logaddexp logical_and logical_not logical_or logical_xor
matmul maximum meshgrid minimum moveaxis multiply negative not_equal ones ones_like
positive pow real reciprocal remainder round searchsorted sign
signbit sin sinh sqrt square squeeze stack subtract tan tanh tensordot tile trunc
vecdot where zeros zeros_like
"""
SAME = _SAME.split()
# The standard's name -> cugrad's.
RENAMED = {
    "bitwise_invert": "bitwise_not", "broadcast_arrays": "broadcast_tensors", "equal": "eq",
    "expand_dims": "unsqueeze", "permute_dims": "permute",
}  # fmt: skip
_LINALG = """
cholesky cross det diagonal eigh eigvalsh inv matmul matrix_norm matrix_power matrix_rank outer pinv
qr slogdet solve svd svdvals tensordot vecdot vector_norm
"""
LINALG = _LINALG.split()
_FFT = """
fft ifft fftn ifftn rfft irfft rfftn irfftn hfft ihfft fftfreq rfftfreq fftshift ifftshift
"""
FFT = _FFT.split()

_namespace = types.ModuleType("cugrad.array_api_2024_12", __doc__)


def _fill() -> None:
    """Puts what cugrad has into the namespace, then what is written here."""
    main = vars(cugrad)
    space: dict[str, Any] = {n: main[n] for n in SAME if n in main}
    space.update({name: main[ours] for name, ours in RENAMED.items()})
    space["unstack"] = lambda x, /, *, axis=0: main["unbind"](x, axis)
    space["vecdot"] = lambda x1, x2, /, *, axis=-1: cugrad.linalg.vecdot(x1, x2, dim=axis)
    space.update({d.name: d for d in (*KINDS["bool"], *KINDS["numeric"])})
    space.update(e=math.e, inf=math.inf, nan=math.nan, newaxis=None, pi=math.pi)
    space.update(FUNCTIONS)
    rooms = {"linalg": (cugrad.linalg, LINALG), "fft": (cugrad.fft, FFT)}
    for room, (source, names) in rooms.items():
        module = types.ModuleType(f"{_namespace.__name__}.{room}")
        for name in names:
            function = getattr(source, name, None) or main.get(name)
            setattr(module, name, function)
        space[room] = module
    space["linalg"].trace = lambda x, /, *, offset=0, dtype=None: main["diagonal"](
        x, offset, -2, -1
    ).sum(-1, dtype=dtype)
    space["linalg"].matrix_transpose = matrix_transpose
    space["linalg"].vecdot = space["vecdot"]
    space["matmul"], space["__array_api_version__"] = main["matmul"], VERSION
    _namespace.__dict__.update(space)


_fill()


def namespace_of(api_version: str | None = None) -> Any:
    """The functions of the array API standard; ValueError for a version that is not there."""
    if api_version not in (None, "2021.12", "2022.12", "2023.12", VERSION):
        raise ValueError(f"__array_namespace__: want a version up to {VERSION}, got {api_version}")
    return _namespace
