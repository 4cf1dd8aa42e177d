"""torch.linalg beside PyTorch: values, gradients, what singular matrices and wrong shapes give."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, nan
from typing import Any

import numpy as np
import pytest

import cugrad
from cugrad.autograd import grad

try:
    import torch
except ImportError:
    torch = None  # type: ignore[assignment]

Array = np.ndarray
oracle = pytest.mark.skipif(torch is None, reason="PyTorch, the oracle, is not installed")


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape)


def complex_normal(*shape: int, seed: int = 0) -> Array:
    return normal(*shape, seed=seed) + 1j * normal(*shape, seed=seed + 100)


def definite(x: Array) -> Array:
    return x + x.swapaxes(-1, -2).conj() + 8 * np.eye(x.shape[-1])


def as_numpy(x: Any) -> Array:
    x = x.detach()
    return x.numpy() if isinstance(x, cugrad.Tensor) else x.resolve_conj().numpy()


def compare(function: Callable[..., Any], *arrays: Array, atol: float = 1e-9) -> None:
    """The function of both libraries: values, dtypes, gradients; or the error's class and text."""
    floating = [a.dtype.kind in "fc" for a in arrays]
    sides = []
    for lib, make in ((cugrad, cugrad.tensor), (torch, torch.tensor)):
        xs = [make(a, requires_grad=f) for a, f in zip(arrays, floating)]
        try:
            out = function(lib, *xs)
        except RuntimeError as error:
            out = error
        sides.append((xs, out if isinstance(out, (tuple, Exception)) else (out,)))
    (xs, ours), (ys, theirs) = sides
    if isinstance(theirs, Exception):
        assert isinstance(ours, Exception), "PyTorch refuses"
        assert str(theirs).split(".  ")[0].splitlines()[0][:60] in str(ours)
        assert isinstance(theirs, torch.linalg.LinAlgError) == isinstance(
            ours, cugrad.linalg.LinAlgError
        )
        return
    assert not isinstance(ours, Exception), ours
    for o, t in zip(ours, theirs):
        assert str(o.dtype) == str(t.dtype)
        np.testing.assert_allclose(as_numpy(o), as_numpy(t), rtol=0, atol=atol)
    roots = [i for i, t in enumerate(theirs) if t.requires_grad]
    assert [i for i, o in enumerate(ours) if o.requires_grad] == roots
    if not roots:
        return
    seeds = [normal(*theirs[i].shape, seed=7) + 0 * as_numpy(theirs[i]) for i in roots]
    xs = [x for x in xs if x.requires_grad]
    ys = [y for y in ys if y.requires_grad]
    got = grad([ours[i] for i in roots], xs, [cugrad.tensor(s) for s in seeds])
    want = torch.autograd.grad([theirs[i] for i in roots], ys, [torch.tensor(s) for s in seeds])
    for g, w in zip(got, want):
        np.testing.assert_allclose(as_numpy(g), as_numpy(w), rtol=0, atol=atol)


SINGULAR = np.array([[1.0, 1.0], [1.0, 1.0]])
SHAPES = [(3, 3), (2, 2, 3, 3), (0, 0), (2, 0, 0)]
WRONG = [normal(2, 3), normal(3), np.ones((2, 2), int)]


OF_SQUARE = [
    pytest.param(name, shape, marks=[pytest.mark.pinned_torch] * (name == "det" and 0 in shape),
                 id=f"{name}-{shape}")
    for name in ["inv", "det", "slogdet", "svdvals", "pinv", "matrix_exp"] for shape in SHAPES
]  # fmt: skip


@oracle
@pytest.mark.parametrize("draw", [normal, complex_normal])
@pytest.mark.parametrize("name, shape", OF_SQUARE)
def test_functions_of_square_matrices(name: str, shape: tuple[int, ...], draw: Any) -> None:
    compare(lambda lib, x: getattr(lib.linalg, name)(x), draw(*shape))


