"""Samples of the factorisations in cugrad/ops/{factorize,eigen}.py."""

import numpy as np

from tests.ops import samples
from tests.ops.samples import regular
from tests.ops.sampling import distinct, exactly, sample


def _lu(np, A):
    """Elimination with the largest pivot, as in any textbook, one matrix at a time."""
    rows, columns = A.shape[-2:]
    k = min(rows, columns)
    LU, pivots = A.copy(), np.zeros((*A.shape[:-2], k), np.int32)
    for at in np.ndindex(A.shape[:-2]):
        u = LU[at]
        for j in range(k):
            p = j + int(np.argmax(abs(u[j:, j])))
            pivots[(*at, j)] = p + 1
            u[[j, p]] = u[[p, j]]
            u[j + 1 :, j] /= u[j, j]
            u[j + 1 :, j + 1 :] -= np.outer(u[j + 1 :, j], u[j, j + 1 :])
    return LU, pivots, np.zeros(A.shape[:-2], np.int32)


def _permutation(np, LU, pivots):
    P = np.zeros((*pivots.shape[:-1], LU.shape[-2], LU.shape[-2]), LU.dtype)
    for at in np.ndindex(pivots.shape[:-1]):
        order = list(range(LU.shape[-2]))
        for i, p in enumerate(pivots[at]):
            order[i], order[p - 1] = order[p - 1], order[i]
        P[at][order, range(len(order))] = 1
    return P


def _geqrf(np, A):
    h, tau = np.linalg.qr(A, "raw")
    return h.swapaxes(-1, -2), tau


def _simple(shape, seed):
    """Matrices whose eigenvalues are real, positive and apart."""
    n = shape[-1]
    rng = np.random.default_rng(seed)
    return exactly(np.diag(np.arange(1.0, n + 1)) + 0.2 * rng.standard_normal(shape))


def _torch_eig(torch, A):
    """Vectors that are real, so that no loss depends on their phase, which PyTorch refuses."""
    values, vectors = torch.linalg.eig(A)
    return values, torch.complex(vectors.real, torch.zeros_like(vectors.real))


for _shape in ((3, 3), (2, 4, 3), (2, 1, 2, 4), (2, 0, 0)):
    sample("linalg_lu_factor_ex", regular(_shape), reference=_lu,
           torch=lambda torch, A: torch.linalg.lu_factor_ex(A))  # fmt: skip
    if 0 not in _shape:
        sample("geqrf", regular(_shape), reference=_geqrf,
               torch=lambda torch, A: torch.geqrf(A))  # fmt: skip
sample("linalg_permutation", (3, 3), exactly(np.array([3, 3, 3], np.int32)),
       reference=_permutation, torch=lambda torch, *a: torch.lu_unpack(*a)[0])  # fmt: skip
sample("linalg_permutation", (2, 3, 2), exactly(np.array([[3, 3], [1, 2]], np.int32)),
       reference=_permutation, torch=lambda torch, *a: torch.lu_unpack(*a)[0])  # fmt: skip
for _shape in ((3, 3), (2, 2, 2), (1, 1)):
    sample("linalg_eig", _simple(_shape, 1),
           reference=lambda np, A: tuple(x.astype(complex) for x in np.linalg.eig(A)),
           torch=_torch_eig)  # fmt: skip
    sample("linalg_eigvals", _simple(_shape, 2),
           reference=lambda np, A: np.linalg.eigvals(A).astype(complex),
           torch=lambda torch, A: torch.linalg.eigvals(A))  # fmt: skip

samples.REAL_ONLY |= {"linalg_eig", "linalg_eigvals"}  # of complex ones: functions/test_linalg.py
samples.NO_HALF |= dict.fromkeys(
    ["linalg_lu_factor_ex", "linalg_permutation", "geqrf", "linalg_eig", "linalg_eigvals"],
    "neither LAPACK nor PyTorch has it",
)
for _shape in ((4,), (2, 3), (1,)):
    sample("linalg_distances", distinct(_shape),
           reference=lambda np, x: x[..., None, :] - x[..., :, None],
           torch=lambda torch, x: x[..., None, :] - x[..., :, None])  # fmt: skip


def _sparse_product(np, rows, columns, values, other, count, ordered=False):
    matrix = np.zeros((count, other.shape[0]), values.dtype)
    np.add.at(matrix, (rows, columns), values)
    return matrix @ other


def _torch_sparse_product(torch, rows, columns, values, other, count, ordered=False):
    terms = other[columns] * values[:, None]
    return torch.zeros(count, other.shape[1], dtype=terms.dtype).index_add(0, rows, terms)


for _rows, _ordered in ([3, 0, 2, 0, 3], False), ([0, 0, 1, 3, 3], True):
    sample("sparse_product", exactly(_rows), exactly([1, 0, 2, 0, 1]), (5,), (3, 2), count=4,
           ordered=_ordered, reference=_sparse_product, torch=_torch_sparse_product)  # fmt: skip
sample("sampled_product", exactly([3, 0, 2, 0, 3]), exactly([1, 0, 2, 0, 1]), (4, 2), (3, 2),
       reference=lambda np, rows, columns, left, right: (left @ right.T)[rows, columns],
       torch=lambda torch, rows, columns, left, right: (
           left[rows] * right[columns]).sum(1))  # fmt: skip
