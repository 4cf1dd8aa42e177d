"""In-place changes and views: history follows the storage, and stale saved tensors are noticed."""

from __future__ import annotations

import contextlib
import functools
import itertools
import random
from typing import Any

import pytest

import cugrad

pytestmark = pytest.mark.usefixtures("device")  # each test runs on each usable device


def leaf(lib: Any, *shape: int) -> Any:
    n = 1
    for extent in shape:
        n *= extent
    values = lib.tensor([0.5 + 0.25 * k for k in range(n)], dtype=lib.float64)
    return values.reshape(shape).clone().requires_grad_()


def raises(text: str) -> Any:
    return pytest.raises(RuntimeError, match=text)


STALE = "modified by an inplace operation"


# Version counters ---------------------------------------------------------------------------------


def test_versions_count_changes_and_are_shared_by_views(lib: Any) -> None:
    x = lib.zeros(4)
    assert x._version == 0
    view = x[1:]
    x.add_(1)
    assert x._version == view._version == 1
    view.mul_(2)
    assert x._version == view._version == 2
    assert x.detach()._version == 2
    x.detach().zero_()
    assert x._version == 3
    x[0] = 5
    assert x._version == 4
    assert x.data._version == 0 and x.clone()._version == 0


def test_data_has_a_version_of_its_own(lib: Any) -> None:
    x = leaf(lib, 2)
    y = x * x
    x.data.mul_(2)  # not noticed, as documented
    y.sum().backward()
    assert x.grad.tolist() == [2 * v for v in x.tolist()]
    assert x._version == 0


CHANGES = {
    "self": lambda t: t.add_(1),
    "view": lambda t: t[0:1].add_(1),
    "view of a view": lambda t: t[0:2][0].zero_(),
    "setitem": lambda t: t.__setitem__(0, 3.0),
    "detached": lambda t: t.detach().add_(1),
    "detached view": lambda t: t.detach()[0].add_(1),
}


@pytest.mark.parametrize("how", CHANGES)
def test_a_changed_input_is_noticed(lib: Any, how: str) -> None:
    x, w = leaf(lib, 3), lib.ones(3, dtype=lib.float64)
    y = x * w  # saves w
    CHANGES[how](w)
    with raises(STALE):
        y.sum().backward()
    assert x.grad is None


@pytest.mark.parametrize("how", CHANGES)
def test_a_changed_result_is_noticed(lib: Any, how: str) -> None:
    x = leaf(lib, 3)
    y = x.exp()  # saves its result
    CHANGES[how](y)
    with raises(STALE):
        y.sum().backward()


@pytest.mark.parametrize("how", CHANGES)
def test_a_change_of_what_was_not_saved_is_fine(lib: Any, how: str) -> None:
    x = leaf(lib, 3)
    y = x + 1
    z = (y * 2).sum()
    CHANGES[how](y)
    z.backward()
    assert x.grad.tolist() == [2, 2, 2]


def test_a_change_before_saving_is_fine(lib: Any) -> None:
    x, w = leaf(lib, 3), lib.ones(3, dtype=lib.float64)
    w.mul_(4)
    (x * w).sum().backward()
    assert x.grad.tolist() == [4, 4, 4]


def test_a_leaf_changed_under_no_grad_is_noticed(lib: Any) -> None:
    x = leaf(lib, 2)
    y = x * x
    with lib.no_grad():
        x.add_(1)
    with raises(STALE):
        y.sum().backward()


def test_a_changed_view_makes_its_base_stale(lib: Any) -> None:
    x = leaf(lib, 3)
    y = x * 1
    z = y * y
    y[1:].add_(1)
    with raises(STALE):
        z.sum().backward()


def test_the_error_tells_op_shape_and_versions(lib: Any) -> None:
    x = leaf(lib, 2)
    y = x * 1
    z = y * y
    y.add_(1)
    with pytest.raises(RuntimeError) as caught:
        z.sum().backward()
    text = str(caught.value)
    assert "is at version 1; expected version 0 instead" in text
    assert "[2]]" in text or "[2] that MulBackward0 saved" in text


def test_the_error_names_the_saved_tensor() -> None:
    x = leaf(cugrad, 2)
    y = x.exp()
    y.add_(1)
    with raises("shape \\[2\\] that ExpBackward0 saved as 'result', which is output 0 of"):
        y.sum().backward()


@pytest.mark.parametrize("how", CHANGES)
def test_saved_tensors_hooks_do_not_hide_a_change(how: str) -> None:
    """PyTorch does not look once hooks are on; cugrad does, unless the hook took a copy."""
    for function in (lambda x, w: x * w, lambda x, w: (x * w).exp()):
        x, w = leaf(cugrad, 3), cugrad.ones(3, dtype=cugrad.float64)
        with cugrad.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
            y = function(x, w)
        CHANGES[how](w)
        with raises(STALE):
            y.sum().backward()


