"""Graphs that save tensors in every way: what the conformance suite runs under each placement.

A case is a function of a `Run`: it builds a graph within `run.saving()`, goes backward in some way,
and returns what must not depend on where saved tensors live. The same code runs on PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from cugrad.tensor import make

CHANGED = "modified by an inplace operation"
CaseFunction = Callable[["Run"], list[Any]]
CASES: dict[str, CaseFunction] = {}
OWN: set[str] = set()  # cases that PyTorch cannot run, or answers otherwise


def case(function: CaseFunction) -> CaseFunction:
    CASES[function.__name__] = function
    return function


def own(function: CaseFunction) -> CaseFunction:
    """A case of cugrad's alone; its docstring says why."""
    assert function.__doc__
    OWN.add(function.__name__)
    return case(function)


class Run:
    """One run of a case: a library, a device, and a context for what is saved.

    `opened` is how often the context was entered; `shares` says whether aliases are aliases again
    when they come back, `hooked` whether there are hooks at all, `moves` whether memory is freed,
    `copies` whether what is saved is copied (None: some of it), `copies_leaves` leaves as well.
    """

    def __init__(
        self, lib: Any, device: str, make: Callable[[], Any], shares: bool = True,
        hooked: bool = False, moves: bool = False, copies: bool | None = None,
        copies_leaves: bool = False,
    ) -> None:  # fmt: skip
        self.copies, self.copies_leaves = copies, copies_leaves
        self.lib, self.device, self._make = lib, device, make
        self.shares, self.hooked, self.moves = shares, hooked, moves
        self._instance: Any = None
        self.is_torch = lib.__name__ == "torch"

    def saving(self) -> Any:
        """The context that is tested: the same object each time, as in a training loop."""
        if self._instance is None:
            self._instance = self._make()
        return self._instance

    def another(self) -> Any:
        """A new context of the same kind."""
        return self._make()

    def constant(self, *shape: int, seed: int = 0, dtype: str = "float32") -> Any:
        """A tensor of fixed values between -1 and 1."""
        rng = np.random.default_rng(seed)
        values = rng.uniform(-1, 1, shape)
        if dtype == "bool":
            array = values > 0
        elif dtype.startswith("int"):
            array = (values * 100).astype(dtype)
        elif dtype.startswith("complex"):
            array = (values + 1j * rng.uniform(-1, 1, shape)).astype(dtype)
        else:
            array = values.astype("float32" if dtype == "bfloat16" else dtype)
        return self.lib.tensor(array, dtype=getattr(self.lib, dtype), device=self.device)

    def leaf(self, *shape: int, seed: int = 0, dtype: str = "float32") -> Any:
        """A parameter."""
        return self.constant(*shape, seed=seed, dtype=dtype).requires_grad_()

    def inputs(self) -> tuple[Any, Any]:
        """Two square parameters."""
        return self.leaf(6, 6, seed=1), self.leaf(6, 6, seed=2)

    def is_unharmed(
        self, y: Any, x: Any, of: Callable[[Any], Any], unseen: bool = False
    ) -> None:  # fmt: skip
        """After a change in place y has the gradient of before, where a copy of what was saved
        waits; else backward refuses. `of(x)` is y, without changes and hooks.
        """
        other = x.detach().clone().requires_grad_()
        (wanted,) = self.lib.autograd.grad(of(other), other)
        copies = None if unseen else self.copies
        try:
            (found,) = self.lib.autograd.grad(y, x, retain_graph=True)
        except RuntimeError as error:
            assert CHANGED in str(error) and not copies, error
            error.__traceback__ = None
        else:
            assert copies is not False, "want an error: what was saved has been changed"
            near = 1e-4 if self.copies else 0.1  # a codec may lose something
            assert self.lib.allclose(found, wanted, rtol=near, atol=near), (found, wanted)


@contextmanager
def refuses(match: str, kind: type[Exception] = RuntimeError) -> Iterator[None]:
    """As pytest.raises, but the exception and its frames are gone afterwards."""
    try:
        yield
    except kind as error:
        assert match in str(error), f"got {error}, want {match!r}"
        error.__traceback__ = None
    else:
        pytest.fail(f"want {kind.__name__}: {match}")


