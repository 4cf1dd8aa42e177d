"""torch.utils.dlpack: tensors of other libraries, and for them, without a copy."""

from enum import IntEnum

from ..functions.interop.exchange import from_dlpack, to_dlpack
from ..runtime.absent import explain

__all__ = ["DLDeviceType", "from_dlpack", "to_dlpack"]


class DLDeviceType(IntEnum):
    """The standard's kinds of devices, as `__dlpack_device__` numbers them."""

    kDLCPU = 1
    kDLCUDA = 2
    kDLCUDAHost = 3
    kDLOpenCL = 4
    kDLVulkan = 7
    kDLMetal = 8
    kDLVPI = 9
    kDLROCM = 10
    kDLROCMHost = 11
    kDLExtDev = 12
    kDLCUDAManaged = 13
    kDLOneAPI = 14
    kDLWebGPU = 15
    kDLHexagon = 16
    kDLMAIA = 17


explain(__name__)
