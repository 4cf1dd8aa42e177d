"""Views of conjugates and negatives: beside PyTorch, whose ops look at bits."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cugrad
from cugrad.autograd.recording.mirrors import written_with
from cugrad.ops.views.mirrored import GAPS
from tests.conftest import usable_devices

torch = pytest.importorskip("torch", reason="PyTorch, the oracle, is not installed")

VIEWS = """
{x}.conj()
{x}.conj()
{x}.transpose(0, -1).conj()
{x}.conj().imag
{x}.imag
{x}.real
{x}[0]
{x}[..., 1:]
{x}.detach()
{x}.transpose(0, -1)
{x}.unsqueeze(0)
t._neg_view({x})
t.view_as_complex(t.view_as_real({x}))
{x}.diagonal()
{x}.select(-1, 1)
{x}.resolve_conj()
{x}.resolve_neg()
"""
CHANGES = """
{x}.mul_(1.5)
{x}.add_(2)
{x}.copy_({x} * 0.5)
{x}.fill_(0.25)
{x}.zero_()
{x}.neg_()
{x}.conj_physical_()
{x}[0] = 3
{x}.masked_fill_({x}.abs() > 1, 0.5)
{x}.index_add_(0, t.tensor([1]), {x}[:1] * 1)
t.mul({x}, 2, out={x})
{x} += 1
{x}.div_({y}.abs().sum() + 1)
{x}.add_({y}.reshape(-1)[0].real.clone())
{x}.copy_({y}.conj().reshape(-1)[0].real.clone().expand({x}.shape))
"""
CHANGES_OF_ONE = [line for line in CHANGES.split("\n") if line]
VIEWS_OF_ONE = [line for line in VIEWS.split("\n") if line]
SEVERAL = ["{x}.unbind(0)[1]", "{x}.split(1)[-1]"]  # which may not be changed where recorded


def start(t: Any, device: str, grads: bool) -> Any:
    values = np.random.default_rng(7).standard_normal((2, 3, 3))
    x = t.tensor((values[0] + 1j * values[1]).tolist(), dtype=t.complex128)
    x = x.to(device) if t is cugrad else x
    return x.requires_grad_() * 1 if grads else x


def layout(x: Any) -> Any:
    """The strides that say something; those of few elements in much memory may be others."""
    steps = [(n, s) for n, s in zip(x.shape, x.stride(), strict=True) if n > 1]
    return steps if sum((n - 1) * s for n, s in steps) < GAPS * x.numel() else "few"


def run(t: Any, lines: list[str], device: str, grads: bool) -> list[Any]:
    """What each line leaves of all tensors: values, bits, versions; then gradients of them all."""
    x = start(t, device, grads)
    leaf = x.grad_fn.next_functions[0][0].variable if grads else None
    env, found = {"t": t, "v0": x}, []
    for line in lines:
        exec(line, env)
        tensors = {n: v for n, v in env.items() if n.startswith("v") and n[1:].isdigit()}
        state = [
            (n, v.detach().resolve_conj().resolve_neg().cpu().numpy().copy(), v.is_conj(),
             v.is_neg(), layout(v), v._version)
            for n, v in tensors.items()
        ]  # fmt: skip
        found.append((line, state))
    if grads:
        total = 0
        for number, v in enumerate(tensors.values()):
            if v.requires_grad:
                total = total + (v * v.conj()).real.sum() * (number + 1) + v.real.sum()
        try:
            (g,) = t.autograd.grad(total, leaf)
            found.append(("gradients", [("g", g.resolve_conj().cpu().numpy())]))
        except RuntimeError as error:
            assert "modified by an inplace operation" in str(error)
            found.append(("gradients", [("g", np.zeros(0))]))
    return found


def program(rng: Any, grads: bool, length: int = 12) -> list[str]:
    """Views of views, and changes of them, each written with the names of the tensors before."""
    lines, count, views = [], 1, VIEWS_OF_ONE + SEVERAL * (not grads)
    for _ in range(length):
        x, y = (f"v{rng.integers(count)}" for _ in range(2))
        if rng.random() < 0.55:
            lines.append(f"v{count} = " + str(rng.choice(views)).format(x=x))
            count += 1
        else:
            lines.append(str(rng.choice(CHANGES_OF_ONE)).format(x=x, y=y))
    return lines


def can_run(lines: list[str], grads: bool) -> list[str]:
    """The lines that PyTorch takes, one after the other."""
    env: dict[str, Any] = {"t": torch, "v0": start(torch, "cpu", grads)}
    taken = []
    for line in lines:
        try:
            exec(line, env)
        except (RuntimeError, IndexError, NameError, TypeError):
            continue
        taken.append(line)
    return taken


def check(got: list[Any], want: list[Any], seed: int) -> None:
    lines = "; ".join(line for line, _ in want)
    for (_, ours), (line, theirs) in zip(got, want, strict=True):
        where = f"seed {seed}: after {line} of {lines}"
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(a[1], b[1], rtol=1e-9, atol=1e-12, err_msg=f"{where} {a[0]}")
            assert a[2:4] == b[2:4], f"{where}: the bits of {a[0]}"
            assert a[4:] == b[4:] or b[4] == "few", f"{where} {a[0]}: got {a[4:]}, want {b[4:]}"


@pytest.mark.parametrize("device", usable_devices())
@pytest.mark.parametrize("grads", [False, True], ids=["values", "gradients"])
def test_random_families_of_views(grads: bool, device: str) -> None:
    for seed in range(150):
        lines = can_run(program(np.random.default_rng(seed), grads), grads)
        check(run(cugrad, lines, device, grads), run(torch, lines, "cpu", grads), seed)


BITS: dict[str, Callable[[Any, Any], Any]] = {
    "a conjugate": lambda t, x: x.conj(),
    "twice": lambda t, x: x.conj().conj(),
    "its imaginary parts": lambda t, x: x.conj().imag,
    "its real parts": lambda t, x: x.conj().real,
    "the negative of those": lambda t, x: t._neg_view(x.conj().imag),
    "a matrix": lambda t, x: x.mH,
    "the matrix of one": lambda t, x: x.H,
    "by strides": lambda t, x: x.conj().as_strided((2, 2), (1, 2)),
    "a copy": lambda t, x: x.conj().clone(),
    "another dtype": lambda t, x: x.conj().to(t.complex128),
    "the same dtype": lambda t, x: x.conj().to(t.complex64),
    "contiguous": lambda t, x: x.conj().contiguous(),
    "made contiguous": lambda t, x: x.mH.contiguous(),
    "reshaped": lambda t, x: x.conj().reshape(-1),
    "reshaped by a copy": lambda t, x: x.mH.reshape(-1),
    "like it": lambda t, x: t.zeros_like(x.conj()),
    "an op": lambda t, x: x.conj() + 1,
    "a negative": lambda t, x: -x.conj().imag,
    "a product": lambda t, x: t.mm(x.mH, x),
    "stacked": lambda t, x: t.stack([x.conj()]),
    "resolved": lambda t, x: x.conj().resolve_conj(),
    "physical": lambda t, x: x.conj_physical(),
    "a parameter": lambda t, x: t.nn.Parameter(x.conj()),
    "data": lambda t, x: x.conj().data,
    "detached": lambda t, x: x.conj().detach(),
    "in inference mode": lambda t, x: t.inference_mode()(lambda: (x * 1).conj())(),
    "without grad": lambda t, x: t.no_grad()(lambda: x.conj())(),
    "inside vmap": lambda t, x: t.vmap(lambda row: row.conj() * 1)(x),
    "of a real tensor": lambda t, x: x.real.conj(),
    "a part of several": lambda t, x: x.conj().chunk(2, 1)[1],
    "expanded": lambda t, x: x[:1].conj().expand(3, 2),
    "repeated, then conjugated": lambda t, x: x[:1].expand(3, 2).conj(),
    "nothing": lambda t, x: x[:0].conj(),
    "one number": lambda t, x: x[0, 0].conj(),
}


@pytest.mark.parametrize("name", BITS)
def test_bits_and_values_are_pytorchs(name: str) -> None:
    found = []
    for t in (cugrad, torch):
        x = t.tensor([[1 + 2j, 3 - 4j], [5 + 0.5j, 2j]])
        y = BITS[name](t, x)
        found.append([
            y.is_conj(), y.is_neg(), t.is_conj(y), t.is_neg(y), y.tolist(), layout(y), repr(y),
            None if y.is_inference() else (y._is_view(), y._version), y.is_contiguous(),
        ])  # fmt: skip
    assert found[0] == found[1]


REFUSED: dict[str, Callable[[Any, Any], Any]] = {
    "numpy of conjugates": lambda t, x: x.conj().numpy(),
    "numpy of negatives": lambda t, x: x.conj().imag.numpy(),
    "an array": lambda t, x: np.asarray(x.conj()),
    "pairs": lambda t, x: t.view_as_real(x.conj()),
    "bytes of conjugates": lambda t, x: x.conj().view(t.float32),
    "bytes of negatives": lambda t, x: x.conj().imag.view(t.int32),
    "a capsule": lambda t, x: x.conj().__dlpack__(),
    "a change of a leaf": lambda t, x: x.requires_grad_().conj().add_(1),
    "a change of what repeats": lambda t, x: x[:1].expand(3, 2).conj().add_(1),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_pytorch_refuses_is_refused(name: str) -> None:
    errors = []
    for t in (cugrad, torch):
        with pytest.raises((RuntimeError, BufferError, TypeError)) as error:
            REFUSED[name](t, t.tensor([[1 + 2j, 3 - 4j]]))
        errors.append((error.type.__mro__[-4:], str(error.value)[:45]))
    assert errors[0] == errors[1]


def test_changes_in_inference_mode_reach_both() -> None:
    with cugrad.inference_mode():
        others = [cugrad.tensor([1j], device=device) for device in usable_devices()]
        others += [x.conj() for x in others]  # which share a counter with all
        before = [x.tolist() for x in others]
    found = []
    for t in (cugrad, torch):
        with t.inference_mode():
            x = t.tensor([1 + 1j, 2 - 3j])
            y = x.conj()
            y.add_(1j)
            x[0] = 5
            y[1:].imag.mul_(2)
            found.append((x.tolist(), y.tolist(), y[1:].is_conj()))
    assert found[0] == found[1] and [x.tolist() for x in others] == before


def test_together_and_optimizers_reach_views() -> None:
    """What counts a change before it is one: lists of tensors, and steps."""
    x = cugrad.tensor([[1 + 2j, 3j]])
    y = x.conj()
    cugrad._foreach_mul_([x], 2)
    assert y.tolist() == [[2 - 4j, -6j]]
    cugrad._foreach_add_([y], [1j])
    assert x.tolist() == [[2 + 3j, 5j]]
    w = cugrad.nn.Parameter(cugrad.tensor([1 + 1j]))
    shown = w.detach().conj()
    w.grad = cugrad.tensor([1 + 0j])
    for kind in (cugrad.optim.SGD, cugrad.optim.Adam):
        kind([w], lr=0.5).step()
        assert shown.tolist() == [w.item().conjugate()]
    gradient = w.grad.conj()
    (w * (2 + 1j)).real.sum().backward()
    assert gradient.tolist() == [w.grad.item().conjugate()]


def test_where_a_conjugate_that_leaves_a_vmap_lies() -> None:
    for in_dim, turn in (0, False), (-1, False), (0, True), (1, True):
        x = cugrad.tensor([[1 + 2j, 3j], [4j, 5]])
        x = x.mT if turn else x
        y = cugrad.vmap(lambda row: row.conj(), in_dims=in_dim, out_dims=in_dim)(x)
        assert y.is_conj() and y.data_ptr() == x.data_ptr() and y[1:].data_ptr() == x[1:].data_ptr()
        y[1] = 7j
        assert x[1].tolist() == [-7j, -7j]


def test_a_view_that_is_gone_leaves_nothing() -> None:
    x = cugrad.tensor([1 + 2j])
    y = x.conj()[0]
    assert len(x.counter) == 3
    del y
    gc.collect()
    x.add_(1)
    assert not any(ref() is not x for ref in x.counter[1:])
    z = cugrad.ones(1)
    for _ in range(5):
        y = x.conj()
        z.data = x
        z.data = y
    assert len(z.counter) <= 3
    with cugrad.inference_mode():
        z = (x * 1).conj()
        assert len(z.counter) == 2
        del z
        assert len(x.clone().counter) == 1


@pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")
def test_transforms_follow_changes_of_conjugates() -> None:
    def f(x: Any) -> Any:
        y = x * 1
        y.conj()[0].mul_(2j)
        y[1].conj().imag.mul_(3)
        return (y * y.conj() + y).conj() * 1

    found = []
    for t in (cugrad, torch):
        x, v = t.tensor([1 + 2j, 3 - 1j]), t.tensor([0.5 + 1j, 2j])
        results = [*t.func.jvp(f, (x,), (v,)), *t.func.vjp(f, x)[1](v)]
        results += [f(x), f(v)] if t is torch else t.vmap(f)(t.stack([x, v])).unbind()
        found.append([z.resolve_conj().tolist() for z in results])  # PyTorch's vmap has no rule
    np.testing.assert_allclose(*found)


NEW_MEMORY = """
x.set_(x * 3)
x.set_(y)
y.set_(x)
y.set_(x * 3)
y.set_(y.mT)
y.data = x * 2
x.data = y
y.data = x
z.data = y; z.mul_(2j)
z.data = x; z.mul_(2j)
z.data = y.imag; z.mul_(2)
p = t.nn.Parameter(y); p.data = p.data * 2; p.data.mul_(2)
p = t.nn.Parameter(y); p.data.mul_(2)
y.resize_(2, 1)
x.resize_(2, 1)
x.share_memory_()
y.share_memory_()
y[0].share_memory_()
"""


@pytest.mark.parametrize("lines", [line for line in NEW_MEMORY.split("\n") if line])
def test_tensors_with_the_memory_of_others(lines: str) -> None:
    """They show it as PyTorch's do, and what is written to any of them is seen by all."""
    found = []
    for t in (cugrad, torch):
        x = t.tensor([[1 + 2j, 3 - 4j], [5 + 0.5j, 2j]])
        env = {"t": t, "x": x, "y": x.conj(), "z": t.ones(2, 2), "part": x[1:], "p": x}
        exec(lines, env)
        state = []
        for name in "xypz":
            for v in (env[other] for other in "xypz"):
                elements = v.detach().resolve_conj().resolve_neg().tolist()
                at_first = v.data_ptr() == env["x"].data_ptr()
                state.append((elements, v.is_conj(), v.is_neg(), at_first, v.is_shared()))
            env[name].detach().mul_(2)
        found.append(state)
    assert found[0] == found[1]


