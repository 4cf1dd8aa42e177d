"""Least squares, LU, reflectors, eigenvalues, distances beside PyTorch; second derivatives."""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np
import pytest

import cugrad
from tests.functions.test_linalg import compare, complex_normal, normal, oracle

# PyTorch's, of its older names
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
DRAWS = [normal, complex_normal]


@oracle
@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("shape", [(3, 3), (2, 4, 3), (2, 5), (0, 3, 3), (2, 0, 3)], ids=str)
def test_lu(shape: tuple[int, ...], draw: Any) -> None:
    a = draw(*shape)
    for name in "lu", "lu_factor", "lu_factor_ex":
        compare(lambda lib, x, name=name: tuple(getattr(lib.linalg, name)(x)), a)
    compare(lambda lib, x: tuple(lib.lu_unpack(*lib.linalg.lu_factor(x))), a)
    compare(lambda lib, x: tuple(lib.lu_unpack(*x.lu(), unpack_pivots=False)), a)


@oracle
@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("adjoint", [True, False])
def test_lu_solve(left: bool, adjoint: bool, draw: Any) -> None:
    compare(
        lambda lib, a, b: lib.linalg.lu_solve(
            *lib.linalg.lu_factor(a), b, left=left, adjoint=adjoint
        ),
        draw(2, 3, 3), draw(2, 3, 3, seed=1),
    )  # fmt: skip


def test_lu_by_blocks() -> None:
    """Of more columns than a block has; a zero pivot is told, and gives no nan."""
    a = cugrad.tensor(normal(2, 80, 70))
    P, L, U = cugrad.linalg.lu(a)
    assert cugrad.allclose(P @ L @ U, a)
    LU, _, info = cugrad.linalg.lu_factor_ex(cugrad.zeros(3, 3))
    assert int(info) == 1 and not LU.isnan().any()
    with pytest.raises(cugrad.linalg.LinAlgError):
        cugrad.linalg.lu_factor_ex(cugrad.zeros(3, 3), check_errors=True)
    with pytest.raises(RuntimeError, match="without pivoting"):
        cugrad.linalg.lu(a, pivot=False)


@oracle
@pytest.mark.parametrize("driver", ["gels", "gelsy", "gelsd", "gelss"])
@pytest.mark.parametrize("shape", [(3, 3), (5, 3), (3, 5), (2, 5, 3)], ids=str)
def test_lstsq(shape: tuple[int, ...], driver: str) -> None:
    for draw in DRAWS:
        b = draw(*shape[:-1], 2, seed=1)
        compare(lambda lib, a, b: tuple(lib.linalg.lstsq(a, b, driver=driver)), draw(*shape), b)
        one, several = draw(1, *shape[-2:]), draw(2, shape[-2], 2)  # the rank is that of the one
        compare(lambda lib, a, b: tuple(lib.linalg.lstsq(a, b, driver=driver)), one, several)
    compare(lambda lib, a, b: lib.linalg.lstsq(a, b, driver=driver).solution,
            normal(*shape), normal(*shape[:-1], seed=1))  # fmt: skip


@oracle
@pytest.mark.parametrize("draw", DRAWS)
def test_eigenvalues(draw: Any) -> None:
    """Of vectors what does not depend on their phase."""
    for shape in (3, 3), (2, 4, 4), (0, 0):
        compare(lambda lib, a: lib.linalg.eig(a).eigenvectors.abs(), draw(*shape), atol=1e-8)
        compare(lambda lib, a: lib.linalg.eig(a).eigenvalues, draw(*shape), atol=1e-8)
        compare(lambda lib, a: lib.linalg.eigvals(a), draw(*shape), atol=1e-8)


@oracle
@pytest.mark.parametrize("draw", DRAWS)
def test_householder_reflectors(draw: Any) -> None:
    a, tau, c = draw(2, 4, 3), draw(2, 3, seed=1), draw(2, 4, 4, seed=2)
    compare(lambda lib, a, t: lib.linalg.householder_product(a, t), a, tau)
    compare(lambda lib, a: tuple(lib.geqrf(a.detach())), a)
    leaf = cugrad.tensor(a, requires_grad=True)
    for x in cugrad.geqrf(
        leaf
    ):  # as PyTorch's, it has no derivative, and says so where it is asked
        with pytest.raises(NotImplementedError, match="derivative for 'geqrf'"):
            x.backward(x.detach())
    with cugrad.no_grad():
        assert not cugrad.geqrf(leaf).a.requires_grad
    for left in True, False:
        for transpose in True, False:
            compare(lambda lib, *xs, to=(left, transpose): lib.ormqr(*xs, *to), a, tau, c)


