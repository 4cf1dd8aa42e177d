"""torch.utils.dlpack: tensors of other libraries, and for them, without a copy."""

from ..functions.interop.exchange import from_dlpack, to_dlpack

__all__ = ["from_dlpack", "to_dlpack"]
