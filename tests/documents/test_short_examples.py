"""Runs the short examples on cugrad and on PyTorch from one start: the losses are the same."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import types
from typing import Any

import numpy as np
import pytest

import cugrad
from tests.support import ROOT

SCRIPTS = ["char_gpt", "digits_cnn", "graph_network", "lora_finetune", "lstm_language_model", "vae",
           "wgan_gp"]  # fmt: skip
NEEDS_DIGITS = {"digits_cnn", "lora_finetune", "vae"}
STEPS = 25


def on(library: str, name: str) -> Any:
    """An example, with another library for cugrad."""
    text = (ROOT / "examples" / f"{name}.py").read_text(encoding="utf-8")
    text = text.replace("import cugrad as torch", f"import {library} as torch")
    text = text.replace("from cugrad", f"from {library}")
    module = types.ModuleType(name)
    exec(compile(text, f"{name}.py", "exec"), module.__dict__)
    return module


@pytest.mark.filterwarnings("ignore:Sparse invariant checks", "ignore:.*nested_tensor")
@pytest.mark.parametrize("name", SCRIPTS)
def test_losses_are_pytorchs(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch", reason="compares with PyTorch, which is not installed")
    if name in NEEDS_DIGITS:
        for variable in ("KMP_DUPLICATE_LIB_OK", "KMP_INIT_AT_FORK"):  # scikit-learn sets them
            monkeypatch.setenv(variable, "TRUE")
        pytest.importorskip("sklearn", reason="the digits are scikit-learn's")
    theirs, ours = on("torch", name), on("cugrad", name)
    torch.manual_seed(0)
    twin, model = theirs.setup(), ours.setup()
    state = {key: cugrad.tensor(value.numpy()) for key, value in twin.state_dict().items()}
    model.load_state_dict(state)
    expected = theirs.train(twin, steps=STEPS)
    losses = ours.train(model, steps=STEPS)
    np.testing.assert_allclose(losses, expected, rtol=1e-4, atol=1e-4)
    assert np.mean(losses[-5:]) < np.mean(losses[:5]) and len(losses) >= STEPS
    assert "loss" in capsys.readouterr().out


def test_what_is_larger_than_the_device_learns_the_same(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["--steps", "2", "--parameters", "1e5", "--batch", "2", "--context", "16"]
    main = on("cugrad", "train_larger_than_gpu").main
    everywhere = ["--weights", "device", "--gradients", "device", "--states", "device"]
    plain = main([*words, "--device", "simulated", *everywhere])
    assert main([*words, "--device", "simulated", "--window", "64KiB"]) == plain
    assert main([*words, "--device", "simulated", "--budget", "16MiB"]) == plain
    out = capsys.readouterr().out
    assert "weights    host" in out and "tokens a second" in out
    disk = main([*words, "--device", "cpu", "--weights", "disk", "--states", "disk"])
    assert disk == main([*words, "--device", "cpu", *everywhere])


def test_training_in_one_process_of_many() -> None:
    """Several ranks have tests of their own, in tests/distributed."""
    if importlib.util.find_spec("sklearn") is None:
        pytest.skip("scikit-learn, which has the digits, is not installed")
    run = subprocess.run(
        [sys.executable, "examples/train_ddp.py", "--epochs", "2"], capture_output=True, text=True,
        cwd=ROOT, env={**os.environ, "RANK": "0", "WORLD_SIZE": "1"},
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    losses = [float(line.rpartition(" ")[2]) for line in run.stdout.splitlines()[:2]]
    assert losses[1] < losses[0] and run.stdout.splitlines()[2].startswith("1 ranks, accuracy")


def test_the_list_of_examples_is_whole() -> None:
    files = {file.stem for file in (ROOT / "examples").glob("*.py")}
    assert files == {*SCRIPTS, "offload_gpt", "train_ddp", "train_digits", "train_larger_than_gpu"}
    text = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
    assert all(f"`{name}.py`" in text for name in files)
