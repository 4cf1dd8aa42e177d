"""Groups of ranks: who is in them, what they have called, and the one that has all."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from datetime import timedelta
from typing import Any, ClassVar, NoReturn

from ..backends import backend_of
from .engines.protocol import Engine, Pending
from .errors import DistBackendError
from .meeting.member import Member

__all__ = [
    "Backend", "GroupCall", "GroupMember", "ProcessGroup", "default_group", "group", "group_of",
    "known_group", "world",
]  # fmt: skip

RECENT = 64  # calls of a group that are told of
LEAVING = 5.0  # seconds in which what a rank did before it left still comes to its end


class Backend(str):
    """The names of backends, in small letters: `Backend("NCCL")` is "nccl".

    Those that run are in `backend_list`; "gloo" is taken for "mpi".

    >>> import cugrad.distributed as dist
    >>> dist.Backend("NCCL") == dist.Backend.NCCL == "nccl"
    True
    """

    UNDEFINED, GLOO, NCCL, UCC, MPI, XCCL, FAKE = (
        "undefined", "gloo", "nccl", "ucc", "mpi", "xccl", "fake",
    )  # fmt: skip
    backend_list: ClassVar[list[str]] = ["undefined", "nccl", "mpi"]
    default_device_backend_map: ClassVar[dict[str, str]] = {"cpu": "mpi", "cuda": "nccl"}

    def __new__(cls, name: str) -> Any:
        """ValueError for what is no string."""
        if not isinstance(name, str):
            raise ValueError("Backend constructor parameter must be string-ish")
        return name.lower()

    @classmethod
    def register_backend(cls, name: str, func: Any, *how: Any, **more: Any) -> NoReturn:
        """NotImplementedError: there are MPI and NCCL."""
        raise NotImplementedError(f"Backend.register_backend: {name!r}: there are 'mpi' and 'nccl'")


class GroupCall:
    """One call of a group: its name, and the number that it has on every rank."""

    def __init__(self, group: ProcessGroup, name: str) -> None:
        self.group, self.name = group, name
        self.sequence = group.sequence
        self.entry = [self.sequence, name, False]
        group.history.append(self.entry)

    def wait_for(self, pending: Pending, timeout: timedelta | None = None) -> None:
        """Until the call has ended; DistBackendError if it will not, or does not in time."""
        limit = self.group.timeout if timeout is None else timeout.total_seconds()
        began = time.monotonic()
        try:
            pending.wait(lambda: self.check(began, limit))
        except DistBackendError:
            raise
        except Exception as error:  # of the engine
            raise self.failed(f"rank {world.rank}: {self}: {error}") from error
        self.entry[2] = True

    def check(self, began: float, limit: float) -> None:
        """Raises what has gone wrong in the job, if something has, or if time is up."""
        member = self.group.member
        if member is None:
            return
        if member.fault is not None:
            raise self.error(member.fault)
        now = time.monotonic()
        for rank in self.group.ranks if member.left else ():
            if now - member.left.get(rank, now) > LEAVING:
                raise self.error(f"rank {rank} has left the group: its program came to an end")
        if now - began > limit:
            text = member.why_stuck(
                self.group.group_name, self.group.ranks, self.sequence, self.name, now - began
            )
            raise self.error(
                text
                or f"{self}: rank {world.rank} waited {now - began:.1f} s in vain; rank 0, "
                "which would know of the others, does not answer"
            )

    def failed(self, text: str) -> DistBackendError:
        """The error for what the engine says, which all ranks are told."""
        member = self.group.member
        return self.error(text if member is None else member.tell_fault(text))

    def error(self, text: str) -> DistBackendError:
        """What went wrong, and what this rank was doing."""
        for engine in self.group.engines.values():
            engine.abort()
        return DistBackendError(f"{text} (rank {world.rank} was in {self})")

    def __str__(self) -> str:
        return f"{self.name}, sequence {self.sequence} of group {self.group.group_name}"


class ProcessGroup:
    """Ranks of a job that call collectives together; `init_process_group` and `new_group` make it.

    Which engine moves the data is decided by the device of the tensors.
    """

    def __init__(
        self, name: str, ranks: list[int], engines: dict[str, Engine], timeout: float,
        member: Member | None, backend: str, description: str = "",
    ) -> None:  # fmt: skip
        self.group_name, self.ranks, self.timeout = name, ranks, timeout
        self.group_desc = description or ("default_pg" if name == "0" else "undefined")
        self.engines, self.member, self.backend = engines, member, backend
        self.sequence = 0
        self.history: deque[list[Any]] = deque(maxlen=RECENT)
        self.bound_device_id: Any = None
        if member is not None:
            member.groups[name] = self

    def rank(self) -> int:
        """The rank of this process in the group."""
        return self.ranks.index(world.rank)

    def size(self) -> int:
        """The number of ranks."""
        return len(self.ranks)

    def name(self) -> str:
        """The backend's name."""
        return self.backend

    def begin(self, name: str, counted: bool = True) -> GroupCall:
        """Notes that this rank makes a call; sends and receives have no number of their own."""
        if self.member is not None and self.member.fault is not None:
            raise DistBackendError(
                f"{self.member.fault} (rank {world.rank} was about to call {name}, sequence "
                f"{self.sequence + counted} of group {self.group_name})"
            )
        self.sequence += counted
        return GroupCall(self, name)

    def recent(self) -> list[list[Any]]:
        """The last calls: their number and name, and whether they have ended."""
        return [list(entry) for entry in tuple(self.history) if entry[1] not in ("send", "recv")]

    def engine_for(self, name: str, array: Any) -> Engine:
        """The engine that moves such arrays; RuntimeError if the group has none for the device."""
        device_type = backend_of(array).device_type
        engine = self.engines.get(device_type) or self.engines.get("")
        if engine is None:
            raise RuntimeError(
                f"No backend type associated with device type {device_type} ({name}: the group's "
                f"backend is {self.backend!r}; backend='cpu:mpi,cuda:nccl' has one for each)"
            )
        return engine

    def __repr__(self) -> str:
        return f"<ProcessGroup {self.group_name} of ranks {self.ranks}, backend {self.backend!r}>"


