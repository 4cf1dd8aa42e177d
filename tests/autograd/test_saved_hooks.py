"""Saved tensors: what a graph keeps, the hooks that pack it, and the documented examples."""

from __future__ import annotations

import gc
import os
import pickle
import uuid
import weakref
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

import cugrad
from cugrad.errors import InplaceError


def leaf(lib: Any, *values: float) -> Any:
    return lib.tensor(list(values), dtype=lib.float64, requires_grad=True)


def hooks(lib: Any, pack: Any, unpack: Any) -> Any:
    return lib.autograd.graph.saved_tensors_hooks(pack, unpack)


def raises(text: str, error: Any = RuntimeError) -> Any:
    return pytest.raises(error, match=text)


# What is saved ------------------------------------------------------------------------------------


def test_saved_inputs_are_the_very_tensors(lib: Any) -> None:
    a, b = lib.randn(5, requires_grad=True), lib.ones(5, requires_grad=True)
    y = a * b
    assert y.grad_fn._saved_self is a
    assert y.grad_fn._saved_other is b


def test_a_saved_result_is_equal_but_another_tensor(lib: Any) -> None:
    a = lib.randn(5, requires_grad=True)
    y = lib.exp(a)
    saved = y.grad_fn._saved_result
    assert saved.equal(y) and saved is not y
    assert saved.data_ptr() == y.data_ptr()
    assert saved.grad_fn is y.grad_fn and saved.requires_grad


def test_only_what_is_needed_is_saved(lib: Any) -> None:
    x, c = lib.ones(2, requires_grad=True), lib.ones(2)
    assert (x * c).grad_fn._saved_self is None
    assert (x * c).grad_fn._saved_other is c
    assert (x + c).grad_fn is not None


def test_saved_parameters(lib: Any) -> None:
    x = lib.ones(2, requires_grad=True)
    assert x.pow(3).grad_fn._saved_exponent == 3


def test_saved_tensors_are_gone_after_backward(lib: Any) -> None:
    x = lib.ones(2, requires_grad=True)
    y = x * x
    y.sum().backward()
    with raises("they have already been freed"):
        y.grad_fn._saved_self  # noqa: B018
    with raises("they have already been freed|after it has been freed"):
        y.grad_fn._raw_saved_self.register_hooks(lambda t: t, lambda t: t)


def test_names_that_are_not_saved(lib: Any) -> None:
    node = lib.ones(2, requires_grad=True).mul(2).grad_fn
    with pytest.raises(AttributeError):
        node._saved_nothing  # noqa: B018
    assert any(name.startswith("_saved_") for name in dir(node))


# Hooks --------------------------------------------------------------------------------------------


def test_pack_is_called_per_saved_tensor_and_unpack_per_use(lib: Any) -> None:
    log: list[Any] = []

    def pack(t: Any) -> Any:
        log.append(("pack", t.tolist(), t.requires_grad))
        return t

    def unpack(t: Any) -> Any:
        log.append(("unpack", t.tolist()))
        return t

    a = lib.ones(2, requires_grad=True)
    b = lib.ones(2, requires_grad=True) * 2
    with hooks(lib, pack, unpack):
        y = a * b
    packs = sorted(entry for entry in log if entry[0] == "pack")
    assert packs == [("pack", [1, 1], True), ("pack", [2, 2], True)]
    del log[:]
    y.grad_fn._saved_self  # noqa: B018
    y.sum().backward()
    assert sorted(log) == [("unpack", [1, 1])] * 2 + [("unpack", [2, 2])]
    assert a.grad.tolist() == [2, 2]


def test_pack_sees_the_history_of_inputs(lib: Any) -> None:
    seen = []
    mid = leaf(lib, 1) * 2
    with hooks(lib, lambda t: seen.append((t.is_leaf, t.grad_fn)) or t, lambda t: t):
        mid * mid
    assert seen == [(False, mid.grad_fn)] * 2


def test_a_hook_that_keeps_a_result_makes_no_cycle() -> None:
    gc.collect()
    gc.disable()
    try:
        with hooks(cugrad, lambda t: t, lambda t: t):
            y = leaf(cugrad, 1).exp()
        ref = weakref.ref(y.grad_fn)
        del y
        assert ref() is None
    finally:
        gc.enable()