@oracle
@pytest.mark.parametrize("p", [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, inf])
def test_distances(p: float) -> None:
    """Also where two rows are one: the gradient is zero there."""
    x = normal(4, 3)
    compare(lambda lib, x: lib.nn.functional.pdist(x, p), x)
    compare(lambda lib, x, y: lib.cdist(x, y, p), normal(2, 4, 3), normal(2, 5, 3, seed=1))
    same = np.stack([x[0], x[0] + [1.0, 2.0, 3.0]])
    compare(lambda lib, x, y: lib.cdist(x, y, p), x, same)
    compare(lambda lib, x, y: lib.cdist(x, y, p), normal(30, 3), normal(2, 3, seed=1))


@oracle
def test_checked_inverses_and_tensors() -> None:
    a, b = normal(2, 3, 3), normal(2, 3, 2, seed=1)
    singular = np.stack([np.eye(3), np.diag([1.0, 0.0, 2.0])])
    compare(lambda lib, a: tuple(lib.linalg.inv_ex(a)), a)
    compare(lambda lib, a, b: tuple(lib.linalg.solve_ex(a, b)), a, b)
    for name in "inv_ex", "cholesky_ex":
        compare(lambda lib, a, name=name: getattr(lib.linalg, name)(a).info, singular)
        compare(lambda lib, a, name=name: getattr(lib.linalg, name)(a, check_errors=True), singular)
    compare(lambda lib, a: lib.linalg.cholesky(a), np.full((2, 2), np.nan))
    compare(lambda lib, a: tuple(lib.linalg.slogdet(a.detach())), np.full((2, 2), np.nan))
    compare(lambda lib, a: lib.linalg.tensorinv(a, 2), normal(2, 3, 6))
    compare(lambda lib, a, b: lib.linalg.tensorsolve(a, b), normal(2, 3, 6), normal(2, 3, seed=1))
    compare(lambda lib, a: lib.linalg.vander(a, N=4), normal(2, 3))


@oracle
@pytest.mark.parametrize("draw", DRAWS)
def test_older_names(draw: Any) -> None:
    a, b = draw(3, 3), draw(3, 2, seed=1)
    compare(lambda lib, a: tuple(lib.qr(a)), a)
    compare(lambda lib, a: lib.svd(a, compute_uv=True).S, a)
    np.fill_diagonal(a, 1 + abs(a.diagonal()))  # of a factor it is real
    for upper in True, False:
        part = "triu" if upper else "tril"  # PyTorch has a gradient of the part that is not read
        compare(lambda lib, *xs, u=upper: tuple(lib.triangular_solve(*xs, u, True)), b, a)
        compare(lambda lib, b, a, u=upper, part=part: lib.cholesky_solve(
            b, getattr(lib, part)(a), u), b, a)  # fmt: skip
        compare(lambda lib, a, u=upper, part=part: lib.cholesky_inverse(
            getattr(lib, part)(a), u), a)  # fmt: skip
    compare(lambda lib, a, b: lib.lu_solve(b, *lib.linalg.lu_factor(a)), a, b)
    compare(lambda lib, a, b: lib.chain_matmul(a, a, b), a, b)
    compare(lambda lib, x, u, v: lib.addr(x, u, v, beta=2, alpha=3), a, draw(3), draw(3, seed=2))


@oracle
def test_bilinear() -> None:
    compare(lambda lib, *xs: lib.nn.functional.bilinear(*xs),
            normal(5, 2, 3), normal(5, 2, 4), normal(6, 3, 4), normal(6))  # fmt: skip


@oracle
def test_affine_products_of_integers_and_beta_zero() -> None:
    v, a = np.arange(3), np.arange(9).reshape(3, 3)
    compare(lambda lib, x, a, v: lib.addmv(x, a, v, beta=2, alpha=3), v, a, v)
    compare(lambda lib, a, v: lib.addmv(lib.full((3,), np.nan, dtype=a.dtype), a, v, beta=0),
            normal(3, 3), normal(3))  # fmt: skip
    with pytest.raises(RuntimeError, match="same dtype"):
        cugrad.addmv(*map(cugrad.tensor, (v, normal(3, 3), normal(3))))


def test_low_rank() -> None:
    a = cugrad.tensor(normal(2, 8, 2)) @ cugrad.tensor(normal(2, 2, 5, seed=1))
    for x in a, a.mT:
        U, S, V = cugrad.svd_lowrank(x, q=3)
        assert cugrad.allclose((U * S.unsqueeze(-2)) @ V.mT, x)
        U, S, V = cugrad.pca_lowrank(x, q=3)
        assert cugrad.allclose((U * S.unsqueeze(-2)) @ V.mT, x - x.mean(-2, keepdim=True))


