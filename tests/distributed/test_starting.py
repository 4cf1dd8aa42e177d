"""How ranks start and find each other: the launcher, and stores of keys and values."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import cugrad.distributed as dist
from cugrad.distributed import environment, starting
from cugrad.distributed.elastic.multiprocessing.errors import record
from cugrad.distributed.environment import RankPlace
from cugrad.distributed.meeting.agent import AgentStore
from cugrad.distributed.run import launch
from cugrad.distributed.run.options import job_of
from tests.distributed.ranks import skip_without_mpi
from tests.support import ROOT

pytestmark = pytest.mark.host_only

# ---------------------------------------------------------------------- the launcher

SCRIPT = """
import json, os, sys
import cugrad as torch, cugrad.distributed as dist
dist.init_process_group()
x = torch.tensor(float(os.environ["RANK"]) + 1)
dist.all_reduce(x)
names = "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK"
said = [x.item(), *[os.environ[n] for n in names], dist.is_torchelastic_launched(), sys.argv[1:]]
with open(f"{os.environ['FOLDER']}/{os.environ['RANK']}.json", "w") as file:
    json.dump(said, file)
"""


def test_a_script_is_started_in_several_processes_which_bring_mpi_together(tmp_path: Path) -> None:
    """Without mpiexec: MPICH is told by the ranks themselves who is who."""
    skip_without_mpi()
    (tmp_path / "script.py").write_text(SCRIPT)
    job = job_of(["--nproc_per_node=2", str(tmp_path / "script.py"), "--epochs", "2"])
    variables = {**launch.environment(job, 0), "PYTHONPATH": str(ROOT), "CUGRAD_DEVICE": "cpu",
                 "FOLDER": str(tmp_path)}  # fmt: skip
    assert launch._run_each(job, variables, str(tmp_path)) == (0, "rank 0")
    said = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]
    assert said == [[3.0, str(r), "2", "2", "0", True, ["--epochs", "2"]] for r in range(2)]


def test_mpiexec_starts_each_process_with_variables_of_its_own(tmp_path: Path) -> None:
    skip_without_mpi()
    says = f"echo $RANK $LOCAL_RANK $WORLD_SIZE > '{tmp_path}'/$PMI_RANK"
    assert launch.main(["--nproc-per-node", "3", "--no-python", "sh", "-c", says]) == 0
    for rank in range(3):
        assert (tmp_path / str(rank)).read_text() == f"{rank} {rank} 3\n"
    assert launch.main(["--nproc-per-node", "2", "--no-python", "sh", "-c", "exit 4"]) == 4


@pytest.mark.parametrize(
    ("variables", "is_under"),
    [
        ({}, False), ({"PMI_RANK": "0"}, True), ({"PMIX_RANK": "0", "RANK": "0"}, True),
        ({"SLURM_PROCID": "0"}, True), ({"SLURM_PROCID": "0", "RANK": "0"}, False),
        ({"SLURM_PROCID": "0", "MASTER_ADDR": "here"}, False),
    ],
)  # fmt: skip
def test_whether_mpi_can_ask_who_started_it(
    variables: dict[str, str], is_under: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (*environment.ASKED, "SLURM_PROCID", "RANK", "MASTER_ADDR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert environment.is_under_mpi() is is_under


def test_a_script_is_started_again_when_it_fails(capsys: pytest.CaptureFixture[str]) -> None:
    ends = "exit $((5 - $TORCHELASTIC_RESTART_COUNT))"
    assert launch.main(["--max-restarts=5", "--no-python", "sh", "-c", ends]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 5 and lines[0].endswith("rank 0 of sh ended with exit code 5, and starts "
                                                 "again")  # fmt: skip


def test_what_a_program_records_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    @record
    def main(error: Any = None) -> str:
        if error is not None:
            raise error
        return "done"

    assert main() == "done" == main.__wrapped__() and main(SystemExit(0)) is None
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(tmp_path / "5"))
    with pytest.raises(SystemExit):
        main(SystemExit(1))
    assert launch._recorded(str(tmp_path)) is None
    with pytest.raises(ValueError):
        main(ValueError("bad data\nin line 2"))
    assert launch._recorded(str(tmp_path)) == ("rank 5", "ValueError: bad data")
    ends = f"cp '{tmp_path / '5'}' $TORCHELASTIC_ERROR_FILE; exit 3"
    assert launch.main(["--no-python", "sh", "-c", ends]) == 3
    assert capsys.readouterr().err.endswith("rank 0 of sh ended with ValueError: bad data\n")


def test_processes_that_are_started_here_end_when_one_of_them_fails() -> None:
    """Without MPI, as GPUs need none: the first that fails is named."""
    script = ["sh", "-c", "[ $RANK = 2 ] || exec sleep 1000; exit 7"]
    job = job_of(["--no-python", "--nnodes=2", "--node-rank=1", "--master-addr=here",
                  "--nproc-per-node=2", *script])  # fmt: skip
    variables = launch.environment(job, 0)
    assert variables["MASTER_ADDR"] == "here" and variables["MASTER_PORT"] == "29500"
    assert variables["WORLD_SIZE"] == "4" and variables["GROUP_RANK"] == "1"
    assert launch._run_each(job, variables, "") == (7, "rank 2")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["nowhere.py"], "can't open file 'nowhere.py'"),
        (["--nproc-per-node", "many", "x.py"], "--nproc-per-node: got many, want a number"),
        (["--nproc-per-node=gpu", "x.py"], "there is no GPU that can be used"),
        (["--nnodes=1:4", "x.py"], "--nnodes: got 1:4, want a number"),
        (["--nnodes=2", "-m", "x"], "--master-addr: want the address of machine 0"),
        (["--nnodes=2", "--rdzv-endpoint=h:1", "-m", "x"], "--node-rank: got -1, want"),
        (["--tee=3", "-m", "x"], "--tee is not here: redirect"),
        ([], "the following arguments are required: script"),
    ],
)
def test_a_wrong_command_line_is_told_in_one_line(
    arguments: list[str], text: str, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.delenv("SLURM_NODEID", raising=False)
    with pytest.raises(SystemExit) as end:
        launch.main(arguments)
    said = capsys.readouterr().err
    assert end.value.code == 2 and said.count("\n") == 1
    assert said.startswith("python -m cugrad.distributed.run: ") and text in said


# ---------------------------------------------------------------------- stores


def said_by(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except (RuntimeError, TypeError) as error:
        return type(error).__name__


def told(store: Any, short: timedelta) -> list[Any]:
    """What a store answers to some questions, one after the other."""
    calls: list[Callable[[], Any]] = [
        lambda: store.set("a", "1"), lambda: store.get("a"), lambda: store.add("n", 5),
        lambda: store.add("n", -2), lambda: store.get("n"),
        lambda: store.compare_set("a", "1", "2"), lambda: store.compare_set("a", "1", "3"),
        lambda: store.compare_set("b", "", "3"), lambda: store.compare_set("c", "x", "3"),
        lambda: store.num_keys(), lambda: store.delete_key("a"), lambda: store.delete_key("a"),
        lambda: store.check(["a"]), lambda: store.check(["b", "n"]),
        lambda: store.set_timeout(short), lambda: store.timeout, lambda: store.get("nowhere"),
        lambda: store.wait(["b", "nowhere"], short), lambda: store.wait(["b"]),
        lambda: store.multi_set(["k", "l"], ["1", "2"]), lambda: store.multi_get(["l", "k"]),
        lambda: store.append("k", "9"), lambda: store.get("k"),
        lambda: store.set("bytes", b"\xff\0"), lambda: store.get("bytes"),
        lambda: sorted(store.list_keys()), lambda: store.set("a", 3),
    ]  # fmt: skip
    return [said_by(call) for call in calls]


def stores(folder: Path) -> dict[str, Any]:
    master = dist.TCPStore("127.0.0.1", 0, 2, True, wait_for_workers=False)
    worker = dist.TCPStore("127.0.0.1", master.port, 2)
    return {"HashStore": dist.HashStore(), "FileStore": dist.FileStore(folder / "store"),
            "TCPStore": master, "PrefixStore": dist.PrefixStore("rank", worker)}  # fmt: skip


def test_stores_answer_as_those_of_pytorch(tmp_path: Path) -> None:
    theirs = pytest.importorskip("torch.distributed", reason="PyTorch is not installed")
    short = timedelta(milliseconds=20)
    expected = told(theirs.HashStore(), short)
    for name, store in stores(tmp_path).items():
        assert told(store, short) == expected, name


def test_stores_are_shared_and_wait_for_what_others_write(tmp_path: Path) -> None:
    of = stores(tmp_path)
    master, worker = of["TCPStore"], of["PrefixStore"]
    pairs = [(of["FileStore"], dist.FileStore(tmp_path / "store")),
             (dist.PrefixStore("rank", master), worker)]  # fmt: skip
    for one, other in pairs:
        with ThreadPoolExecutor(1) as threads:
            waits = threads.submit(one.get, "late")
            other.set("late", "there")
            assert waits.result() == b"there"
    assert master.get("rank/late") == b"there"
    with pytest.raises(dist.DistNetworkError, match="no connection with 127.0.0.1:"):
        dist.TCPStore("127.0.0.1", 1, timeout=timedelta(seconds=0.01))
    with pytest.raises(NotImplementedError, match="multi_tenant"):
        dist.TCPStore("127.0.0.1", 0, multi_tenant=True)


def test_ranks_that_torchrun_has_started_meet_at_its_agents_store(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    theirs = pytest.importorskip("torch.distributed", reason="PyTorch is not installed")
    agent = theirs.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(agent.port))
    assert starting._store_of(None, 9.0) is None
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
    one, other = starting._store_of(None, 9.0), starting._store_of("env://", 9.0)
    assert one is not None and other is not None
    with ThreadPoolExecutor(1) as threads:
        waits = threads.submit(one.get, "key")
        other.set("key", b"\xffvalue")
        assert waits.result() == b"\xffvalue" == agent.get("key")
    agent.set("large", "x" * 100_000)
    assert other.get("large") == b"x" * 100_000
    with pytest.raises(dist.DistStoreError, match="Wait timeout"):
        other.wait(["nowhere"], timedelta(seconds=0.05))
    with pytest.raises(NotImplementedError, match="add: the store of torchrun's agent"):
        one.add("n", 1)
    one.close()
    other.close()
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as threads:
        threads.submit(lambda: listener.accept()[0].close())
        with pytest.raises(dist.DistNetworkError, match=r"distributed\.run"):
            AgentStore("127.0.0.1", listener.getsockname()[1], 9.0)


def test_ranks_without_mpi_meet_by_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    method = f"file://{tmp_path / 'meeting'}"

    def meet(rank: int) -> Any:
        place = RankPlace(rank, 2, "the arguments")
        return starting._member(place, None, starting._store_of(method, 90.0), method, 90.0)

    with ThreadPoolExecutor(2) as threads:
        members = list(threads.map(meet, range(2)))
        answers = threads.map(lambda m: m.gather("key", m.rank, 2, m.rank, 90.0), members)
        assert list(answers) == [[0, 1], [0, 1]]
        list(threads.map(lambda m: m.leave("", 90.0), members))
    with pytest.raises(AssertionError, match="Cannot specify both init_method and store"):
        dist.init_process_group("mpi", "env://", rank=0, world_size=1, store=dist.HashStore())
    with pytest.raises(AssertionError, match="world_size and rank must be given"):
        dist.init_process_group("mpi", store=dist.HashStore())
    dist.init_process_group("mpi", rank=0, world_size=1, store=dist.HashStore())
    dist.destroy_process_group()
