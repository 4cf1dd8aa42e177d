"""What an offload did, and what the link allows at best."""

from __future__ import annotations

from typing import Any

from ..backends.several import OfDevice
from .offloading.engine import CopyEngine
from .offloading.options import OffloadOptions
from .offloading.stats import Meter, Times
from .sizes import size

__all__ = ["Report", "lower_bound", "report_of"]

MIB = 1 << 20


def lower_bound(
    forward: float, backward: float, nbytes: float, to_host: float, to_device: float,
    compression: float = 1.0, recompute: float = 0.0, coding: float = 0.0,
) -> float:  # fmt: skip
    """The least seconds of a step that moves `nbytes` out in forward and back in backward.

    Copies overlap with compute, each way with its own phase:
    max(Tf, S / (c Bd)) + max(Tb + R, S / (c Bh)) + q, with S bytes that leave, Tf and Tb the
    seconds of compute, Bd and Bh the link's bytes/s to the host and back, `compression` c,
    `recompute` R and `coding` q seconds.

    >>> lower_bound(1.0, 2.0, 100e9, 50e9, 50e9)
    4.0
    """
    moved = nbytes / compression
    return max(forward, moved / to_host) + max(backward + recompute, moved / to_device) + coding


class Report(dict[str, Any]):
    """A report as a dict; it prints, and shows at a prompt, as text, and `plot` draws it."""

    def __str__(self) -> str:
        return "\n".join(_lines(self))

    __repr__ = __str__  # at a prompt, and in a notebook, it is the page

    def plot(self, path: str | None = None) -> Any:
        """A matplotlib figure of bytes, of times against the bound, and of stalls by op.

        Saved to `path` if given. ImportError without matplotlib.
        """
        try:
            from matplotlib.figure import Figure
        except ImportError as error:
            raise ImportError(
                "saving.report().plot() draws with matplotlib, which is not installed; install it "
                "with: pip install matplotlib"
            ) from error
        figure = Figure(figsize=(10, 6), layout="constrained")
        upper, lower, last = figure.subplots(3, 1, height_ratios=[2, 2, 3])
        moved = {"moved": self["moved_to_host_bytes"], **self["kept"]}
        upper.barh(list(moved), [n / MIB for n in moved.values()], color="tab:orange")
        upper.set_xlabel("MiB saved, by what became of them")
        upper.invert_yaxis()
        times = self.get("times")
        if times:
            phases = ("forward", "stalled_forward", "backward", "stalled_backward")
            left = 0.0
            for phase, colour in zip(phases, ("tab:blue", "lightgrey", "tab:green", "lightgrey")):
                width = times[phase] * 1e3
                lower.barh("step", width, left=left, color=colour, label=phase.replace("_", " in "))
                left += width
            lower.barh("bound", self["bound"] * 1e3, color="tab:red")
            lower.set_xlabel("ms")
            lower.margins(y=0.5)  # for the legend
            lower.legend(fontsize="small", ncols=4, loc="upper right")
            stalls = list(self["stalls"].items())[:12]
            last.barh([name for name, _ in stalls], [s * 1e3 for _, s in stalls], color="grey")
            last.set_xlabel("ms of waiting for copies, by op")
            last.invert_yaxis()
        if path is not None:
            figure.savefig(path)
        return figure


def report_of(options: OffloadOptions, engines: list[CopyEngine]) -> Report:
    """The report of a context; it tells of the last step of which times were taken."""
    report = Report(options.counts.stats.as_dict())
    devices = [e for e in engines if e.backend.device_type != "cpu"]
    report["pinned_bytes"] = sum([e.out.slab.allocated_bytes for e in devices])
    if options.codec is not None:
        report["codec"] = options.codec.name
        report["error"] = _error(options)
    timed = [(m, t) for m in options.counts.meters if (t := m.times()) is not None]
    if timed:
        meter, times = timed[-1]
        _add_times(report, meter, times)
        if not devices:  # nothing was sent over a link
            report["to_host_rate"] = report["to_device_rate"] = 0.0
        for engine in engines:
            _add_peaks(report, meter, engine)
    report["verdict"] = _verdict(report)
    return report


