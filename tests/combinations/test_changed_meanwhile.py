"""What is gone through may change meanwhile: by a hook, by another thread, by the collector."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import cugrad as torch
from cugrad import backends
from cugrad.autograd.engine import hooks
from cugrad.memory.disk.files import living

pytestmark = pytest.mark.host_only


def test_hooks_of_a_module_s_state_may_remove_themselves() -> None:
    net, called = torch.nn.Linear(2, 2), list[str]()

    def once(kind: str) -> None:
        handles = [
            getattr(net, kind)(lambda *args, k=k: called.append(kind) or handles[k].remove())
            for k in range(2)
        ]

    for kind in (
        "register_state_dict_pre_hook",
        "_register_state_dict_hook",
        "_register_load_state_dict_pre_hook",
        "register_load_state_dict_post_hook",
    ):
        once(kind)
    for _ in range(2):
        net.load_state_dict(net.state_dict())
    assert len(called) == 8


def test_a_gradient_may_be_retained_while_those_of_its_node_are_stored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    a, b = torch.ones(2, requires_grad=True).unbind()
    clone = hooks.recorded.clone

    def and_retain(*args: Any) -> Any:
        b.retain_grad()
        return clone(*args)

    monkeypatch.setattr(hooks.recorded, "clone", and_retain)
    a.retain_grad()
    (a * b).backward()
    assert a.grad is not None


def test_a_device_may_start_while_an_array_is_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    class Subclass(np.ndarray[Any, Any]):
        pass

    class Starting:
        @property
        def array_types(self) -> tuple[type, ...]:
            table["another"] = table["cpu"]
            return ()

    table = {"starting": Starting(), **backends._by_device_type}
    monkeypatch.setattr(backends, "_by_device_type", table)
    assert backends.backend_of(np.zeros(2).view(Subclass)) is backends.get("cpu")


def test_a_set_may_grow_while_it_is_listed() -> None:
    class Grows(weakref.WeakSet[Any]):
        times = 0

        def __iter__(self) -> Iterator[Any]:
            yield from super().__iter__()
            self.times += 1
            if self.times < 3:
                raise RuntimeError("Set changed size during iteration")

    member = torch.nn.Linear(1, 1)
    assert living(Grows([member])) == [member]
