"""What PyTorch refuses to compute of complex numbers is refused, whichever operand is complex; and
what it computes is computed."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch, the oracle, is not installed")

from tests.ops import opinfo  # noqa: E402
from tests.ops.test_opinfo import PRESENT  # noqa: E402

pytestmark = pytest.mark.host_only

# Operators that take operands of two dtypes, where PyTorch's want one, or look at one alone.
MIXED = {
    "cross", "linalg.cross", "linalg.pinv", "linalg.solve_triangular", "nn.functional.bilinear",
    "nn.functional.conv3d", "nn.functional.instance_norm", "nn.functional.rms_norm",
    "nn.functional.soft_margin_loss",
}  # fmt: skip
# Those that ask which number is less, and those of probabilities: PyTorch looks at real parts.
ORDERED = {"bernoulli", "cummax", "cummin", "searchsorted"}


def with_complex(value: Any, places: Iterator[bool]) -> Any:
    """The arguments, with those of their real tensors complex of which `places` says so."""
    if isinstance(value, torch.Tensor):
        return value.to(torch.complex128) if value.is_floating_point() and next(places) else value
    if type(value) in (list, tuple):
        return type(value)(with_complex(x, places) for x in value)
    if type(value) is dict:
        return {name: with_complex(x, places) for name, x in value.items()}
    return value


@pytest.mark.parametrize("name", [name for name in PRESENT if name not in MIXED])
def test_what_pytorch_refuses_is_refused(name: str) -> None:
    for op in opinfo.database()[name]:
        try:
            samples = opinfo.samples_of(op, torch.float64, False, 1)
        except Exception:  # it has none of this dtype
            continue
        for sample in samples:
            given = [[sample.input, *sample.args], sample.kwargs]
            if any(not x.numel() for x in opinfo.tensors(given)):
                continue  # PyTorch does not look at dtypes there: docs/torch-compatibility.md
            reals = sum(x.is_floating_point() for x in opinfo.tensors(given))
            for number in range(-1, reals) if reals else ():
                places = iter([number in (-1, i) for i in range(reals)])
                args, options = with_complex(given, places)
                want = refuses(op.op, args, options)
                try:
                    mine = opinfo.ours(args), opinfo.ours(options)
                except NotImplementedError:  # a module is none of ours
                    continue
                got = refuses(opinfo.function_of(op), *mine)
                assert want == got or got and name in ORDERED, f"operand {number}: {want}, {got}"


def refuses(function: Any, args: Any, options: Any) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            function(*args, **options)
        except (RuntimeError, TypeError, ValueError, IndexError):
            return True
    return False
