"""Runs the tests of planted faults without loading library and tests anew for each of them.

The process loads them once. A child of it, one for each fault, gets the changed code in the
functions that have it. What runs while the library is imported stays as it was: a fault there
survives wrongly, and so does one in a formula of a row, whose text is compiled once.
"""

from __future__ import annotations

import functools
import gc
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType

import pytest

__all__ = ["collected", "fate_of", "patched"]

WORDS = ["-x", "-q", "-p", "no:cacheprovider"]


def collected(tests: list[list[str]]) -> None:
    """Loads the files of these tests."""
    files = sorted({name.partition("::")[0] for names in tests for name in names})
    pytest.main([*WORDS, "--collect-only", *files])
    gc.collect()
    functions_by_file()  # what is frozen is not found any more
    gc.freeze()  # else each child would touch, and so copy, all memory


@functools.cache
def functions_by_file() -> dict[str, list[FunctionType]]:
    """All functions that there are, by the files that they come from."""
    found: dict[str, list[FunctionType]] = {}
    gc.unfreeze()  # tests freeze, too
    for function in gc.get_objects():
        if type(function) is FunctionType:
            found.setdefault(function.__code__.co_filename, []).append(function)
    return found


def patched(path: Path, before: bytes, after: bytes) -> int:
    """Gives functions of a file the code of its changed text; how many there are."""
    old = {_key(code): code for code in _codes(compile(before, path, "exec", dont_inherit=True))}
    changed = {}
    for code in _codes(compile(after, path, "exec", dont_inherit=True)):
        if old.get(_key(code), code) != code:
            changed[_key(code)] = code
    count = 0
    for function in functions_by_file().get(str(path), ()):
        code_now = changed.get(_key(function.__code__))
        if code_now is not None:
            function.__code__ = code_now
            count += 1
    return count


def _key(code: CodeType) -> tuple[int, str, str]:
    return code.co_firstlineno, code.co_name, ",".join(code.co_freevars)


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def fate_of(path: Path, before: bytes, after: bytes, tests: list[str], limit: float) -> str:
    """What becomes of one fault in a child that has so many seconds of a processor."""
    functions_by_file()  # once, not in each child
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            signal.signal(signal.SIGVTALRM, signal.SIG_DFL)  # which ends it
            signal.setitimer(signal.ITIMER_VIRTUAL, limit)
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, 1)
            os.dup2(nowhere, 2)
            count = patched(path, before, after)
            status = pytest.main([*WORDS, *tests])
            fate = "caught" if status else "survived" if count else "not patched"
        except BaseException:
            fate = "caught"
        os.write(writer, fate.encode())
        os._exit(0)
    os.close(writer)
    with open(reader, "rb") as told:
        fate = told.read().decode()
    os.waitpid(child, 0)
    sys.stdout.flush()
    return fate or "caught"  # its process ended
