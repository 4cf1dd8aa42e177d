"""torch.utils.tensorboard: `SummaryWriter`, which writes what TensorBoard shows.

`writer.py` has it: begin there. `summaries.py` makes the records. Both need the package
tensorboard, which is imported when a writer is made.
"""

from ...runtime.absent import explain
from .writer import SummaryWriter

__all__ = ["SummaryWriter"]


explain(__name__)
