"""Plants faults in the library, one at a time, and counts those that the tests notice.

`python -m tests.support.mutants --count 100 --seed 1` draws that many small changes of expressions,
runs the tests once to learn which of them reach each, then those, up to the first that fails, on a
copy with the change. What no test reaches, and what none notices, is listed with its line. It takes
the processors about as long as ten runs of the suite. `--first 84` goes on where a run has ended,
and `--tests tests/nn` looks among some tests only. `--in-memory 100` takes a tenth of that: it goes
through what some test reaches until so many are told, in children of one process that has loaded
library and tests; `--table FILE` writes what became of each.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import itertools
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
COMPARED = {ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==",
            ast.Is: "is not", ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in"}  # fmt: skip
COMPUTED = {ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*", ast.FloorDiv: "*",
            ast.Mod: "*", ast.BitAnd: "|", ast.BitOr: "&", ast.LShift: ">>", ast.RShift: "<<",
            ast.Pow: "*"}  # fmt: skip
# Tests that look at the text of the library, or install it: any change is a fault to them.
OF_TEXT = ("test_architecture", "test_packaging", "test_ci_scripts", "test_doctests")
REPORTER = """
import builtins, os
_seen = set()
def __hit__(number, value):
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
    if test and (number, test) not in _seen:
        _seen.add((number, test))
        with open(os.path.join(os.environ["CUGRAD_MUTANT_HITS"], str(os.getpid())), "a") as file:
            file.write(f"{number} {test}\\n")
    return value
builtins.__hit__ = __hit__
"""


@dataclasses.dataclass
class Mutant:
    """One change: of the text between two offsets of a file."""

    path: str
    line: int
    begin: int
    end: int
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.before[:60]!r} -> {self.after[:60]!r}"


def changed(node: ast.AST, text: dict[ast.AST, str]) -> str | None:
    """The text of an expression with a small fault in it; None where there is none to make."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        return f"({text[node.left]} {COMPARED[type(node.ops[0])]} {text[node.comparators[0]]})"
    if isinstance(node, ast.BinOp) and type(node.op) in COMPUTED:
        return f"({text[node.left]} {COMPUTED[type(node.op)]} {text[node.right]})"
    if isinstance(node, ast.BoolOp):
        word = " or " if isinstance(node.op, ast.And) else " and "
        return "(" + word.join(f"({text[v]})" for v in node.values) + ")"
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.USub)):
        return f"({text[node.operand]})"
    if isinstance(node, ast.IfExp):
        return f"({text[node.orelse]} if {text[node.test]} else {text[node.body]})"
    if isinstance(node, ast.Constant) and type(node.value) is bool:
        return str(not node.value)
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return str(node.value + 1)
    return None


def children(node: ast.AST) -> Iterator[ast.AST]:
    """The parts of a node that run when its function does: no annotation, no f-string."""
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list", "pattern", "type_comment"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not isinstance(child, (ast.JoinedStr, ast.arguments)):
                yield child


def mutants_of(path: Path) -> list[Mutant]:
    """Every change of a file that the tool knows to make, in bodies of functions and lambdas."""
    source = path.read_text()
    starts = list(itertools.accumulate((len(x.encode()) for x in source.splitlines(True)),
                                       initial=0))  # fmt: skip
    raw = source.encode()
    found: list[Mutant] = []

    def span(node: Any) -> tuple[int, int]:
        return (starts[node.lineno - 1] + node.col_offset,
                starts[node.end_lineno - 1] + node.end_col_offset)  # fmt: skip

    class Text(dict[ast.AST, str]):
        def __missing__(self, node: ast.AST) -> str:
            begin, end = span(node)
            return "(" + raw[begin:end].decode() + ")"

    def note(node: Any, after: str | None) -> None:
        if after is not None:
            begin, end = span(node)
            name = str(path.relative_to(ROOT))
            found.append(Mutant(name, node.lineno, begin, end, raw[begin:end].decode(), after))

    def walk(node: ast.AST, runs: bool) -> None:
        runs = runs or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        if runs and isinstance(node, (ast.If, ast.While)):
            note(node.test, f"(not {Text()[node.test]})")
        elif runs and isinstance(node, (ast.Return, ast.Expr)):
            if isinstance(node, ast.Return) and node.value or isinstance(node.value, ast.Call):
                note(node.value, "None")
        elif runs and isinstance(node, ast.expr):
            note(node, changed(node, Text()))
        for child in children(node):
            walk(child, runs)

    walk(ast.parse(source), False)
    return [m for m in found if m.after != m.before]


def drawn(count: int, seed: int) -> list[Mutant]:
    """Changes of all files, drawn; no two overlap."""
    every = [m for path in sorted((ROOT / "cugrad").rglob("*.py")) for m in mutants_of(path)]
    kept: list[Mutant] = []
    for mutant in random.Random(seed).sample(every, len(every)):
        if all(m.path != mutant.path or m.end <= mutant.begin or mutant.end <= m.begin
               for m in kept):  # fmt: skip
            kept.append(mutant)
        if len(kept) == count:
            break
    return kept


def plant(tree: Path, changes: list[tuple[Mutant, str]]) -> None:
    """Writes files of a copy anew, with these texts in the places of these changes."""
    for path in {mutant.path for mutant, _ in changes}:
        raw = (ROOT / path).read_bytes()
        here = [(mutant, text) for mutant, text in changes if mutant.path == path]
        for mutant, text in sorted(here, key=lambda pair: -pair[0].begin):
            raw = raw[: mutant.begin] + text.encode() + raw[mutant.end :]
        (tree / path).write_bytes(raw)


