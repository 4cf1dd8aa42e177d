"""PyTorch's import path `torch.cuda.graphs`, for what stands in a higher room."""

from ..graphs import *  # noqa: F403
from ..graphs import __all__ as __all__
