"""Parametrizations of weights: normalised by length or by norm, or orthogonal."""

from __future__ import annotations

from enum import Enum, auto
from typing import Any, TypeVar

from ...autograd.mode import no_grad
from ...functions import FUNCTIONS
from ...functions.creation.factories import eye, zeros_like
from ...functions.creation.random import randn
from ...functions.maths.products import mv, vdot
from ...functions.queries import finfo
from ...functions.shapes.copies import cat
from ...linalg import householder_product, matrix_exp, qr, solve
from ...linalg.factors import geqrf
from ...tensor import Tensor
from ..functional import normalize
from ..modules.module import Module
from . import parametrize
from .spectral_norm import default_dim
from .weight_norm import _weight_norm, norm_except_dim

__all__ = ["orthogonal", "spectral_norm", "weight_norm"]

where = FUNCTIONS["where"]
M = TypeVar("M", bound=Module)


class _WeightNorm(Module):
    def __init__(self, dim: int | None = 0) -> None:
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, weight_g: Tensor, weight_v: Tensor) -> Tensor:
        return _weight_norm(weight_v, weight_g, self.dim)

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        return norm_except_dim(weight, 2, self.dim), weight


def weight_norm(module: M, name: str = "weight", dim: int | None = 0) -> M:
    """Learns the length, `original0`, and the direction, `original1`, of a parameter apart.

    `dim` is the dimension along which parts have a length each; None: the whole has one. A state
    dict of the older `weight_norm` can be loaded. Source: https://arxiv.org/abs/1602.07868.

    >>> import cugrad as torch
    >>> layer = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(3, 2))
    >>> layer.parametrizations.weight.original0.shape
    torch.Size([2, 1])
    """
    parametrize.register_parametrization(module, name, _WeightNorm(dim), unsafe=True)

    def rename(state_dict: Any, prefix: str, *rest: Any) -> None:
        keys = [f"{prefix}{name}{suffix}" for suffix in ("_g", "_v")]
        if all(key in state_dict for key in keys):
            for i, key in enumerate(keys):
                new = f"{prefix}parametrizations.{name}.original{i}"
                state_dict[new] = state_dict.pop(key)

    module._register_load_state_dict_pre_hook(rename)
    return module


class _SpectralNorm(Module):
    def __init__(
        self, weight: Tensor, n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12
    ) -> None:
        super().__init__()
        ndim = weight.ndim
        if not -ndim <= dim < ndim:
            raise IndexError(
                f"Dimension out of range (expected to be in range of [-{ndim}, {ndim - 1}] but got "
                f"{dim})"
            )
        if n_power_iterations <= 0:
            raise ValueError(
                "Expected n_power_iterations to be positive, but got "
                f"n_power_iterations={n_power_iterations}"
            )
        self.dim, self.eps = dim % ndim, eps
        if ndim > 1:
            self.n_power_iterations = n_power_iterations
            matrix = self._reshape_weight_to_matrix(weight)
            for buffer, size in zip(("_u", "_v"), matrix.shape, strict=True):
                drawn = matrix.new_empty(size).normal_(0, 1)
                self.register_buffer(buffer, normalize(drawn, dim=0, eps=eps).detach())
            self._power_method(matrix, 15)

    def _reshape_weight_to_matrix(self, weight: Tensor) -> Tensor:
        if self.dim != 0:
            weight = weight.permute(self.dim, *[d for d in range(weight.dim()) if d != self.dim])
        matrix: Tensor = weight.flatten(1)
        return matrix

    @no_grad()
    def _power_method(self, weight_mat: Tensor, n_power_iterations: int) -> None:
        for _ in range(n_power_iterations):
            self._u.copy_(normalize(mv(weight_mat, self._v), dim=0, eps=self.eps))
            self._v.copy_(normalize(mv(weight_mat.mH, self._u), dim=0, eps=self.eps))

    def forward(self, weight: Tensor) -> Tensor:
        if weight.ndim == 1:
            return normalize(weight, dim=0, eps=self.eps)
        matrix = self._reshape_weight_to_matrix(weight)
        if self.training:
            self._power_method(matrix, self.n_power_iterations)
        u, v = self._u.clone(), self._v.clone()  # the next step changes the buffers before backward
        normalized: Tensor = weight / vdot(u, mv(matrix, v))
        return normalized

    def right_inverse(self, value: Tensor) -> Tensor:
        return value


def _weight_of(module: Module, name: str) -> Tensor:
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    return weight


def spectral_norm(
    module: M,
    name: str = "weight",
    n_power_iterations: int = 1,
    eps: float = 1e-12,
    dim: int | None = None,
) -> M:
    """Divides a parameter by its largest singular value, which power iteration estimates.

    `dim` is the dimension that counts outputs: 1 for transposed convolutions, else 0. In training
    each use goes on by `n_power_iterations` steps. Source: https://arxiv.org/abs/1802.05957.

    >>> import cugrad as torch
    >>> layer = torch.nn.utils.parametrizations.spectral_norm(torch.nn.Linear(4, 3))
    >>> abs(torch.linalg.matrix_norm(layer.weight, 2) - 1) < 0.1
    tensor(True)
    """
    weight = _weight_of(module, name)
    dim = default_dim(module) if dim is None else dim
    norm = _SpectralNorm(weight, n_power_iterations, dim, eps)
    parametrize.register_parametrization(module, name, norm)
    return module


class _OrthMaps(Enum):
    matrix_exp = auto()
    cayley = auto()
    householder = auto()


