"""Statements that make tensors, change them, mark them and hook into them, and regions of such."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch

from . import table
from .drawing import SHAPES, Draw, Ended, same_storage
from .running import overlaps
from .table_layers import LAYERS, LISTS_IN_PLACE
from .table_rare import RARE_IN_PLACE
from .table_seldom import SELDOM_IN_PLACE
from .table_uncommon import UNCOMMON_IN_PLACE
from .text import Statement

Sort = Callable[[Draw], "Statement | None"]

# Tensors ------------------------------------------------------------------------------------------


def leaf(d: Draw) -> Statement | None:
    dtypes = [x for x in d.dtypes if x not in ("int64", "bool")]
    shape = d.random.choice(SHAPES)
    name = d.fresh()
    text = d.tensor(shape, d.random.choice(dtypes), grad=True)
    dice = d.random.random()
    if dice < 0.1 and len(shape) > 1:
        # a clone: PyTorch forgets a leaf that is a view, once a view of it is changed under no_grad
        text = text.replace(", requires_grad=True", "") + ".mT.clone().requires_grad_()"
    statement = Statement(f"{name} = {text}")
    return statement if d.try_(statement, name) else None


def constant(d: Draw) -> Statement | None:
    name = d.fresh()
    dice = d.random.random()
    shape, dtype = d.random.choice(SHAPES), d.random.choice(d.dtypes)
    text = d.tensor(shape, dtype)
    if dice < 0.2:
        text = d.random.choice(
            ["t.ones({}, dtype=t.{})", "t.zeros({}, dtype=t.{})", "t.full({}, 2, dtype=t.{})"]
        ).format(shape, dtype)
    elif dice < 0.3 and dtype in ("float64", "float32"):
        text = d.random.choice([f"t.eye(3, dtype=t.{dtype})", f"t.arange(4, dtype=t.{dtype})",
                                f"t.linspace(-1, 1, 5, dtype=t.{dtype})"])  # fmt: skip
    statement = Statement(f"{name} = {text}")
    return statement if d.try_(statement, name) else None


def op(rows: tuple[table.Row, ...]) -> Sort:
    return lambda d: d.expression(rows)


# Changes ------------------------------------------------------------------------------------------


def changeable(d: Draw, under_no_grad: bool) -> Callable[[Any], bool]:
    def fits(x: Any) -> bool:
        if overlaps(x) or (d.pure and x.is_leaf) or x.is_inference():
            return False
        if d.pure and any(x is y or same_storage(x, y) for y in d.captured):
            return False  # how often a checkpoint does so depends on where its second run ends
        if x.requires_grad and x.is_leaf and not under_no_grad:
            return d.chance(0.03)
        return True

    return fits


def change(d: Draw) -> Statement | None:
    """An in-place op or an assignment; of leaves under no_grad."""
    if not torch.is_grad_enabled():
        return change_of(d, True)
    if d.chance(0.12) and d.scope is None:
        with torch.no_grad():
            made = change_of(d, True)
        return made and Statement("with t.no_grad():", (made,))
    return change_of(d, False)


def change_of(d: Draw, under_no_grad: bool) -> Statement | None:
    tables = [table.IN_PLACE, table.ASSIGNED, table.SHAPE_IN_PLACE, RARE_IN_PLACE, LISTS_IN_PLACE]
    tables += [SELDOM_IN_PLACE, UNCOMMON_IN_PLACE]
    # under no_grad a shape keeps: what the graph knows of a leaf is not told of it in PyTorch
    rows = d.random.choices(tables, [6, 4, 0.7 * (not under_no_grad), 4, 1, 2, 1])[0]
    row = d.random.choice(rows)
    if row.needs and d.unguarded:
        return None
    kind, fits = d.fits(row), changeable(d, under_no_grad)
    x = d.pick(lambda x: kind(x) and fits(x))
    made = x and d.filled(row, x)
    if not made or x is None:
        return None
    for name in d.names():
        # docs/torch-compatibility.md, `y.mul_(y)`: differentiable in cugrad alone
        others = made[0].replace(x, " ", 1)
        if name in words(others) and same_storage(d.env[name], d.env[x]):
            return None
    if not d.wild and torch.is_grad_enabled() and d.scope is None and d.chance(0.5):
        # a copy is changed, which was not saved
        return None
    statement = Statement(made[0], needs=made[1])
    return statement if d.try_(statement, x, changes=True) else None


def words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text))


def copy_and_change(d: Draw) -> Statement | None:
    x = d.pick_float()
    if x is None:
        return None
    name = d.fresh()
    statement = Statement(f"{name} = {x}.clone()" if d.chance(0.6) else f"{name} = {x} * 1")
    if not d.try_(statement, name):
        return None
    if d.scope is not None:
        d.scope.append(name)
    return statement


def flag(d: Draw) -> Statement | None:
    x = d.pick_float()
    if x is None or d.scope is not None:
        return None
    tensor = d.env[x]
    choices = [f"{x}.retain_grad()"] if d.hooked else [f"{x}.is_leaf"]
    if not tensor.requires_grad:
        # docs/torch-compatibility.md, a view of a tensor that starts to require grad
        if tensor._is_view() or any(n != x and same_storage(d.env[n], tensor) for n in d.names()):
            return None
        choices = [f"{x}.requires_grad_()"]
    elif tensor.is_leaf:
        choices = [f"{x}.requires_grad_(False)"] if d.chance(0.2) else [f"{x}.retain_grad()"]
    elif not tensor._is_view():
        choices += [f"{x}.detach_()"] * d.chance(0.3)
    statement = Statement(d.random.choice(choices))
    return statement if d.try_(statement, changes=True) else None


# Regions ------------------------------------------------------------------------------------------

AUTOCAST = "t.autocast('cpu', dtype=t.bfloat16)"
REGIONS = {
    "t.no_grad()": 3, "t.enable_grad()": 1, "t.set_grad_enabled(False)": 1,
    "t.inference_mode()": 0.5,
    # hooks that copy: what one that keeps the tensor itself does not notice is on the page
    "t.autograd.graph.saved_tensors_hooks(lambda x: x.detach().clone(), lambda x: x)": 1,
    "t.autograd.graph.saved_tensors_hooks(to_numpy, lambda x: t.from_numpy(x))": 1,
    "t.autograd.graph.saved_tensors_hooks(lambda x: x.clone(), lambda x: x.clone())": 0.5,
    # not save_on_cpu: PyTorch's copies nothing on a host, and what is changed then goes unnoticed
    "t.autograd.graph.disable_saved_tensors_hooks('off')": 0.5,
    "t.autograd.profiler.record_function('range')": 0.5,
    "t.autograd.set_grad_enabled(True)": 0.5,
    "t.device('cpu')": 0.3,
    "t.autograd.set_multithreading_enabled(False)": 0.2,
    "Passing()": 0.5,
    AUTOCAST: 1,
}  # fmt: skip


def region(d: Draw, more: Sequence[Sort] = ()) -> Statement | None:
    """A few statements within a context of PyTorch's; `more`: of these sorts, too."""
    if d.scope is not None:
        return None
    header = d.random.choices(list(REGIONS), list(REGIONS.values()))[0]
    if more and (header == "t.inference_mode()" or "to_numpy" in header):
        # docs/torch-compatibility.md, `func.grad` and its like in inference mode; saved-tensor
        # hooks around `vmap`
        return None
    body: list[Statement] = []
    sorts = [
        op(table.POINTWISE),
        op(table.BINARY),
        op(table.VIEWS),
        op(table.REDUCING),
        change,
        change,
        *more,
        *more,
    ]
    if header == AUTOCAST:
        sorts += [op(table.MATRICES), op(LAYERS)] * 2
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        manager = eval(header, d.env)
        with manager:
            for _ in range(d.random.randint(1, 4)):
                try:
                    made = d.random.choice(sorts)(d)
                except Ended as end:
                    raise Ended(Statement(f"with {header}:", (*body, end.args[0]))) from None
                if made is not None:
                    body.append(made)
    return Statement(f"with {header}:", tuple(body)) if body else None


