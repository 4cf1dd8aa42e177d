"""Graphs of very many nodes: backward and dropping them need neither recursion nor much memory."""

from __future__ import annotations

import threading

import pytest

import cugrad
from tests.support.warm import LIBRARY

pytestmark = pytest.mark.host_only

MANY = 200_000


def chain(x: cugrad.Tensor, length: int) -> cugrad.Tensor:
    y = x
    for _ in range(length):
        y = y + x
    return y


def test_backward_through_many_nodes() -> None:
    x = cugrad.ones((), requires_grad=True)
    chain(x, MANY).backward()
    assert x.grad.item() == MANY + 1


def test_dropping_many_nodes_unused() -> None:
    x = cugrad.ones((), requires_grad=True)
    y = chain(x, MANY)
    z = y * 2  # two owners of the chain: the first to go must not take it along
    del y
    assert z.grad_fn is not None
    del z
    assert chain(x, 3).item() == 4


@pytest.mark.parametrize("use", ["y.sum().backward()", "del y"])
def test_a_thread_with_a_small_stack_suffices(use: str) -> None:
    code = f"""
import threading, cugrad
def work():
    x = cugrad.ones((), requires_grad=True)
    y = x
    for _ in range(100_000):
        y = y * 1.0
    {use}
    done.append(True)
done = []
threading.stack_size(2 << 20)  # a recursion 100 000 deep needs more; Python 3.13 itself needs 1 MiB
thread = threading.Thread(target=work); thread.start(); thread.join()
assert done
"""
    run = LIBRARY.run("-c", code)
    assert run.returncode == 0, f"exit {run.returncode}: {run.stderr}"


def test_a_long_chain_dies_in_another_thread() -> None:
    x = cugrad.ones((), requires_grad=True)
    owner = [chain(x, 200_000)]
    thread = threading.Thread(target=owner.clear)
    thread.start()
    thread.join()
    assert not owner


def test_a_wide_graph_sums_its_gradients() -> None:
    x = cugrad.ones((), requires_grad=True)
    cugrad.stack([x * 1.0 for _ in range(50_000)]).sum().backward()
    assert x.grad.item() == 50_000
