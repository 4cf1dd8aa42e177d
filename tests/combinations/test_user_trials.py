"""What a new user tries, and gets wrong: it works, or one error says what to do."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import cugrad as torch
from cugrad import memory, profiler
from cugrad.memory.sizes import bytes_of, enough
from cugrad.profiler.__main__ import main
from cugrad.utils.checkpoint import (
    checkpoint,
    checkpoint_sequential,
    create_selective_checkpoint_contexts,
)


def test_sizes_are_numbers_or_text(tmp_path: Path) -> None:
    x = torch.rand(300, 300, device="simulated", requires_grad=True)
    for saving in (
        memory.offload(min_bytes="1KiB", keep_last="0", lookahead="64MB", backlog=64e6,
                       host_limit="1 GB"),
        memory.save_on_disk(tmp_path, min_bytes="1kb", limit="10MB", backlog="1MiB"),
    ):  # fmt: skip
        with saving:
            y = (x * 2).exp().sum()
        y.backward()
        assert saving.stats.unique_bytes == x.nbytes


def test_a_size_that_is_named_as_the_least_is_enough() -> None:
    for nbytes in [int(1.137**k) for k in range(240)]:
        assert nbytes <= bytes_of(enough(nbytes), "limit") <= 1 + 1.001 * nbytes


@pytest.mark.parametrize("given", ["8 parsecs", -1, "-3GB", True, "90%", "", (1,)])
def test_what_is_no_size(given: Any) -> None:
    for argument in ("min_bytes", "keep_last", "lookahead", "backlog", "host_limit"):
        with pytest.raises(ValueError, match=f"offload: {argument}: got .*, want bytes, as 12_000"):
            memory.offload(**{argument: given})
    with pytest.raises(ValueError, match="save_on_disk: limit: got .*, want bytes, as 12_000_000"):
        memory.save_on_disk(limit=given)


def checkpointed(function: Any = torch.exp, **kwargs: Any) -> Any:
    x = torch.ones(3, requires_grad=True)
    return checkpoint(function, x, use_reentrant=False, **kwargs)


def selecting(policy: Any) -> Any:
    return functools.partial(create_selective_checkpoint_contexts, policy)


MISTAKES: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "min_bytes": (lambda: memory.offload(min_bytes=None), ValueError, "min_bytes: got None"),  # type: ignore[arg-type]
    "ops_text": (lambda: memory.recompute(ops="exp"), TypeError, r"several names .* \['exp'\]"),
    "ops_module": (
        lambda: memory.recompute(ops=[torch.nn.ReLU]), ValueError,
        "'ReLU' is not among the ops of docs/ops.md; did you mean 'relu'",
    ),
    "context_fn": (
        lambda: checkpointed(context_fn=3), TypeError,
        "checkpoint: context_fn: got 3, want a function that returns two contexts",
    ),
    "contexts": (
        lambda: checkpointed(context_fn=create_selective_checkpoint_contexts(["exp"])), TypeError,
        "checkpoint: context_fn: got .* as functools.partial",
    ),
    "one_context": (
        lambda: checkpointed(context_fn=memory.offload), TypeError,
        "checkpoint: context_fn: it returned <.*offload.*>, want a function that returns two",
    ),
    "policy": (
        lambda: checkpointed(context_fn=selecting(lambda *a, **k: "save")), TypeError,
        "the policy answered 'save' for exp, want a CheckpointPolicy, or whether to keep",
    ),
    "aten": (
        lambda: torch.ops.aten.mm.default, AttributeError,  # type: ignore[attr-defined]
        "has no attribute 'aten': an op goes by its name in docs/ops.md, as 'mm'",
    ),
    "segments": (
        lambda: checkpoint_sequential([torch.exp], 0, torch.ones(3), use_reentrant=False),
        ValueError, "checkpoint_sequential: segments: got 0, want a number, 1 or more",
    ),
    "schedule": (
        lambda: profiler.profile(schedule=3), TypeError,  # type: ignore[arg-type]
        r"profile: schedule: got 3, want a function, of the number of a step; schedule\(wait=1",
    ),
    "handler": (
        lambda: profiler.profile(on_trace_ready="logs"), TypeError,  # type: ignore[arg-type]
        "profile: on_trace_ready: got 'logs', want a function, of the profile; tensorboard_tr",
    ),
    "one_activity": (
        lambda: profiler.profile(activities=profiler.ProfilerActivity.CPU), TypeError,  # type: ignore[arg-type]
        r"profile: activities: got .*, want several, as \[ProfilerActivity.CPU\]",
    ),
    "correlate_a_profile": (
        lambda: profiler.correlate(profiler.profile()), TypeError,  # type: ignore[arg-type]
        r"correlate: got profile, want the events of a profile, prof.events\(\), or of a file",
    ),
    "correlate_a_path": (lambda: profiler.correlate("step.sqlite"), TypeError, "load_nsys"),  # type: ignore[arg-type]
    "directory": (
        lambda: memory.save_on_disk(5), TypeError, "directory: got 5, want a path",  # type: ignore[arg-type]
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_told(name: str) -> None:
    call, kind, text = MISTAKES[name]
    with pytest.raises(kind, match=text):
        call()


def test_what_recompute_did_can_be_read() -> None:
    x = torch.rand(256, 256, requires_grad=True)
    with memory.recompute() as dropping:
        y = x.exp().tanh().sum()
    y.backward()
    assert str(dropping.stats) == "2 tensors saved, 512 KiB; 512 KiB dropped, 0 B kept"


def test_what_was_in_use_on_entry_never_grows() -> None:
    """Gradients of the step before are let go of within; those on their way are none of that."""
    net = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(4)]).to("simulated")
    optimizer = torch.optim.AdamW(net.parameters())
    x = torch.rand(32, 64, device="simulated")
    for _ in range(2):
        with profiler.MemoryTimeline("simulated") as timeline:
            optimizer.zero_grad()
            net(x).square().mean().backward()
            optimizer.step()
    entry = [sample.before for sample in timeline.samples]
    assert entry == sorted(entry, reverse=True)
    assert max(sample.other for sample in timeline.samples) > 0
    assert " 0.00 " not in timeline.explain().partition("other")[0].replace("0.00 MiB", "")


def test_times_of_the_host_are_not_called_kernels(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with profiler.profile(activities=[profiler.ProfilerActivity.CPU]) as prof:
        torch.rand(3, requires_grad=True).exp().sum().backward()
    prof.export_chrome_trace(str(tmp_path / "trace.json"))
    assert main(["report", str(tmp_path / "trace.json")]) == 0
    head = capsys.readouterr().out.splitlines()[2].split(" | ")
    assert [each.strip() for each in head[:5]] == [
        "forward op", "calls", "on the host", "backward", "on the host"
    ]  # fmt: skip
    with pytest.raises(SystemExit):
        main(["report", str(tmp_path / "trace.json"), "--limit", "-3"])
    assert "got '-3', want a number of rows, 0 or more" in capsys.readouterr().err


def test_small_models_are_told_of_the_backlog() -> None:
    """All that they save may be under way at once, so that memory does not fall."""
    net = torch.nn.Sequential(*[torch.nn.Linear(128, 128) for _ in range(8)]).to("simulated")
    x = torch.rand(2048, 128, device="simulated")
    found = []
    for sizes in ({}, {"keep_last": 0, "backlog": "1MB", "lookahead": "1MB"}):
        saving = memory.offload(**sizes)
        for _ in range(3):
            net.zero_grad()
            with saving:
                loss = net(x).square().mean()
            loss.backward()
        found.append(saving.report())
    assert "name a smaller `backlog` and `lookahead`" in found[0]["verdict"]
    assert "buys" not in found[1]["verdict"]
    assert " 0.00 " not in str(found[1])