@oracle
@pytest.mark.parametrize("shape", [(2, 4, 3), (3, 5), (0, 3)], ids=str)
@pytest.mark.parametrize("name", ["svdvals", "pinv", "qr"])
def test_functions_of_other_matrices(name: str, shape: tuple[int, ...]) -> None:
    for draw in normal, complex_normal:
        compare(lambda lib, x: getattr(lib.linalg, name)(x), draw(*shape))


@oracle
@pytest.mark.parametrize("array", WRONG, ids=["wide", "vector", "integers"])
@pytest.mark.parametrize("name", ["inv", "det", "slogdet", "cholesky", "eigh", "qr", "svd"])
def test_wrong_arguments(name: str, array: Array) -> None:
    if (name, array.dtype.kind) != ("eigh", "i") and (name, array.shape) not in (
        ("qr", (2, 3)), ("svd", (2, 3))
    ):  # fmt: skip
        compare(lambda lib, x: getattr(lib.linalg, name)(x), array)


def test_half_precision_is_refused() -> None:
    with pytest.raises(NotImplementedError, match="Low precision"):
        cugrad.linalg.inv(cugrad.ones(2, 2, dtype=cugrad.float16))


@oracle
@pytest.mark.parametrize(
    "array",
    [
        SINGULAR, np.zeros((2, 2)), np.diag([1.0, 2.0, 0.0]), np.stack([np.eye(2), SINGULAR]),
        np.stack([[np.eye(2), SINGULAR], [SINGULAR, SINGULAR]]), -np.eye(3), np.diag([1.0, -1.0]),
    ],
)  # fmt: skip
def test_singular_matrices_raise_linalg_errors(array: Array) -> None:
    """The text names the batch element and the pivot, or the minor, as PyTorch's."""
    compare(lambda lib, x: lib.linalg.inv(x), array)
    compare(lambda lib, x: lib.linalg.solve(x, x), array)
    compare(lambda lib, x: lib.linalg.cholesky(x), array)
    assert issubclass(cugrad.linalg.LinAlgError, RuntimeError)


@oracle
@pytest.mark.parametrize("array", [SINGULAR, np.diag([1.0, 2.0, 0.0]), np.zeros((3, 3))])
def test_the_gradient_of_a_singular_determinant_is_its_cofactors(array: Array) -> None:
    """PyTorch gives them under create_graph only, and zeros else."""
    x, y = cugrad.tensor(array, requires_grad=True), torch.tensor(array, requires_grad=True)
    (want,) = torch.autograd.grad(torch.linalg.det(y), y, create_graph=True)
    (got,) = grad(cugrad.linalg.det(x), [x])
    np.testing.assert_allclose(got.numpy(), as_numpy(want), atol=1e-12)


@oracle
@pytest.mark.parametrize("upper", [False, True])
def test_one_triangle_is_read_and_the_gradient_is_hermitian(upper: bool) -> None:
    uplo = "U" if upper else "L"
    for x in definite(normal(2, 3, 3)), definite(complex_normal(3, 3)):
        half = np.triu(x) if upper else np.tril(x)
        for array in x, half, half + 100 * (np.tril(x, -1) if upper else np.triu(x, 1)):
            compare(lambda lib, x: lib.linalg.cholesky(x, upper=upper).abs().square(), array)
            compare(lambda lib, x: lib.linalg.eigvalsh(x, uplo), array)
            compare(lambda lib, x: phaseless(lib.linalg.eigh(x, uplo)), array)


def phaseless(found: Any) -> Any:
    """What does not depend on the signs or phases of eigenvectors."""
    values, vectors = found
    return values, (vectors * vectors.conj()).real


@oracle
@pytest.mark.parametrize("draw", [normal, complex_normal])
@pytest.mark.parametrize("shape", [(3, 3), (2, 4, 3), (3, 5)], ids=str)
def test_svd(shape: tuple[int, ...], draw: Any) -> None:
    def of(lib: Any, x: Any) -> Any:
        U, S, Vh = lib.linalg.svd(x, full_matrices=False)
        again = (U * S[..., None, :]) @ Vh
        return (U * U.conj()).real, S, (Vh * Vh.conj()).real, again

    compare(of, draw(*shape))
    compare(lambda lib, x: lib.linalg.svd(x).S, draw(*shape))
    full = cugrad.linalg.svd(cugrad.tensor(draw(*shape)))
    assert full.U.shape[-1] == shape[-2] and full.Vh.shape[-1] == shape[-1]


