"""Each written kernel, run from its source on the CPU, computes what the row of its name says."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from itertools import count, repeat
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

pytest.importorskip("cupy", reason="CuPy is not installed")
ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")

from cugrad.backends import get  # noqa: E402
from cugrad.backends.wanted import wanted  # noqa: E402
from cugrad.ops.table import TABLE, raw  # noqa: E402
from tests.backends import cuda_toolchain as toolchain  # noqa: E402
from tests.backends.written_cases_placed import CASES, NO_KERNELS, Case  # noqa: E402
from tests.support import fake_cuda  # noqa: E402

pytestmark = [
    pytest.mark.host_only,
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
]

Host = np.ndarray[Any, Any]
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
DTYPES = [np.dtype("float32"), np.dtype("float16"), BFLOAT16, np.dtype("float64")]
TOLERANCES = {"float64": 1e-12, "float32": 2e-6, "float16": 2e-3, "bfloat16": 1.6e-2}

SOURCES = "CUGRAD_TEST_SOURCES"  # the file for the sources that the process below makes


class Run(NamedTuple):
    """A case with operands of a dtype that lie in some way."""

    case: Case
    dtype: np.dtype[Any]
    layout: str

    def __str__(self) -> str:
        return f"{self.case.name} {self.case.what}, {self.dtype}, {self.layout}"


def runs() -> Iterator[Run]:
    """Every case in float32; the first of a row in float64, in halves of one kind or the other in
    turn, and as it lies otherwise.

    What is reduced by indices, in one other dtype a case: each shape, each reduction and each
    choice of `include_self` meets all of them.
    """
    before, turns = set(), count(1)
    for case in CASES:
        yield Run(case, DTYPES[0], "dense")
        if case.name not in before:
            before.add(case.name)
            for dtype in (DTYPES[1 + len(before) % 2], DTYPES[3]):
                yield Run(case, dtype, "dense")
            for layout in ("turned", "shifted", "last"):
                yield Run(case, DTYPES[0], layout)
        elif case.name == "scatter_reduce" and case.gradients:
            shape, choice = divmod(next(turns), 6)  # see written_cases_placed.py
            yield Run(case, DTYPES[1 + (shape + choice // 2 + choice % 2) % 3], "dense")
        elif case.name.startswith("max_pool2d") or case.params.get("dim") == (2, 3):
            # what has its channels last is computed in another way
            yield Run(case, DTYPES[0], "last")
        elif case.name.startswith("avg_pool") or case.params.get("groups", 1) > 1:
            for dtype in DTYPES:
                yield Run(case, dtype, "last")
        elif case.name.startswith("convolution"):
            is_half = case.what.startswith("(2, 8,")  # in packs of eight
            yield Run(case, DTYPES[int(is_half)], "last")
            if case.what.startswith(("(3, 2,", "(2, 4,")):
                for layout in ("first of them last", "second of them last"):
                    yield Run(case, DTYPES[0], layout)


def operands(run: Run, seed: int = 0) -> list[Any]:
    rng = np.random.default_rng((len(run.case.what), seed))
    wide = np.float64 if run.dtype == np.float64 else np.float32
    dtypes = {np.dtype("float64"): run.dtype, np.dtype("float32"): wide}

    def cast(x: Any) -> Any:
        if isinstance(x, list):
            return [*map(cast, x)]
        return x.astype(dtypes.get(x.dtype, x.dtype)) if isinstance(x, np.ndarray) else x

    return [*map(cast, run.case.make(rng))]


def full(x: Any) -> Any:
    """An operand for the oracle, which computes in float64."""
    if isinstance(x, list):
        return [*map(full, x)]
    return x.astype(np.float64) if isinstance(x, np.ndarray) and x.dtype.kind in "fV" else x


def by_row(run: Run, args: list[Any]) -> tuple[Any, ...]:
    op, numpy = TABLE[run.case.name], get("cpu")
    value = op.forward(numpy.xp, *map(full, args), **run.case.params)
    values = value if isinstance(value, tuple) else (value,)
    return tuple([np.asarray(x) if isinstance(x, np.generic) else x for x in values])


def saved_of(run: Run, args: list[Any], results: tuple[Any, ...]) -> dict[str, Any]:
    """What a node keeps: inputs as they are, results in the dtypes that the row gives them."""
    op = TABLE[run.case.name]
    wide = np.float64 if run.dtype == np.float64 else np.float32
    outputs = {}
    for k, (name, x) in enumerate(zip(op.outputs, results)):
        kept = x.dtype.kind not in "fV"
        outputs[name] = x if kept else x.astype(run.dtype if k in op.differentiable else wide)
    return {**dict(zip(op.inputs, args)), **outputs}


def agree(got: Any, expected: Host, run: Run, what: str) -> None:
    host = got._host
    assert host.shape == expected.shape, f"{run}: {what} is {host.shape}, want {expected.shape}"
    if expected.dtype.kind in "biu":
        np.testing.assert_array_equal(host, expected, err_msg=f"{run}: {what}")
        return
    tolerance = TOLERANCES[run.dtype.name]
    finite = expected[np.isfinite(expected)]
    largest = max(1.0, float(np.abs(finite).max(initial=0)))  # operands are about 1
    np.testing.assert_allclose(
        host.astype(np.float64), expected, rtol=tolerance * run.case.slack,
        atol=tolerance * run.case.slack * largest, err_msg=f"{run}: {what}",
    )  # fmt: skip


# On the device ------------------------------------------------------------------------------------


def on_device(x: Any, layout: str = "dense") -> Any:
    """An array of the device: dense, its dims turned around in memory, a memory's later part, or,
    of four dims, with its channels last.
    """
    if isinstance(x, (tuple, list)):
        return type(x)(on_device(part, layout) for part in x)
    if not isinstance(x, np.ndarray):
        return x
    if layout == "last" and x.ndim == 4:
        return fake_cuda.clothed(x.transpose(0, 2, 3, 1).copy()).transpose(0, 3, 1, 2)
    if layout == "turned":
        return fake_cuda.clothed(x.T.copy()).transpose()
    if layout == "shifted":
        memory = fake_cuda.clothed(np.empty(x.size + 1, x.dtype))
        memory[1:] = fake_cuda.clothed(x.reshape(-1).copy())
        return memory[1:].reshape(x.shape)
    return fake_cuda.clothed(x.copy("K"))


def layout_of(run: Run, k: int) -> str:
    """That of an operand."""
    if not run.layout.endswith("of them last"):
        return run.layout
    return "last" if run.layout.startswith(("first", "second")[k] if k < 2 else "-") else "dense"


if fake_cuda.REAL is None:

    def test_over_the_fake_cuda(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        toolchain.host_compiler()
        monkeypatch.setenv(SOURCES, str(tmp_path / "sources.json"))
        fake_cuda.passed(__file__, fused=True)
        toolchain.nvrtc()
        sources = json.loads((tmp_path / "sources.json").read_text())
        some = toolchain.some_of(sources)
        older = some[::5]
        for arch, these in (("90", [s for s in some if s not in older]), ("80", older)):
            for source, needs in zip(these, toolchain.compile_together(these, arch), strict=True):
                # a block of 1024 threads fits a processor; few bytes are what divisions call
                assert needs.registers <= 64 and needs.frame <= 40, (needs, source)

    def test_every_written_row_is_run() -> None:
        from cugrad.backends.cupy.written import registry

        forwards = {case.name for case in CASES if case.forward}
        backwards = {case.name for case in CASES if case.gradients}
        assert set(registry.FORWARDS) == forwards
        assert set(registry.BACKWARDS) == backwards | NO_KERNELS


else:
    from cugrad.backends.cupy.written import launch, ordering, registry, scans
    from cugrad.backends.cupy.written.placed import sums
    from cugrad.backends.cupy.written.sliding import direct, windows
    from cugrad.backends.moments import RunningStatistics, track_moment, waiting

    def run_forward(run: Run, args: list[Any], function: Any) -> Any:
        op = TABLE[run.case.name]
        full_args = [on_device(x, layout_of(run, k)) for k, x in enumerate(args)]
        params = {**op.defaults, **run.case.params}
        rest = [on_device(params[n]) for n in op.params]
        value = function(*full_args, *rest)
        assert value is not None, f"{run}: declined"
        return value if isinstance(value, tuple) else (value,)

    def run_backward(run: Run, args: list[Any], names: tuple[str, ...], function: Any) -> Any:
        """Gradients of some inputs by the kernels, and by the row's formulas."""
        op = TABLE[run.case.name]
        mask = sum(1 << op.inputs.index(n) for n in names)
        results = by_row(run, args)
        values = saved_of(run, args, results)
        saved = [values[name] for name in op.saves(mask)]
        g = np.asarray(np.random.default_rng(3).standard_normal(results[0].shape), run.dtype)
        operands = args[0] if op.variadic else args
        shapes = tuple([getattr(x, "shape", ()) for x in operands])
        params = {**op.defaults, **run.case.params}
        assert function is not None
        kernels = [on_device(x, run.layout) for x in saved]
        meta = shapes, params, tuple([getattr(x, "dtype", None) for x in operands]), None, False
        got = function(on_device(g, run.layout), kernels, meta)
        assert got is not None, f"{run}: declined"
        expected = op.gradients(mask)(raw, full(g), [full(x) for x in saved], shapes, params)
        return got, expected

    def inputs_of(run: Run) -> Any:
        op = TABLE[run.case.name]
        return repeat(op.inputs[0]) if op.variadic else op.inputs

    class Functions:
        """Those of rows, with what they keep. `compiled` runs each case by them; what is compared
        then is what they launch again.
        """

        def __init__(self) -> None:
            self._forwards: dict[str, Any] = {}
            self._backwards: dict[Any, Any] = {}

        def forward(self, op: Any) -> Any:
            if op.name not in self._forwards:
                self._forwards[op.name] = registry.forward_of(op, lambda *args, **params: None)
            return self._forwards[op.name]

        def backward(self, op: Any, names: tuple[str, ...]) -> Any:
            mask = sum(1 << op.inputs.index(n) for n in names)
            if (op.name, mask) not in self._backwards:
                self._backwards[op.name, mask] = registry.backward_of(op, mask, raw)
            return self._backwards[op.name, mask]

    PLAIN, BY_COLUMNS, BY_RANGES = Functions(), Functions(), Functions()

    def checked(run: Run, compare: bool, functions: Functions = PLAIN) -> None:
        args, op = operands(run, int(compare)), TABLE[run.case.name]
        if run.case.forward:
            results = run_forward(run, args, functions.forward(op))
            if compare:
                for k, expected in enumerate(by_row(run, args)):
                    agree(results[k], expected, run, f"result {k}")
        for names in run.case.gradients:
            got, expected = run_backward(run, args, names, functions.backward(op, names))
            for name, x, y in zip(inputs_of(run), got, expected):
                assert (x is None) == (y is None), f"{run}: gradient of {name}"
                if compare and y is not None:
                    agree(x, y, run, f"gradient of {name}")

    @pytest.fixture(scope="module", autouse=True)
    def compiled() -> Iterator[None]:
        fake_cuda.CHECKS = True
        with fake_cuda.compiled_together():
            for run in runs():
                checked(run, compare=False)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(direct, "FEW", 0)
                for run in by_columns():
                    checked(run, False, BY_COLUMNS)
                with_ranges(patch)
                for run in by_ranges():
                    checked(run, False, BY_RANGES)
        yield
        fake_cuda.CHECKS = False

    def test_the_sources_are_written_down() -> None:
        """For NVRTC, in the process that runs this one."""
        sources = [kernel.kernel.raw._code for kernel in launch._kernels.values()]
        assert sources
        if SOURCES in os.environ:
            Path(os.environ[SOURCES]).write_text(json.dumps(sources))

    @pytest.mark.parametrize("name", list(dict.fromkeys(case.name for case in CASES)))
    def test_a_kernel_computes_what_its_row_says(name: str) -> None:
        for run in runs():
            if run.case.name == name:
                checked(run, compare=True)

    def by_columns() -> list[Run]:
        """Convolutions that columns and cuBLAS compute where there is much to do."""
        return [run for run in runs() if run.case.name.startswith("convolution")
                and run.case.params.get("groups", 1) == 1]  # fmt: skip

    def test_columns_are_made_for_some_images_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(windows, "WORKSPACE", 8000)  # bytes: of one image or two of three
        monkeypatch.setattr(direct, "FEW", 0)
        for run in by_columns():
            checked(run, True, BY_COLUMNS)

    def test_parts_of_long_lines_are_equal_and_fit() -> None:
        for n, length in (
            (16386, 2731),
            (20000, 1000),
            (1 << 20, 1024),
            (16411, 0),
            (2 * 16411, 0),
        ):
            assert scans._length_of_parts(n) == length  # 16411 is a prime
        assert scans._length_of_parts(8209 * 3) == 8209

    def by_ranges() -> list[Run]:
        names = ("embedding_dense_backward", "index_select_backward", "index_add", "index_backward",
                 "embedding_bag_backward")  # fmt: skip
        return [run for run in runs() if run.case.name in names]

    def with_ranges(patch: pytest.MonkeyPatch) -> None:
        """Rows are listed by index before they are added up, however few; more than 4 by many."""
        for name, value in (("SEVERAL", 0), ("NARROW", 1), ("MANY", 4)):
            patch.setattr(sums, name, value)

    def test_rows_are_added_up_by_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
        with_ranges(monkeypatch)
        for run in by_ranges():
            checked(run, True, BY_RANGES)

    STATISTICS = [("float32", "float32"), ("float16", "float32"), (BFLOAT16, BFLOAT16),
                  ("float64", "float64")]  # fmt: skip

    @pytest.mark.parametrize("shape", [(4, 3, 5), (70, 33), (2, 2, 1500)])
    def test_running_statistics_move_in_the_kernel_that_finds_them(shape: tuple[int, ...]) -> None:
        rng = np.random.default_rng(0)
        for dtype, kept in STATISTICS if len(shape) == 3 and shape[2] == 5 else STATISTICS[:1]:
            x = rng.standard_normal(shape).astype(dtype)
            before = [rng.random(shape[1]).astype(kept) for _ in range(2)]
            mean, var, batches = map(on_device, (*before, np.array(3)))
            waiting.now = moving = RunningStatistics(mean, var, batches, 0.3)
            result = registry.FORWARDS["native_batch_norm"](on_device(x), None, None, 1e-5)
            assert result is not None and moving.moved and waiting.now is None
            assert batches._host == 4
            _, means, factors = by_row(Run(Case("native_batch_norm", "", list), x.dtype, ""),
                                       [x, None, None])  # fmt: skip
            expected = [full(b) for b in before]
            count = x.size // shape[1]
            track_moment(expected[0], means, 0.3)
            track_moment(expected[1], factors, 0.3, 1e-5, count / (count - 1))
            tolerance = 10 * max(TOLERANCES[np.dtype(d).name] for d in (kept, "float32"))
            for got, want in zip((mean, var), expected):
                np.testing.assert_allclose(got._host.astype(np.float64), want, tolerance, tolerance)

    def test_a_batch_norm_without_running_statistics_takes_none() -> None:
        """Nor one whose statistics the kernel cannot change: they are left to the caller."""
        x, counted = np.ones((2, 3), np.float32), np.zeros((), np.int32)
        for mean in (None, on_device(np.zeros(6, np.float32))[::2]):
            waiting.now = moving = RunningStatistics(mean, None, on_device(counted), 0.1)
            assert registry.FORWARDS["native_batch_norm"](on_device(x), None, None, 1e-5)
            assert not moving.moved and waiting.now is None

    FORMS = ("dense", "turned", "dense", "shifted", "last", "turned", "last")
    FIRST: dict[str, Run] = {}  # of each row, with gradients if there are any
    for _run in sorted(runs(), key=lambda run: not run.case.gradients):
        if _run.layout == "dense" and _run.dtype == DTYPES[0]:
            FIRST.setdefault(_run.case.name, _run)

    @pytest.mark.parametrize("name", FIRST)
    def test_what_is_launched_again_is_for_operands_of_the_form(name: str) -> None:
        in_turn(FIRST[name])

    def test_so_it_is_for_convolutions_by_columns(monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(direct, "FEW", 0)
        for name, first in FIRST.items():
            if name.startswith("convolution"):
                in_turn(first)

    def in_turn(first: Run) -> None:
        """The same functions are given operands that lie otherwise in turn, each time others."""
        op = TABLE[first.case.name]
        functions = Functions()
        back = {names: functions.backward(op, names) for names in first.case.gradients}
        forward = functions.forward(op) if first.case.forward else None
        for seed, layout in enumerate(FORMS):
            run = first._replace(layout=layout)
            args = operands(run, seed)
            if forward is not None:
                results = run_forward(run, args, forward)
                for k, expected in enumerate(by_row(run, args)):
                    agree(results[k], expected, run, f"result {k}")
            for names, function in back.items():
                got, expected = run_backward(run, args, names, function)
                for name, x, y in zip(inputs_of(run), got, expected):
                    if y is not None:
                        agree(x, y, run, f"gradient of {name}")
        if registry.FORWARDS.get(op.name) in registry.KEPT:
            assert forward is None or forward.kept.launches
        if registry.BACKWARDS.get(op.name) in registry.KEPT:
            functions: list[Any] = list(back.values())
            assert all(function.kept.launches for function in functions)

    def test_launches_are_kept_by_the_form_of_operands() -> None:
        """One array in two places makes no plan, in which they would be one for ever."""
        rng = np.random.default_rng(0)
        run: Any = registry.forward_of(TABLE["softmax_backward"], lambda *args: None)
        a, b, c = (on_device(rng.standard_normal((3, 11)).astype(np.float32)) for _ in range(3))
        run(a, a, 1)
        assert not run.kept.launches
        for operands in ((a, b), (b, c), (c, c)):
            got = run(*operands, 1)
            assert len(run.kept.launches) == 1
            xp = get("cpu").xp
            expected = TABLE["softmax_backward"].forward(xp, *[x._host for x in operands], 1)
            np.testing.assert_allclose(got._host, expected, 1e-4, 1e-5)
        host = np.ones((3, 11), np.float32)
        assert run(host, host, 1) is None  # what is no array of the device is declined

    def test_sums_in_any_order_are_not_kept_for_those_in_one(
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        grad = on_device(np.ones(2 * ordering.MOST, np.float32))
        index = on_device(np.zeros(grad.shape, np.int64))
        run = registry.forward_of(TABLE["gather_backward"], lambda *args, **params: None)
        assert run(grad, index, (2,), 0)._host.tolist() == [2 * ordering.MOST, 0]
        monkeypatch.setattr(wanted, "deterministic", True)
        assert run(grad, index, (2,), 0) is None

    def test_products_in_any_order_are_not_made_where_bits_must_be_the_same(
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(wanted, "deterministic", True)
        x, index = on_device(np.ones((3, 2), np.float32)), on_device(np.zeros((3, 2), np.int64))
        run = registry.FORWARDS["scatter_reduce"]
        assert run(x, index, x, 0, "prod", True) is None
        assert run(x, index, x, 0, "amax", True)._host.tolist() == [[1, 1]] * 3