def _error(options: OffloadOptions) -> dict[str, float] | None:
    """What a codec lost, of the first storages that it saw."""
    if not options.counts.errors:
        return None
    from .codecs import error_of

    largest, relative = error_of(options.counts.errors)
    return {"relative_rms": relative, "largest": largest}


def _add_times(report: Report, meter: Meter, times: Times) -> None:
    report["times"] = {name: getattr(times, name) for name in times._fields if name != "stalls"}
    by_op = sorted(times.stalls.items(), key=lambda item: -item[1])
    report["stalls"] = {
        f"{name} seq={seq}" if seq else name: s for (name, seq), s in by_op if s > 0
    }
    to_host = times.out_bytes / times.out_seconds if times.out_seconds else 0.0
    to_device = times.back_bytes / times.back_seconds if times.back_seconds else 0.0
    report["to_host_rate"], report["to_device_rate"] = to_host, to_device
    coding = times.coding_forward + times.coding_backward
    stalled = times.stalled_forward + times.stalled_backward
    report["step"] = step = times.forward + times.backward + stalled + coding
    report["plain_step"] = plain = times.forward + times.backward
    if to_host and to_device:
        # what came back, as it is without a codec; what was used before it had left needed no link
        moved = times.raw_bytes
        # without a codec copies are larger: what each takes whatever its size weighs less
        rates = (times.out_rate, times.back_rate) if coding else (to_host, to_device)
        bound = lower_bound(times.forward, times.backward, moved, *rates)
    else:
        bound = plain
    report["bound"], report["slowdown"] = bound, step / plain if plain else 1.0
    report["over_bound"] = step / bound if bound else 1.0


def _add_peaks(report: Report, meter: Meter, engine: CopyEngine) -> None:
    """The peak around saving and unpacking, and what it had been without; the device's own peak, if
    it was reached since, and with the bytes that were away then.
    """
    report["saving_peak"], report["saving_peak_without"] = meter.resident, meter.without
    peak, without = meter.peak, max(meter.without, meter.peak + meter.absent)
    after = OfDevice(engine.backend, engine.index).max_memory_allocated()
    if after > 1.02 * max(peak, without):  # neither in forward nor in backward
        peak = without = after
    if peak > meter.peak_before:
        report["device_peak"], report["device_peak_without"] = peak, without


def _verdict(report: Report) -> str:
    """One sentence: what limits the step, or why offload buys nothing."""
    if not report["saved_tensors"]:
        return "nothing was saved: no op ran in this context whose gradient was wanted"
    if not report["moved_to_host_bytes"] and not report["encoded_bytes"]:
        why = max(report["kept"], key=report["kept"].get, default="already on the host")
        return f"nothing was moved: all saved tensors stayed ({why})"
    times = report.get("times")
    if times and times["back_bytes"] > 0.05 * report["saving_peak_without"]:
        less = report["saving_peak_without"] - report["saving_peak"]
        if less < 0.25 * times["back_bytes"]:
            return (
                f"offload buys little: {size(times['back_bytes'])} left, and the peak is lower by "
                f"{size(less)}, for all that leaves may be under way at once; name a smaller "
                "`backlog` and `lookahead` (if not given, two of the largest storages, and 64 MiB "
                "at least)"
            )
    peak, without = report.get("device_peak", 0), report.get("device_peak_without", 0)
    if peak and peak > 0.98 * without:
        return (
            f"offload buys nothing: the device's peak, {size(peak)}, is at a time when nothing "
            "that was saved is away (where tensors are saved, it had been "
            f"{size(report['saving_peak_without'])} without offload)"
        )
    if not times:
        return "no times were taken; offload() takes them, of a step and its backward"
    if coding := times["coding_forward"] + times["coding_backward"]:
        costs = f"{report['codec']} takes {_ms(coding)} of a step of {_ms(report['step'])}"
        least = f"{_ms(report['bound'])}, at least, without a codec"
        if report["step"] > 1.02 * report["bound"]:
            return f"coding-bound: {costs}, which takes {least}; leave it out, or keep more"
        return f"the codec pays: {costs}, which takes {least}"
    rates = {
        "to the host": (times["back_bytes"], times["forward"], report["to_host_rate"]),
        "to the device": (times["back_bytes"], times["backward"], report["to_device_rate"]),
    }
    short = [
        f"{nbytes / seconds / 1e9:.1f} GB/s {way} needed, {rate / 1e9:.1f} reached"
        for way, (nbytes, seconds, rate) in rates.items()
        if rate and seconds and nbytes / seconds > rate
    ]
    if short:
        return f"link-bound: {'; '.join(short)}"
    waited = times["stalled_forward"] + times["stalled_backward"]
    if report["disk_bytes"] and waited > 0.05 * report["step"]:
        return f"disk-bound: the step waited {_ms(waited)} for the disk"
    return "compute-bound: the copies hide behind the ops"