def pytest(
    tree: Path, words: list[str], limit: float | None, workers: int = 0, **more: str
) -> int | None:
    """The exit status of the tests on a copy, None where they take longer than `limit` seconds."""
    environment = {**os.environ, "PYTHONPATH": f"{tree}:{tree / 'reporter'}", **more}
    runner = ["tests.support.in_turns", str(workers)] if workers else ["pytest"]
    try:
        return subprocess.run(
            [sys.executable, "-m", *runner, "-q", "-p", "no:cacheprovider", *words], cwd=tree,
            env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=limit,
        ).returncode  # fmt: skip
    except subprocess.TimeoutExpired:
        return None


def reached(tree: Path, mutants: list[Mutant], tests: list[str], workers: int) -> list[list[str]]:
    """The tests that reach each change, in one run of the suite."""
    hits = tree / "hits"
    hits.mkdir()
    plant(tree, [(m, f"__hit__({n}, ({m.before}))") for n, m in enumerate(mutants)])
    pytest(tree, tests, None, workers, CUGRAD_MUTANT_HITS=str(hits))
    plant(tree, [(m, m.before) for m in mutants])
    found: list[set[str]] = [set() for _ in mutants]
    for file in hits.iterdir():
        for line in file.read_text().splitlines():
            number, _, test = line.partition(" ")
            if Path(test.partition("::")[0]).stem not in OF_TEXT:
                found[int(number)].add(test)
    return [sorted(tests) for tests in found]


def spread(tests: list[str], most: int) -> list[str]:
    """At most so many tests, of as many functions as there are."""
    groups = [list(g) for _, g in itertools.groupby(tests, key=lambda name: name.partition("[")[0])]
    turns = itertools.chain.from_iterable(itertools.zip_longest(*groups))
    return list(itertools.islice((test for test in turns if test is not None), most))


def in_memory(
    mutants: list[Mutant], every: list[list[str]], options: argparse.Namespace
) -> list[tuple[Mutant, str, int]]:
    """What became of so many of those that tests reach."""
    from tests.support.mutants_in_memory import collected, fate_of

    reached = [(m, spread(tests, options.most)) for m, tests in zip(mutants, every) if tests]
    random.Random(options.seed).shuffle(reached)
    collected([tests for _, tests in reached])
    told: list[tuple[Mutant, str, int]] = []
    for mutant, tests in reached[: options.in_memory]:
        path, before = ROOT / mutant.path, (ROOT / mutant.path).read_bytes()
        after = before[: mutant.begin] + mutant.after.encode() + before[mutant.end :]
        fate = fate_of(path, before, after, tests, options.limit)
        told.append((mutant, fate, len(tests)))
        print(f"{fate:>11} ({len(tests):5} tests) {mutant}", flush=True)
    return told


def table(told: list[tuple[Mutant, str, int]]) -> str:
    """Each change, and what became of it."""
    lines = ["| where | change | tests | |", "|---|---|---:|---|"]
    for mutant, fate, tests in sorted(told, key=lambda each: (each[0].path, each[0].line)):
        before, after = (" ".join(text.split())[:50] for text in (mutant.before, mutant.after))
        change = f"`{before}` to `{after}`".replace("|", "\\|")
        lines.append(f"| `{mutant.path}:{mutant.line}` | {change} | {tests} | {fate} |")
    return "\n".join(lines) + "\n"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.support.mutants", description=__doc__)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="of those drawn, which to begin with")
    parser.add_argument("--tests", nargs="*", default=[], help="paths; without them all there are")
    parser.add_argument(
        "--list", action="store_true", help="print what is drawn, and plant nothing"
    )
    parser.add_argument("--most", type=int, default=400, help="tests that are run for each")
    parser.add_argument("--limit", type=float, default=600, help="seconds after which they hang")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--in-memory", type=int, default=0, metavar="N", help="see above")
    parser.add_argument("--table", type=Path, help="where to write them in Markdown")
    parser.add_argument("--json", type=Path, help="where to write what became of each")
    options = parser.parse_args(argv)
    mutants = drawn(options.count, options.seed)[options.first :]
    if options.list:
        print(*mutants, sep="\n")
        return 0
    results = []
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        left_out = shutil.ignore_patterns(".git", ".venv*", "__pycache__", "out", ".*_cache")
        shutil.copytree(ROOT, tree, ignore=left_out)
        (tree / "reporter").mkdir()
        (tree / "reporter" / "sitecustomize.py").write_text(REPORTER)
        every = reached(tree, mutants, options.tests, options.workers)
        if options.in_memory:
            told = in_memory(mutants, every, options)
            if options.table:
                options.table.write_text(table(told))
            return 0
        for mutant, tests in zip(mutants, every):
            plant(tree, [(mutant, mutant.after)])
            (tree / "tests.txt").write_text("\n".join(spread(tests, options.most)))
            status = pytest(tree, ["-x", "@tests.txt"], options.limit) if tests else 0
            fate = "not reached" if not tests else "survived" if status == 0 else "caught"
            plant(tree, [(mutant, mutant.before)])
            results.append({"mutant": str(mutant), "fate": fate, "tests": len(tests)})
            print(f"{fate:>11} ({len(tests):5} tests) {mutant}", flush=True)
            if options.json:
                options.json.write_text(json.dumps(results, indent=1))
    for fate in ("caught", "survived", "not reached"):
        print(f"{sum(r['fate'] == fate for r in results):5} {fate}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
