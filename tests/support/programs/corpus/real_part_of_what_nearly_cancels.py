"""The real part is small beside the imaginary one: rounded as the library's functions round."""

import cugrad as t  # or torch


def total(x):
    return ((x * x.conj()).real + x.real * 0.3 + x.imag * 0.2).sum()


def derived(g):
    with t.enable_grad():
        y = g.detach().requires_grad_()
        z = y.sin()
        return t.autograd.grad((z * z.conj()).real.sum(), y)[0]


v1 = t.tensor([[1.066, -0.424], [1.769, -1.195]], dtype=t.float64, requires_grad=True)
v2 = v1 * 2
v3 = v2 * 2
v2[0] = 2
v4 = t.complex(v2, v3)
v4.register_hook(derived)
v2.retain_grad()
v0 = total(v4)
v0.backward()
