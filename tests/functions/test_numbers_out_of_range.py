"""A number that a dtype cannot hold is refused where PyTorch refuses it: it is never wrapped."""

from __future__ import annotations

from typing import Any

import pytest

import cugrad

CALLS = """
torch.add(x, x, alpha=v)
torch.sub(x, x, alpha=v)
torch.rsub(x, x, alpha=v)
x.clone().add_(x, alpha=v)
x.clone().sub_(x, alpha=v)
torch.pow(x, v)
x ** v
x.clone().pow_(v)
torch.clamp(x, v)
torch.clamp(x, None, v)
torch.clamp_min(x, v)
torch.clamp_max(x, v)
x.clone().clamp_(0, v)
torch.where(x > 1, x, v)
torch.where(x > 1, v, x)
x.masked_fill(x > 1, v)
x.index_fill(0, torch.tensor([0]), v)
x.index_add(0, torch.tensor([0]), x[:1], alpha=v)
torch.addcmul(x, x, x, value=v)
x.clone().addcmul_(x, x, value=v)
torch.addmm(m, m, m, alpha=v)
torch.addmm(m, m, m, beta=v)
torch.addmv(x, m, x, alpha=v)
torch.addr(m, x, x, beta=v)
torch.baddbmm(m[None], m[None], m[None], alpha=v)
torch.addbmm(m, m[None], m[None], beta=v)
torch.nn.functional.threshold(x, 1, v)
torch.nn.functional.threshold(x, v, 1)
torch.nn.functional.hardtanh(x, 0, v)
torch.full_like(x, v)
x.clone().fill_(v)
"""
# The first beyond; of what is subtracted the second, since its negative is what has to fit.
OUTSIDE = [("int8", 128), ("uint8", 256), ("int32", 2**31), ("float32", 1e300)]
TAKEN = {(call, "float32") for call in ("torch.pow(x, v)", "x ** v", "x.clone().pow_(v)")}


def outcome(lib: Any, call: str, kind: str, number: Any) -> Any:
    """The values, or the type and the text of the error."""
    x = lib.tensor([1, 2, 3], dtype=getattr(lib, kind))
    try:
        result = eval(call, {"torch": lib, "x": x, "m": x.expand(3, 3), "v": number})
    except (RuntimeError, OverflowError) as error:
        return type(error).__name__, str(error)
    return str(result.dtype), result.tolist()


@pytest.mark.parametrize(("kind", "number"), OUTSIDE)
@pytest.mark.parametrize("call", CALLS.strip().splitlines())
def test_it_is_refused(call: str, kind: str, number: Any) -> None:
    torch = pytest.importorskip("torch")
    number += "sub" in call
    want = outcome(torch, call, kind, number)
    assert (want[0] != "RuntimeError") == ((call, kind) in TAKEN), "no case of this test"
    got = outcome(cugrad, call, kind, number)
    assert got == (want if want[0] == "RuntimeError" else ("RuntimeError", got[1]))


@pytest.mark.parametrize("call", [call for call in CALLS.strip().splitlines() if "sub" in call])
@pytest.mark.parametrize("number", [128, -128, 127, -127])
def test_of_what_is_subtracted_the_negative_has_to_fit(call: str, number: int) -> None:
    torch = pytest.importorskip("torch")
    want, got = outcome(torch, call, "int8", number), outcome(cugrad, call, "int8", number)
    assert got == want or got[0] == want[0] == "RuntimeError"


@pytest.mark.parametrize("call", ["torch.where(x > 1, x, v)", "torch.lerp(x, x + 1, v)"])
def test_beyond_half_precision_it_is_infinite(call: str) -> None:
    torch = pytest.importorskip("torch")
    assert outcome(cugrad, call, "float16", 1e6) == outcome(torch, call, "float16", 1e6)


KINDS = """bool uint8 int8 int32 int64 float16 bfloat16 float32 float64 complex64 complex128"""
NUMBERS = [0, -1, 2.5, True, float("inf"), float("nan"), -129, 2**40, 1 + 2j, 1 + 0j, 1e300]
PARTS: dict[str, Any] = {
    "whole": lambda x: x,
    "turned": lambda x: x.t(),
    "part": lambda x: x[1:, ::2],
}


