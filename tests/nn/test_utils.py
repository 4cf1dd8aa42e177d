"""nn.utils: gradients clipped, parameters as a vector, as in PyTorch."""

from __future__ import annotations

import inspect
import math
from typing import Any

import numpy as np
import pytest

import cugrad

SHAPES = [(3, 4), (5,), (1,), ()]


def parameters_of(lib: Any, dtype: str = "float32", scale: float = 1.0) -> list[Any]:
    rng = np.random.default_rng(0)
    made = []
    for shape in SHAPES:
        p = lib.tensor(rng.standard_normal(shape), dtype=getattr(lib, dtype)).requires_grad_()
        p.grad = lib.tensor(scale * rng.standard_normal(shape), dtype=getattr(lib, dtype))
        made.append(p)
    made.append(lib.tensor([1.0], requires_grad=True))  # without a gradient
    return made


def grads(parameters: list[Any]) -> list[Any]:
    return [p.grad.double().tolist() for p in parameters if p.grad is not None]


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("norm_type", [2.0, 1.0, 3, float("inf"), "inf"])
@pytest.mark.parametrize("max_norm", [0.5, 1e4])
def test_norms_are_clipped(dtype: str, norm_type: Any, max_norm: float) -> None:
    torch = pytest.importorskip("torch")
    found = []
    for lib in (cugrad, torch):
        parameters = parameters_of(lib, dtype)
        norm = lib.nn.utils.clip_grad_norm_(iter(parameters), max_norm, norm_type)
        assert norm.dtype == getattr(lib, dtype) and not norm.requires_grad
        other = parameters_of(lib, dtype)
        given = [p.grad for p in other if p.grad is not None]
        total = lib.nn.utils.get_total_norm(given, norm_type)
        lib.nn.utils.clip_grads_with_norm_(other, max_norm, total)
        assert grads(other) == grads(parameters)
        found.append((norm.item(), [np.array(g) for g in grads(parameters)]))
    rtol = 2e-3 if dtype == "float16" else 1e-6
    np.testing.assert_allclose(found[0][0], found[1][0], rtol=rtol)
    for a, b in zip(found[0][1], found[1][1], strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-7)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_is_scaled_by_all_digits_of_the_factor(dtype: str) -> None:
    torch = pytest.importorskip("torch")
    found = []
    for lib in (cugrad, torch):
        parameters = parameters_of(lib, dtype, 3.0)
        wide = lib.zeros(3, requires_grad=True)  # two dtypes: not all in one kernel
        wide.grad = lib.ones(3)
        lib.nn.utils.clip_grads_with_norm_([*parameters, wide], 0.3, lib.tensor(7.123456))
        found.append(grads([*parameters, wide]))
    assert found[0][:-1] == found[1][:-1]


def test_values_are_clipped(lib: Any) -> None:
    parameters = parameters_of(lib)
    lib.nn.utils.clip_grad_value_(parameters, 0.25)
    assert all(np.abs(np.array(g)).max(initial=0) <= 0.25 for g in grads(parameters))
    lib.nn.utils.clip_grad_value_(parameters[0], 0.125)
    assert np.abs(np.array(grads(parameters)[0])).max() <= 0.125


def test_what_is_not_finite(lib: Any) -> None:
    parameters = parameters_of(lib)
    parameters[1].grad[0] = float("nan")
    with pytest.raises(RuntimeError, match="of order 2.0 .* is non-finite, so it cannot be"):
        lib.nn.utils.clip_grad_norm_(parameters, 1.0, error_if_nonfinite=True)
    assert lib.nn.utils.clip_grad_norm_(parameters, 1.0).isnan()
    with pytest.warns(UserWarning, match="`parameters` is an empty generator"):
        assert lib.nn.utils.clip_grad_norm_((p for p in []), 1.0) == 0


