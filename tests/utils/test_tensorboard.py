"""SummaryWriter writes, record by record, what PyTorch's writes; TensorBoard's reader reads it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cugrad
from cugrad.utils.tensorboard import SummaryWriter, summaries

RNG = np.random.default_rng(2)
PICTURE = RNG.random((3, 6, 5)).astype("float32")
SMALL = RNG.integers(0, 255, (6, 5), dtype=np.uint8)
FOUR = RNG.random((10, 3, 4, 4)).astype("float32")

Write = Callable[[Any, Any], None]
CALLS: dict[str, Write] = {
    "scalar": lambda w, t: w.add_scalar("loss", 0.5, 3),
    "tensor": lambda w, t: w.add_scalar("loss", t.tensor([0.25]), 4),
    "half": lambda w, t: w.add_scalar("loss", t.tensor(0.25, dtype=t.bfloat16), 4),
    "array": lambda w, t: w.add_scalar("loss", np.float64(0.1), 5, walltime=12.5),
    "new style": lambda w, t: w.add_scalar("loss", 0.5, 3, new_style=True),
    "double": lambda w, t: w.add_scalar("loss", 0.5, 3, new_style=True, double_precision=True),
    "no step": lambda w, t: w.add_scalar("loss", 1),
    "histogram": lambda w, t: w.add_histogram("w", t.tensor(PICTURE) - 0.5, 1),
    "grad": lambda w, t: w.add_histogram("w", t.tensor(PICTURE, requires_grad=True), 1),
    "zeros": lambda w, t: w.add_histogram("w", t.zeros(5), 1),
    "few bins": lambda w, t: w.add_histogram("w", PICTURE, 1, bins=10),
    "auto bins": lambda w, t: w.add_histogram("w", PICTURE, 1, bins="auto"),
    "at most": lambda w, t: w.add_histogram("w", PICTURE, 1, bins=10, max_bins=4),
    "counted": lambda w, t: w.add_histogram_raw("w", 0, 1, 3, 2.0, 1.5, [0.5, 1.0], [1, 2], 2),
    "image": lambda w, t: w.add_image("x", t.tensor(PICTURE), 1),
    "image HWC": lambda w, t: w.add_image("x", PICTURE.transpose(1, 2, 0), 1, dataformats="HWC"),
    "image HW": lambda w, t: w.add_image("x", SMALL, 1, dataformats="HW"),
    "image grey": lambda w, t: w.add_image("x", SMALL[None], 1),
    "images": lambda w, t: w.add_images("x", t.tensor(FOUR), 1),
    "images NHWC": lambda w, t: w.add_images("x", FOUR.transpose(0, 2, 3, 1), 1,
                                             dataformats="NHWC"),
    "audio": lambda w, t: w.add_audio("s", t.tensor(PICTURE[0, 0]), 1, 8000),
    "text": lambda w, t: w.add_text("note", "**hello** ä", 2),
    "two": lambda w, t: [w.add_scalar("a", 1.0, 1), w.add_scalar("b", 2.0, 2)],
}  # fmt: skip
WRONG: dict[str, Write] = {
    "many numbers": lambda w, t: w.add_scalar("loss", t.ones(2), 1),
    "no values": lambda w, t: w.add_histogram("w", t.zeros(0), 1),
    "formats": lambda w, t: w.add_image("x", t.ones(3, 4), 1),
    "sound": lambda w, t: w.add_audio("s", t.ones(2, 3) / 2, 1),
    "edges": lambda w, t: w.add_histogram_raw("w", 0, 1, 3, 2.0, 1.5, [0.5], [1, 2], 2),
    "hparams": lambda w, t: w.add_hparams([], {}),
    "hparam": lambda w, t: w.add_hparams({"a": [1]}, {}),
    "domain": lambda w, t: w.add_hparams({"a": 1}, {}, {"a": ["x"]}),
}


def records(folder: Path) -> list[tuple[int, bytes]]:
    """Step and content of each record in the files of a folder."""
    loader = pytest.importorskip("tensorboard.backend.event_processing.event_file_loader")
    events = [
        parsed(raw)
        for path in sorted(folder.rglob("events*"))
        for raw in loader.RawEventFileLoader(str(path)).Load()
    ]
    return [
        (event.step, event.summary.SerializeToString(deterministic=True))
        for event in events
        if event.HasField("summary")
    ]


def parsed(raw: bytes) -> Any:
    return summaries.needed("tensorboard.compat.proto.event_pb2").Event.FromString(raw)


@pytest.fixture
def theirs() -> Any:
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    pytest.importorskip("torch")
    return pytest.importorskip("torch.utils.tensorboard")


@pytest.mark.parametrize("name", CALLS)
def test_records_are_pytorchs(name: str, tmp_path: Path, theirs: Any) -> None:
    import torch

    for library, make in ((cugrad, SummaryWriter), (torch, theirs.SummaryWriter)):
        with make(tmp_path / library.__name__) as writer:
            CALLS[name](writer, library)
    got, want = records(tmp_path / "cugrad"), records(tmp_path / "torch")
    assert got == want
    assert got


@pytest.mark.parametrize("name", WRONG)
def test_errors_are_pytorchs(name: str, tmp_path: Path, theirs: Any) -> None:
    import torch

    with theirs.SummaryWriter(tmp_path / "torch") as writer, pytest.raises(Exception) as error:
        WRONG[name](writer, torch)
    with SummaryWriter(tmp_path / "cugrad") as ours, pytest.raises(error.type):
        WRONG[name](ours, cugrad)


def test_several_curves_lie_in_folders_of_their_own(tmp_path: Path, theirs: Any) -> None:
    for name, make in (("a", SummaryWriter), ("b", theirs.SummaryWriter)):
        with make(tmp_path / name) as writer:
            writer.add_scalars("run/loss", {"train": 1.0, "test": 2.0}, 1)
            writer.add_scalars("run/loss", {"train": 0.5}, 2)
    folders = [
        {path.name: records(path) for path in (tmp_path / n).iterdir() if path.is_dir()}
        for n in "ab"
    ]
    assert folders[0] == folders[1]
    assert len(folders[0]) == 2


def test_hyperparameters_are_a_run(tmp_path: Path, theirs: Any) -> None:
    values = {"lr": 0.1, "layers": 3, "name": "x", "none": None}
    domains = {"lr": [0.1, 0.2], "name": ["x", "y"]}
    for name, make in (("a", SummaryWriter), ("b", theirs.SummaryWriter)):
        with make(tmp_path / name) as writer:
            writer.add_hparams(values, {"hparam/loss": 0.5}, domains, run_name="run")
    assert records(tmp_path / "a" / "run") == records(tmp_path / "b" / "run")


def test_figures_become_pictures(tmp_path: Path, theirs: Any) -> None:
    figures = pytest.importorskip("matplotlib.figure")
    figure = figures.Figure(figsize=(1, 1))
    with SummaryWriter(tmp_path) as writer:
        writer.add_figure("f", figure, 1, close=False)
        writer.add_figure("f", [figure, figure], 2, close=False)
    assert [step for step, _ in records(tmp_path)] == [1, 2]


def test_a_closed_writer_opens_another_file(tmp_path: Path, theirs: Any) -> None:
    writer = SummaryWriter(tmp_path)
    writer.add_scalar("a", 1.0, 1)
    writer.close()
    writer.add_scalar("a", 2.0, 2)
    writer.flush()
    writer.close()
    assert [step for step, _ in records(tmp_path)] == [1, 2]


@pytest.mark.parametrize(
    "name",
    [
        "add_graph",
        "add_embedding",
        "add_mesh",
        "add_video",
        "add_tensor",
        "add_onnx_graph",
        "add_image_with_boxes",
        "add_pr_curve_raw",
    ],
)
def test_what_is_not_here_says_so(name: str, tmp_path: Path, theirs: Any) -> None:
    with SummaryWriter(tmp_path) as writer, pytest.raises(NotImplementedError, match=name):
        getattr(writer, name)()


def test_without_the_package_an_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [n for n in sys.modules if n.partition(".")[0] == "tensorboard"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(ModuleNotFoundError, match="pip install .cugrad.tensorboard"):
        SummaryWriter(tmp_path)
