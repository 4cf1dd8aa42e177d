"""What programs answer that PyTorch's own autograd tests are made of: each is run on both."""

from __future__ import annotations

import contextlib
import functools
import itertools
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cugrad
from cugrad.ops.table import TABLE
from tests.support.pinned_torch import cases

torch = pytest.importorskip("torch")
Program = Callable[[Any], Any]
PROGRAMS: dict[str, Program] = {}


def described(value: Any) -> Any:
    """A value of either library in terms that can be compared."""
    if isinstance(value, (torch.Tensor, cugrad.Tensor)):
        kind = str(value.dtype).rpartition(".")[2]
        numbers = np.round(np.asarray(value.detach().tolist()), 6) + 0
        return kind, tuple(value.shape), numbers.tolist(), bool(value.requires_grad)
    if isinstance(value, (list, tuple)):
        return [described(x) for x in value]
    return value


def outcome(program: Program, lib: Any) -> Any:
    """What a program answers, or the error it ends in, and the warnings on the way."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.filterwarnings("ignore", category=DeprecationWarning)  # PyTorch's, of its own code
        warnings.filterwarnings("ignore", "index_reduce")  # "is in beta"
        warnings.filterwarnings("ignore", category=RuntimeWarning)
        try:
            answer = described(program(lib))
        except RuntimeError as error:
            answer = isinstance(error, NotImplementedError), str(error)[:30]
    return answer, [(w.category.__name__, str(w.message)[:60]) for w in caught]


def program(function: Program) -> Program:
    PROGRAMS[function.__name__] = function
    return function


def grid(t: Any, *shape: int) -> Any:
    return t.arange(1.0, 1 + np.prod(shape), dtype=t.float64).reshape(shape) * 0.3


# Hooks of nodes with several outputs --------------------------------------------------------------

SEVERAL: dict[str, Callable[[Any, Any], Any]] = {
    "var_mean": lambda t, x: t.var_mean(x, dim=1),
    "std_mean": lambda t, x: t.std_mean(x),
    "aminmax": lambda t, x: t.aminmax(x, dim=1),
    "max": lambda t, x: x.max(1),
    "topk": lambda t, x: x.topk(2),
    "unbind": lambda t, x: x.unbind(0),
    "split": lambda t, x: x.split(2, 1),
    "svd": lambda t, x: t.linalg.svd(x, full_matrices=False),
    "slogdet": lambda t, x: t.linalg.slogdet(x[:, :3] @ x[:, :3].mT + t.eye(3, dtype=x.dtype)),
}  # fmt: skip


def hooks_of_several(name: str, used: int | None) -> Program:
    """One gradient for each output, None where there is none, before and behind the node."""

    def run(t: Any) -> Any:
        x = (grid(t, 3, 4) % 1.7).requires_grad_()
        outputs = [y for y in SEVERAL[name](t, x) if y.requires_grad]
        node, seen = outputs[0].grad_fn, []
        node.register_prehook(seen.append)
        node.register_hook(lambda gi, go: seen.append(go))
        chosen = outputs if used is None else outputs[used : used + 1]
        sum((y * y).sum() for y in chosen).backward()
        return node.name(), seen, x.grad

    return run


for _name in SEVERAL:
    for _used in (None, 1) if _name not in ("max", "topk") else (None,):
        PROGRAMS[f"hooks of {_name}, {_used} used"] = hooks_of_several(_name, _used)


def answers_of_a_prehook(answer: Callable[[Any, Any], Any]) -> Program:
    def run(t: Any) -> Any:
        x = grid(t, 2, 3).requires_grad_()
        var, mean = t.var_mean(x)
        var.grad_fn.register_prehook(lambda g: answer(t, g))
        var.backward()
        return x.grad

    return run


PROGRAMS["a prehook doubles one"] = answers_of_a_prehook(lambda t, g: (g[0] * 2, g[1]))
PROGRAMS["a prehook makes one of None"] = answers_of_a_prehook(lambda t, g: (g[0], g[0]))
PROGRAMS["a prehook takes all away"] = answers_of_a_prehook(lambda t, g: (None, None))
PROGRAMS["a prehook answers too few"] = answers_of_a_prehook(lambda t, g: (g[0],))


# In place -----------------------------------------------------------------------------------------

INPLACE: dict[str, Callable[[Any, Any], Any]] = {
    **{name: lambda t, y, name=name: getattr(y, name)(1.5)
       for name in ("eq_", "ne_", "lt_", "le_", "gt_", "ge_")},
    "gt_ of a tensor": lambda t, y: y.gt_(y * 0.5 + 1),
    **{f"scatter_reduce_ {reduce} {kept}": lambda t, y, reduce=reduce, kept=kept: y.scatter_reduce_(
        0, t.tensor([[0, 1, 0, 2]]), grid(t, 1, 4) + 0.05, reduce, include_self=kept)
       for reduce in ("prod", "mean", "amax", "amin") for kept in (True, False)},
    "index_reduce_": lambda t, y: y.index_reduce_(0, t.tensor([0, 2]), grid(t, 2, 4), "prod"),
    "renorm_": lambda t, y: y.renorm_(2, 0, 1.0),
    "mvlgamma_": lambda t, y: y.add_(1).mvlgamma_(2),
    "cumprod_": lambda t, y: y.cumprod_(0),
    "floor_": lambda t, y: y.floor_(),
}  # fmt: skip


def after_inplace(name: str, part: bool) -> Program:
    """The gradient is that of what is there now, in the tensor and where a part was changed."""

    def run(t: Any) -> Any:
        x = grid(t, 3, 4).requires_grad_()
        y = t.stack([x, x * 2])[1 if not part else slice(None)]
        INPLACE[name](t, y[1] if part else y)
        (grad,) = t.autograd.grad((y * y * grid(t, *y.shape)).sum(), x)
        return y, grad

    return run


OF_OTHERS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "igamma_": lambda t, y, x: y.igamma_(x),
    "pow_": lambda t, y, x: y.pow_(x),
    "index_reduce_": lambda t, y, x: y.index_reduce_(0, t.tensor([0, 2]), x[:2], "prod"),
    **{f"scatter_reduce_ {reduce}": lambda t, y, x, reduce=reduce: y.scatter_reduce_(
        0, t.tensor([[0, 1, 0, 2]]), x[:1], reduce) for reduce in ("prod", "mean", "amax")},
    "addcmul_": lambda t, y, x: y.addcmul_(x, x),
    "lerp_": lambda t, y, x: y.lerp_(x, 0.5),
    "masked_scatter_": lambda t, y, x: y.masked_scatter_(y > 1, x),
    "gt_": lambda t, y, x: y.gt_(x),
}  # fmt: skip


def after_inplace_by_others(name: str, part: bool) -> Program:
    """A tensor without history that others, which have one, are put into."""

    def run(t: Any) -> Any:
        x = grid(t, 3, 4).requires_grad_()
        y = t.stack([grid(t, 3, 4), grid(t, 3, 4).flip(0)])
        found = OF_OTHERS[name](t, y[1], x)
        y = y if part else found
        return y.detach(), t.autograd.grad((y * grid(t, *y.shape) + 0 * x).sum(), x)

    return run


for _name in OF_OTHERS:
    for _part in (False, True):
        PROGRAMS[f"{_name} by others, of {'a part' if _part else 'all'}"] = after_inplace_by_others(
            _name, _part)  # fmt: skip

for _name in INPLACE:
    for _part in (False, True):
        PROGRAMS[f"{_name} of {'a part' if _part else 'all'}"] = after_inplace(_name, _part)


@program
def a_comparison_in_place_in_forward_mode(t: Any) -> Any:
    with t.autograd.forward_ad.dual_level():
        dual = t.autograd.forward_ad.make_dual(grid(t, 3), t.ones(3, dtype=t.float64))
        return list(t.autograd.forward_ad.unpack_dual((dual * 2).gt_(1)))


# Derivatives that do not exist --------------------------------------------------------------------

WITHOUT: dict[str, Callable[[Any, Any], Any]] = {
    "heaviside": lambda t, x: t.heaviside(x, t.ones(3, dtype=x.dtype)),
    "heaviside by values": lambda t, x: t.heaviside(x.detach() - 0.3, x),
    "heaviside_": lambda t, x: (x * 1).heaviside_(t.ones(3, dtype=x.dtype)),
    "heaviside_ of a part": lambda t, x: _heavy_part(t, x * 1),
    "igamma": lambda t, x: t.igamma(x, x),
    "igamma_": lambda t, x: (x * 1).igammac_(t.ones(3, dtype=x.dtype)),
    "igamma by other": lambda t, x: t.igamma(t.ones(3, dtype=x.dtype), x),
    "zeta": lambda t, x: t.special.zeta(x + 1, 2.0),
    "unique": lambda t, x: t.unique(x, return_counts=True)[0],
    "unique of a dim": lambda t, x: t.unique(x[None], dim=0),
    "unique_consecutive": lambda t, x: x.unique_consecutive(),
}  # fmt: skip


def _heavy_part(t: Any, y: Any) -> Any:
    y[1:].heaviside_(t.ones(2, dtype=y.dtype))
    return y


def asked_for(name: str, how: str) -> Program:
    """The value is there; who asks for the derivative is told which function has none."""

    def run(t: Any) -> Any:
        x = grid(t, 3)
        if how == "grad":
            return t.func.grad(lambda x: WITHOUT[name](t, x).sum())(x)
        y = WITHOUT[name](t, x.requires_grad_())
        return y.sum().backward() if how == "backward" else (y, y.requires_grad)

    return run


for _name in WITHOUT:
    for _how in ("value", "backward", "grad"):
        PROGRAMS[f"{_how} of {_name}"] = asked_for(_name, _how)


# Functions, warnings ------------------------------------------------------------------------------


def saved_in_jvp(t: Any, forward: bool) -> Any:
    seen = []

    class Double(t.autograd.Function):
        @staticmethod
        def forward(x: Any) -> Any:
            return x * 2

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.save_for_backward(*inputs)
            if forward:
                ctx.save_for_forward(*inputs, output)

        @staticmethod
        def jvp(ctx: Any, tangent: Any) -> Any:
            seen.append(ctx.saved_tensors)
            return tangent * 2

    return t.func.jvp(Double.apply, (grid(t, 2),), (grid(t, 2),)), seen


PROGRAMS["jvp reads nothing that was saved for backward"] = lambda t: saved_in_jvp(t, False)
PROGRAMS["jvp reads what was saved for forward"] = lambda t: saved_in_jvp(t, True)


@program
def a_gradient_of_nothing_that_is_something(t: Any) -> Any:
    class Bad(t.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.set_materialize_grads(False)
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return t.ones(2, dtype=t.float64) if g is None else g * 2

    return t.autograd.gradcheck(Bad.apply, grid(t, 2).requires_grad_(), raise_exception=False)


@program
def hooks_of_a_module_inside_vmap(t: Any) -> Any:
    layer, seen = t.nn.Linear(2, 2, dtype=t.float64), []
    with t.no_grad():
        layer.weight.copy_(grid(t, 2, 2)), layer.bias.zero_()
    layer.register_full_backward_hook(lambda *args: seen.append(1))
    x = grid(t, 3, 2).requires_grad_()
    t.vmap(layer)(x).sin().sum().backward()
    return seen, x.grad, layer.weight.grad


@program
def dims_one_by_one(t: Any) -> Any:
    x = grid(t, 1, 2, 1, 4).requires_grad_()
    y, z = x.squeeze(0, 2), (x * 2).squeeze_(0, 2)
    pieces = [*y.hsplit(1, 3), *y.vsplit(1), *z.hsplit(1, 2), *x[0].dsplit(1, 2)]
    sum(p.sum() * i for i, p in enumerate(pieces)).backward()
    return pieces, x.squeeze(dim=(0, 2)), x.grad


@program
def a_hook_of_several_tensors_of_which_one_cannot(t: Any) -> Any:
    seen, x = [], grid(t, 2).requires_grad_()
    with t.no_grad():
        view = x.view(-1)
    t.autograd.graph.register_multi_grad_hook((x, view), lambda g: seen.append(g), mode="any")
    try:
        t.autograd.graph.register_multi_grad_hook((x, view), lambda g: seen.append(g))
    except (AssertionError, RuntimeError):
        seen.append("refused")
    (x * x).sum().backward()
    return seen


def hooks_behind_a_vmap(create_graph: bool, nested: bool) -> Program:
    """Hooks of nodes see all examples of a vmap that has ended, and may change their gradients."""

    def run(t: Any) -> Any:
        function, seen = (lambda x: (x * x).sin()), []
        x = grid(t, 3, 2, 2).requires_grad_()
        y = t.vmap(t.vmap(function, 1, 1) if nested else function)(x)
        node = y.grad_fn
        while "Mul" not in node.name():
            node = node.next_functions[0][0]

        def change(gradients: Any) -> Any:
            seen.append(sorted(gradients[0].shape))
            return tuple(g * g.detach().numpy().max() for g in gradients)

        node.register_prehook(change)
        node.register_hook(lambda gi, go: (gi[0] * t.sin(go[0]), gi[1]))
        (grad,) = t.autograd.grad(y.sum(), x, create_graph=create_graph)
        return seen, grad, t.autograd.grad(grad.sum(), x) if create_graph else None

    return run


for _create in (False, True):
    for _nested in (False, True):
        PROGRAMS[f"hooks behind a vmap, {_create=} {_nested=}"] = hooks_behind_a_vmap(
            _create, _nested)  # fmt: skip


# Transforms in inference mode --------------------------------------------------------------------

TRANSFORMS: dict[str, Callable[[Any, Any], Any]] = {
    "grad": lambda t, x: t.func.grad(lambda y: (y * y).sum())(x),
    "grad of grad": lambda t, x: t.func.grad(
        lambda y: t.func.grad(lambda z: (z**3).sum())(y).sum())(x),
    "grad by keywords": lambda t, x: t.func.grad(lambda y, w: (y * w).sum())(x, w=x),
    "grad in place": lambda t, x: t.func.grad(lambda y: y.clone().mul_(y).sum())(x),
    "vjp": lambda t, x: t.func.vjp(lambda y: y * y, x)[1](x),
    "jacrev": lambda t, x: t.func.jacrev(lambda y: y * y)(x),
    "jacfwd": lambda t, x: t.func.jacfwd(lambda y: y * y)(x),
    "hessian": lambda t, x: t.func.hessian(lambda y: (y**3).sum())(x),
    "vmap of grad": lambda t, x: t.vmap(t.func.grad(lambda y: y**3))(x),
    "grad of vmap": lambda t, x: t.func.grad(lambda y: t.vmap(lambda z: z**3)(y).sum())(x),
}  # fmt: skip


def in_inference_mode(name: str, made_inside: bool) -> Program:
    def run(t: Any) -> Any:
        x = grid(t, 3)
        with t.inference_mode():
            answer = TRANSFORMS[name](t, grid(t, 3) if made_inside else x)
            return answer, t.is_inference_mode_enabled()

    return run


for _name in TRANSFORMS:
    for _inside in (False, True):
        PROGRAMS[f"{_name} in inference mode, {_inside=}"] = in_inference_mode(_name, _inside)


SHAPED: dict[str, Callable[[Any], Any]] = {
    "t_": lambda x: x.t_(), "transpose_": lambda x: x.transpose_(0, 1),
    "squeeze_": lambda x: x.squeeze_(), "unsqueeze_": lambda x: x.unsqueeze_(0),
    "as_strided_": lambda x: x.as_strided_((2,), (1,)), "swapdims_": lambda x: x.swapdims_(0, 1),
}  # fmt: skip
OF_BASE: dict[str, Callable[[Any], Any]] = {
    "a slice": lambda x: x[1:], "a view of a view": lambda x: x.view(2, 2)[:1],
    "a part": lambda x: x.tensor_split(2)[1], "the whole": lambda x: x,
}  # fmt: skip


def shaped_in_place(op: str, view: str, then: str) -> Program:
    """A view's hooks are those of the node that its new one leads to, until its base changes."""

    def run(t: Any) -> Any:
        told: list[Any] = []
        x = grid(t, 2, 2).requires_grad_()
        base = x * 0.5
        y = OF_BASE[view](base)
        y.register_hook(lambda g: told.append(g) or g * 3)
        with t.no_grad() if then == "under no_grad" else contextlib.nullcontext():
            SHAPED[op](y)
        if then == "base changed":
            base.mul_(2)
        elif then == "changed":
            y.mul_(2)
        (y * y).sum().backward()
        return told, x.grad

    return run


