#!/usr/bin/env python3
"""Trains a small convolutional network on real handwritten digits, activations kept on the host.

The digits are the 1797 scanned ones that ship inside scikit-learn. Around the network's forward
stands `save_on_cpu(pin_memory=True)`: what backward will need waits in host memory, and a GPU keeps
only what it is working on. Ends with a short report and a plot. See --help, and examples/README.md.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

ROOT = Path(__file__).resolve().parent.parent
if (ROOT / "cugrad").is_dir():
    sys.path.insert(0, str(ROOT))  # a checkout runs without being installed

TEST_IMAGES = 360
GPUS = ["A100", "H100", "H200", "GH200"]
PIXELS = 64.0**2  # for which each pixel stands in a prediction: images of 512 x 512
NVTX_STEPS = range(3, 6)  # past the warm-up, few enough to look at


# matrices this small are not worth a second thread, which on a busy machine waits for its core
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


class UserError(Exception):
    """What the user can mend; its message is the one line that is printed."""


# ---------------------------------------------------------------- the command line


class OneLineParser(argparse.ArgumentParser):
    """A parser whose errors are one line, without the usage in front."""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message} (see --help)")


def whole_number(low: int, high: int = 2**63 - 1) -> Any:
    """An argparse type: a whole number from `low` to `high`."""

    def read(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = low - 1
        if value < low:
            raise argparse.ArgumentTypeError(f"got {text!r}, want a whole number, at least {low}")
        if value > high:
            raise argparse.ArgumentTypeError(f"got {text!r}, want at most {high}")
        return value

    return read


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = OneLineParser(
        prog="train_digits.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--device", choices=["auto", "cpu", "cuda", "simulated"], default="auto",
                        help="auto takes the GPU if one is usable (default: auto)")  # fmt: skip
    parser.add_argument("--epochs", type=whole_number(1), default=12, metavar="N",
                        help="passes over the training images (default: 12)")  # fmt: skip
    parser.add_argument("--batch-size", type=whole_number(1), default=64, metavar="N",
                        help="images per step (default: 64)")  # fmt: skip
    parser.add_argument("--offload", choices=["none", "cpu"], default="cpu",
                        help="where saved tensors wait for backward: on their device, "
                        "or in host memory (default: cpu)")  # fmt: skip
    parser.add_argument("--predict", choices=GPUS, metavar="GPU", help="train a few more steps on "
                        "the simulated device, and say what this GPU would need for images of "
                        f"512 x 512: {', '.join(GPUS)}")  # fmt: skip
    parser.add_argument("--seed", type=whole_number(0), default=0, metavar="N",
                        help="makes a run repeatable (default: 0)")  # fmt: skip
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "train_digits.png",
                        metavar="FILE", help="the plot, a PNG (default: out/train_digits.png in "
                        "the checkout)")  # fmt: skip
    return parser.parse_args(argv)


def check_writable(path: Path) -> None:
    """UserError unless a file can be written at `path`, found out before the training."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            raise IsADirectoryError(0, "it is a folder; name a file in it")
        if path.exists():
            path.open("ab").close()
        else:
            tempfile.TemporaryFile(dir=path.parent).close()
    except OSError as error:
        raise UserError(f"argument --out: cannot write {path}: {error.strerror}") from None


def need(package: str, module: str) -> Any:
    """An imported module, or the one line that names the package to install."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        if (error.name or "").partition(".")[0] != module.partition(".")[0]:
            raise  # it is there, but broken
        raise UserError(
            f"needs the package {package}; install it with: {sys.executable} -m pip install "
            f"{package}"
        ) from None


# ---------------------------------------------------------------- data and network


@dataclass
class Digits:
    """Images of shape (N, 1, 8, 8) in [0, 1] and labels (N,), on the training device."""

    images: Any
    labels: Any
    test_images: Any
    test_labels: Any


def load_digits(torch: Any, device: Any) -> Digits:
    """scikit-learn's digits, shuffled once in the same order whatever the seed, then split."""
    import numpy

    bunch = need("scikit-learn", "sklearn.datasets").load_digits()
    order = numpy.random.default_rng(0).permutation(len(bunch.target))
    images = (bunch.images[order, None] / 16).astype(numpy.float32)
    labels = bunch.target[order].astype(numpy.int64)
    split = len(labels) - TEST_IMAGES
    parts = (images[:split], labels[:split], images[split:], labels[split:])
    return Digits(*(torch.tensor(part, device=device) for part in parts))