def gradients(y: Any, *leaves: Any) -> list[Any]:
    """The gradients of the leaves, by backward."""
    y.backward()
    return [x.grad for x in leaves]


# Shapes of graphs ---------------------------------------------------------------------------------


@case
def chain(r: Run) -> list[Any]:
    x, _ = r.inputs()
    with r.saving():
        y = x.exp().tanh().sin().sigmoid().sum()
    return gradients(y, x)


@case
def diamond(r: Run) -> list[Any]:
    x, _ = r.inputs()
    with r.saving():
        a = x.exp()
        y = (a * a.sin() + a.cos() * a).sum()
    return gradients(y, x)


@case
def one_tensor_saved_many_times(r: Run) -> list[Any]:
    x, w = r.inputs()
    with r.saving():
        h = (x @ w).tanh()
        y = (h * h).sum() + (h @ h.t()).sum() + (h.exp() * h).sum() + (h / (h * h + 1)).sum()
        for _ in range(10):
            y = y + (h * x).mean()
    return gradients(y, x, w)


@case
def an_output_that_is_the_next_input(r: Run) -> list[Any]:
    x, _ = r.inputs()
    with r.saving():
        a = x.sigmoid()
        b = (a * a).exp()
        y = (b * b).sum()
    return gradients(y, x)


@case
def layers_of_parameters(r: Run) -> list[Any]:
    ws = [r.leaf(6, 6, seed=k) for k in range(8)]
    with r.saving():
        h = r.constant(3, 6, seed=9)
        for w in ws:
            h = (h @ w).tanh()
        y = h.sum()
    return gradients(y, *ws)


@case
def one_parameter_at_every_time_step(r: Run) -> list[Any]:
    w, u = r.inputs()
    with r.saving():
        h = r.constant(2, 6, seed=3)
        for k in range(6):
            h = (h @ w + r.constant(2, 6, seed=4 + k) @ u).tanh()
        y = (h * h).sum()
    return gradients(y, w, u)


@case
def a_long_chain(r: Run) -> list[Any]:
    x, _ = r.inputs()
    with r.saving():
        h = x
        for _ in range(40):
            h = (h * 1.1).sin()
    return gradients(h.sum(), x)


@case
def many_outputs(r: Run) -> list[Any]:
    x, _ = r.inputs()
    with r.saving():
        h = x.exp()
        a, b, c = h.split(2)
        p, q = h.t().unbind(0)[1:3]
        y = (a * b).sum() + (c * c.exp()).sum() + (p * q).sum()
    return gradients(y, x)


# Views --------------------------------------------------------------------------------------------


@case
def slices(r: Run) -> list[Any]:
    x, _ = r.inputs()
    with r.saving():
        h = x.exp()
        y = (h[1:3] * h[::2][:2]).sum() + (h[:, 1::3].exp() * h[:, 2:4]).sum() + h[4].sin().sum()
    return gradients(y, x)


@case
def transposes(r: Run) -> list[Any]:
    x, w = r.inputs()
    with r.saving():
        h = (x @ w).tanh()
        t = h.t()
        y = (t @ h).exp().sum() + (t * h).sum() + (t.sin() * t).sum()
    return gradients(y, x, w)


@case
def permuted_and_reshaped(r: Run) -> list[Any]:
    x = r.leaf(2, 3, 4)
    with r.saving():
        h = x.exp().permute(2, 0, 1)
        y = (h.sin() * h).sum() + (h.reshape(4, 6) @ h.reshape(4, 6).t()).exp().mean()
        y = y + (h.transpose(0, 2).flatten() ** 2).sum()
    return gradients(y, x)


@own
def negative_strides(r: Run) -> list[Any]:
    """PyTorch has none."""
    x = r.leaf(6, 6)
    c = r.constant(6, 6, seed=5)
    c = make(c._array[::-1, ::-2][:, ::-1])
    with r.saving():
        y = ((x[:, ::2] * c).exp() * c).sum() + (c.t() @ x).sin().sum()
    return gradients(y, x)