class World:
    """The groups of this process. `default` has all ranks; None before `init_process_group`."""

    default: ProcessGroup | None = None
    rank = 0
    count = 0  # of groups so far, which names them alike on all ranks
    places = 0  # of `init_process_group`
    communicator: Any = None  # MPI's, of all ranks
    member: Member | None = None
    is_left: Callable[..., Any] | None = None

    def __init__(self) -> None:
        self.groups: dict[str, ProcessGroup] = {}


world = World()


class _Members(type):
    """`WORLD`, which is another after each `init_process_group`."""

    @property
    def WORLD(cls) -> ProcessGroup | None:
        return world.default


class GroupMember(metaclass=_Members):
    """`GroupMember.WORLD` is the default group, `NON_GROUP_MEMBER` one of other ranks."""

    NON_GROUP_MEMBER = -100


class group(metaclass=_Members):
    """`group.WORLD` is the default group, or None before there is one."""


def default_group() -> ProcessGroup:
    """The group of all ranks; ValueError before `init_process_group`."""
    if world.default is None:
        raise ValueError(
            "Default process group has not been initialized, please make sure to call "
            "init_process_group."
        )
    return world.default


def known_group(asked: Any) -> ProcessGroup:
    """A group by argument; ValueError, as of PyTorch, for what is none."""
    if not isinstance(asked, ProcessGroup):
        raise ValueError(
            f"Invalid process group specified: got {type(asked).__name__}, want a ProcessGroup"
        )
    return asked


def group_of(asked: Any) -> ProcessGroup | None:
    """A group by argument: the default one for None; None for one without this rank."""
    if asked is None:
        return default_group()
    if asked == GroupMember.NON_GROUP_MEMBER:
        return None
    known_group(asked)
    if world.groups.get(asked.group_name) is not asked:
        raise ValueError(
            f"Invalid process group specified: {asked} is destroyed; make another with new_group"
        )
    return asked