# In-place ops -------------------------------------------------------------------------------------


INPLACE = {
    "add": lambda t, y, w: y.add_(w),
    "iadd": lambda t, y, w: y.__iadd__(w),
    "sub": lambda t, y, w: y.sub_(w),
    "alpha": lambda t, y, w: y.add_(w, alpha=3),
    "mul": lambda t, y, w: y.mul_(w),
    "add itself": lambda t, y, w: y.add_(y),
    "div": lambda t, y, w: y.div_(w),
    "pow": lambda t, y, w: y.pow_(2),
    "exp": lambda t, y, w: y.exp_(),
    "tanh": lambda t, y, w: y.tanh_(),
    "sqrt": lambda t, y, w: y.sqrt_(),
    "relu": lambda t, y, w: (y - 1).relu_(),
    "clamp": lambda t, y, w: y.clamp_(0.6, 1.1),
    "neg": lambda t, y, w: y.neg_(),
    "zero": lambda t, y, w: y.zero_(),
    "fill": lambda t, y, w: y.fill_(3.0),
    "copy": lambda t, y, w: y.copy_(w),
    "copy broadcast": lambda t, y, w: y.copy_(w[0]),
    "copy of another dtype": lambda t, y, w: y.copy_(w.float()),
    "broadcast": lambda t, y, w: y.mul_(w[:1]),
    "scalar tensor": lambda t, y, w: y.mul_(w.sum()),
    "masked_fill": lambda t, y, w: y.masked_fill_(y > 0.7, 2.0),
    "several": lambda t, y, w: y.mul_(2).add_(w).mul_(w),
    "float32 operand": lambda t, y, w: y.mul_(w.float()),
}  # fmt: skip


@pytest.mark.parametrize("name", INPLACE)
def test_inplace_gradients_equal_pytorchs(name: str) -> None:
    torch = pytest.importorskip("torch")
    found = []
    for lib in (cugrad, torch):
        x, w = leaf(lib, 3), leaf(lib, 3)
        y = x * x
        out = INPLACE[name](lib, y, w)
        assert name == "relu" or out is y
        loss = (out * lib.tensor([1.0, 2.0, 3.0], dtype=lib.float64)).sum()
        gradients = lib.autograd.grad(loss, [x, w], allow_unused=True, materialize_grads=True)
        found.append([out.tolist(), *(g.tolist() for g in gradients)])
    for got, want in zip(*found, strict=True):
        assert got == pytest.approx(want)


def test_a_product_with_itself_in_place() -> None:
    """PyTorch refuses the backward of this; cugrad saves a copy of the value that is lost."""
    x = leaf(cugrad, 2)
    y = x * 1
    y.mul_(y).mul_(y)
    y.sum().backward()
    assert x.grad.tolist() == pytest.approx([4 * v**3 for v in x.tolist()])


def test_inplace_on_a_leaf_is_refused(lib: Any) -> None:
    x = leaf(lib, 2)
    for changed in (x, x.detach().requires_grad_(), lib.zeros(2, 2)[0].requires_grad_()):
        with raises("a (view of a )?leaf Variable that requires grad is being used in an in-place"):
            changed.add_(1)
    with raises("a view of a leaf Variable that requires grad is being used in an in-place"):
        x[0] = 1
    with raises("a view of a leaf Variable that requires grad is being used in an in-place"):
        x.view(2).zero_()
    with raises("a leaf Variable that requires grad"):
        x[lib.tensor([0])] = 1
    assert x._version == 0 and x.tolist() == [0.5, 0.75]
    with lib.no_grad():
        x.add_(1)
        x[0] = 7
    assert x.tolist() == [7, 1.75] and x.is_leaf


def test_inplace_makes_a_tensor_require_grad(lib: Any) -> None:
    x, y = leaf(lib, 2), lib.ones(2, dtype=lib.float64)
    y.mul_(x)
    assert y.requires_grad and not y.is_leaf
    y.sum().backward()
    assert x.grad.tolist() == [1, 1]


def test_inplace_may_not_change_shape_or_dtype(lib: Any) -> None:
    x = lib.ones(3)
    with raises("output with shape \\[3\\] doesn't match the broadcast shape \\[2, 3\\]"):
        x.add_(lib.ones(2, 3))
    for method in ("heaviside_", "igamma_", "eq_"):  # not of leading dims of one either
        with raises(r"output with shape \[3\] doesn't match the broadcast shape \[1, 3\]"):
            getattr(x, method)(lib.ones(1, 3))
    for change in (
        lambda y: x.clamp_(y, y),
        lambda y: x.clip_(None, y),
        lambda y: x.div_(y, rounding_mode="trunc"),
        lambda y: x.div_(y, rounding_mode="floor"),
    ):
        with raises(r"output with shape \[3\] doesn't match the broadcast shape \[1, 3\]"):
            change(lib.ones(1, 3))
    with raises("result type Float can't be cast to the desired output type Long|result type"):
        lib.ones(3, dtype=lib.int64).add_(1.5)
    with raises("can't be cast"):
        x.add_(lib.ones(3, dtype=lib.complex64))
    assert x._version == 0 and x.tolist() == [1, 1, 1]


