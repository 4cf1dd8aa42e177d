"""The command line: python -m cugrad.profiler report FILE [--html OUT]."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from .correlation.attribution import Activity, TraceError, TraceRange
from .correlation.joining import Correlation, Correlator
from .html import report_page
from .traces.files import spans_of_file

DESCRIPTION = """Prints for each forward op its kernels, its backward and its kernels, the copies
between device and host, and the stalls: calls that wait for the device. FILE is a database of
nvprof, one that nsys export --type sqlite has written, or a Chrome trace."""


def report(path: Path, out: Path | None, limit: int) -> str:
    """The text of a report; also writes the page where one is wanted."""
    spans, adding, count = spans_of_file(path), Correlator(), 0
    tool = next(spans)
    for span in spans:
        assert isinstance(span, (TraceRange, Activity))
        adding.add(span)
        count += 1
    if not count:
        raise TraceError(
            f"{path}: a file of {tool} that holds no range and no kernel; profile with NVTX and "
            "CUDA traced, inside cugrad.autograd.profiler.emit_nvtx()"
        )
    correlation = Correlation(adding.rows.values())
    total = correlation.total  # before the times of the host stand for kernels
    correlation.settled()
    note = f"{tool}; {total.kernels} kernels, {total.copies} copies, {total.stalls} stalls. "
    if total.kernels:
        note += "A kernel counts for the op that launched it."
    else:
        note += "Without kernels, the times are those of the host in each op itself."
    if not any(row.kind == "op" for row in correlation.rows):
        note += " No range carries a sequence number: was emit_nvtx() on?"
    if out is not None:
        out.write_text(report_page(correlation, path.name, note), encoding="utf-8")
    return f"{path}: {note}\n\n{correlation.table(limit)}"


def _rows(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"got {text!r}, want a number of rows, 0 or more")
    return int(text)


def main(arguments: list[str] | None = None) -> int:
    """Runs the command; 2 where the file, or an argument, is no good."""
    parser = argparse.ArgumentParser(prog="python -m cugrad.profiler", description=DESCRIPTION)
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("report", description=DESCRIPTION, help="what each op cost")
    command.add_argument("file", type=Path, metavar="FILE")
    command.add_argument("--html", type=Path, metavar="OUT", help="write a page as well")
    command.add_argument("--limit", type=_rows, default=60, metavar="N", help="rows to print (60)")
    options = parser.parse_args(arguments)
    try:
        text = report(options.file, options.html, options.limit)
    except (OSError, ValueError) as error:
        said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        if isinstance(error, OSError) and error.filename is not None:
            said = f"{error.filename}: {said}"
        print(f"cugrad.profiler: {' '.join(said.split())}", file=sys.stderr)
        return 2
    try:
        print(text)
        sys.stdout.flush()
    except BrokenPipeError:  # of head or less
        sys.stderr.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
