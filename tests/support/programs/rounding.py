"""Whether numbers differ by more than their rounding does."""

from __future__ import annotations

import random
import re

import numpy as np
import torch

import cugrad

from .running import Difference, Seen, differences, run
from .text import Program

STEPS = {
    "bfloat16": 2**-7, "float16": 2**-10, "float32": 2**-22, "complex64": 2**-22,
    "float64": 2**-51, "complex128": 2**-51,
}  # fmt: skip
# How much further than PyTorch's numbers from the exact one, which of wide dtypes is one of them:
# its functions and NumPy's are some last bits apart.
OF_NARROW, OF_WIDE = 4, 16


def is_narrow(program: Program) -> bool:
    return widened(program) != program.source(probed=True)


def widened(program: Program) -> str:
    """The program's text, in which all floating-point numbers have 64 bits."""
    text = re.sub(r"\b(bfloat16|float16|float32)\b", "float64", program.source(probed=True))
    return text.replace("complex64", "complex128").replace(".float()", ".double()")


def beyond_rounding(
    program: Program, want: Seen, got: Seen, found: list[Difference]
) -> list[Difference]:
    """What is left of differences in number.

    Where both libraries agree on the same program of wide dtypes, what the narrow ones make of it
    is right if it is not much further from that than what they make of it in PyTorch is: a sum that
    nearly cancels, or a quotient by what it leaves, has no number that both would round to. Of wide
    ones PyTorch's own is the number to be near to.
    """
    exact = want
    if is_narrow(program):
        source = widened(program)
        exact, mine = run(torch, source), run(cugrad, source)
        if any(differences(exact, mine, bits=False, derives=program.derives())):
            return found
    others = [run(torch, shaken(program, number)) for number in range(6)]
    return [
        difference
        for difference in found
        if not nearly_as_near(
            exact, want, got, others, difference.text.partition(":")[0], difference.kind
        )
    ]


def nearly_as_near(
    exact: Seen, want: Seen, got: Seen, others: list[Seen], name: str, fact: str
) -> bool:
    """Whether a number is about as far from the exact one as PyTorch's.

    That is the furthest of those that PyTorch makes of the program, and of it with its constants
    rounded otherwise: by luck one of them may be exact.
    """
    values = [seen.tensors.get(name, {}).get(fact) for seen in (exact, got, want, *others)]
    values = values[:3] + [x for x in values[3:] if isinstance(x, np.ndarray)]
    if not all(isinstance(x, np.ndarray) for x in values) or values[1].dtype != values[2].dtype:
        return False
    if values[1].dtype == np.float16:  # which a number may be too large for when it is rounded
        most = float(np.finfo(np.float16).max)
        values = [x.clip(-most, most) for x in values]
    if not all(np.isfinite(x).all() for x in values):
        return False
    right, ours, *theirs = (np.asarray(x, np.complex128) for x in values)
    if any(x.shape != right.shape for x in theirs):
        return False
    most = max(np.abs(x - right).max() for x in theirs)
    return bool(np.abs(ours - right).max() <= (OF_WIDE if exact is want else OF_NARROW) * most)


def shaken(program: Program, number: int) -> str:
    """The program's text with the constants of its tensors a little larger or smaller: equal ones
    alike, so that what is the same number stays so.
    """

    def moved(literal: re.Match[str]) -> str:
        step = STEPS.get(literal[2])
        if step is None:
            return literal[0]
        return (
            re.sub(
                r"\d+\.\d+",
                lambda x: repr(float(x[0]) * (1 + step * which(number, x[0]))),
                literal[1],
            )
            + literal[0][len(literal[1]) :]
        )

    pattern = r"(t\.tensor\([^a-z]*(?:j[^a-z]*)*), dtype=t\.(\w+)"
    return re.sub(pattern, moved, program.source(probed=True))


def which(number: int, text: str) -> int:
    """-1, 0 or 1: drawn for a number and a constant."""
    return random.Random(f"{number} {text}").choice((-1, 0, 1))
