"""PyTorch's own database of operators (OpInfo), run against cugrad: samples, gradients and errors.

`python -m tests.ops.opinfo NAME...` says how each named operator differs; a name may be a pattern,
such as 'linalg.*', and `--dtype`, `--all-samples`, `--summary` do what they say. test_opinfo.py
runs the same over everything that is not in its list of reasons.
"""

# ruff: noqa: B023  (every closure here is called at once, by `attempt`)

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import fnmatch
import itertools
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any
from unittest import mock

import numpy as np
import torch

import cugrad
from cugrad import Tensor
from tests.support import torch_databases

with torch_databases.imported():
    from torch.testing._internal import common_utils
    from torch.testing._internal.common_methods_invocations import op_db
    from torch.testing._internal.opinfo import core as opinfo_core

JVP, FIRST, SECOND = "jvp", "gradient", "second gradient"
# dtype -> (relative, absolute) tolerance of values
TOLERANCE = {
    "float16": (4e-3, 4e-3), "bfloat16": (2e-2, 2e-2), "float32": (2e-4, 2e-5),
    "float64": (1e-7, 1e-7), "complex64": (2e-4, 2e-5), "complex128": (1e-7, 1e-7),
}  # fmt: skip
DTYPES = ("float64", "float32", "complex128", "int64", "bool", "bfloat16", "float16", "uint8")

# Operators whose values are random or arbitrary: shape and dtype are compared.
RANDOM = {
    "bernoulli", "cauchy", "empty", "empty_like", "empty_permuted", "empty_strided", "exponential",
    "geometric", "log_normal", "multinomial", "new_empty", "new_empty_strided", "normal", "rand",
    "rand_like", "randint", "randint_like", "randn", "randn_like", "uniform", "resize_",
    "resize_as_", "pca_lowrank", "svd_lowrank", "nn.functional.alpha_dropout",
    "nn.functional.dropout", "nn.functional.dropout2d", "nn.functional.dropout3d",
    "nn.functional.feature_alpha_dropout", "nn.functional.rrelu",
    "nn.functional.fractional_max_pool2d", "nn.functional.fractional_max_pool3d",
}  # fmt: skip


# Those that draw at random where a positional argument says so.
DROPPING = {"nn.functional.multi_head_attention_forward"}


@dataclasses.dataclass
class Fault:
    """One way in which an operator differs from PyTorch's, on one sample."""

    op: str
    dtype: str
    sample: str
    what: str

    def __str__(self) -> str:
        return f"{self.op} [{self.dtype}] {self.sample}: {self.what}"


def rebound(function: Callable[..., Any]) -> Callable[..., Any]:
    """A Python function of the database with `torch` meaning cugrad in it."""
    if not isinstance(function, types.FunctionType):
        return function
    names = {**function.__globals__, "torch": cugrad}
    cells = tuple(types.CellType(ours(c.cell_contents)) for c in function.__closure__ or ())
    made = types.FunctionType(
        function.__code__, names, function.__name__, function.__defaults__, cells
    )
    made.__kwdefaults__ = function.__kwdefaults__
    return made


def is_composed(op: Any) -> bool:
    """Whether the database calls an operator by a function of its own, not by name."""
    return isinstance(op.op, types.FunctionType) and op.op.__module__.startswith("torch.testing")


def function_of(op: Any) -> Callable[..., Any] | None:
    """cugrad's function of this operator, or None when there is none."""
    if is_composed(op):
        return rebound(op.op)
    place: Any = cugrad
    *rooms, name = op.name.split(".")
    for room in rooms:
        place = getattr(place, room, None)
        if place is None:
            return None
    found = getattr(place, name, None) if place is not cugrad else cugrad.__dict__.get(name)
    if isinstance(found, cugrad.dtype):  # cfloat names a dtype, and the method that casts to it
        found = None
    return found or (getattr(Tensor, name, None) if not rooms else None)