def test_hooks_compose_with_arithmetic(lib: Any) -> None:
    x = lib.randn(5, requires_grad=True)
    with hooks(lib, lambda t: t * 4, lambda t: t / 4):
        y = lib.pow(x, 2)
    y.sum().backward()
    assert x.grad.equal(2 * x)


def test_any_object_may_be_packed(lib: Any) -> None:
    storage: list[Any] = []

    def pack(t: Any) -> int:
        storage.append(t)
        return len(storage) - 1

    x = lib.randn(5, requires_grad=True)
    with hooks(lib, pack, lambda i: storage[i]):
        y = x * x
    y.sum().backward()
    assert x.grad.equal(2 * x)


def test_a_tuple_with_a_function_may_be_packed(lib: Any) -> None:
    def pack(x: Any) -> Any:
        delta = lib.randn(*x.size())
        return x - delta, lambda x: x + delta

    def unpack(packed: Any) -> Any:
        x, f = packed
        return f(x)

    x = lib.randn(5, requires_grad=True)
    with hooks(lib, pack, unpack):
        y = x * x
    y.sum().backward()
    assert lib.allclose(x.grad, 2 * x, atol=1e-5)


def test_a_repr_may_be_packed(lib: Any) -> None:
    x = lib.tensor([0.25, 1.5, -3.0], requires_grad=True)
    with lib.device("cpu") if lib is cugrad else hooks(lib, lambda t: t, lambda t: t):
        y = lib.tensor(x.tolist(), requires_grad=True)
        with hooks(lib, lambda t: repr(t), lambda text: eval("lib." + text, {"lib": lib})):
            z = y * y
        z.sum().backward()
    assert y.grad.tolist() == [0.5, 3, -6]


def test_tensors_may_be_packed_away_and_back(lib: Any) -> None:
    x = lib.randn(5, requires_grad=True)
    pack = lambda t: (t.device, t.cpu())
    with hooks(lib, pack, lambda packed: packed[1].to(packed[0])):
        y = x * x
    y.sum().backward()
    assert lib.allclose(x.grad, 2 * x)


class SelfDeletingFile:
    """A file that goes with its last reference, as the tutorial has it."""

    def __init__(self, folder: Path) -> None:
        self.name = folder / str(uuid.uuid4())

    def __del__(self) -> None:
        os.remove(self.name)


def test_tensors_may_be_packed_on_disk(lib: Any, tmp_path: Path) -> None:
    def pack(t: Any) -> Any:
        if t.numel() < 4:
            return t
        file = SelfDeletingFile(tmp_path)
        file.name.write_bytes(pickle.dumps(t.detach().cpu()))
        return file

    def unpack(packed: Any) -> Any:
        if isinstance(packed, lib.Tensor):
            return packed
        return pickle.loads(packed.name.read_bytes()).to(x.device)

    x = lib.ones(5, requires_grad=True)
    with hooks(lib, pack, unpack):
        y = x.pow(2)
        z = (y * y).sum() * lib.ones(2, requires_grad=True)
    assert len(list(tmp_path.iterdir())) == 3
    for _ in range(2):  # unpack may be called many times
        assert y.grad_fn._saved_self.tolist() == [1] * 5
    z.sum().backward()
    assert x.grad.tolist() == [8] * 5
    gc.collect()
    assert not list(tmp_path.iterdir())


def test_double_access_to_what_unpack_deleted_fails(lib: Any, tmp_path: Path) -> None:
    """The tutorial's incorrect version."""

    def pack(t: Any) -> Path:
        name = tmp_path / str(uuid.uuid4())
        name.write_bytes(pickle.dumps(t.detach()))
        return name

    def unpack(name: Path) -> Any:
        t = pickle.loads(name.read_bytes())
        name.unlink()
        return t

    x = lib.ones(5, requires_grad=True)
    with hooks(lib, pack, unpack):
        y = x.pow(2)
    shown = y.grad_fn._saved_self
    assert shown.tolist() == [1] * 5 and shown.requires_grad and shown.is_leaf
    with pytest.raises(FileNotFoundError):
        y.grad_fn._saved_self  # noqa: B018


def test_the_innermost_hooks_apply(lib: Any) -> None:
    log: list[str] = []

    def named(name: str) -> Any:
        return hooks(lib, lambda t: log.append(name) or t, lambda t: log.append("un" + name) or t)

    x = leaf(lib, 3)
    with named("outer"):
        with named("inner"):
            y = x.exp()
        z = y.exp()
    w = z.exp()
    assert log == ["inner", "outer"]
    w.sum().backward()
    assert log == ["inner", "outer", "unouter", "uninner"]


