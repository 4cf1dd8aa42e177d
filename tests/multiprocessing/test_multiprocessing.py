"""Tensors in memory that processes share, queues that send them, and processes that fail."""

from __future__ import annotations

import gc
import os
import pickle
import signal
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cugrad
import cugrad.multiprocessing as mp
from cugrad.functions.interop.shared_memory import shared_copy
from cugrad.multiprocessing.sending import _reduced
from tests.support.patience import patient

DTYPES = ["float32", "float64", "float16", "bfloat16", "int64", "bool", "complex64"]


def descriptors() -> int:
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(3, 4), (), (0, 2), (5,)])
def test_shared_elements_are_those_of_before(shape: Any, dtype: str) -> None:
    t = (cugrad.arange(20)[: int(np.prod(shape))].reshape(shape)).to(getattr(cugrad, dtype)).clone()
    before, size = t.clone(), t.shape
    assert not t.is_shared()
    assert t.share_memory_() is t
    assert t.is_shared()
    assert t.shape == size
    assert t.equal(before)
    address = t.data_ptr()
    assert t.share_memory_().data_ptr() == address


def test_a_layout_is_kept() -> None:
    t = cugrad.arange(6.0).reshape(2, 3).t().clone()
    strides = t.stride()
    assert strides == (1, 3)
    assert t.share_memory_().stride() == strides
    gap = cugrad.arange(12.0)[::2].clone()
    assert gap.share_memory_().tolist() == [0, 2, 4, 6, 8, 10]
    assert shared_copy(np.arange(12.0)[::2]).tolist() == [0, 2, 4, 6, 8, 10]


@pytest.mark.parametrize("sharer", range(4))
def test_views_move_with_the_tensor(sharer: int) -> None:
    t = cugrad.arange(12.0).reshape(3, 4).clone().requires_grad_()
    doubled = t * 2
    family = [doubled, doubled[1:], doubled.t()[::2], doubled[0][1:1]]
    before = [each.tolist() for each in family]
    assert family[sharer].share_memory_() is family[sharer]
    assert all(each.is_shared() for each in family)
    assert [each.tolist() for each in family] == before
    family[1].zero_()
    assert doubled[1:].sum().item() == 0 == family[2][0, 1].item()
    doubled.sum().backward()
    assert t.grad is not None and t.grad[:, 0].tolist() == [2, 0, 0]


def test_autograd_and_optimizers_use_shared_memory_as_any_other() -> None:
    model = cugrad.nn.Linear(2, 1).share_memory()
    assert all(p.is_shared() and p.is_leaf and p.requires_grad for p in model.parameters())
    address = model.weight.data_ptr()
    optimizer = cugrad.optim.SGD(model.parameters(), lr=0.1)
    model(cugrad.ones(3, 2)).sum().backward()
    before = model.weight.detach().clone()
    optimizer.step()
    assert model.weight.data_ptr() == address
    assert model.weight.tolist() == (before - 0.3).tolist()


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="no list of open files")
def test_memory_goes_with_its_last_tensor() -> None:
    before = descriptors()
    t = cugrad.ones(100).share_memory_()
    view = t[3:]
    shared = descriptors()
    assert shared > before
    del t
    assert view.sum() == 97
    assert descriptors() == shared
    del view
    assert descriptors() == before


def test_what_cannot_be_sent() -> None:
    x = cugrad.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="Cowardly refusing to serialize non-leaf tensor"):
        _reduced(x * 2)
    with pytest.raises(RuntimeError, match="cannot be sent to another process"):
        _reduced(cugrad.ones(2, device="simulated"))


# Processes ----------------------------------------------------------------------------------------


def write(index: int, t: Any) -> None:
    t[index] = index + 1


def answer(index: int, tensors: Any, answers: Any, enough: Any) -> None:
    received = tensors.get()
    with cugrad.no_grad():
        received.mul_(2)
    kind = type(received).__name__
    answers.put((kind, received.requires_grad, received.shape, float(received.sum())))
    enough.wait()


def fail(index: int) -> None:
    if index == 1:
        raise ValueError("no such luck")
    signal.pause()


def leave(index: int) -> None:
    os._exit(3)


def be_killed(index: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_processes_write_to_one_memory(method: str) -> None:
    t = cugrad.zeros(3).share_memory_()
    mp.start_processes(write, (t,), nprocs=2, start_method=method)
    assert t.tolist() == [1, 2, 0]


@pytest.mark.parametrize(
    "make",
    [
        lambda: cugrad.arange(3.0),
        lambda: cugrad.arange(3.0).share_memory_(),
        lambda: cugrad.nn.Parameter(cugrad.arange(3.0)),
        lambda: cugrad.arange(3.0, requires_grad=True),
    ],
)
def test_a_queue_sends_the_memory(make: Callable[[], Any]) -> None:
    context = mp.get_context("fork")
    tensors, answers, enough = context.Queue(), context.Queue(), context.Event()
    t = make()
    tensors.put(t)
    started = mp.start_processes(
        answer, (tensors, answers, enough), join=False, start_method="fork"
    )
    assert started is not None
    kind, requires_grad, shape, total = answers.get(timeout=patient())
    assert (kind, requires_grad, shape) == (type(t).__name__, t.requires_grad, t.shape)
    assert total == 6
    assert t.tolist() == [0, 2, 4]  # the same elements
    enough.set()
    while not started.join(patient()):
        pass


def test_a_view_is_sent_as_a_copy() -> None:
    context = mp.get_context("fork")
    tensors, answers, enough = context.Queue(), context.Queue(), context.Event()
    whole = cugrad.arange(6.0)
    tensors.put(whole[1:4])
    started = mp.start_processes(
        answer, (tensors, answers, enough), join=False, start_method="fork"
    )
    assert answers.get(timeout=patient())[3] == 12
    assert whole.tolist() == [0, 1, 2, 3, 4, 5]
    enough.set()
    assert started is not None
    while not started.join(patient()):
        pass


@pytest.mark.parametrize(
    ("function", "count", "kind", "text"),
    [
        (fail, 2, mp.ProcessRaisedException, "-- Process 1 terminated with the following error:"),
        (leave, 1, mp.ProcessExitedException, "process 0 terminated with exit code 3"),
        (be_killed, 1, mp.ProcessExitedException, "process 0 terminated with signal SIGKILL"),
    ],
)
def test_a_process_that_fails_ends_the_others(
    function: Any, count: int, kind: Any, text: str
) -> None:
    with pytest.raises(kind, match=text) as caught:
        mp.start_processes(function, nprocs=count, start_method="fork")
    error = caught.value
    assert error.error_index == count - 1
    if function is fail:
        assert "ValueError: no such luck" in str(error)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert not mp.active_children()


def test_spawn_takes_no_other_method() -> None:
    with pytest.raises(ValueError, match="start_method must be 'spawn'"):
        mp.spawn(write, start_method="fork")


def test_names_are_pytorchs() -> None:
    torch = pytest.importorskip("torch")
    assert set(torch.multiprocessing.__all__) <= set(mp.__all__)
    assert mp.get_sharing_strategy() in mp.get_all_sharing_strategies()
    mp.set_sharing_strategy("file_descriptor")
    with pytest.raises(AssertionError, match="invalid sharing strategy"):
        mp.set_sharing_strategy("telepathy")