@oracle
def test_equal_eigenvalues() -> None:
    """Eigenvalues have PyTorch's gradient; of eigenvectors see test_linalg_factors."""
    x = np.diag([1.0, 1.0, 2.0])
    for function in ("eigvalsh", "svdvals"):
        compare(lambda lib, x, f=function: getattr(lib.linalg, f)(x), x)
    compare(lambda lib, x: lib.linalg.eigh(x)[0], x)


@oracle
def test_qr_modes() -> None:
    for x in normal(3, 3), normal(2, 2, 4), complex_normal(3, 5):
        compare(lambda lib, x: tuple(lib.linalg.qr(x, "complete")), x)
    for mode in "complete", "r":
        x = cugrad.tensor(normal(4, 3), requires_grad=True)
        q, r = cugrad.linalg.qr(x, mode)
        with torch.no_grad():
            want = torch.linalg.qr(torch.tensor(normal(4, 3)), mode)
        np.testing.assert_allclose(as_numpy(q), want.Q, atol=1e-12)
        np.testing.assert_allclose(as_numpy(r), want.R, atol=1e-12)
        with pytest.raises(RuntimeError, match="not differentiable|depends on Q"):
            r.sum().backward()
    with pytest.raises(RuntimeError, match="unrecognized mode 'fast'"):
        cugrad.linalg.qr(x, "fast")


@oracle
@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize(
    "a, b",
    [
        ((3, 3), (3,)), ((3, 3), (3, 2)), ((3, 3), (2, 3)), ((2, 3, 3), (2, 3)), ((2, 3, 3), (3,)),
        ((2, 3, 3), (3, 4)), ((3, 3), (5, 3, 2)), ((3, 3), (2,)), ((2, 2, 2), (3, 2, 2)),
    ],
    ids=str,
)  # fmt: skip
def test_solve(a: tuple[int, ...], b: tuple[int, ...], left: bool) -> None:
    for draw in normal, complex_normal:
        A, B = draw(*a), draw(*b, seed=1)
        if a[:-2] != (2,) or b[:-2] != (3,):  # for these batches the texts differ
            compare(lambda lib, A, B: lib.linalg.solve(A, B, left=left), A, B)
        else:
            with pytest.raises(RuntimeError):
                cugrad.linalg.solve(cugrad.tensor(A), cugrad.tensor(B), left=left)


@oracle
@pytest.mark.parametrize("unitriangular", [True, False])
@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("upper", [True, False])
def test_solve_triangular(upper: bool, left: bool, unitriangular: bool) -> None:
    for a, b in (((3, 3), (3, 3)), ((2, 3, 3), (3, 3)), ((3, 3), (4, 2))):
        compare(
            lambda lib, A, B: lib.linalg.solve_triangular(
                A, B, upper=upper, left=left, unitriangular=unitriangular
            ),
            definite(normal(*a)), normal(*b, seed=1),
        )  # fmt: skip
    A, B = np.diag([1.0, 0.0, 2.0]), np.ones((3, 3))
    compare(lambda lib: lib.linalg.solve_triangular(
        lib.tensor(A), lib.tensor(B), upper=upper, left=left, unitriangular=unitriangular
    ))  # fmt: skip


@oracle
@pytest.mark.parametrize("n", [0, 1, 2, 7, -1, -3])
def test_matrix_power(n: int) -> None:
    compare(lambda lib, x: lib.linalg.matrix_power(x, n), normal(2, 3, 3), atol=1e-7)
    compare(lambda lib, x: lib.matrix_power(x, n), np.arange(4).reshape(2, 2))


