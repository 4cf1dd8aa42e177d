"""CUDA devices: whether there are any, what they are, and which one is current in this thread."""

from __future__ import annotations

from typing import Any, NamedTuple

from .. import backends
from ..backends.cupy import probe as cupy_probe
from ..device import device as Place
from ..runtime.kept import Switch

__all__ = [
    "current_device",
    "device",
    "device_count",
    "device_of",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "init",
    "is_available",
    "is_bf16_supported",
    "is_initialized",
    "set_device",
    "synchronize",
]

DeviceLike = Place | str | int | None


def cuda_backend() -> Any:
    """The CUDA backend, made at first use; RuntimeError that says what is missing."""
    return backends.get("cuda")


def index_of(where: DeviceLike) -> int:
    """The device index that an argument means; the current device for None and for plain "cuda".

    ValueError for a device that is not CUDA's.
    """
    if isinstance(where, int):
        return where
    if where is not None:
        place = Place(where)
        if place.type != "cuda":
            raise ValueError(f"Expected a cuda device, but got: {place}")
        if place.index is not None:
            return place.index
    return current_device()


def is_simulated_device(where: DeviceLike) -> bool:
    """Whether an argument names the simulated device, which answers where CUDA is asked for."""
    return where is not None and not isinstance(where, int) and Place(where).type == "simulated"


def backend_at(where: DeviceLike) -> tuple[Any, int]:
    """The backend and the index of a device of CUDA, or of the simulated one."""
    if is_simulated_device(where):
        return backends.get("simulated"), 0
    return cuda_backend(), index_of(where)


def is_available() -> bool:
    """Whether CUDA can be used here; never raises, and makes no CUDA context."""
    return backends.is_simulated("cuda") or cupy_probe.why_unusable() is None


def device_count() -> int:
    """The number of usable CUDA devices, 0 where CUDA cannot be used; never raises."""
    return 1 if backends.is_simulated("cuda") else cupy_probe.device_count()


class _Started:
    now = False


def _notice(backend: backends.Backend) -> None:
    _Started.now = _Started.now or backend.device_type == "cuda"


backends.on_register(_notice)


def is_initialized() -> bool:
    """Whether this process has begun to use CUDA."""
    return _Started.now


def init() -> None:
    """Begins to use CUDA now and not at first need; RuntimeError that says what is missing."""
    cuda_backend()


def current_device() -> int:
    """The index of this thread's current device."""
    return int(cuda_backend().current_device())


def set_device(device: DeviceLike) -> None:
    """Makes a device current in this thread; `with cuda.device(...)` is better. -1 changes
    nothing.
    """
    index = index_of(device)
    if index >= 0:
        cuda_backend().set_device(index)


class device(Switch):
    """Makes a device current inside a `with`; None or a negative index changes nothing."""

    def __init__(self, device: DeviceLike) -> None:
        self.idx = -1 if device is None else index_of(device)

    def as_is(self) -> Any:
        return cuda_backend().current_device() if self.idx >= 0 else None

    def change(self, before: Any) -> None:
        if self.idx >= 0:
            cuda_backend().set_device(self.idx)

    def put_back(self, before: Any) -> None:
        if before is not None:
            cuda_backend().set_device(before)


class device_of(device):
    """Makes the device of a tensor current inside a `with`; one that is elsewhere changes nothing.

    >>> import cugrad as torch
    >>> with torch.cuda.device_of(torch.ones(2, device="cpu")):
    ...     pass
    """

    def __init__(self, obj: Any) -> None:
        super().__init__(obj.device.index if obj.is_cuda else None)


class DeviceProperties(NamedTuple):
    """What a device is."""

    name: str
    major: int
    minor: int
    total_memory: int
    multi_processor_count: int
    warp_size: int
    shared_memory_per_block: int


def get_device_properties(device: DeviceLike = None) -> DeviceProperties:
    """The properties of a device: name, compute capability, bytes of memory, multiprocessors."""
    index = index_of(device)
    properties = cuda_backend().device_properties(index)
    return DeviceProperties(
        properties["name"].decode(),
        properties["major"],
        properties["minor"],
        properties["totalGlobalMem"],
        properties["multiProcessorCount"],
        properties["warpSize"],
        properties["sharedMemPerBlock"],
    )


def get_device_name(device: DeviceLike = None) -> str:
    """The name of a device, such as "NVIDIA H200"."""
    return get_device_properties(device).name


def get_device_capability(device: DeviceLike = None) -> tuple[int, int]:
    """The (major, minor) compute capability of a device."""
    properties = get_device_properties(device)
    return properties.major, properties.minor


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether the current device computes in bfloat16; never raises.

    With `including_emulation` also one that computes it in float32, as those before capability 8.0.
    """
    return is_available() and (including_emulation or get_device_capability()[0] >= 8)


def synchronize(device: DeviceLike = None) -> None:
    """Blocks the host until everything queued on a device is done."""
    backend, index = backend_at(device)
    with backend.use_device(index):
        backend.synchronize()
