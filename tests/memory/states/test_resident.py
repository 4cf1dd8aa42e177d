"""A process whose weights and states are on a disk stays small, and trains as without."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

PROGRAM = """
import contextlib, gc, json, sys
import cugrad
from cugrad import memory

SIDE, COUNT, STEPS = 512, 20, 4


def figure(name):
    lines = open("/proc/self/status").read().splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1]) * 1024


def small(layers):
    net = cugrad.nn.Sequential(*[cugrad.nn.Linear(SIDE, SIDE, bias=False) for _ in range(layers)])
    return net, cugrad.optim.Adam(net.parameters(), lr=1e-3)


x = cugrad.ones(4, SIDE)


def placed(net, optimizer):
    if not json.loads(sys.argv[1]):
        return contextlib.nullcontext()
    return memory.offload_states(
        net, optimizer, weights="disk", states="disk", window="2MiB", bring_back=False,
        directory=sys.argv[2],
    )


net, optimizer = small(1)  # what first steps load
with placed(net, optimizer):
    for _ in range(2):
        net(x).square().mean().backward()
        optimizer.step()
del net, optimizer
gc.collect()
before = figure("VmRSS")
cugrad.manual_seed(0)
net, optimizer = small(COUNT)
size = sum([p.nbytes for p in net.parameters()])
losses = []
with placed(net, optimizer):
    with cugrad.no_grad():
        net(x)  # reads each weight: all have left by then
    gc.collect()
    open("/proc/self/clear_refs", "w").write("5")  # the peak begins anew
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = (net(x) + x).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item().hex())
    print(json.dumps([losses, (figure("VmHWM") - before) / size]))
"""


def trained(on_disk: bool, directory: Any) -> tuple[list[str], float]:
    """The losses, and the most of the process's memory, in sizes of the weights."""
    command = [sys.executable, "-c", PROGRAM, json.dumps(on_disk), str(directory)]
    # What is freed leaves the process at once, whichever thread freed it.
    settings = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=settings)
    losses, most = json.loads(done.stdout)
    return losses, most


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc/self/status")
def test_a_process_with_states_on_disk_stays_under_the_limit(tmp_path: Any) -> None:
    losses, most = trained(False, tmp_path)
    same_losses, less = trained(True, tmp_path)
    assert same_losses == losses and len(losses) == 4
    assert most > 3.9  # weights, gradients, two states
    assert less < 1.9  # gradients, two windows of a tenth, and what threads have in hand
