"""Every row beside PyTorch, where it is installed: value, dtype, shape and gradient."""

from __future__ import annotations

import importlib.util
import itertools
import re
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cugrad import dtypes
from cugrad.autograd import grad
from cugrad.autograd.recording.record import recorded
from cugrad.ops.table import ELEMENTWISE, TABLE
from cugrad.tensor import Tensor, make
from tests.ops import samples
from tests.ops.row_cases import (
    HOST,
    Call,
    assert_close,
    called,
    differentiable,
    gradient_cases,
    is_array,
    narrow_cases,
    over_lines,
    variant_named,
    ways,
)
from tests.ops.sampling import LINES, Input, Sample

pytestmark = pytest.mark.host_only

torch = pytest.importorskip("torch", reason="PyTorch, the oracle, is not installed")
HAS_BFLOAT16 = importlib.util.find_spec("ml_dtypes") is not None


def theirs(value: Any) -> Any:
    """NumPy arrays, and what holds them, as PyTorch's tensors; NumPy dtypes as PyTorch's."""
    if isinstance(value, np.ndarray):
        if value.dtype.name == "bfloat16":
            return torch.from_numpy(value.astype(np.float32)).to(torch.bfloat16)
        return torch.from_numpy(np.array(value))
    if isinstance(value, (tuple, list)):
        return type(value)(theirs(v) for v in value)
    if isinstance(value, np.dtype) or isinstance(value, type) and issubclass(value, np.generic):
        return getattr(torch, np.dtype(value).name)
    return value


def as_numpy(tensor: Any) -> np.ndarray:
    tensor = tensor.detach().resolve_conj().resolve_neg()
    return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy(force=True)


def dtype_of(tensor: Any) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def has_equivalent(op: Any) -> bool:
    return op.name in LINES and op.name not in samples.NO_TORCH


def call_torch(line: Sample, inputs: tuple[Any, ...], params: dict[str, Any]) -> tuple[Any, ...]:
    """PyTorch's answer: from the line's `torch=`, else from aten's op of the row's name."""
    op = TABLE[line.row]
    inputs = (list(inputs),) if op.variadic else inputs
    if line.torch is not None:
        found = line.torch(torch, *inputs, **params)
    else:
        named = dict(zip(op.inputs[1:], inputs[1:]))
        found = getattr(torch.ops.aten, line.row)(inputs[0], **named, **params)
    return tuple(found) if isinstance(found, (tuple, list)) else (found,)


def call_ours(line: Sample, inputs: tuple[Any, ...], params: dict[str, Any]) -> tuple[Any, ...]:
    args = (list(inputs),) if TABLE[line.row].variadic else inputs
    found = getattr(recorded, line.row)(*args, **params)
    return found if isinstance(found, tuple) else (found,)


def test_every_row_has_an_equivalent() -> None:
    """A row is compared with aten's op of its name, with `torch=`, or a reason says why not."""
    named = {name for name in TABLE if hasattr(torch.ops.aten, name)}
    given = {name for name, lines in LINES.items() if lines[0].torch is not None}
    assert sorted(TABLE.keys() - named - given - samples.NO_TORCH.keys()) == []
    assert sorted(samples.NO_TORCH.keys() - TABLE.keys()) == []


@over_lines(has_equivalent)
def test_value_is_pytorchs(line: Any) -> None:
    """Value, dtype and shape at every variant, and the gradient of every input."""
    narrow = [*narrow_cases(line), *bfloat16_cases(line), *integer_cases(line)]
    for case in gradient_cases(line) + narrow:
        with variant_named(case):
            compare(case)


def integer_cases(line: Sample) -> list[Sample]:
    """Rows that take any dtype, on small integers: what an integer becomes is PyTorch's choice."""
    floats = [a for a in line.args if isinstance(a, tuple) or isinstance(a, Input) and not a.real]
    integers = bool(floats) and line.integer and not line.row.endswith("_backward")
    return [replace(line, dtype="int64", variant="int64")] if integers else []


def bfloat16_cases(line: Sample) -> list[Sample]:
    wanted = HAS_BFLOAT16 and line.row not in samples.NO_HALF
    return [replace(line, dtype="bfloat16", variant="bfloat16")] if wanted else []


