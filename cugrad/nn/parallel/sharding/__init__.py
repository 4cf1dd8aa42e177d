"""torch.distributed.fsdp: modules whose parameters, gradients and states are in parts on all ranks.

`fully_shard.py` is what users call: begin there. `group.py` has the parameters of one module, which
come and go together; `whole.py` is a parameter that is gathered when it is looked at.
`distributed.fsdp` shows the names.
"""

from .fully_shard import (
    FSDPModule,
    UnshardHandle,
    fully_shard,
    register_fsdp_forward_method,
)
from .policies import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy

__all__ = [
    "CPUOffloadPolicy", "FSDPModule", "MixedPrecisionPolicy", "OffloadPolicy", "UnshardHandle",
    "fully_shard", "register_fsdp_forward_method",
]  # fmt: skip