def test_inplace_on_overlapping_memory_is_refused(lib: Any) -> None:
    with raises("more than one element of the written-to tensor refers to a single memory"):
        lib.zeros(1).expand(3).add_(1)


def test_inplace_of_integers_keeps_the_dtype(lib: Any) -> None:
    x = lib.tensor([3, -5])
    x += 2
    x *= 2
    assert x.dtype is lib.int64 and x.tolist() == [10, -6]
    x.zero_()
    assert x.tolist() == [0, 0]


def test_inplace_with_a_source_that_overlaps(lib: Any) -> None:
    x = lib.tensor([1.0, 2.0, 3.0, 4.0])
    x.add_(x.flip(0))
    assert x.tolist() == [5, 5, 5, 5]
    y = lib.tensor([[1.0, 2.0], [3.0, 4.0]])
    y.mul_(y)
    assert y.tolist() == [[1, 4], [9, 16]]


def test_hooks_of_before_an_inplace_change_see_the_old_gradient(lib: Any) -> None:
    x, seen = leaf(lib, 2), []
    y = x * 1
    y.register_hook(lambda g: seen.append(("before", g.tolist())))
    y.mul_(3)
    y.register_hook(lambda g: seen.append(("after", g.tolist())))
    y.sum().backward()
    assert seen == [("after", [1, 1]), ("before", [3, 3])]


# Views --------------------------------------------------------------------------------------------


VIEWS = {
    "select": lambda y: y[0],
    "slice": lambda y: y[:, 1:],
    "step": lambda y: y[:, ::2],
    "transpose": lambda y: y.t(),
    "view": lambda y: y.view(3, 2),
    "reshape": lambda y: y.reshape(6),
    "unsqueeze": lambda y: y[None],
    "squeeze": lambda y: y[:1].squeeze(0),
    "permute": lambda y: y.permute(1, 0),
    "nested": lambda y: y.t()[1:].t()[0],
    "view of slice": lambda y: y[1].view(3, 1),
    "diagonal": lambda y: y.diagonal(),
    "whole": lambda y: y[...],
    "flatten": lambda y: y.flatten(),
    "narrow": lambda y: y.narrow(1, 1, 2),
}

USES = {
    "change the view": lambda y, v: v.mul_(3),
    "change the base": lambda y, v: y.mul_(3),
    "change both": lambda y, v: (v.mul_(3), y.add_(1), v.mul_(2)),
    "change base, then view": lambda y, v: (y.mul_(2), v.exp_()),
    "overwrite the view": lambda y, v: v.zero_(),
    "overwrite the base": lambda y, v: y.fill_(2.0),
    "copy into the view": lambda y, v: v.copy_(v * 2 + 1),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("hooked", [False, True])
def test_views_and_changes_equal_pytorch(view: str, use: str, hooked: bool) -> None:
    """Values and gradients, through the view and through the base, and of a sibling view."""
    hooks = cugrad.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t)
    with hooks if hooked else contextlib.nullcontext():
        found = changed_views(cugrad, view, use)
    assert found == pytest.approx(changed_views_of_pytorch(view, use))


@functools.cache
def changed_views_of_pytorch(view: str, use: str) -> list[float]:
    return changed_views(pytest.importorskip("torch"), view, use)


def changed_views(lib: Any, view: str, use: str) -> list[float]:
    x = leaf(lib, 2, 3)
    y = x * x
    v, sibling = VIEWS[view](y), y.view(6)
    USES[use](y, v)
    assert v.requires_grad and sibling.requires_grad and y.requires_grad
    values = [*y.flatten().tolist(), *v.flatten().tolist(), *sibling.tolist()]
    results = []
    for out in (v, y, sibling):
        loss = (out * out * 0.5).sum()
        (g,) = lib.autograd.grad(loss, x, retain_graph=True)
        results += g.flatten().tolist()
    loss = (v.sum() * 2 + y.sin().sum() + (sibling * sibling).sum()) ** 2
    (g,) = lib.autograd.grad(loss, x, create_graph=True)
    (h,) = lib.autograd.grad((g * g).sum(), x)
    return values + results + g.flatten().tolist() + h.flatten().tolist()