def test_what_grows_leaves_its_views() -> None:
    x = cugrad.tensor([1 + 2j, 3j])
    for change in (lambda y: y.resize_(4).fill_(1j), lambda y: cugrad.ones(4, out=y.resize_(0))):
        y = x.conj()
        change(y)
        assert y.numel() == 4 and y.data_ptr() and not y.is_conj() and not y.imag.is_neg()
        assert x.tolist() == [1 + 2j, 3j]


def test_inference_tensors_of_others_are_left_alone() -> None:
    """All have one counter, of whatever device and thread they are."""
    with cugrad.inference_mode():
        every = [cugrad.ones(2, dtype=cugrad.complex64, device=d) for d in usable_devices()]
        views = [x.conj() for x in every]
        views[0]._array[0] = 7  # as far as another thread is with a change
        for x, y in zip(every, views):
            cugrad.ones(2, device=x.device).add_(1)
            if y is not views[0]:
                y.mul_(2j)
                assert x.tolist() == [-2j, -2j]
        assert views[0].tolist() == [7, 1]


@pytest.mark.parametrize("view", [lambda c: c[:], lambda c: c.conj(), lambda c: c.conj().imag])
def test_what_runs_again_has_the_numbers_of_then(view: Any) -> None:
    """Who needs memory as it is hears of changes of what shows it."""
    gradients = []
    for context in (contextlib.nullcontext(), cugrad.memory.recompute(ops="all")):
        x, c = cugrad.ones(2, dtype=cugrad.complex64, requires_grad=True), cugrad.tensor([1j, 2])
        with context:
            y = (x * c.exp()).exp()
            view(c).mul_(2)
            gradients += cugrad.autograd.grad((y * y).real.sum(), x)
    assert cugrad.equal(*gradients)


