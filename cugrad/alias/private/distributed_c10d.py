"""PyTorch's module `torch.distributed.distributed_c10d`: what `torch.distributed` has, at home."""

from ...distributed import *  # noqa: F403 (that is what the module is)
from ...distributed.groups import default_group as _get_default_group
from ...runtime.absent import explain

__all__ = ["_get_default_group"]

explain(__name__)
