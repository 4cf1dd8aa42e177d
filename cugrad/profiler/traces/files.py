"""Opens a trace by what is in it: nvprof's or nsys's database, or a Chrome trace."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ..correlation.attribution import Activity, TraceError, TraceRange
from .chrome import load_chrome_spans
from .database import opened
from .nsys import is_nsys, spans_of_nsys
from .nvprof import is_nvprof, spans_of_nvprof

__all__ = ["spans_of_file"]

WANTED = "want a file of nvprof (nvprof -o), of nsys (nsys export --type sqlite), or a Chrome trace"


def spans_of_file(path: str | Path) -> Iterator[str | TraceRange | Activity]:
    """First which tool wrote the file, then its ranges as they end, and what is outside of all.

    TraceError, a ValueError, where the file is broken, empty or none of them; OSError where it
    cannot be read.
    """
    file = Path(path)
    with file.open("rb") as stream:
        head = stream.read(64)
    if not head:
        raise TraceError(f"{file}: the file is empty; {WANTED}")
    if head.startswith(b"SQLite format 3\0"):
        with opened(file, "nsys or nvprof") as database:
            if is_nsys(database.tables):
                yield "nsys"
                yield from spans_of_nsys(database, file)
            elif is_nvprof(database.tables):
                yield "nvprof"
                yield from spans_of_nvprof(database, file)
            else:
                raise TraceError(f"{file}: a database, but not of a profiler; {WANTED}")
    elif head.startswith(b"\x1f\x8b") or head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"["):
        spans = load_chrome_spans(file)
        yield "Chrome trace"
        yield from spans
    elif file.suffix in (".nsys-rep", ".qdrep"):
        raise TraceError(f"{file}: export it first: nsys export --type sqlite {file.name}")
    else:
        raise TraceError(f"{file}: not a trace; {WANTED}")