@oracle
@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("ord", ["fro", "nuc", 1, -1, 2, -2, inf, -inf, 0, 3, "x"])
def test_norms(ord: Any, keepdim: bool) -> None:
    for x in normal(3, 3), normal(2, 3, 4), complex_normal(2, 3, 4), np.ones((2, 2), int):
        for dim in (-2, -1), (0, 1), (-1, 0):
            compare(lambda lib, x, d=dim: lib.linalg.matrix_norm(x, ord, d, keepdim), x)
        compare(lambda lib, x: lib.linalg.norm(x, ord, None, keepdim), x)
    compare(lambda lib, x: lib.linalg.norm(x, None, 1, keepdim), normal(2, 3, 4))
    compare(lambda lib, x: lib.linalg.norm(x, keepdim=keepdim), normal(2, 3, 4))
    compare(lambda lib, x: lib.linalg.norm(x, 2, (0, 1, 2)), normal(2, 3, 4))


@oracle
def test_products() -> None:
    for a, b in ((3, 3), (3, 3)), ((2, 1, 3), (1, 4, 3)), ((3,), (2, 3)), ((2, 2), (2, 2)):
        compare(lambda lib, x, y: lib.linalg.cross(x, y), normal(*a), normal(*b, seed=1))
        compare(lambda lib, x, y: lib.kron(x, y), normal(*a), normal(*b, seed=1))
        if len(a) == len(b):
            compare(lambda lib, x, y: x.cross(y, 0), normal(*a), normal(*b, seed=1))
            compare(lambda lib, x, y: lib.linalg.vecdot(x, y), normal(*a), normal(*b, seed=1))
    for x in normal(3, 3), normal(2, 4), normal(2, 2, 2), np.arange(4).reshape(2, 2):
        compare(lambda lib, x: x.trace(), x)
        for where in (), (1,), (-2,), (0, 0, 1), (1, 0, -1), (0, 1, 1):
            compare(lambda lib, x, w=where: lib.diag_embed(x, *w), x)


@oracle
@pytest.mark.parametrize(
    "a, b, dims",
    [
        ((2, 3, 4), (3, 4, 5), 2), ((2, 3, 4), (4, 3, 5), ([1, 2], [1, 0])), ((2,), (3,), 0),
        ((2, 3, 1), (3, 5, 5), ([1, 2], [0, 1])), ((2, 3, 4), (3, 5, 5), 2), ((2, 3), (2, 3), -1),
        ((2, 3), (2, 3), 3), ((2, 3), (2, 3), ([0, 1], [0])), ((2, 3), (2, 3), ([0, -1], [0, 1])),
    ],
    ids=str,
)  # fmt: skip
def test_tensordot(a: tuple[int, ...], b: tuple[int, ...], dims: Any) -> None:
    compare(lambda lib, x, y: lib.tensordot(x, y, dims), normal(*a), normal(*b, seed=1))


@oracle
@pytest.mark.parametrize(
    "shapes",
    [
        [(2, 3), (3, 4)], [(2,), (2, 3), (3, 4), (4, 5), (5,)], [(2, 8), (8, 2), (2, 9), (9, 1)],
        [(2, 2)], [(2, 3), (2, 3)], [(2, 3, 3), (3, 3)], [(2, 3), (2, 3, 3), (3, 3)], [(2,), (2,)],
    ],
    ids=str,
)  # fmt: skip
def test_multi_dot(shapes: Any) -> None:
    arrays = [normal(*s, seed=i) for i, s in enumerate(shapes)]
    compare(lambda lib, *xs: lib.linalg.multi_dot(xs), *arrays)


@oracle
@pytest.mark.parametrize("name", ["inverse", "det", "logdet", "slogdet", "matrix_exp", "pinverse"])
def test_names_at_the_top_and_methods(name: str) -> None:
    for x in definite(normal(3, 3)), definite(complex_normal(3, 3)), np.array([[0, 1.0], [1, 0]]):
        compare(lambda lib, x: getattr(lib, name)(x), x, atol=1e-6 if name[:2] == "ma" else 1e-9)
        compare(lambda lib, x: getattr(x, name)(), x, atol=1e-6 if name[:2] == "ma" else 1e-9)