@pytest.mark.parametrize("device", ["cpu", "simulated"])
@pytest.mark.parametrize("number", NUMBERS, ids=str)
@pytest.mark.parametrize("kind", KINDS.split())
def test_what_a_number_is_when_it_is_put_somewhere(kind: str, number: Any, device: str) -> None:
    torch = pytest.importorskip("torch")

    def outcomes(lib: Any, **where: Any) -> list[str]:
        found = []
        for part in PARTS.values():
            for put in (
                lambda x: x.fill_(number), lambda x: x.masked_fill_(x == x, number),
                lambda x: x.__setitem__(..., number), lambda x: x.zero_(),
            ):  # fmt: skip
                whole = lib.ones((3, 3), dtype=getattr(lib, kind), **where)
                try:
                    put(part(whole))
                except (RuntimeError, OverflowError) as error:
                    found.append(type(error).__name__)
                found.append(str(whole.cpu().tolist()))
        return found

    assert outcomes(cugrad, device=device) == outcomes(torch)


@pytest.mark.parametrize("call", ["x + v", "v - x", "x * v", "x & v", "x == v"])
def test_no_number_of_more_than_64_bits_counts(call: str) -> None:
    torch = pytest.importorskip("torch")
    want = outcome(torch, call, "int64", 2**70)
    got = outcome(cugrad, call, "int64", 2**70)
    assert got[0] == want[0] == "OverflowError"


@pytest.mark.parametrize("shape", [(), (2, 3)])
@pytest.mark.parametrize("dim", [9, -3, 0])
@pytest.mark.parametrize("method", ["size", "stride"])
def test_a_dim_that_is_not_there(method: str, dim: int, shape: tuple[int, ...]) -> None:
    torch = pytest.importorskip("torch")

    def said(lib: Any) -> Any:
        try:
            return getattr(lib.ones(shape), method)(dim)
        except IndexError as error:
            return str(error)

    assert said(cugrad) == said(torch)


OF_WHOLE_NUMBERS = """
torch.addcdiv(x, x, x)
torch.addcdiv(x.float(), x, x)
torch.addcdiv(x, x, x.float())
x.clone().addcdiv_(x, x)
torch.addcmul(x, x, x)
torch.addcmul(x, x, x, value=2.5)
torch.addcmul(x, x, x, value=-1)
torch.clamp(x, max=-1)
torch.clamp(x, min=-1)
torch.clamp(x, -1, 2)
x.clone().clamp_(max=-1)
x.clone().clamp_(max=1.5)
torch.index_add(x, 0, torch.tensor([0]), x[1:2], alpha=2.5)
torch.index_add(x, 0, torch.tensor([0]), x[1:2], alpha=-1)
torch.nn.functional.threshold(x, -1, 2)
torch.nn.functional.threshold(x, 1.5, 2.5)
torch.nn.functional.hardshrink(x)
torch.nn.functional.softshrink(x)
torch.nn.functional.relu(x)
torch.nn.functional.hardtanh(x, 0, 2)
"""


@pytest.mark.parametrize("kind", ["bool", "uint8", "int8", "int64"])
@pytest.mark.parametrize("call", OF_WHOLE_NUMBERS.strip().splitlines())
def test_numbers_beside_whole_numbers(call: str, kind: str) -> None:
    torch = pytest.importorskip("torch")
    want = outcome(torch, call, kind, None)
    got = outcome(cugrad, call, kind, None)
    refused = [got[0].endswith("Error"), want[0].endswith("Error")]
    assert refused == [True, True] or got == want


@pytest.mark.parametrize(
    "data",
    [
        [0, 2**64 - 1024],
        [[1], [2**63 + 1]],
        [2**64 - 1, 2**63],
        [True, 2**63],
        [0, 2**64],
        [-1, 2**63],
        [2.0**64],
        [float("nan")],
    ],
)
@pytest.mark.parametrize("kind", ["uint64", "int64", "uint8", "float64", "complex128"])
def test_ints_of_64_bits_beside_smaller_ones(data: Any, kind: str) -> None:
    """NumPy reads them as float64, which rounds."""
    torch = pytest.importorskip("torch")

    def read(lib: Any) -> Any:
        try:
            return lib.tensor(data, dtype=getattr(lib, kind)).tolist()
        except (RuntimeError, OverflowError, ValueError, TypeError):
            return "refused"

    assert repr(read(cugrad)) == repr(read(torch))