def test_base_is_the_root_of_views(lib: Any) -> None:
    y = leaf(lib, 2, 3) * 1
    v = y.t()[0]
    assert v._base is y and y._base is None
    assert y[None]._base is y
    assert y.detach()._base is None or y.detach()._base is not None  # torch's detach is a view


def test_a_view_of_a_base_that_starts_to_require_grad(lib: Any) -> None:
    x, base = leaf(lib, 3), lib.zeros(2, 3, dtype=lib.float64)
    row = base[0]
    other = base[1]
    row.copy_(x * 2)
    assert base.requires_grad and row.requires_grad
    (base * base).sum().backward(retain_graph=True)
    assert x.grad.tolist() == [8 * v for v in x.tolist()]
    assert other.requires_grad
    x.grad = None
    other.sum().backward()
    assert x.grad.tolist() == [0, 0, 0]


def test_grad_fn_of_a_view_after_its_base_changed(lib: Any) -> None:
    y = leaf(lib, 2, 3) * 1
    v = y[0]
    before = v.grad_fn
    y.mul_(2)
    after = v.grad_fn
    assert after is not before
    assert v.grad_fn is after  # made anew once


def test_inplace_on_a_view_names_the_base(lib: Any) -> None:
    y = leaf(lib, 2, 3) * 1
    y[0].mul_(2)
    assert y.grad_fn.name().endswith("CopySlices")


def test_views_made_under_no_grad(lib: Any) -> None:
    y = leaf(lib, 2, 3) * 1
    with lib.no_grad():
        v = y[0]
    with raises("A view was created in no_grad mode and is being modified inplace"):
        v.mul_(2)
    with lib.no_grad():
        v.mul_(2)
    assert y._version == 1


def test_a_view_made_before_its_base_required_gradients(lib: Any) -> None:
    x = lib.tensor([1.0, 2.0])
    v = x.view(2)
    w = v[:1]
    x.requires_grad_()
    assert v.requires_grad and v.is_leaf and w.requires_grad
    (v * w).sum().backward()  # they have no history
    assert x.grad is None
    with raises("a view of a leaf Variable that requires grad is being used in an in-place"):
        v.mul_(2)
    with lib.no_grad():
        v.mul_(2)
    (v * 3).sum().backward()  # and now they have one
    assert x.grad.tolist() == [3, 3]
    x.requires_grad_(False)
    assert v.requires_grad


def test_what_is_changed_through_a_window_of_windows(lib: Any) -> None:
    x = lib.tensor([1.0, 2.0, 3.0])
    x.unfold(0, 2, 1).masked_fill_(lib.tensor([[False, True], [False, False]]), 7.0)
    assert x.tolist() == [1, 7, 3]


OF_TWO: dict[str, Any] = {
    "mul": lambda t, v, w: v * w,
    "div": lambda t, v, w: w / v,
    "matmul": lambda t, v, w: v @ w,
}


@pytest.mark.parametrize("name", OF_TWO)
def test_nothing_is_saved_for_a_view_without_a_history(lib: Any, name: str) -> None:
    """No gradient goes to it, so what only its gradient needs may change, or be of inference."""
    x = leaf(lib, 3)
    with lib.no_grad():
        v = x[:]
    w = lib.tensor([2.0, 3.0, 4.0], dtype=v.dtype)
    result = OF_TWO[name](lib, v, w)
    w.mul_(2)
    assert lib.autograd.grad(result.sum(), x, allow_unused=True) == (None,)
    with lib.inference_mode():
        w = v * 2
    assert OF_TWO[name](lib, v, w).requires_grad


def test_inplace_on_a_base_after_a_view_made_under_no_grad(lib: Any) -> None:
    x = leaf(lib, 2)
    y = x * 1
    with lib.no_grad():
        v = y.view(2)
    y.mul_(2)
    assert v.tolist() == y.tolist()
    with raises("in no_grad mode and its base or another view of its base has been modified"):
        v.sum()
    assert v.grad is None and "<Invalid>" in repr(v) and v.detach().tolist() == [1, 1.5]
    y.sum().backward()
    assert x.grad.tolist() == [2, 2]


def test_a_view_of_a_leaf_under_no_grad_may_change(lib: Any) -> None:
    x = leaf(lib, 2, 3)
    with lib.no_grad():
        x[0].zero_()
        x.view(6)[5] = 9
    assert x.tolist() == [[0, 0, 0], [1.25, 1.5, 9]]
    (x * x).sum().backward()
    assert x.grad.tolist() == [[0, 0, 0], [2.5, 3, 18]]


def test_detached_views_share_memory(lib: Any) -> None:
    x = leaf(lib, 2)
    d = x.detach()
    d.mul_(2)
    assert x.tolist() == [1, 1.5] and not d.requires_grad
    with raises("you can only change requires_grad|Can't detach views in-place|detach"):
        (x * 1).view(2).detach_()


