"""Runs a program with PyTorch and with cugrad, and says what differs that is not on the page."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from operator import eq
from pathlib import Path
from typing import Any

import torch

import cugrad

from .contexts import entered
from .rounding import beyond_rounding
from .running import GUARDS, Difference, Seen, differences, run, sort_of
from .text import Program

# What a difference's text has, and the program's, and the op that it comes of; nothing where any
# program, or op, will do.
ACCEPTED = tuple(
    (*line.strip().split(" | ")[1:], "", "")[:3]
    for line in Path(__file__).with_name("accepted_differences.txt").read_text().splitlines()
    if line.strip() and not line.startswith("#")
)

HOOKS_OFF = "graph.disable_saved_tensors_hooks("
DERIVATIVE = re.compile(r"\bgrad\(|backward\(|autograd\.functional\.|func\.")


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
    if says_changed(program, want) and refuses_there(want, got):
        return None
    found = [
        difference
        for difference in differences(want, got, bits=False, derives=program.derives())
        if not is_accepted(difference, program)
    ]
    if found and all(d.kind in ("value", "grad") for d in found):
        found = beyond_rounding(program, want, got, found)
    if found and is_as_without_checkpoints(program, want, got):
        found = []
    if found and is_second_fault(program, want, got):
        found = []
    if found and is_of_constants(program, found):
        found = []
    if found and is_of_hidden_views(program, got):
        found = []
    if found and is_of_sparse_values(program, got):
        found = []
    return next(iter(found), None)


def is_of_constants(program: Program, found: list[Difference]) -> bool:
    """Whether a difference comes of derivatives that have a graph in one library alone.

    Such a one stands on the page if it is constant: where it has a graph, its own derivative is
    nothing. Without the graphs of these the libraries agree.
    """
    kinds = {"" if d.what in ("missing", "extra") else d.kind for d in found}
    known = {"", "log", "error", "tensors"}
    if "use_reentrant=True" in program.source():  # which asks whether an argument requires grad
        known |= {"value", "grad"}
    if not program.derives() or not kinds <= known:
        return False
    looked: list[dict[str, str]] = [{}, {}]
    for lib, graphs in zip((torch, cugrad), looked):
        run(lib, program.derivatives("led").source(probed=True), {"graphs": graphs})
    want, got = looked
    alone = {n for n in want.keys() & got.keys() if {want[n], got[n]} == {"none", "constant"}}
    if not alone:
        return False
    cut = program.derivatives("cut")
    source = cut.source(probed=True)
    seen = run(torch, source, {"alone": alone}), run(cugrad, source, {"alone": alone})
    return first_difference(cut, *seen) is None


def is_of_hidden_views(program: Program, got: Seen) -> bool:
    """Whether cugrad does what PyTorch does with copies of results that are views of what an op
    made within, which is shown nowhere else: that stands on the page.
    """
    hidden: list[int] = []
    want = run(torch, program.laid_out("owned").source(probed=True), {"hidden": hidden})
    left = differences(want, got, bits=False, derives=program.derives())
    return bool(hidden) and all(is_accepted(difference, program) for difference in left)


def is_of_sparse_values(program: Program, got: Seen) -> bool:
    """Whether cugrad does with sparse tensors of places and values what PyTorch does with those of
    dense tensors: its gradient by the values has no graph, so a derivative of it is not complete.
    """
    source = program.source(probed=True)
    if not re.search(r"\bscattered\(", source):
        return False
    want = run(torch, re.sub(r"\bscattered\(", "scattered_densely(", source))
    if is_more(program, want, got):
        return True
    want.versions, got = [], replace(got, versions=[])
    left = differences(want, got, bits=False, derives=program.derives())
    dense = program.changed(lambda head: re.sub(r"\bscattered\(", "scattered_densely(", head))
    return all(is_accepted(difference, dense) for difference in left)


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
    wrong += r"unsupported ScalarType|INTERNAL ASSERT|add\(sparse, dense\) is not supported|"
    wrong += "DispatchKey|fallback doesn't currently support|"
    wrong += "Could not run 'aten::|forward AD with .* that does not support it"
    if re.search(wrong, want.failure.text):
        return True
    # its formula subtracts, where an operand was of bools, or wants operands of one dtype, or that
    # lie otherwise
    lines = program.source(probed=True).splitlines()
    derives = DERIVATIVE.search(lines[want.failure.line - 1])
    formula = "with (a|two) bool tensor|can't be cast to the desired output type|"
    formula += "(must|to) have the same dtype|Found dtype .* but expected|stride divisible by 2"
    if derives and re.search(formula, want.failure.text):
        return True
    if got.failure is not None and got.failure.line <= want.failure.line:
        return False
    # derivatives that PyTorch does not have; and, on the page, backward for a second time
    words = ("is not implemented", "does not support automatic differentiation",
             "backward through the graph a second", "that has been detached in-place",
             "have different metadata than during the forward",
             "yet support saved tensor hooks")  # fmt: skip
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
            allowed = program.changed(lambda x: x.replace(HOOKS_OFF, "profiler.record_function("))
            copying = replace(allowed, contexts=("clone",))
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


def refuses_there(want: Seen, got: Seen) -> bool:
    """Whether cugrad says of the same line that what was saved has changed, of the tensor itself
    where PyTorch may name a view of it.
    """
    one, two = want.failure, got.failure
    return one is not None and two is not None and two.word == "changed" and one.line == two.line


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
        re.search(pattern, str(difference))
        and re.search(where, program.source())
        and (not op or comes_of(program, op, difference))
        for pattern, where, op in ACCEPTED
    )


def comes_of(program: Program, op: str, difference: Difference) -> bool:
    """Whether the libraries have the same numbers without an op, and no such difference: where it
    stood is twice what it was given first.
    """

    def doubled(head: str) -> str:
        if not re.search(op, head):
            return head
        made = re.match(r"(v\d+) = .*?\b(v\d+)\b", head)
        return f"{made[1]} = {made[2]} * 2" if made else "pass"  # a change in place

    without = program.changed(doubled)
    if without.source() == program.source():
        return False
    want, got = in_both(without)
    left = differences(want, got, bits=False, derives=program.derives())
    such = difference.kind, difference.what
    serious = [d for d in left if d.kind in ("value", "grad") or (d.kind, d.what) == such]
    return all(is_accepted(d, without) for d in serious)  # of another op that stands on the page
