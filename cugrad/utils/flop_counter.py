"""torch.utils.flop_counter: floating-point operations of products and convolutions, by module."""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from ..autograd.mode import pop_observer, push_observer
from ..ops.table import CONVOLUTION, PRODUCT, TABLE
from ..profiler.events.flops import backward_flops, flops_of
from ..runtime.absent import explain

__all__ = ["FlopCounterMode", "register_flop_formula"]

Formula = Callable[..., int]
WHOLE = "Global"
SUFFIXES = ("", "K", "M", "B", "T")

# Formulas that users have registered, by the name of the op: each gets the shapes of the operands,
# and of the result as `out_shape`.
flop_registry: dict[str, Formula] = {}


def register_flop_formula(
    targets: str | Iterable[str], get_raw: bool = False
) -> Callable[[Formula], Formula]:
    """Decorates a function that counts an op, or several, named as docs/ops.md names them.

    It is called with the shapes of the operands, and that of the result as `out_shape`; with
    `get_raw` with the operands themselves, and the result as `out_val`. ValueError for a name that
    is no op's, RuntimeError for one that has a formula.
    """
    names = [targets] if isinstance(targets, str) else list(targets)
    for name in names:
        if name not in TABLE:
            raise ValueError(f"register_flop_formula: {name!r} is no op; docs/ops.md lists them")
        if name in flop_registry:
            raise RuntimeError(f"duplicate registrations for {name}")

    def register(formula: Formula) -> Formula:
        counted = formula if get_raw else shape_wrapper(formula)
        flop_registry.update(dict.fromkeys(names, counted))
        return counted

    return register


def shape_wrapper(f: Formula) -> Formula:
    """A formula of shapes as one of operands."""

    def of_operands(*args: Any, out_val: Any = None) -> int:
        return f(*[_shape(x) for x in args], out_shape=_shape(out_val))

    return of_operands


