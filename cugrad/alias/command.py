"""Runs a program as `python program.py ...` does, with cugrad under the name `torch`."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from types import TracebackType

__all__ = ["USAGE", "main"]

USAGE = "usage: python -m cugrad.as_torch [-h] (PROGRAM.py | -m MODULE) [ARGUMENT ...]"
HELP = f"""{USAGE}

Runs a program written for PyTorch, unchanged: `import torch` in it imports cugrad.
See docs/as-torch.md for what to expect."""


def main(arguments: list[str]) -> int:
    """Runs the program that the arguments name; its exit status, or 2 for a wrong command line."""
    if arguments and arguments[0] in ("-h", "--help"):
        print(HELP)
        return 0
    as_module = bool(arguments) and arguments[0] == "-m"
    if as_module:
        del arguments[0]
    if not arguments or arguments[0].startswith("-"):
        return _wrong("which program?" if not arguments else f"unknown option {arguments[0]}")
    if not as_module and not Path(arguments[0]).exists():
        return _wrong(f"can't open file {arguments[0]!r}: there is no such file")
    sys.argv = arguments
    # python -m put the working directory first; python program.py puts the program's
    sys.path[0] = "" if as_module else str(Path(arguments[0]).resolve().parent)
    try:
        if as_module:
            own = arguments[0].startswith("torch.")  # of this library: torch.distributed.run
            module = "cugrad" + arguments[0].removeprefix("torch") if own else arguments[0]
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(arguments[0], run_name="__main__")
    except SystemExit:
        raise
    except BaseException as error:
        if as_module and isinstance(error, ImportError) and error.__traceback__ is not None:
            if _users(error.__traceback__) is None:
                return _wrong(str(error))
        error.__traceback__ = _users(error.__traceback__)
        sys.last_value = error  # as Python notes it, for what runs at exit
        sys.excepthook(type(error), error, error.__traceback__)
        return 130 if isinstance(error, KeyboardInterrupt) else 1
    return 0


def _wrong(text: str) -> int:
    print(f"{USAGE}\npython -m cugrad.as_torch: {text}", file=sys.stderr)
    return 2


def _users(entry: TracebackType | None) -> TracebackType | None:
    """A traceback from the program's first frame on; None where it never began."""
    ours = (__file__, runpy.__file__, "<frozen runpy>")
    while entry is not None and entry.tb_frame.f_code.co_filename in ours:
        entry = entry.tb_next
    return entry
