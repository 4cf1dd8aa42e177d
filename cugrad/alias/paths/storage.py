"""torch.storage: the memory of tensors, and bytes of a file; other storages refuse."""

from ...absent import STORAGE
from ...functions.shapes.storages import TypedStorage, UntypedStorage
from ..refusals import refuse_the_rest

__all__ = ["TypedStorage", "UntypedStorage"]

refuse_the_rest(__name__, "storage", STORAGE)
