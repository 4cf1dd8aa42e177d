"""Programs as data: statements that are rendered to source, and what that source may call."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from .helpers_custom import CUSTOM_HELPERS

# What a program may call beside the library `t`; a script contains those that it uses.
HELPERS = {
    "total": '''
def total(*tensors):
    """A real number that depends on all of the tensors."""
    return sum(each(x) for x in tensors if x is not None)
''',
    "each": """
def each(x):
    if x.is_sparse:
        x = x.to_dense()
    if x.is_complex():
        x = x.to(t.complex128)
        return ((x * x.conj()).real + x.real * 0.3 + x.imag * 0.2).sum()
    return (x.to(t.float64).square() * 0.5 + x.to(t.float64) * 0.3).sum()
""",
    "Scaled": """
class Scaled(t.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x * y

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        return (g * y.conj()).sum_to_size(x.shape), (g * x.conj()).sum_to_size(y.shape)
""",
    "Saves": """
class Saves(t.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        result = x.tanh()
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx, g):
        result, = ctx.saved_tensors
        return g * (1 - result * result).conj()
""",
    "Pair": """
class Pair(t.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin(), x * 2

    @staticmethod
    def backward(ctx, g, h):
        x, = ctx.saved_tensors
        return g * x.cos().conj() + h * 2
""",
    "Partly": """
class Partly(t.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        places = x.abs().argmax() + 0
        ctx.mark_non_differentiable(places)
        ctx.save_for_backward(x)
        return x * x, places

    @staticmethod
    def backward(ctx, g, _):
        x, = ctx.saved_tensors
        return 2 * g * x.conj()
""",
    "Doubled": """
class Doubled(t.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x.mul_(2)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx, g):
        return g * 2
""",
    "Once": """
class Once(t.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    @t.autograd.function.once_differentiable
    def backward(ctx, g):
        x, = ctx.saved_tensors
        return g * x.cos().conj()
""",
    "Lone": """
class Lone(t.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.set_materialize_grads(False)
        return x * 3, y.clone()

    @staticmethod
    def backward(ctx, g, h):
        return None if g is None else g * 3, h
""",
    "Whole": """
class Whole(t.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x, y):
        return x.sin() * y

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        return g * (x.cos() * y).conj(), g * x.sin().conj()

    @staticmethod
    def jvp(ctx, a, b):
        x, y = ctx.saved_tensors
        return a * x.cos() * y + x.sin() * b
""",
    "nested": """
def nested(f, *args):
    inner = lambda *a: t.utils.checkpoint.checkpoint(f, *a, use_reentrant=False).sin()
    return t.utils.checkpoint.checkpoint(inner, *args, use_reentrant=False)
""",
    "fused": """
def fused(f):
    def owned(*args):  # what is fused has memory of its own, also where it hands on an argument
        y = f(*args)
        return y.clone() if any(y is x for x in args) else y
    return getattr(t, "fuse", lambda f: f)(owned)
""",
    "recurrent": """
def recurrent(kind, x, layers=1, ways=1, biases=True):
    rows, wide, weights = 2 * {"lstm": 4, "gru": 3}.get(kind, 1), x.shape[-1], []
    for number in range(layers * ways):
        for shape in [(rows, wide), (rows, 2), (rows,), (rows,)][: 4 if biases else 2]:
            places = t.ones(shape, dtype=x.dtype).reshape(-1).cumsum(0) + len(weights)
            weights.append(places.cos().view(shape) * (0.5 + 0.1 * x.mean()))
        wide = 2 * ways if number % ways == ways - 1 else wide
    state = t.ones(layers * ways, x.shape[1], 2, dtype=x.dtype) * x.mean()
    state = (state, state * 0.5) if kind == "lstm" else state
    out, *_, last = getattr(t, kind)(x, state, weights, biases, layers, 0.0, False, ways > 1, False)
    return out + last.mean()
""",
    "layered": """
def layered(layer, *inputs):
    layer = layer.to(inputs[0].data.dtype)
    with t.no_grad():
        for number, p in enumerate(layer.parameters()):
            places = t.arange(p.numel(), dtype=t.float64) + number
            p.copy_(places.cos().view(p.shape) * 0.5)
    out = layer(*inputs)
    while isinstance(out, tuple):
        out = out[0]
    return out
""",
    "Kept": """
class Kept(t.Tensor):
    pass
""",
    "Plain": """
class Plain(t.Tensor):
    __torch_function__ = t._C._disabled_torch_function_impl
""",
    "scattered": """
def scattered(places, values, size):
    return t.sparse_coo_tensor(places, values, size)
""",
    "scattered_densely": """
def scattered_densely(places, values, size):
    dense = t.zeros(size, dtype=values.dtype).index_put(places.unbind(0), values, accumulate=True)

    class Dense:
        def coalesce(self):
            return self

        def to_dense(self):
            return dense

        def values(self):
            return dense[places.unique(dim=1).unbind(0)]

        def __matmul__(self, other):
            return dense @ other

    return Dense()
""",
    "Passing": """
class Passing(t.overrides.TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))
""",
    "elsewhere": """
def elsewhere(params, optimizer):
    return t.enable_grad()
""",
    "trained": '''
def trained(kind, f, *tensors, **settings):
    """Copies of tensors behind some steps, with their gradients and an optimizer's states."""
    params = [t.nn.Parameter(x.detach().clone()) for x in tensors]
    optimizer = getattr(t.optim, kind)(params, lr=0.05, **settings)
    with elsewhere(params, optimizer):
        for step in range(3):
            optimizer.zero_grad(set_to_none=step != 1)
            each(f(*params)).backward(inputs=params)
            optimizer.step()
        kept = [*params, *[p.grad for p in params if p.grad is not None]]
        for p in params:
            state = optimizer.state[p]
            kept += [state[name] for name in sorted(state) if getattr(state[name], "shape", None)]
    wide = t.complex128 if any(x.is_complex() for x in kept) else t.float64
    kept = t.cat([x.detach().to_dense().reshape(-1).to(wide) for x in kept])
    return t.view_as_real(kept).clone() if kept.is_complex() else kept
''',
    "twice": """
def twice(grads):
    return tuple(g if g is None else g * 2 for g in grads)
""",
    "laid": """
def laid(x):
    if not isinstance(x, t.Tensor) or x.is_sparse or not x.numel() or is_shown(x):
        return x
    strides.append(tuple(s for n, s in zip(x.shape, x.stride()) if n > 1) + x.stride()[-1:])
    if x.is_contiguous() and x.stride()[-1:] in ((), (1,)):  # which view(dtype) asks for
        return x
    return x.clone(memory_format=t.contiguous_format)
""",
    "formed": """
def formed(start, count=[0]):
    def given(x):
        count[0] += 1
        kind = (start + count[0]) % 5
        if not isinstance(x, t.Tensor) or x.is_sparse or x._is_view() or not x.numel():
            return x
        if kind == 1 and x.dim() > 1:
            return x.mT.clone(memory_format=t.contiguous_format).mT
        if kind == 2:
            return t.cat([x.reshape(-1)[:1], x.reshape(-1)])[1:].view(x.shape)
        if kind == 3 and x.dim() > 2:
            return x.movedim(1, -1).clone(memory_format=t.contiguous_format).movedim(-1, 1)
        if kind == 4:
            return t.stack([x, x], -1)[..., 0]
        return x
    return given
""",
    "is_shown": """
def is_shown(x):  # whether a view is of what the program has a name for
    if not x._is_view():
        return False
    try:
        place = x.untyped_storage().data_ptr()
        named = [y for y in list(globals().values()) if isinstance(y, t.Tensor)]
        return any(y.untyped_storage().data_ptr() == place for y in named)
    except (AttributeError, RuntimeError):
        return True
""",
    "owned": """
def owned(x):
    if not isinstance(x, t.Tensor) or not x._is_view() or not x.numel() or is_shown(x):
        return x
    hidden.append(x.data_ptr())
    return x.clone()
""",
    "lies": """
def lies(x):
    if isinstance(x, t.Tensor) and not x.is_sparse and x.numel() and not is_shown(x):
        strides.append(tuple(s for n, s in zip(x.shape, x.stride()) if n > 1) + x.stride()[-1:])
    return x
""",
    "led": """
def led(name, x):
    if isinstance(x, (tuple, list)):
        return type(x)(led(f"{name}.{i}", y) for i, y in enumerate(x))
    if isinstance(x, t.Tensor):
        graphs[name] = graph_of(x, list(globals().items())) if x.requires_grad else "none"
    return x
""",
    "graph_of": """
def graph_of(x, names):
    leaves = [y for n, y in names if n[0] == "v" and isinstance(y, t.Tensor)
              and y.is_leaf and y.requires_grad and not y._is_view()]
    weights = t.arange(1, 1 + x.numel(), dtype=t.float64).cos().view(x.shape)
    root = sum((part.to(t.float64) * weights).sum()
               for part in ((x.real, x.imag) if x.is_complex() else (x,)))
    before = [y.grad for y in leaves]
    try:
        for y in leaves:
            y.grad = None
        root.backward(retain_graph=True)  # not grad: a checkpoint with re-entry refuses that
        grads = [y.grad for y in leaves]
    except Exception:
        return "depends"
    finally:
        for y, g in zip(leaves, before):
            y.grad = g
    return "constant" if not any(g is not None and g.abs().sum() for g in grads) else "depends"
""",
    "cut": """
def cut(name, x):
    if isinstance(x, (tuple, list)):
        return type(x)(cut(f"{name}.{i}", y) for i, y in enumerate(x))
    return x.detach() if name in alone else x
""",
    "to_numpy": """
def to_numpy(x):
    return x.detach().numpy().copy()
""",
} | CUSTOM_HELPERS  # fmt: skip


@dataclass(frozen=True)
class Statement:
    """A line, with the lines below it when it opens a block.

    `needs` are calls that must pass before it runs, beside PyTorch, for its result to say anything:
    `clear(x, 0)` where a kink or a tie would make either answer right.
    """

    head: str
    body: tuple[Statement, ...] = ()
    needs: tuple[str, ...] = ()

    def lines(self, checked: bool = False, indent: str = "") -> Iterator[str]:
        if checked:
            yield from (indent + need for need in self.needs)
        yield indent + self.head
        for inner in self.body:
            yield from inner.lines(checked, indent + "    ")

    def laid_out(self, helper: str) -> Statement:
        """What it makes, if that is a tensor, as the helper gives it."""
        made = re.fullmatch(r"(v\d+) = (?!t\.(?:tensor|zeros)\()(.*)", self.head)
        head = f"{made[1]} = {helper}({made[2]})" if made else self.head
        return replace(self, head=head, body=tuple([x.laid_out(helper) for x in self.body]))

    def changed(self, change: Callable[[str], str]) -> Statement:
        body = tuple([inner.changed(change) for inner in self.body])
        return replace(self, head=change(self.head), body=body)

    def count(self) -> int:
        return 1 + sum(inner.count() for inner in self.body)


@dataclass(frozen=True)
class Program:
    """Statements, the seed that they were drawn from, and contexts to run them in.

    A context stands around the statements from `low` to before `high`; -1 is the last and all.
    """

    statements: tuple[Statement, ...]
    seed: int = 0
    contexts: tuple[str, ...] = ()
    low: int = 0
    high: int = -1

    def plain(self) -> Program:
        return replace(self, contexts=())

    def laid_out(self, helper: str = "laid") -> Program:
        """With results that lie in the order of their dims; `lies` only looks how they do, and
        `formed(0)` has them lie in any.
        """
        return replace(self, statements=tuple([s.laid_out(helper) for s in self.statements]))

    def derivatives(self, helper: str) -> Program:
        """With each result of a derivative as the helper gives it, which is told its name."""

        def given(head: str) -> str:
            made = re.fullmatch(r"([vg]\d+) = (.*)", head)
            derives = made and any(word in head for word in DERIVED)
            return f"{made[1]} = {helper}('{made[1]}', {made[2]})" if made and derives else head

        return self.changed(given)

    def changed(self, change: Callable[[str], str]) -> Program:
        """With other lines."""
        return replace(self, statements=tuple([s.changed(change) for s in self.statements]))

    def source(self, checked: bool = False, probed: bool = False) -> str:
        """The text of the program, of `t` and, where there are contexts, of `context`.

        `checked`: with what its statements need; `probed`: with a call of `probe` behind each.
        """
        lines: list[str] = []
        high = len(self.statements) if self.high < 0 else self.high
        for number, statement in enumerate(self.statements):
            inside = bool(self.contexts) and self.low <= number < high
            if inside and number == self.low:
                lines.append("with context():")
            lines.extend(statement.lines(checked, "    " * inside))
            if probed:
                lines.append("    " * inside + "probe()")
        return "\n".join(lines) + "\n"

    def script(self, lib: str = "cugrad") -> str:
        """A file that runs by itself, with either library."""
        text = self.source().replace("with context():", f"with {' + '.join(self.contexts)}:")
        return f"import {lib} as t\n" + helpers_of(text) + text

    def derives(self) -> bool:
        """Whether it computes with derivatives."""
        return any(word in self.source() for word in DERIVED)

    def count(self) -> int:
        return sum(statement.count() for statement in self.statements)


# Calls whose results are derivatives: one that is constant has a graph in one library and none in
# the other, for formulas are written in other ways: the derivative of `2 * x ** 1` is a function of
# x, that of `2 * x` is not.
DERIVED = ("t.func.", "autograd.functional.", "= t.autograd.grad(", "unpack_dual")


def read(text: str) -> Program:
    """The program of a file: its import is left out, and its lines are statements."""
    lines = [
        line for line in text.partition("import cugrad as t")[2].splitlines()[1:] if line.strip()
    ]
    return Program(blocks_of(lines))


def blocks_of(lines: list[str]) -> tuple[Statement, ...]:
    """Lines, with those below them that stand further in."""
    found: list[Statement] = []
    while lines:
        head, *lines = lines
        depth = len(head) - len(head.lstrip())
        below = 0
        while below < len(lines) and len(lines[below]) - len(lines[below].lstrip()) > depth:
            below += 1
        found.append(Statement(head.strip(), blocks_of(lines[:below])))
        lines = lines[below:]
    return tuple(found)


@functools.cache
def helper_code(name: str) -> Any:
    """What defines a helper, compiled."""
    return compile(HELPERS[name], "<helpers>", "exec")


def helpers_of(text: str) -> str:
    """The sources of the helpers that a text calls, and of those that they call."""
    return "".join(HELPERS[name].lstrip("\n") + "\n" for name in names_of_helpers(text))


def names_of_helpers(text: str) -> list[str]:
    used: list[str] = []
    pending = [text]
    while pending:
        words = set(re.findall(r"\w+", pending.pop()))
        for name in HELPERS.keys() & words - set(used):
            used.append(name)
            pending.append(HELPERS[name])
    return [name for name in HELPERS if name in used]
