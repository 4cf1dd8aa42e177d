"""Runs programs beside PyTorch, and beside themselves in contexts that must not change them."""

from __future__ import annotations

import gc
import json
import random
import re
import resource
import sys
import traceback
from collections import Counter
from dataclasses import replace
from operator import eq
from pathlib import Path
from typing import Any

import numpy as np
import torch

import cugrad
from cugrad.memory.budgeting.planning import search

from .contexts import (
    CONTEXTS,
    COPYING,
    MOVING,
    MOVING_ON_HOST,
    PLACES,
    aftermath,
    entered,
    placed,
)
from .drawing import Draw
from .running import GUARDS, Difference, Hang, Seen, differences, run, sort_of
from .shrinking import shrunk
from .text import Program

# What a difference's text has, and the program's; nothing where any program will do.
ACCEPTED = tuple(
    (*line.strip().split(" | ")[1:], "")[:2]
    for line in Path(__file__).with_name("accepted_differences.txt").read_text().splitlines()
    if line.strip() and not line.startswith("#")
)


DERIVATIVE = re.compile(r"\bgrad\(|backward\(|functional\.|func\.")


def draw(seed: int) -> Program:
    return Draw(seed).program()


def suitable(program: Program) -> tuple[list[str], list[str]]:
    """The contexts and places that a program can be run in."""
    text = program.source()
    contexts, places = sorted(CONTEXTS), list(PLACES)
    if "t.func." in text or "functional." in text:
        contexts.remove("numpy")  # NumPy has no batched arrays to give
    if "disable_saved" in text:
        contexts = [name for name in contexts if name not in COPYING | {"identity"}]
    if "increment_version" in text:  # what stays on the device by a plan cannot leave any more
        contexts = [name for name in contexts if name != "offload learns"]
    if ".detach_()" in text:  # of what is saved, which a copy does not follow; PyTorch says so
        contexts = [name for name in contexts if name not in COPYING]
    if ".detach_()" in text and ".apply(" in text:
        # What a custom Function has saved, as the tensor itself, has no history any more; what a
        # hook has packed has the history that it had. PyTorch's double backward differs so too.
        contexts = [name for name in contexts if name != "identity"]
    if "to_numpy" in text:
        places = ["thread"]  # nor those of a device
    return contexts, places


def contexts_of(program: Program, number: int) -> list[Program]:
    """The program in some contexts, and around some of its statements."""
    r = random.Random(f"{program.seed} {number}")
    found = []
    contexts, places = suitable(program)
    for _ in range(number):
        names = r.sample(contexts, r.choice((1, 1, 2)))
        if sum(name.startswith("budget") for name in names) > 1:
            del names[1]
        if r.random() < 0.4:
            names.insert(0, r.choice(places))
        size = len(program.statements)
        low, high = r.choice([(0, -1), (0, -1), (r.randrange(size), -1), (0, r.randint(1, size))])
        found.append(replace(program, contexts=tuple(names), low=low, high=high))
    return found


def in_each(program: Program) -> list[Program]:
    """The program in each context once, and in each place."""
    contexts, places = suitable(program)
    names = [(name,) for name in contexts] + [(place, "offload") for place in places]
    return [replace(program, contexts=given) for given in names]


def beside_torch(program: Program, checked: bool = False) -> tuple[Seen, Seen, Difference | None]:
    """What PyTorch does, what cugrad does, and the first thing that it does otherwise.

    `checked`: it was not drawn so, and what it needs is looked at.
    """
    if checked and run(torch, program.source(checked=True), GUARDS).unfit:
        return Seen(), Seen(), None
    print(f"@ {program.seed} PyTorch runs", file=sys.stderr, flush=True)
    want = run(torch, program.source(probed=True))
    print(f"@ {program.seed} cugrad runs", file=sys.stderr, flush=True)
    got = run(cugrad, program.source(probed=True))
    difference = first_difference(program, want, got)
    if difference is not None and is_of_layout(program):
        difference = None
    return want, got, difference


