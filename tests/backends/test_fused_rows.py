"""Each kernel that is made of a row, run from its source on the CPU, computes what the row does."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

pytest.importorskip("cupy", reason="CuPy is not installed")
ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")

from cugrad import dtypes  # noqa: E402
from cugrad.backends import get  # noqa: E402
from cugrad.backends.cupy.fused.expressions import checked  # noqa: E402
from cugrad.backends.cupy.fused.layouts import Operand, layout_of  # noqa: E402
from cugrad.backends.cupy.fused.source import kernel_source  # noqa: E402
from cugrad.backends.traced.arrays import Trace, Untraceable  # noqa: E402
from cugrad.backends.traced.namespace import FUNCTIONS  # noqa: E402
from cugrad.ops.promotion import fit_scalar  # noqa: E402
from cugrad.ops.table import ELEMENTWISE, TABLE, Op, raw  # noqa: E402
from tests.backends import cuda_toolchain as toolchain  # noqa: E402
from tests.support import fake_cuda  # noqa: E402

pytestmark = [
    pytest.mark.host_only,
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
]

Host = np.ndarray[Any, Any]
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
DTYPES = [np.dtype("float32"), np.dtype("float64"), np.dtype("float16"), BFLOAT16]
COMPARING = {
    name: op for name, op in TABLE.items()
    if op.kind != ELEMENTWISE and op.ufunc and {"d->?", "dd->?"} & {*getattr(np, op.ufunc).types}
}  # fmt: skip
ROWS = {name: op for name, op in TABLE.items() if op.kind == ELEMENTWISE} | COMPARING

# What has no kernel, and why: forward, or backward alone.
DECLINED = {
    **dict.fromkeys(["real", "conj"], "it copies"),
    "imag": "it computes with imag",
    **dict.fromkeys(["lgamma backward", "gamma_cdf_slope"], "it computes with special.digamma"),
    **{name: f"it computes with special.{function}" for name, function in {
        "digamma": "digamma", "polygamma": "zeta", "special_zeta": "zeta", "igamma": "gammainc",
        "igammac": "gammaincc", "gamma_quantile": "gammaincinv", "erfinv": "erfinv",
        "special_erfcx": "erfcx",
        "special_log_ndtr": "log_ndtr", "special_ndtri": "ndtri", "i0": "i0",
        "special_i0e": "i0e", "special_i1": "i1", "special_i1e": "i1e"}.items()},
}  # fmt: skip

MADE = [name for name in ROWS if name not in DECLINED]

PARAMS: dict[str, list[dict[str, Any]]] = {
    "to_dtype": [{"dtype": np.dtype(d)} for d in ("float64", "float32", "float16", BFLOAT16)],
    "masked_fill": [{"value": 0.3}],
    "polygamma": [{"n": 1}],
    "threshold": [{"threshold": 0.1, "value": 2.5}],
    "clamp": [{"min": -0.3, "max": 0.7}, {"min": 0.1}, {"max": 2.0}],
    "gelu": [{}, {"approximate": "tanh"}],
    "logit": [{}, {"eps": 0.1}],
    "nan_to_num": [{}, {"nan": 1.5, "posinf": 2.5, "neginf": -2.5}],
    "add_scaled": [{}, {"alpha": 0.3}],
    "sub_scaled": [{}, {"alpha": 0.3}],
    "addcmul": [{}, {"value": 0.3}],
    "addcdiv": [{}, {"value": 0.3}],
}
NUMBERS: dict[str, list[float]] = {  # second operands that are Python numbers
    "pow": [2, 3, -2, 0.5, 1.7, 0, 1],
    **dict.fromkeys(
        ["add", "sub", "mul", "div", "remainder", "floor_divide", "maximum", "gt", "eq"],
        [0.3, -2.0],
    ),
    "lerp": [0.3, 0.7],
}

NOT_OF_HALVES = {"nextafter"}  # computed in float32, where the next number is another one

# Of 0 and -0 NumPy takes one or the other.
TIES = {"maximum", "minimum", "fmax", "fmin", "clamp_min", "clamp_max"}

SPECIAL = [
    0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 0.25, 2.0, 3.0, -3.0, 6.0, 1e-3, -1e-3, 0.1, 0.7, -0.3, 20.5,
    -20.5, 90.0, -104.0, np.inf, -np.inf, np.nan, 6e4, -6e4,
]  # fmt: skip


def dtypes_of(name: str) -> list[np.dtype[Any]]:
    """float32, and for every second row of the others one in turn: how they are read and written is
    no row's affair.
    """
    number, second = divmod(MADE.index(name), 2)
    if name in NOT_OF_HALVES:
        return DTYPES[:1]
    return DTYPES[:1] if second else [DTYPES[0], DTYPES[1 + number % 3]]


class Case(NamedTuple):
    """A row with operands; `inputs` has arrays and Python numbers."""

    op: Op
    inputs: list[Any]
    params: dict[str, Any]
    dtype: np.dtype[Any]

    @property
    def mask(self) -> int:
        """The inputs that are arrays and have a gradient."""
        able = [i for i, f in enumerate(self.op.formulas) if f is not None]
        return sum(1 << i for i in able if isinstance(self.inputs[i], np.ndarray))


def operands(op: Op, dtype: np.dtype[Any]) -> list[Host]:
    """Special values in all combinations, as far as there is room, and random ones."""
    count, rng = len(op.inputs), np.random.default_rng(len(op.name))
    many = list(itertools.product(SPECIAL, repeat=count)) if count < 3 else []
    if count == 3:
        many = [tuple(rng.choice(SPECIAL, 3)) for _ in range(700)]
    drawn = np.concatenate([np.array(many), rng.standard_normal((403, count)) * 3])
    columns = [drawn[:, i].astype(dtype) for i in range(count)]
    return [
        column > 0 if name in ("condition", "mask") else column
        for name, column in zip(op.inputs, columns)
    ]


@np.errstate(all="ignore")
def cases_of(op: Op, dtype: np.dtype[Any]) -> list[Case]:
    found = []
    for params in PARAMS.get(op.name, [{}]):
        found.append(Case(op, operands(op, dtype), {**op.defaults, **params}, dtype))
    for number in NUMBERS.get(op.name, []):
        first = operands(op, dtype)
        fitting = fit_scalar(float(number), dtypes.of(dtype))
        found.append(Case(op, [*first[:-1], fitting], dict(op.defaults), dtype))
    return found


# What a row says ----------------------------------------------------------------------------------


def wide(x: Any, dtype: Any) -> Any:
    """An operand as an oracle of another dtype sees it."""
    if isinstance(x, np.ndarray) and x.dtype != bool:
        return x.astype(dtype)
    return x


@np.errstate(all="ignore")
def forward_by_row(case: Case, dtype: Any) -> Host:
    numpy = get("cpu")
    args = [wide(x, dtype) for x in case.inputs]
    return numpy.wrap(case.op.forward(numpy.xp, *args, **case.params))


@np.errstate(all="ignore")
def gradient_by_row(case: Case, g: Host, saved: list[Any], i: int, dtype: Any) -> Host:
    args = [wide(x, dtype) for x in saved]
    formula = case.op.gradients(case.mask)
    shapes = tuple(getattr(x, "shape", ()) for x in case.inputs)
    grads = formula(raw, wide(g, dtype), args, shapes, case.params)
    return np.broadcast_to(grads[i], g.shape)


def agree(found: Host, case: Case, by_row: Callable[[Any], Host], what: str) -> None:
    """Whether a kernel's numbers are the row's: in half precision those of the row in float32.

    Where a number is compared in half precision, those of the row in half precision will do.
    """
    assert found.dtype == (np.bool_ if found.dtype == bool else case.dtype), what
    half = case.dtype.itemsize == 2
    wanted = by_row(np.float32 if half else case.dtype)
    fits = _close(found, wanted, case)
    if half and not fits.all():
        fits |= _close(found, by_row(case.dtype), case)
    if case.dtype != np.float64 and not fits.all():  # as near to the truth as NumPy comes
        truth = by_row(np.float64)
        fits |= np.abs(found - truth) <= 2 * np.abs(wanted - truth)
    if not fits.all():
        at = np.flatnonzero(~fits)[:5]
        shown = [x[at] if isinstance(x, np.ndarray) else x for x in case.inputs]
        pytest.fail(f"{what}: at {shown} it is {found[at]}, want {wanted[at]}")


@np.errstate(all="ignore")
def _close(found: Host, wanted: Host, case: Case) -> Any:
    dtype = case.dtype
    rtol = {"float64": 1e-12, "float32": 3e-6, "float16": 2e-3, "bfloat16": 1.6e-2}[dtype.name]
    x = found.astype(np.float64)
    y = wanted.astype(dtype).astype(np.float64)
    zero = (y == 0) & (np.signbit(x) != np.signbit(y)) & (case.op.name not in TIES)
    tiny = {"float16": 1e-7, "float32": 3e-7, "float64": 1e-13, "bfloat16": 1e-6}[dtype.name]
    near = np.abs(x - y) <= rtol * np.abs(y) + tiny
    return ((x == y) | near | (np.isnan(x) & np.isnan(y))) & ~zero


# On the device ------------------------------------------------------------------------------------


def on_device(x: Any) -> Any:
    return fake_cuda.clothed(x.copy()) if isinstance(x, np.ndarray) else x


def all_cases() -> Iterator[tuple[str, Case]]:
    for name in MADE:
        op = ROWS[name]
        for dtype in dtypes_of(name):
            for k, case in enumerate(cases_of(op, dtype)):
                yield f"{name} {dtype.name} {k}", case


def run_forward(case: Case) -> Any:
    function = get("cuda").row_function(case.op)
    return function(*map(on_device, case.inputs), **case.params)


@np.errstate(all="ignore")
def run_backward(case: Case) -> tuple[Any, Host, list[Any]]:
    """The gradients, and what they were computed of."""
    result = forward_by_row(case, np.float32 if case.dtype.itemsize == 2 else case.dtype)
    result = result.astype(case.dtype)
    values = {**dict(zip(case.op.inputs, case.inputs)), case.op.outputs[0]: result}
    saved = [values[name] for name in case.op.saves(case.mask)]
    g = np.random.default_rng(0).standard_normal(result.shape).astype(case.dtype)
    shapes = tuple(getattr(x, "shape", ()) for x in case.inputs)
    dtypes = tuple(getattr(x, "dtype", None) for x in case.inputs)
    function = get("cuda").gradients_function(case.op, case.mask, raw)
    ASKED.append(function)
    meta = shapes, case.params, dtypes, None, False
    return function(on_device(g), [on_device(x) for x in saved], meta), g, saved


ASKED: list[Any] = []


def reasons(function: Any) -> set[str]:
    return {plan.reason for plan in function.plans.values() if hasattr(plan, "reason")}


if fake_cuda.REAL is None:
    SOURCES = "CUGRAD_TEST_SOURCES"  # the file for the sources that the process below makes

    def test_over_the_fake_cuda(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        toolchain.host_compiler()
        monkeypatch.setenv(SOURCES, str(tmp_path / "sources.json"))
        fake_cuda.passed(__file__, fused=True)
        toolchain.nvrtc()
        from cugrad.backends.cupy.fused.launch import OPTIONS

        sources = json.loads((tmp_path / "sources.json").read_text())
        for arch, some in (("90", sources), ("80", sources[::10])):
            for source, needs in zip(
                some, toolchain.compile_together(some, arch, OPTIONS), strict=True
            ):
                # 8 blocks of 256 threads fit a processor; 40 bytes are the far arguments of sin
                assert needs.registers <= 32 and needs.frame <= 40, (needs, source)

    @pytest.mark.parametrize(("dtype", "arch"), [("float32", "80"), ("float64", "90")])
    def test_cuda_has_each_function_that_a_graph_may_have(dtype: str, arch: str) -> None:
        toolchain.nvrtc()
        trace = Trace()
        x, y = (trace.input(k, np.dtype(dtype)) for k in range(2))
        bits = sorted(name for name in FUNCTIONS if name.startswith(("bitwise", "invert")))
        for name in sorted(FUNCTIONS - set(bits)):
            trace.apply(name, *(x, y)[: getattr(np, name).nin if hasattr(np, name) else 1])
        trace.apply("where", x < y, x, y)
        for name in bits:
            trace.apply(name, *(x < y, y < x)[: getattr(np, name).nin])
        results = [node for node in trace.nodes if node.function != "input"]
        checked(results)
        layout = layout_of((64,), [Operand(4, (64,), (4,))] * 3)
        outputs = [node.dtype.name for node in results]
        assert layout is not None
        source = kernel_source("all", trace.nodes, results, layout, [dtype] * 2, outputs, [])
        assert toolchain.compile_cuda(source, arch)


else:
    from cugrad.backends.cupy.fused import launch, rows

    @pytest.fixture(scope="module", autouse=True)
    def compiled() -> Iterator[None]:
        fake_cuda.CHECKS = True
        with fake_cuda.compiled_together():
            for _, case in all_cases():
                run_forward(case)
                if case.mask:
                    run_backward(case)
        yield
        fake_cuda.CHECKS = False

    def test_the_sources_are_written_down() -> None:
        """For NVRTC, in the process that runs this one: a backward kernel of each row."""
        kernels = {
            key[0]: kernel
            for key, kernel in launch._kernels.items()
            if key[0].endswith("_backward") and set(key[3]) <= {"float32", "bool"}
        }
        assert len(kernels) > 80
        if "CUGRAD_TEST_SOURCES" in os.environ:
            sources = [kernel.raw._code for kernel in kernels.values()]
            for dtype, target in itertools.product(("f4", BFLOAT16), ((8,), (9, 1))):
                x = on_device(np.ones((9, 8), dtype))
                graph = [Trace().input(0, x.dtype)]
                plan = rows.summing_plan("sums", graph, [target], [x], False)
                assert plan is not None
                sources.append(plan.kernel.raw._code)
            Path(os.environ["CUGRAD_TEST_SOURCES"]).write_text(json.dumps(sources))

    @pytest.mark.parametrize("name", MADE)
    def test_a_kernel_computes_what_its_row_says(name: str) -> None:
        for dtype in dtypes_of(name):
            for case in cases_of(ROWS[name], dtype):
                what = f"{name} of {dtype}, {case.params}"
                if case.params.get("dtype") == dtype:  # a copy, which is CuPy's
                    continue
                found = run_forward(case)._host
                to = case._replace(dtype=case.params.get("dtype", dtype))
                agree(found, to, partial(forward_by_row, case), what)
                if not case.mask:
                    continue
                grads, g, saved = run_backward(case)
                if grads is None:
                    continue
                for i, grad in enumerate(grads):
                    if grad is not None:
                        by_row = partial(gradient_by_row, case, g, saved, i)
                        agree(grad._host, case, by_row, f"{what}, gradient {i}")

    @pytest.mark.parametrize("name", MADE)
    def test_a_kernel_answers_in_the_dtype_of_its_operands(name: str) -> None:
        """In each dtype, of which few have kernels that run here; or in bool."""
        for dtype in DTYPES:
            for case in cases_of(ROWS[name], dtype):
                args = [x[:4] if isinstance(x, np.ndarray) else x for x in case.inputs]
                params = [case.params[p] for p in case.op.params]
                with suppress(Untraceable):  # then it is a chain of CuPy's functions
                    plan = rows.forward_plan(case.op, [*map(on_device, args), *params])
                    to = case.params.get("dtype", dtype)
                    assert plan.new[0].dtype in (to, bool), f"{dtype}, {case.params}"

    def test_what_has_no_kernel_says_why() -> None:
        """These rows run as a chain of CuPy's functions."""
        declined = {}
        for name, op in ROWS.items():
            case = cases_of(op, DTYPES[0])[0]
            function = get("cuda").row_function(op)
            args = [*map(on_device, case.inputs), *[case.params[p] for p in op.params]]
            try:
                rows.forward_plan(op, args)
            except Untraceable as error:
                declined[name] = str(error)
                continue
            copies = {"it copies"} if "dtype" in op.params else set()  # to the dtype it has
            assert reasons(function) <= copies, name
            if case.mask:
                run_backward(case)
                for reason in reasons(ASKED[-1]):
                    declined[f"{name} backward"] = reason
        assert declined == DECLINED
        arrays = [on_device(np.ones((2, 3), d)) for d in ("int64", "bool")]
        for array, why in zip(arrays, ("whole", "multiply of bool")):
            with pytest.raises(Untraceable, match=why):
                rows.forward_plan(TABLE["mul"], [array, array])

    @pytest.mark.parametrize("name", ["logical_and", "bitwise_or", "bitwise_xor", "eq", "ne"])
    def test_masks_are_put_together_in_a_kernel(name: str) -> None:
        x, y = np.array([[True, True, False, False]] * 7), np.array([True, False, True, False])
        function = get("cuda").row_function(TABLE[name])
        found = function(on_device(x), on_device(y))
        np.testing.assert_array_equal(found._host, getattr(np, TABLE[name].ufunc or "")(x, y))
        assert reasons(function) == set()

    @pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
    def test_quotients_of_halves_are_rounded_before_they_are_cut(dtype: str) -> None:
        import cugrad

        drawn = np.random.default_rng(0).normal(size=(2, 5000)) * 50
        found = []
        for device in ("cuda", "cpu"):
            x, y = (cugrad.tensor(v, dtype=getattr(cugrad, dtype), device=device) for v in drawn)
            found.append(cugrad.div(x, y, rounding_mode="trunc").tolist())
        assert found[0] == found[1]

    def test_in_place_a_kernel_writes_where_it_reads() -> None:
        """And elsewhere, where an operand overlaps it otherwise."""
        import cugrad

        def overlapping(x: Any) -> None:
            x[:20].mul_(x[10:30])
            x[::2].add_(x[1::2])
            x.reshape(5, 8).mT.sub_(x.reshape(5, 8)[:, :1].mT)
            x.reshape(5, 8)[1:4, 2:5].mul_(0.5)
            x.add_(x).lerp_(x * 2, 0.25)

        both = []
        for device in ("cuda", "cpu"):
            x = cugrad.tensor(np.linspace(-1, 2, 40), device=device)
            overlapping(x)
            w = x.clone().requires_grad_()
            y = (w * 1.5).sigmoid_() * w
            (grad,) = cugrad.autograd.grad(y.sum(), w)
            both.append([z.detach().cpu().numpy() for z in (x, y, grad)])
        for ours, theirs in zip(*both):
            np.testing.assert_allclose(ours, theirs, rtol=1e-14)
        x = cugrad.tensor(np.ones((3, 4)), device="cuda")
        plan = get("cuda").row_function(TABLE["add"]).in_place
        assert plan(x._array, x._array) is x._array
        for _ in range(2):
            first = x._array[:2]
            assert plan(first, x._array[:2]) is first
            assert plan(first, x._array[1:]) is not first
