"""What an offload did, and what the link allows at best."""

from __future__ import annotations

from typing import Any

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
    found = Report(options.counts.stats.as_dict())
    devices = [e for e in engines if e.backend.device_type != "cpu"]
    found["pinned_bytes"] = sum([e.out.slab.allocated_bytes for e in devices])
    if options.codec is not None:
        found["codec"] = options.codec.name
        found["error"] = _error(options)
    timed = [(m, t) for m in options.counts.meters if (t := m.times()) is not None]
    if timed:
        meter, times = timed[-1]
        _add_times(found, meter, times)
        if not devices:  # nothing was sent over a link
            found["to_host_rate"] = found["to_device_rate"] = 0.0
        for engine in engines:
            _add_peaks(found, meter, engine)
    found["verdict"] = _verdict(found)
    return found


def _error(options: OffloadOptions) -> dict[str, float] | None:
    """What a codec lost, of the first storages that it saw."""
    if not options.counts.errors:
        return None
    from .codecs import error_of

    largest, relative = error_of(options.counts.errors)
    return {"relative_rms": relative, "largest": largest}


def _add_times(found: Report, meter: Meter, times: Times) -> None:
    found["times"] = {name: getattr(times, name) for name in times._fields if name != "stalls"}
    by_op = sorted(times.stalls.items(), key=lambda item: -item[1])
    found["stalls"] = {f"{name} seq={seq}" if seq else name: s for (name, seq), s in by_op if s > 0}
    to_host = times.out_bytes / times.out_seconds if times.out_seconds else 0.0
    to_device = times.back_bytes / times.back_seconds if times.back_seconds else 0.0
    found["to_host_rate"], found["to_device_rate"] = to_host, to_device
    coding = times.coding_forward + times.coding_backward
    stalled = times.stalled_forward + times.stalled_backward
    found["step"] = step = times.forward + times.backward + stalled + coding
    found["plain_step"] = plain = times.forward + times.backward
    if to_host and to_device:
        # what came back, as it is without a codec; what was used before it had left needed no link
        moved = times.raw_bytes
        bound = lower_bound(times.forward, times.backward, moved, to_host, to_device)
    else:
        bound = plain
    found["bound"], found["slowdown"] = bound, step / plain if plain else 1.0
    found["over_bound"] = step / bound if bound else 1.0


def _add_peaks(found: Report, meter: Meter, engine: CopyEngine) -> None:
    """The peak around saving and unpacking, and what it had been without; the device's own peak, if
    it was reached since, and with the bytes that were away then.
    """
    found["saving_peak"], found["saving_peak_without"] = meter.resident, meter.without
    peak, without = meter.peak, max(meter.without, meter.peak + meter.absent)
    after = engine.backend.max_memory_allocated()
    if after > 1.02 * max(peak, without):  # neither in forward nor in backward
        peak = without = after
    if peak > meter.peak_before:
        found["device_peak"], found["device_peak_without"] = peak, without


def _verdict(found: Report) -> str:
    """One sentence: what limits the step, or why offload buys nothing."""
    if not found["saved_tensors"]:
        return "nothing was saved: no op ran in this context whose gradient was wanted"
    if not found["moved_to_host_bytes"] and not found["encoded_bytes"]:
        why = max(found["kept"], key=found["kept"].get, default="already on the host")
        return f"nothing was moved: all saved tensors stayed ({why})"
    times = found.get("times")
    if times and times["back_bytes"] > 0.05 * found["saving_peak_without"]:
        less = found["saving_peak_without"] - found["saving_peak"]
        if less < 0.25 * times["back_bytes"]:
            return (
                f"offload buys little: {size(times['back_bytes'])} left, and the peak is lower by "
                f"{size(less)}, for all that leaves may be under way at once; name a smaller "
                "`backlog` and `lookahead` (if not given, two of the largest storages, and 64 MiB "
                "at least)"
            )
    peak, without = found.get("device_peak", 0), found.get("device_peak_without", 0)
    if peak and peak > 0.98 * without:
        return (
            f"offload buys nothing: the device's peak, {size(peak)}, is at a time when nothing "
            "that was saved is away (where tensors are saved, it had been "
            f"{size(found['saving_peak_without'])} without offload)"
        )
    if not times:
        return "no times were taken; offload() takes them, of a step and its backward"
    if coding := times["coding_forward"] + times["coding_backward"]:
        costs = f"{found['codec']} takes {_ms(coding)} of a step of {_ms(found['step'])}"
        least = f"{_ms(found['bound'])}, at least, without a codec"
        if found["step"] > 1.02 * found["bound"]:
            return f"coding-bound: {costs}, which takes {least}; leave it out, or keep more"
        return f"the codec pays: {costs}, which takes {least}"
    rates = {
        "to the host": (times["back_bytes"], times["forward"], found["to_host_rate"]),
        "to the device": (times["back_bytes"], times["backward"], found["to_device_rate"]),
    }
    short = [
        f"{nbytes / seconds / 1e9:.1f} GB/s {way} needed, {rate / 1e9:.1f} reached"
        for way, (nbytes, seconds, rate) in rates.items()
        if rate and seconds and nbytes / seconds > rate
    ]
    if short:
        return f"link-bound: {'; '.join(short)}"
    waited = times["stalled_forward"] + times["stalled_backward"]
    if found["disk_bytes"] and waited > 0.05 * found["step"]:
        return f"disk-bound: the step waited {_ms(waited)} for the disk"
    return "compute-bound: the copies hide behind the ops"