SECOND = {
    "lstsq": (lambda a: cugrad.linalg.lstsq(a, a[..., :2]).solution, (4, 3)),
    "lu": (lambda a: cugrad.linalg.lu(a)[1:], (3, 4)),
    "eig": (lambda a: cugrad.linalg.eig(a).eigenvectors.abs(), (3, 3)),
    "eigvals": (lambda a: cugrad.linalg.eigvals(a).abs(), (3, 3)),
    "householder_product": (lambda a: cugrad.linalg.householder_product(a, a[0, :2]), (4, 3)),
    "cdist": (lambda a: cugrad.cdist(a, a[:2] + 1), (4, 3)),
    "bilinear": (lambda a: cugrad.bilinear(a, a, a.expand(2, 3, 3)), (3, 3)),
}


@pytest.mark.parametrize("name", SECOND)
def test_second_derivatives(name: str) -> None:
    of, shape = SECOND[name]
    for draw in DRAWS if name != "cdist" else DRAWS[:1]:
        x = cugrad.tensor(draw(*shape), requires_grad=True)
        assert cugrad.autograd.gradcheck(of, (x,))
        assert cugrad.autograd.gradgradcheck(of, (x,))


@pytest.mark.parametrize("function", ["eigh", "eig"])
def test_equal_eigenvalues_have_no_gradient_of_vectors(function: str) -> None:
    """A clear error; the eigenvalues alone are differentiable."""
    x = cugrad.eye(3, dtype=cugrad.float64, device="cpu").requires_grad_()
    values, vectors = getattr(cugrad.linalg, function)(x)
    with pytest.raises(cugrad.linalg.LinAlgError, match="eigenvalues are equal"):
        (vectors.real**3).sum().backward(retain_graph=True)
    values.real.sum().backward()
    assert x.grad.tolist() == cugrad.eye(3).tolist()


OF_A_TRIANGLE: dict[str, Any] = {
    "eigvalsh": lambda lib, a, upper: lib.linalg.eigvalsh(a, UPLO="LU"[upper]),
    "eigh": lambda lib, a, upper: abs(lib.linalg.eigh(a, UPLO="LU"[upper])[1]),
    "cholesky": lambda lib, a, upper: lib.linalg.cholesky(a, upper=upper),
    "pinv": lambda lib, a, upper: lib.linalg.pinv(a.mT if upper else a, hermitian=True),
}


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("name", OF_A_TRIANGLE)
def test_one_triangle_is_looked_at(lib: Any, name: str, upper: bool) -> None:
    """With a gradient wanted, too. Forward mode is the adjoint of backward, off the triangle."""
    a = normal(3, 3, seed=2)
    a = a @ a.T + np.eye(3)
    rest = (np.tril if upper else np.triu)(np.full((3, 3), np.nan), -1 if upper else 1)
    function = lambda x: OF_A_TRIANGLE[name](lib, x, upper)
    want, pull = lib.func.vjp(function, lib.tensor(a))
    got, pull_too = lib.func.vjp(function, lib.tensor(a + rest))
    weights = lib.tensor(normal(*want.shape, seed=3))
    assert lib.allclose(got, want)
    if name != "pinv":  # whose gradient is a product with all of the matrix
        assert lib.allclose(pull_too(weights)[0], pull(weights)[0])
    if lib is cugrad:  # PyTorch's is, of eigenvalues and inverses
        tangent = lib.tensor(normal(3, 3, seed=4))
        _, change = lib.func.jvp(function, (lib.tensor(a),), (tangent,))
        assert lib.allclose((change * weights).sum(), (pull(weights)[0] * tangent).sum())


LIMITS = [
    {"atol": (0.5, 3.0)}, {"atol": (0.0, 3.0)}, {"rtol": (0.1, 0.9)}, {"atol": (0.5,)},
    {"atol": ((0.5,), (3.0,)), "rtol": (0.1, 0.9)},
]  # fmt: skip


@oracle
@pytest.mark.parametrize("limits", LIMITS, ids=str)
def test_tolerances_for_each_matrix(limits: dict[str, Any]) -> None:
    a = normal(2, 3, 4)
    a[0, 2] = a[0, 1] * (1 + 1e-9)
    given = {name: np.array(value) for name, value in limits.items()}

    def call(lib: Any, name: str, x: Any, **how: Any) -> Any:
        tensors = {key: lib.tensor(value) for key, value in given.items()}
        return getattr(lib.linalg, name)(x, **tensors, **how)

    for hermitian in (False, True):
        x = a @ a.swapaxes(-1, -2) if hermitian else a
        for name in "pinv", "matrix_rank":
            compare(lambda lib, x, n=name, h=hermitian: call(lib, n, x, hermitian=h), x)


@oracle
@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("bad", [0, 1, 3])
def test_a_factor_goes_as_far_as_it_can(draw: Any, bad: int) -> None:
    a, b = draw(4, 4), draw(4, 4, seed=1)
    a, b = a @ a.conj().T + np.eye(4), b @ b.conj().T + np.eye(4)
    b[bad, bad] = -2.0
    both = np.stack([a, b])
    for upper in False, True:
        compare(lambda lib, x, u=upper: tuple(lib.linalg.cholesky_ex(x.detach(), upper=u)), both)