def test_parameters_are_a_vector(lib: Any) -> None:
    parameters = parameters_of(lib)
    vector = lib.nn.utils.parameters_to_vector(parameters)
    assert vector.shape == (20,) and vector.requires_grad
    lib.nn.utils.vector_to_parameters(vector.detach() * 2, parameters)
    again = lib.nn.utils.parameters_to_vector(parameters)
    assert again.tolist() == (2 * vector).tolist()
    assert parameters[0].is_leaf and parameters[0].requires_grad
    with pytest.raises(TypeError, match="expected torch.Tensor, but got"):
        lib.nn.utils.vector_to_parameters([1.0], parameters)


def test_what_is_no_parameter() -> None:
    with pytest.raises(TypeError, match="clip_grad_norm_: got str among the parameters, want Ten"):
        cugrad.nn.utils.clip_grad_norm_(dict(cugrad.nn.Linear(1, 1).named_parameters()), 1.0)


def test_empty_gradients_count_for_nothing() -> None:
    w, v = (cugrad.ones(n, requires_grad=True) for n in (0, 2))
    w.grad, v.grad = cugrad.ones(0), cugrad.tensor([3.0, 4.0])
    for norm_type, norm in ((2, 5.0), (float("inf"), 4.0)):
        assert cugrad.nn.utils.clip_grad_norm_([w, v], 10.0, norm_type) == norm
    assert cugrad.nn.utils.clip_grad_norm_([w], 1.0) == 0


def test_devices_mix_and_nothing_waits() -> None:
    w, v = (cugrad.ones(3, device=d, requires_grad=True) for d in ("simulated", "cpu"))
    w.grad, v.grad = cugrad.full((3,), 3.0, device="simulated"), cugrad.full((3,), 4.0)
    norm = cugrad.nn.utils.clip_grad_norm_([w, v], 1.0)
    assert norm.device.type == "simulated"
    assert norm.item() == pytest.approx(75**0.5)
    assert v.grad.tolist() == pytest.approx([4 / 75**0.5] * 3)


def test_clipping_takes_pytorch_s_arguments() -> None:
    theirs = pytest.importorskip("torch", reason="compares with PyTorch, which is not installed")
    names = ("clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_", "get_total_norm")
    for name in names:
        got, want = (
            inspect.signature(getattr(lib.nn.utils, name)).parameters for lib in (cugrad, theirs)
        )
        assert [(p.name, p.default) for p in got.values()] == [
            (p.name, p.default) for p in want.values()
        ]
    w = cugrad.zeros(2, requires_grad=True)
    w.grad = cugrad.tensor([3.0, 4.0])
    with pytest.warns(FutureWarning, match="deprecated in favor of"):
        assert cugrad.nn.utils.clip_grad_norm([w], 1.0, foreach=True).item() == 5.0


@pytest.mark.parametrize("norm_type", [2.0, 1.0, float("inf"), -1.0, 0.0])
@pytest.mark.parametrize("shapes", [[(0,)], [(0,), (2,)], [(2,), (3, 0)]])
def test_gradients_without_elements(norm_type: float, shapes: list[Any]) -> None:
    """The norm has the dtype of all. One that has no norm itself, of order inf, does not count:
    PyTorch raises there.
    """

    def said(lib: Any) -> Any:
        of = [lib.float64, lib.float32]
        given = [lib.ones(shape, dtype=of[i]) for i, shape in enumerate(shapes)]
        total = lib.nn.utils.get_total_norm(given, norm_type)
        return total.item(), str(total.dtype)

    torch = pytest.importorskip("torch")
    if norm_type in (2.0, 1.0, 0.0):
        assert said(cugrad) == said(torch)
    else:
        with pytest.raises(RuntimeError):
            said(torch)
        filled = math.prod(shapes[-1]) + math.prod(shapes[0])
        value = {float("inf"): 1.0, -1.0: 1 / max(filled, 1)}[norm_type] * bool(filled)
        assert said(cugrad) == (value, "torch.float64")


def test_a_vector_of_parameters_of_a_class_is_of_that(lib: Any) -> None:
    """As a sum of theirs is."""

    class Kept(lib.Tensor):  # type: ignore[misc, name-defined]
        pass

    x = lib.ones(2, 3).as_subclass(Kept)
    assert type(lib.nn.utils.parameters_to_vector([x, x + 1])) is Kept
