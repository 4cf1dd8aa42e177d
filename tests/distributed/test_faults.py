"""A rank that fails is named to all others, with the call and its number, and no process hangs."""

from __future__ import annotations

import functools
import json
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import cugrad.distributed as dist
from cugrad.distributed.environment import ASKED, LAUNCHERS
from cugrad.distributed.errors import DistNetworkError, DistStoreError
from cugrad.distributed.groups import world
from cugrad.distributed.meeting.member import Member, host_here
from cugrad.distributed.meeting.messages import Inbox
from cugrad.distributed.meeting.report import whereabouts
from cugrad.distributed.meeting.server import Server
from tests.distributed.ranks import Outcome, run_ranks
from tests.support.patience import eventually

pytestmark = pytest.mark.host_only

CASES = ["differing", "detailed", "another", "hanging", "halted", "killed"]


@functools.cache
def outcome() -> Outcome:
    """One start of three ranks for all cases; the last one kills a rank."""
    return run_ranks("tests.distributed.programs_faults", 3, ["start", *CASES])


@pytest.mark.parametrize("case", CASES[:-1])
def test_all_ranks_are_told(case: str) -> None:
    outcome().check(case)


def test_a_rank_that_is_killed_is_named_to_the_others() -> None:
    texts = outcome().of("killed")
    assert texts[1].startswith("not run")
    assert (texts[0], texts[2]) == ("ok", "ok"), "\n".join(texts)
    assert "hang" not in outcome().output


CALL = {"group": "0", "ranks": [0, 1, 2], "sequence": 7, "name": "all_reduce", "rank": 0,
        "waited": 9.0}  # fmt: skip


@pytest.mark.parametrize(
    ("history", "text"),
    [
        ([[6, "barrier", True]], "rank 1 has not come to it: its last was barrier, sequence 6, "
         "which ended"),
        ([[6, "barrier", False]], "rank 1 has not come to it: its last was barrier, sequence 6, in "
         "which it waits"),
        ([[7, "reduce", False]], "rank 1 called reduce instead, sequence 7"),
        ([[9, "reduce", True]], "rank 1 is past it, in reduce, sequence 9"),
        ([], "rank 1 has not come to it: it has called no collective of the group"),
        ([[7, "all_reduce", False]], "all ranks are in it: the timeout is too short, or messages "
         "do not get through"),
    ],
)  # fmt: skip
def test_a_report_says_where_ranks_are(history: list[list[object]], text: str) -> None:
    there: dict[str, list[list[object]]] = {"0": [[7, "all_reduce", False]]}
    said = whereabouts(CALL, {0: there, 1: {"0": history}, 2: there})
    assert said == f"all_reduce, sequence 7 of group 0: rank 0 waited 9.0 s in vain; {text}"


class Cut:
    """A connection that gives its bytes in pieces."""

    def __init__(self, *pieces: bytes) -> None:
        self.pieces = list(pieces)

    def recv(self, size: int) -> bytes:
        return self.pieces.pop(0) if self.pieces else b""


def test_messages_are_whole_however_they_are_cut() -> None:
    texts = [json.dumps({"n": i, "text": "x" * i}).encode() for i in range(5)]
    stream = b"".join(len(t).to_bytes(4, "big") + t for t in texts)
    inbox = Inbox(Cut(*[stream[i : i + 3] for i in range(0, len(stream), 3)]))  # type: ignore
    messages = []
    while (some := inbox.receive()) is not None:
        messages += some
    assert [m["n"] for m in messages] == list(range(5))
    for junk in (b"GET / HTTP/1.1\r\n", b"\0\0\0\1[", b"\0\0\0\2[]"):
        assert Inbox(Cut(junk)).receive() is None  # type: ignore[arg-type]


def test_rank_0_whose_process_tells_the_others_is_told_last() -> None:
    order: list[Any] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = Server(listener, 3, "")
        server.ranks = {"a": 0, "b": 2, "c": None, "d": 1}  # type: ignore[dict-item]
        server.say = lambda connection, **message: order.append(connection)  # type: ignore
        server.fail("something")
        server.selector.close()
    assert order == ["b", "d", "a"]


