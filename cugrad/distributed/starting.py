"""`init_process_group`, `new_group`, and the end of groups."""

from __future__ import annotations

import atexit
import json
import os
import secrets
import socket
import sys
import time
import warnings
from datetime import timedelta
from typing import Any

from .. import backends
from .engines import mpi, pmi
from .engines.alone import Alone
from .engines.protocol import Engine
from .engines.streams import StreamEngine
from .environment import RankPlace, is_under_mpi, local_rank, place_of
from .groups import GroupMember, ProcessGroup, group_of, world
from .meeting.agent import AgentStore
from .meeting.member import Member, host_here
from .meeting.stores import FileStore, Store

__all__ = [
    "default_pg_timeout", "destroy_process_group", "get_backend",
    "get_default_backend_for_device", "get_node_local_rank",
    "get_pg_count", "get_rank", "get_world_size", "init_process_group", "is_available",
    "is_backend_available", "is_gloo_available", "is_initialized", "is_mpi_available",
    "is_nccl_available", "is_torchelastic_launched", "is_ucc_available",
    "is_xccl_available",
]  # fmt: skip

default_pg_timeout = timedelta(minutes=30)
ENDING = 30.0  # seconds in which ranks wait for each other when their programs have ended

START = "start the script with `mpiexec -n {size} python SCRIPT`, or with srun under Slurm"


def is_available() -> bool:
    """True: there are groups of processes, of one where no MPI and no NCCL is installed."""
    return True


def is_initialized() -> bool:
    """Whether `init_process_group` was called, and `destroy_process_group` was not since."""
    return world.default is not None


def is_mpi_available() -> bool:
    """Whether mpi4py is installed: the extra `mpi`."""
    return mpi.is_there()


def is_nccl_available() -> bool:
    """Whether CuPy works here, with a GPU and NCCL."""
    return backends.is_usable("cuda") and backends.get("cuda").has_communicators()


def is_gloo_available() -> bool:
    """False: MPI has its part."""
    return False


def is_ucc_available() -> bool:
    """False: MPI has its part."""
    return False


def is_xccl_available() -> bool:
    """False: there are no such devices."""
    return False


def get_default_backend_for_device(device: Any) -> str:
    """The name of the backend for tensors of a device, such as "cuda:0": nccl, or mpi."""
    return {"cuda": "nccl"}.get(str(device).partition(":")[0], "mpi")


def is_backend_available(backend: str) -> bool:
    """Whether a backend can be used here."""
    return {"mpi": is_mpi_available, "nccl": is_nccl_available}.get(
        backend.lower(), is_gloo_available
    )()


