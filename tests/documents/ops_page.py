"""Writes docs/ops.md, the table of all rows, from the op table and from running their samples.

`python -m tests.documents.ops_page --write` after rows have changed; a test fails until then.
"""

from __future__ import annotations

import argparse
import inspect
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np

import cugrad
import cugrad.backends
from cugrad import Tensor
from cugrad.autograd.recording.record import recorded
from cugrad.func import vmap
from cugrad.ops.table import TABLE, Op
from cugrad.tensor import make
from tests.ops import samples
from tests.ops.row_cases import is_array
from tests.ops.sampling import LINES, Sample
from tests.support import ROOT

PAGE = ROOT / "docs" / "ops.md"
HOST = cugrad.backends.get("cpu")
# letter -> (dtypes that it stands for, the one that is tried)
LETTERS = {
    "h": "float16", "b": "bfloat16", "f": "float32", "d": "float64", "F": "complex64",
    "D": "complex128", "i": "int64", "?": "bool",
}  # fmt: skip
SPACES = {"": cugrad, "nn.functional.": cugrad.nn.functional, "linalg.": cugrad.linalg,
          "fft.": cugrad.fft, "special.": cugrad.special}  # fmt: skip

HEAD = """# The ops

Written by `python -m tests.documents.ops_page --write` from the op table and from what the rows do
with their samples; CI fails when it is out of date. Every row below is compared with PyTorch 2.13
in value, dtype, shape and gradients, and with NumPy, in `tests/ops/test_rows_*.py`; every public
function that PyTorch's operator database knows is compared on PyTorch's samples in
`tests/ops/test_opinfo.py`.

- **dtypes**: what the row computes in: `h` float16, `b` bfloat16, `f` float32, `d` float64, `F`
  complex64, `D` complex128, `i` integers, `?` bool. Others are promoted, or refused.
- **gradient**, **2nd**, **jvp**: reverse mode, reverse mode of the gradient, forward mode. `-`
  where the outputs are integers, or constant.
- **batching**: what `vmap` does. `rule`: all examples at once. `loop`: once per example, and it
  says so. `-`: the shape of the result depends on values, or nothing can be mapped over.
- **fused kernel**: on CUDA, `one` where the forward is a single CuPy elementwise kernel; `-` where
  it is composed of several array functions.
"""


def tensors_of(line: Sample, dtype: str) -> tuple[list[Any], dict[str, Any]]:
    """The inputs of a line as tensors in a dtype, and its parameters."""
    case = replace(line, dtype=dtype if dtype != "bool" else "int64")
    made: list[Any] = []
    with HOST.quiet():
        drawn = case.arrays(HOST)
    for arg in drawn:
        members = arg if isinstance(arg, list) else [arg]
        cast = [
            make(a.astype(bool) if dtype == "bool" and a.dtype == np.int64 else a)
            if is_array(a) else a for a in members
        ]  # fmt: skip
        made.append(cast if isinstance(arg, list) else cast[0])
    return made, case.params_on(HOST)


def has_float_input(line: Sample) -> bool:
    drawn = [a for arg in line.host_args() for a in (arg if isinstance(arg, list) else [arg])]
    return any(is_array(a) and a.dtype.kind == "f" for a in drawn)


def works(line: Sample, dtype: str) -> bool:
    """Whether the row computes on this line's inputs in a dtype, and answers in its category."""
    try:
        args, params = tensors_of(line, dtype)
        with warnings.catch_warnings(), HOST.quiet():
            warnings.simplefilter("ignore")
            getattr(recorded, line.row)(*args, **params)
    except Exception:
        return False
    return True


def dtypes_of(op: Op) -> str:
    line = LINES[op.name][0]
    if not has_float_input(line):
        return "i"
    skipped = set()
    if op.name in samples.REAL_ONLY:
        skipped |= {"F", "D"}
    if op.name in samples.NO_HALF:
        skipped |= {"h", "b"}
    return "".join(c for c, d in LETTERS.items() if c not in skipped and works(line, d))


def batching_of(op: Op) -> str:
    """What vmap does with the row, tried on its samples."""
    answers = {_batched(line) for line in LINES[op.name]}
    return next((a for a in ("loop", "rule") if a in answers), "-")


def _batched(line: Sample) -> str:
    args, params = tensors_of(line, "float64")
    flat = [a for arg in args for a in (arg if isinstance(arg, list) else [arg])]
    wanted = [a for a in flat if isinstance(a, Tensor) and a.is_floating_point()]
    if not wanted:
        return "-"

    def run(*given: Tensor) -> Any:
        fresh = iter(given)
        put = lambda a: next(fresh) if isinstance(a, Tensor) and a.is_floating_point() else a
        inside = [list(map(put, arg)) if isinstance(arg, list) else put(arg) for arg in args]
        return getattr(recorded, line.row)(*inside, **params)

    with warnings.catch_warnings(record=True) as heard, HOST.quiet():
        warnings.simplefilter("always")
        try:
            vmap(run, randomness="different")(*[cugrad.stack([a, a]) for a in wanted])
        except RuntimeError:
            return "-"
    return "loop" if any("performance drop" in str(w.message) for w in heard) else "rule"


def line_of(op: Op) -> str:
    graded = any(op.formulas) and bool(op.differentiable)
    twice = "yes" if graded and op.name not in samples.ONCE else "-"
    yes = "yes" if graded else "-"
    kernel = "one" if op.ufunc is not None else "-"
    inputs = " ".join(n + "?" * (n in op.optional) + "*" * op.variadic for n in op.inputs)
    return (f"| `{op.name}` | {inputs} | {op.kind or '-'} | {dtypes_of(op)} | {yes} | {twice} | "
            f"{yes} | {batching_of(op)} | {kernel} |")  # fmt: skip


def public_functions(space: ModuleType) -> list[str]:
    """The public functions of one of PyTorch's namespaces, as cugrad has them."""
    names = getattr(space, "__all__", None) or dir(space)
    found = []
    for name in names:
        value = getattr(space, name, None)
        if not name.startswith("_") and callable(value) and not isinstance(value, type):
            found.append(name)
    return sorted(set(found))


def methods() -> list[str]:
    return sorted(
        name for name in dir(Tensor)
        if not name.startswith("_") and callable(inspect.getattr_static(Tensor, name))
    )  # fmt: skip


def public_names() -> dict[str, list[str]]:
    """Public functions by namespace, and the methods of Tensor."""
    named = {space or "torch": public_functions(module) for space, module in SPACES.items()}
    return {**named, "Tensor": methods()}


def page(progress: Callable[[str], None] = lambda name: None) -> str:
    rows = []
    for name in sorted(TABLE):
        if name not in samples.NO_SAMPLE:
            progress(name)
            rows.append(line_of(TABLE[name]))
    names = public_names()
    total = sum(map(len, names.values()))
    lines = [
        HEAD,
        f"## The {len(rows)} rows\n",
        "| row | inputs | kind | dtypes | gradient | 2nd | jvp | batching | fused kernel |",
        "|---|---|---|---|---|---|---|---|---|",
        *rows,
        f"\n## The {total} public functions and methods\n",
    ]
    for space, found in names.items():
        title = "torch" if space == "torch" else space.rstrip(".")
        lines.append(f"**{title}** ({len(found)}): " + " ".join(f"`{n}`" for n in found) + "\n")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.documents.ops_page", description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name}, not to stdout")
    options = parser.parse_args()
    text = page()
    if options.write:
        PAGE.write_text(text)
    else:
        print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