@oracle
def test_pinv_of_matrices_without_full_rank() -> None:
    compare(lambda lib, x: lib.linalg.pinv(x), SINGULAR)
    compare(lambda lib, x: lib.linalg.pinv(x, hermitian=True), definite(normal(3, 3)))
    for how in {"atol": 1.0}, {"rtol": 0.4}, {"rcond": 0.4}, {"atol": 0.1, "rtol": 0.1}:
        with torch.no_grad():
            want = torch.linalg.pinv(torch.tensor(normal(4, 3)), **how)
        got = cugrad.linalg.pinv(cugrad.tensor(normal(4, 3)), **how)
        np.testing.assert_allclose(got.numpy(), want.numpy(), atol=1e-12)


@oracle
@pytest.mark.parametrize("scale", [1e-3, 0.5, 3.0, 30.0])
def test_matrix_exp_of_small_and_large_matrices(scale: float) -> None:
    x = normal(2, 3, 3) * scale
    with torch.no_grad():
        want = torch.linalg.matrix_exp(torch.tensor(x)).numpy()
    got = cugrad.linalg.matrix_exp(cugrad.tensor(x)).numpy()
    np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-11 * np.abs(want).max())


def test_nan_stays_nan() -> None:
    x = cugrad.full((2, 2), nan, requires_grad=True)
    cugrad.linalg.det(x).backward()
    assert x.grad is not None and x.grad.isnan().all()


@oracle
@pytest.mark.parametrize("p", [None, 2, -2, 1, -1, inf, -inf, "fro", "nuc", 0, "x"])
def test_cond(p: Any) -> None:
    """With p of other kinds PyTorch's own gradient fails: it changes the inverse in place."""
    by_values = p in (None, 2, -2)
    for x in normal(3, 3), normal(2, 3, 3), complex_normal(3, 3), np.zeros((0, 0)):
        compare(lambda lib, x: lib.linalg.cond(x if by_values else x.detach(), p), x, atol=1e-7)
    compare(lambda lib, x: lib.linalg.cond(x.detach(), p), np.diag([1.0, 2.0, 0.0]))
    if by_values:
        compare(lambda lib, x: lib.linalg.cond(x, p), normal(2, 3))
    elif p != "nuc":
        compare(lambda lib, x: lib.linalg.cond(x.detach(), p), np.full((2, 2), nan))


@oracle
def test_matrix_rank() -> None:
    for x in (
        SINGULAR,
        np.diag([1.0, 0.1]),
        np.zeros((2, 0, 3)),
        normal(2, 4, 3),
        complex_normal(2, 3),
    ):
        for how in {}, {"atol": 3.0}, {"rtol": 0.2}, {"atol": 0.05, "rtol": 0.01}:
            compare(lambda lib, x, how=how: lib.linalg.matrix_rank(x, **how), x)
        compare(lambda lib, x: lib.linalg.matrix_rank(x, 0.2), x)
    compare(lambda lib, x: lib.linalg.matrix_rank(x, hermitian=True), -SINGULAR)


@pytest.mark.parametrize("name", ["svd", "eigh", "cholesky"])
def test_complex_factors_have_second_derivatives(name: str) -> None:
    """Of what has no phase; the rows' own tests draw vectors with a phase, so they are real."""

    def of(x: Any) -> Any:
        if name == "svd":
            U, S, Vh = cugrad.linalg.svd(x, full_matrices=False)
            return (U * U.conj()).real, (Vh * Vh.conj()).real, (U * S) @ Vh
        square = x.mT.conj() @ x
        if name == "eigh":
            return phaseless(cugrad.linalg.eigh(square))
        return cugrad.linalg.cholesky(square).abs()

    x = cugrad.tensor(complex_normal(3, 2), requires_grad=True)
    assert cugrad.autograd.gradcheck(of, (x,)) and cugrad.autograd.gradgradcheck(of, (x,))