class FlopCounterMode:
    """Counts what is multiplied and added within it: products, convolutions, their gradients.

    A multiplication and an addition are two. Attention counts as the products that it is made of. A
    gradient counts for each operand that gets one as much as the product, in the module that made
    it, where that ran within the context, too. Inside of `vmap` one example counts.

    Args:
        depth: how many levels of modules the table shows.
        display: prints the table at the end.
        custom_mapping: formulas for ops by their names, as `register_flop_formula` takes them.

    >>> import cugrad as torch
    >>> layer = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU())
    >>> with torch.utils.flop_counter.FlopCounterMode(display=False) as counter:
    ...     layer(torch.ones(2, 3, requires_grad=True)).sum().backward()
    >>> counter.get_total_flops()
    144
    >>> counter.get_flop_counts()["Sequential.0"]
    {'linear': 144}
    """

    def __init__(
        self, mods: Any = None, depth: int = 2, display: bool = True,
        custom_mapping: dict[str, Formula] | None = None,
    ) -> None:  # fmt: skip
        if mods is not None:
            warnings.warn("mods argument is not needed anymore, you can stop passing it",
                          stacklevel=2)  # fmt: skip
        self.depth, self.display = depth, display
        self.flop_counts: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        mapping = custom_mapping or {}
        self.flop_registry = {**flop_registry, **{n: shape_wrapper(f) for n, f in mapping.items()}}
        self._names: list[tuple[Any, str]] = []  # the modules that run, and what each is called
        self._begun: list[tuple[Any, ...]] = []  # the operands of the ops that run
        self._nodes: dict[int, tuple[str, int, list[str]]] = {}  # a product by its seq

    def __enter__(self) -> FlopCounterMode:
        for kept in (self.flop_counts, self._names, self._begun, self._nodes):
            kept.clear()
        push_observer(self)
        return self

    def __exit__(self, *error: Any) -> None:
        pop_observer(self)
        if self.display:
            print(self.get_table())

    # ------------------------------------------------------------------ what it has counted

    def get_total_flops(self) -> int:
        """Of all modules, and of what runs in none."""
        return sum(self.flop_counts[WHOLE].values()) if WHOLE in self.flop_counts else 0

    def get_flop_counts(self) -> dict[str, dict[str, int]]:
        """The counts by op, by the name of the module; "Global" has all."""
        return {name: dict(counts) for name, counts in self.flop_counts.items()}

    def get_table(self, depth: int | None = None) -> str:
        """A text of the counts: a line for each module down to `depth`, and for its ops."""
        depth = self.depth if depth is None else depth
        total = self.get_total_flops()
        lines = [("Module", "FLOP", "% Total")]
        for name in [WHOLE, *sorted(n for n in self.flop_counts if n != WHOLE)]:
            level = 0 if name == WHOLE else name.count(".") + 1
            counts = self.flop_counts.get(name, {})
            if level <= depth:
                indent = " " * level
                lines.append(_line(indent + name, sum(counts.values()), total))
                lines += [_line(f"{indent} - {op}", n, total) for op, n in counts.items()]
        widths = [max(len(line[k]) for line in lines) for k in range(3)]
        lines.insert(1, ("-" * widths[0], "-" * widths[1], "-" * widths[2]))
        return "\n".join(
            f"{a:<{widths[0]}}  {b:>{widths[1]}}  {c:>{widths[2]}}".rstrip() for a, b, c in lines
        )

    # ------------------------------------------------------------------ as an observer

    def op_begin(self, name: str, seq: int, args: tuple[Any, ...]) -> None:
        """An op begins."""
        self._begun.append(args)

    def op_end(self, name: str, seq: int, result: Any) -> None:
        """An op has ended: it counts, if it is a product."""
        args = self._begun.pop() if self._begun else ()
        count = self._count(name, args, result)
        if count:
            modules = [WHOLE, *(called for _, called in self._names)]
            self._nodes[seq] = name, count, modules
            self._add(name, count, modules)

    def node_begin(self, node: Any) -> None:
        """A node begins: it counts for each operand that gets a gradient."""
        name, count, modules = self._nodes.get(node.seq, ("", 0, []))
        if count:
            mask = getattr(getattr(node, "plan", None), "mask", 0)
            self._add(name, backward_flops(name, count, mask) or 0, modules)

    def node_end(self, node: Any) -> None:
        """A node has ended."""

    def range_begin(self, name: str, scope: str, nbytes: int, stream: Any, owner: Any) -> None:
        """A module begins, or anything else that takes time."""
        called = ""
        if scope == "module":
            called = type(owner).__name__
            for outer, path in reversed(self._names):
                child = next((n for n, m in outer.named_children() if m is owner), None)
                if child is not None:
                    called = f"{path}.{child}"
                    break
        self._names.append((owner, called) if called else (_NO_MODULE, ""))

    def range_end(self, name: str) -> None:
        """It has ended."""
        if self._names:
            self._names.pop()

    def _count(self, name: str, args: tuple[Any, ...], result: Any) -> int:
        formula = self.flop_registry.get(name)
        if formula is not None:
            return formula(*args, out_val=result)
        op = TABLE.get(name)
        if op is None or op.cost not in (PRODUCT, CONVOLUTION):
            return 0
        return flops_of(name, [_shape(x) for x in args], _shape(result)) or 0

    def _add(self, name: str, count: int, modules: list[str]) -> None:
        for module in dict.fromkeys(modules):
            if module and count:
                self.flop_counts[module][name] += count


class _NoModule:
    def named_children(self) -> list[Any]:
        return []


_NO_MODULE = _NoModule()


def _shape(value: Any) -> list[int] | None:
    shape = getattr(value, "shape", None)
    return None if shape is None else list(shape)


def _line(name: str, count: int, total: int) -> tuple[str, str, str]:
    power = min((len(str(total)) - 1) // 3, len(SUFFIXES) - 1) if total else 0
    shown = f"{count / 1000**power:.3f}{SUFFIXES[power]}" if power else str(count)
    return name, shown, f"{count / total:.2%}" if total else "0%"


explain(__name__)
