"""`zeros` and its like: DTensors, of which each rank makes its part."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...dtypes import dtype as Dtype
from ...functions.creation import factories, random
from ...tensor import Size, Tensor
from ..device_mesh import DeviceMesh
from ..groups import default_group
from .dtensor import DTensor, _checked, distribute_tensor
from .placements import Placement

__all__ = ["empty", "full", "ones", "rand", "randn", "zeros"]

Placements = Sequence[Placement] | None


def _size(size: Any) -> Size:
    return Size(size[0] if len(size) == 1 and not isinstance(size[0], int) else size)


def _in_parts(
    name: str, size: Size, make: Callable[..., Tensor], dtype: Dtype | None, requires_grad: bool,
    device_mesh: DeviceMesh | None, placements: Placements, layout: Any, drawn: bool = False,
) -> Any:  # fmt: skip
    """What `make` makes of this rank's part, or of the whole on the first rank, where it draws."""
    if layout is not None and str(layout) != "torch.strided":
        raise NotImplementedError(f"distributed.tensor.{name}: got layout={layout}, want strided")
    mesh = device_mesh or DeviceMesh.from_group(default_group(), "cpu")
    kinds = _checked(mesh, placements, len(size))
    if drawn:
        whole = make(size, dtype=dtype, device=mesh.device_type)
        tensor = distribute_tensor(whole, mesh, kinds)
    else:
        tensor = DTensor._of(None, mesh, kinds, size)
        part = make(tensor._part_shape(), dtype=dtype, device=mesh.device_type)
        tensor = DTensor._of(part._array, mesh, kinds, size)
    tensor._requires_grad = requires_grad
    return tensor


def zeros(
    *size: Any, requires_grad: bool = False, dtype: Dtype | None = None, layout: Any = None,
    device_mesh: DeviceMesh | None = None, placements: Placements = None,
) -> Any:  # fmt: skip
    """A DTensor of zeros, by default whole on each rank of the job.

    >>> import cugrad.distributed as dist
    >>> from cugrad.distributed.tensor import Shard, init_device_mesh, zeros
    >>> dist.init_process_group("mpi", rank=0, world_size=1)
    >>> x = zeros(4, 2, device_mesh=init_device_mesh("cpu", (1,)), placements=[Shard(0)])
    >>> x.shape, x.to_local().sum()
    (torch.Size([4, 2]), tensor(0.))
    >>> dist.destroy_process_group()
    """
    return _in_parts("zeros", _size(size), factories.zeros, dtype, requires_grad, device_mesh,
                     placements, layout)  # fmt: skip


def ones(
    *size: Any, requires_grad: bool = False, dtype: Dtype | None = None, layout: Any = None,
    device_mesh: DeviceMesh | None = None, placements: Placements = None,
) -> Any:  # fmt: skip
    """A DTensor of ones; see `zeros`."""
    return _in_parts("ones", _size(size), factories.ones, dtype, requires_grad, device_mesh,
                     placements, layout)  # fmt: skip


def empty(
    *size: Any, requires_grad: bool = False, dtype: Dtype | None = None, layout: Any = None,
    device_mesh: DeviceMesh | None = None, placements: Placements = None,
) -> Any:  # fmt: skip
    """A DTensor whose elements may be anything; see `zeros`."""
    return _in_parts("empty", _size(size), factories.empty, dtype, requires_grad, device_mesh,
                     placements, layout)  # fmt: skip


def full(
    size: Any, fill_value: Any, *, requires_grad: bool = False, dtype: Dtype | None = None,
    layout: Any = None, device_mesh: DeviceMesh | None = None, placements: Placements = None,
) -> Any:  # fmt: skip
    """A DTensor of one value; see `zeros`."""

    def make(shape: Any, **how: Any) -> Tensor:
        return factories.full(shape, fill_value, **how)

    return _in_parts("full", _size((size,)), make, dtype, requires_grad, device_mesh, placements,
                     layout)  # fmt: skip


def rand(
    *size: Any, requires_grad: bool = False, dtype: Dtype | None = None, layout: Any = None,
    device_mesh: DeviceMesh | None = None, placements: Placements = None,
) -> Any:  # fmt: skip
    """A DTensor of numbers from [0, 1), which the first rank of the mesh draws; see `zeros`."""
    return _in_parts("rand", _size(size), random.rand, dtype, requires_grad, device_mesh,
                     placements, layout, drawn=True)  # fmt: skip


def randn(
    *size: Any, requires_grad: bool = False, dtype: Dtype | None = None, layout: Any = None,
    device_mesh: DeviceMesh | None = None, placements: Placements = None,
) -> Any:  # fmt: skip
    """A DTensor of normal numbers, which the first rank of the mesh draws; see `zeros`."""
    return _in_parts("randn", _size(size), random.randn, dtype, requires_grad, device_mesh,
                     placements, layout, drawn=True)  # fmt: skip