def test_hooks_run_without_recording_and_may_use_ops(lib: Any) -> None:
    modes = []
    x = leaf(lib, 1)
    pack = lambda t: (modes.append(lib.is_grad_enabled()), t * 2)[1]
    unpack = lambda t: (modes.append(lib.is_grad_enabled()), t / 2)[1]
    with hooks(lib, pack, unpack):
        y = x.exp()
    y.sum().backward()
    assert modes == [False, False]


def test_second_derivatives_through_hooks(lib: Any) -> None:
    x = leaf(lib, 0.5, 2)
    with hooks(lib, lambda t: t.detach().clone(), lambda t: t.clone()):
        y = (x * x * x).exp().sum()
        (g,) = lib.autograd.grad(y, x, create_graph=True)
        (h,) = lib.autograd.grad(g.sum(), x)
    for v, first, second in zip([0.5, 2], g.tolist(), h.tolist(), strict=True):
        e = 2.718281828459045 ** (v**3)
        assert first == pytest.approx(3 * v**2 * e)
        assert second == pytest.approx((6 * v + 9 * v**4) * e)


def test_retain_graph_unpacks_again(lib: Any) -> None:
    count = [0]

    def unpack(t: Any) -> Any:
        count[0] += 1
        return t

    x = leaf(lib, 1)
    with hooks(lib, lambda t: t, unpack):
        y = x.exp().sum()
    y.backward(retain_graph=True)
    y.backward()
    assert count[0] == 2


def test_the_packed_object_is_freed_with_the_graph(lib: Any) -> None:
    class Box:
        def __init__(self, t: Any) -> None:
            self.t = t

    boxes: list[Any] = []

    def pack(t: Any) -> Box:
        box = Box(t.detach())
        boxes.append(weakref.ref(box))
        return box

    x = leaf(lib, 1)
    for how in ("backward", "drop"):
        with hooks(lib, pack, lambda box: box.t):
            y = (x * x).exp().sum()
        assert [box() is not None for box in boxes] == [True] * len(boxes) and boxes
        y.backward() if how == "backward" else None
        del y
        gc.collect()
        assert [box() for box in boxes] == [None] * len(boxes)
        boxes.clear()


