"""Forward mode: every row's tangent, forward over reverse and reverse over forward, in-place."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

import numpy as np
import pytest

import cugrad
from cugrad.autograd import grad
from cugrad.autograd.recording.record import recorded
from cugrad.ops.table import LINEAR
from cugrad.tensor import make
from tests.ops import samples
from tests.ops.row_cases import (
    assert_close,
    called,
    differentiable,
    gradient_cases,
    inner,
    is_array,
    over_lines,
    variant_named,
)
from tests.ops.test_rows_recorded import Recording, arrays_of

# PyTorch's own make_dual uses its deprecated script compiler
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
fw = cugrad.autograd.forward_ad
# in forward over reverse the node's gradient is an op on dual tensors: what is only once
# differentiable is not
TWICE = lambda op: differentiable(op) and op.name not in samples.ONCE


def dual_inputs(run: Recording, tangents: Any, requires_grad: bool = False) -> tuple[Any, list]:
    """The inputs with those that a gradient may be asked of as dual tensors; and these leaves."""
    inputs, leaves = list(run.inputs), []
    for i, t in zip(run.wanted, tangents, strict=True):
        leaf = make(run.call.inputs[i], requires_grad=requires_grad)
        inputs[i] = fw.make_dual(leaf, make(t))
        leaves.append(leaf)
    return tuple(inputs), leaves


@over_lines(differentiable)
def test_tangent_is_the_rows(line: Any, backend: Any) -> None:
    """A dual tensor through a public row carries what the row's formula says of raw arrays.

    And it has that to itself: who writes to the tangent of a result changes no operand's.
    """
    for case in gradient_cases(line):
        with variant_named(case):
            run = Recording(case, backend)
            call = run.call
            tangents = [call.random_like(call.inputs[i], call.rng) for i in run.wanted]
            given: list[Any] = [None] * len(call.inputs)
            for i, t in zip(run.wanted, tangents, strict=True):
                given[i] = t
            if call.op.variadic:
                given = [np.zeros_like(call.host(a)) if t is None else t
                         for t, a in zip(given, call.inputs)]  # fmt: skip
            want = call.jvp(tuple(given))
            with fw.dual_level():
                inputs = list(dual_inputs(run, tangents)[0])
                for i in run.wanted:
                    inputs[i] = inputs[i].clone()  # a result itself, as most operands are
                found = run.run(tuple(inputs))
                for nr in call.op.differentiable:
                    tangent = fw.unpack_dual(found[nr]).tangent
                    if tangent is None:
                        assert want[nr] is None or not call.host(want[nr]).any()
                        continue
                    assert tangent.shape == found[nr].shape and tangent.dtype == found[nr].dtype
                    assert_close(call.host(tangent._array), call.host(want[nr]), case.dtype,
                                 case.tolerance, "tangent")  # fmt: skip
                    theirs = [fw.unpack_dual(inputs[i]).tangent for i in run.wanted]
                    assert call.op.view or not tangent._is_view()
                    assert call.op.view or not any(
                        backend.xp.may_share_memory(tangent._array, t._array) for t in theirs
                    )
            assert all(fw.unpack_dual(t).tangent is None for t in found)


@pytest.mark.per_row
@over_lines(TWICE)
def test_forward_over_reverse(line: Any, backend: Any) -> None:
    """The tangent of a gradient is the Hessian-vector product that double backward gives."""
    for case in gradient_cases(line):
        if "empty" in case.variant or case.dtype == "complex128":
            continue
        with variant_named(case):
            run = Recording(case, backend)
            call, rng = run.call, np.random.default_rng(case.seed + 7)
            v = [make(g) for g in call.cotangents(rng) if g is not None]
            t = [call.random_like(call.inputs[i], rng) for i in run.wanted]
            with fw.dual_level():
                inputs, _ = dual_inputs(run, t, requires_grad=True)
                duals = [inputs[i] for i in run.wanted]
                roots = [o for o in run.run(inputs) if o.requires_grad]
                first = grad(roots, duals, v, allow_unused=True)
                forward = [None if g is None else fw.unpack_dual(g).tangent for g in first]
            leaves = [make(call.inputs[i], requires_grad=True) for i in run.wanted]
            plain = list(run.inputs)
            for i, leaf in zip(run.wanted, leaves, strict=True):
                plain[i] = leaf
            roots = [o for o in run.run(tuple(plain)) if o.requires_grad]
            first = grad(roots, leaves, v, create_graph=True, allow_unused=True)
            w = [call.random_like(a, rng) for a in t]
            pairs = [(g, make(a)) for g, a in zip(first, w) if g is not None and g.requires_grad]
            # <w, H t> both ways: H is symmetric
            mine = sum(inner((a,), (f._array,), call.host)
                       for a, f in zip(w, forward, strict=True) if f is not None)  # fmt: skip
            if not any(g.requires_grad for g, _ in pairs):
                assert abs(mine) <= 1e-9
                continue
            second = grad([g for g, _ in pairs], leaves, [a for _, a in pairs], allow_unused=True)
            theirs = inner(arrays_of(second), tuple(t), call.host)
            limit = 1e-6 * case.tolerance * max(1.0, abs(theirs))
            assert abs(mine - theirs) <= limit, f"got {mine}, want {theirs}"


# The public face, beside PyTorch ------------------------------------------------------------------


def test_make_and_unpack(lib: Any) -> None:
    fw = lib.autograd.forward_ad
    x, t = lib.tensor([1.0, 2.0]), lib.tensor([3.0, 4.0])
    with fw.dual_level():
        dual = fw.make_dual(x, t)
        assert fw.unpack_dual(dual).tangent is not None
        assert fw.unpack_dual(dual).tangent.tolist() == [3.0, 4.0]
        assert fw.unpack_dual(fw.unpack_dual(dual).primal).tangent is None
        assert fw.unpack_dual(x).tangent is None
        assert fw.unpack_dual(dual.detach()).tangent is None
        primal = fw.unpack_dual(x).primal  # a view, whether there is a tangent or none
        assert primal is not x and primal._base is x
        assert fw.unpack_dual((dual * dual)[1]).tangent.item() == 16.0
    assert fw.unpack_dual(dual).tangent is None


@pytest.mark.parametrize(
    "make_it, kind, said",
    [
        (lambda lib, fw: fw.make_dual(lib.ones(2), lib.ones(3)), RuntimeError, "different size"),
        (lambda lib, fw: fw.make_dual(lib.ones(2).long(), lib.ones(2)), ValueError, "primal"),
        (lambda lib, fw: fw.make_dual(lib.ones(2), lib.ones(2).long()), ValueError, "tangent"),
        (lambda lib, fw: fw.make_dual(fw.make_dual(lib.ones(2), lib.ones(2)), lib.ones(2)),
         RuntimeError, "already has a forward gradient"),
        (lambda lib, fw: fw.enter_dual_level(), RuntimeError, "Nested forward mode"),
    ],
)  # fmt: skip
def test_refusals(lib: Any, make_it: Any, kind: type, said: str) -> None:
    fw = lib.autograd.forward_ad
    with fw.dual_level(), pytest.raises(kind, match=said):
        make_it(lib, fw)
    with pytest.raises(RuntimeError, match="no level exists"):
        fw.make_dual(lib.ones(2), lib.ones(2))


def test_which_levels_there_are(lib: Any) -> None:
    """The one that is open, by its number or by none; and 0 of none that is open has its error."""
    fw = lib.autograd.forward_ad
    x = lib.ones(2)

    def refuses(level: int | None, said: str) -> None:
        with pytest.raises(RuntimeError, match=said):
            fw.make_dual(x, x, level=level)

    refuses(None, "no level exists")
    refuses(-1, "no level exists")
    refuses(0, "evel")
    refuses(1, "Invalid level given to _make_dual")
    with fw.dual_level():
        refuses(-1, "no level exists")
        refuses(1, "Invalid level given to _make_dual")
        for level in (None, 0):
            assert fw.unpack_dual(fw.make_dual(x, x, level=level), level=level).tangent is not None


def test_reverse_over_forward(lib: Any) -> None:
    """The tangent is differentiable in the tensor and in the tangent that went in."""
    fw = lib.autograd.forward_ad
    x = lib.tensor([1.0, 2.0], requires_grad=True)
    t = lib.tensor([3.0, 4.0], requires_grad=True)
    with fw.dual_level():
        tangent = fw.unpack_dual(fw.make_dual(x, t) ** 3).tangent
        gx, gt = lib.autograd.grad(tangent.sum(), (x, t))
    assert gx.tolist() == [18.0, 48.0] and gt.tolist() == [3.0, 12.0]


def test_inplace(lib: Any) -> None:
    """In-place ops change tangents too, through views and of tensors that had none."""
    fw = lib.autograd.forward_ad
    with fw.dual_level():
        d = fw.make_dual(lib.tensor([1.0, 2.0]), lib.tensor([1.0, 0.5]))
        y = d * 1
        y.mul_(d)
        assert fw.unpack_dual(y).tangent.tolist() == [2.0, 2.0]
        y[0].exp_()
        assert fw.unpack_dual(y).tangent.tolist() == pytest.approx([2 * np.e, 2.0])
        base = lib.zeros(2, 2)
        base[1].copy_(d)
        assert fw.unpack_dual(base).tangent.tolist() == [[0.0, 0.0], [1.0, 0.5]]
        y.copy_(lib.ones(2))
        assert fw.unpack_dual(y).tangent.tolist() == [0.0, 0.0]
        z = lib.ones(2)
        z += d
        assert fw.unpack_dual(z).tangent.tolist() == [1.0, 0.5]


def test_a_custom_function_writes_jvp(lib: Any) -> None:
    class Cube(lib.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, scale: float) -> Any:
            ctx.save_for_forward(x)
            ctx.scale = scale
            return x**3 * scale

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g, None

        @staticmethod
        def jvp(ctx: Any, x_t: Any, scale_t: Any) -> Any:
            (x,) = ctx.saved_for_forward if lib is cugrad else ctx.saved_tensors
            assert scale_t is None
            return 3 * x * x * x_t * ctx.scale

    class Silent(lib.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

    fw = lib.autograd.forward_ad
    with fw.dual_level():
        d = fw.make_dual(lib.tensor([2.0]), lib.tensor([1.0]))
        assert fw.unpack_dual(Cube.apply(d, 2.0)).tangent.tolist() == [24.0]
        with pytest.raises(NotImplementedError, match="must implement the jvp function"):
            Silent.apply(d)


def test_levels_end_for_threads_and_memory() -> None:
    """A level is its thread's own; when it ends, nothing holds the tangents any more."""
    with fw.dual_level():
        seen: list[Any] = []
        thread = threading.Thread(target=lambda: seen.append(cugrad.autograd.mode.state.levels))
        thread.start()
        thread.join()
        assert seen == [()]
        x = cugrad.ones(3, requires_grad=True)
        y = fw.make_dual(x, cugrad.ones(3)).exp()
        ref = weakref.ref(fw.unpack_dual(y).tangent)
        assert ref() is not None
    assert fw.unpack_dual(y).tangent is None
    gc.collect()
    assert ref() is None