def is_torchelastic_launched() -> bool:
    """Whether torchrun started this process, or what sets its variables."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def get_node_local_rank(fallback_rank: int | None = None) -> int:
    """The rank among those of this machine, from LOCAL_RANK, MPI or Slurm; else the argument."""
    rank = local_rank()
    if rank is None:
        rank = fallback_rank
    if rank is None:
        raise RuntimeError(
            "LOCAL_RANK is not in the environment. Consider passing fallback_rank to allow "
            "`get_node_local_rank` to work, assuming you are not running in a multi-device context "
            "and want the code to run locally instead."
        )
    return int(rank)


# ---------------------------------------------------------------------- arguments


def engines_of(backend: str | None) -> dict[str, str]:
    """What `backend=` asks for: the engine's name for each type of device.

    >>> engines_of("mpi"), engines_of("cpu:mpi,cuda:nccl")
    ({'': 'mpi'}, {'cpu': 'mpi', 'cuda': 'nccl'})
    """
    if backend is None:
        by_mpi = {"": "mpi"} if is_under_mpi() or not is_nccl_available() else {}
        return {**by_mpi, "cuda": "nccl"} if is_nccl_available() else by_mpi
    asked: dict[str, str] = {}
    for part in str(backend).lower().split(","):
        device_type, _, name = part.rpartition(":")
        if name == "gloo":
            name = "mpi"
            if world.places == 0 and (place_of(-1, -1) or RankPlace(0, 1, "")).rank == 0:
                warnings.warn(
                    "init_process_group: there is no gloo; its collectives run on MPI, backend "
                    "'mpi'", stacklevel=3,
                )  # fmt: skip
        if name not in ("mpi", "nccl"):
            raise ValueError(
                f"init_process_group: got backend={backend!r}, want 'nccl', 'mpi', one for each "
                "type of device as in 'cpu:mpi,cuda:nccl', or None"
            )
        asked[device_type or ("cuda" if name == "nccl" else "")] = name
    return asked


def seconds_of(timeout: Any) -> float:
    """The seconds of a timeout; TypeError for what is no timedelta."""
    if timeout is None:
        timeout = default_pg_timeout
    if not isinstance(timeout, timedelta):
        raise TypeError(
            f"Expected timeout argument to be of type datetime.timedelta, got {timeout!r}"
        )
    return timeout.total_seconds()


def _address_of(init_method: str | None, size: int) -> tuple[str, int]:
    """Where rank 0 listens, if MPI does not bring the ranks together."""
    method = init_method or "env://"
    scheme, _, rest = method.partition("://")
    if scheme == "tcp":
        host, _, port = rest.partition("/")[0].rpartition(":")
        if host and port.isdigit():
            return host, int(port)
    if scheme == "env":
        absent = [n for n in ("MASTER_ADDR", "MASTER_PORT") if n not in os.environ]
        if not absent:
            return os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        raise ValueError(
            "Error initializing torch.distributed using env:// rendezvous: environment variable "
            f"{absent[0]} expected, but not set: {START.format(size=size)}"
        )
    raise ValueError(
        f"init_process_group: got init_method={method!r}, want 'env://', 'tcp://HOST:PORT' or "
        "'file://PATH'"
    )


def init_process_group(
    backend: str | None = None,
    init_method: str | None = None,
    timeout: timedelta | None = None,
    world_size: int = -1,
    rank: int = -1,
    store: Any = None,
    group_name: str = "",
    pg_options: Any = None,
    device_id: Any = None,
) -> None:
    """Makes the default group, of all processes of the job; each process calls it once.

    Args:
        backend: "nccl" between GPUs, "mpi" in host memory (tensors of a GPU pass through it), one
            for each type of device as "cpu:mpi,cuda:nccl", or None for what is there.
        init_method: "env://" or "tcp://HOST:PORT", where rank 0 listens, or "file://PATH" of a
            file that is not there yet, if it is not MPI that brings the ranks together.
        timeout: after which a collective that does not end is an error; default 30 minutes.
        world_size, rank: default as the launcher says: RANK and WORLD_SIZE, MPI or Slurm.
        store: in place of init_method, by which ranks find rank 0; with `rank` and `world_size`.
        device_id: the device that this rank computes on, which then is the current one.

    ValueError where no launcher says how many ranks there are, RuntimeError where what is needed
    to reach the others is not installed.

    >>> import os
    >>> import cugrad.distributed as dist
    >>> dist.init_process_group("mpi", rank=0, world_size=1)
    >>> dist.get_rank(), dist.get_world_size(), dist.get_backend()
    (0, 1, 'mpi')
    >>> dist.destroy_process_group()
    """
    if world.default is not None:
        raise ValueError("trying to initialize the default process group twice!")
    if pg_options is not None:
        raise NotImplementedError("init_process_group: got pg_options=, want None")
    if store is not None and init_method is not None:
        raise AssertionError("Cannot specify both init_method and store.")
    if store is not None and (rank < 0 or world_size < 1):
        raise AssertionError("world_size and rank must be given, both, if using store")
    seconds, asked = seconds_of(timeout), engines_of(backend)
    place = place_of(rank, world_size)
    if place is None and "mpi" in asked.values() and is_mpi_available() and backend is not None:
        place = RankPlace(0, 1, "no launcher")
    if place is None:
        raise ValueError(
            "Error initializing torch.distributed using env:// rendezvous: environment variable "
            f"RANK expected, but not set: {START.format(size='N')}; for one process, RANK=0 "
            "WORLD_SIZE=1"
        )
    if not 0 <= place.rank < place.size:
        raise ValueError(
            f"init_process_group: got rank {place.rank} of {place.size} from {place.said_by}, want "
            "a rank from 0 to the number of ranks less 1"
        )
    world.places += 1
    communicator = member = None
    try:
        if place.size > 1:
            meeting = store or _store_of(init_method, seconds)
            can_ask = is_under_mpi() or mpi.is_started()
            if "mpi" in asked.values() and mpi.is_there() and not can_ask:
                member = _member(place, None, meeting, init_method, seconds)
                _start_mpi(place, member, seconds)
            communicator = _meet_by_mpi(place, asked)
            member = member or _member(place, communicator, meeting, init_method, seconds)
        world.rank, world.count = place.rank, 0
        world.communicator, world.member = communicator, member
        world.default = make_group(
            list(range(place.size)), asked, seconds, str(backend or "undefined").lower(),
            communicator, group_name,
        )  # fmt: skip
    except BaseException as error:
        if member is not None:
            member.leave(f"{type(error).__name__}: {error}")
        world.member = world.communicator = None
        raise
    world.default.bound_device_id = device_id
    if device_id is not None:
        from ..device import device

        chosen = device(device_id)
        device_backend: Any = backends.get(chosen.type)
        if chosen.type != "cpu":
            device_backend.set_device(chosen.index or 0)
    _at_exit()


def _meet_by_mpi(place: RankPlace, asked: dict[str, str]) -> Any:
    """MPI's communicator of all ranks, in the order of their ranks; None where ranks that use NCCL
    alone meet at an address.
    """
    if "mpi" not in asked.values():
        if "MASTER_ADDR" in os.environ or not (is_under_mpi() and is_mpi_available()):
            return None
    alone = (
        f"init_process_group: {place.said_by} says rank {place.rank} of {place.size}, and MPI sees "
        "{seen} of its own; backend 'mpi' reaches processes that MPI has started: "
        + START.format(size=place.size)
        + ("; if srun has started it, it is of another MPI: try srun --mpi=pmi2 or --mpi=pmix, or "
           "set MASTER_ADDR and MASTER_PORT" if place.said_by == "Slurm" else "")
    )  # fmt: skip
    if not (is_under_mpi() or mpi.is_started()):
        raise RuntimeError(alone.format(seen="no process but this one"))
    everyone = mpi.mpi().COMM_WORLD
    if everyone.Get_size() != place.size:
        raise RuntimeError(alone.format(seen=f"{everyone.Get_size()} process(es)"))
    return everyone.Split(0, place.rank)


def _start_mpi(place: RankPlace, member: Member, seconds: float) -> None:
    """Starts MPI in processes that it has not started itself; rank 0 has them told of each other.

    Only MPICH asks in this way: another MPI sees one process, as `_meet_by_mpi` says then.
    """
    how = None
    if place.rank == 0:
        token = secrets.token_hex(16)
        how = [pmi.start_server(place.size, token), token]
    key = f"job {world.places}: MPI's processes"
    port, token = member.gather(key, place.rank, place.size, how, seconds)[0]
    with pmi.told_by((member.host, port), token, place.rank, place.size):
        mpi.mpi()


def _store_of(init_method: str | None, seconds: float) -> Store | None:
    """The store that "file://PATH" names, or that torchrun's agent keeps at MASTER_PORT."""
    scheme, _, path = (init_method or "env://").partition("://")
    if scheme == "file" and path:
        return FileStore(path)
    if scheme == "env" and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        return AgentStore(*_address_of("env://", 0), seconds)
    return None


