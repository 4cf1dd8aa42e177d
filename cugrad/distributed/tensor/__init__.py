"""torch.distributed.tensor: tensors of which each rank has a part.

`dtensor.py` has the class, and the file to begin with; `placements.py` says who has what, and
`making.py` makes them of nothing.
`distributed.fsdp` makes parameters of them, `distributed.checkpoint` writes and reads them.
"""

from ...runtime.absent import explain
from ..device_mesh import DeviceMesh as DeviceMesh
from ..device_mesh import init_device_mesh as init_device_mesh
from .dtensor import DTensor as DTensor
from .dtensor import distribute_tensor as distribute_tensor
from .making import empty as empty
from .making import full as full
from .making import ones as ones
from .making import rand as rand
from .making import randn as randn
from .making import zeros as zeros
from .placements import Partial as Partial
from .placements import Placement as Placement
from .placements import Replicate as Replicate
from .placements import Shard as Shard

__all__ = [
    "DTensor", "DeviceMesh", "Partial", "Placement", "Replicate", "Shard", "distribute_tensor",
    "empty", "full", "init_device_mesh", "ones", "rand", "randn", "zeros",
]  # fmt: skip

explain(__name__)