@case
def flipped(r: Run) -> list[Any]:
    x, _ = r.inputs()
    with r.saving():
        h = x.exp().flip(0)
        y = (h * h.flip(1)).sum()
    return gradients(y, x)


@case
def expanded(r: Run) -> list[Any]:
    x, w = r.inputs()
    with r.saving():
        h = x.exp()
        wide = h[:, :1].expand(6, 6)
        y = (wide * w).sum() + (wide.sin() * wide).sum() + (h.sum().expand(5).exp() * 0.01).sum()
    return gradients(y, x, w)


@case
def overlapping(r: Run) -> list[Any]:
    x, _ = r.inputs()
    with r.saving():
        h = x.exp()
        windows = h.as_strided((4, 3), (1, 1), 2)
        y = (windows * windows).sum() + windows.sin().sum() + h.cos().sum()
    return gradients(y, x)


@case
def unfolded(r: Run) -> list[Any]:
    x = r.leaf(12)
    with r.saving():
        h = x.exp().unfold(0, 4, 2)
        y = (h * h).sum() + (h @ h.t()).sum()
    return gradients(y, x)


@case
def diagonals(r: Run) -> list[Any]:
    x, _ = r.inputs()
    with r.saving():
        h = x.exp()
        d, e = h.diagonal(), h.diagonal(1)
        y = (d * d.sin()).sum() + (e.exp() * e).sum()
    return gradients(y, x)


@case
def broadcast(r: Run) -> list[Any]:
    x, w = r.inputs()
    with r.saving():
        row, column = x.exp()[0], w.exp()[:, :1]
        y = (row * column).sin().sum() + (row * w + column * x).exp().mean()
    return gradients(y, x, w)


@case
def zero_dims(r: Run) -> list[Any]:
    x, _ = r.inputs()
    with r.saving():
        h = x.exp()
        total, one = h.sum(), h[2, 3]
        y = total * one + one * one.sin() + (total / 36).tanh()
    return gradients(y, x)


@case
def empty(r: Run) -> list[Any]:
    x, _ = r.inputs()
    with r.saving():
        h = x.exp()
        none = h[:0]
        y = (none * none.sin()).sum() + (none.t() @ none).exp().sum() + (h * h).sum()
    return gradients(y, x)


@case
def a_view_that_outlives_its_base(r: Run) -> list[Any]:
    x, _ = r.inputs()
    with r.saving():
        part = (x * 2).exp()[1]
        y = (part * part.sin()).sum()
    del part
    return gradients(y, x)


@case
def a_small_part_of_a_large_storage(r: Run) -> list[Any]:
    x = r.leaf(64, 32)
    with r.saving():
        h = x.exp()
        parts = [h[k, ::16] for k in range(0, 64, 9)] + [h[5:7, 3:5].t()]
        y = sum((p * p.sin()).sum() for p in parts)
    return gradients(y, x)


@case
def parts_then_all_of_a_storage(r: Run) -> list[Any]:
    x = r.leaf(16, 16)
    with r.saving():
        h = x * 3
        y = h[1].sin().sum() + h[:, 2].sin().sum() + h[4:14].sin().sum() + h.sin().sum()
        y = y + h[3].cos().sum()
    del h
    return gradients(y, x)


@case
def aliases_share_memory_again(r: Run) -> list[Any]:
    x, _ = r.inputs()
    with r.saving():
        h = x.exp()
        a, b, c = h[:4].sin(), h[1:].cos(), h.t().sin()
        y = a.sum() + b.sum() + c.sum()
    del h
    sa, sb, sc = (n.grad_fn._saved_self for n in (a, b, c))
    if r.shares:
        row = 6 * sa.element_size()
        assert sb.data_ptr() - sa.data_ptr() == row and sc.data_ptr() == sa.data_ptr()
        assert sa.stride() == (6, 1) and sc.stride() == (1, 6)
    found = [sa.detach().clone(), sb.detach().clone(), sc.detach().clone()]
    return found + gradients(y, x)


