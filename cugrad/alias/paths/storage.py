"""torch.storage: the memory of tensors, and bytes of a file; other storages refuse."""

from ...functions.shapes.storages import TypedStorage, UntypedStorage
from ...runtime.absent import STORAGE
from ..refusals import refuse_the_rest

__all__ = ["TypedStorage", "UntypedStorage"]

refuse_the_rest(__name__, "storage", STORAGE)
