"""A process whose weights and states are on a disk stays small, and trains as without."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

PROGRAM = """
import contextlib, gc, json, sys
import cugrad
from cugrad import memory

SIDE, COUNT, STEPS = 512, 10, 20


def figure(name):
    lines = open("/proc/self/status").read().splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1]) * 1024


def small(layers):
    net = cugrad.nn.Sequential(*[cugrad.nn.Linear(SIDE, SIDE, bias=False) for _ in range(layers)])
    return net, cugrad.optim.Adam(net.parameters(), lr=1e-3)


x = cugrad.ones(4, SIDE)
net, optimizer = small(1)  # what a first step loads
net(x).square().mean().backward()
optimizer.step()
del net, optimizer
gc.collect()
before = figure("VmRSS")
cugrad.manual_seed(0)
net, optimizer = small(COUNT)
size = sum([p.nbytes for p in net.parameters()])
placed = contextlib.nullcontext()
if json.loads(sys.argv[1]):
    placed = memory.offload_states(
        net, optimizer, weights="disk", states="disk", window="2MiB", bring_back=False,
        directory=sys.argv[2],
    )
losses = []
with placed:
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
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    losses, most = json.loads(done.stdout)
    return losses, most


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc/self/status")
def test_a_process_with_states_on_disk_stays_under_the_limit(tmp_path: Any) -> None:
    losses, most = trained(False, tmp_path)
    same_losses, less = trained(True, tmp_path)
    assert same_losses == losses and len(losses) == 20
    assert most > 3.2  # weights, gradients, two states: 4, but for what a first step has loaded
    assert less < 2.2  # gradients, and two windows of a fifth
