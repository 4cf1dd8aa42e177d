"""torch.distributed: several processes that work on one thing, on MPI and NCCL.

`starting.py` makes groups of ranks (`groups.py`), `collectives.py`, `point_to_point.py` and
`objects.py` are what they call; `collectives.py` is the file to begin with. `engines` moves the
data, `meeting` is where ranks learn of each other, `run` starts them. `simulate` is for more ranks
than there are.
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from ..runtime.absent import explain
from ..runtime.lazy import lazily as _lazily
from . import algorithms as algorithms
from . import nn as nn
from .checks import DebugLevel as DebugLevel
from .checks import get_debug_level as get_debug_level
from .checks import get_global_rank as get_global_rank
from .checks import get_group_rank as get_group_rank
from .checks import get_process_group_ranks as get_process_group_ranks
from .checks import set_debug_level as set_debug_level
from .checks import set_debug_level_from_env as set_debug_level_from_env
from .collectives import *
from .device_mesh import *
from .errors import *
from .groups import Backend as Backend
from .groups import GroupMember as GroupMember
from .groups import ProcessGroup as ProcessGroup
from .groups import group as group
from .meeting.stores import FileStore as FileStore
from .meeting.stores import HashStore as HashStore
from .meeting.stores import PrefixStore as PrefixStore
from .meeting.stores import Store as Store
from .meeting.stores import TCPStore as TCPStore
from .objects import *
from .point_to_point import *
from .reduce_op import ReduceOp as ReduceOp
from .reduce_op import reduce_op as reduce_op
from .reduce_op import supports_complex as supports_complex
from .starting import *
from .subgroups import *
from .work import Work as Work

if _TYPE_CHECKING:  # what is imported when it is asked for
    from .algorithms.ddp_comm_hooks.buckets import GradBucket as GradBucket
    from .simulation import Scaling as Scaling
    from .simulation import Simulation as Simulation
    from .simulation import simulate as simulate

# Of a higher room.
__getattr__, __dir__ = _lazily(
    __name__,
    {
        "algorithms.ddp_comm_hooks.buckets": "GradBucket",
        "simulation": "Scaling Simulation simulate",
    },
)
explain(__name__)