def _lines(found: Report) -> list[str]:
    """The page that a report prints as."""
    lines = [
        f"saved       {found['saved_tensors']:,} tensors, {size(found['saved_bytes'])}",
        f"unique      {size(found['unique_bytes'])} that were to move",
        f"moved       {size(found['moved_to_host_bytes'])} out, "
        f"{size(found['moved_back_bytes'])} back; copied / unique {found['copied_ratio']:.2f}",
    ]
    kept = dict(sorted(found["kept"].items(), key=lambda item: -item[1]))
    if found["already_on_host"]:
        kept["already on the host"] = found["already_on_host"]
    lines += [f"stayed      {size(nbytes)}: {why}" for why, nbytes in kept.items()]
    for name, what in (("forwarded", "used before they had left"),
                       ("on_demand", "asked for before they were on their way back"),
                       ("pageable_bytes", "in ordinary host memory, which is slower"),
                       ("disk_bytes", "on disk")):  # fmt: skip
        if found[name]:
            lines.append(f"of these    {size(found[name])} {what}")
    if found.get("error"):
        error = found["error"]
        lines.append(f"{found['codec']:<11} relative error {error['relative_rms']:.2e} (RMS), "
                     f"largest {error['largest']:.2e}")  # fmt: skip
    if "times" in found:
        t = found["times"]
        lines += [
            f"forward     {_ms(t['forward'])}, and {_ms(t['stalled_forward'])} waiting",
            f"backward    {_ms(t['backward'])}, and {_ms(t['stalled_backward'])} waiting",
        ]
        coding, without = t["coding_forward"] + t["coding_backward"], "one without copies"
        if coding:
            lines.append(f"coding      {_ms(coding)} by {found['codec']}")
            without = f"{_ms(found['plain_step'])} without copies and codec"
        if found["to_host_rate"] or found["to_device_rate"]:
            lines += [
                f"link        {found['to_host_rate'] / 1e9:.1f} GB/s to the host, "
                f"{found['to_device_rate'] / 1e9:.1f} GB/s back; "
                f"{size(found['pinned_bytes'])} locked",
            ]
        lines += [
            f"bound       {_ms(found['bound'])}{' without a codec' * bool(coding)}; this step took "
            f"{found['over_bound']:.3f} of it, {found['slowdown']:.3f} of {without}",
        ]
        if found["saving_peak"]:  # the host's memory is counted under tracemalloc alone
            lines += [
                f"peak        {size(found['saving_peak'])} while saving, "
                f"{size(found['saving_peak_without'])} without offload"
                + (
                    f"; {size(found['device_peak'])} in all, {size(found['device_peak_without'])} "
                    "or more without"
                    if "device_peak" in found
                    else ""
                ),
            ]
        longest = [f"{_ms(s)} {name}" for name, s in list(found["stalls"].items())[:5]]
        if longest:
            lines.append(f"waited      {', '.join(longest)}")
    lines.append(f"verdict     {found['verdict']}")
    return lines


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:,.3f} ms"