def ours(value: Any) -> Any:
    """A value of PyTorch's, or what holds such, as cugrad's."""
    if isinstance(value, torch.Tensor):
        if value.layout is not torch.strided:
            raise NotImplementedError("sparse")
        plain = value.detach().resolve_conj().resolve_neg()
        if plain.dtype == torch.bfloat16:
            import ml_dtypes

            array = plain.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
        else:
            array = plain.numpy()
        made = cugrad.from_numpy(np.array(array, order="K"))
        return made.requires_grad_() if value.requires_grad else made
    if isinstance(value, torch.Size):
        return tuple(value)
    if isinstance(value, torch.nn.LinearCrossEntropyOptions):
        options = {f.name: ours(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return cugrad.nn.LinearCrossEntropyOptions(**options)
    if isinstance(value, torch.dtype):
        return getattr(cugrad, str(value).removeprefix("torch."))
    if isinstance(value, torch.device):
        return str(value)
    if isinstance(value, (torch.memory_format, torch.layout)):
        return getattr(cugrad, str(value).removeprefix("torch."), None)
    if isinstance(value, torch.Generator):
        return cugrad.Generator().manual_seed(value.initial_seed())
    if value is torch:
        return cugrad
    if isinstance(value, types.BuiltinFunctionType) and value is getattr(
        torch, value.__name__, None
    ):
        return getattr(cugrad, value.__name__)
    if isinstance(value, types.FunctionType) and value.__module__.startswith("torch.nn.func"):
        return getattr(cugrad.nn.functional, value.__name__)
    if isinstance(value, types.FunctionType):
        return rebound(value)
    if type(value) in (list, tuple):
        return type(value)(map(ours, value))
    if type(value) is dict:
        return {k: ours(v) for k, v in value.items()}
    if isinstance(value, torch.nn.Module):
        raise NotImplementedError("a module")
    return value


def tensors(value: Any) -> Iterator[Any]:
    """The tensors in a result or in arguments, in order, of either library."""
    if isinstance(value, (Tensor, torch.Tensor)):
        yield value
    elif isinstance(value, (list, tuple)):
        for v in value:
            yield from tensors(v)
    elif isinstance(value, dict):
        for v in value.values():
            yield from tensors(v)


def host(tensor: Any) -> np.ndarray:
    """The values in the widest dtype of their category."""
    if isinstance(tensor, torch.Tensor):
        tensor = tensor.detach().resolve_conj().resolve_neg()
        array = (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy(force=True)
    else:
        array = tensor.detach().cpu().numpy(force=True)
    if array.dtype.kind in "fV":
        return np.asarray(array, np.float64)
    return np.asarray(array, np.complex128) if array.dtype.kind == "c" else array


def as_near(p: np.ndarray, q: np.ndarray, precise: np.ndarray) -> bool:
    """Whether a half-precision result is as near to the float64 one as PyTorch's is."""
    if p.shape != precise.shape:
        return False
    with np.errstate(invalid="ignore", over="ignore"):
        mine, theirs = np.abs(p - precise), np.abs(q - precise)
        size = np.abs(precise).max(initial=0.0)
    return bool(np.nan_to_num(mine).max(initial=0.0)
                <= np.nan_to_num(theirs).max(initial=0.0) * 1.05 + 1e-3 * size)  # fmt: skip


def difference(
    mine: Any, theirs: Any, dtype: str, values: bool = True, precise: list[Any] | None = None
) -> str | None:
    """How one result differs from PyTorch's, or None.

    `precise` are the outputs at float64: half precision need be no nearer to them than PyTorch.
    """
    a, b = list(tensors(mine)), list(tensors(theirs))
    if not b and not a:
        same = mine == theirs or (mine != mine and theirs != theirs) or not values
        if isinstance(theirs, float) and isinstance(mine, float):
            same = same or abs(mine - theirs) <= 1e-6 * max(1, abs(theirs))
        if isinstance(theirs, (torch.dtype, torch.device)):
            same = str(theirs).removeprefix("torch.") == str(mine).removeprefix("torch.")
        return None if same else f"got {mine!r}, PyTorch gives {theirs!r}"
    if len(a) != len(b):
        return f"{len(a)} tensors, PyTorch gives {len(b)}"
    for i, (x, y) in enumerate(zip(a, b)):
        where = f"output {i}: " if len(b) > 1 else ""
        if tuple(x.shape) != tuple(y.shape):
            return f"{where}shape {tuple(x.shape)}, PyTorch gives {tuple(y.shape)}"
        named = [str(t.dtype).removeprefix("torch.") for t in (x, y)]
        if named[0] != named[1]:
            return f"{where}dtype {named[0]}, PyTorch gives {named[1]}"
        if not values:
            continue
        relative, absolute = TOLERANCE.get(dtype, TOLERANCE.get(named[0], (0, 0)))
        if dtype in ("int64", "bool", "uint8"):
            relative, absolute = TOLERANCE.get(named[0], (0, 0))
        p, q = host(x), host(y)
        if not (p == q).all() and not np.allclose(p, q, relative, absolute, equal_nan=True):
            if precise is not None and as_near(p, q, precise[i]):
                continue
            wrong = ~np.isclose(p, q, relative, absolute, equal_nan=True)
            return (f"{where}{wrong.sum()} of {wrong.size} values, such as "
                    f"{p[wrong].flat[0]!r}, PyTorch gives {q[wrong].flat[0]!r}")  # fmt: skip
    return None


def sharing(mine: Any, theirs: Any, my_given: Any, given: Any) -> str | None:
    """How a result differs from PyTorch's as memory: whether it is a view, or shows an argument's,
    and whether each of its elements has a place of its own.
    """
    pairs = zip(tensors(my_given), tensors(given))
    arguments = [(x, y) for x, y in pairs if x.numel() and x.stride() == y.stride()]
    for i, (x, y) in enumerate(zip(tensors(mine), tensors(theirs))):
        if not isinstance(x._array, np.ndarray):
            return f"output {i} is a {type(x._array).__name__}, and no array"
        if not y.numel() or type(x) is not Tensor:
            continue
        if x._is_view() and not y._is_view():
            return f"output {i} is a view, PyTorch's is not"
        spread = [any(s == 0 and n > 1 for s, n in zip(t.stride(), t.shape)) for t in (x, y)]
        if spread[0] and not spread[1]:
            return f"output {i} is expanded, PyTorch's is not"
        place = y.untyped_storage().data_ptr()
        for a, b in arguments:
            shows = np.may_share_memory(x._array, a._array)
            if shows and place != b.untyped_storage().data_ptr():
                return f"output {i} shows an argument's memory, PyTorch's does not"
    return None


def attempt(call: Callable[[], Any]) -> tuple[Any, Exception | None]:
    """The result of a call, or the exception."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return call(), None
        except Exception as error:
            return None, error


def said(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:200]


@contextlib.contextmanager
def outside_of_a_test() -> Iterator[None]:
    """The database as it is where no test runs it.

    In one it looks for PyTorch's own test class on the stack, and `torch.manual_seed` writes the
    stack down for accelerators: nine tenths of the time that all the operators took.
    """
    with (
        mock.patch.object(torch, "manual_seed", torch.default_generator.manual_seed),
        mock.patch.object(common_utils, "extract_test_fn", lambda: None),
        mock.patch.object(opinfo_core, "extract_test_fn", lambda: None),
    ):
        yield


def samples_of(op: Any, dtype: torch.dtype, graded: bool, most: int | None) -> list[Any]:
    """The first `most` samples of an operator, all of them for None."""
    with outside_of_a_test():
        torch.manual_seed(0)
        return list(itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=graded), most))


def cotangents(outputs: list[Any], seed: int) -> list[torch.Tensor]:
    """A gradient of PyTorch's for each output."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(o.shape, dtype=o.dtype, generator=generator) for o in outputs]


def differentiable(tree: Any) -> list[Any]:
    return [t for t in tensors(tree) if t.requires_grad]


def gradients(lib: Any, result: Any, leaves: list[Any], given: list[Any], create: bool) -> Any:
    """The gradients of the leaves; those that do not take part are left out, by position."""
    outputs = differentiable(result)
    found = lib.autograd.grad(outputs, leaves, given, allow_unused=True, create_graph=create)
    return list(found)


def faults_of_sample(op: Any, sample: Any, dtype: str, second: bool) -> Iterator[str]:
    """How one sample differs: value first, then gradients."""
    mine = function_of(op)
    assert mine is not None
    wrap, process = op.gradcheck_wrapper, sample.output_process_fn_grad
    args = [sample.input, *sample.args]
    try:
        my_args, my_kwargs = ours(args), ours(sample.kwargs)
        my_wrap, my_process = rebound(wrap), rebound(process)
    except NotImplementedError:
        return
    except Exception as error:
        yield f"an argument cannot be made: {said(error)}"
        return
    seed = 1 + len(repr(sample.kwargs))
    torch.default_generator.manual_seed(seed)
    theirs, refused = attempt(lambda: process(wrap(op.op, *args, **sample.kwargs)))
    if refused is not None:
        return  # the sample is not for this dtype
    cugrad.manual_seed(seed)
    result, error = attempt(lambda: my_process(my_wrap(mine, *my_args, **my_kwargs)))
    if error is not None:
        yield f"raises {said(error)}"
        return
    values = op.name not in RANDOM and not op.has_nondeterministic_output
    values = values and not sample.kwargs.get("dropout_p") and op.name not in DROPPING
    problem = difference(result, theirs, dtype, values)
    if problem is not None and dtype in ("float16", "bfloat16"):
        problem = difference(result, theirs, dtype, values, at_float64(op, sample))
    if problem is not None:
        yield problem
        return
    if problem := sharing(result, theirs, [my_args, my_kwargs], [args, sample.kwargs]):
        yield problem
    leaves = [t for t in tensors([args, sample.kwargs]) if t.requires_grad and t.is_leaf]
    my_leaves = differentiable([my_args, my_kwargs])
    outputs, my_outputs = differentiable(theirs), differentiable(result)
    if not values or not leaves or len(leaves) != len(my_leaves):
        return
    if len(outputs) != len(my_outputs):
        yield f"{len(my_outputs)} outputs require gradients, PyTorch has {len(outputs)}"
        return
    if not outputs:
        return
    if op.supports_forward_ad:
        theirs_t, refused = attempt(
            lambda: forward_mode(
                torch, lambda a, k: process(wrap(op.op, *a, **k)), args, sample.kwargs, seed
            )
        )
        my_t, error = attempt(
            lambda: forward_mode(
                cugrad, lambda a, k: my_process(my_wrap(mine, *a, **k)), my_args, my_kwargs, seed
            )
        )
        if refused is None and error is not None:
            yield f"{JVP} raises {said(error)}"
        elif refused is None and (problem := difference(my_t, theirs_t, dtype)):
            yield f"{JVP}: {problem}"
    given = cotangents(outputs, seed)
    for level in (FIRST, SECOND):
        create = level is FIRST and second
        theirs, refused = attempt(lambda: gradients(torch, outputs, leaves, given, create))
        found, error = attempt(
            lambda: gradients(cugrad, my_outputs, my_leaves, ours(given), create)
        )
        if refused is not None:
            return
        if error is not None:
            yield f"{level} raises {said(error)}"
            return
        for i, (x, y) in enumerate(zip(found, theirs)):
            if x is None and y is not None and not y.any() or y is None and x is not None:
                x = y = None  # an exact zero may be left out, here or there
            if (x is None) != (y is None):
                yield f"{level} of input {i}: {'none' if x is None else 'one'}, unlike PyTorch's"
            elif x is not None and (problem := difference(x, y, dtype)):
                yield f"{level} of input {i}: {problem}"
        if not create:
            return
        pairs = [(x, y) for x, y in zip(found, theirs) if x is not None and y is not None]
        my_outputs = [x for x, y in pairs if x.requires_grad and y.requires_grad]
        outputs = [y for x, y in pairs if x.requires_grad and y.requires_grad]
        if any(y.requires_grad and not x.requires_grad for x, y in pairs) and any(
            g is not None and g.any()
            for y in (y for x, y in pairs if not x.requires_grad and y.requires_grad)
            for g in torch.autograd.grad(y.abs().sum(), leaves, allow_unused=True,
                                         retain_graph=True)
        ):  # fmt: skip
            yield "the gradient is not differentiable, PyTorch's is"
        if not outputs:
            return
        given = cotangents(outputs, seed + 1)


def at_float64(op: Any, sample: Any) -> list[np.ndarray] | None:
    """The outputs of PyTorch's operator on the same values in float64."""

    def wide(value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            return value.detach().double()
        if type(value) in (list, tuple):
            return type(value)(map(wide, value))
        return {k: wide(v) for k, v in value.items()} if type(value) is dict else value

    call = lambda: op.gradcheck_wrapper(
        op.op, *wide([sample.input, *sample.args]), **wide(sample.kwargs))  # fmt: skip
    found, refused = attempt(lambda: sample.output_process_fn_grad(call()))
    return None if refused is not None else [host(t) for t in tensors(found)]


def forward_mode(lib: Any, call: Callable[..., Any], args: Any, kwargs: Any, seed: int) -> Any:
    """The tangents of the outputs along random tangents of the inputs, zeros where none came."""
    generator = torch.Generator().manual_seed(seed)
    fw = lib.autograd.forward_ad

    def dual(value: Any) -> Any:
        if isinstance(value, lib.Tensor):
            if not value.requires_grad:
                return value
            kind = getattr(torch, str(value.dtype).removeprefix("torch."))
            tangent = torch.randn(tuple(value.shape), dtype=kind, generator=generator)
            return fw.make_dual(value.detach(), tangent if lib is torch else ours(tangent))
        if type(value) in (list, tuple):
            return type(value)(map(dual, value))
        if type(value) is dict:
            return {k: dual(v) for k, v in value.items()}
        return value

    with fw.dual_level():
        outputs = [o for o in tensors(call(dual(list(args)), dual(kwargs)))
                   if o.is_floating_point() or o.is_complex()]  # fmt: skip
        pairs = [(o, fw.unpack_dual(o).tangent) for o in outputs]
        return [lib.zeros_like(o.detach()) if t is None else t.detach() for o, t in pairs]


def names(dtype: str) -> torch.dtype:
    return getattr(torch, dtype)


def faults_of(
    op: Any,
    dtypes: tuple[str, ...] = DTYPES,
    samples: int | None = 40,
    second: bool = True,
    in_turns: bool = False,
) -> Iterator[Fault]:
    """Everything in which cugrad's operator differs from PyTorch's on its samples.

    With `in_turns` float64 has all of them, and of the other dtypes each has every second one: the
    first, the third, or the second, the fourth.
    """
    label = op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")
    if function_of(op) is None:
        yield Fault(label, "", "", "is not in cugrad")
        return
    for dtype in dtypes:
        kind = names(dtype)
        if kind not in op.dtypes:
            continue
        graded = dtype in ("float64", "complex128") and kind in op.backward_dtypes
        graded = graded and op.supports_autograd
        made, refused = attempt(lambda: samples_of(op, kind, graded, samples))
        for number, sample in enumerate(made or ()):
            if in_turns and dtype != "float64" and (number + DTYPES.index(dtype)) % 2:
                continue
            twice = second and op.supports_gradgrad
            found, broken = attempt(lambda: list(faults_of_sample(op, sample, dtype, twice)))
            if broken is not None:
                found = [f"the comparison fails: {said(broken)}"]
            for what in found:
                yield Fault(label, dtype, f"sample {number} {describe(sample)}", what)


def error_faults_of(op: Any) -> Iterator[Fault]:
    """The error inputs at which cugrad raises another exception than PyTorch, or none."""
    label = op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")
    mine = function_of(op)
    if mine is None or op.error_inputs_func is None:
        return
    with outside_of_a_test():
        cases, _ = attempt(lambda: list(op.error_inputs("cpu")))
    for number, case in enumerate(cases or ()):
        sample = case.sample_input
        args = [sample.input, *sample.args]
        _, refused = attempt(lambda: op.op(*args, **sample.kwargs))
        if refused is None:
            continue
        my_args, unusual = attempt(lambda: ours([args, sample.kwargs]))
        if unusual is not None:
            continue
        result, error = attempt(lambda: mine(*my_args[0], **my_args[1]))
        wanted = type(refused)
        if error is None:
            what = f"raises nothing, PyTorch raises {said(refused)}"
        elif wanted.__name__ not in {c.__name__ for c in type(error).__mro__}:
            what = f"raises {said(error)}, PyTorch raises {said(refused)}"
        else:
            continue
        yield Fault(label, "error", f"case {number} {describe(sample)}", what)


def describe(sample: Any) -> str:
    def short(value: Any) -> str:
        if isinstance(value, (torch.Tensor, Tensor)):
            return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
        if isinstance(value, (list, tuple)):
            return "(" + ", ".join(map(short, value)) + ")"
        return repr(value) if not callable(value) else getattr(value, "__name__", "function")

    parts = [short(sample.input), *map(short, sample.args)]
    parts += [f"{k}={short(v)}" for k, v in sample.kwargs.items()]
    return ("(" + ", ".join(parts) + ")")[:160]


@cache
def database() -> dict[str, list[Any]]:
    """The operators by name; one name may have several variants."""
    found: dict[str, list[Any]] = {}
    for op in op_db:
        found.setdefault(op.name, []).append(op)
    return found


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.ops.opinfo", description=__doc__)
    parser.add_argument("names", nargs="*", help="operators, or patterns such as 'fft.*'")
    parser.add_argument("--dtype", action="append", choices=DTYPES)
    parser.add_argument("--all-samples", action="store_true", help="not the first 40 only")
    parser.add_argument("--most", type=int, default=6, help="faults shown per operator and dtype")
    parser.add_argument("--summary", action="store_true", help="one line per operator")
    parser.add_argument("--no-errors", action="store_true", help="leave the error inputs out")
    options = parser.parse_args(argv)
    if hasattr(torch, "set_num_threads"):
        torch.set_num_threads(1)
    patterns = options.names or ["*"]
    failed = done = 0
    for name, ops in database().items():
        if not any(fnmatch.fnmatchcase(name, p) for p in patterns):
            continue
        for op in ops:
            found = list(faults_of(op, tuple(options.dtype or DTYPES),
                                   None if options.all_samples else 40))  # fmt: skip
            if not options.no_errors:
                found += error_faults_of(op)
            done += 1
            failed += bool(found)
            if options.summary and found:
                print(f"{name}.{op.variant_test_name}: {len(found)} faults; {found[0].what[:110]}")
            elif not options.summary:
                for _, group in itertools.groupby(found, key=lambda f: f.dtype):
                    listed = list(group)
                    for fault in listed[: options.most]:
                        print(fault)
                    if len(listed) > options.most:
                        print(f"    and {len(listed) - options.most} more of {listed[0].dtype}")
            sys.stdout.flush()
    print(f"{done} operators, {failed} with faults")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