def compare(case: Sample) -> None:
    try:
        with HOST.quiet():
            call = called(case, HOST)
    except Exception:
        if case.dtype != "int64":
            raise
        return  # this row takes no integers
    wanted = call.differentiable
    t_in = [theirs(a) for a in call.inputs]
    for i in wanted:
        t_in[i].requires_grad_(True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            t_out = call_torch(case, tuple(t_in), theirs(case.params_on(HOST)))
    except (RuntimeError, NotImplementedError):
        if case.dtype in ("float64", "float32"):
            raise
        return  # PyTorch has no such kernel
    ours = [make(a, requires_grad=i in wanted) if is_array(a) else a
            for i, a in enumerate(call.inputs)]  # fmt: skip
    outs = call_ours(case, tuple(ours), call.given)
    assert len(outs) == len(t_out)
    for i, (o, t) in enumerate(zip(outs, t_out)):
        wide = call.op.outputs[i] in samples.FLOAT32_OUTPUTS.get(case.row, "").split()
        if wide and case.dtype in ("float16", "bfloat16"):
            t = t.float()  # on a CPU PyTorch narrows these, on a GPU it does not
        same = dtype_of(o), tuple(o.shape)
        assert same == (dtype_of(t), tuple(t.shape)), f"output {i}: {same}"
        dtype = dtype_of(t) if case.dtype == "int64" else case.dtype
        assert_close(o._array, as_numpy(t), dtype, 2 * case.tolerance, f"output {i}")
    if wanted and case.dtype != "int64":
        compare_gradients(case, call, [ours[i] for i in wanted], [t_in[i] for i in wanted],
                          outs, t_out)  # fmt: skip


def compare_gradients(
    case: Sample, call: Call, leaves: list[Tensor], t_leaves: list[Any], outs: Any, t_outs: Any
) -> None:
    roots = [i for i, o in enumerate(outs) if o.requires_grad]
    t_roots = [i for i, t in enumerate(t_outs) if t.requires_grad]
    assert set(roots) == set(t_roots), f"outputs {roots} are differentiable, want {t_roots}"
    seeds = [call.random_like(outs[i]._array, call.rng) for i in roots]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            want = torch.autograd.grad([t_outs[i] for i in roots], t_leaves,
                                       [theirs(s) for s in seeds], allow_unused=True)  # fmt: skip
        except (RuntimeError, NotImplementedError) as error:
            theirs_fails = re.search(
                "returned an invalid gradient|is not implemented|must be contiguous", str(error)
            )
            if case.dtype in ("float64", "float32") and not theirs_fails:
                raise
            return
    got = grad([outs[i] for i in roots], leaves, [make(s) for s in seeds], allow_unused=True)
    for i, (g, t) in enumerate(zip(got, want)):
        if g is None or t is None:
            assert g is None or not np.any(g._array), f"gradient {i} is not None as PyTorch's"
            assert t is None or not t.any(), f"gradient {i} is None"
            continue
        same = dtype_of(g), tuple(g.shape)
        assert same == (dtype_of(t), tuple(t.shape)), f"gradient {i}: {same}"
        assert_close(g._array, as_numpy(t), case.dtype, 4 * case.tolerance, f"gradient {i}")


# Promotion ----------------------------------------------------------------------------------------

SCALARS = (True, 2, 1.5, 1.5 + 0.5j)


def operands() -> list[tuple[str, Any]]:
    """Every dtype with a dimension and without, and a Python scalar of each category."""
    names = [d.name for d in dtypes.ALL if d.name != "bfloat16" or HAS_BFLOAT16]
    found: list[tuple[str, Any]] = []
    for name in names:
        numpy = getattr(dtypes, "bool_" if name == "bool" else name).numpy
        found.append((f"{name}[2]", np.array([1, 2]).astype(numpy)))
        found.append((f"{name}[]", np.array(2).astype(numpy)))
    return found + [(type(s).__name__, s) for s in SCALARS]


@over_lines(
    lambda op: has_equivalent(op) and op.kind == ELEMENTWISE and op.promote == "common"
    and len(op.promoted) == len(op.inputs) == 2, first=True,
)  # fmt: skip
def test_promotion_is_pytorchs(line: Any) -> None:
    """The result's dtype, for every pair of dtypes, dimensioned, 0-d or Python scalars."""
    wrong, functions = [], ways(TABLE[line.row])
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for (n1, a), (n2, b) in itertools.product(operands(), operands()):
            if not is_array(a) and not is_array(b):
                continue
            try:
                (want,) = call_torch(line, (theirs(a), theirs(b)), line.params)
            except (RuntimeError, NotImplementedError, TypeError, ValueError):
                continue
            if dtype_of(want) == "complex32":  # which cugrad has not: complex64 there
                continue
            x, y = (make(v) if is_array(v) else v for v in (a, b))
            for function in functions:
                try:
                    got = function(x, y, **line.params)
                    found = f"{dtype_of(got)}{tuple(got.shape)}"
                except Exception as error:
                    found = repr(error)
                if found != f"{dtype_of(want)}{tuple(want.shape)}":
                    wrong.append(f"{n1} {n2}: {found}, want {dtype_of(want)}{tuple(want.shape)}")
    assert not wrong, f"{len(wrong)} pairs:\n" + "\n".join(wrong[:20])


@over_lines(lambda op: has_equivalent(op) and differentiable(op) and op.promote == "common")
def test_mixed_gradients_are_pytorchs(line: Any) -> None:
    """Gradients of operands of two dtypes have PyTorch's dtypes and values."""
    op = TABLE[line.row]
    for pair in itertools.permutations(("float16", "float32", "float64", "complex64"), 2):
        if line.row in samples.REAL_ONLY and "complex64" in pair:
            continue
        call, given, position = called(line, HOST), [], 0
        for i, a in enumerate(call.inputs):
            if is_array(a) and (op.variadic or i in op.promoted):
                a = np.asarray(a.astype(pair[position % 2]))
                position += 1
            given.append(a)
        wanted = call.differentiable
        ours = [make(a, requires_grad=i in wanted) if is_array(a) else a
                for i, a in enumerate(given)]  # fmt: skip
        t_in = [theirs(a).requires_grad_(i in wanted) if is_array(a) else a
                for i, a in enumerate(given)]  # fmt: skip
        outs = call_ours(line, tuple(ours), call.given)
        t_outs = call_torch(line, tuple(t_in), theirs(line.params_on(HOST)))
        narrow = replace(line, dtype="float16", variant=f"{pair[0]} {pair[1]}")
        with variant_named(narrow):
            assert [dtype_of(o) for o in outs] == [dtype_of(t) for t in t_outs]
            compare_gradients(narrow, call, [ours[i] for i in wanted], [t_in[i] for i in wanted],
                              outs, t_outs)  # fmt: skip
