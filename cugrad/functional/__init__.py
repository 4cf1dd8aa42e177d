"""torch.functional: functions of torch by the path at which PyTorch has them.

Code that `torch.fx` writes calls them there. Begin in `functions`, where they are.
"""

from __future__ import annotations

import sys
from typing import Any

from ..runtime.absent import explain

__all__: list[str] = """
    atleast_1d atleast_2d atleast_3d block_diag broadcast_shapes broadcast_tensors cartesian_prod
    cdist chain_matmul einsum istft lu meshgrid norm pca_lowrank split stft svd_lowrank tensordot
    unique unique_consecutive unravel_index
""".split()  # noqa: SIM905

_library: Any = sys.modules[__name__.partition(".")[0]]
globals().update({name: getattr(_library, name) for name in __all__})
explain(__name__)