def test_detach_in_place(lib: Any) -> None:
    y = leaf(lib, 2) * 2
    assert y.detach_() is y
    assert y.is_leaf and not y.requires_grad and y.grad_fn is None


def test_a_view_outlives_its_base(lib: Any) -> None:
    x = leaf(lib, 2, 3)
    v = (x * 2)[0]
    v.mul_(3)
    v.sum().backward()
    assert x.grad.tolist() == [[6, 6, 6], [0, 0, 0]]


def test_a_view_that_only_the_layout_of_its_base_allows(lib: Any) -> None:
    x = leaf(lib, 2, 3)
    base = x.t() * 1  # column-major
    v = base.t().view(6)
    v[1:4].mul_(5)
    base.backward(lib.ones(3, 2, dtype=lib.float64), retain_graph=True, create_graph=False)
    assert x.grad.tolist() == [[1, 5, 5], [5, 1, 1]]
    x.grad = None
    v.backward(lib.arange(6, dtype=lib.float64))
    assert x.grad.tolist() == [[0, 5, 10], [15, 4, 5]]


def test_a_part_of_an_expanded_tensor_may_change(lib: Any) -> None:
    x = lib.zeros(1, 2)
    x.expand(3, 2)[1].add_(1)
    assert x.tolist() == [[1, 1]]


def test_many_views_of_one_base(lib: Any) -> None:
    x = leaf(lib, 40)
    y = x * 1
    for k in range(40):
        y[k] = y[k - 1] * 2 if k % 4 else y[k] * 1
    y.sum().backward()
    assert x.grad.tolist() == [15, 0, 0, 0] * 10


# Assignment ---------------------------------------------------------------------------------------


INDICES = {
    "int": lambda t: 1,
    "slice": lambda t: slice(1, None),
    "pair": lambda t: (0, 1),
    "step": lambda t: (slice(None), slice(None, None, 2)),
    "ellipsis": lambda t: (..., 0),
    "none": lambda t: (None, 0),
    "list": lambda t: [0, 1],
    "index": lambda t: t.tensor([1, 0]),
    "mixed": lambda t: (0, t.tensor([2, 0])),
    "columns": lambda t: (slice(None), t.tensor([2, 0])),
    "mask": lambda t: t.tensor([[True, False, True], [False, True, False]]),
    "rows": lambda t: t.tensor([False, True]),
    "two": lambda t: (t.tensor([0, 1]), t.tensor([1, 2])),
    "nothing": lambda t: t.tensor([], dtype=t.int64),
}


@pytest.mark.parametrize("what", ["number", "scalar", "full", "itself"])
@pytest.mark.parametrize("name", INDICES)
def test_assignment_equals_pytorch(name: str, what: str) -> None:
    """Into a tensor with a history, one without; of tensors with a history, and of numbers."""
    torch = pytest.importorskip("torch")
    found = [[*assigned(lib, name, what, True), *assigned(lib, name, what, False)]
             for lib in (cugrad, torch)]  # fmt: skip
    assert found[0] == pytest.approx(found[1])


def assigned(lib: Any, name: str, what: str, history: bool) -> list[float]:
    x, w = leaf(lib, 2, 3), leaf(lib, 2, 3)
    y = x * x if history else lib.ones(2, 3, dtype=lib.float64)
    index = INDICES[name](lib)
    value: Any = 7.0
    if what == "scalar":
        value = w.sum()
    elif what == "full":
        value = (w * w)[index]
    elif what == "itself":
        value = y[index] * 2 + w.mean()
    y[index] = value
    got = y.flatten().tolist()
    if y.requires_grad:
        loss = (y * y * lib.arange(6, dtype=lib.float64).view(2, 3)).sum()
        for g in lib.autograd.grad(
            loss, [x, w], create_graph=True, allow_unused=True, materialize_grads=True
        ):
            got += g.flatten().tolist()
    return got


def test_assignment_from_float32_and_ints(lib: Any) -> None:
    x = leaf(lib, 3)
    y = x * 1
    w = lib.ones(2, requires_grad=True)
    y[:2] = w * 3
    y[2] = lib.tensor(4)
    assert y.tolist() == [3, 3, 4] and y.dtype is lib.float64
    y.sum().backward()
    assert w.grad.tolist() == [3, 3] and w.grad.dtype is lib.float32
    assert x.grad.tolist() == [0, 0, 0]


# Random programs ----------------------------------------------------------------------------------


def random_program(seed: int) -> list[tuple[str, int, int, int]]:
    rng = random.Random(seed)
    names = [*STEPS]
    return [
        (rng.choice(names), rng.randrange(100), rng.randrange(100), rng.randrange(3))
        for _ in range(rng.randrange(3, 14))
    ]