def first_difference(program: Program, want: Seen, got: Seen) -> Difference | None:
    """The first thing that cugrad does otherwise, and that does not stand on the page."""
    if is_more(program, want, got):
        return None
    if says_changed(program, want) and noticed_nothing(want, got):
        return wrongly_silent(program, got)
    found = [
        difference
        for difference in differences(want, got, bits=False, derives=program.derives())
        if not is_accepted(difference, program)
    ]
    if found and is_narrow(program) and all(d.kind in ("value", "grad") for d in found):
        found = beyond_rounding(program, want, got, found)
    if found and is_as_without_checkpoints(program, want, got):
        found = []
    if found and is_second_fault(program, want, got):
        found = []
    return next(iter(found), None)


def is_of_layout(program: Program) -> bool:
    """Whether a difference comes of how the results of ops lie in memory, which is open.

    That is so where some lie otherwise than PyTorch's, and the program with results that lie in
    the order of their dims, in both libraries, has no difference.
    """
    want, got = in_both(program.laid_out("lies"))
    otherwise = not all(map(eq, want.strides, got.strides))
    laid = program.laid_out()
    want, got = in_both(laid)
    if not otherwise and all(map(eq, want.strides, got.strides)):
        return False
    return first_difference(laid, want, got) is None


def in_both(program: Program) -> tuple[Seen, Seen]:
    """What PyTorch and cugrad do."""
    source = program.source(probed=True)
    return run(torch, source), run(cugrad, source)


def is_second_fault(program: Program, want: Seen, got: Seen) -> bool:
    """Whether one library names one of a line's two faults, and the other the other.

    Without the one that can be taken away the library that did not name it still refuses that line
    as it did, and the libraries agree.
    """
    one, two = want.failure, got.failure
    if one is None or two is None or one.line != two.line:
        return False
    line = program.source(probed=True).splitlines()[one.line - 1].strip()
    for kept, gone in ((one, two), (two, one)):
        if gone.word == "unused":
            lenient = "(lambda *a, **k: t.autograd.grad(*a, **k, allow_unused=True))("
            other = line.replace("t.autograd.grad(", lenient)
        elif gone.word in ("made under no_grad", "several views"):
            other = f"with t.no_grad(): {line}"
        else:
            continue
        mended = program.changed(
            lambda head, line=line, other=other: other if head == line else head
        )
        still, got = in_both(mended)
        seen = (still if kept is one else got).failure
        if seen is not None and sort_of(seen) == sort_of(kept):
            return first_difference(mended, still, got) is None
    return False


def is_more(program: Program, want: Seen, got: Seen) -> bool:
    """Whether PyTorch fails for want of something, and cugrad goes past that line."""
    if want.failure is None:
        return False
    if want.failure.types[0] == "MemoryError":  # what it has used up is not the program's
        return True
    # a formula of PyTorch's that is not there, or forgets a shape, or that a gradient is complex
    wrong = "not implemented|not been implemented|returned an invalid gradient|Could this error|"
    wrong += "unsupported ScalarType|INTERNAL ASSERT"
    if re.search(wrong, want.failure.text):
        return True
    # its formula subtracts, where an operand was of bools
    lines = program.source(probed=True).splitlines()
    derives = DERIVATIVE.search(lines[want.failure.line - 1])
    formula = "with (a|two) bool tensor|can't be cast to the desired output type"
    if derives and re.search(formula, want.failure.text):
        return True
    if got.failure is not None and got.failure.line <= want.failure.line:
        return False
    # derivatives that PyTorch does not have; and, on the page, backward for a second time
    words = ("is not implemented", "does not support automatic differentiation",
             "backward through the graph a second", "that has been detached in-place",
             "have different metadata than during the forward")  # fmt: skip
    return any(word in want.failure.text for word in words)


def is_as_without_checkpoints(program: Program, want: Seen, got: Seen) -> bool:
    """Whether cugrad computes what it does without checkpoints, where saved tensors are copies.

    PyTorch's keep what the function itself changes later on, which is on the page. And whether it
    refuses what it refuses without: a tensor that the function uses has been changed since.
    """
    source = program.source(probed=True)
    if want.failure is not None or not re.search(r"checkpoint\(|nested\(", source):
        return False
    refused = got.failure is not None
    if refused and got.failure.word != "changed":
        return False

    def direct(function: Any, *args: Any, **options: Any) -> Any:
        return function(*args)

    real = cugrad.utils.checkpoint.checkpoint
    cugrad.utils.checkpoint.checkpoint = direct
    try:
        if refused:
            plain = run(cugrad, source)
        else:
            copying = replace(program, contexts=("clone",))
            plain = unshifted(run(cugrad, copying.source(), context=entered(copying.contexts)))
    finally:
        cugrad.utils.checkpoint.checkpoint = real
    plain.versions, got = [], replace(got, versions=[])
    return next(differences(plain, got, bits=False), None) is None


