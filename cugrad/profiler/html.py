"""Makes pages that show a profile in any browser: one file each, no server, nothing loaded."""

from __future__ import annotations

import html
import json
from pathlib import Path
from typing import Any

from ..autograd.recording.node import SEQ_LIMIT
from .correlation.joining import Correlation

__all__ = ["memory_page", "report_page"]

_ASSETS = Path(__file__).resolve().parent / "page"


def memory_page(timeline: dict[str, Any], title: str = "Memory over a step") -> str:
    """The page of a memory timeline, from `MemoryTimeline.as_dict()`.

    >>> page = memory_page({"device": "cpu", "start": 0, "peak": 0, "peak_sample": None,
    ...                     "samples": [], "alive_at_peak": [], "by_op": []})
    >>> page.startswith("<!DOCTYPE html>"), "http://" in page.replace("http://www.w3.org", "")
    (True, False)
    """
    note = "Memory in use when each op and each backward node had ended."
    return _page(title, note, {**timeline, "seq_limit": SEQ_LIMIT}, "memory.js")


def report_page(correlation: Correlation, title: str, note: str = "") -> str:
    """The page of what `correlate` has found."""
    rows = [row.as_dict() for row in correlation.sorted()]
    return _page(title, note, {"rows": rows, "timed": correlation.timed}, "report.js")


def _page(title: str, note: str, data: Any, script: str) -> str:
    # so that no text of the data ends the script element
    embedded = json.dumps(data).replace("<", "\\u003c")
    parts = [_asset("common.js"), _asset(script)]
    scripts = "\n".join(f"<script>\n{part}</script>" for part in parts)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
  content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<title>{html.escape(title)}</title>
<style>
{_asset("page.css")}</style>
</head>
<body>
<h1>{html.escape(title)}</h1>
<p class="note">{html.escape(note)}</p>
<main id="page"></main>
<script type="application/json" id="data">{embedded}</script>
{scripts}
</body>
</html>
"""


def _asset(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")