@case
def strides_come_back(r: Run) -> list[Any]:
    x = r.leaf(2, 3, 4)
    with r.saving():
        h = x.exp().permute(2, 0, 1)
        nodes = [h.sin(), h[::2].sin(), h[:, :, 1:].sin()]
    if r.shares:
        strides = [n.grad_fn._saved_self.stride() for n in nodes]
        assert strides == [(1, 12, 4), (2, 12, 4), (1, 12, 4)]
    return gradients(sum(n.sum() for n in nodes), x)


# Dtypes -------------------------------------------------------------------------------------------


@case
def complex_numbers(r: Run) -> list[Any]:
    z = r.leaf(4, 4, dtype="complex64")
    with r.saving():
        h = (z @ z.t()).exp()
        y = (h * h.conj()).real.sum() + (h.imag * h.real).sum() + h.abs().sum()
    return gradients(y, z)


@case
def views_as_real_and_complex(r: Run) -> list[Any]:
    z = r.leaf(4, 4, dtype="complex64")
    with r.saving():
        pairs = r.lib.view_as_real(z.exp())
        back = r.lib.view_as_complex(pairs * pairs)
        y = (pairs[..., 0] * pairs[..., 1]).sum() + (back * back).abs().sum()
    return gradients(y, z)


@case
def masks(r: Run) -> list[Any]:
    x, w = r.inputs()
    with r.saving():
        h = x.exp()
        keep = h > 1
        y = r.lib.where(keep, h * w, w.sin()).sum() + h.masked_fill(~keep, 0.5).sin().sum()
        y = y + (h * keep).exp().mean() + h.clamp(0.5, 1.5).sum() + w.relu().sum()
    return gradients(y, x, w)


@case
def indices(r: Run) -> list[Any]:
    x, w = r.inputs()
    with r.saving():
        order = x.argsort(1)
        picked = w.exp().gather(1, order)
        rows = r.lib.tensor([3, 0, 3], device=r.device)
        y = (picked * picked).sum() + (w[rows].sin() * x.index_select(0, rows)).sum()
        y = y + x.sort(1)[0][:, 2].exp().sum() + w.max(1)[0].sin().sum()
    return gradients(y, x, w)


@case
def mixed_dtypes(r: Run) -> list[Any]:
    x, d = r.leaf(5, 5), r.leaf(5, 5, dtype="float64")
    with r.saving():
        h = (x.double() * d).exp()
        half = (x.half() * x.half()).float()
        y = (h * h).sum() + half.sum().double() + (x.exp().double() @ h).mean()
    return gradients(y, x, d)


@case
def bfloat16(r: Run) -> list[Any]:
    x = r.leaf(6, 6, dtype="bfloat16")
    with r.saving():
        y = (x * x * 2).float().sum() + (x.float().exp().bfloat16() * x).float().sum()
    return [g.float() for g in gradients(y, x)]


