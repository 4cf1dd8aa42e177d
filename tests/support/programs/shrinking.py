"""Makes a program that shows a difference as short as it will go."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice

from .running import Difference
from .text import Program, Statement

Check = Callable[[Program], "Difference | None"]
SECONDS = 60  # for one difference


def shrunk(program: Program, difference: Difference, check: Check) -> tuple[Program, Difference]:
    """The smallest program found that has a difference of the same kind, and that difference."""
    ends = time.monotonic() + SECONDS
    before = None
    while before != program:
        before = program
        for ways in (fewer_contexts, fewer_statements, simpler_statements, whole_context, merged):
            number = 0
            while time.monotonic() < ends:
                # on after a success: what comes before has been tried
                candidate = next(islice(ways(program), number, None), None)
                if candidate is None:
                    break
                found = same_difference(candidate, difference, check)
                if found is None:
                    number += 1
                else:
                    program, difference = candidate, found
    return program, difference


def same_difference(program: Program, wanted: Difference, check: Check) -> Difference | None:
    try:
        found = check(program)
    except Exception:  # what is left is no program
        return None
    if found is None or "NameError" in found.text:
        return None
    return found if (found.kind, found.what) == (wanted.kind, wanted.what) else None


def fewer_contexts(program: Program) -> Iterator[Program]:
    names = program.contexts
    for number in range(len(names) if len(names) > 1 else 0):
        yield replace(program, contexts=names[:number] + names[number + 1 :])


def fewer_statements(program: Program) -> Iterator[Program]:
    """Without many, then without few, from the end."""
    size = len(program.statements)
    for width in dict.fromkeys((size // 2, size // 4, 2, 1)):
        for low in range(size - width, -1, -max(width, 1)) if width else ():
            yield without(program, low, width)


def simpler_statements(program: Program) -> Iterator[Program]:
    for number, statement in enumerate(program.statements):
        for lines in simpler(statement):
            yield replaced(program, number, lines)


def whole_context(program: Program) -> Iterator[Program]:
    if program.contexts and (program.low, program.high) != (0, -1):
        yield replace(program, low=0, high=-1)


def merged(program: Program) -> Iterator[Program]:
    """Without a line, where later ones say what it was made of."""
    statements = program.statements
    for number, name, other in renamings(statements):
        lines = tuple(renamed(s, name, other) for s in statements[number + 1 :])
        whole = replace(program, statements=statements[: number + 1] + lines)
        yield replaced(whole, number, ())


def without(program: Program, low: int, width: int) -> Program:
    return replaced(program, low, (), width)


def replaced(program: Program, low: int, lines: tuple[Statement, ...], width: int = 1) -> Program:
    """Other lines for some statements; the context stays around the same others."""
    statements = program.statements[:low] + lines + program.statements[low + width :]
    more = len(lines) - width

    def moved(bound: int) -> int:
        return bound if bound <= low else max(low, bound + more)

    high = program.high if program.high < 0 else moved(program.high)
    return replace(program, statements=statements, low=moved(program.low), high=high)


def simpler(statement: Statement) -> Iterator[tuple[Statement, ...]]:
    """What may stand for a statement."""
    if statement.body:
        if not statement.head.startswith(("def", "class")):
            yield statement.body
        for number in range(len(statement.body)):
            inner = statement.body[:number] + statement.body[number + 1 :]
            if inner:
                yield (replace(statement, body=inner),)
        for number, line in enumerate(statement.body):
            for lines in simpler(line):
                yield (
                    replace(
                        statement,
                        body=statement.body[:number] + lines + statement.body[number + 1 :],
                    ),
                )
        return
    for head in simpler_heads(statement.head):
        yield (replace(statement, head=head),)


def simpler_heads(head: str) -> Iterator[str]:
    made = re.match(r"(v\d+) = (.*)", head)
    if made and made[2].startswith("t.tensor("):
        yield from simpler_tensors(head)
    called = re.match(r"(.*)\btotal\((.*?)\)(.*)", head)
    if called:
        names = called[2].split(", ")
        for number in range(len(names)):
            if len(names) > 1:
                rest = ", ".join(names[:number] + names[number + 1 :])
                yield f"{called[1]}total({rest}){called[3]}"
    listed = re.match(r"(.*grad\([^\[]*\[)(v\d+(?:, v\d+)+)(\].*)", head)
    if listed:
        names = listed[2].split(", ")
        for number in range(len(names)):
            yield listed[1] + ", ".join(names[:number] + names[number + 1 :]) + listed[3]
    if made and not made[2].startswith(("t.tensor(", "t.zeros(")):
        for name in dict.fromkeys(re.findall(r"\bv\d+\b", made[2])):
            if made[2] not in (f"{name} * 2", f"{name} * 1", f"{name}"):
                yield f"{made[1]} = {name} * 2"


def simpler_tensors(head: str) -> Iterator[str]:
    """One dim less of a literal, or fewer elements along the first."""
    rows = re.match(r"(v\d+ = t\.tensor\()(\[\[*[^a-z]*?\])(, dtype.*)", head)
    if rows:
        import ast

        try:
            values = ast.literal_eval(rows[2])
        except (ValueError, SyntaxError):
            return
        if len(values) > 1:
            yield f"{rows[1]}{values[:1]}{rows[3]}"
            yield f"{rows[1]}{values[:-1]}{rows[3]}"
        if values and isinstance(values[0], list) and len(values[0]) > 1:
            yield f"{rows[1]}{[row[:1] for row in values]}{rows[3]}"
        if values:
            yield f"{rows[1]}{values[0]}{rows[3]}"


def renamings(statements: tuple[Statement, ...]) -> Iterator[tuple[int, str, str]]:
    """A line `a = b * 2`, or one that makes `a` of `b`: later lines might as well say `b`."""
    for number, statement in enumerate(statements):
        made = re.match(r"(v\d+) = (.*)", statement.head)
        if made and not statement.body:
            for name in dict.fromkeys(re.findall(r"\bv\d+\b", made[2])):
                yield number, made[1], name


def renamed(statement: Statement, name: str, other: str) -> Statement:
    return Statement(
        re.sub(rf"\b{name}\b", other, statement.head),
        tuple(renamed(s, name, other) for s in statement.body),
        tuple(re.sub(rf"\b{name}\b", other, need) for need in statement.needs),
    )
