"""Arguments of methods, most of them in place: by position and by name, and wrong ones."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

import cugrad


def test_parameters_by_position_and_by_name(lib: Any) -> None:
    x = lib.tensor([0.2, 0.7])
    for given in (x.clone().logit_(0.3), x.clone().logit_(eps=0.3)):
        assert lib.allclose(given, lib.logit(x, eps=0.3))
    odd = lib.tensor([float("nan"), float("inf"), -float("inf")])
    assert odd.clone().nan_to_num_(1.0, 2.0, 3.0).tolist() == [1, 2, 3]
    assert odd.clone().nan_to_num_(0.5, neginf=3.0, posinf=2.0).tolist() == [0.5, 2, 3]
    assert lib.equal(x.clone().mul_(other=3), x * 3)
    assert lib.equal(x.clone().pow_(exponent=2), x**2)


def test_rounded_quotients(lib: Any) -> None:
    x = lib.tensor([-0.7, 0.7])
    assert x.clone().div_(0.3, rounding_mode="floor").tolist() == [-3, 2]
    assert x.clone().divide_(0.3, rounding_mode="trunc").tolist() == [-2, 2]
    assert lib.equal(x.clone().div_(other=0.3), x / 0.3)
    whole = lib.tensor([2**62 + 1, -7])
    assert lib.div(whole, 3, rounding_mode="trunc").tolist() == [1537228672809129301, -2]
    assert whole.clone().div_(3, rounding_mode="trunc").tolist() == [1537228672809129301, -2]
    wide = lib.div(lib.tensor([7], dtype=lib.int8), whole, rounding_mode="trunc")
    assert wide.dtype == lib.int64 and wide.tolist() == [0, -1]
    for mode in ("floor", "trunc"):
        with pytest.raises(RuntimeError, match="can't be cast"):
            lib.tensor([7]).div_(0.5, rounding_mode=mode)
        with pytest.raises(RuntimeError, match="can't be cast"):
            lib.tensor([True]).div_(7, rounding_mode=mode)


QUOTIENTS: dict[str, Any] = {
    "//": lambda a, b: a // b, "%": lambda a, b: a % b, "fmod": lambda a, b: a.fmod(b),
    "floor": lambda a, b: a.div(b, rounding_mode="floor"), "//=": lambda a, b: a.floor_divide_(b),
    "trunc": lambda a, b: a.div(b, rounding_mode="trunc"), "2 //": lambda a, b: 2 // (a * b),
}  # fmt: skip


@pytest.mark.parametrize("kind", ["uint8", "int32", "int64"])
@pytest.mark.parametrize("how", QUOTIENTS)
def test_integers_by_zero(lib: Any, how: str, kind: str) -> None:
    x = lib.arange(20, device="cpu").to(getattr(lib, kind))
    for zero in (0, x[:1], (x > 3).to(x.dtype)):
        with pytest.raises(RuntimeError, match="ZeroDivisionError"):
            QUOTIENTS[how](x.clone(), zero)
    assert QUOTIENTS[how](x[:0].clone(), 0).tolist() == []
    assert not QUOTIENTS[how](x.double(), 0).isfinite().any()


def test_bounds_that_are_tensors(lib: Any) -> None:
    x = lib.tensor([0.2, 0.5, 0.9], requires_grad=True)
    low, high = lib.full((3,), 0.4), lib.full((3,), 0.6)
    y = (x * 1).clamp_(low, high)
    assert lib.equal(y, lib.clamp(x, low, high))
    y.sum().backward()
    assert x.grad.tolist() == [0, 1, 0]
    assert lib.equal(x.detach().clone().clip_(max=high), lib.clamp(x, max=high))
    with pytest.raises(RuntimeError, match="At least one of 'min' or 'max' must not be None"):
        x.detach().clamp_()


def test_sums_with_an_outer_product(lib: Any) -> None:
    x, a, b = lib.ones(2, 2), lib.tensor([1.0, 2.0]), lib.tensor([3.0, 4.0])
    assert x.addr_(a, b, beta=2, alpha=0.5) is x
    assert x.tolist() == [[3.5, 4], [5, 6]]


def test_arguments_that_do_not_fit(lib: Any) -> None:
    x = lib.ones(2)
    for call in (
        lambda: x.sin_(foo=1), lambda: x.sin_(3), lambda: x.mul_(), lambda: x.mul_(2, 3),
        lambda: x.mul_(2, other=3), lambda: x.exp_(eps=2),
    ):  # fmt: skip
        with pytest.raises(TypeError, match="argument"):
            call()
    assert lib.equal(x, lib.ones(2))


def test_tensors_like_another_by_name(lib: Any) -> None:
    x = lib.ones(1, dtype=lib.float64)
    for made in (
        x.new_full((2,), 3), x.new_full((2,), fill_value=3), x.new_full(size=(2,), fill_value=3),
        x.new_ones(size=(2,)) * 3, x.new_zeros(2) + 3,
    ):  # fmt: skip
        assert made.tolist() == [3, 3] and made.dtype == lib.float64
    with pytest.raises(TypeError):
        x.new_ones(2, fill_value=3)
    with pytest.raises(TypeError):
        x.new_full((2,))


OLD_ORDER = """
x.add(2, y)
x.clone().add_(-0.5, y)
torch.add(x, 2, y)
x.sub(2, y)
x.clone().sub_(2, y)
torch.sub(x, 2, y)
x.addcmul(2, y, y)
x.clone().addcdiv_(2, y, y)
torch.addcdiv(x, 2, y, y)
x.addmm(2, y, y)
x.clone().addmm_(2, 3, y, y)
torch.addmm(2, x, y, y)
torch.addmm(2, x, 3, y, y)
x[0].addmv(2, 3, y, y[0])
torch.addr(2, x, 3, y[0], y[0])
x[None].baddbmm(2, 3, y[None], y[None])
x.addbmm(2, y[None], y[None])
""".strip().splitlines()


@pytest.mark.parametrize("call", OLD_ORDER)
def test_numbers_before_tensors(call: str) -> None:
    """As programs had it before keywords; PyTorch warns once in a process."""
    torch = pytest.importorskip("torch")
    results = []
    for lib in (cugrad, torch):
        x, y = lib.tensor([[1.0, 2.0], [3.0, 4.0]]), lib.tensor([[0.5, -1.0], [2.0, 3.0]])
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            results.append(eval(call, {"torch": lib, "x": x, "y": y}).tolist())
        if lib is cugrad:
            assert "deprecated" in str(caught[0].message) and caught[0].filename == "<string>"
    assert results[0] == results[1]
    with pytest.raises(TypeError):
        cugrad.ones(2).add(1, 2, 3)


def test_numbers_that_are_tensors(lib: Any) -> None:
    x = lib.arange(6.0).reshape(2, 3)
    assert x.norm(lib.tensor(1)).item() == 15
    assert [piece.shape for piece in x.split(lib.tensor(1))] == [(1, 3), (1, 3)]
    assert lib.histogram(x.cpu())[0].shape == (100,)
    for refused in ("round", "relu"):
        with pytest.raises(RuntimeError, match="[Bb]ool"):
            getattr(lib, refused)(x > 2)


def test_rows_without_a_formula_meet_in_one_dtype(lib: Any) -> None:
    single, double = lib.tensor([1.0, 2.0]), lib.tensor([2.0, 1.5], dtype=lib.float64)
    for name in ("gammainc", "gammaincc", "zeta"):
        function = getattr(lib.special, name)
        for first in (single, lib.tensor([1, 2]), double):
            assert function(first, double).dtype is lib.float64
        assert function(single, double[0]).dtype is lib.float32


# of x (2, 3), w (3, 4), c (2, 3, 4) and a mask m
OVERLOADS = """
torch.einsum(x, [0, 1], w, [1, 2], [0, 2])
torch.einsum(x, [0, 1], w, [1, 2])
torch.einsum(x, [26, 0])
torch.einsum(c, [..., 0], w, [1, 0], [..., 1])
torch.einsum(x, (0, 1), (1,))
torch.einsum(x, [0, 52])
torch.where(x.sum())[0]
torch.where(x.sum() * 0)[0]
torch.spmm(x, w)
torch.frobenius_norm(x, 0)
torch.conj_physical(m)
m.clone().conj_physical_()
""".strip().splitlines()


@pytest.mark.filterwarnings("ignore::UserWarning")  # PyTorch has deprecated one of them
@pytest.mark.parametrize("call", OVERLOADS)
def test_arguments_of_other_kinds(call: str) -> None:
    torch = pytest.importorskip("torch")
    results = []
    for lib in (cugrad, torch):
        x = lib.arange(6.0).reshape(2, 3)
        own = {"x": x, "w": lib.arange(12.0).reshape(3, 4), "m": x > 2,
               "c": lib.arange(24.0).reshape(2, 3, 4)}  # fmt: skip
        try:
            found = eval(call, {"torch": lib, **own})
            results.append((str(found.dtype), found.tolist()))
        except ValueError as error:
            results.append((ValueError, str(error)))
    assert results[0] == results[1]


TO_A_DTYPE: list[Any] = [
    lambda x, to: x.softmax(0, to), lambda x, to: x.log_softmax(0, dtype=to),
    lambda x, to: x.mean(0, dtype=to), lambda x, to: x.sum(dtype=to),
    lambda x, to: x.cumprod(0, dtype=to), lambda x, to: x.norm(dtype=to),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(TO_A_DTYPE)))
def test_only_a_dtype_is_one(lib: Any, number: int) -> None:
    call, x = TO_A_DTYPE[number], lib.ones(2, 3)
    assert call(x, float).dtype is lib.float64
    for wrong in (x, "float64", 3, "cpu"):
        with pytest.raises(TypeError):
            call(x, wrong)
