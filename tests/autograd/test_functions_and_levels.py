"""Uses of Functions, forward mode and torch.func, as PyTorch's own suites have them: one table of
cases, run on PyTorch and on cugrad.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from typing import Any

import pytest

import cugrad
from tests.support.pinned_torch import cases

torch = pytest.importorskip("torch", reason="PyTorch, the oracle, is not installed")

pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
Lib = Any
Case = Callable[[Lib], Any]


# What is compared -----------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """Tensors as values, dtype and whether they require gradients; errors as what they are."""
    if hasattr(value, "detach"):
        dtype = str(value.dtype).rpartition(".")[2]
        return dtype, value.requires_grad, rounded(value.detach().tolist())
    if isinstance(value, (tuple, list)):
        return [plain(v) for v in value]
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    return value


def rounded(x: Any) -> Any:
    if isinstance(x, list):
        return [rounded(v) for v in x]
    if isinstance(x, complex):
        return complex(round(x.real, 5), round(x.imag, 5))
    return round(x, 5) if isinstance(x, float) else x


def outcome(lib: Lib, case: Case) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return plain(case(lib))


def error(call: Callable[..., Any], *args: Any, **given: Any) -> Any:
    """The type of what a call raises, and its first words: users match on them."""
    try:
        return plain(call(*args, **given))
    except Exception as e:
        kind = next(k for k in type(e).__mro__ if k.__module__ == "builtins")
        words = str(e).replace("cugrad", "torch")
        for end in (". ", " (", ": there", ": use", ", got torch.int64"):  # what cugrad adds
            words = words.partition(end)[0]
        return kind.__name__, words[:90].rstrip(".")


def real(lib: Lib, *values: float, grad: bool = False) -> Any:
    return lib.tensor(list(values), dtype=lib.float64, requires_grad=grad)


def made(lib: Lib, forward: Any, backward: Any = None, **other: Any) -> Any:
    """`apply` of a Function of these."""
    body = {"forward": forward, "backward": backward or (lambda ctx, *g: g[0]), **other}
    static = {k: staticmethod(v) if callable(v) else v for k, v in body.items()}
    return type("My", (lib.autograd.Function,), static).apply  # type: ignore[attr-defined]


def pair(lib: Lib, x: Any) -> Any:
    return tuple(lib.autograd.forward_ad.unpack_dual(x))


# Custom Functions -----------------------------------------------------------------------------


def saved_number(lib: Lib) -> Any:
    F = made(lib, lambda ctx, x: (ctx.save_for_backward(3), x * 1)[1])
    return error(F, real(lib, 1, grad=True)), F(real(lib, 1))


def dirty(ctx: Any, *xs: Any) -> Any:
    for x in xs:
        x.mul_(2)
    ctx.mark_dirty(*xs)
    return xs if len(xs) > 1 else xs[0]


def dirty_view_beside_another(lib: Lib) -> Any:
    F = made(lib, dirty, lambda ctx, g, h: (g * 2, h * 2))
    base = real(lib, 1, 2, 3, grad=True) * 1
    return error(F, base[:1], base[1:]), F(base[:1].clone(), base[1:].clone())


def dirty_and_hidden(lib: Lib) -> Any:
    def forward(ctx: Any, x: Any) -> Any:
        ctx.mark_dirty(x.add_(1))
        ctx.mark_non_differentiable(x)
        return x

    y = real(lib, 1, grad=True) * 1
    return made(lib, forward)(y), y.requires_grad


def two_views_out(lib: Lib) -> Any:
    F = made(lib, lambda ctx, x: (x[:1], x[1:]), lambda ctx, g, h: lib.cat([g, h]))
    return error(F(real(lib, 1, 2, grad=True) * 1)[0].mul_, 2)


def complex_gradient(lib: Lib) -> Any:
    F = made(lib, lambda ctx, x: x * 1, lambda ctx, g: g + 1j)
    return error(F(real(lib, 1, grad=True)).sum().backward)[0]


def made_inside(lib: Lib) -> Any:
    F = made(lib, lambda ctx, x: lib.ones(2, requires_grad=True))
    return F(real(lib, 1)), F(real(lib, 1, grad=True)).is_leaf


def materialize_by_number(lib: Lib) -> Any:
    return error(made(lib, lambda ctx, x: ctx.set_materialize_grads(3)), real(lib, 1, grad=True))[0]


def node_pickled(lib: Lib) -> Any:
    import copy
    import pickle

    node = made(lib, lambda ctx, x: x * 1)(real(lib, 1, grad=True)).grad_fn
    return error(pickle.dumps, node), error(copy.deepcopy, node)


def numpy_in_forward(lib: Lib) -> Any:
    F = made(lib, lambda ctx, x: lib.tensor(x.numpy() * 2))
    x = real(lib, 1, 2, grad=True)
    with lib.no_grad():
        array = x.numpy().tolist()
    return F(x), array, error(x.numpy)


def columns_of_a_view(lib: Lib) -> Any:
    F = made(
        lib, lambda x, i: x[i],
        setup_context=lambda ctx, inputs, out: setattr(ctx, "i", inputs[1]),
        jvp=lambda ctx, t, _: t[ctx.i], generate_vmap_rule=True,
    )  # fmt: skip
    return lib.func.jacfwd(lambda x: F(x, 1))(real(lib, 1, 2, 3))


# Forward mode -----------------------------------------------------------------------------------


def in_level(body: Callable[[Lib, Any, Any], Any]) -> Case:
    """A case inside a dual level: of the library, forward_ad, and a dual tensor."""

    def case(lib: Lib) -> Any:
        fw = lib.autograd.forward_ad
        with fw.dual_level():
            return plain(body(lib, fw, fw.make_dual(real(lib, 1, 2), real(lib, 3, 4))))

    return case


def levels(lib: Lib) -> Any:
    fw, x = lib.autograd.forward_ad, real(lib, 1)
    outside = fw._current_level, error(fw.exit_dual_level)[0], error(fw.make_dual, x, x, level=3)[0]
    with fw.dual_level():
        return outside, fw._current_level, [
            error(fw.make_dual, x, x, level=1)[0], fw.unpack_dual(x, level=1),
            error(fw.unpack_dual, fw.make_dual(x, x), level=1)[0],
            error(fw.make_dual, x, x, level=-1), fw.unpack_dual(x, level=-1)[1],
        ]  # fmt: skip


def switched_off(lib: Lib, fw: Any, d: Any) -> Any:
    z = lib.zeros(2, dtype=lib.float64)
    with fw._set_fwd_grad_enabled(False):
        y, hidden = d * 2, pair(lib, d)
        made = fw.make_dual(lib.ones(2), lib.ones(2))
        seen = pair(lib, made)
        d.mul_(2)
        z.mul_(d)
    return [pair(lib, a) for a in (y, d, z, made)], hidden, seen


def layouts(lib: Lib, fw: Any, d: Any) -> Any:
    tall, wide = lib.ones(2, 3), lib.ones(3, 2)
    pairs = [(tall, wide.t()), (tall.t(), wide), (lib.ones(3), lib.ones(1).expand(3)), (tall, tall)]
    return [pair(lib, fw.make_dual(p, t))[1].stride() for p, t in pairs]


def views_made_before(lib: Lib, fw: Any, d: Any) -> Any:
    base = lib.zeros(2, 2, dtype=lib.float64)
    views = base[0], base[:, 1], base.t().view_as(base), *base.unbind(0)
    base.copy_(d)
    return [pair(lib, v) for v in views]


def of_expanded(lib: Lib, fw: Any, d: Any) -> Any:
    y = lib.zeros(3, dtype=lib.float64) + d[:1]
    z = y[1:]
    y[0] = 5.0
    z.mul_(2)
    return pair(lib, y), pair(lib, z), pair(lib, d)


def of_a_sum(lib: Lib, fw: Any, d: Any) -> Any:
    y = d + 1
    z = lib.ones(2, dtype=lib.float64).copy_(d)
    d.mul_(2)
    y.mul_(3)
    return pair(lib, d), pair(lib, y), pair(lib, z)


FORWARD: dict[str, Callable[[Lib, Any, Any], Any]] = {
    "switched off": switched_off,
    "layouts": layouts,
    "views made before their base was dual": views_made_before,
    "change of an expanded one": of_expanded,
    "change of one that shares its tangent": of_a_sum,
    "detach in place": lambda lib, fw, d: pair(lib, d.clone().detach_()),
    "into out": lambda lib, fw, d: error(lib.sin, d, out=lib.zeros(2, dtype=lib.float64)),
    "printed": lambda lib, fw, d: (
        repr(d),
        repr(d.float() * 2),
        repr(fw.make_dual(lib.tensor(1.0), lib.tensor(2.0))),
    ),
}


def changed_under_vmap(lib: Lib) -> Any:
    def moved(t: Any) -> Any:
        def f(x: Any) -> Any:
            y = lib.zeros(3, dtype=lib.float64) + x.sum() * 0
            z = y[1:]
            y[0] = x[0]
            z.mul_(x)
            return y

        return lib.func.jvp(f, (real(lib, 1, 1),), (t,))

    return lib.func.vmap(moved)(lib.eye(2, dtype=lib.float64))


# torch.func -------------------------------------------------------------------------------------


def bad_arguments(lib: Lib) -> Any:
    F, x = lib.func, real(lib, 1, 2)
    total = lambda x: x.sum()
    return [
        *[error(F.grad(total, argnums=a), x) for a in (1, -2, "a", (), (0, 0), [0])],
        error(F.grad(lambda x: x), x), error(F.grad(lambda x: 3), x), error(F.grad(total), 3.0),
        error(F.grad(total), lib.tensor([1])), error(F.grad(total, has_aux=True), x),
        error(F.vjp, lambda x: (x, 3), x), error(F.vjp, lambda x: (), x), error(F.vjp, total, 3),
        error(F.vjp, lambda x: x.long(), x), error(F.vjp, total, x, has_aux=True),
        error(F.jvp, total, x, x), error(F.jvp, total, (x,), x), error(F.jvp, total, (), ()),
        error(F.jvp, total, (3.0,), (x,)), error(F.jvp, total, (x,), (3.0,)),
        error(F.jvp, total, (x,), (x[:1],)), error(F.jvp, lambda x: 3, (x,), (x,)),
        error(F.jvp, lambda x: (), (x,), (x,)), error(F.jvp, total, (lib.tensor([1]),) * 2),
        error(F.jvp, total, ({"a": x},), ({"b": x},)),
    ] + [error(j(lambda x: x * 1j), x) for j in (F.jacrev, F.jacfwd)]  # fmt: skip


def cotangents(lib: Lib) -> Any:
    x = real(lib, 1, 2)
    _, one = lib.func.vjp(lambda x: x * 2, x)
    _, two = lib.func.vjp(lambda x: (x, x * 2), x)
    _, named = lib.func.vjp(lambda x: {"a": x}, x)
    return [
        error(one, (x,)), error(two, x), error(two, [x, x]), two((x, x)), error(named, {"b": x}),
        named({"a": x}), one(x.float()), one(x, retain_graph=True), one(x, create_graph=False),
    ]  # fmt: skip


def outer_no_grad(lib: Lib) -> Any:
    x = real(lib, 1, 2, grad=True)
    cube = lambda x: (x**3).sum()
    with lib.no_grad():
        inside = lib.func.grad(cube)(x), lib.func.vjp(cube, x)[0]
        nested = lib.func.grad(lambda y: lib.func.grad(cube)(y).sum())(x)
    unused = lib.func.grad(lambda d: (d["a"] ** 2).sum())({"a": x, "b": x.detach()})
    return inside, nested, lib.func.grad(cube)(x), unused


def linearized(lib: Lib) -> Any:
    x = real(lib, 1, 2)
    y, push = lib.func.linearize(lambda x: x**2, x)
    return y, push(x), error(push, x[:1]), error(push, x.float()), error(push, x, x)


def vmap_words(lib: Lib) -> Any:
    V, x = lib.func.vmap, lib.ones(3, 2, dtype=lib.float64)
    same = lambda x: x
    return [
        error(V(same, in_dims=(0, 0)), x), error(V(same, in_dims=(None,)), x),
        error(V(lambda x, y: x), x, x[:2]), error(V(same, out_dims=(0, 0)), x),
        error(V(same, out_dims="a"), x), error(V(lambda d: d["a"], in_dims=({"b": 1},)), {"a": x}),
        error(V(lambda x: x if x.sum() > 0 else -x), x), error(V(lambda x: x.sum().item()), x),
        error(V(lambda x: bool(x.sum())), x), error(V(lib.nn.BatchNorm1d(2)), lib.ones(3, 4, 2)),
        error(V(lambda x: x.numpy()), x)[0],
    ]  # fmt: skip


def vmap_new(lib: Lib) -> Any:
    def filled(x: Any, new: Any) -> Any:
        out = new(x)
        out[0] = x[1]
        out[1] = 5
        return out

    makers = [lib.zeros_like, lib.empty_like, lambda x: x.new_zeros(2), lambda x: x.new_empty(2)]
    x = real(lib, 1, 2, 3, 4).reshape(2, 2)
    nested = lib.func.vmap(lib.func.vmap(lambda x: lib.zeros_like(x).copy_(x)))(x.reshape(2, 1, 2))
    return [lib.func.vmap(lambda x, m=m: filled(x, m))(x) for m in makers], nested


def vmap_draws(lib: Lib) -> Any:
    x = lib.full((3, 4), 0.5)
    draws = [lib.bernoulli, lib.poisson, lambda x: lib.multinomial(x, 2),
             lib.nn.functional.gumbel_softmax]  # fmt: skip
    return [
        [error(lib.func.vmap(draw), x) for draw in draws],
        [tuple(lib.func.vmap(d, randomness="different")(x).shape) for d in draws],
        error(lib.func.vmap(lib.poisson, randomness="same"), x),
    ]


def vmap_printed(lib: Lib) -> Any:
    seen: list[str] = []

    def see(x: Any) -> Any:
        seen.append(repr(x))
        return x

    lib.func.vmap(lib.func.vmap(see))(lib.arange(8).reshape(2, 2, 2))
    return seen


def modules(lib: Lib) -> Any:
    call, m = lib.func.functional_call, lib.nn.Linear(2, 1)
    p = dict(m.named_parameters())
    x, half = lib.ones(2), {"weight": p["weight"]}
    frozen = lib.nn.Linear(2, 1).requires_grad_(False)
    return [
        error(call, m, half, x, strict=True), error(call, m, {**p, "no": x}, x, strict=True),
        error(call, m, (p, p), x), error(call, m, {"weight": 3}, x)[0],
        error(lib.func.stack_module_state, [m, frozen]),
    ]  # fmt: skip


def module_backward_hooks(lib: Lib) -> Any:
    log: list[Any] = []
    net = lib.nn.Sequential(lib.nn.Linear(2, 2), lib.nn.Tanh())
    with lib.no_grad():
        for p in net.parameters():
            p.fill_(0.5)

    def see(name: str, value: Any) -> Any:
        def hook(m: Any, *grads: Any) -> Any:
            log.append((name, grads))
            return None if grads[0][0] is None else value(grads)

        return hook

    handles = [
        net.register_full_backward_hook(see("a", lambda grads: (grads[0][0] * 3,))),
        net.register_full_backward_hook(see("b", lambda grads: (grads[0][0] + 1,)), prepend=True),
        net.register_full_backward_pre_hook(see("p", lambda grads: (grads[0][0] * 2,))),
        net[0].register_full_backward_hook(see("in", lambda grads: None)),
    ]
    x = lib.ones(1, 2, requires_grad=True)
    net(x).sum().backward()
    net(x.detach()).sum().backward()
    for handle in handles:
        handle.remove()
    net(x).sum().backward()
    return log, x.grad, net[0].weight.grad


def module_backward_hooks_of_several(lib: Lib) -> Any:
    log: list[Any] = []
    body = {"forward": lambda self, x, k, y=None: (x * k, y, x + 1)}
    m, x = type("Several", (lib.nn.Module,), body)(), lib.ones(2, requires_grad=True)
    m.register_full_backward_hook(lambda m, gi, go: log.append((gi, go)))
    m(x, 3)[0].sum().backward()
    m(x, 3, x)[1].sum().backward()
    relu = lib.nn.ReLU()
    bad = [(lambda m, gi, go: (gi[0], gi[0])), (lambda m, gi, go: gi[0])]
    found = []
    for hook in bad:
        with relu.register_full_backward_hook(hook):
            found.append(error(relu(x).sum().backward))
    relu.register_full_backward_pre_hook(lambda m, go: (go[0], go[0]))
    return log, found, error(relu(x).sum().backward), error(relu(x).mul_, 2)


def gradients_in_another_dtype(lib: Lib) -> Any:
    x = real(lib, 1, 2, grad=True)
    given = [(x * 2, lib.ones(2)), (x, lib.ones(2).half()), (x.sin(), lib.ones(2))]
    return [lib.autograd.grad(y, x, g, True, c) for y, g in given for c in (False, True)]


def second_derivatives_of_changes(lib: Lib) -> Any:
    def f(x: Any) -> Any:
        y = x.clone()
        y[0] = (x[1] * x[0]).sin()
        y[1:].mul_(x[1:] + x[0])
        y.add_(x**2)
        return (y**2).sum()

    F, x = lib.func, real(lib, 0.3, 1.1, 0.7)
    ways = [F.hessian(f), F.jacrev(F.jacfwd(f)), F.jacfwd(F.jacfwd(f)), F.jacrev(F.jacrev(f)),
            F.vmap(F.hessian(f))]  # fmt: skip
    leaf = real(lib, 0.3, 1.1, 0.7, grad=True)
    again = {"check_fwd_over_rev": True, "check_batched_grad": True}
    return [way(x if i < 4 else x[None]) for i, way in enumerate(ways)], (
        lib.autograd.gradgradcheck(f, leaf, **again)
    )


def storages(lib: Lib) -> Any:
    x = lib.arange(6.0).view(2, 3).t()
    s, other = x[1:].storage(), x.storage()
    same = s.data_ptr() == other.data_ptr()
    return len(s), s[1], s.tolist(), s.nbytes(), s.untyped().nbytes(), same


def not_tensors(lib: Lib) -> Any:
    x = real(lib, 1, grad=True)
    check = lib.autograd.gradcheck
    return [error(check, lambda x, out=out: out, x)[0] for out in (None, 3, (x, 3))]


CASES: dict[str, Case] = {
    f.__name__.replace("_", " "): f
    for f in (
        saved_number, dirty_view_beside_another, dirty_and_hidden, two_views_out, complex_gradient,
        made_inside, materialize_by_number, node_pickled, numpy_in_forward, columns_of_a_view,
        levels, changed_under_vmap, bad_arguments, cotangents, outer_no_grad, linearized,
        vmap_words, vmap_new, vmap_draws, vmap_printed, modules, gradients_in_another_dtype,
        not_tensors, storages, second_derivatives_of_changes, module_backward_hooks,
        module_backward_hooks_of_several,
    )
} | {name: in_level(body) for name, body in FORWARD.items()}  # fmt: skip


NEWER = ["two views out", "module backward hooks of several"]


@pytest.mark.parametrize("name", cases(CASES, NEWER))
def test_case(name: str) -> None:
    ours, theirs = outcome(cugrad, CASES[name]), outcome(torch, CASES[name])
    assert ours == theirs


# In-place programs on dual tensors ------------------------------------------------------------

MAKING = ("add", "mul", "row", "column", "turned", "viewed", "exp", "clone", "detach", "wide")
CHANGING = ("times", "plus", "scaled", "copied", "zeroed", "filled", "corner", "first row")


def program(seed: int) -> list[tuple[str, int, int]]:
    rng = random.Random(seed)
    count = rng.randint(3, 9)
    return [(rng.choice(MAKING + CHANGING), rng.randrange(99), rng.randrange(99))
            for _ in range(count)]  # fmt: skip


def steps(lib: Lib, seed: int) -> Any:
    """Values and tangents of all tensors when a drawn program has run."""
    fw, new = lib.autograd.forward_ad, lambda v: lib.tensor(v, dtype=lib.float64)
    with fw.dual_level():
        known = [
            fw.make_dual(new([[1.0, 0.5], [2.0, 0.25]]), new([[0.5, -1.0], [2.0, 1.5]])),
            new([[2.0, 1.0], [1.0, 0.5]]),
            fw.make_dual(new([[0.5]]), new([[3.0]])),
        ]
        for what, i, k in program(seed):
            x, y = known[i % len(known)], known[k % len(known)]
            if what in MAKING:
                known.append(making(lib, what, x, y, known[2]))
            else:
                changing(what, x, y.clone(), known[2].clone())
        zero = lib.zeros_like
        return plain([(p, zero(p) if t is None else t)
                      for p, t in map(fw.unpack_dual, known)])  # fmt: skip


def making(lib: Lib, what: str, x: Any, y: Any, scalar: Any) -> Any:
    return {
        "add": lambda: x + 1.0,
        "mul": lambda: x * (y if x.shape == y.shape else 0.5),
        "row": lambda: x[0:1],
        "column": lambda: x[:, -1:],
        "turned": lambda: x.t(),
        "viewed": lambda: x.view_as(x),
        "exp": lambda: (x * 0.01).exp(),
        "clone": lambda: x.clone(),
        "detach": lambda: x.detach(),
        "wide": lambda: lib.zeros(2, 2, dtype=lib.float64) + scalar,
    }[what]()


def changing(what: str, x: Any, y: Any, scalar: Any) -> None:
    same = y if x.shape == y.shape else 0.5
    if what in ("copied", "first row") and x.shape != y.shape:
        what = "scaled"
    if what == "corner":
        x[0, 0] = 0.75
    elif what == "first row":
        x[0] = y[0]
    else:
        {
            "times": lambda: x.mul_(same), "plus": lambda: x.add_(same),
            "scaled": lambda: x.mul_(scalar), "copied": lambda: x.copy_(y),
            "zeroed": lambda: x.zero_(), "filled": lambda: x.fill_(0.5),
        }[what]()  # fmt: skip


@pytest.mark.parametrize("first", range(0, 600, 100))
def test_changes_of_dual_tensors(first: int) -> None:
    for seed in range(first, first + 100):
        assert steps(cugrad, seed) == steps(torch, seed), program(seed)