BAD = {
    "unpack gives no tensor": (lambda t: 3, lambda n: n, TypeError,
                               "Output of saved tensor unpack_hook expected to be a Tensor"),
    "unpack raises": (lambda t: t, lambda t: 1 / 0, ZeroDivisionError, "division"),
    "pack raises": (lambda t: 1 / 0, lambda t: t, ZeroDivisionError, "division"),
    "pack changes its input": (lambda t: t.mul_(2), lambda t: t, RuntimeError,
                               "pack hook is modifying its input in place"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_errors_of_hooks_leave_no_trace(lib: Any, name: str) -> None:
    pack, unpack, error, text = BAD[name]
    x = leaf(lib, 1)
    with raises(text, error), hooks(lib, pack, unpack):
        y = (x * 1) * (x * 1)
        y.sum().backward()
    assert lib.is_grad_enabled() and x.grad is None
    y = (x * x).sum()  # no hook is left on
    y.backward()
    assert x.grad.tolist() == [2]


def test_an_exception_in_the_body_takes_the_hooks_away(lib: Any) -> None:
    calls: list[int] = []
    with (
        raises("division", ZeroDivisionError),
        hooks(lib, lambda t: calls.append(1) or t, lambda t: t),
    ):
        1 / 0  # noqa: B018
    leaf(lib, 1).exp()
    assert not calls


def test_hooks_of_one_saved_tensor(lib: Any) -> None:
    log: list[str] = []
    x = leaf(lib, 2)
    y = x * x
    y.grad_fn._raw_saved_self.register_hooks(
        lambda t: log.append("pack") or t * 10, lambda t: log.append("unpack") or t / 10
    )
    assert log == ["pack"]
    y.sum().backward()
    assert log == ["pack", "unpack"] and x.grad.tolist() == [4]


def test_hooks_of_a_saved_result(lib: Any) -> None:
    x = leaf(lib, 0)
    y = x.exp()
    y.grad_fn._raw_saved_result.register_hooks(lambda t: t.tolist(), lambda v: x.new_tensor(v) * 5)
    y.sum().backward()
    assert x.grad.tolist() == [5]


def test_what_is_kept_of_a_saved_tensor_can_be_seen(lib: Any) -> None:
    x = leaf(lib, 2)
    y, z, packing = x * x, x * 2, lambda t: [t]
    raw = y.grad_fn._raw_saved_self
    assert raw.data is x and raw.unpack_hook is None
    undo = lambda kept: kept[0]
    raw.register_hooks(packing, undo)
    assert raw.data == [x] and raw.unpack_hook is undo
    y.sum().backward()
    assert raw.data is None and raw.unpack_hook is None
    nothing = z.grad_fn._raw_saved_self  # the gradient of a number is not wanted
    assert nothing.data is None and nothing.unpack_hook is None
    with raises("with value None is forbidden"):
        nothing.register_hooks(packing, undo)


def test_hooks_of_one_saved_tensor_are_set_once(lib: Any) -> None:
    y = leaf(lib, 2).exp()
    same = lambda t: t
    y.grad_fn._raw_saved_result.register_hooks(same, same)
    with raises("hooks have already been set"):
        y.grad_fn._raw_saved_result.register_hooks(same, same)
    with hooks(lib, same, same):
        z = leaf(lib, 2).exp()
    with raises("hooks have already been set"):
        z.grad_fn._raw_saved_result.register_hooks(same, same)
    with raises("callable|Callable", (TypeError, RuntimeError)):
        leaf(lib, 2).exp().grad_fn._raw_saved_result.register_hooks(3, same)


def test_hooks_may_be_forbidden(lib: Any) -> None:
    x = leaf(lib, 2)
    with lib.autograd.graph.disable_saved_tensors_hooks("no hooks, please"):
        with raises("no hooks, please"), hooks(lib, lambda t: t, lambda t: t):
            pass
        inner = lib.autograd.graph.disable_saved_tensors_hooks("inner")
        with inner, raises("inner"), hooks(lib, lambda t: t, lambda t: t):
            pass
        with raises("no hooks, please"), hooks(lib, lambda t: t, lambda t: t):
            pass
    with hooks(lib, lambda t: t, lambda t: t):
        (x * x).sum().backward()
        with raises("too late"), lib.autograd.graph.disable_saved_tensors_hooks("too late"):
            pass


def test_hooks_see_half_an_inplace_op(lib: Any) -> None:
    """In-place ops save through hooks too, before and after the change as their formulas need."""
    x = leaf(lib, 2)
    for change, want in ((lambda y: y.exp_(), 7.38905609893065), (lambda y: y.pow_(3), 12)):
        with hooks(lib, lambda t: t.detach().clone(), lambda t: t):
            y = x * 1
            change(y)
        (g,) = lib.autograd.grad(y.sum(), x)
        assert g.tolist() == pytest.approx([want])


def test_unpack_may_itself_save_tensors(lib: Any) -> None:
    x = leaf(lib, 3)

    def unpack(t: Any) -> Any:
        with lib.enable_grad():
            z = t.detach().requires_grad_()
            lib.autograd.grad((z * z).sum(), z)
        return t

    with hooks(lib, lambda t: t, unpack):
        y = (x * x).sum()
    y.backward()
    assert x.grad.tolist() == [6]


# Changes in place under hooks ---------------------------------------------------------------------

COPIES = {
    "clone": (lambda t: t.clone(), lambda t: t),
    "later clone": (lambda t: t.clone(), lambda t: t.clone()),
    "numbers": (lambda t: (t.dtype, t.tolist()), None),
    "elsewhere": ("kept", "kept"),
}


def copying(lib: Any, name: str) -> Any:
    kept: list[Any] = []
    pack, unpack = COPIES[name]
    if name == "numbers":
        unpack = lambda packed: lib.tensor(packed[1], dtype=packed[0])
    if name == "elsewhere":
        pack, unpack = lambda t: kept.append(t.clone()) or len(kept) - 1, lambda k: kept[k]
    return hooks(lib, pack, unpack)


@pytest.mark.parametrize("name", COPIES)
def test_a_change_after_a_hook_that_copied_does_no_harm(lib: Any, name: str) -> None:
    x = leaf(lib, 0.5, 2, -1)
    with copying(lib, name):
        h = x * 1
        y = (h * h.exp()).sum() + h[1:].sin().sum()
        h.mul_(3)
        h.detach()[0] = 7
    wanted = leaf(lib, 0.5, 2, -1)
    ((wanted * wanted.exp()).sum() + wanted[1:].sin().sum()).backward()
    for _ in range(2):
        (g,) = lib.autograd.grad(y, x, retain_graph=True)
        assert lib.allclose(g, wanted.grad)


SHARES = {
    "itself": (lambda t: t, lambda t: t),
    "detached": (lambda t: t.detach(), lambda t: t),
    "a view": (lambda t: t.view(-1), lambda t: t.view(-1)),
    "copied too late": (lambda t: t, lambda t: t.clone()),
    "in a box": (lambda t: [t], lambda box: box[0]),
    "its data": (lambda t: t.data, lambda t: t),
    "numpy": (lambda t: t.detach().numpy(), lambda a: cugrad.from_numpy(a)),
    "dlpack": (lambda t: t.detach(), lambda t: cugrad.from_dlpack(t)),
}


@pytest.mark.parametrize("name", SHARES)
def test_a_change_of_what_a_hook_gives_back_is_an_error(name: str) -> None:
    """PyTorch does not look, and computes with the changed values."""
    x = leaf(cugrad, 0.5, 2)
    with hooks(cugrad, *SHARES[name]):
        h = x * 1
        y = h.exp()
        z = (y * h).sum()
    h.detach()[1].zero_()
    for _ in range(2):
        with raises(
            r"shape \[2\] that MulBackward0 saved as 'other', which is output 0 of MulBackward0, "
            "is at version 1; expected version 0", InplaceError,
        ):  # fmt: skip
            z.backward(retain_graph=True)
    h, y = x * 1, None
    with hooks(cugrad, *SHARES[name]):
        y = h.exp()
    y.detach().zero_()
    with raises("ExpBackward0 saved as 'result'", InplaceError):
        y.sum().backward()


def test_a_change_of_other_memory_is_none(device: str) -> None:
    """What is compared is memory, and not what was once there."""
    x = cugrad.ones(64, requires_grad=True)
    kept: list[Any] = []
    with hooks(cugrad, lambda t: kept.append(t.clone()) or 0, lambda k: kept[k].clone()):
        h = x * 2
        y = h.exp()
        h.zero_()
        kept.append(None)
    del h
    again = [cugrad.zeros(64) for _ in range(4)]  # in the place of h, perhaps
    y.sum().backward()
    assert x.grad is not None and len(again) == 4
    assert cugrad.allclose(x.grad, 2 * cugrad.exp(cugrad.full((64,), 2.0)))


@pytest.mark.parametrize("form", ["shape", "broadcast", "dtype", "batch"])
def test_what_unpack_returns_is_what_was_packed(form: str) -> None:
    bad = {
        "shape": lambda t: t[:2], "broadcast": lambda t: t[:1], "dtype": lambda t: t.half(),
        "batch": lambda t: t[None],
    }[form]  # fmt: skip
    got = {
        "shape": r"shape \[2\] and dtype torch.float64", "broadcast": r"shape \[1\]",
        "dtype": r"shape \[3\] and dtype torch.float16", "batch": r"shape \[1, 3\]",
    }[form]  # fmt: skip
    x = leaf(cugrad, 1, 2, 3)
    with hooks(cugrad, lambda t: t, bad):
        y = x * x.detach()
    text = f"MulBackward0: the unpack hook of its saved 'other' returned a tensor of {got}.*want a "
    for ask in (lambda: y.sum().backward(retain_graph=True), lambda: y.grad_fn._saved_other):
        with raises(text + r"tensor of shape \[3\] and dtype torch.float64 on cpu"):
            ask()


def test_what_unpack_returns_is_on_the_device_of_what_was_packed(lib: Any) -> None:
    x = lib.ones(3, requires_grad=True)
    elsewhere = "simulated" if x.device.type == "cpu" else "cpu"
    with hooks(lib, lambda t: t, lambda t: t.to("meta" if lib is not cugrad else elsewhere)):
        y = x.exp()
    with raises("device|on cpu|on simulated"):
        y.sum().backward()


def test_changes_in_place_under_hooks_of_a_batch() -> None:
    def run(pack: Any, unpack: Any) -> Any:
        x = leaf(cugrad, 1, 2, 3)

        def f(v: Any) -> Any:
            h = v * v
            y = h.exp()
            h.mul_(0)
            return y + h

        with hooks(cugrad, pack, unpack):
            y = cugrad.func.vmap(f)(x).sum()
        y.backward()
        return x.grad

    v = cugrad.tensor([1.0, 2, 3], dtype=cugrad.float64)
    assert cugrad.allclose(run(lambda t: t.clone(), lambda t: t), 2 * v * (v * v).exp())
    assert cugrad.allclose(run(lambda t: t, lambda t: t), 2 * v * (v * v).exp())


def test_a_tangent_that_was_written_to_is_noticed() -> None:
    """A hook that copies keeps the primal alone; the tangent is where it was."""
    fw = cugrad.autograd.forward_ad
    x = leaf(cugrad, 1, 2)
    with fw.dual_level():
        dual = fw.make_dual(x * 1, cugrad.ones_like(x).detach())
        dual[0].mul_(2)  # the tangent is its own from here on
        with hooks(cugrad, lambda t: t.clone(), lambda t: t):
            y = (dual * dual).sum()
        (g,) = cugrad.autograd.grad(y, x, retain_graph=True)
        assert fw.unpack_dual(g).tangent is not None
        dual[1].mul_(5)
        with raises("a tangent of shape", InplaceError):
            cugrad.autograd.grad(y, x)


@pytest.mark.parametrize("again", [False, True], ids=["constant", "made a leaf again"])
@pytest.mark.parametrize("packed", [False, True], ids=["kept", "packed"])
@pytest.mark.parametrize("made_by", ["mul", "matmul", "sin", "Function"])
def test_what_was_saved_and_then_detached_in_place(
    lib: Any, made_by: str, packed: bool, again: bool
) -> None:
    """Its history is that which it had. A custom Function without hooks gets the tensor itself."""

    class Product(lib.autograd.Function):
        @staticmethod
        def forward(ctx: Any, a: Any, b: Any) -> Any:
            ctx.save_for_backward(a, b)
            return a * b

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            a, b = ctx.saved_tensors
            return g * b, g * a

    functions = {"mul": lib.mul, "matmul": lib.matmul, "Function": Product.apply}
    functions["sin"] = lambda _, b: b.sin()
    a = leaf(lib, 1.5)
    b = a * 2
    with hooks(lib, lambda t: t, lambda t: t) if packed else nullcontext():
        y = functions[made_by](a, b)
    b.detach_().requires_grad_(again)
    if lib is not cugrad and not packed and made_by != "Function":
        with raises("that has been detached in-place"):
            lib.autograd.grad(y.sum(), a)
        return
    (first,) = lib.autograd.grad(y.sum(), a, create_graph=True)
    (second,) = lib.autograd.grad(first.sum(), a)
    if made_by == "sin":
        assert lib.allclose(first, 2 * (2 * a).cos())
        assert lib.allclose(second, -4 * (2 * a).sin())
    else:
        assert first.item() == 6
        assert second.item() == (2 if made_by == "Function" and not packed else 4)


# save_on_cpu, as documented -----------------------------------------------------------------------


def test_save_on_cpu_around_a_model(lib: Any) -> None:
    class SaveToCpu(lib.nn.Module):
        def __init__(self, module: Any) -> None:
            super().__init__()
            self.module = module

        def forward(self, *args: Any, **kwargs: Any) -> Any:
            with lib.autograd.graph.save_on_cpu(pin_memory=lib is cugrad):
                return self.module(*args, **kwargs)

    model = lib.nn.Sequential(
        lib.nn.Linear(10, 100), SaveToCpu(lib.nn.Linear(100, 100)), lib.nn.Linear(100, 10)
    )
    x = lib.randn(10)
    model(x).sum().backward()
    kept = [p.grad.tolist() for p in model.parameters()]
    for p in model.parameters():
        p.grad = None
    model[2](model[1].module(model[0](x))).sum().backward()
    assert kept == [p.grad.tolist() for p in model.parameters()]


@pytest.mark.parametrize("change", ["unsqueeze_(0)", "t_()", "squeeze_()"])
def test_a_shape_that_was_changed_is_no_mistake_of_the_hook(change: str) -> None:
    """What unpack gives back is the same memory, which has changed: that is what is said."""
    x = cugrad.ones(1, 3, requires_grad=True)
    with cugrad.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
        y = x * 2
        z = y.sin() * cugrad.ones(1)
        eval(f"y.{change}")
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()
