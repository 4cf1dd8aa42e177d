"""The benchmarks run on small sizes and their arithmetic is right; goals are not tested here."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import cugrad.backends
from benchmarks.common import Line, paired, table
from tests.support.warm import Warm

pytestmark = [pytest.mark.host_only, pytest.mark.slow]
FIRST = Warm("torch", "torch._dynamo", "cugrad", "cugrad.models", "cugrad.backends.simulated",
             "cugrad.memory.budgeting.context")  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def first_ends() -> Iterator[None]:
    """What has PyTorch's compiler in memory is not there for all of a session."""
    yield
    FIRST.end()


def run_benchmark(name: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Runs a benchmark on the CPU, in a process of its own."""
    environment = {**os.environ, "CUGRAD_DEVICE": "cpu"}
    return FIRST.run(f"benchmarks/{name}.py", *words, environment=environment)


# These import PyTorch, and its compiler for optimizers and checkpoints: one process runs them all.
OVERHEAD = "^(op_record_add|op_nograd_exp|chain1000_mul|graph_chain_mul|offload)"
QUICK = {
    "overhead": ["--rounds", "1", "--only", OVERHEAD],
    "throughput": ["--rounds", "1"],
    "optimizers": ["--only", "SGD_gpt|Adam_large|Muon_mlp"],
    "training": ["--only", "mlp_step|gelu_train|matmul_8x8|add_float16|randn"],
    "checkpoint": ["--only", "mlp_each_layer|mlp_4"],
    "device_ops": ["--rounds", "1", "--only", "^(exp|layer_norm|attention)_[fb]"],
    "steps": ["--only", "mlp|elementwise|resnet50_float32_cudnn"],
}
ALL_OF_THEM = """
import contextlib, io, json, runpy, sys, traceback
ends = {}
for name, words in json.loads(sys.argv[1]).items():
    sys.argv, code = [f"benchmarks/{name}.py", *words], 0
    with contextlib.redirect_stdout(io.StringIO()) as said:
        try:
            runpy.run_path(sys.argv[0], run_name="__main__")
        except SystemExit as end:
            code = end.code or 0
        except Exception:
            code = traceback.format_exc()
    ends[name] = [code, said.getvalue()]
print(json.dumps(ends))
"""
Lines = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Lines, str]]:
    """quick(name): the lines of a program's results by name, and what it printed."""
    folder = tmp_path_factory.mktemp("quick")
    words = {name: ["--quick", *more, "--json", str(folder / f"{name}.json")]
             for name, more in QUICK.items()}  # fmt: skip
    environment = {**os.environ, "CUGRAD_DEVICE": "cpu"}
    run = FIRST.run("-c", ALL_OF_THEM, json.dumps(words), environment=environment)
    assert run.returncode == 0, run.stderr
    ends = json.loads(run.stdout.splitlines()[-1])

    def of(name: str) -> tuple[Lines, str]:
        code, said = ends[name]
        assert code == 0, f"{code}\n{run.stderr[-3000:]}"
        lines = json.loads((folder / f"{name}.json").read_text())["lines"]
        return {line["name"]: line for line in lines}, said

    return of


def test_overhead_runs_quickly(quick: Callable[[str], tuple[Lines, str]]) -> None:
    found, said = quick("overhead")
    assert {"op_record_add", "op_nograd_exp", "chain1000_mul", "offload_pair"} <= set(found)
    assert any(name.startswith("graph_chain_mul") for name in found)
    assert all(v > 0 for line in found.values() for v in line["ours"] if line["unit"] != "B/node")
    assert all(name in said for name in found)


def test_throughput_runs_quickly(quick: Callable[[str], tuple[Lines, str]]) -> None:
    found, _ = quick("throughput")
    assert {"add", "softmax", "sort", "logcumsumexp", "unique"} <= set(found)
    assert all(value > 0 for line in found.values() for value in line["ours"])


def test_optimizers_run_quickly(quick: Callable[[str], tuple[Lines, str]]) -> None:
    found, _ = quick("optimizers")
    assert {"SGD_gpt", "Adam_large", "Muon_mlp"} <= set(found)
    assert all(value > 0 for line in found.values() for value in line["ours"])


def test_training_runs_quickly(quick: Callable[[str], tuple[Lines, str]]) -> None:
    found, _ = quick("training")
    assert {"mlp_step", "gelu_train", "matmul_8x8_tiny", "add_float16", "randn"} <= set(found)
    assert all(value > 0 for line in found.values() for value in line["ours"])


def test_ops_of_a_device_run_quickly(quick: Callable[[str], tuple[Lines, str]]) -> None:
    found, _ = quick("device_ops")
    assert {"exp_float32", "layer_norm_bfloat16_backward"} <= set(found) and len(found) == 12
    assert all(value > 0 for line in found.values() for value in line["ours"])


def test_steps_run_quickly_and_say_what_needs_a_gpu(
    quick: Callable[[str], tuple[Lines, str]],
) -> None:
    found, _ = quick("steps")
    assert found["step_mlp_eager"]["ours"] and found["step_elementwise_fused"]["ours"]
    assert found["step_mlp_graphed"]["note"] == "needs a GPU"
    assert not found["step_resnet50_float32_cudnn"]["ours"]


def test_checkpoint_runs_quickly(quick: Callable[[str], tuple[Lines, str]]) -> None:
    found, _ = quick("checkpoint")
    assert {"mlp_each_layer", "mlp_4_segments", "mlp_4_segments_reentrant"} <= set(found)
    assert all(value > 0 for line in found.values() for value in line["ours"])


def test_checkpoints_of_a_transformer_cost_what_the_document_says() -> None:
    """In virtual time: the last product of each block does not run again."""
    words = ["--blocks", "2", "--only", "each block$"]
    run = run_benchmark("checkpoint_simulated", *words)
    assert run.returncode == 0, run.stderr
    *_, each = run.stdout.splitlines()
    name, _, time, _, memory = (cell.strip() for cell in each.strip("|").split("|"))
    assert name == "each block" and 1.2 < float(time) < 1.3 and float(memory) < 0.7


def budgets_of_gpt(results: Path, *words: str) -> list[dict[str, float]]:
    """Some of GPT-2's blocks within limits, in virtual time: the highest, the least that is reached
    where --budgets is 2, and the least that is reached by hand where that is more.
    """
    words = ("--check", "--only", "GPT", "--hands", "blocks, offload", *words)
    run = run_benchmark("budget_simulated", *words, "--json", str(results))
    assert run.returncode == 0, run.stdout + run.stderr
    rows: list[dict[str, float]] = json.loads(results.read_text())["rows"]
    return rows


def test_budgets_beat_what_people_choose_by_hand(tmp_path: Path) -> None:
    """Attention has its scores in memory: there is more to choose, and less memory is reached."""
    words = ["--layers", "4", "--budgets", "1", "--scores"]
    most, by_hand = budgets_of_gpt(tmp_path / "budget.json", *words)
    assert 0 < by_hand["share"] < 0.03 and most["share"] == 1
    assert most["slowdown"] < 1.02 and by_hand["slowdown"] < 1.025
    assert 0.95 * by_hand["limit"] <= by_hand["peak"] <= by_hand["limit"] < 0.73 * most["limit"]
    assert 0 < by_hand["step"] < 0.91 * by_hand["hand_step"]


def test_budgets_fit_where_attention_is_a_kernel(tmp_path: Path) -> None:
    """Which leaves less to choose: by hand as little memory is reached, more slowly."""
    words = ["--layers", "3", "--budgets", "2"]
    most, least = budgets_of_gpt(tmp_path / "budget.json", *words)
    assert least["limit"] < 0.79 * most["limit"] and least["peak"] <= least["limit"]
    assert most["slowdown"] < 1.02 and least["slowdown"] < 1.02
    assert 0 < least["step"] < 0.935 * least["hand_step"]


def test_budgets_beside_torch_rehearse(tmp_path: Path) -> None:
    results = tmp_path / "budget.json"
    words = ["--rehearse", "--only", "GPT", "--steps", "1", "--warm-up", "4"]
    run = run_benchmark("budget", *words, "--json", str(results))
    assert run.returncode == 0, run.stdout + run.stderr
    found = json.loads(results.read_text())["results"]
    assert {"keep", "budget", "checkpoint"} <= {r["way"] for r in found if "step" in r}
    for r in found:
        if r["way"] == "budget" and "step" in r:
            assert r["predicted"] > 0 and r["peak"] <= 1.05 * r["limit"]


def test_offload_comes_close_to_what_the_link_allows(tmp_path: Path) -> None:
    results = tmp_path / "offload.json"
    words = ["--check", "--speed", "2", "--placements", "offload", "--only", "GPT|U-Net"]
    run = run_benchmark("offload_simulated", *words, "--json", str(results))
    assert run.returncode == 0, run.stdout + run.stderr
    found = json.loads(results.read_text())["results"]
    saved = {
        "GPT-2": 16 * 1024 * 4 * (12 * 16 * 768 + 50257),  # bytes of blocks and of logits
        "U-Net": 22e9,  # as counted in PyTorch
    }
    assert [r["case"] for r in found[::2]] == list(saved)
    for keep, moved in zip(found[::2], found[1::2]):
        assert keep["placement"] == "keep" and moved["placement"] == "offload"
        # a difference of two times since the machine's start, by the same: it may be rounded
        assert abs(keep["slowdown"] - 1) < 1e-12 and keep["to_host"] == 0
        assert keep["unique"] == pytest.approx(saved[keep["case"]], rel=0.03)
        assert 0.999 <= moved["distance"] <= 1.05 and moved["slowdown"] >= 0.999
        assert moved["to_host"] + moved["kept"] <= 1.03 * keep["unique"]  # each storage once
        assert moved["peak"] < 0.9 * keep["peak"] and 0 < moved["overlap"] <= 1


def test_states_elsewhere_come_close_to_what_the_link_allows(tmp_path: Path) -> None:
    results = tmp_path / "states.json"
    places = ["states stream", "all host", "states host", "gradients, states host", "all stream"]
    words = ["--layers", "3", "--tokens", "2048", "--only", *places]
    run = run_benchmark("states", *words, "--check", "--json", str(results))
    assert run.returncode == 0, run.stdout + run.stderr
    plain, *found = json.loads(results.read_text())["results"]
    stream, host = found[:2]
    for result in found[:4]:  # of what streams all of it the docs say why it is slower
        assert min(result["rivals"].values()) >= 1.2 * result["step"]
    assert stream["distance"] >= 0.99 and host["distance"] >= 0.99
    assert stream["peak"] <= stream["limit"] < plain["peak"]
    assert host["peak"] <= host["limit"] < 0.7 * plain["peak"]
    assert host["gradients_out"] == pytest.approx(4 * host["parameters"], rel=0.02)  # once


def test_states_elsewhere_on_a_gpu_rehearse(tmp_path: Path) -> None:
    results = tmp_path / "states.json"
    words = ["--rehearse", "--steps", "1", "--warm-up", "2", "--only", "^all stream, during"]
    run = run_benchmark("states_gpu", *words, "--json", str(results))
    assert run.returncode == 0, run.stdout + run.stderr
    plain, *_, streamed = json.loads(results.read_text())["results"]
    assert plain["way"] == "plain" and streamed["way"] == "all stream, during"
    assert streamed["losses"] == plain["losses"] and streamed["step"] > 0


def test_what_has_no_plain_run_is_trained_within_memory(tmp_path: Path) -> None:
    """Small: its parameters stand for those of 6.7 B, and a part of a MiB for 24 GiB."""
    results = tmp_path / "results.json"
    words = ["--rehearse", "--size", "6.7B", "--within", "6", "--steps", "1", "--warm-up", "2"]
    words += ["--only", "budget|^all host|AdamW"]
    run = run_benchmark("states_gpu", *words, "--json", str(results))
    assert run.returncode == 0, run.stdout + run.stderr
    found = json.loads(results.read_text())["results"]
    budget, host = found[:2]
    assert (budget["way"], host["way"]) == ("budget", "all host, during")
    assert budget["peak"] <= budget["limit"] and host["peak"] <= host["limit"]
    assert host["tokens_per_second"] > 0 and host["step"] >= 0.99 * host["bound"]


def test_steps_on_the_host_are_timed_beside_their_bytes() -> None:
    words = ["--elements", "4096", "--times", "1", "--only", "SGD"]
    run = run_benchmark("host_step", *words)
    assert run.returncode == 0 and "SGD momentum=0.9" in run.stdout, run.stdout + run.stderr


def test_offload_runs_quickly_beside_torch(tmp_path: Path) -> None:
    words = ["--device", "cpu", "--only", "GPT", "--steps", "1", "--warm-up", "1"]
    run = run_benchmark("offload", *words, "--out", str(tmp_path))
    assert run.returncode == 0, run.stderr
    (written,) = tmp_path.glob("*-offload-cpu-*.json")
    assert written.with_suffix(".md").read_text().startswith("# Offload on CPU, commit")
    found = json.loads(written.read_text())
    assert found["link"]["to_host"] > 0 and found["commit"]
    seen = {(r["case"], r["library"], r["placement"]): r for r in found["results"]}
    assert len(seen) == len(found["results"])
    plain = seen["GPT blocks", "cugrad", "keep"]
    assert plain["slowdown"] == 1 and plain["step"] > 0 and plain["saved"] > 0
    for (_, library, placement), r in seen.items():
        if placement != "keep":
            assert r["distance"] == r["step"] / r["bound"] > 0
            assert (r["to_host"] > 0) == (library == "torch" or "-" in placement)
        assert r["parameters"] == plain["parameters"]


def test_offload_halves_a_batch_that_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks import offload as program

    runner = program.Runner(program.parse(["--batch", "8", "--tiny"]))
    asked: list[int] = []

    def start(words: list[str]) -> dict[str, object]:
        asked.append(int(words[-1]))
        if asked[-1] > 2:
            return {"out_of_memory": "Out of memory allocating 9 bytes"}
        return {"step": 1.0, "peak": 1, "copies": 10}

    monkeypatch.setattr(runner, "start", start)
    results = runner.case("ResNet-152", ["cugrad"])
    assert asked == [8, 4, 2, 2, 2, 2] and {r["batch"] for r in results} == {2}


def test_offload_without_a_gpu_says_what_it_needs() -> None:
    if cugrad.backends.is_usable("cuda"):
        pytest.skip("there is a GPU")
    run = run_benchmark("offload")
    assert run.returncode == 2 and run.stdout == "" and run.stderr.count("\n") == 1
    assert "NVIDIA GPU" in run.stderr and "--device simulated" in run.stderr


def test_a_budget_that_is_spent_is_no_failure() -> None:
    run = run_benchmark("offload", "--device", "simulated", "--budget", "2", "--only", "ResNet")
    assert run.returncode == 0 or "the link" in run.stderr, run.stderr


def test_rounds_alternate_who_goes_first() -> None:
    calls = []
    line = paired(
        Line("x", "s"), lambda: calls.append("a") or 1.0, lambda: calls.append("b") or 2.0, 2
    )
    assert calls == ["b", "a", "a", "b"]
    assert line.ratio == 0.5


@pytest.mark.parametrize(
    "ours, theirs, verdict",
    [
        ([1.0], [2.0], "ok"),
        ([2.0], [1.0], "MISSED"),
        ([2.0], [], ""),
        ([1.0, 9.0, 1.0], [2.0] * 3, "ok"),
    ],
)
def test_verdicts(ours: list[float], theirs: list[float], verdict: str) -> None:
    line = Line("x", "s", ours, theirs, goal=1.0)
    assert line.verdict == verdict
    assert "n/a" in table([line]) or theirs


def test_a_limit_needs_no_peer() -> None:
    assert Line("x", "B", [500.0], [], limit=450).verdict == "MISSED"
    assert Line("x", "B", [400.0], [], limit=450).verdict == "ok"


def test_host_time_is_measured_without_a_gpu(tmp_path: Path) -> None:
    pytest.importorskip("cupy", reason="CuPy is not installed")
    results = tmp_path / "host.json"
    words = ["--quick", "--only", "add|linear$", "--json", str(results)]
    run = run_benchmark("host_time", *words)
    assert run.returncode == 0, run.stderr[-2000:]
    lines = json.loads(results.read_text())["lines"]
    assert {line["name"] for line in lines} >= {"host_add", "host_add_bfloat16", "host_linear"}
    assert all(line["ours"] for line in lines)


def test_kernels_are_as_few_as_their_goals(tmp_path: Path) -> None:
    pytest.importorskip("cupy", reason="CuPy is not installed")
    results = tmp_path / "kernels.json"
    run = run_benchmark("kernels", "--check", "--json", str(results))
    assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-2000:]
    found = {line["name"]: line for line in json.loads(results.read_text())["counts"]}
    assert len([name for name in found if name.startswith("row ")]) > 85
    assert found["row mul"]["kernels"] == [1, 1] and found["gelu"]["passes"] == [2, 3]
    assert found["softmax"]["kernels"][0] > 0 and found["Adam, 148 tensors"]["kernels"][0] <= 3
