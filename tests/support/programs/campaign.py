"""Runs programs beside PyTorch, and beside themselves in contexts that must not change them."""

from __future__ import annotations

import gc
import importlib
import json
import random
import re
import resource
import sys
import traceback
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import takewhile

import torch

import cugrad
from cugrad.backends.tables import forget_tables
from cugrad.backends.wanted import wanted
from cugrad.memory.budgeting.planning import search
from tests.support import fake_cuda

from .contexts import (
    CONTEXTS,
    COPYING,
    DEVICES,
    MOVING,
    ON_CUDA,
    ON_GPU,
    PLACES,
    ROUNDING,
    aftermath,
    entered,
    placed,
)
from .drawing import Draw
from .elsewhere import STATES
from .judging import beside_torch, unshifted
from .running import Difference, Hang, Seen, differences, run
from .shrinking import shrunk
from .text import Program, Statement

TOGETHER = 20  # programs, between collections of garbage


def draw(seed: int) -> Program:
    print(f"@ {seed} PyTorch draws", file=sys.stderr, flush=True)
    return Draw(seed).program()


def suitable(program: Program) -> tuple[list[str], list[str]]:
    """The contexts and places that a program can be run in."""
    text = program.source()
    contexts, places = sorted(CONTEXTS.keys() | STATES), list(PLACES)
    if re.search(r"t\.func\.|autograd\.functional\.|is_grads_batched", text):
        contexts.remove("numpy")  # NumPy has no batched arrays to give
    if "disable_saved" in text:
        contexts = [name for name in contexts if name not in COPYING | {"identity"}]
    if "increment_version" in text:  # what stays on the device by a plan cannot leave any more
        contexts = [name for name in contexts if name != "offload learns"]
    if re.search(r"(?m)^ *v\d+\.requires_grad_\(\)$", text) and "create_graph=True" in text:
        # A copy of what was saved before does not know it: its second derivative is none, as with
        # PyTorch's hooks.
        contexts = [name for name in contexts if name not in COPYING | {"identity"}]
    if ".detach_()" in text:  # of what is saved, which a copy does not follow; PyTorch says so
        contexts = [name for name in contexts if name not in COPYING]
    if ".detach_()" in text and ".apply(" in text:
        # What a custom Function has saved, as the tensor itself, has no history any more; what a
        # hook has packed has the history that it had. PyTorch's double backward differs so too.
        contexts = [name for name in contexts if name != "identity"]
    if "mutation" in contexts and ("saved_tensors_hooks" in text or "checkpoint" in text):
        contexts.remove("mutation")  # it has hooks of its own, and refuses others within
    if "to_numpy" in text:
        places = ["thread"]  # nor those of a device
        contexts = [name for name in contexts if name not in STATES]
    return contexts, places


def on_cuda(program: Program, number: int) -> list[Program]:
    """The program there, again and again, with operands that lie otherwise, then in contexts."""
    if re.search(r"to_numpy|DataParallel|autocast|t\.device\('cpu'\)", program.source()):
        return []  # it is of the host
    if program.seed % 2:
        program = program.changed(lambda x: x.replace("float64", "float32").replace("x128", "x64"))
    laid = [program, *[program.laid_out(f"formed({start})") for start in range(2)]]
    if "fused(" in program.source():  # which does not call what counts its calls each time
        laid = [program] * 3
    places = [DEVICES[number % len(DEVICES)] for number in range(len(laid))]
    there = [replace(x, contexts=(place,)) for x, place in zip(laid, places, strict=True)]
    return there + contexts_of(laid[-1], number)