for _op, _view in itertools.product(SHAPED, OF_BASE):
    for _then in ("", "base changed", "changed", "under no_grad"):
        if _view == "the whole" and _then == "under no_grad":
            continue  # PyTorch's gradient does not go through the change: it is not turned back
        if _then == "" or _op in ("t_", "squeeze_"):
            PROGRAMS[f"{_view} by {_op}, {_then}"] = shaped_in_place(_op, _view, _then)


NEWER = ["hooks of aminmax, None used", "hooks of aminmax, 1 used"]
NEWER += [name for name in PROGRAMS if "in inference mode" in name]


@pytest.mark.parametrize("name", cases(PROGRAMS, NEWER))
def test_program(name: str) -> None:
    assert outcome(PROGRAMS[name], cugrad) == outcome(PROGRAMS[name], torch)


@pytest.mark.parametrize("name", ["heaviside", "igamma", "zeta"])
def test_forward_mode_of_what_has_no_derivative(name: str) -> None:
    for lib in (torch, cugrad):  # PyTorch says of heaviside "aten::heaviside"
        function = functools.partial(WITHOUT[name], lib)
        with pytest.raises(NotImplementedError, match=f"forward AD with .*{name}"):
            lib.func.jvp(function, (grid(lib, 3),), (grid(lib, 3),))