def test_names_of_backends() -> None:
    theirs = pytest.importorskip("torch.distributed", reason="PyTorch is not installed").Backend
    for name in ("NCCL", "gloo", "Mpi", "other"):
        assert dist.Backend(name) == theirs(name) and type(dist.Backend(name)) is str
    assert (dist.Backend.NCCL, dist.Backend.GLOO, dist.Backend.MPI) == (
        theirs.NCCL, theirs.GLOO, theirs.MPI
    )  # fmt: skip
    for backend in (dist.Backend, theirs):
        with pytest.raises(ValueError, match="must be string-ish"):
            backend(3)
    with pytest.raises(NotImplementedError, match="register_backend"):
        dist.Backend.register_backend("own", print)


@pytest.mark.parametrize(
    ("backend", "variables", "text"),
    [
        (None, {}, "environment variable RANK expected, but not set"),
        ("mpi", {"RANK": "1", "WORLD_SIZE": "4"}, "environment variable MASTER_ADDR expected, but "
         "not set: start the script with `mpiexec -n 4 python"),
        ("ucc", {"RANK": "0", "WORLD_SIZE": "1"}, "want 'nccl', 'mpi'"),
        ("mpi", {"RANK": "3", "WORLD_SIZE": "2"}, "got rank 3 of 2 from torchrun"),
    ],
)  # fmt: skip
def test_what_is_missing_to_begin_is_said(
    backend: str | None, variables: dict[str, str], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin_with(monkeypatch, variables)
    with pytest.raises(ValueError, match=text):
        dist.init_process_group(backend)
    assert not dist.is_initialized() and world.rank == 0 and world.member is None


def begin_with(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]) -> None:
    """The environment says this of ranks, and nothing else."""
    for names in (*LAUNCHERS.values(), ASKED, ("MASTER_ADDR", "MASTER_PORT")):
        for name in names:
            monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


def test_gloo_is_taken_for_mpi(monkeypatch: pytest.MonkeyPatch) -> None:
    begin_with(monkeypatch, {"RANK": "0", "WORLD_SIZE": "1"})
    monkeypatch.setattr(world, "places", 0)
    with pytest.warns(UserWarning, match="there is no gloo; its collectives run on MPI"):
        dist.init_process_group("gloo")
    assert (dist.get_backend(), dist.get_world_size()) == ("mpi", 1)
    dist.destroy_process_group()


def test_ranks_meet_over_tcp_and_strangers_do_not() -> None:
    port = host_here("127.0.0.1", 0, 2, "secret")
    ranks = [Member(r, 2, ("127.0.0.1", port), "secret", 90.0) for r in range(2)]
    stranger = Member(1, 2, ("127.0.0.1", port), "guess", 90.0)
    assert eventually(lambda: stranger.fault is not None)
    with ThreadPoolExecutor(2) as threads:
        texts = list(threads.map(lambda m: m.gather("key", m.rank, 2, f"of {m.rank}", 90), ranks))
    assert texts == [["of 0", "of 1"]] * 2
    twin = Member(1, 2, ("127.0.0.1", port), "secret", 90.0)
    assert eventually(lambda: twin.fault is not None)
    assert "two processes call themselves rank 1 of 2" in str(twin.fault)
    ranks[1].leave("ValueError: bad data")
    assert eventually(lambda: ranks[0].fault == "rank 1 has ended with ValueError: bad data")
    with pytest.raises(DistStoreError, match="bad data"):
        ranks[0].gather("another key", 0, 2, "x", 90.0)
    ranks[0].leave()
    assert eventually(lambda: all(m.is_over for m in ranks))

    def is_refused() -> bool:  # by the host, which closes its door behind the last word
        try:
            Member(0, 1, ("127.0.0.1", port), "", 0.2)
        except DistNetworkError as error:
            return "rank 0 does not answer at 127.0.0.1" in str(error)
        return False

    assert eventually(is_refused)
