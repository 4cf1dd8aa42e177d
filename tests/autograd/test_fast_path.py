"""The compiled functions of rows are taken in the common case, and agree that they are."""

from __future__ import annotations

import linecache
from typing import Any

import numpy as np
import pytest

import cugrad
from cugrad.autograd.__main__ import main as show_code
from cugrad.autograd.mode import pop_hooks, push_hooks
from cugrad.autograd.recording.fast import compile_function, is_fast
from cugrad.autograd.recording.texts.nodes import takes_number
from cugrad.ops.table import TABLE, Op
from tests.ops.row_cases import HOST, differentiable, over_lines
from tests.ops.sampling import Sample
from tests.ops.test_rows_recorded import Recording

# Rows whose first sample is no common case. Row -> reason.
NOT_COMMON = {
    **dict.fromkeys(("complex", "polar"), "real numbers become complex"),
    "fft_c2c": "the sample's real numbers become complex",
    "fft_r2c": "real numbers become complex",
    "linalg_eig": "real matrices have complex eigenvalues",
    "linalg_eigvals": "real matrices have complex eigenvalues",
    "to_device": "the copy goes through another backend",
    "to_dtype": "the sample casts to complex",
    "view_as_complex": "real numbers become complex",
    "view_as_real": "complex numbers become real",
}


def without_general_path(op: Any) -> Any:
    """The compiled function of a row, which raises where it would fall through."""

    def refuse(*args: Any) -> Any:
        raise AssertionError(f"{op.name} fell through to record.apply")

    function = compile_function(op)
    function.__globals__["ready"]()
    function.__globals__["apply"] = refuse
    return function


def has_common_case(op: Op) -> bool:
    return differentiable(op) and is_fast(op) and op.name not in NOT_COMMON


@over_lines(has_common_case, first=True)
def test_the_fast_path_is_taken(line: Sample) -> None:
    op = TABLE[line.row]
    recording = Recording(line, HOST, way=without_general_path(op))
    assert any(out.requires_grad for out in recording.outputs)
    for out in recording.outputs:
        assert out.grad_fn is None or out.grad_fn.name() == op.name_of_node(out.grad_fn.params)


@over_lines(has_common_case, first=True)
def test_the_fast_path_is_taken_under_hooks(line: Sample) -> None:
    packed = []
    pair = (lambda t: packed.append(t) or t), (lambda t: t)
    push_hooks(pair)
    try:
        recording = Recording(line, HOST, way=without_general_path(TABLE[line.row]))
    finally:
        pop_hooks(pair)
    node = next(out.grad_fn for out in recording.outputs if out.requires_grad)
    arrays = [name for name in node.plan.saves if getattr(node, f"_saved_{name}") is not None]
    assert len(packed) == len(arrays)


def test_an_error_of_a_pack_hook_is_raised_once() -> None:
    calls = []

    def pack(t: Any) -> Any:
        calls.append(t)
        raise KeyError("mine")

    x = cugrad.tensor([1.0, 2.0], requires_grad=True, device="cpu")
    with (
        cugrad.autograd.graph.saved_tensors_hooks(pack, lambda t: t),
        pytest.raises(KeyError, match="mine"),
    ):
        x.exp()
    assert len(calls) == 1


def test_one_function_object_before_and_after_it_is_compiled() -> None:
    function = compile_function(TABLE["sinh"], public=True)
    code = function.__code__
    x = cugrad.tensor([0.0], device="cpu")
    assert function(input=x).item() == 0.0
    assert function.__code__ is not code
    assert function(x).item() == 0.0


def test_the_code_of_a_row_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """What is printed is what runs: the text that a debugger finds for the function, but for the
    branch that it has where a backend keeps launches.
    """
    function = compile_function(TABLE["sinh"], public=True)
    function(cugrad.tensor([0.0], device="cpu"))
    runs = "".join(linecache.getlines(function.__code__.co_filename))
    assert show_code(["sinh"]) == 0
    shown = capsys.readouterr().out
    assert "launches[" in runs or shown.startswith(runs.rstrip())
    assert "def vjp(node, g):" in shown


@pytest.mark.parametrize("names", [[], ["no_such_row"], ["mul", "no_such_row"]])
def test_a_wrong_name_is_said_in_one_line(
    names: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert show_code(names) == 2
    out, err = capsys.readouterr()
    assert not out and len(err.splitlines()) == 1


TAKE_NUMBERS = [
    op for op in TABLE.values() if is_fast(op) and len(op.inputs) == 2 and takes_number(op, 1)
]


@pytest.mark.parametrize("op", TAKE_NUMBERS, ids=lambda op: op.name)
def test_half_precision_beside_a_number_is_what_it_is_in_the_general_path(op: Op) -> None:
    """A number may not be rounded to the dtype in one of the two."""
    function, seen = compile_function(op), []
    for dtype in (cugrad.float16, cugrad.bfloat16):
        for general in (False, True):
            x = cugrad.linspace(0.2, 1.7, 7).to(dtype).requires_grad_()
            try:
                with cugrad.autograd.set_detect_anomaly(general, check_nan=False):
                    y = function(x, 0.7)
            except Exception as error:
                seen.append((type(error), None))
                continue
            grads = cugrad.autograd.grad(y, x, y.detach()) if y.requires_grad else (x.detach(),)
            seen.append((y.dtype, [z.detach().double().tolist() for z in (y, *grads)]))
    assert repr(seen[::2]) == repr(seen[1::2])


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int64", "complex64"])
@pytest.mark.parametrize("shapes", [((3, 4), (3, 4)), ((4,), (3, 4)), ((3, 4), (1, 4)), ((), (4,))])
@pytest.mark.parametrize("number", [0.7, 2, -1e30, float("nan")])
def test_a_choice_between_a_tensor_and_a_number_is_what_it_is_in_the_general_path(
    dtype: str, shapes: tuple[tuple[int, ...], ...], number: float
) -> None:
    seen = []
    for general in (False, True):
        condition, x = (cugrad.linspace(0.2, 1.7, 12)[: int(np.prod(s))].reshape(s) for s in shapes)
        condition = condition < 1.0
        x = x.to(getattr(cugrad, dtype)).requires_grad_(dtype != "int64")
        try:
            with cugrad.autograd.set_detect_anomaly(general, check_nan=False):
                y = cugrad.where(condition, x, number)
        except RuntimeError as error:
            seen.append(str(error))
            continue
        grads = cugrad.autograd.grad(y, x, y.detach()) if y.requires_grad else ()
        seen.append(repr([(z.dtype, z.shape, z.detach().tolist()) for z in (y, *grads)]))
    assert seen[0] == seen[1]


def test_operators_are_the_functions_of_rows() -> None:
    """Nothing stands around them: a wrapper costs a small op a fifth of its time."""
    for name in ("__add__", "__sub__", "__mul__", "__truediv__", "__neg__", "__pow__"):
        operator = vars(cugrad.Tensor)[name]
        assert not hasattr(operator, "__wrapped__"), name
