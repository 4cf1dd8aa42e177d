"""What a new user tries, and gets wrong: it works, or one error says what to do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import cugrad as torch
from cugrad import memory


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


@pytest.mark.parametrize("given", ["8 parsecs", -1, "-3GB", True, "90%", "", (1,)])
def test_what_is_no_size(given: Any) -> None:
    for argument in ("min_bytes", "keep_last", "lookahead", "backlog", "host_limit"):
        with pytest.raises(ValueError, match=f"offload: {argument}: got .*, want bytes, as 12_000"):
            memory.offload(**{argument: given})
    with pytest.raises(ValueError, match="save_on_disk: limit: got .*, want bytes, as 12_000_000"):
        memory.save_on_disk(limit=given)


MISTAKES: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "min_bytes": (lambda: memory.offload(min_bytes=None), ValueError, "min_bytes: got None"),  # type: ignore[arg-type]
    "ops_text": (lambda: memory.recompute(ops="exp"), TypeError, r"several names .* \['exp'\]"),
    "ops_module": (
        lambda: memory.recompute(ops=[torch.nn.ReLU]), ValueError,
        "'ReLU' is not among the ops of docs/ops.md; did you mean 'relu'",
    ),
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