STEPS: dict[str, Any] = {
    "row": lambda t, a, b, k: a[k % a.shape[0]] if a.ndim else a.view(1),
    "tail": lambda t, a, b, k: a[..., :-1] if a.ndim and a.shape[-1] > 1 else a[None],
    "transpose": lambda t, a, b, k: a.transpose(0, -1) if a.ndim else a[None],
    "expand": lambda t, a, b, k: a[None].expand(2, *a.shape) if a.ndim < 3 else a[0],
    "ravel": lambda t, a, b, k: a.reshape(-1),
    "product": lambda t, a, b, k: a * 0.5 + b.sum(),
    "sine": lambda t, a, b, k: a.sin(),
    "square": lambda t, a, b, k: a * a,
    "mul_": lambda t, a, b, k: a.mul_(1.5),
    "mul_ b": lambda t, a, b, k: a.mul_(b.mean()),
    "square_": lambda t, a, b, k: a.pow_(2),
    "add_": lambda t, a, b, k: a.add_(b.sum(), alpha=0.5),
    "sin_": lambda t, a, b, k: a.sin_(),
    "tanh_": lambda t, a, b, k: a.tanh_(),
    "zero_": lambda t, a, b, k: plain(a).zero_(),
    "copy_": lambda t, a, b, k: a.copy_(b.mean() * a),
    "assign": lambda t, a, b, k: assign(a, k, b.mean()),
    "assign mask": lambda t, a, b, k: assign(a, a > 0.5, b.mean()),
    "detach": lambda t, a, b, k: a.detach().clone(),
    "constant": lambda t, a, b, k: t.ones(2, 2, dtype=t.float64),
}


def plain(a: Any) -> Any:
    """`a`, unless it is expanded, where PyTorch does not refuse every write, as cugrad does."""
    if any(step == 0 and n > 1 for step, n in zip(a.stride(), a.shape, strict=True)):
        raise RuntimeError("expanded")
    return a


def assign(a: Any, index: Any, value: Any) -> Any:
    if plain(a).ndim and a.shape[0]:
        a[index if not isinstance(index, int) else index % a.shape[0]] = value
    return a


def run_program(lib: Any, program: list[tuple[str, int, int, int]]) -> list[Any]:
    """What each step gave (or that it was refused), then gradients of every tensor there is."""
    x = leaf(lib, 2, 3)
    tensors = [x, x * 1]
    log: list[Any] = []
    for name, i, j, k in program:
        a, b = tensors[i % len(tensors)], tensors[j % len(tensors)]
        try:
            result = STEPS[name](lib, a, b, k)
        except RuntimeError:
            log.append(f"{name} refused")
            continue
        log.append([name, bool(result.requires_grad), result.is_leaf, tuple(result.shape)])
        if not any(result is t for t in tensors):
            tensors.append(result)
        for t in tensors:
            assert t.grad_fn or t.is_leaf  # PyTorch brings views up to date when asked, not before
    for t in tensors:
        log.append([round(v, 9) for v in t.detach().reshape(-1).tolist()])
        log.append([t.requires_grad, t._version])
        if not t.requires_grad:
            continue
        try:
            g, = lib.autograd.grad(t.sum(), x, retain_graph=True, create_graph=True,
                                   allow_unused=True, materialize_grads=True)  # fmt: skip
            log.append([round(v, 6) for v in g.reshape(-1).tolist()])
            h, = lib.autograd.grad((g + x * 0).sum(), x, retain_graph=True)  # fmt: skip
            log.append([round(v, 5) for v in h.reshape(-1).tolist()])
        except RuntimeError as error:
            log.append(STALE if STALE in str(error) else str(error))
    return log


@pytest.mark.parametrize("block", range(8))
def test_random_programs_of_views_and_changes(block: int) -> None:
    """Whatever order views are taken and changed in: the values and gradients of PyTorch."""
    for seed in range(block * 50, block * 50 + 25):
        program = random_program(seed)
        ours, theirs = run_program(cugrad, program), run_by_pytorch(seed)
        assert ours == theirs, f"seed {seed}: {program}"


@functools.cache
def run_by_pytorch(seed: int) -> list[Any]:
    return run_program(pytest.importorskip("torch"), random_program(seed))


@pytest.mark.parametrize("view", ["reshape", "unsqueeze", "expand"])
@pytest.mark.parametrize("change", ["zero_", "mul_", "copy_"])
def test_a_view_of_a_single_number_is_changed(lib: Any, view: str, change: str) -> None:
    x = lib.tensor(3.0, requires_grad=True)
    s = x * x
    v = {"reshape": lambda: s.reshape(-1), "unsqueeze": lambda: s.unsqueeze(0),
         "expand": lambda: s.expand(1)}[view]()  # fmt: skip
    {"zero_": v.zero_, "mul_": lambda: v.mul_(2), "copy_": lambda: v.copy_(x.detach())}[change]()
    (s * 1).backward()
    assert x.grad.item() == {"zero_": 0, "mul_": 12, "copy_": 0}[change]


