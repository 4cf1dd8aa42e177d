"""Shapes changed in place, of tensors that have views and of views: as PyTorch has it."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

import cugrad

torch = pytest.importorskip("torch", reason="PyTorch, the oracle, is not installed")

ARGUMENTS = {"unsqueeze_": (0,), "squeeze_": (), "t_": (), "transpose_": (0, -1)}
VIEWS = {
    "squeezed": lambda x: x.squeeze(0),
    "flat": lambda x: x.view(-1),
    "row": lambda x: x[0],
    "turned": lambda x: x.mT,
    "expanded": lambda x: x.expand(2, *x.shape),
    "strided": lambda x: x.as_strided((2,), (2,)),
}
AFTER = {
    "nothing": lambda *tensors: None,
    "base changed": lambda base, view, fellow: base.mul_(0.7),
    "view changed": lambda base, view, fellow: view.mul_(0.7),
    "fellow changed": lambda base, view, fellow: fellow.mul_(0.7),
    "fellow changed unrecorded": lambda base, view, fellow: fellow.detach().mul_(0.7),
    "base detached": lambda base, view, fellow: base.detach_(),
}


def each(x: Any) -> Any:
    return (x * x * 0.5 + x * 0.3).sum()


def seen(t: Any, rows: int, name: str, which: int, made: str, after: str, recorded: bool) -> Any:
    """What can be seen of a base, a view and a fellow view once one of them changed its shape."""
    values = [[0.3, 0.5, 0.7], [0.2, 0.9, 0.4]][:rows]
    x = t.tensor(values, dtype=t.float64, requires_grad=True)
    base = x * 2
    view, fellow = VIEWS[made](base), base.view(-1)[1:]
    early = [view * 2, fellow * 3, base * base.detach().clone()]
    with nullcontext() if recorded else t.no_grad():
        getattr((base, view, fellow)[which], name)(*ARGUMENTS[name])
    AFTER[after](base, view, fellow)
    tensors = (base, view, fellow)
    found: list[Any] = [
        (y.requires_grad, y.is_leaf, y._is_view(), tuple(y.shape), y._version) for y in tensors
    ]
    for outputs in (early, (*tensors, *early)):
        for y in (x, *tensors):
            try:
                total = sum(each(output) for output in outputs)
                g = t.autograd.grad(total, y, allow_unused=True, retain_graph=True)[0]
                found.append(None if g is None else (g.tolist(), tuple(g.shape)))
            except RuntimeError:
                found.append("refused")
    return found


@pytest.mark.parametrize("name", ARGUMENTS)
@pytest.mark.parametrize("which", range(3), ids=["base", "view", "fellow"])
def test_as_in_torch(name: str, which: int) -> None:
    """Changes that are recorded and that are not take turns."""
    for i, made in enumerate(VIEWS):
        rows = 1 if name == "squeeze_" else 2
        for j, after in enumerate(AFTER):
            for recorded in ((i + j + which) % 2 == 0 or not which,):
                case = rows, name, which, made, after, recorded
                try:
                    want = seen(torch, *case)
                except RuntimeError as error:
                    with pytest.raises(type(error)):
                        seen(cugrad, *case)
                    continue
                for a, b in zip(want, seen(cugrad, *case), strict=True):
                    if isinstance(a, tuple) and isinstance(a[0], list):
                        assert a[1] == b[1], case
                        a = torch.tensor(a[0], dtype=torch.float64)
                        b = torch.tensor(b[0], dtype=torch.float64)
                        assert torch.allclose(a, b), case
                    else:
                        assert a == b, case
