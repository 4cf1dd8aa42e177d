"""What PyTorch's own autograd tests look at beside values: nodes, names, warnings, freed graphs."""

from __future__ import annotations

import io
import re
import sys
import warnings
from collections import OrderedDict
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
Lib = Any


def leaf(lib: Lib, *values: float) -> Any:
    return lib.tensor([float(v) for v in values], requires_grad=True)


def custom(lib: Lib, forward: Any, backward: Any = lambda ctx, g: g, **more: Any) -> Any:
    """A Function, as the call that applies it."""
    parts = {"forward": forward, "backward": backward, **more}
    made = {name: staticmethod(f) for name, f in parts.items()}
    return type("Made", (lib.autograd.Function,), made).apply  # type: ignore[attr-defined]


def described(node: Any) -> str:
    """A graph as PyTorch's tests write it: classes of nodes, and what they lead to."""
    if node is None:
        return "None"
    ends = ", ".join(described(end) for end, _ in node.next_functions)
    return f"{type(node).__name__}({ends})"


# The graph as users see it ------------------------------------------------------------------------


def test_graph_of_an_accumulated_gradient(lib: Lib) -> None:
    product_of = custom(
        lib, lambda ctx, x, y: (ctx.save_for_backward(x, y), x + 2 * y + x * y)[1],
        lambda ctx, g: (g + g * ctx.saved_tensors[1], g * 2 + g * ctx.saved_tensors[0]),
    )  # fmt: skip
    x, y = leaf(lib, 1, 2), leaf(lib, 3, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a reference cycle
        product_of(x, y).sum().backward(lib.ones((), requires_grad=True), create_graph=True)
    grown = "ExpandBackward0(AccumulateGrad())"
    assert described(x.grad.grad_fn) == (
        f"CopyBackwards(None, AddBackward0({grown}, MulBackward0({grown}, AccumulateGrad())))"
    )


def test_a_gradient_that_cannot_be_differentiated_ends_in_error(lib: Lib) -> None:
    once = lib.autograd.function.once_differentiable
    scaled = custom(lib, lambda ctx, x, k, y: x * k + y, once(lambda ctx, g: (g * 2, None, g)))
    x, y = leaf(lib, 1, 2), leaf(lib, 3, 4)
    seed = lib.ones((), requires_grad=True)
    found, _ = lib.autograd.grad(scaled(x, 2, y).sum(), (x, y), seed, create_graph=True)
    ends = "AccumulateGrad(), None, AccumulateGrad()"
    assert described(found.grad_fn) == f"Error({ends})"
    assert found.grad_fn.name() == "torch::autograd::Error"
    with pytest.raises(RuntimeError, match="trying to differentiate twice"):
        found.sum().backward()


EDGES: dict[str, Callable[[Lib, Any, Any], Any]] = {  # of an index, a mask or a weight: no edge
    "x * 2": lambda lib, x, i: x * 2,
    "where": lambda lib, x, i: lib.where(x > 1, x, x * 2),
    "masked_fill": lambda lib, x, i: x.masked_fill(x > 1, 0.0),
    "gather": lambda lib, x, i: x.gather(0, i),
    "scatter": lambda lib, x, i: x.scatter(0, i, x * 2),
    "scatter_add": lambda lib, x, i: x.scatter_add(0, i, x),
    "index_select": lambda lib, x, i: x.index_select(0, i),
    "index_add": lambda lib, x, i: x.index_add(0, i, x),
    "index": lambda lib, x, i: x[i],
    "embedding": lambda lib, x, i: lib.nn.functional.embedding(i, x[:, None]),
    "nll_loss": lambda lib, x, i: lib.nn.functional.nll_loss(x[None], i[:1]),
    "cat": lambda lib, x, i: lib.cat([x, x.detach()]),
    "linear": lambda lib, x, i: lib.nn.functional.linear(x[None], x[None], x[:1]).sum(),
}


@pytest.mark.parametrize("name", EDGES)
def test_edges_are_those_of_differentiable_inputs(lib: Lib, name: str) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch, the oracle, is not installed")

    def count(of: Lib) -> int:
        made = EDGES[name](of, leaf(of, 1, 2, 3), of.tensor([0, 2, 1]))
        return len(made.grad_fn.next_functions)

    assert count(lib) == count(torch)


def test_what_nodes_say_of_their_inputs(lib: Lib) -> None:
    x = lib.ones(2, 3, requires_grad=True)
    i = lib.tensor([0, 1])
    y = x[:, i]
    assert y.grad_fn._saved_indices[0] is None
    assert y.grad_fn._saved_indices[1].tolist() == [0, 1]
    assert tuple(y.grad_fn._saved_self_sym_sizes) == tuple(x.sum(0).grad_fn._saved_self_sym_sizes)
    y.sum().backward()
    with pytest.raises(RuntimeError, match="after they have already been freed"):
        _ = y.grad_fn._saved_indices
    z = x * x
    raw = z.grad_fn._raw_saved_self
    z.sum().backward()
    for handle in (raw, z.grad_fn._raw_saved_self):
        with pytest.raises(RuntimeError, match="after it has been freed"):
            handle.register_hooks(lambda t: t, lambda t: t)


def test_private_names_of_the_engine(lib: Lib) -> None:
    private, grad = lib._C, lib.autograd.grad
    x = leaf(lib, 1, 2)
    y = x * 2
    z, other = y * 3, y * 4
    ends = [y.grad_fn.next_functions[0][0], y.grad_fn, z.grad_fn, other.grad_fn]
    seen: list[Any] = []
    numbers: list[int] = []

    def hook(g: Any) -> None:
        numbers.append(private._current_graph_task_id())
        for node in ends:
            try:
                seen.append(private._will_engine_execute_node(node))
            except RuntimeError as error:
                seen.append(str(error).partition(" but ")[0])

    z.register_hook(hook)
    grad(z.sum(), y, retain_graph=True)
    z.sum().backward(retain_graph=True)
    grad(z.sum(), x)
    leaf_text = "A leaf node was passed to _will_engine_execute_node"
    assert seen == [False, True, True, False, *[True] * 3, False, leaf_text, True, True, False]
    assert [n - numbers[0] for n in numbers] == [0, 1, 2]
    assert private._current_graph_task_id() == -1
    with pytest.raises(RuntimeError, match="during the backward pass"):
        private._will_engine_execute_node(z.grad_fn)


def test_private_functions(lib: Lib) -> None:
    functions = lib._C._functions
    seen: list[Any] = []

    def watch(ctx: Any, g: Any) -> Any:
        seen.append(g)
        return g

    def plain(ctx: Any, x: Any) -> Any:
        ctx.set_materialize_grads(False)
        return x.clone()

    x = leaf(lib, 1)
    functions.UndefinedGrad()(custom(lib, plain, watch)(x)).backward()
    assert seen == [None]
    assert x.grad is None
    assert isinstance((x * 2).grad_fn.next_functions[0][0], functions.AccumulateGrad)
    with pytest.raises(RuntimeError, match="Boom"):
        functions.DelayedError("Boom!", 1)(x * 1).sum().backward()
    enabled = lib._C._autograd._saved_tensors_hooks_is_enabled
    with lib.autograd.graph.disable_saved_tensors_hooks("no"):
        assert not enabled()
    assert enabled()
    y, setting = x.detach().clone(), lib._C._autograd._unsafe_set_version_counter
    y.add_(1)
    setting((y,), (0,))
    assert y._version == 0
    with pytest.raises(RuntimeError, match="Cannot set a version_counter to a value below 0: -1"):
        setting((y,), (-1,))
    assert lib.autograd.forward_ad._is_fwd_grad_enabled()
    with lib.autograd.forward_ad.dual_level():
        assert lib.autograd.forward_ad._is_fwd_grad_enabled()


# Freed, detached, uncounted -----------------------------------------------------------------------


def test_indices_count_as_saved(lib: Lib) -> None:
    x = leaf(lib, 1, 2, 3)
    y = lib.zeros(3)
    y[[1, 2]] = x[[1, 1]]
    y.backward(lib.ones(3), retain_graph=True)
    y.backward(lib.ones(3))
    with pytest.raises(RuntimeError, match="Specify retain_graph=True"):
        y.backward(lib.ones(3))
    assert x.grad.tolist() == [0, 4, 0]


def test_a_saved_tensor_that_was_detached_in_place(lib: Lib) -> None:
    x = leaf(lib, 1)
    saved = x.clone()
    y = saved.sin()
    saved.detach_()
    if lib.__name__ == "torch":
        with pytest.raises(RuntimeError, match="that has been detached in-place"):
            y.backward()
    else:  # where the gradient goes is known
        (g,) = lib.autograd.grad(y, x, create_graph=True)
        assert lib.allclose(g, x.cos())
        assert lib.allclose(lib.autograd.grad(g, x)[0], -x.sin())
    result = x.clone()
    y = result.exp()
    result.detach_()
    y.backward()
    other = x * 2
    other.detach_()
    (x * other).sum().backward()  # it was none when it was saved


def test_versions(lib: Lib) -> None:
    graph, x = lib.autograd.graph, lib.ones(2)
    for wrong, text in ((3, "expect a Iterable"), ([3], "each element of the iterable")):
        with pytest.raises(RuntimeError, match=f"increment_version.*{text}"):
            graph.increment_version(wrong)
    with lib.autograd._unsafe_preserve_version_counter(x):
        x.add_(1)
    assert x._version == 0
    x.resize_(2, 1)
    x.resize_(2, 1)
    assert x._version == 1


def test_memory_of_a_leaf_is_set_where_nothing_is_recorded(lib: Lib) -> None:
    x = leaf(lib, 1, 2)
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad is being used in"):
        x.set_(lib.zeros(3))
    with lib.no_grad():
        x.set_(lib.zeros(3))
    assert x.requires_grad
    assert x.shape == (3,)


def test_views_of_inference_tensors_are_not_recorded(lib: Lib) -> None:
    with lib.inference_mode():
        x = lib.ones(1, 2, requires_grad=True)
        assert x.resize_(2, 1).shape == (2, 1)
    for made in (x.view(-1), x[0], x.t(), x.unbind()[0], x.expand(2, 2)):
        assert made.is_inference()
        assert not made.requires_grad
        assert not made._is_view()
        assert made.is_leaf
    assert x.add(1.0).requires_grad


# Warnings and hooks -------------------------------------------------------------------------------


def warned(run: Callable[[], Any]) -> list[str]:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        run()
    return [str(w.message) for w in found]


def test_the_gradient_of_a_non_leaf_warns(lib: Lib) -> None:
    x = leaf(lib, 1)
    y = x * 2
    assert warned(lambda: (x.grad, y.detach().grad)) == []
    assert "is not a leaf Tensor is being accessed" in warned(lambda: y.grad)[0]
    y.retain_grad()
    assert warned(lambda: y.grad) == []


def test_warnings_of_what_is_gone(lib: Lib) -> None:
    x = lib.ones(2)
    assert "volatile was removed" in warned(lambda: x.volatile)[0]
    assert "volatile was removed" in warned(lambda: setattr(x, "volatile", True))[0]
    stray = custom(lib, lambda ctx, x: (out := x * 3, ctx.mark_dirty(out))[0])
    assert "was not an input" in warned(lambda: stray(leaf(lib, 1)))[0]
    assert warned(lambda: stray(x)) == []


def test_a_warning_that_is_an_error_does_not_hide_one(
    lib: Lib, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with lib.autograd.detect_anomaly():
            x = leaf(lib, 1)
            y = x + 1
            z = y**2
            y += 1
            warnings.simplefilter("error")
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                z.sum().backward()
    assert "Error detected in PowBackward0" in sys.stderr.getvalue()  # type: ignore[attr-defined]


def test_hooks_of_a_leaf_see_one_gradient(lib: Lib) -> None:
    """The post hooks of its node see what became `.grad`, with what hooks did to it since."""
    x = lib.ones(3, requires_grad=True)
    node = x.view_as(x).grad_fn.next_functions[0][0]
    x.register_hook(lambda g: g - 2.0)
    node.register_prehook(lambda gs: (gs[0] / 5.0,))
    node.register_hook(lambda _, gs: setattr(x, "grad", gs[0] * 10))
    x.register_post_accumulate_grad_hook(lambda p: setattr(p, "seen", p.grad.add_(0.5)))
    x.sum().backward()
    assert x.grad.tolist() == pytest.approx([3, 3, 3])


def test_hooks_that_are_put_there(lib: Lib) -> None:
    x, plain = leaf(lib, 1), lib.ones(1)
    plain._backward_hooks = OrderedDict()
    plain._backward_hooks["test"] = None
    x._backward_hooks = {"test": lambda g: g * 3}
    (x * plain).backward()
    assert x.grad.tolist() == [3]
    assert list(x._backward_hooks) == list(plain._backward_hooks) == ["test"]
    x.clone().grad_fn.register_hook(object())  # looked at when it is called


def test_threads_may_be_wished_for(lib: Lib) -> None:
    autograd = lib.autograd
    with autograd.set_multithreading_enabled(False):
        assert not autograd.is_multithreading_enabled()
        leaf(lib, 1).sum().backward()
        autograd.set_multithreading_enabled(True)
        assert autograd.is_multithreading_enabled()
    assert autograd.is_multithreading_enabled()
    autograd.set_multithreading_enabled(False)
    assert not autograd.is_multithreading_enabled()
    autograd.set_multithreading_enabled(True)


# Custom Functions and forward mode ----------------------------------------------------------------

VIEWS: dict[str, Callable[[Any, Any], Any]] = {
    "view": lambda ctx, x: x.view_as(x),
    "as it is": lambda ctx, x: x,
    "of a temporary": lambda ctx, x: x.clone()[:1],
}


@pytest.mark.parametrize("name", VIEWS)
def test_views_of_functions_that_were_not_recorded(lib: Lib, name: str) -> None:
    made, x = custom(lib, VIEWS[name]), leaf(lib, 1)
    for recording in (True, False):
        with lib.set_grad_enabled(recording):
            y = made(lib.ones(2))
        with pytest.raises(RuntimeError, match="in no_grad mode.*inside a custom Function"):
            y += x
    with lib.no_grad():
        y = made(x.clone())
    assert y.grad_fn is None


def test_a_jvp_in_place_changes_its_tangent(lib: Lib) -> None:
    def forward(ctx: Any, x: Any) -> Any:
        ctx.mark_dirty(x.mul_(2))
        return x

    fw, x = lib.autograd.forward_ad, leaf(lib, 1)
    for jvp, ok in ((lambda ctx, t: t.mul_(2), True), (lambda ctx, t: t, False)):
        with fw.dual_level():
            dual = fw.make_dual(x.clone(), lib.ones(1))
            if ok:
                assert fw.unpack_dual(custom(lib, forward, jvp=jvp)(dual)).tangent.tolist() == [2]
                continue
            with pytest.raises(RuntimeError, match="not modifying the forward mode gradients"):
                custom(lib, forward, jvp=jvp)(dual)


def test_tangents_have_memory_of_their_own(lib: Lib) -> None:
    fw = lib.autograd.forward_ad
    part, tangent = lib.ones(5)[:4].detach(), lib.ones(4)
    with fw.dual_level():
        dual = fw.make_dual(part, tangent)
        fw.unpack_dual(dual).tangent.mul_(2)
        assert tangent.tolist() == [1] * 4
        assert fw.unpack_dual(fw.make_dual(lib.ones(4), tangent)).tangent is tangent
        with pytest.raises(RuntimeError, match="forward gradient at the same level"):
            fw.make_dual(lib.ones(4), dual)


def test_copies_of_a_mutation_context(lib: Lib) -> None:
    with lib.autograd.graph.allow_mutation_on_saved_tensors() as context:

        def sizes() -> list[int]:
            return [len(context.cloned), len(context.tid_to_weakhandle)]

        x = leaf(lib, 1, 2).clone()
        first = x**2
        assert sizes() == [0, 1]
        x.sin_()
        second = x**2
        x.sin_()
        assert sizes()[0] == 2
        del first
        assert sizes()[0] == 1
        del second
        assert sizes()[0] == 0


# Formulas -----------------------------------------------------------------------------------------


def test_a_count_has_no_gradient(lib: Lib) -> None:
    x = leaf(lib, 0, 3, -4)
    count = x.norm(0)
    assert count.requires_grad
    count.backward()
    assert x.grad is None
    with pytest.raises(RuntimeError, match="to not have been used in the graph"):
        lib.autograd.grad(x.norm(0), x)
    assert lib.func.jvp(lambda x: x.norm(0), (x.detach(),), (lib.ones(3),))[1].item() == 0


def test_nextafter(lib: Lib) -> None:
    a, b = leaf(lib, 1, 2), leaf(lib, 1, 3)
    lib.nextafter(a, b).sum().backward()
    assert a.grad.tolist() == [0, 1]
    assert b.grad.tolist() == [0, 0]


@pytest.mark.parametrize("name", ["igamma", "igammac"])
def test_derivatives_that_there_are_none_of(lib: Lib, name: str) -> None:
    call, x, fw = getattr(lib, name), leaf(lib, 1, 2), lib.autograd.forward_ad
    with pytest.raises(NotImplementedError, match="the derivative for .* is not implemented"):
        call(x, lib.ones(2)).sum().backward()
    with fw.dual_level(), pytest.raises(NotImplementedError, match="does not support it because"):
        call(fw.make_dual(lib.ones(2), lib.ones(2)), lib.ones(2))
    assert call(x.detach(), x).requires_grad


@pytest.mark.parametrize("base", [-2, -2.0])
def test_powers_of_negative_numbers(lib: Lib, base: float) -> None:
    x = lib.tensor([1 + 2j, -0.5j], dtype=lib.complex128, requires_grad=True)
    assert lib.autograd.gradcheck(lambda x: lib.pow(base, x), (x,))


def test_old_ways_to_make_tensors(lib: Lib) -> None:
    x = lib.ones(2, dtype=lib.float64)
    assert x.new(2, 3).shape == x.new(lib.Size([2, 3])).shape == (2, 3)
    assert x.new([1, 2]).tolist() == [1, 2]
    assert x.new([1]).dtype is lib.float64
    assert x.new().shape == (0,)
    for make in (x.new, lib.Tensor, lib.LongTensor):
        assert make(lib.Size([])).shape == () and make(lib.Size([2, 3])).shape == (2, 3)
        assert make(lib.Size([4])).shape == (4,) and make(()).shape == (0,)
    drawn = lib.full((9,), 0.5).bernoulli()
    assert set(drawn.tolist()) <= {0, 1}
    assert lib.ones(9).bernoulli(0.0).tolist() == [0] * 9
    assert lib.tensor([0.0, 1.0]).multinomial(1).tolist() == [1]
    pair = lib.ones(2, 2)
    assert [n for n in dir(pair) if not re.match("imag|volatile", n) and not hasattr(pair, n)] == []


@pytest.mark.parametrize("keep,order", [*product((True, False), ("index", "put"))])
def test_indexing_is_freed_once(lib: Lib, keep: bool, order: str) -> None:
    x = leaf(lib, 1, 2, 3)
    i = lib.tensor([0, 2])
    y = x[i] if order == "index" else (x * 1).index_put((i,), lib.ones(2))
    y.sum().backward(retain_graph=keep)
    if keep:
        y.sum().backward()
    with pytest.raises(RuntimeError, match="a second time"):
        y.sum().backward()