# Leaves and bases that change their minds ---------------------------------------------------------


@pytest.mark.parametrize("way", ["requires_grad_", "detach_"])
def test_a_leaf_that_no_longer_requires_grad_accumulates_nothing(lib: Any, way: str) -> None:
    x, w = leaf(lib, 3), leaf(lib, 3)
    total = (x * w).sum()
    calls: list[Any] = []
    x.register_hook(calls.append)
    x.register_post_accumulate_grad_hook(calls.append)
    x.requires_grad_(False) if way == "requires_grad_" else x.detach_()
    total.backward()
    assert x.grad is None and w.grad is not None and len(calls) == 2


@pytest.mark.parametrize("name", ["t_", "transpose_", "swapdims_", "unsqueeze_"])
def test_a_leaf_with_views_is_turned_in_place(lib: Any, name: str) -> None:
    x = leaf(lib, 2, 3)
    v = x[0]
    with lib.no_grad():
        getattr(x, name)(*{"t_": (), "unsqueeze_": (0,)}.get(name, (0, 1)))
    assert x.is_leaf and not x._is_view() and v._base is x
    assert (x * x).shape == x.shape
    if lib is cugrad:  # PyTorch gives the shape that there was
        assert lib.autograd.grad((x * x).sum(), x)[0].shape == x.shape


@pytest.mark.parametrize("changed", ["view", "base", "fellow"])
def test_a_changed_view_keeps_its_history_when_its_base_is_detached(lib: Any, changed: str) -> None:
    x = leaf(lib, 3, 2)
    y = x * 3
    v, w = y[0], y[1]
    {"view": v, "base": y, "fellow": w}[changed].mul_(0.5)
    y.detach_()
    for name, t in {"view": v, "fellow": w}.items():
        assert t.requires_grad and not y.requires_grad
        (g,) = lib.autograd.grad(t.sum(), x, allow_unused=True)
        assert (g is not None) is (name == changed)
        assert g is None or g.sum().item() == 3


def test_views_of_a_detached_base_forget_what_is_overwritten(lib: Any) -> None:
    x = leaf(lib, 3, 2)
    y = x * 3
    v = y[0]
    y.detach_()
    assert lib.autograd.grad(v.sum(), x, retain_graph=True)[0].sum().item() == 6
    with pytest.raises(RuntimeError, match="a view of a leaf Variable"):
        v.mul_(2)
    y.mul_(2)
    assert lib.autograd.grad(v.sum(), x, allow_unused=True) == (None,)


def test_a_view_made_under_no_grad_gets_no_gradient(lib: Any) -> None:
    x = leaf(lib, 3, 2)
    with lib.no_grad():
        v = x[0]
    assert v.requires_grad and v.is_leaf and v.grad_fn is None
    (v[0] + (v * 3).sum() + (x * 2).sum()).backward()
    assert v.grad is None and x.grad.tolist() == [[2, 2]] * 3
    with pytest.raises(RuntimeError, match="appears to not have been used"):
        lib.autograd.grad((v * 3).sum(), v)
    with pytest.raises(RuntimeError, match="element 0 of tensors does not require grad"):
        v.backward(lib.ones(2))
    v.requires_grad_()
    (v * 3).sum().backward()
    assert v.grad.tolist() == [3, 3]


def test_what_is_made_of_tensors_is_no_view_of_them(lib: Any) -> None:
    x = leaf(lib, 2, 2).detach()
    for made in (lib.rot90(x), lib.rot90(x, 2), lib.complex(x, x), lib.polar(x.abs(), x)):
        assert not made._is_view() and made.detach_() is made


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of PyTorch's forward mode
@pytest.mark.parametrize("how", ["mul_", "view", "clamp_", "sin_"])
def test_a_change_under_no_grad_leaves_the_history_of_a_tangent(lib: Any, how: str) -> None:
    """As it leaves its tensor's: what is recorded is what was before it."""
    x = lib.tensor([1.3, 0.4], dtype=lib.float64, requires_grad=True)
    with lib.autograd.forward_ad.dual_level():
        b = lib.autograd.forward_ad.make_dual(x * 1, x * 0.5) * 2
        with lib.no_grad():
            {"mul_": lambda: b.mul_(3.0), "view": lambda: b[0].mul_(3.0),
             "clamp_": lambda: b.clamp_(min=1.0), "sin_": b.sin_}[how]()  # fmt: skip
        tangent = lib.autograd.forward_ad.unpack_dual(b * b).tangent
    (g,) = lib.autograd.grad(tangent.sum(), x)
    wanted = {"mul_": [31.2, 9.6], "view": [31.2, 3.2], "clamp_": [10.4, 2.0],
              "sin_": [-3.4248187738755975, 2.5494429167545105]}[how]  # fmt: skip
    assert g.tolist() == pytest.approx(wanted)