@case
def odd_numbers_of_bytes(r: Run) -> list[Any]:
    """Storages of 1 to 13 elements of 1, 2 and 8 bytes, and views at odd offsets in them."""
    found = []
    for n in (1, 3, 13):
        x, d = r.leaf(n), r.leaf(n, dtype="float64")
        with r.saving():
            h, e, half = x.exp(), d.exp(), x.exp().half()
            y = (h[n // 2 :] * h[n // 2 :]).sum() + (e[1:] * e[1:]).sum() + (h > 1).sum() * h[0]
            y = y + (half[n // 3 :] * half[n // 3 :]).sum().float() + h.masked_fill(h > 1, 0).sum()
        found += gradients(y, x, d)
    return found


# Changes in place ---------------------------------------------------------------------------------


@case
def an_input_changed_after_saving(r: Run) -> list[Any]:
    x, _ = r.inputs()
    with r.saving():
        h = x * 1
        y = (h * h).sum()
        h.add_(1)
    r.is_unharmed(y, x, lambda x: (x * 1).square().sum())
    return [h.detach().clone()]


@case
def a_result_changed_after_saving(r: Run) -> list[Any]:
    x, _ = r.inputs()
    with r.saving():
        h = x.exp()
        y = h.sum()
        h.mul_(2)
        h[1:4, 2].zero_()
    r.is_unharmed(y, x, lambda x: x.exp().sum())
    return [h.detach().clone()]


@case
def a_view_changed_after_its_base_was_saved(r: Run) -> list[Any]:
    """After the context, too; and what was saved is looked at."""
    x, _ = r.inputs()
    with r.saving():
        h = x * 1
        y = (h[1:] * h[:5]).sum() + h.sin().sum()
    h.detach()[2].zero_()
    for _ in range(2):
        r.is_unharmed(y, x, lambda x: ((x * 1)[1:] * (x * 1)[:5]).sum() + (x * 1).sin().sum())
    return [h.detach().clone()]


@own
def a_parameter_changed_before_backward(r: Run) -> list[Any]:
    """PyTorch's `save_on_cpu` copies leaves too; ours leaves them where they are."""
    x, w = r.inputs()
    with r.saving():
        y = (x.exp() @ w).sum()
    with r.lib.no_grad():
        w.sub_(0.1)
    if r.copies_leaves:
        y.backward()
    else:
        with refuses(CHANGED):
            y.backward()
    return [w.detach().clone()]


@case
def what_came_back_is_changed(r: Run) -> list[Any]:
    """Who asks for a saved tensor gets what all have, or a copy of their own."""
    x, _ = r.inputs()
    with r.saving():
        h = x * 2
        y = h.sin().sum() + (h * h).sum()
    del h
    node = y.grad_fn.next_functions[0][0].next_functions[0][0]
    with r.lib.no_grad():
        node._saved_self.mul_(3)
    r.is_unharmed(y, x, lambda x: (x * 2).sin().sum() + ((x * 2) * (x * 2)).sum())
    return []


@case
def changed_before_saving(r: Run) -> list[Any]:
    x, _ = r.inputs()
    with r.saving():
        h = x * 1
        h.mul_(2).add_(1)
        h[1:3].exp_()
        y = (h * h.sin()).sum()
    return gradients(y, x)


@case
def two_versions_of_one_storage(r: Run) -> list[Any]:
    """What was saved of the second version is there in any case."""
    x, _ = r.inputs()
    with r.saving():
        h = x * 1
        first = h.sin().sum()
        h.mul_(2)
        second = (h * h).sum()
    second.backward(retain_graph=True)
    r.is_unharmed(first, x, lambda x: (x * 1).sin().sum())
    second.backward()
    return [x.grad]


@case
def changed_between_ops_that_save_results(r: Run) -> list[Any]:
    x, _ = r.inputs()
    with r.saving():
        h = x * 1
        a = h.exp()
        h.mul_(2)
        b = h.exp()
        h.add_(1)
        y = (a * b).sum() + (h * h).sum()
    return gradients(y, x)


@case
def changed_where_nothing_was_saved(r: Run) -> list[Any]:
    """While copies of other storages are on their way out, and of this one after it was let go."""
    x, w = r.inputs()
    with r.saving():
        buffer = r.constant(6, 6, seed=3)
        h = x.exp() * w
        buffer.copy_(h.detach())
        buffer.mul_(3)
        y = (h.sin() * h).sum()
        buffer.zero_()
    del buffer
    return gradients(y, x, w)


@case
def increment_version(r: Run) -> list[Any]:
    """Nothing was written: what is refused may be right."""
    x, _ = r.inputs()
    with r.saving():
        h = x * 1
        y = (h * h).sum()
    r.lib.autograd.graph.increment_version(h)
    r.is_unharmed(y, x, lambda x: (x * 1).square().sum(), unseen=True)
    return [h.detach().clone()]


@own
def allowed_mutation(r: Run) -> list[Any]:
    """PyTorch's context is a pair of hooks, of which the inner one takes the place."""
    x, _ = r.inputs()
    with r.lib.autograd.graph.allow_mutation_on_saved_tensors():
        h = x * 1
        y = (h * h).sum()
        h.add_(1)
        with r.saving():
            z = (h * h.sin()).sum()
        y.backward(retain_graph=True)
        z.backward()
    return [x.grad]
