"""`SummaryWriter`: writes numbers, pictures and texts of a run into files for TensorBoard."""

from __future__ import annotations

import io
import os
import socket
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, NoReturn

import numpy as np

from ...runtime.absent import PAGE, explain
from . import summaries

__all__ = ["SummaryWriter"]

EVENTS = "tensorboard.summary.writer.event_file_writer"


class SummaryWriter:
    """Writes what a run has to show into a folder; `tensorboard --logdir=runs` shows it.

    Args:
        log_dir: the folder; by default runs/DATE_TIME_HOST, with `comment` behind it.
        purge_step: after a crash, TensorBoard forgets what was written from this step on.
        max_queue, flush_secs: how many records, and how many seconds, a thread waits before it
            writes to the file.
        filename_suffix: behind the names of the files.

    ModuleNotFoundError, with what to install, without the package tensorboard. What has `tag` and
    `global_step` takes `walltime`, in seconds since 1970, in the place of now. A context manager,
    which closes the writer. `add_graph`, `add_embedding`, `add_mesh`, `add_video`, `add_pr_curve`
    and `add_custom_scalars` raise NotImplementedError.
    """

    def __init__(
        self, log_dir: str | os.PathLike[str] | None = None, comment: str = "",
        purge_step: int | None = None, max_queue: int = 10, flush_secs: int = 120,
        filename_suffix: str = "",
    ) -> None:  # fmt: skip
        if not log_dir:
            now = datetime.now().strftime("%b%d_%H-%M-%S")
            log_dir = os.path.join("runs", f"{now}_{socket.gethostname()}{comment}")
        self.log_dir = str(log_dir)
        self.purge_step, self.max_queue = purge_step, max_queue
        self.flush_secs, self.filename_suffix = flush_secs, filename_suffix
        self._event = summaries.needed("tensorboard.compat.proto.event_pb2")
        self._writers: dict[str, Any] = {}  # by folder; made anew after close
        self._writer(self.log_dir)

    def _writer(self, folder: str) -> Any:
        writer = self._writers.get(folder)
        if writer is None:
            make = summaries.needed(EVENTS).EventFileWriter
            writer = make(folder, self.max_queue, self.flush_secs, self.filename_suffix)
            self._writers[folder] = writer
            step = self.purge_step
            if step is not None:
                log = self._event.SessionLog(status=self._event.SessionLog.START)
                self._write(writer, step, None, file_version="brain.Event:2")
                self._write(writer, step, None, session_log=log)
                self.purge_step = None
        return writer

    def _write(self, writer: Any, step: Any, walltime: float | None, **content: Any) -> None:
        event = self._event.Event(**content)
        event.wall_time = time.time() if walltime is None else walltime
        if step is not None:
            event.step = int(step)
        writer.add_event(event)

    def _add(self, summary: Any, step: Any, walltime: float | None, folder: str = "") -> None:
        self._write(self._writer(folder or self.log_dir), step, walltime, summary=summary)

    def get_logdir(self) -> str:
        """The folder of the files."""
        return self.log_dir

    def add_scalar(
        self, tag: str, scalar_value: Any, global_step: int | None = None,
        walltime: float | None = None, new_style: bool = False, double_precision: bool = False,
    ) -> None:  # fmt: skip
        """Adds a number, a one-element tensor or array, to the curve `tag`."""
        summary = summaries.scalar(tag, scalar_value, new_style, double_precision)
        self._add(summary, global_step, walltime)

    def add_scalars(
        self, main_tag: str, tag_scalar_dict: Mapping[str, Any], global_step: int | None = None,
        walltime: float | None = None,
    ) -> None:  # fmt: skip
        """Adds a number to each of several curves of one chart, in folders of their own."""
        walltime = time.time() if walltime is None else walltime
        for tag, value in tag_scalar_dict.items():
            folder = f"{self.log_dir}/{main_tag.replace('/', '_')}_{tag}"
            self._add(summaries.scalar(main_tag, value), global_step, walltime, folder)

    def add_histogram(
        self, tag: str, values: Any, global_step: int | None = None, bins: Any = "tensorflow",
        walltime: float | None = None, max_bins: int | None = None,
    ) -> None:  # fmt: skip
        """Adds a histogram of values; `bins` is "tensorflow", or what numpy.histogram takes."""
        self._add(summaries.histogram(tag, values, bins, max_bins), global_step, walltime)

    def add_histogram_raw(
        self, tag: str, min: Any, max: Any, num: Any, sum: Any, sum_squares: Any,
        bucket_limits: Any, bucket_counts: Any, global_step: int | None = None,
        walltime: float | None = None,
    ) -> None:  # fmt: skip
        """Adds a histogram that was counted already: counts by the right edges of bins."""
        if len(bucket_limits) != len(bucket_counts):
            raise ValueError("len(bucket_limits) != len(bucket_counts), see the document.")
        summary = summaries.histogram_of_counts(
            tag, min, max, num, sum, sum_squares, bucket_limits, bucket_counts
        )
        self._add(summary, global_step, walltime)

    def add_image(
        self, tag: str, img_tensor: Any, global_step: int | None = None,
        walltime: float | None = None, dataformats: str = "CHW",
    ) -> None:  # fmt: skip
        """Adds a picture of numbers of [0, 1], or uint8, of shape `dataformats`: "CHW", "HW"..."""
        self._add(summaries.image(tag, img_tensor, dataformats), global_step, walltime)

    def add_images(
        self, tag: str, img_tensor: Any, global_step: int | None = None,
        walltime: float | None = None, dataformats: str = "NCHW",
    ) -> None:  # fmt: skip
        """Adds several pictures side by side, eight to a row."""
        self._add(summaries.images(tag, img_tensor, dataformats), global_step, walltime)

    def add_figure(
        self, tag: str, figure: Any, global_step: int | None = None, close: bool = True,
        walltime: float | None = None,
    ) -> None:  # fmt: skip
        """Adds matplotlib's figure as a picture, or a list of them, which are closed then."""
        figures = figure if isinstance(figure, list) else [figure]
        pictures = [_pixels(each, close) for each in figures]
        if isinstance(figure, list):
            self.add_images(tag, np.stack(pictures), global_step, walltime, "NHWC")
        else:
            self.add_image(tag, pictures[0], global_step, walltime, "HWC")

    def add_audio(
        self, tag: str, snd_tensor: Any, global_step: int | None = None, sample_rate: int = 44100,
        walltime: float | None = None,
    ) -> None:  # fmt: skip
        """Adds a sound: a vector of numbers of [-1, 1]."""
        self._add(summaries.audio(tag, snd_tensor, sample_rate), global_step, walltime)

    def add_text(
        self, tag: str, text_string: str, global_step: int | None = None,
        walltime: float | None = None,
    ) -> None:  # fmt: skip
        """Adds a text, which is shown as Markdown."""
        self._add(summaries.text(tag, text_string), global_step, walltime)

    def add_hparams(
        self, hparam_dict: dict[str, Any], metric_dict: dict[str, Any],
        hparam_domain_discrete: dict[str, list[Any]] | None = None, run_name: str | None = None,
        global_step: int | None = None,
    ) -> None:  # fmt: skip
        """Adds hyperparameters, and what came of them, as a run in a folder of its own."""
        records = summaries.hparams(hparam_dict, metric_dict, hparam_domain_discrete)
        folder = os.path.join(self.log_dir, str(time.time()) if run_name is None else run_name)
        with SummaryWriter(folder) as run:
            for record in records:
                run._add(record, None, None)
            for tag, value in metric_dict.items():
                run.add_scalar(tag, value, global_step)

    def flush(self) -> None:
        """Writes all that waits to the files."""
        for writer in self._writers.values():
            writer.flush()

    def close(self) -> None:
        """Writes all that waits, and closes the files; what is added later opens new ones."""
        writers, self._writers = self._writers, {}
        for writer in writers.values():
            writer.flush()
            writer.close()

    def __enter__(self) -> SummaryWriter:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _pixels(figure: Any, close: bool) -> np.ndarray[Any, Any]:
    """A figure of matplotlib as uint8 of shape (H, W, 3)."""
    encoded = io.BytesIO()
    figure.savefig(encoded, format="png", dpi=figure.dpi)
    if close:
        from matplotlib import pyplot

        pyplot.close(figure)
    from PIL import Image

    return np.asarray(Image.open(encoded).convert("RGB"))


def _refusing(name: str) -> Callable[..., NoReturn]:
    def refuse(self: SummaryWriter, *args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(f"SummaryWriter.{name} is not here ({PAGE})")

    refuse.__name__ = name
    refuse.__qualname__ = f"SummaryWriter.{name}"
    refuse.__doc__ = "Raises NotImplementedError."
    return refuse


for _name in (
    "add_custom_scalars", "add_embedding", "add_graph", "add_image_with_boxes", "add_mesh",
    "add_onnx_graph", "add_pr_curve", "add_pr_curve_raw", "add_tensor", "add_video",
):  # fmt: skip
    setattr(SummaryWriter, _name, _refusing(_name))


explain(__name__)
