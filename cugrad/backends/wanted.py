"""What a user asks of the kernels of all backends: TF32 products, and the same bits in each run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

__all__ = ["Settings", "Wanted", "known", "wanted"]


class Settings:
    """Fields whose changes give `wanted.number` another value."""

    __slots__: tuple[str, ...] = ()

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)
        _number_anew()


class ByCudnn(Settings):
    """Whether convolutions on CUDA are cuDNN's, and how: the switches of `torch.backends.cudnn`.

    `asked` is what CUGRAD_CUDNN in the environment says: 0 leaves cuDNN out, with 1 it must be
    there. None, without the variable, takes it where its package is, which the first convolution
    imports.
    """

    __slots__ = (
        "asked", "enabled", "benchmark", "benchmark_limit", "deterministic", "allow_tf32",
    )  # fmt: skip
    asked: bool | None

    def __init__(self) -> None:
        said = os.environ.get("CUGRAD_CUDNN", "")
        self.asked = None if said == "" else said != "0"
        self.enabled, self.benchmark, self.deterministic, self.allow_tf32 = True, False, False, True
        self.benchmark_limit: int | None = None

    @property
    def used(self) -> bool:
        """Whether convolutions are cuDNN's, if it is there."""
        return self.asked is not False and self.enabled


class Wanted(Settings):
    """Settings of the process; a kernel reads them when it is launched.

    `number` is the same for the same settings, and for no others: who keeps what was decided of
    settings keeps it under that, and need not know which they were.

    `tf32`: products of float32 on CUDA may round their operands to TF32; off, as in PyTorch, unless
    the environment variable CUPY_TF32 says so. `deterministic`: sums come out alike in every run,
    and new memory has known contents. `fused`: on CUDA an elementwise row is one kernel; with
    CUGRAD_FUSED=0 in the environment it is a chain of CuPy's, to compare with. `cublaslt`: affine
    maps on CUDA are products of cuBLASLt, which add the bias; with TORCH_BLAS_PREFER_CUBLASLT=1.
    `cudnn`: see ByCudnn. `attention`: PyTorch's ways to compute it on CUDA, in the order in which
    they are tried, and whether each is enabled: "flash" are kernels on tensor cores,
    "mem_efficient" are those of float32 products, "cudnn" is cuDNN; tensor functions, "math", take
    all, and serve what the others do not take. It is changed by another mapping in its place.
    """

    __slots__ = ("tf32", "deterministic", "fused", "cublaslt", "cudnn", "attention", "number")
    attention: Mapping[str, bool]
    number: int

    def __init__(self) -> None:
        self.tf32 = os.environ.get("CUPY_TF32", "0") not in ("", "0")
        self.deterministic = False
        self.fused = os.environ.get("CUGRAD_FUSED", "1") not in ("", "0")
        self.cudnn = ByCudnn()
        ways = dict.fromkeys(("flash", "mem_efficient", "math", "cudnn"), True)
        self.attention = MappingProxyType(ways)  # which no program changes unseen
        self.cublaslt = os.environ.get("TORCH_BLAS_PREFER_CUBLASLT", "0") not in ("", "0")


_numbers: dict[Any, int] = {}  # of all settings that there have been


def _number_anew() -> None:
    settings = globals().get("wanted")
    if settings is not None:  # else they are being made
        key = _values(settings)
        object.__setattr__(settings, "number", _numbers.setdefault(key, len(_numbers)))


def _values(settings: Settings) -> tuple[Any, ...]:
    """All settings in a key, those of settings within them too."""
    values: list[Any] = []
    for name in settings.__slots__:
        value = None if name == "number" else getattr(settings, name)
        if isinstance(value, Settings):
            value = _values(value)
        values.append(tuple(value.items()) if isinstance(value, Mapping) else value)
    return tuple(values)


wanted = Wanted()
_number_anew()


def known(array: Any) -> Any:
    """An uninitialised array, filled where the user wants memory with known contents.

    With PyTorch's values: nan, the largest integer, True.
    """
    if wanted.deterministic:
        kind = np.dtype(array.dtype)
        largest = np.iinfo(kind).max if kind.kind in "iu" else kind.kind == "b" or np.nan
        array[...] = largest
    return array