def _member(
    place: RankPlace, communicator: Any, store: Any, init_method: str | None, seconds: float
) -> Member:
    """Brings this rank to the meeting, which rank 0 begins."""
    if communicator is None and store is not None:
        key = f"cugrad/job {world.places}, start {os.environ.get('TORCHELASTIC_RESTART_COUNT', 0)}"
        if place.rank == 0:
            token = secrets.token_hex(16)
            port = host_here("", 0, place.size, token)
            host = os.environ.get("MASTER_ADDR", socket.gethostname())
            store.set(key, json.dumps([host, port, token]))
        store.wait([key], timedelta(seconds=seconds))
        host, port, token = json.loads(store.get(key))
        return Member(place.rank, place.size, (host, port), token, seconds)
    if communicator is None:
        address, token = _address_of(init_method, place.size), ""
        if place.rank == 0:
            host_here("", address[1], place.size, token)
        return Member(place.rank, place.size, address, token, seconds)
    names = communicator.allgather(socket.gethostname())
    address, token = ("", 0), ""
    if place.rank == 0:
        host = "127.0.0.1" if len(set(names)) == 1 else os.environ.get("MASTER_ADDR", names[0])
        token = secrets.token_hex(16)
        port = host_here(host if host == "127.0.0.1" else "", 0, place.size, token)
        address = host, port
    address, token = communicator.bcast((address, token))
    return Member(place.rank, place.size, address, token, seconds)


