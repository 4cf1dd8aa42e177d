"""What ranks run when one of them fails: the others say what they are told."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import cugrad as torch
import cugrad.distributed as dist
from cugrad.distributed.groups import world
from cugrad.nn.parallel import DistributedDataParallel as DDP
from tests.distributed import programs
from tests.support.patience import eventually, patient

FOLDER = Path(os.environ.get("CUGRAD_RANKS_FOLDER", "."))


def start(seconds: float | None = None) -> None:
    seconds = patient() if seconds is None else seconds
    dist.init_process_group("mpi", timeout=timedelta(seconds=seconds))


def anew(seconds: float) -> None:
    """Another job of the same processes, which the last one's fault does not reach."""
    dist.destroy_process_group()
    start(seconds)
    dist.barrier()


def told(call: Callable[[], Any]) -> str:
    """What a collective that cannot end raises."""
    with pytest.raises(dist.DistBackendError) as error:
        call()
    with pytest.raises(dist.DistBackendError) as again:  # the group is not used further
        dist.all_reduce(torch.ones(2))
    assert "was about to call all_reduce" in str(again.value)
    return str(error.value)


def all_told(case: str) -> bool:
    return len(list(FOLDER.glob(f"{case}.*"))) == dist.get_world_size() - 1


def note(case: str) -> None:
    (FOLDER / f"{case}.{dist.get_rank()}").touch()


def differing() -> None:
    """With DETAIL, shapes, dtypes and calls that differ are told before data moves."""
    rank = dist.get_rank()
    os.environ["TORCH_DISTRIBUTED_DEBUG"] = "DETAIL"
    assert dist.get_debug_level() is dist.DebugLevel.DETAIL
    x = torch.ones(3 if rank == 1 else 2)
    with pytest.raises(RuntimeError, match=r"rank 0 calls all_reduce\(torch.float32 \[2\]\).* but "
                       r"rank 1 calls all_reduce\(torch.float32 \[3\]\)"):  # fmt: skip
        dist.all_reduce(x)
    with pytest.raises(RuntimeError, match=r"float32 \[2\].* but rank 2 calls .*float64 \[2\]"):
        dist.broadcast(torch.ones(2, dtype=torch.float64 if rank == 2 else torch.float32), 0)
    with pytest.raises(
        RuntimeError, match=r"sequence .* rank 0 calls reduce.*rank 1 calls barrier"
    ):
        dist.barrier() if rank else dist.reduce(torch.ones(2), 0)
    x = torch.ones(2)
    dist.all_reduce(x)  # nothing is lost
    assert x.tolist() == [3.0, 3.0]
    os.environ["TORCH_DISTRIBUTED_DEBUG"] = "NONE"
    with pytest.raises(ValueError, match="want OFF, INFO, DETAIL"):
        dist.get_debug_level()
    del os.environ["TORCH_DISTRIBUTED_DEBUG"]


def detailed() -> None:
    """What each rank sends to each is compared, too; calls that are right go as they always do."""
    rank, n = dist.get_rank(), dist.get_world_size()
    dist.set_debug_level(dist.DebugLevel.DETAIL)
    for case in (programs.copies, programs.exchanges, programs.layouts, programs.things):
        case()
    wanted = [2, 2, 3 if rank == 1 else 2]  # of rank 2, which sends 2
    with pytest.raises(
        RuntimeError, match=r"in all_to_all_single\(.* rank 2 sends 2 .* to rank 1, which wants 3"
    ):
        dist.all_to_all_single(torch.empty(sum(wanted)), torch.empty(2 * n), wanted, [2] * n)
    with pytest.raises(RuntimeError, match=r"rank 0 calls all_gather.* \[1, 2, 3\], but rank 2 "
                       r"calls all_gather.* \[1, 7, 3\]"):  # fmt: skip
        sizes = [1, 7 if rank == 2 else 2, 3]
        dist.all_gather([torch.empty(s) for s in sizes], torch.empty(rank + 1))
    with pytest.raises(TypeError, match="want a DebugLevel"):
        dist.set_debug_level("DETAIL")  # type: ignore[arg-type]
    dist.set_debug_level_from_env()
    assert dist.get_debug_level() is dist.DebugLevel.OFF


def another() -> None:
    """A rank that calls another collective than the others."""
    rank = dist.get_rank()
    anew(2.0)
    x = torch.ones(4)
    if rank == 2:
        text = told(lambda: dist.broadcast(x, 0))
    else:
        text = told(lambda: dist.all_reduce(x))
    own = "broadcast" if rank == 2 else "all_reduce"
    assert f"(rank {rank} was in {own}, sequence 2 of group 0)" in text
    first = text.partition(" waited ")[0]
    if first.endswith(("rank 0", "rank 1")):
        assert "rank 2 called broadcast instead, sequence 2" in text, text
    else:
        assert "rank 0 called all_reduce instead, sequence 2" in text, text


def hanging() -> None:
    """A rank that does not come; it finds out when it does."""
    rank = dist.get_rank()
    anew(2.0)
    if rank == 1:
        assert eventually(lambda: all_told("hanging"))
        assert eventually(lambda: world.member is not None and world.member.fault is not None)
        with pytest.raises(dist.DistBackendError, match="rank 1 has not come to it"):
            dist.all_reduce(torch.ones(2))
        return
    work = dist.all_reduce(torch.ones(2), async_op=True)
    assert work is not None
    text = told(work.wait)
    assert "all_reduce, sequence 2 of group 0" in text
    assert "rank 1 has not come to it: its last was barrier, sequence 1, which ended" in text
    assert work.is_completed() and not work.is_success()
    assert isinstance(work.exception(), dist.DistBackendError)
    note("hanging")


def halted() -> None:
    """A rank that is stopped, so that it does not even answer; and a barrier that says so."""
    rank = dist.get_rank()
    anew(100.0)
    if rank == 2:
        pid = os.getpid()
        if os.fork() == 0:  # lets it go on when the others have been told
            while not all_told("halted"):
                time.sleep(0.01)
            os.kill(pid, signal.SIGCONT)
            os._exit(0)
        os.kill(pid, signal.SIGSTOP)
        os.wait()
        return
    with pytest.raises(dist.DistBackendError) as error:
        dist.monitored_barrier(timeout=timedelta(seconds=2))
    assert "monitored_barrier, sequence 2" in str(error.value)
    assert "rank 2 does not answer: its process stands still" in str(error.value)
    note("halted")


def killed() -> None:
    """A rank that is killed in the middle of a step of training."""
    rank = dist.get_rank()
    anew(100.0)
    model = DDP(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)))

    def steps() -> None:
        for step in range(100):
            loss = model(torch.ones(2, 4)).sum()
            if rank == 1 and step == 3:
                os.kill(os.getpid(), signal.SIGKILL)
            loss.backward()  # others may be in this step yet, or in the one before

    text = told(steps)
    assert "rank 1 has died: its process ended in the midst of its work" in text
    assert re.search(r"was (in|about to call) all_reduce, sequence \d+ of group 0", text), text