def _is_orthogonal(q: Tensor) -> bool:
    n, k = q.shape[-2:]
    near = 10.0 * n * finfo(q.dtype).eps
    unit = eye(k, dtype=q.dtype, device=q.device)
    return bool(FUNCTIONS["allclose"](q.mH @ q, unit, atol=near))


def _make_orthogonal(a: Tensor) -> Tensor:
    """The factor Q of a, with the signs for which that of an orthogonal matrix is itself."""
    q, r = qr(a)
    factor: Tensor = q * r.diagonal(dim1=-2, dim2=-1).sgn().unsqueeze(-2)
    return factor


class _Orthogonal(Module):
    base: Any

    def __init__(
        self, weight: Tensor, orthogonal_map: _OrthMaps, *, use_trivialization: bool = True
    ) -> None:
        super().__init__()
        if weight.is_complex() and orthogonal_map is _OrthMaps.householder:
            raise ValueError("The householder parametrization does not support complex tensors.")
        self.shape, self.orthogonal_map = weight.shape, orthogonal_map
        if use_trivialization:
            self.register_buffer("base", None)

    def forward(self, X: Tensor) -> Tensor:
        n, k = X.shape[-2:]
        turned = n < k
        if turned:
            X, n, k = X.mT, k, n
        if self.orthogonal_map is _OrthMaps.householder:
            a = X.tril(-1)
            tau = 2.0 / (1.0 + (a * a).sum(-2))
            q = householder_product(a, tau)
            q = q * X.diagonal(dim1=-2, dim2=-1).int().unsqueeze(-2)  # only the signs of this
        else:
            q = self._exponential(X.tril(), n, k)
        if hasattr(self, "base"):
            q = self.base @ q
        return q.mT if turned else q

    def _exponential(self, lower: Tensor, n: int, k: int) -> Tensor:
        if n != k:
            more = lower.new_zeros(n, n - k).expand(*lower.shape[:-2], -1, -1)
            lower = cat([lower, more], -1)
        skew = lower - lower.mH
        if self.orthogonal_map is _OrthMaps.matrix_exp:
            q = matrix_exp(skew)
        else:
            unit = eye(n, dtype=skew.dtype, device=skew.device)
            q = solve(unit - skew * 0.5, unit + skew * 0.5)
        return q[..., :k]

    def _reflections(self, q: Tensor, turned: bool) -> Tensor:
        """The reflections of which a matrix is the product, with its signs on the diagonal."""
        if self.orthogonal_map is not _OrthMaps.householder:
            raise NotImplementedError(
                "It is not possible to assign to the matrix exponential or the Cayley "
                "parametrizations when use_trivialization=False."
            )
        a, tau = geqrf(q.detach())
        signs = a.diagonal(dim1=-2, dim2=-1).sign()
        a.diagonal(dim1=-2, dim2=-1).copy_(where(tau == 0.0, -signs, signs))
        return a.mT if turned else a

    @no_grad()
    def right_inverse(self, Q: Tensor) -> Tensor:
        if Q.shape != self.shape:
            raise ValueError(
                f"Expected a matrix or batch of matrices of shape {self.shape}. "
                f"Got a tensor of shape {Q.shape}."
            )
        matrix, (n, k) = Q, Q.shape[-2:]
        if n < k:
            Q, n, k = Q.mT, k, n
        if not hasattr(self, "base"):
            return self._reflections(Q, matrix.shape[-2] < matrix.shape[-1])
        if n != k:
            drawn = randn(*Q.shape[:-2], n, n - k, dtype=Q.dtype, device=Q.device)
            self.base = _make_orthogonal(cat([Q, drawn], -1))
        else:
            self.base = Q.clone() if _is_orthogonal(Q) else _make_orthogonal(Q)
        minus = zeros_like(matrix)
        minus.diagonal(dim1=-2, dim2=-1).fill_(-1.0)
        return minus  # for which each of the maps is the unit matrix, up to signs


def orthogonal(
    module: M,
    name: str = "weight",
    orthogonal_map: str | None = None,
    *,
    use_trivialization: bool = True,
) -> M:
    """Has a matrix parameter, or a batch of them, be orthogonal: its rows or columns orthonormal.

    `orthogonal_map` is "matrix_exp", "cayley" or "householder"; None: the first for square and
    complex matrices, else the last. With `use_trivialization` the matrix can be assigned to.
    ValueError for an unknown map, less than two dimensions, or complex Householder maps.

    >>> import cugrad as torch
    >>> layer = torch.nn.utils.parametrizations.orthogonal(torch.nn.Linear(4, 4))
    >>> torch.allclose(layer.weight @ layer.weight.mT, torch.eye(4), atol=1e-5)
    True
    """
    weight = _weight_of(module, name)
    if weight.ndim < 2:
        raise ValueError(
            f"Expected a matrix or batch of matrices. Got a tensor of {weight.ndim} dimensions."
        )
    if orthogonal_map is None:
        square = weight.shape[-2] == weight.shape[-1]
        orthogonal_map = "matrix_exp" if square or weight.is_complex() else "householder"
    if orthogonal_map not in _OrthMaps.__members__:
        raise ValueError(
            'orthogonal_map has to be one of "matrix_exp", "cayley", "householder". '
            f"Got: {orthogonal_map}"
        )
    orth = _Orthogonal(weight, _OrthMaps[orthogonal_map], use_trivialization=use_trivialization)
    parametrize.register_parametrization(module, name, orth, unsafe=True)
    return module