def test_as_decorator(lib: Any) -> None:
    fw = lib.autograd.forward_ad

    @fw.dual_level()
    def slope(x: float) -> float:
        dual = fw.make_dual(lib.tensor(x), lib.tensor(1.0))
        return fw.unpack_dual(lib.sin(dual)).tangent.item()

    assert slope(0.0) == 1.0


def test_a_tensor_that_is_its_own_tangent_is_changed_once(lib: Any) -> None:
    x = lib.tensor([1.0, 2.0], dtype=lib.float64)
    square = lambda y: (y.mul_(2) ** 2).sum()
    assert lib.func.jvp(square, (x,), (x,))[1] == 40 and x.tolist() == [2.0, 4.0]
    rows = lib.ones(3, 2, dtype=lib.float64)
    found = lib.func.vmap(lambda r: lib.func.jvp(square, (r,), (r[:],))[1])(rows)
    assert found.tolist() == [16.0] * 3
    with lib.autograd.forward_ad.dual_level():
        dual = lib.autograd.forward_ad.make_dual(x, x)
        dual.mul_(2)
        primal, tangent = lib.autograd.forward_ad.unpack_dual(dual)
        assert primal.tolist() == tangent.tolist() == [4.0, 8.0]


def test_a_tangent_that_is_cast_and_expanded_is_one_of_many_places(lib: Any) -> None:
    fw = lib.autograd.forward_ad
    with fw.dual_level():
        x = fw.make_dual(lib.tensor(2.0, dtype=lib.float64), lib.tensor(1.0, dtype=lib.float64))
        for y in (lib.zeros(2, 3) + x, x - lib.zeros(2, 3), lib.zeros(2, 3).add_(x * 1)):
            tangent = fw.unpack_dual(y).tangent
            assert tangent.dtype is lib.float32 and tangent.stride() == (3, 1)
            tangent[0, 0] = 5.0
            assert fw.unpack_dual(x).tangent.item() == 1.0 and tangent[1, 1].item() != 5.0