def _lines(report: Report) -> list[str]:
    """The page that a report prints as."""
    lines = [
        f"saved       {report['saved_tensors']:,} tensors, {size(report['saved_bytes'])}",
        f"unique      {size(report['unique_bytes'])} that were to move",
        f"moved       {size(report['moved_to_host_bytes'])} out, "
        f"{size(report['moved_back_bytes'])} back; copied / unique {report['copied_ratio']:.2f}",
    ]
    kept = dict(sorted(report["kept"].items(), key=lambda item: -item[1]))
    if report["already_on_host"]:
        kept["already on the host"] = report["already_on_host"]
    lines += [f"stayed      {size(nbytes)}: {why}" for why, nbytes in kept.items()]
    for name, what in (("forwarded", "used before they had left"),
                       ("on_demand", "asked for before they were on their way back"),
                       ("pageable_bytes", "in ordinary host memory, which is slower"),
                       ("disk_bytes", "on disk")):  # fmt: skip
        if report[name]:
            lines.append(f"of these    {size(report[name])} {what}")
    if report.get("error"):
        error = report["error"]
        lines.append(f"{report['codec']:<11} relative error {error['relative_rms']:.2e} (RMS), "
                     f"largest {error['largest']:.2e}")  # fmt: skip
    if "times" in report:
        t = report["times"]
        lines += [
            f"forward     {_ms(t['forward'])}, and {_ms(t['stalled_forward'])} waiting",
            f"backward    {_ms(t['backward'])}, and {_ms(t['stalled_backward'])} waiting",
        ]
        coding, without = t["coding_forward"] + t["coding_backward"], "one without copies"
        if coding:
            lines.append(f"coding      {_ms(coding)} by {report['codec']}")
            without = f"{_ms(report['plain_step'])} without copies and codec"
        if report["to_host_rate"] or report["to_device_rate"]:
            lines += [
                f"link        {report['to_host_rate'] / 1e9:.1f} GB/s to the host, "
                f"{report['to_device_rate'] / 1e9:.1f} GB/s back; "
                f"{size(report['pinned_bytes'])} locked",
            ]
        lines += [
            f"bound       {_ms(report['bound'])}{' without a codec' * bool(coding)}; this step "
            f"took {report['over_bound']:.3f} of it, {report['slowdown']:.3f} of {without}",
        ]
        if report["saving_peak"]:  # the host's memory is counted under tracemalloc alone
            lines += [
                f"peak        {size(report['saving_peak'])} while saving, "
                f"{size(report['saving_peak_without'])} without offload"
                + (
                    f"; {size(report['device_peak'])} in all, "
                    f"{size(report['device_peak_without'])} or more without"
                    if "device_peak" in report
                    else ""
                ),
            ]
        longest = [f"{_ms(s)} {name}" for name, s in list(report["stalls"].items())[:5]]
        if longest:
            lines.append(f"waited      {', '.join(longest)}")
    lines.append(f"verdict     {report['verdict']}")
    return lines


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:,.3f} ms"
