"""DeviceMesh: the ranks of a job in one or more dimensions, and the groups along each."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..tensor import Tensor, make
from .groups import GroupMember, ProcessGroup, default_group, world
from .starting import init_process_group, is_initialized
from .subgroups import new_group

__all__ = ["DeviceMesh", "init_device_mesh"]


class DeviceMesh:
    """Ranks in rows and columns; along each dimension this rank's row or column is a group.

    `mesh` has the ranks, as a list or Tensor. All ranks of the job make the same meshes in the same
    order. `mesh["dp"]` is the part along a dimension by its name.

    >>> import cugrad.distributed as dist
    >>> from cugrad.distributed.device_mesh import init_device_mesh
    >>> dist.init_process_group("mpi", rank=0, world_size=1)
    >>> mesh = init_device_mesh("cpu", (1, 1), mesh_dim_names=("replicate", "shard"))
    >>> mesh.shape, mesh["shard"].size(), mesh.get_coordinate()
    ((1, 1), 1, [0, 0])
    >>> dist.destroy_process_group()
    """

    def __init__(
        self,
        device_type: str,
        mesh: Any,
        *,
        mesh_dim_names: tuple[str, ...] | None = None,
        _groups: list[Any] | None = None,
    ) -> None:
        ranks = mesh.tolist() if isinstance(mesh, Tensor) else mesh
        self._ranks: Any = np.asarray(ranks, dtype=np.int64)
        if len(set(self._ranks.ravel().tolist())) != self._ranks.size:
            raise ValueError(f"DeviceMesh: got {ranks}, want each rank once")
        names = None if mesh_dim_names is None else tuple(mesh_dim_names)
        if names is not None and (len(names) != self._ranks.ndim or len(set(names)) < len(names)):
            raise RuntimeError(
                f"DeviceMesh: got mesh_dim_names={names}, want another name for each of the "
                f"{self._ranks.ndim} dimensions"
            )
        self.device_type, self.mesh_dim_names = device_type, names
        self._groups = self._groups_along() if _groups is None else _groups

    def _groups_along(self) -> list[Any]:
        """This rank's group along each dimension; all ranks make all of them."""
        whole, groups = default_group(), []
        for dim in range(self._ranks.ndim):
            own: Any = GroupMember.NON_GROUP_MEMBER
            for ranks in np.moveaxis(self._ranks, dim, -1).reshape(-1, self._ranks.shape[dim]):
                members = ranks.tolist()
                is_whole = members == whole.ranks
                group = whole if is_whole else new_group(members, sort_ranks=False)
                if world.rank in members:
                    own = group
            groups.append(own)
        return groups

    @property
    def mesh(self) -> Tensor:
        """The ranks, as a Tensor of int64."""
        return make(self._ranks)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self._ranks.shape)

    @property
    def ndim(self) -> int:
        return int(self._ranks.ndim)

    def size(self, mesh_dim: int | None = None) -> int:
        """The number of ranks, or of those along a dimension."""
        return int(self._ranks.size if mesh_dim is None else self._ranks.shape[mesh_dim])

    def _dim(self, mesh_dim: int | str | None) -> int:
        if mesh_dim is None:
            if self.ndim > 1:
                raise RuntimeError(
                    f"DeviceMesh: got a mesh of {self.ndim} dimensions, want mesh_dim= to say which"
                )
            return 0
        if isinstance(mesh_dim, str):
            if mesh_dim not in (self.mesh_dim_names or ()):
                raise KeyError(
                    f"DeviceMesh: got dimension {mesh_dim!r}, want one of {self.mesh_dim_names}"
                )
            return (self.mesh_dim_names or ()).index(mesh_dim)
        return mesh_dim

    def get_group(self, mesh_dim: int | str | None = None) -> ProcessGroup:
        """This rank's group along a dimension, which a mesh of one need not name."""
        group = self._groups[self._dim(mesh_dim)]
        if not isinstance(group, ProcessGroup):
            raise RuntimeError(f"DeviceMesh: rank {world.rank} is not in {self}")
        return group

    def get_all_groups(self) -> list[ProcessGroup]:
        """This rank's groups, one for each dimension."""
        return [self.get_group(dim) for dim in range(self.ndim)]

    def get_rank(self) -> int:
        """This process's rank in the job."""
        return world.rank

    def get_local_rank(self, mesh_dim: int | str | None = None) -> int:
        """This process's rank in its group along a dimension."""
        return self.get_group(mesh_dim).rank()

    def get_coordinate(self) -> list[int] | None:
        """This process's place along each dimension; None where it is not in the mesh."""
        places = np.argwhere(self._ranks == world.rank)
        return places[0].tolist() if len(places) else None

    def __getitem__(self, names: str | tuple[str, ...]) -> DeviceMesh:
        """The mesh along the dimensions of some names, at this rank's place of the others."""
        names = (names,) if isinstance(names, str) else names
        dims = [self._dim(name) for name in names]
        place = self.get_coordinate()
        if place is None:
            raise RuntimeError(f"DeviceMesh: rank {world.rank} is not in {self}")
        index = tuple(slice(None) if d in dims else at for d, at in enumerate(place))
        ranks = self._ranks[index].transpose(np.argsort(np.argsort(dims)))
        groups = [self._groups[d] for d in dims]
        return DeviceMesh(self.device_type, ranks, mesh_dim_names=names, _groups=groups)

    @staticmethod
    def from_group(group: ProcessGroup, device_type: str) -> DeviceMesh:
        """The mesh of one dimension that a group is."""
        return DeviceMesh(device_type, group.ranks, _groups=[group])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DeviceMesh) and (
            self.device_type == other.device_type and np.array_equal(self._ranks, other._ranks)
        )

    def __hash__(self) -> int:
        return hash((self.device_type, self._ranks.tobytes()))

    def __repr__(self) -> str:
        names = "" if self.mesh_dim_names is None else f", mesh_dim_names={self.mesh_dim_names}"
        return f"DeviceMesh({self.device_type!r}, {self._ranks.tolist()}{names})"


def init_device_mesh(
    device_type: str,
    mesh_shape: tuple[int, ...],
    *,
    mesh_dim_names: tuple[str, ...] | None = None,
    backend_override: Any = None,
) -> DeviceMesh:
    """All ranks in a mesh of a shape, in order; makes the default group where there is none.

    RuntimeError where the shape is not of as many ranks as there are.
    """
    if backend_override is not None:
        raise NotImplementedError(
            "init_device_mesh: got backend_override=, want None: groups have the backend of the job"
        )
    if not is_initialized():
        init_process_group()
    count = default_group().size()
    if int(np.prod(mesh_shape)) != count:
        raise RuntimeError(
            f"init_device_mesh: got mesh_shape={tuple(mesh_shape)}, want a shape of {count} ranks"
        )
    ranks = np.arange(count).reshape(mesh_shape)
    return DeviceMesh(device_type, ranks, mesh_dim_names=mesh_dim_names)