def depends_on_tangents_alone(op: Any) -> bool:
    """Whether the tangent of an op does not depend on the values of its inputs."""
    one = op.variadic or sum(formula is not None for formula in op.formulas) == 1
    return op.name == "copy" or op.kind == LINEAR and one and op.name != "linalg_distances"


@over_lines(depends_on_tangents_alone)
def test_tangents_of_linear_rows_lead_to_no_primal(line: Any, backend: Any) -> None:
    """A gradient of the tangent would ask for what the primals' nodes have saved, times zero."""
    call = called(line, backend)
    for with_tangent in call.differentiable:
        with fw.dual_level():
            inputs = [
                make(x, i in call.differentiable) if is_array(x) else x
                for i, x in enumerate(call.inputs)
            ]
            x = inputs[with_tangent]
            inputs[with_tangent] = fw.make_dual(x, cugrad.ones_like(x).detach())
            found = getattr(recorded, line.row)(
                *((inputs,) if call.op.variadic else inputs), **call.given
            )
            for out in found if isinstance(found, tuple) else (found,):
                tangent = fw.unpack_dual(out).tangent
                assert tangent is None or not tangent.requires_grad


@over_lines(lambda op: any(op.formulas) and not op.view, first=True)
def test_tangents_lie_as_their_tensors(line: Any, backend: Any) -> None:
    """So that each view of a result is one of its tangent, as in PyTorch."""
    call = called(line, backend)
    with fw.dual_level():
        inputs = [
            fw.make_dual(make(x), make(x) * 0.37) if i in call.differentiable
            else make(x) if is_array(x) else x
            for i, x in enumerate(call.inputs)
        ]  # fmt: skip
        found = getattr(recorded, line.row)(
            *((inputs,) if call.op.variadic else inputs), **call.given
        )
        for out in found if isinstance(found, tuple) else (found,):
            tangent = fw.unpack_dual(out).tangent
            if tangent is not None and out.numel() and 0 not in out.stride():
                assert tangent.stride() == out.stride()


def test_tangents_of_changed_and_mapped_tensors_lie_as_they(lib: Any) -> None:
    """So that a view of the tensor is one of its tangent, too."""
    fw = lib.autograd.forward_ad
    turned = lib.arange(6.0).reshape(3, 2).T
    for change in ("copy_", "add_", "sub_", "mul_"):
        with fw.dual_level():
            x = getattr(lib.ones(2, 3), change)(fw.make_dual(turned * 1, turned))
            tangent = fw.unpack_dual(x.view(6)).tangent
        assert tangent.tolist() == [-v if change == "sub_" else v for v in [0, 2, 4, 1, 3, 5]]
    x, directions = lib.ones(2, 3), lib.arange(12.0).reshape(2, 2, 3)
    for dim, wide in ((0, directions), (1, directions), (2, directions.permute(0, 2, 1))):
        found = lib.func.vmap(
            lambda t: lib.func.jvp(lambda a: (a * 2).view(6), (x,), (t,))[1], in_dims=dim
        )(wide)
        assert lib.equal(found, 2 * wide.movedim(dim, 0).reshape(2, 6))
