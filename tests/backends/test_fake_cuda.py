"""Trains on the fake CUDA device: a step uses what CuPy has, and never makes the host wait."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from tests.support import ROOT

pytestmark = pytest.mark.host_only

pytest.importorskip("cupy", reason="CuPy is not installed")


STEPS = """
import sys
sys.path.insert(0, {root!r})
from tests.support import fake_cuda

fake_cuda.install()
import cugrad as torch
from cugrad import nn

models = dict(
    mlp=nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 4)),
    convnet=nn.Sequential(nn.Conv2d(2, 4, 2, padding=1), nn.BatchNorm2d(4), nn.ReLU(),
                          nn.MaxPool2d(2), nn.Flatten(), nn.Linear(4, 4)),
)
shapes = dict(mlp=(5, 8), convnet=(5, 2, 2, 2))
for name, model in models.items():
    for make in (torch.optim.SGD, torch.optim.AdamW):
        optimizer = make(model.parameters(), lr=0.05)
        x, y = torch.randn(shapes[name]), torch.randint(0, 4, (5,))
        assert x.is_cuda and all(p.is_cuda for p in model.parameters())
        first = None
        for step in range(8):
            fake_cuda.STATE.syncs.clear()
            optimizer.zero_grad()
            loss = nn.CrossEntropyLoss()(model(x), y)
            loss.backward()
            optimizer.step()
            waits = list(fake_cuda.STATE.syncs)
            first = loss.item() if first is None else first
        assert not waits, f"{{name}} with {{make.__name__}}: the host waits in a step: {{waits}}"
        assert loss.item() < first, f"{{name}} with {{make.__name__}} does not learn"
print("trained")
"""


def test_a_training_step_never_waits_for_the_device() -> None:
    done = subprocess.run(
        [sys.executable, "-c", STEPS.format(root=str(ROOT))],
        cwd=ROOT, capture_output=True, text=True, env={**os.environ, "CUGRAD_DEVICE": "cuda"},
    )  # fmt: skip
    if "no C++ compiler" in done.stdout + done.stderr:
        pytest.skip("no C++ compiler for the random kernels")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().endswith("trained")


def test_an_index_of_nonsense_is_taken_at_once() -> None:
    """Where kernels are compiled and not run, indices are whatever the memory has."""
    from tests.support import fake_loops

    x = np.arange(6.0).reshape(2, 3)
    take = fake_loops.DIFFERENT["take"]
    huge = np.array([(1 << 62) + 1, -(1 << 62)])
    np.testing.assert_array_equal(take(x, huge, axis=0), x[[1, 0]])
    np.testing.assert_array_equal(take(x, np.array([7, -1], np.int8)), [1.0, 5.0])
    assert take(x[:0], huge[:0], axis=0).shape == (0, 3)


SAME = """
import sys
sys.path.insert(0, {root!r})
from tests.support import fake_cuda

fake_cuda.install()
import cupy

x = cupy.ones((3, 4))
out = cupy.empty((3, 4))
assert cupy.ascontiguousarray(x) is x and x.astype(x.dtype, copy=False) is x
assert cupy.asarray(x) is x and cupy.add(x, x, out=out) is out
assert x.reshape(-1).base is x and x.T.base is x and out.base is None
"""


def test_a_result_that_is_an_operand_is_the_same_array() -> None:
    """As CuPy's: who owns memory is asked by identity."""
    command = [sys.executable, "-c", SAME.format(root=str(ROOT))]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
