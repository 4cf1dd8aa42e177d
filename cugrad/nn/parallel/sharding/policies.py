"""In which dtypes a sharded module computes, and where its parts are."""

from __future__ import annotations

from dataclasses import dataclass

from ....dtypes import dtype as Dtype

__all__ = ["CPUOffloadPolicy", "MixedPrecisionPolicy", "OffloadPolicy"]


@dataclass(frozen=True)
class MixedPrecisionPolicy:
    """The dtypes of a sharded module; None: as they are. Parts keep theirs, and so do steps.

    Args:
        param_dtype: of the parameters that are gathered, and so of what forward computes.
        reduce_dtype: in which gradients are summed up; default `param_dtype`.
        output_dtype: of what forward returns.
        cast_forward_inputs: whether floating-point inputs become of `param_dtype`.
    """

    param_dtype: Dtype | None = None
    reduce_dtype: Dtype | None = None
    output_dtype: Dtype | None = None
    cast_forward_inputs: bool = True


@dataclass
class OffloadPolicy:
    """Parts stay on the device that computes."""


@dataclass
class CPUOffloadPolicy(OffloadPolicy):
    """Parts, their gradients and the optimizer's states are in host memory, where it steps.

    `pin_memory` has the parts in page-locked memory, which copies are faster from.
    """

    pin_memory: bool = True