def says_changed(program: Program, want: Seen) -> bool:
    """Whether PyTorch stops where what was saved has changed: a view of it may be named instead."""
    if want.failure is None:
        return False
    line = program.source(probed=True).splitlines()[want.failure.line - 1]
    named = "its base or another view of its base has been modified" in want.failure.text
    goes_backward = re.search(r"autograd\.grad\(|backward\(", line)
    return want.failure.word == "changed" or bool(named and goes_backward)


def noticed_nothing(want: Seen, got: Seen) -> bool:
    """Whether cugrad went past the change that PyTorch stops at."""
    if want.failure is None or (got.failure is not None and got.failure.word == "changed"):
        return False
    return got.failure is None or got.failure.line > want.failure.line


def wrongly_silent(program: Program, got: Seen) -> Difference | None:
    """Where PyTorch says that what was saved has changed.

    The gradients of cugrad, which saves other things, must be those with copies of what is saved.
    """
    if "disable_saved" in program.source():
        return None  # there are no copies
    variant = replace(program, contexts=("clone",))
    copied = run(cugrad, variant.source(probed=True), context=entered(variant.contexts))
    found = next(differences(got, unshifted(copied), bits=False), None)
    return found and Difference("silent", found.kind, found.text)


def unshifted(seen: Seen) -> Seen:
    """Lines counted without that of a context, which stands around the whole program."""
    if seen.failure is not None:
        seen.failure = replace(seen.failure, line=seen.failure.line - 1)
    return seen


def is_accepted(difference: Difference, program: Program) -> bool:
    return any(
        re.search(pattern, str(difference)) and re.search(where, program.source())
        for pattern, where in ACCEPTED
    )


def is_narrow(program: Program) -> bool:
    return widened(program) != program.source(probed=True)


def widened(program: Program) -> str:
    """The program's text, in which all floating-point numbers have 64 bits."""
    text = re.sub(r"\b(bfloat16|float16|float32)\b", "float64", program.source(probed=True))
    return text.replace("complex64", "complex128").replace(".float()", ".double()")


def beyond_rounding(
    program: Program, want: Seen, got: Seen, found: list[Difference]
) -> list[Difference]:
    """What is left of differences in number where a program has narrow dtypes.

    Where both libraries agree on the same program of wide ones, what the narrow ones make of it is
    right if it is not much further from that than what they make of it in PyTorch is: a sum that
    nearly cancels, or a quotient by what it leaves, has no number that both would round to.
    """
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
    if not all(isinstance(x, np.ndarray) and np.isfinite(x).all() for x in values):
        return False
    if values[1].dtype != values[2].dtype:
        return False
    right, ours, *theirs = (np.asarray(x, np.complex128) for x in values)
    if any(x.shape != right.shape for x in theirs):
        return False
    return bool(np.abs(ours - right).max() <= 4 * max(np.abs(x - right).max() for x in theirs))


def shaken(program: Program, number: int) -> str:
    """The program's text with the constants of narrow tensors a little larger or smaller."""
    r = random.Random(number)
    steps = {"bfloat16": 2**-7, "float16": 2**-10, "float32": 2**-22, "complex64": 2**-22}

    def moved(literal: re.Match[str]) -> str:
        step = steps.get(literal[2])
        if step is None:
            return literal[0]
        return (
            re.sub(
                r"\d+\.\d+",
                lambda x: repr(float(x[0]) * (1 + step * r.choice((-1, 0, 1)))),
                literal[1],
            )
            + literal[0][len(literal[1]) :]
        )

    pattern = r"(t\.tensor\([^a-z]*(?:j[^a-z]*)*), dtype=t\.(\w+)"
    return re.sub(pattern, moved, program.source(probed=True))