def test_conjugates_of_sparse_tensors_are_tensors_of_their_own() -> None:
    for name in ("conj", "adjoint", "conj_physical"):
        found = []
        for t in (cugrad, torch):
            x = t.tensor([[1 + 2j, 0], [3j, 0]]).to_sparse()
            y = getattr(x, name)()
            x._values().mul_(2)
            found.append((y.to_dense().tolist(), y.is_conj(), y._values().is_conj()))
        assert found[0] == found[1]


def test_a_change_says_what_it_is_written_to() -> None:
    """As to `record_stream`, which keeps all of it."""
    x = cugrad.ones(3, dtype=cugrad.complex64)
    y, other = x.conj(), cugrad.ones(3, dtype=cugrad.complex64)
    z = y[1:].conj()
    for t in (x, y, z):
        written = written_with(t)
        assert all(any(v._array is w or v._array.base is w for w in written) for v in (x, y, z))
    assert len(written_with(other)) == 1


def test_a_copy_of_a_conjugate_has_its_numbers(lib: Any) -> None:
    """`view_as_real` refuses a conjugate; what copies need not."""
    x = lib.tensor([1 + 2j, 3 - 1j], requires_grad=True)
    y = lib.view_as_real_copy(x.conj())
    assert y.tolist() == [[1, -2], [3, 1]]
    (g,) = lib.autograd.grad((y * y).sum(), x)
    assert g.tolist() == (2 * x).tolist()