# Hooks --------------------------------------------------------------------------------------------


def hook(d: Draw) -> Statement | None:
    """A hook of a tensor, of a leaf's accumulation or of a node; most write into the log."""
    x = d.pick_float(lambda x: x.requires_grad and not x.is_inference())
    if x is None or d.scope is not None or not (d.hooked or d.env[x].is_leaf):
        return None
    tensor, mark = d.env[x], d.fresh("h")
    if tensor._is_view() and (tensor.is_leaf or tensor._version):
        return None  # PyTorch's process ends by a signal when it registers a hook there
    forms = [
        f"{x}.register_hook(lambda g: log.append('{mark}'))",
        f"{x}.register_hook(lambda g: g * 2)",
        f"{x}.register_hook(lambda g: log.append('{mark}') or g.clone().mul_(.5))",
        f"{x}.register_hook(derived)",
    ]
    if tensor.is_leaf:
        forms += [
            f"{x}.register_post_accumulate_grad_hook(lambda p: log.append('{mark}'))",
            f"{x}.register_post_accumulate_grad_hook(lambda p: [p.grad.mul_(.5)] and None)",
        ]
    elif not any(n != x and same_storage(d.env[n], tensor) for n in d.names()):
        # a view whose base was changed has its own node anew, see docs/torch-compatibility.md
        forms += [
            f"{x}.grad_fn.register_hook(lambda gi, go: log.append('{mark}'))",
            f"{x}.grad_fn.register_prehook(lambda go: log.append('{mark}'))",
            f"{x}.grad_fn.register_prehook(twice)",
        ]
    other = d.pick_float(lambda y: y.requires_grad and not y.is_inference() and not y._is_view())
    leaf = tensor.is_leaf or (other is not None and d.env[other].is_leaf)  # more than PyTorch has
    if d.hooked and other not in (None, x) and not tensor._is_view() and not leaf:
        both = f"t.autograd.graph.register_multi_grad_hook(({x}, {other}),"
        forms.append(f"{both} lambda g: log.append('{mark}'))")
        forms.append(f"{both} lambda g: log.append('{mark}'), mode='any')")
    statement = Statement(d.random.choice(forms))
    return statement if d.try_(statement, changes=True) else None
