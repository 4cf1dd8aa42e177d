"""Whatever raises in the middle of a copy: no leak, no race, and the next step is right."""

from __future__ import annotations

import gc
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cugrad
from cugrad.backends import get, simulated
from cugrad.memory import offload, save_on_disk
from cugrad.memory.engine import engine_of

DEVICE: Any = get("simulated")


def gradients(context: Any) -> list[bytes]:
    found = []
    for step in range(3):
        values = np.random.default_rng(step).random((24, 24), np.float32)
        x = cugrad.tensor(values, device="simulated", requires_grad=True)
        with context():
            h = (x * 3).tanh()
            y = h[2:4].sin().sum() + (h * h.t()).exp().sum() + h[:, 2].sin().sum()
            z = (y * 0.01).exp() + (h @ h).sin().sum()
        del h, y
        z.backward(retain_graph=step == 1)
        if step == 1:
            z.backward()
        found.append(x.grad.cpu().numpy().tobytes())
    return found


CONTEXTS = {
    "at once": lambda path: offload(min_bytes=0, backlog=0, lookahead=1 << 20),
    "some on disk": lambda path: offload(min_bytes=0, host_limit=4096, spill=path),
    "on disk": lambda path: save_on_disk(path, min_bytes=0),
}


@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt])
@pytest.mark.parametrize("name", CONTEXTS)
def test_an_error_in_the_middle(name: str, error: Any, tmp_path: Path) -> None:
    engine = engine_of(DEVICE, 0)
    engine.drain()
    plain, raised = gradients(nullcontext), 0
    places = [(DEVICE, "copy_async"), (engine.out.slab, "take")]
    places += [(s, m) for s in (engine.out.stream, engine.inward)
               for m in ("wait_event", "record_event")]  # fmt: skip
    for place, method in places:
        for number in (2, 8):
            engine._plans.clear()
            policy = simulated.POLICIES[number % len(simulated.POLICIES)]
            with simulated.configured(policy=policy, seed=number):
                raised += fails(place, method, number, error, name, tmp_path, plain)
                gc.collect()
                engine.drain()
                assert (engine.ahead, engine.out.away, engine.out.leaving_bytes) == (0, 0, 0)
                assert engine.out.slab.used_bytes == engine.out.staging.bytes == 0
        assert gradients(lambda: CONTEXTS[name](tmp_path)) == plain
    assert raised > len(places)


def fails(
    place: Any, method: str, number: int, error: Any, name: str, path: Path, plain: list[bytes]
) -> bool:
    """Whether some steps raise when one call of a method does; they are right if they do not."""
    original, calls = getattr(place, method), []

    def failing(*args: Any, **kwargs: Any) -> Any:
        calls.append(None)
        if len(calls) == number:
            raise error("planted")
        return original(*args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(place, method, failing)
        try:
            assert gradients(lambda: CONTEXTS[name](path)) == plain
        except error as e:
            assert "planted" in str(e), e
            return True
    return False
