"""`python -m cugrad.autograd mul` prints the code that `cugrad.mul` runs, and its backward."""

from __future__ import annotations

import sys

from ..ops.table import TABLE, Op
from .recording.fast import is_fast, text_of
from .recording.op_node import compiles_vjp, text_of_vjp


def said(op: Op) -> str:
    """The forward of a row, and the gradients of all inputs."""
    mask = sum([1 << i for i, formula in enumerate(op.formulas) if formula is not None])
    text = text_of(op)
    if mask and is_fast(op) and compiles_vjp(op):
        text += f"\n\n\n{text_of_vjp(op, mask)}"
    return text


def main(names: list[str]) -> int:
    """Prints the code of rows; what is wrong goes to the stream of errors."""
    if not names:
        print("usage: python -m cugrad.autograd NAME..., the names of rows", file=sys.stderr)
        return 2
    for name in names:
        if name not in TABLE:
            print(f"no row named {name!r} in the op table", file=sys.stderr)
            return 2
    try:
        for name in names:
            print(said(TABLE[name]))
        sys.stdout.flush()
    except BrokenPipeError:  # of head or less
        sys.stderr.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
