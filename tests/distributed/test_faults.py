"""A rank that fails is named to all others, with the call and its number, and no process hangs."""

from __future__ import annotations

import functools
import json
import os
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import cugrad.distributed as dist
from cugrad.distributed.errors import DistNetworkError, DistStoreError
from cugrad.distributed.meeting.member import Member, host_here
from cugrad.distributed.meeting.messages import Inbox
from cugrad.distributed.meeting.report import whereabouts
from cugrad.distributed.meeting.server import Server
from tests.distributed.ranks import Outcome, run_ranks
from tests.support.patience import eventually

pytestmark = pytest.mark.host_only

CASES = ["differing", "another", "hanging", "halted", "killed"]


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


def python(code: str, **environment: str) -> str:
    """The last line that a program prints, or its error."""
    names = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "PMI_RANK", "PMI_SIZE")
    clean = {k: v for k, v in os.environ.items() if k not in names}
    run = subprocess.run([sys.executable, "-c", "import cugrad.distributed as dist\n" + code],
                         env={**clean, **environment}, capture_output=True, text=True)  # fmt: skip
    return (run.stdout + run.stderr).rstrip().rpartition("\n")[2]


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


def test_what_is_missing_to_begin_is_said() -> None:
    begin = "dist.init_process_group('{}')"
    assert "environment variable RANK expected, but not set" in python("dist.init_process_group()")
    said = python(begin.format("mpi"), RANK="1", WORLD_SIZE="4")
    assert "environment variable MASTER_ADDR expected" in said and "mpiexec -n 4 python" in said
    code = begin.format("gloo") + "; print(dist.get_backend(), dist.get_world_size())"
    assert python("import warnings; warnings.simplefilter('ignore')\n" + code, RANK="0",
                  WORLD_SIZE="1") == "mpi 1"  # fmt: skip
    said = python(begin.format("gloo"), RANK="0", WORLD_SIZE="1")
    assert said.startswith("<string>:2: UserWarning: init_process_group: there is no gloo")
    assert "want 'nccl', 'mpi'" in python(begin.format("ucc"), RANK="0", WORLD_SIZE="1")


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
    with pytest.raises(DistNetworkError, match="rank 0 does not answer at 127.0.0.1"):
        Member(0, 1, ("127.0.0.1", port), "", 0.2)
