"""How often the host waits for CUDA, and copies something to it, where PyTorch does not: never."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import cugrad
from tests.support import fake_cuda

pytestmark = pytest.mark.skipif(
    fake_cuda.REAL is None, reason="only the fake CUDA says what the host waits for"
)


def parameter(*shape: int) -> Any:
    return cugrad.rand(*shape, device="cuda", requires_grad=True)


def scaled_step() -> Callable[[], None]:
    w, scaler = parameter(4), cugrad.amp.GradScaler("cuda", init_scale=8.0)
    optimizer = cugrad.optim.SGD([w], lr=0.1)

    def step() -> None:
        scaler.scale((w * w).sum()).backward()
        scaler.step(optimizer)
        scaler.update()

    return step


def assigned(value: float) -> Callable[[], None]:
    x, index = cugrad.zeros(5, 3, device="cuda"), cugrad.tensor([0, 2], device="cuda")

    def assign() -> None:
        x[index] = value
        x[1] = value
        x[index, 1:] = value

    return assign


def of_matrices(name: str) -> Callable[[], None]:
    a = cugrad.eye(3, device="cuda") * 2
    return lambda: getattr(cugrad.linalg, name)(a)


def of_a_graph() -> Callable[[], None]:
    places = cugrad.tensor([[0, 1, 1], [2, 0, 2]], device="cuda")
    a = cugrad.sparse_coo_tensor(places, parameter(3), (2, 3))
    x = parameter(3, 4)
    return lambda: (a @ x).sum().backward()


def gradients_of(name: str) -> Callable[[], None]:
    """Of a function of a matrix, which forward has found to be regular."""
    a = (cugrad.eye(3, device="cuda") * 2).requires_grad_()
    b = cugrad.ones(3, 2, device="cuda")
    function = getattr(cugrad.linalg, name)
    args = (b,) if name == "solve" else ()
    results = function(a, *args)
    y = sum((x.sum() for x in ([results] if isinstance(results, cugrad.Tensor) else results)
             if x.requires_grad), cugrad.zeros((), device="cuda"))  # fmt: skip
    return lambda: y.backward(retain_graph=True)


def of_systems(name: str, **options: Any) -> Callable[[], None]:
    a, b = cugrad.eye(3, device="cuda") * 2, cugrad.ones(3, 2, device="cuda")
    found = getattr(cugrad.linalg, name, None) or getattr(cugrad, name)
    args = (b, a) if name == "cholesky_solve" else (a, b)
    return lambda: found(*args, **options)


PROGRAMS: dict[str, tuple[Callable[[], Callable[[], None]], int]] = {
    "a scaled step": (scaled_step, 1),
    "a product of a sparse matrix": (of_a_graph, 0),
    "a number assigned by indices": (lambda: assigned(2.5), 0),
    "an integer assigned by indices": (lambda: assigned(2), 0),
    "det": (lambda: of_matrices("det"), 0), "slogdet": (lambda: of_matrices("slogdet"), 0),
    "qr": (lambda: of_matrices("qr"), 0), "inv": (lambda: of_matrices("inv"), 1),
    **{f"{name} backward": (lambda name=name: gradients_of(name), 0)
       for name in ("solve", "inv", "det", "slogdet", "qr", "lu", "cholesky")},
    "inv_ex": (lambda: of_matrices("inv_ex"), 0), "solve": (lambda: of_systems("solve"), 1),
    "solve_ex": (lambda: of_systems("solve_ex"), 0),
    "solve_triangular": (lambda: of_systems("solve_triangular", upper=True), 0),
    "cholesky_solve": (lambda: of_systems("cholesky_solve"), 0),
    "indices of a triangle": (lambda: lambda: cugrad.tril_indices(4, 3, 1, device="cuda"), 0),
    "a histogram with bounds": (
        lambda: lambda: cugrad.histc(cugrad.ones(9, device="cuda"), 4, 0, 2), 0),
    "eigh": (lambda: of_matrices("eigh"), 1), "svdvals": (lambda: of_matrices("svdvals"), 1),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_host_waits_as_often_as_for_pytorch(name: str) -> None:
    make, waits = PROGRAMS[name]
    program = make()
    program()
    fake_cuda.STATE.syncs.clear()
    fake_cuda.STATE.copies.clear()
    program()
    assert len(fake_cuda.STATE.syncs) == waits, fake_cuda.STATE.syncs
    assert fake_cuda.STATE.copies == []