def contexts_of(program: Program, number: int) -> list[Program]:
    """The program in some contexts, and around some of its statements."""
    r = random.Random(f"{program.seed} {number}")
    found = []
    contexts, places = suitable(program)
    source = program.source()
    text = source if STATES.keys() & set(contexts) else ""
    for _ in range(number):
        names = sorted(r.sample(contexts, r.choice((1, 1, 2))), key=lambda n: n not in STATES)
        if "trained" in text and r.random() < 0.3:
            names[0] = r.choice(list(STATES))
        if sum(name.startswith("budget") for name in names) > 1 or {*names} <= STATES.keys():
            del names[1:]
        there = away(names) or ON_CUDA is not None
        if there or r.random() < 0.4:
            names.insert(0, r.choice(places[1:] if there else places))
        size = len(program.statements)
        low, high = r.choice([(0, -1), (0, -1), (r.randrange(size), -1), (0, r.randint(1, size))])
        if "mutation" in names:  # whose graphs may not be used outside
            low, high = 0, -1
        elif "fused" in names and re.search(r"checkpoint\(|nested\(", source):
            low, high = 0, -1  # a checkpoint's second run is fused where its first one was
        elif STATES.keys() & set(names):
            low = max(low, len(leaves_of(program)))
            high = high if high > low else -1
        found.append(replace(program, contexts=tuple(names), low=low, high=high))
    return found


def away(names: list[str]) -> bool:
    """Whether contexts do nothing for tensors on the host."""
    return any(name in STATES and name != "all on disk" for name in names)


def leaves_of(program: Program) -> list[Statement]:
    """The first statements, which make leaves."""
    made = re.compile(r"v\d+ = t\.(tensor|zeros)\(.*requires_grad")
    return list(takewhile(lambda x: made.match(x.head), program.statements))


def in_each(program: Program) -> list[Program]:
    """The program in each context once, and in each place."""
    contexts, places = suitable(program)
    names = [(name,) for name in contexts if name not in STATES]
    names += [(place, "offload") if "offload" in contexts else (place,) for place in places]
    variants = [replace(program, contexts=given) for given in names]
    low, there = len(leaves_of(program)), "simulated random"
    if there not in places or low == len(program.statements):
        return variants
    return variants + [replace(program, contexts=(there, name), low=low) for name in STATES]


# how a checkpoint says that its second run is not as the first
SECOND_RUN = ("CheckpointError", "RuntimeError: none of output has requires_grad")


# how what looks at numbers on the host says that they do not fit
OF_VALUES = re.compile(
    r"out of bounds|lengths contains negative|all rows of lengths|as many elements as the mask"
)


# results that a node copies before they are changed in place, but where a hook has packed them
SPARED = re.compile(
    r"(Hardtanh|Erfinv|LeakyRelu|Hardsigmoid|Softshrink|Hardshrink)Backward0 saved as 'result'"
)


def runs_otherwise(seen: Seen) -> bool:
    """Whether a checkpoint has said that its second run was not as the first."""
    return seen.failure is not None and seen.failure.text.startswith(SECOND_RUN)


def in_contexts(program: Program, plain: Seen | None = None) -> Difference | None:
    """What cugrad does otherwise in the program's contexts."""
    names = program.contexts
    if plain is None:
        plain = run(cugrad, program.plain().source(probed=True))
    here = tuple(name for name in names if name in DEVICES)
    if ON_CUDA is not None and plain.failure is not None and OF_VALUES.search(plain.failure.text):
        return None  # no index is read on a GPU
    if here and names != here:  # the device alone may round otherwise, or save more: contexts not
        source = program.plain().source(probed=True)
        plain = run(cugrad, source, around=lambda: placed(here), thread="thread" in names)
    refused = "" if plain.failure is None else plain.failure.word
    if COPYING & set(names) and runs_otherwise(plain):
        return None  # what a hook has kept is as it was, and where its gradient goes, too
    if COPYING & set(names) and refused in ("changed", "made under no_grad", "several views"):
        name = names[-1]
        if "increment_version(" in program.source():
            return None  # it says that memory has changed already
        return moved(program, here) if {*here, name} == {*names} and name in MOVING else None
    source = program.source(probed=True)
    apart = "function mode" in names and "fused(" in source  # op by op there, and each rounds
    bits = names != here and not ROUNDING & set(names) and not apart
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
    if "all stay there" in names:  # where they have no address for long
        got.aliases = plain.aliases
    if "fused" in names and got.aliases <= plain.aliases:  # results of kernels are no arguments
        got.aliases = plain.aliases
    if "formed(" in source and runs_otherwise(plain) and runs_otherwise(got):
        return None  # how tensors lie changes from call to call, and so what a second run saves
    for seen in (got, plain) if apart else (got,):
        if seen.failure is not None and "that FusedCallBackward saved" in seen.failure.text:
            return None  # it keeps its arguments, which the program has changed
    if got.failure is not None and SPARED.search(got.failure.text):
        return None  # a hook keeps the very memory of what is copied where there is none
    if here and got.failure is not None and "AttentionBackward saved" in got.failure.text:
        return None  # its kernels keep the result, which the program has changed, as PyTorch's do
    if got.failure is not None and "compute it on the CPU" in got.failure.text:
        return None  # CuPy has no such function
    if got.failure is not None and "cannot be run again: one of its inputs" in got.failure.text:
        return None  # what is computed again must be there, where the op itself keeps less
    if got.failure is not None and got.failure.text.startswith("BudgetError"):
        return None  # no plan fits: that is said where the first step ends
    return next(differences(plain, got, bits), None)