def make_group(
    ranks: list[int], asked: dict[str, str], seconds: float, backend: str, communicator: Any,
    description: str = "",
) -> ProcessGroup:  # fmt: skip
    """A group with its engines, of which all of `ranks` make theirs at the same time."""
    name, world.count = str(world.count), world.count + 1
    engines: dict[str, Engine] = {}
    for device_type, kind in asked.items():
        if len(ranks) == 1:
            engines[device_type] = Alone(kind)
        elif kind == "mpi":
            engines[device_type] = mpi.MpiEngine(communicator)
        else:
            engines[device_type] = _between_gpus(name, ranks, device_type, seconds)
    kinds = set(asked.values())
    shown = kinds.pop() if len(kinds) == 1 else backend
    group = ProcessGroup(name, ranks, engines, seconds, world.member, shown, description)
    world.groups[name] = group
    return group


def _between_gpus(name: str, ranks: list[int], device_type: str, seconds: float) -> Engine:
    """NCCL's engine: the first rank of the group makes the identifier by which they meet."""
    if not is_nccl_available():
        why = backends.why_unusable(device_type) or "CuPy finds no NCCL, or the GPU is simulated"
        raise RuntimeError(
            f"init_process_group: backend 'nccl' cannot be used: {why}; pip install "
            "nvidia-nccl-cu12 (or -cu13), or take backend 'mpi'"
        )
    device, index, member = backends.get(device_type), ranks.index(world.rank), world.member
    assert member is not None
    identifier = device.unique_identifier().hex() if index == 0 else None
    key = f"group {name} of job {world.places}: NCCL's identifier"
    answers = member.gather(key, index, len(ranks), identifier, seconds)
    communicator = device.communicator(len(ranks), bytes.fromhex(answers[0]), index)
    return StreamEngine(device, communicator, len(ranks), index)


# ---------------------------------------------------------------------- the end


def destroy_process_group(group: Any = None) -> None:
    """Ends a group, or all of them and this process's part in the job; other ranks do so too.

    ValueError for a group that is none, or is destroyed.
    """
    if group == GroupMember.NON_GROUP_MEMBER:
        return
    if group is not None and group is not world.default:
        chosen = group_of(group)
        assert chosen is not None
        del world.groups[chosen.group_name]
        if chosen.member is None or chosen.member.fault is None:
            for engine in chosen.engines.values():
                engine.close()
        return
    if world.default is None:
        raise ValueError("Invalid process group specified: there is none")
    member = world.member
    if member is not None:
        member.leave()
        _left.append(member)
    world.default = world.member = world.communicator = None
    world.groups.clear()


_left: list[Member] = []  # the meetings that this rank has left


class _Exit:
    is_registered = False


def _at_exit() -> None:
    if not _Exit.is_registered:
        _Exit.is_registered = True
        atexit.register(_end)


def _end() -> None:
    """At the end of the process: tells the others, and ends MPI if all of them end well."""
    error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    text = "" if error is None else f"{type(error).__name__}: {error}"
    if world.member is not None:
        world.member.leave(text)
        _left.append(world.member)
        world.default = world.member = None
    end = time.monotonic() + ENDING
    if not _left or all(m.fault is None and m.leave(text, end - time.monotonic()) for m in _left):
        mpi.finalize()


def get_pg_count() -> int:
    """The number of groups."""
    return len(world.groups)


def get_rank(group: ProcessGroup | None = None) -> int:
    """The rank of this process in a group, the default one for None; -1 if it is not in it."""
    chosen = group_of(group)
    return -1 if chosen is None else chosen.rank()


def get_world_size(group: ProcessGroup | None = None) -> int:
    """The number of ranks of a group, the default one for None; -1 if this process is not in it."""
    chosen = group_of(group)
    return -1 if chosen is None else chosen.size()


def get_backend(group: ProcessGroup | None = None) -> str:
    """The name of a group's backend."""
    chosen = group_of(group)
    if chosen is None:
        raise ValueError("Invalid process group specified")
    return chosen.backend