# PyTorch answers these by what it says once in a process, or not right ----------------------------


def test_a_graph_of_the_gradient_in_grad_is_warned_of() -> None:
    x = grid(cugrad, 2).requires_grad_()
    with pytest.warns(UserWarning, match=r"create_graph=True will create a reference cycle") as w:
        warnings.simplefilter("always")
        (x * x).sum().backward(create_graph=True)
    assert w[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cugrad.autograd.grad((x * x).sum(), x, create_graph=True)
        cugrad.autograd.gradgradcheck(lambda x: x * x, x.detach().requires_grad_())


WITHOUT_FORMULA = [
    op for op in TABLE.values()
    if op.inputs[:1] == ("self",) and op.formulas[0] is None
    and hasattr(cugrad.Tensor, op.name + "_")
]  # fmt: skip


@pytest.mark.parametrize("device", ["cpu", "simulated"])
@pytest.mark.parametrize("op", WITHOUT_FORMULA, ids=lambda op: op.name)
def test_what_has_no_formula_leaves_no_gradient_in_place(op: Any, device: str) -> None:
    """Zero, or an error that says so, in the whole and in a part. PyTorch's `logical_not_` leaves
    the gradient of the values that it overwrites.
    """
    for part in (slice(None), slice(0, 1)):
        x = grid(cugrad, 3).to(device).requires_grad_()
        y = x * 2
        others = [grid(cugrad, 3).to(device)[part] for _ in op.inputs[1:]]
        try:
            getattr(y[part], op.name + "_")(*others)
        except (NotImplementedError, RuntimeError, TypeError):
            return  # of integers alone
        try:
            y.sum().backward()
        except RuntimeError as error:
            assert "not implemented" in str(error)
        else:
            assert x.grad.tolist() == ([0, 0, 0] if part == slice(None) else [0, 2, 2])


# Where the gradient of a view is retained ---------------------------------------------------------

MOVES = list(itertools.product(
    [False, True], ["view", "base", "other view"], [False, True], ["nobody", "an op", "grad_fn"]
))  # fmt: skip
LOSSES = ["w", "b", "v", "u", "wv", "wb", "bv", "wbu"]


@pytest.mark.parametrize("of_leaf, changed, unrecorded, asks", MOVES)
def test_where_a_view_that_is_changed_retains(
    of_leaf: bool, changed: str, unrecorded: bool, asks: str
) -> None:
    """At its node of before, until it has another one: as soon as it is changed itself, and
    recorded, or as soon as someone asks for it.
    """
    for loss in LOSSES:
        answers = []
        for t in (torch, cugrad):
            a = t.arange(1.0, 4, dtype=t.float64).requires_grad_()
            b = a if of_leaf else a * 1
            v, u = b.view(3, 1), b.view(1, 3)
            v.retain_grad()
            w = v * 2
            try:
                with t.set_grad_enabled(not unrecorded):
                    {"view": v, "base": b, "other view": u}[changed].mul_(3)
                if asks == "an op":
                    v * 5
                elif asks == "grad_fn":
                    assert v.grad_fn is not None
                sum({"w": w, "b": b, "v": v, "u": u}[name].sum() for name in loss).backward()
                answers.append((v.retains_grad, described(v.grad), described(a.grad)))
            except RuntimeError as error:
                answers.append((False, None, str(error)[:20]))
        assert answers[1] == answers[0], loss