def moved(program: Program, here: tuple[str, ...]) -> Difference | None:
    """What a context that moves saved tensors does otherwise than one that copies them.

    For programs that are refused where nothing is copied: what was saved has changed.
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
        program = draw(seed)
        self.counts["programs"] += 1
        self.counts["statements"] += program.count()
        if ON_CUDA is not None and "DataParallel" in program.source():
            return  # where there are GPUs it wants its module there, as PyTorch's does
        try:
            seen, mine, difference = beside_torch(program)
            self.counts["ended by an error"] += seen.failure is not None
            if difference is not None:
                self.report(program, difference)
                return
        except Hang as hang:
            self.report(program, Difference("hang", "", str(hang)))
            return
        for variant in (contexts_of if ON_CUDA is None else on_cuda)(program, self.contexts):
            self.counts["runs in contexts"] += 1
            same = variant.statements == program.statements
            difference = recheck(variant, mine if same else None)
            if difference is not None:
                self.report(variant, difference)
                break

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


def compile_kernels(seeds: Sequence[int], contexts: int) -> None:
    """Those that programs will start on CUDA: in one run of the compiler, not each in its own."""
    with fake_cuda.compiled_together():
        for program in map(draw, seeds):
            print(f"@ {program.seed} cugrad compiles", file=sys.stderr, flush=True)
            for variant in on_cuda(program, contexts):
                source, names = variant.source(), variant.contexts
                with suppress(Exception):
                    run(cugrad, source, context=entered(names), around=partial(placed, names))
    forget_tables()  # which no kernel has filled


def chunk(seed: int, count: int, contexts: int) -> int:
    """Draws and runs so many programs in this process, and prints what came of them."""
    torch.set_num_threads(1)
    importlib.import_module("scipy.special")  # not first where a program has left no memory for it
    # a statement that takes more is refused, and dropped
    if not ON_GPU:  # whose memory has addresses in each process
        resource.setrlimit(resource.RLIMIT_AS, (8 << 30, resource.RLIM_INFINITY))
    search.WORK //= 100  # any plan of a budget will do
    campaign = Campaign(contexts)
    gc.disable()
    gc.collect()
    gc.freeze()  # of what is imported each program's collections need not look at anything
    for first in range(seed, seed + count, TOGETHER):
        seeds = range(first, min(first + TOGETHER, seed + count))
        if wanted.fused and ON_CUDA is not None and not ON_GPU:
            compile_kernels(seeds, contexts)
        for number in seeds:
            try:
                campaign.one(number)
            except Exception:
                print(f"# seed {number}: the generator failed\n{traceback.format_exc()}")
                campaign.counts["differences"] += 1
        gc.collect()
        gc.freeze()  # what is there for good need not be looked at each time
    print("counts", json.dumps(campaign.counts), flush=True)
    return 0
