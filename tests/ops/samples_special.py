"""Samples of the gamma, error and Bessel functions and of the orthogonal polynomials."""

import scipy.integrate
import scipy.special

from cugrad.ops.special_functions import POLYNOMIALS
from tests.ops import samples
from tests.ops.sampling import exactly, positive, sample, unit


def _scipys(name):
    return lambda np, *inputs: getattr(scipy.special, name)(*inputs)


def _torchs(name):
    return lambda torch, *inputs: getattr(torch.special, name)(*inputs)


def _polygamma(np, x, n):
    return scipy.special.polygamma(n, x)


_ONE = {
    "lgamma": ("gammaln", "gammaln", positive),
    "digamma": ("digamma", "digamma", positive),
    "erfinv": ("erfinv", "erfinv", unit),
    "i0": ("i0", "i0", positive),
    "special_ndtri": ("ndtri", "ndtri", lambda s: positive(s, 0.1, 0.9)),
    "special_modified_bessel_i0": ("i0", "modified_bessel_i0", positive),
    "special_modified_bessel_i1": ("i1", "modified_bessel_i1", positive),
    "special_modified_bessel_k0": ("k0", "modified_bessel_k0", positive),
    "special_modified_bessel_k1": ("k1", "modified_bessel_k1", positive),
    "special_scaled_modified_bessel_k0": ("k0e", "scaled_modified_bessel_k0", positive),
    "special_scaled_modified_bessel_k1": ("k1e", "scaled_modified_bessel_k1", positive),
    **{f"special_{n}": (n, n, positive) for n in ("erfcx", "log_ndtr", "i0e", "i1", "i1e")},
    **{f"special_bessel_{n}": (n, f"bessel_{n}", positive) for n in ("j0", "j1", "y0", "y1")},
}
for _row, (_scipy, _torch, _input) in _ONE.items():
    sample(
        _row,
        _input((3, 4)),
        reference=_scipys(_scipy),
        torch=_torchs(_torch),
        tolerance=100 if _row == "digamma" else 1,
    )  # PyTorch's trigamma has nine digits
sample("special_airy_ai", (3, 4), reference=lambda np, x: scipy.special.airy(x)[0],
       torch=_torchs("airy_ai"))  # fmt: skip
sample("special_spherical_bessel_j0", positive((3, 4)), reference=lambda np, x: np.sin(x) / x,
       torch=_torchs("spherical_bessel_j0"))  # fmt: skip
for _n in (0, 1, 2, 3):
    sample("polygamma", positive((3, 4)), n=_n, reference=_polygamma,
           tolerance=100 if _n == 1 else 1,
           torch=lambda torch, x, n: torch.polygamma(n, x))  # fmt: skip
sample("special_zeta", exactly([2.0, 3.5, 6.0]), positive((3,)), integer=False,
       reference=_scipys("zeta"), torch=_torchs("zeta"))  # fmt: skip
for _row, _function in (("igamma", "gammainc"), ("igammac", "gammaincc")):
    sample(_row, exactly([0.5, 2.0, 4.0]), positive((3,)), integer=False,
           reference=_scipys(_function), torch=_torchs(_function))  # fmt: skip
sample("gamma_quantile", exactly([0.5, 2.0, 4.0]), exactly([0.3, 0.6, 0.9]), integer=False,
       reference=_scipys("gammaincinv"))  # fmt: skip


def _gamma_cdf_slope(np, a, x, order):
    """The integral of the derivative of the density, which decays on both sides, in small steps."""
    t = x * np.exp(np.linspace(-120, 0, 60_001).reshape(-1, *[1] * np.ndim(x)))
    term = np.log(t) - scipy.special.digamma(a)
    bell = {1: term, 2: term**2 - scipy.special.polygamma(1, a)}[order]
    integrand = t * bell * np.exp((a - 1) * np.log(t / x) - (t - x))
    return scipy.integrate.simpson(integrand, dx=120 / 60_000, axis=0)


for _n in (1, 2):
    sample("gamma_cdf_slope", exactly([0.5, 2.0, 4.0]), exactly([0.3, 3.0, 2.5]), order=_n,
           integer=False, reference=_gamma_cdf_slope, tolerance=10)  # fmt: skip
_INVERSE = "the gamma distribution's: tests/distributions compares draws and their gradients"
samples.NO_TORCH |= dict.fromkeys(("gamma_quantile", "gamma_cdf_slope"), _INVERSE)

_SCIPY = {
    "chebyshev_polynomial_t": "chebyt", "chebyshev_polynomial_u": "chebyu",
    "hermite_polynomial_h": "hermite", "hermite_polynomial_he": "hermitenorm",
    "laguerre_polynomial_l": "laguerre", "legendre_polynomial_p": "legendre",
}  # fmt: skip


def _polynomial(name, shifted):
    def reference(np, x, n):
        x = 2 * x - 1 if shifted else x
        angle, degrees = np.arccos(x), np.broadcast_to(n, np.broadcast(x, n).shape)
        if name.endswith("_v"):
            return np.cos((n + 0.5) * angle) / np.cos(angle / 2)
        if name.endswith("_w"):
            return np.sin((n + 0.5) * angle) / np.sin(angle / 2)
        evaluate = np.vectorize(getattr(scipy.special, "eval_" + _SCIPY[name]), otypes=[float])
        return evaluate(degrees.astype(np.int64), x)

    return reference


for _name in POLYNOMIALS:
    for _shift in ("", "shifted_") if _name.startswith("chebyshev") else ("",):
        sample(f"special_{_shift}{_name}", positive((2, 5), 0.1, 0.9), exactly([0.0, 1, 2, 3, 5]),
               integer=False, reference=_polynomial(_name, bool(_shift)),
               torch=_torchs(_shift + _name))  # fmt: skip

_ROWS = {*_ONE, "polygamma", "igamma", "igammac", "gamma_quantile", "gamma_cdf_slope"}
samples.REAL_ONLY |= _ROWS | {r for r in samples.TABLE if r.startswith("special_")}
