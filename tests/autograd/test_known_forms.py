"""Tensors have the form of their array, by which a row finds the launch that is kept for it: it is
that of the array that they have, whatever array they had before.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import pytest

pytest.importorskip("cupy", reason="CuPy is not installed")

import cugrad
from cugrad import memory
from tests.support import ROOT, fake_cuda

# These have an `_array` and are no tensors, or tensors without a form.
OTHERS = {"memory/offloading/staging.py", "serialization/storages.py"}


def stores(statement: ast.AST) -> set[str]:
    """The attributes that an assignment sets."""
    targets: list[Any] = getattr(statement, "targets", [getattr(statement, "target", None)])
    nodes = [node for target in targets if target is not None for node in ast.walk(target)]
    return {x.attr for x in nodes if isinstance(x, ast.Attribute) and isinstance(x.ctx, ast.Store)}


@pytest.mark.host_only
def test_whoever_sets_an_array_sets_its_form_before() -> None:
    package, seen = ROOT / "cugrad", 0
    for path in package.rglob("*.py"):
        name, text = str(path.relative_to(package)), path.read_text()
        statements = list(ast.walk(ast.parse(text))) if "._array" in text else []
        sent = [x for each in statements if isinstance(each, ast.ClassDef) and each.name == "Sent"
                for x in ast.walk(each)]  # fmt: skip
        for statement in statements:
            if "_array" in stores(statement) and name not in OTHERS and statement not in sent:
                is_new = name == "tensor.py" and "_node" in stores(statement)  # `make`
                assert "_form" in stores(statement) or is_new, f"{name}:{statement}"
                seen += 1
    assert seen > 10


@cugrad.no_grad()
def resized(x: Any) -> None:
    x.resize_(5, 2).fill_(0.5)


@cugrad.no_grad()
def set_to(x: Any) -> None:
    x.set_(cugrad.arange(12.0, device=x.device).view(3, 4).t())


def data(x: Any) -> None:
    x.data = cugrad.arange(3.0, device=x.device)


def of_another_dtype(x: Any) -> None:
    x.data = x.detach().double() / 3


def swapped(x: Any) -> None:
    other = cugrad.arange(5.0, device=x.device).requires_grad_()
    other * other  # its form is known, too
    cugrad.utils.swap_tensors(x, other)


def to_another_dtype(x: Any) -> None:
    module = cugrad.nn.Module()
    module.x = cugrad.nn.Parameter(x.detach())
    module.x * module.x
    module.double()
    x.data = module.x.data


def placed(x: Any) -> None:
    model = cugrad.nn.Linear(3, 2, device=x.device)
    inputs = cugrad.ones(2, 3, device=x.device)
    for param in model.parameters():
        cugrad.nn.init.constant_(param, 0.5)
    for _ in range(2):
        model.weight * model.weight
    assert (model.weight._form is None) is inputs.is_cpu
    with nullcontext() if x.is_cpu else memory.offload_states(model, weights="host", min_bytes=1):
        (model(inputs) * (model.weight * model.weight).sum()).sum().backward()
        assert model.weight._form is None
    assert model.weight.grad is not None
    x.data = model.weight.grad * 2


@cugrad.no_grad()
def turned(x: Any) -> None:
    x.t_()


@cugrad.no_grad()
def given_to_out(x: Any) -> None:
    ones = cugrad.ones(7, device=x.device)
    with pytest.warns(UserWarning):
        cugrad.mul(ones, 3.0, out=x)


CHANGES: list[Callable[[Any], None]] = [
    resized, set_to, data, of_another_dtype, swapped, to_another_dtype, placed, turned,
    given_to_out,
]  # fmt: skip


OF_RESULTS = (resized, given_to_out, turned)  # of no leaf that needs a gradient


def computed(x: Any) -> list[Any]:
    """What rows make of a tensor: the results of one are the operands of another."""
    y = x * x
    z = y - x
    results = [y, z, cugrad.where(z > 0, z, y), x.abs()]
    return [(r.tolist(), r.dtype, r.stride()) for r in results]


def program(change: Callable[[Any], None], device: str) -> list[Any]:
    x = cugrad.arange(6.0, device=device).view(2, 3) / 4 - 1
    if change in OF_RESULTS:
        x = x * 1.5
    else:
        x.requires_grad_()
    for _ in range(3):
        computed(x)
    change(x)
    return [computed(x), computed(x)]


if fake_cuda.REAL is None:

    @pytest.mark.host_only
    def test_over_the_fake_cuda() -> None:
        fake_cuda.passed(__file__, fused=True)

else:
    from cugrad.backends.cupy.launches.rows import named_form

    @pytest.fixture(scope="module", autouse=True)
    def compiled() -> Iterator[None]:
        with fake_cuda.compiled_together():
            for change in CHANGES:
                program(change, "cuda")
        yield

    @pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
    def test_what_gets_another_array_is_computed_with_that(change: Any) -> None:
        assert program(change, "cuda") == program(change, "cpu")

    def test_results_and_leaves_have_the_form_of_their_arrays() -> None:
        x = cugrad.ones(4, 6, device="cuda").requires_grad_()
        y = cugrad.ones(4, 1, device="cuda").requires_grad_()
        for _ in range(2):
            results = [x + y, x.mT * x.mT, (x * 2).relu(), x.sum(1), x.to(cugrad.float16)]
        assert x._form is named_form(x._array) and y._form is named_form(y._array)
        for result in results:
            assert result._form is named_form(result._array)
        assert len({z._form for z in (x, *results)}) == 4  # `x + y` and `relu` lie as `x` does
        assert x.mT._form is None and x.detach()._form is None
