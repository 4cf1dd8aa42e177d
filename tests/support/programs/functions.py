"""Statements that define a function and call it: checkpoints, transforms, forward mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from . import table
from .drawing import Draw, Ended, Spoiled
from .running import overlaps
from .statements import Sort, change, copy_and_change, op, region
from .table_layers import LAYERS
from .table_rare import RARE
from .table_recurrent import RECURRENT
from .table_seldom import SELDOM
from .table_sparse import SPARSE
from .text import Statement

# Functions ----------------------------------------------------------------------------------------

CUSTOM = table.rows_of("""
Saves.apply({x})
Scaled.apply({x}, {y})
Pair.apply({x})[0]
sum(Pair.apply({x}))
Partly.apply({x})[0]  real
Partly.apply({x})[1]  real | apart({x})
Once.apply({x})
Lone.apply({x}, {y})[0]
Lone.apply({x}, {y})[1]
sum(Lone.apply({x}, {x} * 2))
Whole.apply({x}, {x} * .5)
Doubled.apply({x}.clone())
Doubled.apply({x} * 1)
Inner.apply({x})
Mapped.apply({x})
Shown.apply({x})
Passed.apply({x}, {y})[0]
sum(Passed.apply({x}, {x}))
Chosen.apply({x}, {c}, {y})
Halved.apply({x} * 1)
Halved.apply({x}.clone().view(-1))
""")


def body_of(
    d: Draw,
    parameters: list[str],
    arguments: list[Any],
    unguarded: bool,
    sorts: list[Sort],
    result: str = "tensor",
    constant: bool = False,
) -> tuple[Statement, ...] | None:
    """The lines of a function, drawn on arguments, up to its return; `constant`: what it closes
    over requires no gradients.
    """
    outer = [n for n in d.names() if d.env[n].is_floating_point()] if d.chance(0.25) else []
    outer = [n for n in outer if not (constant and d.env[n].requires_grad)]
    before, d.captured = dict(d.env), [d.env[n] for n in outer[:2]]
    lines: list[Statement] = []
    for parameter, argument in zip(parameters, arguments):
        d.env[parameter] = argument
    try:
        with d.within([*parameters, *outer[:2]], True, unguarded):
            for _ in range(d.random.randint(1, 5)):
                try:
                    made = d.random.choice(sorts)(d)
                except (Spoiled, Ended):
                    return None
                if made is not None:
                    lines.append(made)
            assert d.scope is not None
            own = [
                n
                for n in d.scope
                if n in d.env
                and n not in outer
                and (d.env[n].is_floating_point() or d.env[n].is_complex())
            ]
    finally:
        d.env = before
    own = [n for n in own if n not in parameters] or own
    if not own or not lines:
        return None
    last = own[-1]
    if result == "scalar":
        lines.append(Statement(f"return each({last})"))
    elif result == "pair":
        lines.append(Statement(f"return {last} * 1, {d.random.choice(own)} * 2"))
    else:
        lines.append(Statement(f"return {last}"))
    return tuple(lines)


INSIDE: list[Sort] = [
    op(table.POINTWISE), op(table.POINTWISE), op(table.BINARY), op(table.BINARY),
    op(table.REDUCING), op(table.INDEXING), op(table.MATRICES), op(table.VIEWS), op(table.VIEWS),
    copy_and_change, change, op(RARE),
    op(CUSTOM), op(RECURRENT), op(SPARSE), op(LAYERS), op(SELDOM),
]  # fmt: skip

CHECKPOINTS = [
    "t.utils.checkpoint.checkpoint({f}, {a}, use_reentrant=False)",
    "t.utils.checkpoint.checkpoint({f}, {a}, use_reentrant=False)",
    "t.utils.checkpoint.checkpoint({f}, {a}, use_reentrant=True)",
    "t.utils.checkpoint.checkpoint({f}, {a}, use_reentrant=False, preserve_rng_state=False)",
    "t.utils.checkpoint.checkpoint(lambda *a: {f}(*a) * 2, {a}, use_reentrant=False)",
    "t.autocast('cpu', dtype=t.bfloat16)(lambda *a:"
    " t.utils.checkpoint.checkpoint({f}, *a, use_reentrant=False))({a})",
    "nested({f}, {a})",
    "{f}({a})",
]


def checkpointed(d: Draw) -> Statement | None:
    """A function that a checkpoint calls."""
    return function(d, CHECKPOINTS, INSIDE)


FUSED = ["fused({f})({a})", "fused({f})({a})", "fused(lambda *a: {f}(*a).sin())({a})",
         "t.utils.checkpoint.checkpoint(fused({f}), {a}, use_reentrant=False)"]  # fmt: skip


def fusible(d: Draw) -> Statement | None:
    """A function of elements, which one kernel computes."""
    return function(d, FUSED, [op(table.POINTWISE), op(table.POINTWISE), op(table.BINARY)])


# What divides by the root of a gradient's square adds so much to it that what is rounded is small.
TRAINED = [
    "trained('SGD', {f}, {a})",
    "trained('SGD', {f}, {a}, momentum=.9, nesterov=True, weight_decay=.1)",
    "trained('Adam', {f}, {a}, eps=.1)",
    "trained('Adam', {f}, {a}, eps=.1, amsgrad=True, maximize=True)",
    "trained('AdamW', {f}, {a}, eps=.1)",
    "trained('NAdam', {f}, {a}, eps=.1)",
    "trained('RAdam', {f}, {a}, eps=.1)",
    "trained('Adamax', {f}, {a}, eps=.1)",
    "trained('Adagrad', {f}, {a}, eps=.1)",
    "trained('Adadelta', {f}, {a}, eps=.1)",
    "trained('RMSprop', {f}, {a}, eps=.1, momentum=.9, centered=True)",
    "trained('ASGD', {f}, {a})",
    "trained('SGD', {f}, {a}, momentum=.9, dampening=.2, foreach=True)",
    "trained('Adam', {f}, {a}, eps=.1, weight_decay=.1, foreach=True)",
    "trained('AdamW', {f}, {a}, eps=.1, amsgrad=True, foreach=True)",
]


def trained(d: Draw) -> Statement | None:
    """What an optimizer makes of a few parameters in a few steps."""
    return function(d, TRAINED, INSIDE, lambda x: 0 < x.numel() <= 6 and not is_half(x))


def is_half(x: Any) -> bool:
    return bool(x.dtype in (torch.float16, torch.bfloat16))


def function(
    d: Draw, forms: list[str], sorts: list[Sort], fits: Callable[[Any], bool] = lambda x: True
) -> Statement | None:
    names = [n for n in (d.pick_float(fits), d.pick_float(fits)) if n is not None]
    if d.scope is not None or not names:
        return None
    names = list(dict.fromkeys(names))
    parameters = [d.fresh() for _ in names]
    if any(d.env[n].requires_grad and d.env[n].is_inference() for n in names):
        return None  # nothing stands for it in a draft of the function
    samples = [
        d.env[n].detach().requires_grad_() if d.env[n].requires_grad else d.env[n].detach()
        for n in names
    ]
    made = body_of(d, parameters, samples, False, sorts)
    if made is None:
        return None
    return called(d, parameters, made, d.random.choice(forms), ", ".join(names))


def called(
    d: Draw,
    parameters: list[str],
    lines: tuple[Statement, ...],
    form: str,
    arguments: str,
    first: str = "",
) -> Statement | None:
    """A function and its call, as one statement: the definition stands within an `if`."""
    function, name = d.fresh("f"), d.fresh()
    define = Statement(f"def {function}({', '.join(parameters)}):", lines)
    call = Statement(f"{name} = " + form.format(f=function, a=arguments, x=first))
    if not d.try_(define):
        return None
    try:
        made = d.try_(call, name, changes=True) and isinstance(d.env.get(name), torch.Tensor)
    except Ended:  # by the call alone, of a function that nothing would define
        made = False
    if not made:
        d.env.pop(name, None)
        raise Spoiled
    return Statement("if True:", (define, call))


# Form, what f returns, what its parameters are: "rows", elements along dim 0, "rows of rows", those
# along dims 0 and 1, "last rows", those along the last, or "whole". A copy of
# what is no vmap, for its layout, and with whom it shares memory, are open: "!".
TRANSFORMS = [
    ("t.func.vmap({f})({a})", "tensor", "rows"),
    ("t.func.vmap({f})({a})", "tensor", "rows"),
    # a copy: PyTorch returns its input itself, or of no elements a shape from anywhere
    ("t.func.vmap({f}, out_dims=-1)({a})!", "tensor", "rows"),
    (
        "t.func.vmap({f}, in_dims=(0,) + (None,) * ({a},).__len__())({x}, {a})",
        "tensor",
        "first row",
    ),
    ("sum(t.func.vmap({f})({a}))", "pair", "rows"),
    ("t.func.vmap({f}, chunk_size=1)({a})", "tensor", "rows"),
    ("t.func.grad({f})({a})!", "scalar", "whole"),
    ("t.func.grad_and_value({f})({a})[1]!", "scalar", "whole"),
    ("t.func.vmap(t.func.grad({f}))({a})!", "scalar", "rows"),
    (
        "t.func.grad(lambda *a: t.func.grad({f})(*a).sin().square().sum())({a})!",
        "scalar",
        "whole",
    ),
    ("t.func.jvp({f}, ({a},), ({a},))[1]!", "tensor", "whole"),
    ("t.func.vjp({f}, {a})[1](t.ones_like({f}({a})))[0]!", "tensor", "whole"),
    # docs/torch-compatibility.md: PyTorch's derivative has the point, and what f closes over, as
    # numbers: both are constant
    ("t.func.linearize({f}, *[x.detach() for x in ({a},)])[1]({a})!", "tensor", "whole"),
    # several gradients at once, forward mode over a backward pass, and a backward pass over it
    (
        "t.func.vmap(t.func.vjp({f}, {a})[1])(t.stack([{f}({a}).detach().sin()] * 2))[0]!",
        "tensor",
        "whole",
    ),
    ("t.func.jvp(t.func.grad({f}), ({a},), ({a},))[1]!", "scalar", "whole"),
    ("t.func.grad(lambda *a: t.func.jvp({f}, a, a)[1])({a})!", "scalar", "whole"),
    ("t.func.grad(lambda *a: each(t.func.jvp({f}, a, a)[1]))({a})!", "tensor", "whole"),
    ("t.func.vmap(lambda *a: t.func.jvp({f}, a, a)[1])({a})!", "tensor", "rows"),
    (
        "t.func.jvp(lambda *a: t.func.vjp({f}, *a)[1]({f}(*a))[0], ({a},), ({a},))[1]!",
        "tensor",
        "whole",
    ),
    (
        "t.func.vmap(lambda *a: t.func.jvp(t.func.grad({f}), a, a)[1])({a})!",
        "scalar",
        "rows",
    ),
    ("t.func.vmap(t.func.vmap({f}))({a})", "tensor", "rows of rows"),
    ("t.func.vmap(t.func.vmap({f}), in_dims=-1)({a})!", "tensor", "rows of last rows"),
    ("t.func.vmap({f}, in_dims=-1)({a})", "tensor", "last rows"),
    ("t.func.jvp(t.func.vmap({f}), ({a},), ({a},))[1]!", "tensor", "rows"),
    ("t.func.jvp(lambda *a: t.func.jvp({f}, a, a)[1], ({a},), ({a},))[1]!", "tensor", "whole"),
    ("t.func.grad(lambda *a: each(t.func.vmap({f})(*a)))({a})!", "tensor", "rows"),
    ("t.func.jvp(t.func.vmap(t.func.grad({f})), ({a},), ({a},))[1]!", "scalar", "rows"),
    (
        "t.func.vmap(t.func.grad(lambda *a: t.func.jvp({f}, a, a)[1]))({a})!",
        "scalar",
        "rows",
    ),
    ("t.func.vmap(t.func.vmap(t.func.grad({f})))({a})!", "scalar", "rows of rows"),
    ("t.func.vmap(t.func.hessian({f}))({a})!", "scalar", "small rows"),
    ("t.func.jacrev(t.func.vmap({f}))({a})!", "tensor", "small rows"),
    ("t.func.jacfwd(t.func.vmap({f}))({a})!", "tensor", "small rows"),
    ("t.func.jacrev({f}, chunk_size=2)({a})!", "tensor", "small"),
    ("t.func.jacrev({f})({a})!", "tensor", "small"),
    ("t.func.jacfwd({f})({a})!", "tensor", "small"),
    ("t.func.hessian({f})({a})!", "scalar", "small"),
    ("t.func.jacrev(t.func.jacfwd({f}))({a})!", "scalar", "small"),
    ("t.func.jacfwd(t.func.grad({f}))({a})!", "scalar", "small"),
    ("t.func.vmap(t.func.jacrev({f}))({a})!", "tensor", "rows"),
    (
        "t.autograd.functional.jacobian({f}, ({a},), create_graph=True)[0]!",
        "tensor",
        "small",
    ),
    (
        "t.autograd.functional.hessian({f}, ({a},), create_graph=True)[0][0]!",
        "scalar",
        "small",
    ),
    (
        "t.autograd.functional.vjp({f}, ({a},), {f}({a}), create_graph=True)[1][0]!",
        "tensor",
        "small",
    ),
    (
        "t.autograd.functional.jvp({f}, ({a},), ({a},), create_graph=True)[1]!",
        "tensor",
        "small",
    ),
    (
        "t.autograd.functional.hvp({f}, ({a},), ({a},), create_graph=True)[1][0]!",
        "scalar",
        "small",
    ),
]
WITHIN_TRANSFORMS: list[Sort] = [
    op(table.POINTWISE), op(table.POINTWISE), op(table.BINARY), op(table.BINARY),
    op(table.REDUCING), op(table.INDEXING), op(table.MATRICES), op(table.VIEWS), op(table.VIEWS),
    copy_and_change, change, op(RARE), op(RECURRENT), op(LAYERS), op(CUSTOM),
]  # fmt: skip


# The dims that the maps of a form take away, one after the other.
EXAMPLES: dict[str, tuple[int, ...]] = {
    "rows": (0,), "small rows": (0,), "first row": (0,), "rows of rows": (0, 0), "last rows": (-1,),
    "rows of last rows": (-1, 0),
}  # fmt: skip


def example(x: Any, mapped: tuple[int, ...]) -> Any:
    for dim in mapped:
        x = x.select(dim, 0)
    return x


def sizes_along(x: Any, mapped: tuple[int, ...]) -> list[int]:
    """How many examples there are along each dim that a map takes away."""
    return [example(x, mapped[:number]).shape[dim] for number, dim in enumerate(mapped)]


def transform(d: Draw) -> Statement | None:
    form, result, way = d.random.choice(TRANSFORMS)
    form = form.replace("!", ".clone(memory_format=t.contiguous_format)")
    if d.scope is not None:
        return None
    mapped = EXAMPLES.get(way, ())
    limit = 6 if "small" in way else 20
    real = result == "scalar" or "jac" in form or "hess" in form
    first = d.pick(
        lambda x: (
            (x.is_floating_point() or (x.is_complex() and not real))
            and (not mapped or x.dim() >= len(mapped) and x.numel() > 0)
            and x.numel() <= limit
            and not x.is_inference()
        )
    )
    if first is None:
        return None
    names, sizes = [first], sizes_along(d.env[first], mapped)
    if d.chance(0.3) and way != "first row":
        second = d.pick(
            lambda x: (
                x.is_floating_point()
                and x.numel() <= limit
                and not x.is_inference()
                and (x.dim() >= len(mapped) and x.numel() > 0 or not mapped)
                and sizes_along(x, mapped) == sizes
            )
        )
        names += [second] if second not in (None, first) else []
    arguments = ", ".join(n for n in names if n is not None)
    if way == "first row":
        other = d.pick_float(lambda x: not x.is_inference())
        if other is None or other == first:
            return None
        names, arguments = [first, other], other
    samples = [d.env[n].detach() for n in names if n is not None]
    whole, samples = (
        samples,
        [x if way == "first row" and i else example(x, mapped) for i, x in enumerate(samples)],
    )
    parameters = [d.fresh() for _ in names]
    if "jvp" in form or "jacfwd" in form or "hessian" in form:
        if any(overlaps(x) for x in (whole if "t.func.jvp(t.func.vmap" in form else samples)):
            return None  # docs/torch-compatibility.md, a tangent for an expanded tensor
    constant = "linearize" in form
    made = body_of(d, parameters, samples, True, WITHIN_TRANSFORMS, result, constant)
    if made is None:
        return None
    statement = called(d, parameters, made, form, arguments, first)
    if statement is not None and "out_dims" in form:
        # PyTorch gives what is the same for all examples a shape from anywhere
        name, _, text = statement.body[1].head.partition(" = ")
        plain = eval(text.replace(", out_dims=-1", ""), d.env)
        if not torch.equal(d.env[name], plain.movedim(0, -1)):
            raise Spoiled
    return statement


# What is seen of a function of a dual tensor: its tangent, or that of a gradient.
FORWARD = "t.autograd.forward_ad"
TANGENTS = [
    "{y}", "{y}",
    "t.autograd.grad(each({y}), {p}, create_graph=True)[0]",
    "t.autograd.grad({y}, {p}, " + FORWARD + ".make_dual({y}.detach(), {y}.detach() * .3),"
    " retain_graph=True)[0]",
]  # fmt: skip


def dual(d: Draw) -> Statement | None:
    """A derivative in forward mode, which later lines use."""
    x = d.pick_float(lambda x: not x.is_inference() and not overlaps(x))
    if x is None or d.scope is not None:
        return None
    parameter, name = d.fresh(), d.fresh()
    # unguarded, without the norms: PyTorch's derivative of a tangent of layer_norm is wrong
    made = body_of(d, [parameter], [d.env[x].detach()], True, WITHIN_TRANSFORMS)
    if made is None:
        return None
    returned = made[-1].head.partition(" ")[2]
    form = d.random.choice(TANGENTS if not d.hooked and d.env[x].requires_grad else TANGENTS[:1])
    seen = form.format(y=returned, p=parameter)
    body = (
        Statement(f"{parameter} = {FORWARD}.make_dual({x}, {x} * .5)"),
        *made[:-1],
        Statement(f"{name} = {FORWARD}.unpack_dual({seen}).tangent"),
    )
    statement = Statement(f"with {FORWARD}.dual_level():", body)
    before = dict(d.env)
    if not d.try_(statement, name, changes=True) or not isinstance(d.env.get(name), torch.Tensor):
        raise Spoiled
    made_tensor = d.env[name]
    d.env = before | {name: made_tensor}
    ends = Statement("del " + ", ".join(sorted(names_of(body) - {name})))
    return Statement(statement.head, (*body, ends)) if names_of(body) - {name} else statement


def names_of(body: tuple[Statement, ...]) -> set[str]:
    """What the lines of a block assign to."""
    return {
        s.head.partition(" = ")[0]
        for s in body
        if " = " in s.head and s.head[0] == "v" and s.head.partition(" = ")[0][1:].isdigit()
    }


def around(d: Draw) -> Statement | None:
    """Transforms, checkpoints and custom Functions within a region."""
    return region(d, [transform, checkpointed, dual, op(CUSTOM)])