def make_network(nn: Any) -> Any:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.3),
        nn.Linear(32 * 4 * 4, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


# ---------------------------------------------------------------- training


@dataclass
class Traffic:
    """What one step saved for backward, and what of it moved between device and host, in bytes."""

    tensors: int = 0
    nbytes: int = 0
    storages: dict[int, int] = field(default_factory=dict)  # bytes saved, by address; no parameters
    to_host: int = 0
    back: int = 0
    on_host: int = 0  # before the step as after it: nothing to move
    stayed: int = 0  # on the device, where the training holds it anyway


@dataclass
class Outcome:
    """What a training run measured."""

    losses: list[float] = field(default_factory=list)
    step_seconds: list[float] = field(default_factory=list)  # the mean of each epoch
    seconds: float = 0.0
    correct: int = 0


class Trainer:
    """The network, its optimizer, and one training step with or without offload."""

    def __init__(self, torch: Any, device: Any, learning_rate: float = 3e-3) -> None:
        self.torch = torch
        self.network = make_network(torch.nn).to(device)
        self.loss = torch.nn.CrossEntropyLoss()
        self.optimizer = torch.optim.AdamW(self.network.parameters(), lr=learning_rate)
        self.learning_rate = learning_rate

    def saving(self, offload: str) -> Any:
        """What stands around the network's forward and decides where saved tensors wait."""
        if offload == "none":
            return contextlib.nullcontext()
        return self.torch.autograd.graph.save_on_cpu(pin_memory=True)

    def step(self, images: Any, labels: Any, saving: Any) -> Any:
        """One update; returns the loss, still on its device."""
        self.optimizer.zero_grad()
        with saving:
            scores = self.network(images)
        loss = self.loss(scores, labels)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def train(self, digits: Digits, options: argparse.Namespace) -> Outcome:
        """Train for the epochs asked for, with the progress on stderr."""
        outcome, started = Outcome(), time.perf_counter()
        count = len(digits.labels)
        steps = -(-count // options.batch_size)
        tqdm = need("tqdm", "tqdm").tqdm
        with tqdm(total=options.epochs * steps, unit="step", disable=None) as bar:
            for epoch in range(options.epochs):
                bar.set_description(f"epoch {epoch + 1}/{options.epochs}")
                began, losses = time.perf_counter(), []
                order = self.torch.randperm(count, device="cpu").to(digits.labels.device)
                for number in range(steps):
                    done = epoch * steps + number
                    self.anneal(done / (options.epochs * steps))
                    batch = order[number * options.batch_size : (number + 1) * options.batch_size]
                    with self.profiled(done in NVTX_STEPS):
                        images, labels = digits.images[batch], digits.labels[batch]
                        loss = self.step(images, labels, self.saving(options.offload))
                    losses.append(loss)
                    if not bar.disable and number % 10 == 0:  # reading a loss waits for the GPU
                        bar.set_postfix(loss=f"{loss.item():.4f}")
                    bar.update()
                outcome.losses += self.torch.stack(losses).tolist()
                outcome.step_seconds.append((time.perf_counter() - began) / steps)
                if bar.disable:
                    mean = statistics.fmean(outcome.losses[-steps:])
                    print(f"epoch {epoch + 1}/{options.epochs}  loss {mean:.4f}", file=sys.stderr)
        outcome.seconds = time.perf_counter() - started
        outcome.correct = self.evaluate(digits)
        return outcome

    def anneal(self, done: float) -> None:
        """Lower the learning rate on a line to zero; `done` is the part of the training behind."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate * (1 - done)

    def profiled(self, wanted: bool) -> Any:
        """NVTX ranges around a step: what an attached profiler shows of it, op by op."""
        return self.torch.autograd.profiler.emit_nvtx(enabled=wanted)

    def evaluate(self, digits: Digits) -> int:
        """How many test images the network names right."""
        self.network.eval()
        with self.torch.no_grad():
            guesses = self.network(digits.test_images).argmax(dim=1)
        self.network.train()
        return int((guesses == digits.test_labels).sum().item())


def measure_step(
    trainer: Trainer, digits: Digits, options: argparse.Namespace, offload: str
) -> tuple[Traffic, Any]:
    """What one step saves and moves, and the timeline of its memory."""
    torch, traffic = trainer.torch, Traffic()
    images, labels = (part[: options.batch_size] for part in (digits.images, digits.labels))

    def count(tensor: Any) -> Any:
        traffic.tensors += 1
        traffic.nbytes += tensor.nbytes
        if not (tensor.is_leaf and tensor.requires_grad):
            address = tensor.untyped_storage().data_ptr()
            traffic.storages[address] = max(tensor.nbytes, traffic.storages.get(address, 0))
        return tensor

    saving = trainer.saving(offload)
    if offload == "none":
        saving = torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor)
    with torch.profiler.MemoryTimeline(images.device) as timeline:
        trainer.step(images, labels, saving)
    if offload == "none":
        return traffic, timeline
    stats = saving.stats
    moved = (stats.moved_to_host_bytes, stats.moved_back_bytes, stats.already_on_host,
             stats.kept.get("alive", 0))  # fmt: skip
    return Traffic(stats.saved_tensors, stats.saved_bytes, {}, *moved), timeline


@dataclass
class Prediction:
    """A step on a GPU that is not there: virtual seconds, bytes, and the timeline with offload."""

    gpu: str
    plain: float
    step: float
    bound: float  # no step that moves these bytes over the link takes less
    timeline: Any

    def rows(self) -> dict[str, str]:
        """Lines of the report."""
        t, sums = self.timeline, self.timeline.summary()
        out, back = (t.moved(kind) * PIXELS for kind in ("d2h", "h2d"))
        return {
            f"on {self.gpu}": f"{1e3 * self.plain:.1f} ms per step of 512 x 512 images, "
            f"{1e3 * self.step:.1f} ms with offload ({self.step / self.plain:.2f}x): predicted",
            "moved there": f"{out / 1e9:.1f} GB to the host and {back / 1e9:.1f} GB back, "
            f"{t.overlap:.0%} of it beside kernels",
            "waited there": f"{1e3 * sums['stalled']:.1f} ms of all streams, for one another",
            "least there": f"{1e3 * self.bound:.1f} ms, by the bandwidth of the link; "
            f"the step takes {self.step / self.bound:.2f} times that",
        }


def predict(torch: Any, options: argparse.Namespace) -> Prediction:
    """Trains a few steps on the simulated device, each pixel standing for many, in virtual time."""
    simulated = importlib.import_module("cugrad.backends.simulated")
    count = min(options.batch_size, 64)
    with simulated.configured(options.predict, policy="timed", scale=PIXELS):
        digits = load_digits(torch, torch.device("simulated"))
        images, labels = digits.images[:count], digits.labels[:count]
        # of bytes under way two of the largest tensors, as always; but here those are small
        room = 2 * 4 * 32 * images.numel()
        offload = torch.memory.offload(min_bytes=64, keep_last=0, backlog=room, lookahead=room)
        timelines = []
        for saving in (contextlib.nullcontext(), offload):
            trainer = Trainer(torch, images.device)
            for _ in range(3):  # in which the order of backward is learned
                trainer.step(images, labels, saving)
            with simulated.record() as timeline:
                trainer.step(images, labels, saving)
            timelines.append(timeline)
        found = offload.report()
    simulated.reset()
    plain, step = (timeline.step_time for timeline in timelines)
    rest = max(0.0, step - found["step"])  # of the step: the optimizer
    return Prediction(options.predict, plain, step, found["bound"] + rest, timelines[1])


# ---------------------------------------------------------------- report


def mebibytes(nbytes: float) -> str:
    return f"{nbytes / 2**20:.2f} MiB"


def peak_memory(torch: Any, device: Any) -> str:
    """The most memory of the whole run, as far as the device tells it."""
    if device.type == "cuda":
        return f"{mebibytes(torch.cuda.max_memory_allocated())} on the GPU"
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    return f"{mebibytes(resident)} resident in the process"


def report(
    options: argparse.Namespace, device: str, outcome: Outcome, traffic: Traffic, memory: str,
    prediction: Prediction | None,
) -> str:  # fmt: skip
    """The closing lines: one fact each."""
    if options.offload == "none":
        moved = "0 B, as asked with --offload none"
    elif traffic.to_host == 0:
        moved = (
            f"0 B: all {mebibytes(traffic.on_host)} were on the host already, "
            "and tensors already on the host are not copied"
        )
    else:
        moved = (
            f"{mebibytes(traffic.to_host)} per step; {mebibytes(traffic.stayed)}, held by the "
            f"training anyway, stayed; {mebibytes(traffic.on_host)} were on the host already, and "
            "tensors already on the host are not copied"
        )
    steps = ", ".join(str(i + 1) for i in NVTX_STEPS if i < len(outcome.losses))
    rows = {
        "device": device,
        "test accuracy": f"{100 * outcome.correct / TEST_IMAGES:.2f} % "
        f"({outcome.correct} of {TEST_IMAGES} images it was not trained on)",
        "time per step": f"{1e3 * statistics.median(outcome.step_seconds):.2f} ms "
        f"(batches of {options.batch_size}; training took {outcome.seconds:.1f} s)",
        "saved tensors": f"{traffic.tensors} per step, {mebibytes(traffic.nbytes)}; what two ops "
        f"save counted once, {mebibytes(sum(traffic.storages.values()))}",
        "moved to the host": moved,
        "moved back": mebibytes(traffic.back) + " per step" if traffic.back else "0 B",
        "peak memory": memory,
        **({} if prediction is None else prediction.rows()),
        "profile": f"in the plot; NVTX ranges in steps {steps}, see them with: "
        f"nsys profile -t nvtx,cuda {sys.executable} {sys.argv[0]}"
        if steps
        else f"in the plot; no NVTX ranges, fewer than {NVTX_STEPS[0] + 1} steps",
        "plot": str(options.out),
    }
    width = max(map(len, rows)) + 2
    return "\n".join(f"{name + ':':{width}}{value}" for name, value in rows.items())


def draw_times(axes: Any, timeline: Any, most: int = 12) -> None:
    """Bars of the host's time in one step, by op and backward node, the longest on top."""
    times: dict[tuple[str, str], float] = {}
    before = 0.0
    for sample in timeline.samples:
        key = (sample.name, sample.phase)
        times[key] = times.get(key, 0.0) + (sample.t - before) * 1e3
        before = sample.t
    longest = sorted(times, key=times.__getitem__)[-most:]
    colors = ["C0" if phase == "forward" else "C1" for _, phase in longest]
    names = [name.rpartition("::")[2] for name, _ in longest]
    axes.barh(names, [times[key] for key in longest], color=colors)
    axes.set(xlabel="milliseconds: forward blue, backward orange", title="host time in one step")


def draw(
    options: argparse.Namespace, device: Any, outcome: Outcome, timelines: dict[str, Any],
    prediction: Prediction | None,
) -> None:  # fmt: skip
    """Write the PNG: the loss, the memory over one step with and without offload, its time; and
    below them the streams of a GPU that is not there.
    """
    pyplot = need("matplotlib", "matplotlib.pyplot")
    shape: dict[str, Any] = {"mosaic": [["left", "middle", "right"]], "figsize": (16, 4)}
    if prediction is not None:
        shape = {"mosaic": [*shape["mosaic"], ["below"] * 3], "figsize": (16, 6.5),
                 "height_ratios": [4, 2]}  # fmt: skip
    figure, axes = pyplot.subplot_mosaic(layout="constrained", **shape)
    left, middle, right = (axes[name] for name in ("left", "middle", "right"))
    if prediction is not None:
        prediction.timeline.draw(axes=axes["below"])
        axes["below"].set_title(
            f"a step with offload, predicted for {prediction.gpu} and images of 512 x 512: "
            "kernels blue, copies orange and green, waiting grey"
        )
    steps = len(outcome.losses) // options.epochs
    means = [
        statistics.fmean(outcome.losses[i * steps : (i + 1) * steps]) for i in range(options.epochs)
    ]
    left.plot(outcome.losses, linewidth=0.6, alpha=0.6, label="each step")
    left.plot([(i + 0.5) * steps for i in range(options.epochs)], means, "o-", label="epoch's mean")
    left.set(xlabel="step", ylabel="training loss", yscale="log", title="loss")
    left.legend()
    for offload, timeline in timelines.items():
        words = {"none": "without offload", "cpu": "with offload to the host"}[offload]
        timeline.plot(middle, label=words, by="op")
    middle.lines[-2].set_linestyle("--")  # seen where it lies on the other
    middle.margins(y=0.3)
    middle.legend()
    middle.set_xlabel(f"{middle.get_xlabel()}; dot: backward begins")
    middle.set_title(
        "memory over one step" + (", all of it on the host" if device.type == "cpu" else "")
    )
    draw_times(right, timelines[options.offload])
    try:
        figure.savefig(options.out, format="png", dpi=120)
    except OSError as error:
        raise UserError(f"cannot write {options.out}: {error.strerror}") from None
    pyplot.close(figure)


# ---------------------------------------------------------------- main


def choose_device(torch: Any, name: str) -> Any:
    """The device to train on, tried out, or the one line that says what is missing."""
    try:
        device = torch.get_default_device() if name == "auto" else torch.device(name)
        torch.zeros(1, device=device)
    except RuntimeError as error:
        raise UserError(f"argument --device: {' '.join(str(error).split())}") from None
    return device


def run(options: argparse.Namespace) -> None:
    check_writable(options.out)
    need("matplotlib", "matplotlib").use("Agg")
    need("numpy", "numpy")
    torch = importlib.import_module("cugrad")
    device = choose_device(torch, options.device)
    torch.manual_seed(options.seed)
    digits = load_digits(torch, device)
    if options.batch_size > len(digits.labels):
        raise UserError(
            f"argument --batch-size: got {options.batch_size}, want at most "
            f"{len(digits.labels)}, the number of training images"
        )
    trainer = Trainer(torch, device)
    outcome = trainer.train(digits, options)
    memory = peak_memory(torch, device)  # before the measured steps, which may need more
    measured = {each: measure_step(trainer, digits, options, each) for each in ("none", "cpu")}
    prediction = predict(torch, options) if options.predict else None
    timelines = {each: timeline for each, (_, timeline) in measured.items()}
    draw(options, device, outcome, timelines, prediction)
    traffic = replace(measured[options.offload][0], storages=measured["none"][0].storages)
    peaks = [mebibytes(t.peak - t.start) for _, t in measured.values()]
    memory += f"; one step adds {peaks[0]} without offload, {peaks[1]} with"
    names = {"cpu": "NumPy", "simulated": "NumPy, behaving as CUDA does"}
    name = names.get(device.type) or torch.cuda.get_device_name(device)
    print(report(options, f"{device} ({name})", outcome, traffic, memory, prediction))


def main(argv: list[str] | None = None) -> int:
    """Run the example; 0, or 2 after a value that cannot be used, or 130 after Ctrl-C."""
    try:
        run(parse(argv))
    except UserError as error:
        print(f"train_digits.py: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("train_digits.py: interrupted, no plot was written", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
