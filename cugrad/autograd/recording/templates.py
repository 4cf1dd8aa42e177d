"""Python functions made of text, which tracebacks and debuggers show."""

from __future__ import annotations

import linecache
import re
from functools import cache
from itertools import count
from textwrap import indent
from typing import Any

__all__ = ["compiled", "filled"]


def filled(template: str, **holes: Any) -> str:
    """A template with its holes filled; what fills a line of its own is indented as the hole is."""
    lines = []
    for line in template.splitlines():
        alone = re.fullmatch(r"( *)\{(\w+)\}", line)
        if not alone:
            lines.append(line.format(**holes))
        elif holes[alone[2]]:
            lines.append(indent(holes[alone[2]], alone[1]))
    return "\n".join(lines)


@cache
def compiled(code: str) -> Any:
    """The code object of a source text, which tracebacks and pdb show; many rows share one."""
    name = f"cugrad fast path {next(_texts)}"  # linecache does not look up names in <>
    linecache.cache[name] = (lambda: code,)
    return compile(code, name, "exec")


_texts = count(1)