def in_contexts(program: Program, plain: Seen | None = None) -> Difference | None:
    """What cugrad does otherwise in the program's contexts."""
    names = program.contexts
    if plain is None:
        plain = run(cugrad, program.plain().source(probed=True))
    here = tuple(name for name in names if name.startswith("simulated"))
    refused = "" if plain.failure is None else plain.failure.word
    differing = plain.failure is not None and plain.failure.text.startswith("CheckpointError")
    if COPYING & set(names) and differing:
        return None  # the function need not run again for what a hook has kept
    if COPYING & set(names) and refused in ("changed", "made under no_grad", "several views"):
        (*_, name), moving = names, MOVING if here else MOVING_ON_HOST
        return moved(program, here) if {*here, name} == {*names} and name in moving else None
    bits = names != here
    if here and bits:  # the device alone may round otherwise, but contexts on it may not
        source = program.plain().source(probed=True)
        plain = run(cugrad, source, around=lambda: placed(here), thread="thread" in names)
    source = program.source(probed=True)
    got = run(
        cugrad,
        source,
        context=entered(names),
        around=lambda: placed(here),
        thread="thread" in names,
    )
    if here:
        wrong = aftermath()
        if wrong:
            return Difference("aftermath", wrong[:30], wrong)
    opened = source.count("\n", 0, source.find("with context():")) + 1
    if got.failure is not None and got.failure.line > opened:
        got = unshifted(got)
    if got.failure is not None and got.failure.text.startswith("BudgetError"):
        return None  # no plan fits: that is said where the first step ends
    return next(differences(plain, got, bits), None)


def moved(program: Program, here: tuple[str, ...]) -> Difference | None:
    """What a context that moves saved tensors does otherwise than one that copies them.

    For programs that are refused where nobody copies: what was saved has changed.
    """
    variants = replace(program, contexts=(*here, "copies")), program
    want, got = [
        run(
            cugrad,
            variant.source(probed=True),
            context=entered(variant.contexts),
            around=lambda: placed(here),
        )
        for variant in variants
    ]
    return next(differences(want, got, bits=False), None)


class Campaign:
    """Programs one after the other, and what came of them."""

    def __init__(self, contexts: int) -> None:
        self.contexts, self.counts = contexts, Counter[str]()

    def one(self, seed: int) -> None:
        print(f"@ {seed} PyTorch draws", file=sys.stderr, flush=True)
        program = draw(seed)
        self.counts["programs"] += 1
        self.counts["statements"] += program.count()
        try:
            seen, mine, difference = beside_torch(program)
            self.counts["ended by an error"] += seen.failure is not None
            if difference is not None:
                self.report(program, difference)
                return
        except Hang as hang:
            self.report(program, Difference("hang", "", str(hang)))
            return
        for variant in contexts_of(program, self.contexts):
            self.counts["runs in contexts"] += 1
            difference = recheck(variant, mine)
            if difference is not None:
                self.report(variant, difference)

    def report(self, program: Program, difference: Difference) -> None:
        self.counts["differences"] += 1
        program, difference = shrunk(program, difference, recheck)
        print(f"# seed {program.seed}: {difference}\n{program.script()}", flush=True)


def recheck(program: Program, plain: Seen | None = None) -> Difference | None:
    """The difference of a program that may have become another one."""
    try:
        if program.contexts:
            return in_contexts(program, plain)
        return beside_torch(program, checked=True)[2]
    except Hang as hang:
        return Difference("hang", "", str(hang))


def chunk(seed: int, count: int, contexts: int) -> int:
    """Draws and runs so many programs in this process, and prints what came of them."""
    torch.set_num_threads(1)
    # a statement that takes more is refused, and dropped
    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, resource.RLIM_INFINITY))
    search.WORK //= 100  # any plan of a budget will do
    campaign = Campaign(contexts)
    gc.disable()
    for number in range(count):
        try:
            campaign.one(seed + number)
        except Exception:
            print(f"# seed {seed + number}: the generator failed\n{traceback.format_exc()}")
            campaign.counts["differences"] += 1
        if number % 20 == 10:
            gc.collect()
            gc.freeze()  # what is there for good need not be looked at each time
    print("counts", json.dumps(campaign.counts), flush=True)
    return 0