OTHER_FACES = {
    "detach": lambda lib, x, v: x.detach().add_(0.3),
    "detach of the view": lambda lib, x, v: v.detach().add_(0.3),
    "view of detach": lambda lib, x, v: x.detach().split(1)[0].add_(0.3),
    "increment_version": lambda lib, x, v: lib.autograd.graph.increment_version(x),
    "no longer requires grad": lambda lib, x, v: x.requires_grad_(False)[::2].add_(0.5),
    "step": lambda lib, x, v: lib.optim.SGD([x], lr=0.1).step(),
}


@pytest.mark.parametrize("how", OTHER_FACES)
def test_a_change_by_another_face_of_the_storage(lib: Any, how: str) -> None:
    """A view has a new node then; one of several, which cannot be followed, says so."""
    for several in (False, True):
        x = lib.ones(2, 2, requires_grad=True)
        x.grad = lib.ones(2, 2)
        v = x.split(1)[0] if several else x[0]
        early = v * 2
        OTHER_FACES[how](lib, x, v)
        if several:
            with pytest.raises(RuntimeError, match="is a view and its base or another view"):
                _ = v.grad_fn
        else:
            assert v.requires_grad and not v.is_leaf
            assert lib.autograd.grad(early.sum(), v, allow_unused=True) == (None,)


def test_faces_of_a_storage_are_not_kept() -> None:
    x = cugrad.ones(3, requires_grad=True)
    for _ in range(50):
        x.detach()[0]
    assert len(x.counter) < 4


CHAIN = (lambda x: x.view(2, 2), lambda x: x.flatten(), lambda x: x[:3], lambda x: x[1:])


@pytest.mark.parametrize("keeps", [False, True], ids=["hook", "retain_grad"])
@pytest.mark.parametrize("change", ["add_", "mul_", "exp_"])
def test_hooks_along_a_chain_of_views(change: str, keeps: bool) -> None:
    """A hook on each link, a change of each link or of the base, asked by each: as PyTorch's."""
    assert heard_along(cugrad, change, keeps) == heard_by_pytorch(change, keeps)


@functools.cache
def heard_by_pytorch(change: str, keeps: bool) -> Any:
    return heard_along(pytest.importorskip("torch"), change, keeps)


def heard_along(t: Any, change: str, keeps: bool) -> Any:
    def outcome(heard: int, changed: int, asked: int) -> Any:
        x = t.arange(4.0, dtype=t.float64).div(8).requires_grad_()
        links, seen = [x * 2], []
        for step in CHAIN:
            links.append(step(links[-1]))
        if keeps:
            links[heard].retain_grad()
        else:
            links[heard].register_hook(lambda g: seen.append(g.tolist()))
        getattr(links[changed], change)(*([] if change == "exp_" else [1.5]))
        weights = t.arange(1.0, 1 + links[asked].numel()).view(links[asked].shape)
        (links[asked] * weights).sum().backward()
        kept = links[heard].grad if keeps else None
        return x.grad.tolist(), seen, None if kept is None else kept.tolist()

    places = itertools.product(range(1 + len(CHAIN)), repeat=3)
    return {place: outcome(*place) for place in places}


@pytest.mark.parametrize("value", ["a tensor", "a number", "a view of itself"])
def test_a_part_that_is_overwritten_sends_no_gradient_back(value: str, device: str) -> None:
    """As in PyTorch the old part has no node, so no zeros are made, and added."""
    x = cugrad.arange(6.0, device=device).reshape(2, 3).requires_grad_()
    b = cugrad.ones(3, device=device).requires_grad_()
    y = x * 2
    part = y[0]
    part.copy_({"a tensor": b, "a number": cugrad.tensor(7.0, device=device)}.get(value, y[1]))
    assert y.grad_fn.name() == "torch::autograd::CopySlices"
    names, nodes = [], [y.grad_fn]
    while nodes:
        node = nodes.pop()
        names.append(node.name())
        nodes += [n for n, _ in node.next_functions if n is not None]
    assert names.count("SelectBackward0") == (value == "a view of itself")
    (y * cugrad.tensor([[1.0], [10.0]], device=device)).sum().backward()
    ones = [1.0] * 3
    twos = {"a view of itself": [22.0] * 3}.get(value, [20.0] * 3)
    assert x.grad.tolist() == [[0.0] * 3, twos]
    assert (b.grad.tolist() if value == "a tensor" else b.grad) == (
        ones if value == "a tensor" else None
    )
