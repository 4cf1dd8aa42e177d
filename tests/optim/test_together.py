"""Steps of many parameters in few launches are the steps of each, bit for bit."""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cupy", reason="CuPy is not installed")
ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")

import cugrad  # noqa: E402
from cugrad.backends.wanted import wanted  # noqa: E402
from cugrad.optim.rules import batches  # noqa: E402
from tests.backends import cuda_toolchain as toolchain  # noqa: E402
from tests.optim.settings import ROUGH, SETTINGS  # noqa: E402
from tests.support import fake_cuda  # noqa: E402

pytestmark = pytest.mark.host_only

SIZES = [(3, 5), (4100,), (), (0,), (1,), (17,)]  # more than a block's part, none, one, odd
DTYPES = ["float32", "bfloat16", "float64", "float16", "complex64"]
SOURCES = "CUGRAD_TEST_SOURCES"  # the file for the sources that the process below makes
BY_TENSOR = ("Adafactor", *ROUGH)  # whose rules are no formulas of elements


def cases() -> Iterator[tuple[str, str, dict[str, Any], str]]:
    """Optimizers with settings, each in one way and dtype after the other."""
    for k, (name, settings) in enumerate(SETTINGS):
        if name in BY_TENSOR:
            continue
        takes = inspect.signature(getattr(cugrad.optim, name)).parameters
        ways = ["", *[way for way in ("capturable", "fused") if way in takes]]
        way, dtype = ways[k % len(ways)], DTYPES[k % 5]
        if way == "fused" and dtype == "complex64":
            dtype = "float32"
        chosen = {**settings, way: True} if way else settings
        yield f"{name}-{k}-{way}-{dtype}", name, chosen, dtype


CASES = list(cases())
STACKED = [(name, settings, ["float32", "bfloat16", "float64"][k % 3])
           for k, (name, settings) in enumerate(SETTINGS) if name in BY_TENSOR]  # fmt: skip
STACKS = {"Adafactor": [(3, 5), (17,), (3, 5), (4100,), (), (17,), (0,), (2, 3, 4), (3, 5), ()],
          "Muon": [(3, 5), (3, 5), (6, 4), (3, 5), (2, 2)]}  # fmt: skip


def drawn(rng: Any, shape: tuple[int, ...], dtype: str) -> Any:
    values = rng.standard_normal((2, *shape))
    host = values[0] + 1j * values[1] if dtype == "complex64" else values[0]
    there = cugrad.tensor(np.asarray(host)).to(getattr(cugrad, dtype))
    return there.to("cuda")  # a cast there is a kernel or not, and rounds otherwise


def taken(name: str, settings: dict[str, Any], dtype: str, together: bool) -> list[Any]:
    """Parameters and states after three steps, the last one of which some parameters miss."""
    rng = np.random.default_rng(3)
    sizes = STACKS.get(name, SIZES)
    params = [drawn(rng, shape, dtype).requires_grad_() for shape in sizes]
    before, wanted.fused = wanted.fused, together
    try:
        optimizer = getattr(cugrad.optim, name)(params, **settings)
        for step in range(3):
            for k, (param, shape) in enumerate(zip(params, sizes)):
                grad = drawn(rng, shape, dtype)
                param.grad = None if (step, k) in ((0, 5), (2, 1)) else grad
            optimizer.step()
    finally:
        wanted.fused = before
    states = [x for p in params for _, x in sorted(optimizer.state[p].items()) if x is not None]
    return [x.detach() for x in (*params, *states)]


def host(x: Any) -> Any:
    array = getattr(x._array, "_host", x._array)
    return array.view("u2") if array.dtype.itemsize == 2 else array


