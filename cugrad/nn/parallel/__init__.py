"""torch.nn.parallel: one module on several devices.

`data_parallel` is the whole, and the file to begin with: `scatter_gather` deals the inputs out and
collects the outputs, `replicate` copies the module to each device, and `parallel_apply` runs the
copies in threads. Users import the names below; nn imports this room when it is asked for.
`checkpoint_wrapper` is asked for by PyTorch's path below `torch.distributed`.
"""

from ...runtime.absent import explain
from .data_parallel import DataParallel, data_parallel
from .distributed import DistributedDataParallel
from .parallel_apply import parallel_apply
from .replicate import replicate
from .scatter_gather import gather, scatter

__all__ = [
    "DataParallel", "DistributedDataParallel", "data_parallel", "gather", "parallel_apply",
    "replicate", "scatter",
]  # fmt: skip


explain(__name__)
