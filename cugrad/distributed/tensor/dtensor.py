"""DTensor: a tensor in parts, of which this rank has one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ...autograd.mode import is_grad_enabled, no_grad
from ...backends import backend_of
from ...functions.creation.factories import empty, full
from ...functions.shapes.copies import cat, stack
from ...linalg import vector_norm
from ...ops.table import ELEMENTWISE, TABLE
from ...runtime.dispatching import DisableTorchFunctionSubclass, meets
from ...tensor import Size, Tensor, make
from .. import collectives
from ..device_mesh import DeviceMesh
from ..groups import ProcessGroup, default_group
from .placements import Placement, Replicate, Shard, part_of

__all__ = ["DTensor", "distribute_tensor"]

# Functions other than rows of one element each of which a part of the result is that of the parts.
OF_PARTS = {
    "clone", "contiguous", "copy_", "cpu", "cuda", "detach", "double", "empty_like", "fill_",
    "float", "full_like", "half", "bfloat16", "ones_like", "to", "zero_", "zeros_like",
}  # fmt: skip
# What is asked of a tensor, or told it, and not computed of its elements.
ABOUT = {
    "__delete__", "__get__", "__hash__", "__set__", "data_ptr", "element_size", "get_device",
    "is_complex", "is_contiguous", "is_floating_point", "is_inference", "is_pinned",
    "register_hook", "register_post_accumulate_grad_hook", "requires_grad_", "stride",
}  # fmt: skip
# Properties that are computed of the elements.
_OF: Any = Tensor
OF_ELEMENTS = {p.__get__ for p in (_OF.H, _OF.T, _OF.mH, _OF.mT, _OF.real, _OF.imag)}
OPERATORS = {"truediv": "div", "floordiv": "floor_divide"}


def _is_of_parts(name: str) -> bool:
    """Whether each rank computes its part of the result from its parts of the arguments."""
    if name in OF_PARTS:
        return True
    base = name.strip("_")
    names = [base, base[1:]] if name.startswith("__") else [base]  # __radd__, __iadd__
    rows = [TABLE.get(OPERATORS.get(n, n)) for n in names]
    return any(row is not None and row.kind == ELEMENTWISE for row in rows)


class DTensor(Tensor):
    """A tensor of which each rank of a mesh has a part, or the whole.

    `shape` is that of the whole. What is computed element by element is computed of the parts, and
    is a DTensor; all else gets the whole of all ranks first, and gives a Tensor, or, where it
    changes the DTensor in place, makes parts of what the first rank has then. So all ranks make the
    same calls, as of collectives. NotImplementedError for `out=`, and where a gradient would be
    lost: `distributed.fsdp` has modules compute.

    >>> import cugrad as torch
    >>> import cugrad.distributed as dist
    >>> from cugrad.distributed.tensor import Shard, distribute_tensor, init_device_mesh
    >>> dist.init_process_group("mpi", rank=0, world_size=1)
    >>> x = distribute_tensor(torch.ones(4, 2), init_device_mesh("cpu", (1,)), [Shard(0)])
    >>> (x * 2).to_local().sum(), x.sum(), x.placements
    (tensor(16.), tensor(8.), (Shard(dim=0),))
    >>> dist.destroy_process_group()
    """

    _may_be_away = True  # norms of it, and whether it is finite, are those of all ranks' parts
    device_mesh: DeviceMesh
    placements: tuple[Placement, ...]
    _whole: Size

    @staticmethod
    def _of(
        array: Any, mesh: DeviceMesh, placements: tuple[Placement, ...], whole: Iterable[int]
    ) -> Any:
        meets(DTensor)  # functions may have stopped to ask classes since it was defined
        part = object.__new__(DTensor)
        part.fill_in(array)
        part.device_mesh, part.placements, part._whole = mesh, placements, Size(whole)
        return part

    @staticmethod
    def from_local(
        local_tensor: Tensor,
        device_mesh: DeviceMesh | None = None,
        placements: Sequence[Placement] | None = None,
        *,
        run_check: bool = False,
        shape: Any = None,
        stride: Any = None,
    ) -> DTensor:
        """A tensor whose part on this rank is `local_tensor`, which shares its memory.

        `shape` is that of the whole; None: of parts that are equal. `run_check` has it compared
        with that of other ranks; `stride` is PyTorch's, and taken for that of rows.
        """
        mesh = device_mesh or DeviceMesh.from_group(default_group(), local_tensor.device.type)
        kinds = _checked(mesh, placements, local_tensor.ndim)
        if shape is None:
            extents = list(local_tensor.shape)
            for dim, placement in enumerate(kinds):
                if isinstance(placement, Shard):
                    extents[placement.dim] *= mesh.size(dim)
            shape = extents
        tensor = DTensor._of(local_tensor.detach()._array, mesh, kinds, shape)
        if tuple(tensor._part_shape()) != tuple(local_tensor.shape):
            raise ValueError(
                f"DTensor.from_local: got a part of shape {list(local_tensor.shape)}, want "
                f"{tensor._part_shape()}, this rank's part of {list(shape)}"
            )
        if run_check:
            from ..objects import all_gather_object

            group = mesh.get_group(0)
            shapes: list[Any] = [None] * group.size()
            all_gather_object(shapes, list(shape), group)
            if any(other != shapes[0] for other in shapes):
                raise ValueError(f"DTensor.from_local: ranks have shapes {shapes}")
        return tensor

    # ------------------------------------------------------------------ what it is

    @property
    def shape(self) -> Size:
        return self._whole

    @property
    def ndim(self) -> int:
        return len(self._whole)

    def dim(self) -> int:
        return len(self._whole)

    ndimension = dim

    def size(self, dim: int | None = None) -> Any:
        return self._whole if dim is None else self._whole[dim]

    def numel(self) -> int:
        return self._whole.numel()

    nelement = numel

    @property
    def nbytes(self) -> int:
        return self.numel() * self.itemsize

    def stride(self, dim: int | None = None) -> Any:
        """That of the whole in rows; of the part: `to_local().stride()`."""
        steps = [1]
        for extent in self._whole[:0:-1]:
            steps.append(steps[-1] * max(extent, 1))
        strides = tuple(reversed(steps[: len(self._whole)]))
        return strides if dim is None else strides[dim]

    @property
    def _along(self) -> tuple[ProcessGroup, int] | None:
        """The group whose ranks have the parts, and the dimension; None where each has all."""
        for mesh_dim, placement in enumerate(self.placements):
            if isinstance(placement, Shard):
                return self.device_mesh.get_group(mesh_dim), placement.dim
        return None

    def _part_shape(self, rank: int | None = None) -> list[int]:
        """The shape of a rank's part, of this one's by default."""
        extents = list(self._whole)
        if self._along is not None:
            group, dim = self._along
            rows = part_of(extents[dim], group.rank() if rank is None else rank, group.size())
            extents[dim] = rows.stop - rows.start
        return extents

    # ------------------------------------------------------------------ parts and the whole

    def to_local(self, *, grad_placements: Any = None) -> Tensor:
        """This rank's part, which shares the memory; no history. `grad_placements`: None."""
        _no_gradients(grad_placements)
        local = make(self._array)
        local._counter = self.counter
        return local

    def full_tensor(self, *, grad_placements: Any = None) -> Tensor:
        """The whole, of all ranks' parts; all ranks call it. No history."""
        _no_gradients(grad_placements)
        local = self.to_local()
        if self._along is None:
            return local
        group, dim = self._along
        with DisableTorchFunctionSubclass(), no_grad():
            shapes = [self._part_shape(rank) for rank in range(group.size())]
            parts = [empty(shape, dtype=local.dtype, device=local.device) for shape in shapes]
            collectives.all_gather(parts, local.contiguous(), group)
            return cat(parts, dim)

    def redistribute(
        self, device_mesh: DeviceMesh | None = None, placements: Sequence[Placement] | None = None
    ) -> DTensor:
        """The same tensor in other parts, or whole on each rank."""
        mesh = device_mesh or self.device_mesh
        kinds = self.placements if placements is None else _checked(mesh, placements, self.ndim)
        if mesh == self.device_mesh and kinds == self.placements:
            return self
        return _part(self.full_tensor(), mesh, kinds)

    def _is_like(self, other: Any) -> bool:
        return (
            self._whole == other._whole
            and self.placements == other.placements
            and self.device_mesh == other.device_mesh
        )

    # ------------------------------------------------------------------ what is done with it

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", str(func))
        name = name if name.startswith("__") else name.lstrip("_")  # what attaches it
        parts = [x for x in _flat((args, kwargs)) if isinstance(x, DTensor)]
        if name in ABOUT and func not in OF_ELEMENTS or not parts:
            with DisableTorchFunctionSubclass():
                return func(*args, **kwargs)
        first = parts[0]
        is_changing = name.endswith("_") and not name.endswith("__") or name == "setitem"
        if name == "copy_" and args[0] is first and not isinstance(args[1], DTensor):
            args = (first, _part(args[1], first.device_mesh, first.placements), *args[2:])
            parts = [first, args[1]]
        loses = is_grad_enabled() and any(p._requires_grad for p in parts)
        if loses and name not in OF_PARTS - {"clone", "to", "contiguous", "copy_"}:
            raise NotImplementedError(
                f"{name}: got a DTensor that requires gradients, want torch.no_grad(), or the "
                "module that has it, whose forward computes with the whole"
            )
        if _is_of_parts(name) and _go_together(parts, _flat((args, kwargs))):
            with DisableTorchFunctionSubclass():
                result = func(*_mapped(args, _local), **_mapped(kwargs, _local))
            if is_changing:
                return args[0]
            return DTensor._of(result._array, first.device_mesh, first.placements, first._whole)
        if is_changing and args and isinstance(args[0], DTensor):
            return args[0]._changed(name, func, args[1:], kwargs)
        if is_changing or kwargs.get("out") is not None:
            raise NotImplementedError(
                f"{name}: this would change DTensors in place: call a method of each, or change "
                "to_local()"
            )
        with DisableTorchFunctionSubclass():
            return func(*_mapped(args, _full), **_mapped(kwargs, _full))

    def _changed(self, name: str, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Takes over this rank's part of a whole that is changed in place, by the first rank:
        others may draw other numbers.
        """
        rest, named = _mapped(args, _full), _mapped(kwargs, _full)
        with DisableTorchFunctionSubclass(), no_grad():
            whole = self.full_tensor().clone()
            func(whole, *rest, **named)
            if whole.shape != self._whole or whole.dtype != self.dtype:
                raise NotImplementedError(f"{name}: this would change the shape of a DTensor")
            new = distribute_tensor(whole, self.device_mesh, self.placements)
            self.to_local().copy_(new.to_local())
        return self

    def _told(self, name: Any, compute: Callable[[Tensor], Tensor]) -> Tensor:
        """The norm of all ranks' parts, or whether one of them is not finite."""
        with DisableTorchFunctionSubclass(), no_grad():
            local = self.to_local()
            if local.numel():
                value = compute(local)
            else:  # what changes no norm
                least = name[1] == float("-inf") if isinstance(name, tuple) else False
                value = full((), float("inf") if least else 0.0, device=local.device,
                             dtype=local.dtype if isinstance(name, tuple) else None)  # fmt: skip
            if self._along is None:
                return value
            group, _ = self._along
            values = [value.clone() for _ in range(group.size())]
            collectives.all_gather(values, value.contiguous(), group)
            if name == "not finite":
                return stack(values).max()
            _, p = name
            return stack(values).sum() if p == 0 else vector_norm(stack(values), p)

    def _in_parts(self, local: Tensor) -> Any:
        """A tensor of the shape of this rank's part as a DTensor in the same parts."""
        if isinstance(local, DTensor):
            return local
        return DTensor._of(local._array, self.device_mesh, self.placements, self._whole)

    def _change_later(self, change: Callable[[Tensor], object]) -> None:
        """Changes this rank's part in place."""
        with DisableTorchFunctionSubclass():
            change(self.to_local())

    @property
    def data(self) -> Any:
        """The same parts with no history and a version counter of its own."""
        return DTensor._of(self._array, self.device_mesh, self.placements, self._whole)

    @data.setter
    def data(self, value: Any) -> None:
        if not isinstance(value, DTensor) or not self._is_like(value):
            raise RuntimeError("data of a DTensor: want a DTensor in the same parts")
        self._form, self._array = None, value._array

    @property
    def _mark_of_storage(self) -> Any:
        raise RuntimeError(
            "save: a DTensor has a part of its elements: save full_tensor(), or write it with "
            "distributed.checkpoint.save"
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if id(self) not in memo:
            copy = DTensor._of(
                self._array.copy(), self.device_mesh, self.placements, self._whole
            )  # fmt: skip
            copy._requires_grad = self._requires_grad
            vars(copy).update(vars(self))
            memo[id(self)] = copy
        return memo[id(self)]

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self._mark_of_storage

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        with DisableTorchFunctionSubclass():
            return (
                f"DTensor(local_tensor={self.to_local()!r}, device_mesh={self.device_mesh}, "
                f"placements={self.placements})"
            )


def distribute_tensor(
    tensor: Tensor,
    device_mesh: DeviceMesh | None = None,
    placements: Sequence[Placement] | None = None,
    *,
    src_data_rank: int | None = 0,
) -> Any:
    """A DTensor of the elements that the first rank of the mesh has; all ranks call it.

    With `src_data_rank=None` each rank takes its part of what it has itself.
    """
    mesh = device_mesh or DeviceMesh.from_group(default_group(), tensor.device.type)
    kinds = _checked(mesh, placements, tensor.ndim)
    whole = tensor.detach()
    if src_data_rank is not None:
        whole = whole.clone()
        for group in mesh.get_all_groups():
            collectives.broadcast(whole, group=group, group_src=src_data_rank)
    part = _part(whole, mesh, kinds)
    part._requires_grad = tensor.requires_grad
    return part


def _part(whole: Tensor, mesh: DeviceMesh, placements: tuple[Placement, ...]) -> Any:
    """This rank's part of what it has in whole, in memory of its own."""
    part = DTensor._of(whole._array, mesh, placements, whole.shape)
    if part._along is not None:
        group, dim = part._along
        rows = part_of(whole.shape[dim], group.rank(), group.size())
        index = (slice(None),) * dim + (rows,)
        backend = backend_of(whole._array)
        array = backend.xp.ascontiguousarray(whole._array[index]).copy()
        part._form, part._array = None, array
    return part


def _checked(
    mesh: DeviceMesh, placements: Sequence[Placement] | None, ndim: int
) -> tuple[Placement, ...]:
    """A placement for each dimension of a mesh, one of them Shard at most; default Replicate.

    `Shard(-1)` is along the last of the tensor's `ndim` dimensions.
    """
    kinds = tuple(placements or [Replicate()] * mesh.ndim)
    if len(kinds) != mesh.ndim or not all(type(p) in (Shard, Replicate) for p in kinds):
        raise ValueError(
            f"DTensor: got placements={list(kinds)}, want Shard(dim) or Replicate() for each of "
            f"the {mesh.ndim} dimensions of the mesh"
        )
    if sum(isinstance(p, Shard) for p in kinds) > 1:
        raise NotImplementedError(f"DTensor: got placements={list(kinds)}, want one Shard at most")
    for kind in kinds:
        if isinstance(kind, Shard) and not -ndim <= kind.dim < ndim:
            raise IndexError(f"DTensor: got {kind} of a tensor of {ndim} dimensions")
    return tuple(Shard(k.dim % ndim) if isinstance(k, Shard) else k for k in kinds)


def _no_gradients(grad_placements: Any) -> None:
    if grad_placements is not None:
        raise NotImplementedError("DTensor: got grad_placements=, want None: it has no history")


def _flat(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        for x in value:
            yield from _flat(x)
    else:
        yield value


def _go_together(parts: list[Any], values: Iterable[Any]) -> bool:
    """Whether all tensors are in the same parts, or are one number."""
    return all(parts[0]._is_like(p) for p in parts) and all(
        isinstance(x, DTensor) or not isinstance(x, Tensor) or x.ndim == 0 for x in values
    )


def _mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(value, dict):
        return {k: _mapped(x, change) for k, x in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_mapped(x, change) for x in value)
    return change(value) if isinstance(value, DTensor) else value


def _local(part: Any) -> Tensor:
    return part.to_local()


def _full(part: Any) -> Tensor:
    return part.full_tensor()