if fake_cuda.REAL is None:

    def test_over_the_fake_cuda(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        toolchain.host_compiler()
        monkeypatch.setenv(SOURCES, str(tmp_path / "sources.json"))
        fake_cuda.passed(__file__, fused=True)
        toolchain.nvrtc()
        from cugrad.backends.cupy.fused.launch import OPTIONS

        sources = json.loads((tmp_path / "sources.json").read_text())
        found = toolchain.compile_together(sources, "90", OPTIONS)
        for source, needs in zip(sources, found, strict=True):
            assert needs.registers <= 64 and needs.frame == 0, (needs, source)

else:
    from cugrad.backends.cupy.fused import lists

    @pytest.fixture(scope="module", autouse=True)
    def compiled() -> Iterator[None]:
        fake_cuda.CHECKS = True
        with fake_cuda.compiled_together():
            for _, name, settings, dtype in CASES:
                taken(name, settings, dtype, True)
            for name, settings, dtype in STACKED:
                taken(name, settings, dtype, True)
            for settings, _ in MANY:
                adam([cugrad.zeros(2, device="cuda") for _ in range(2)], **settings).step()
            for name in SCALED:
                for _ in scaled_steps(name):
                    pass
            for views in positions():
                adam([x.requires_grad_() for x in views]).step()
            for p in NORMS:
                for kind in KINDS:
                    clipped(p, kind, True)
        yield
        fake_cuda.CHECKS = False

    @pytest.mark.parametrize(
        ("label", "name", "settings", "dtype"), CASES, ids=[c[0] for c in CASES]
    )
    def test_each_way(label: str, name: str, settings: dict[str, Any], dtype: str) -> None:
        for ours, plain in zip(*(taken(name, settings, dtype, t) for t in (True, False))):
            if dtype == "float64" and settings.get("capturable"):  # two libraries' powers
                np.testing.assert_allclose(host(ours), host(plain), 1e-14, 1e-15, err_msg=label)
            else:
                np.testing.assert_array_equal(host(ours), host(plain), err_msg=label)

    @pytest.mark.parametrize(("name", "settings", "dtype"), STACKED)
    def test_stacks_of_one_shape(
        name: str, settings: dict[str, Any], dtype: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A rule of whole tensors, on all of one shape: three of them, and fewer."""
        monkeypatch.setattr(batches, "MOST_BYTES", 1 << 13)  # 4100 numbers are more
        for ours, plain in zip(*(taken(name, settings, dtype, t) for t in (True, False))):
            rough = dtype == "bfloat16" or name in ROUGH
            near = 3e-2 if rough else 1e-5 if dtype == "float32" else 1e-12
            assert ours.dtype is plain.dtype
            values = [x.to("cpu", cugrad.float64).numpy() for x in (ours, plain)]
            np.testing.assert_allclose(*values, rtol=near, atol=near / 10, err_msg=name)

    @contextmanager
    def launches(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
        """The names of the kernels that are launched inside."""
        names: list[str] = []
        before = fake_cuda.RawKernel.__call__

        def noted(self: Any, *args: Any, **kwargs: Any) -> None:
            names.append(self._name)
            before(self, *args, **kwargs)

        with monkeypatch.context() as patch:
            patch.setattr(fake_cuda.RawKernel, "__call__", noted)
            yield names

    MANY = [({}, 2), ({"capturable": True}, 3), ({"amsgrad": True}, 2)]
    SCALED = ("Adam", "AdamW", "SGD", "Adagrad")

    def adam(params: list[Any], **settings: Any) -> Any:
        for k, param in enumerate(params):
            param.grad = cugrad.full_like(param, 0.5 + k)
        return cugrad.optim.Adam(params, lr=0.25, **settings)

    def test_hundreds_of_parameters_take_few_launches(monkeypatch: pytest.MonkeyPatch) -> None:
        """Of the 148 of GPT-2 two; where counts are on the device, one more."""
        for settings, most in MANY:
            params = [cugrad.zeros(3, device="cuda", requires_grad=True) for _ in range(148)]
            optimizer = adam(params, **settings)
            optimizer.step()
            with launches(monkeypatch) as names:
                optimizer.step()
            assert len(names) <= most
            values = np.array([param.tolist() for param in params])
            np.testing.assert_allclose(values, values[0, 0], rtol=1e-6)

    def scaled_steps(name: str) -> Iterator[tuple[Any, float]]:
        """An optimizer about to step, with gradients of 2, four times as large, one not finite."""
        params = [drawn(np.random, (n,), "float32").requires_grad_() for n in (3, 4100)]
        optimizer = getattr(cugrad.optim, name)(params, lr=0.25, fused=True)
        for bad in (0.0, 1.0):
            for param in params:
                param.grad = cugrad.full_like(param, 8.0)
            optimizer.grad_scale = cugrad.tensor(4.0, device="cuda")
            optimizer.found_inf = cugrad.tensor(bad, device="cuda")
            yield optimizer, bad
            optimizer.step()

    @pytest.mark.parametrize("name", SCALED)
    def test_a_step_that_is_scaled_waits_for_nothing(
        name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """And is none if a gradient was not finite: not even the count goes on."""
        for optimizer, bad in scaled_steps(name):
            before = [x.clone() for x in tensors_of(optimizer)]
            fake_cuda.STATE.syncs.clear()
            with launches(monkeypatch) as names:
                optimizer.step()
            assert fake_cuda.STATE.syncs == [] and len(names) == 2
            same = [bool((a == b).all()) for a, b in zip(before, tensors_of(optimizer))]
            assert all(same) if bad else not any(same)
            grad = optimizer.param_groups[0]["params"][0].grad
            assert grad.tolist() == [8.0 if bad else 2.0] * 3
            grad.fill_(8.0)

    def tensors_of(optimizer: Any) -> list[Any]:
        params = optimizer.param_groups[0]["params"]
        return [*params, *[x for p in params for x in optimizer.state[p].values()]]

    def positions() -> Iterator[list[Any]]:
        """Arrays that are dense in some order, at any address; others; and such as share memory."""
        memory, cube = cugrad.zeros(40, device="cuda"), cugrad.zeros(2, 3, 4, 5, device="cuda")
        dense = [cube.to(memory_format=cugrad.channels_last), memory[1:8], cube[0, 0].t()]
        apart = [memory[8:30:2], cube[1, 0, :, :2], cube[1, 1]]
        yield from (dense, apart, [*dense, *apart], [memory[:3], memory[2:5]])

    def test_arrays_are_updated_wherever_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
        results = []
        for together in (True, False):
            monkeypatch.setattr(wanted, "fused", together)
            for views in positions():
                optimizer = adam([x.requires_grad_() for x in views])
                optimizer.step()
                optimizer.step()
                results.append([x.tolist() for x in views])
        assert results[:4] == results[4:]

    NORMS = [2.0, 1.0, 3.5, inf]
    KINDS = [("float32",), ("bfloat16", "float32"), ("float64", "float16"), ("complex64",)]

    def clipped(p: float, kinds: tuple[str, ...], together: bool) -> list[Any]:
        rng = np.random.default_rng(0)
        shapes = [(4100,), (3,), (0,), (5, 2), ()]
        params = [drawn(rng, shape, kinds[k % len(kinds)]) for k, shape in enumerate(shapes)]
        apart = drawn(rng, (6, 4), kinds[0])[:, ::2]  # that no kernel goes through
        for param in (*params, apart):
            param.grad = drawn(rng, tuple(param.shape), str(param.dtype)[6:])
        apart.grad = drawn(rng, (6, 4), kinds[0])[:, ::2]
        before, wanted.fused = wanted.fused, together
        try:
            total = cugrad.nn.utils.clip_grad_norm_([*params, apart], 2.0, p)
        finally:
            wanted.fused = before
        return [total, *[x.grad for x in (*params, apart)]]

    @pytest.mark.parametrize("kinds", KINDS, ids="-".join)
    @pytest.mark.parametrize("p", NORMS)
    def test_gradients_are_clipped_to_the_same(p: float, kinds: tuple[str, ...]) -> None:
        results = [clipped(p, kinds, together) for together in (True, False)]
        near = {"float32": 2e-6, "complex64": 2e-6}.get(kinds[0], 2e-2)
        for ours, plain in zip(*results, strict=True):
            assert ours.dtype is plain.dtype
            both = [x.to(x.dtype if x.is_complex() else cugrad.float64) for x in (ours, plain)]
            np.testing.assert_allclose(*[x._array._host for x in both], rtol=near, atol=1e-7)

    def test_a_norm_is_one_launch_and_a_scale_another(monkeypatch: pytest.MonkeyPatch) -> None:
        params = [cugrad.ones(3, device="cuda") for _ in range(180)]
        for param in params:
            param.grad = cugrad.ones(3, device="cuda")
        for bad in (1.0, float("nan")):
            params[7].grad[1] = bad
            with launches(monkeypatch) as names:
                total = cugrad.nn.utils.clip_grad_norm_(params, 2.0)
            assert names == ["norm_of_lists", "scale_lists"]
        assert total.isnan().item() and params[9].grad.isnan().all().item()

    def test_a_scaler_waits_for_no_fused_step(monkeypatch: pytest.MonkeyPatch) -> None:
        """And does on the device what it does on the host, whatever the optimizer."""
        results = []
        for device, fused in (("cpu", False), ("cuda", False), ("cuda", True)):
            w = cugrad.ones(3, device=device, requires_grad=True)
            scaler = cugrad.amp.GradScaler(device, init_scale=8.0, growth_interval=2)
            optimizer = cugrad.optim.SGD([w], lr=0.25, fused=fused)
            for step in range(7):
                scaler.scale((w * (inf if step == 3 else 1.5)).sum()).backward()
                fake_cuda.STATE.syncs.clear()
                with launches(monkeypatch) as names:
                    scaler.step(optimizer)
                    scaler.update()
                assert len(fake_cuda.STATE.syncs) == (device == "cuda" and not fused)
                assert device == "cpu" or len(names) <= 6
                optimizer.zero_grad()
                results.append((w.tolist(), scaler.get_scale(), scaler._get_growth_tracker()))
        assert results[:7] == results[7:14] == results[14:]
        assert results[-1][1:] == (16.0, 1)

    def test_the_sources_are_written_down() -> None:
        """For NVRTC, in the process that runs this one."""
        codes = [
            kernel.raw._code for key, (kernel, *_) in lists._kernels.items() if "4" in str(key)
        ]
        assert len(codes) > 30
        if SOURCES in os.environ:
            Path(os.environ[SOURCES]).write_text(json.dumps(codes[::4]))
