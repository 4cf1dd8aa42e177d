"""The kernels of attention, run from their source on the CPU, compute what tensor functions do."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

pytest.importorskip("cupy", reason="CuPy is not installed")
ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")

import cugrad  # noqa: E402
from cugrad.backends.attending import ways_in_order  # noqa: E402
from cugrad.backends.cupy.kernels import code, tensor_cores, tensor_gradients  # noqa: E402
from cugrad.memory import offload  # noqa: E402
from cugrad.nn.functional import dot_product_attention as definition  # noqa: E402
from tests.backends import cuda_toolchain as toolchain  # noqa: E402
from tests.support import fake_cuda  # noqa: E402

pytestmark = [
    pytest.mark.host_only,
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
]

Host = np.ndarray[Any, Any]
SOURCES = "CUGRAD_TEST_SOURCES"
TOLERANCES = {"float64": 1e-12, "float32": 1e-5, "float16": 2e-3, "bfloat16": 1e-2}


class Case(NamedTuple):
    """Sizes: leading dims, queries, keys, width of queries and of values; and what else there is.

    `mask` is its shape, with "bool" or "float"; `turned` operands are views of (L, heads, width).
    """

    lead: tuple[int, ...]
    queries: int
    keys: int
    width: int
    values: int
    dtype: str = "float32"
    causal: bool = False
    start: int = 0
    groups: int = 1
    p: float = 0.0
    mask: tuple[str, tuple[int, ...]] | None = None
    turned: bool = False
    cores: bool = True  # whether the device has tensor cores
    scale: float | None = None


CASES = [
    Case((2, 3), 5, 7, 8, 4),
    Case((1, 2), 65, 33, 16, 16, turned=True),
    Case((2,), 70, 70, 20, 33, causal=True),
    Case((1, 2), 20, 40, 8, 8, causal=True, start=20),
    Case((1, 4), 6, 40, 64, 64, groups=2),
    Case((2, 2), 9, 9, 8, 8, mask=("bool", (9, 9))),
    Case((2, 2), 9, 35, 8, 8, mask=("float", (2, 1, 9, 35))),
    Case((1, 1), 3, 4, 8, 8, p=0.5),
    Case((1, 2), 33, 34, 8, 8, p=0.3, causal=True),
    Case((2, 2), 18, 20, 12, 12, "float16", mask=("bool", (1, 1, 20)), turned=True),
    Case((2, 2), 18, 20, 16, 16, "bfloat16", causal=True),
    Case((1, 2), 34, 35, 20, 12, "float64", mask=("float", (34, 35)), p=0.2),
    Case((), 1, 1, 1, 1),
    # on tensor cores: blocks of 64 or 128, tiles of 16 to 64
    Case((1, 2), 65, 129, 64, 64, "bfloat16", turned=True),
    Case((1, 1), 70, 70, 16, 16, "float16", causal=True),
    Case((1, 2), 20, 70, 80, 80, "bfloat16", causal=True, start=50, groups=2),
    Case((2, 1), 33, 31, 96, 40, "float16", mask=("float", (33, 31))),
    Case((1, 2), 17, 65, 128, 128, "bfloat16", mask=("bool", (1, 1, 65)), p=0.2),
    Case((1, 1), 66, 34, 128, 128, "float16", causal=True),
    Case((1, 4), 5, 66, 64, 64, "float16", p=0.5, groups=4),
    Case((1, 2), 9, 10, 7, 5, "bfloat16", turned=True),  # pieces of one number
    Case((3,), 1, 80, 18, 22, "float16"),
    Case((2, 1, 3), 5, 7, 8, 8, "bfloat16", turned=True),  # more dims than the kernels know
    Case((1, 2), 130, 129, 64, 64, "bfloat16", causal=True),
    Case((1, 1), 40, 70, 16, 16, "float16", scale=-0.7),  # the largest product is the least score
    Case((2, 2), 9, 70, 16, 16, "bfloat16", causal=True, start=61, scale=0.0, groups=2),
    # the gradient of a mask that was broadcast in no dim, or in some
    Case((2, 4), 18, 35, 8, 8, mask=("float", (2, 4, 18, 35))),
    Case((2, 4), 18, 35, 8, 8, mask=("float", (1, 4, 18, 1)), groups=2),
    Case((2, 2), 18, 35, 8, 8, "bfloat16", mask=("float", (2, 1, 1, 35))),
    Case((2, 3), 5, 40, 20, 12, "float64", mask=("float", (1, 1))),
    Case((3,), 33, 20, 8, 8, mask=("float", (3, 33, 20)), turned=True),
    # heads of which a block has a piece at a time
    Case((1, 2), 18, 35, 160, 130, mask=("float", (1, 1, 18, 35))),
    Case((1, 2), 20, 33, 250, 256, causal=True, groups=2),
    Case((2, 1), 17, 18, 200, 256, "bfloat16", mask=("bool", (17, 18)), p=0.2),
    Case((1, 1), 34, 17, 100, 128, "float64", p=0.2),
    Case((1, 1), 17, 34, 256, 200, "float64", mask=("float", (17, 34))),
    # float32 on tensor cores: of several tiles and blocks, in the widest heads, in odd ones
    Case((1, 2), 66, 70, 64, 48, causal=True, turned=True),
    Case((1, 2), 65, 34, 100, 128, mask=("float", (65, 34)), p=0.2),
    Case((1, 4), 50, 66, 96, 70, causal=True, start=16, groups=2),
    Case((1, 1), 18, 49, 33, 31, scale=-0.7),
    # without tensor cores
    Case((1, 2), 66, 33, 16, 16, turned=True, cores=False),  # what was launched is kept by form
    Case((1, 2), 20, 34, 70, 40, mask=("float", (20, 34)), p=0.2, cores=False),
    Case((1, 2), 18, 35, 12, 12, "float16", causal=True, cores=False),
    Case((1, 2), 9, 33, 70, 70, "bfloat16", mask=("bool", (9, 33)), cores=False),
]


def operands(case: Case, seed: int = 0) -> list[Any]:
    """Query, key, value, mask and bits, all on the host."""
    rng = np.random.default_rng((case.queries, seed))
    n = np.dtype(getattr(ml_dtypes, case.dtype, None) or case.dtype)
    few = (*case.lead[:-1], case.lead[-1] // case.groups) if case.groups > 1 else case.lead
    shapes = [(*case.lead, case.queries, case.width), (*few, case.keys, case.width),
              (*few, case.keys, case.values)]  # fmt: skip
    arrays: list[Any] = [rng.standard_normal(shape).astype(n) for shape in shapes]
    if case.turned:
        arrays = [x.swapaxes(-2, -3).copy().swapaxes(-2, -3) for x in arrays]
    mask = None
    if case.mask is not None:
        kind, shape = case.mask
        seen = rng.random(shape) < 0.7
        seen[..., :1, :] &= len(shape) < 4 or shape[-2] == 1  # the first query sees nothing
        mask = seen if kind == "bool" else np.where(seen, rng.random(shape), -np.inf).astype(n)
    whole = (*case.lead, case.queries, case.keys)
    bits = None if case.p == 0 else np.packbits(rng.random(whole) >= case.p)
    return [*arrays, mask, bits]


def setting(case: Case) -> definition.AttentionSettings:
    scale = case.width**-0.5 if case.scale is None else case.scale
    return definition.AttentionSettings(case.p, case.causal, scale, case.groups, case.start)


def has_slope(case: Case) -> bool:
    """Whether the mask has a gradient."""
    return case.mask is not None and case.mask[0] == "float"


def by_definition(case: Case, args: list[Any]) -> tuple[Host, Host, list[Host]]:
    """The result in float64, a gradient of it, and the gradients of query, key and value, and of a
    mask that is added.
    """
    wide = [None if x is None else cugrad.tensor(x.astype("f8") if x.dtype.kind in "fV" else x,
            device="cpu") for x in args]  # fmt: skip
    leaves = wide[: 3 + has_slope(case)]
    for x in leaves:
        x.requires_grad_()
    result = definition._forward(*wide, setting(case))
    g = np.random.default_rng(1).standard_normal(result.shape).astype(args[0].dtype)
    slope = cugrad.tensor(g.astype("f8"), device="cpu")
    grads = cugrad.autograd.grad(result, leaves, slope)
    return result.detach().numpy(), g, [x.numpy() for x in grads]


def agree(got: Any, expected: Host, case: Case, what: str) -> None:
    tolerance = TOLERANCES[case.dtype]
    np.testing.assert_allclose(
        got._host.astype("f8"), expected, rtol=tolerance,
        atol=tolerance * max(1.0, float(np.abs(expected).max())), err_msg=f"{case}: {what}",
    )  # fmt: skip


if fake_cuda.REAL is None:

    def test_over_the_fake_cuda(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        toolchain.host_compiler()
        monkeypatch.setenv(SOURCES, str(tmp_path / "sources.json"))
        fake_cuda.passed(__file__, fused=True)
        toolchain.nvrtc()
        sources = json.loads((tmp_path / "sources.json").read_text())
        some = toolchain.some_of([s for s in sources if "BFLOAT" not in s])  # others: see below
        older = some[::5]
        for arch, these in (("90", [s for s in some if s not in older]), ("80", older)):
            for source, needs in zip(these, toolchain.compile_together(these, arch), strict=True):
                # two blocks of 256 threads fit a processor, one of the widest heads; few bytes are
                # what divisions call
                most = 255 if "int D = 256" in source else 128
                assert needs.registers <= most and needs.frame <= 40, (needs, source)

    @pytest.mark.parametrize(("width", "dropped", "arch"), [(128, 1, "90"), (64, 0, "80")])
    def test_what_takes_most_registers_on_tensor_cores_spills_none(
        width: int, dropped: int, arch: str
    ) -> None:
        """Each width on the GPU where it takes more of them."""
        toolchain.nvrtc()
        sources = []
        for name, text in (tensor_cores.KERNELS | tensor_gradients.KERNELS).items():
            tile = 32 if width == 128 else 64
            tile = tile // 2 if name == "tensor_attention_keys" else tile
            warps = 8 if (width, name) == (64, "tensor_attention") else 4
            settings = {"TILE": tile, "WARPS": warps, "BANDS": 1, "BFLOAT": 1}
            settings |= {"OTHERS": int(name != "tensor_attention"), "MASK": 2 * dropped}
            settings["DROPPED"] = dropped
            sources.append(code(text, "bfloat16", "float32", 8, D=width, **settings))
        for needs in toolchain.compile_together(sources, arch):
            assert needs.registers <= 255 and needs.frame == 0, needs

    @pytest.mark.parametrize(("width", "most"), [(64, 16), (128, 32)])
    def test_of_float32_few_registers_are_spilled(width: int, most: int) -> None:
        """Bytes in the memory of a thread, of up to 255 registers of four."""
        toolchain.nvrtc()
        cuts = import_module("cugrad.backends.cupy.written.attention").CUTS_OF_FLOAT32
        sources = []
        for name, text in (tensor_cores.KERNELS | tensor_gradients.KERNELS).items():
            cut = cuts[name.removeprefix("tensor_")][width > 64]
            settings = {"TILE": cut.tile, "WARPS": cut.warps, "BANDS": cut.bands, "BFLOAT": 0}
            settings |= {"OTHERS": int(name != "tensor_attention"), "MASK": 2, "DROPPED": 1}
            sources.append(code(text, "float32", "float32", 4, D=width, **settings))
        for needs in toolchain.compile_together(sources, "90"):
            assert needs.registers <= 255 and needs.frame <= most, needs


else:
    from cugrad.backends.cupy import written
    from cugrad.backends.cupy.written import launch
    from cugrad.backends.owners import root_of

    attention = import_module("cugrad.backends.cupy.written.attention")

    def on_device(x: Any) -> Any:
        """An array that lies as it does on the host."""
        return None if x is None else fake_cuda.clothed(x.copy("K"))

    def run(case: Case, args: list[Any], g: Host | None) -> Any:
        attention.has_tensor_cores = lambda device: case.cores
        how, arrays = setting(case), [on_device(x) for x in args]
        results = written.attention(*arrays, how)
        assert results is not None, f"{case}: declined"
        g = np.zeros(results[0].shape, args[0].dtype) if g is None else g
        grads = written.attention_backward(on_device(g), *arrays, *results, how)
        assert grads is not None, f"{case}: declined"
        if has_slope(case):
            slope = written.attention_of_mask(on_device(g), *arrays, *results, how)
            assert slope is not None and slope.dtype == args[3].dtype, f"{case}: declined"
            grads = (*grads, slope)
        return results[0], grads

    @pytest.fixture(scope="module", autouse=True)
    def compiled() -> Iterator[None]:
        fake_cuda.CHECKS = True
        with fake_cuda.compiled_together():
            for case in CASES:
                run(case, operands(case), None)
            second_derivatives("cuda")
        yield
        fake_cuda.CHECKS = False

    def test_the_sources_are_written_down() -> None:
        if SOURCES in os.environ:
            sources = [kernel.kernel.raw._code for kernel in launch._kernels.values()]
            Path(os.environ[SOURCES]).write_text(json.dumps(sources))

    @pytest.mark.parametrize("case", CASES, ids=[f"{k}" for k in range(len(CASES))])
    def test_kernels_compute_what_tensor_functions_do(case: Case) -> None:
        args = operands(case)
        result, g, grads = by_definition(case, args)
        got, slopes = run(case, args, g)
        agree(got, result, case, "the result")
        names = ("query", "key", "value", "mask")[: len(grads)]
        for name, x, y, operand in zip(names, slopes, grads, args, strict=False):
            agree(x, y, case, f"the gradient of {name}")
            assert x._host.ndim > 4 or x.strides == operand.strides  # these are dense

    PLAIN = Case((2, 2), 9, 9, 8, 8)
    ALIKE = [PLAIN, PLAIN._replace(causal=True), PLAIN._replace(mask=("bool", (9, 9))),
             PLAIN._replace(mask=("float", (9, 9))), PLAIN._replace(mask=("float", (2, 1, 9, 9))),
             PLAIN._replace(p=0.5), PLAIN._replace(turned=True),
             PLAIN._replace(scale=-0.7)]  # fmt: skip

    def test_what_is_launched_again_is_for_operands_of_the_form() -> None:
        """Operands of one shape in turn, each time others, with other masks and settings."""
        with fake_cuda.compiled_together():
            for case in ALIKE:
                run(case, operands(case), None)
        before = len(written.attention.kept.launches)
        for seed, case in enumerate([*ALIKE, *ALIKE[::-1]], 1):
            args = operands(case, seed)
            result, g, grads = by_definition(case, args)
            got, slopes = run(case, args, g)
            agree(got, result, case, "the result")
            for name, x, y in zip(("query", "key", "value"), slopes, grads):
                agree(x, y, case, f"the gradient of {name}")
        assert len(written.attention.kept.launches) == before, "nothing was decided again"

    def test_operands_that_are_one_array_are_not_launched_for_as_others() -> None:
        """Nor are those in one piece of memory, whose gradients are, for those that lie apart."""
        case, seen = PLAIN._replace(lead=(2, 3)), []
        for seed, form in enumerate(
            ["apart", "alias", "apart", "whole", "apart", "alias", "whole", "apart"]
        ):
            q, k, v, *rest = operands(case, seed)
            if form == "alias":
                v = k
            result, g, grads = by_definition(case, [q, k, v, *rest])
            arrays = list(on_device(np.stack([q, k, v])) if form == "whole" else
                          map(on_device, (q, k, v)))  # fmt: skip
            if form == "alias":
                arrays[2] = arrays[1]
            got = written.attention(*arrays, *rest, setting(case))
            slopes = written.attention_backward(on_device(g), *arrays, *rest, *got, setting(case))
            agree(got[0], result, case, form)
            grads = [grads[0], grads[1], grads[2]]
            for x, y in zip(slopes, grads):
                agree(x, y, case, form)
            seen.append(len({id(root_of(x)) for x in slopes}))
        assert seen == [3, 3, 3, 1, 3, 3, 1, 3]

    def test_ways_that_are_disabled_are_not_taken() -> None:
        x = [on_device(np.ones((1, 1, 2, 8), np.float16)) for _ in range(3)]
        wide = [on_device(np.ones((1, 1, 2, 8), np.float32)) for _ in range(3)]
        how = definition.AttentionSettings(0.0, False, 1.0)
        ways, kernel = cugrad.nn.attention.SDPBackend, cugrad.nn.attention.sdpa_kernel
        attention.has_tensor_cores = lambda device: True
        for way, takes in ((ways.FLASH_ATTENTION, (True, False)), (ways.MATH, (False, False)),
                           (ways.EFFICIENT_ATTENTION, (True, True))):  # fmt: skip
            with kernel(way):
                how = how._replace(ways=ways_in_order())
                setting = attention._setting(*x, None, None, how)
                assert (setting is not None) == takes[0]
                assert setting is None or setting.on_cores == (way is ways.FLASH_ATTENTION)
                assert (attention._setting(*wide, None, None, how) is not None) == takes[1]

    def second_derivatives(device: str) -> list[Host]:
        """Behind the result and its first ones."""
        x = np.random.default_rng(0).standard_normal((3, 1, 2, 5, 8))
        q, k, v = (cugrad.tensor(a, device=device, requires_grad=True) for a in x)
        y = cugrad.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        plain = cugrad.autograd.grad(y.sum(), (q, k, v), retain_graph=True)
        (first,) = cugrad.autograd.grad((y * y).sum(), q, create_graph=True)
        second = cugrad.autograd.grad(first.sum(), k)
        return [z.detach().cpu().numpy() for z in (y, *plain, first, *second)]

    def test_the_function_uses_them_and_its_second_derivative_does_not() -> None:
        both = [second_derivatives(device) for device in ("cuda", "cpu")]
        for ours, theirs in zip(*both, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-12)
        used = {key[0] for key in launch._kernels}
        assert {"attention", "attention_queries", "attention_keys"} <= used

    @pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
    @pytest.mark.parametrize("leaves", ["all", "mask"])
    def test_a_mask_gets_its_gradient_without_the_scores(
        dtype: str, leaves: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        x = np.random.default_rng(0).standard_normal((3, 2, 2, 5, 16))
        bias = np.random.default_rng(1).standard_normal((2, 5, 5))
        names, run, both = list[str](), attention.Setting.kernel, []
        monkeypatch.setattr(
            attention.Setting, "kernel",
            lambda self, name, others: (names.append(name), run(self, name, others))[1],
        )  # fmt: skip
        for device in ("cuda", "cpu"):
            q, k, v, mask = (
                cugrad.tensor(a, device=device, dtype=getattr(cugrad, dtype)) for a in (*x, bias)
            )
            asked = [mask] if leaves == "mask" else [q, k, v, mask]
            for leaf in asked:
                leaf.requires_grad_()
            y = cugrad.nn.functional.scaled_dot_product_attention(q, k, v, mask)
            grads = cugrad.autograd.grad((y * y).sum(), asked)
            both.append([z.detach().float().cpu().numpy() for z in (y, *grads)])
        for ours, theirs in zip(*both, strict=True):
            near = 1e-5 if dtype == "float32" else 3e-2
            np.testing.assert_allclose(ours, theirs, rtol=near, atol=near)
        assert names.count("attention_mask") == 1
        assert leaves == "all" or "attention_queries" not in names

    @pytest.mark.parametrize("p", [0.0, 0.5])
    def test_without_gradients_a_kernel_takes_all_queries_at_once(
        monkeypatch: pytest.MonkeyPatch, p: float
    ) -> None:
        functional = import_module("cugrad.nn.functional.attention")
        monkeypatch.setattr(functional, "BLOCK", 16)  # scores: a block of one query
        lengths, run = [], attention.Setting.launch
        monkeypatch.setattr(
            attention.Setting, "launch",
            lambda self, *args: (lengths.append(self.q.shape[2]), run(self, *args)),
        )  # fmt: skip
        x = cugrad.ones(1, 2, 5, 8, device="cuda")
        attend = cugrad.nn.functional.scaled_dot_product_attention
        attend(x, x, x, is_causal=True, dropout_p=p)
        assert lengths == [5]

    def packed(x: Any, heads: int, way: str) -> Any:
        """Queries, keys and values of what one layer has computed."""
        count, length, width = x.shape
        if way == "unbind":
            parts = x.reshape(count, length, 3, heads, width // 3 // heads)
            return parts.permute(2, 0, 3, 1, 4).unbind(0)
        parts = x.split(width // 3, 2)
        return [p.view(count, length, heads, -1).transpose(1, 2) for p in parts]

    @pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
    @pytest.mark.parametrize("way", ["unbind", "split"])
    def test_gradients_of_a_layers_heads_are_written_where_the_layer_has_them(
        way: str, dtype: str
    ) -> None:
        """Those of queries, keys and values are no more copied than these and the result are."""
        values = np.random.default_rng(0).standard_normal((2, 5, 48))
        both, owners, layer = [], [], []
        for device in ("cpu", "cuda"):
            x = cugrad.tensor(values, device=device, dtype=getattr(cugrad, dtype))
            x = x.requires_grad_().view_as(x)
            x.register_hook(layer.append)
            parts = packed(x, 2, way)
            for part in parts:
                part.register_hook(lambda g: owners.append(root_of(g._array)))
            y = cugrad.nn.functional.scaled_dot_product_attention(*parts).transpose(1, 2)
            assert device == "cpu" or y.is_contiguous()
            y.reshape(2, 5, 16).backward(y.detach().reshape(2, 5, 16))
            both.append(layer[-1].float().cpu().numpy())
        assert layer[-1].is_contiguous()
        assert all(root_of(layer[-1]._array) is owner for owner in owners[3:])
        np.testing.assert_allclose(*both, rtol=2e-2, atol=2e-2)

    @pytest.mark.parametrize("missing", [0, 1])
    def test_pieces_that_lie_elsewhere_are_put_together(missing: int) -> None:
        """What is no whole is copied: pieces in another order, or not all there."""
        x = cugrad.arange(24.0, device="cuda").reshape(3, 2, 4).requires_grad_()
        g = cugrad.arange(24.0, device="cuda").reshape(3, 2, 4)
        for pieces, slopes in ((x.unbind(0), g.unbind(0)), (x.split([1, 1, 1]), g.split(1))):
            for order in ((0, 1, 2), (2, 1, 0), (0, 0, 0), (0, 2, 1)):
                these = [slopes[k] for k in order][missing:]
                (got,) = cugrad.autograd.grad(pieces[missing:], x, these)
                expected = np.zeros((3, 2, 4))
                for k in range(missing, 3):
                    expected[k] = g.cpu().numpy()[order[k]]
                np.testing.assert_array_equal(got.cpu().numpy(), expected)

    @pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
    def test_what_it_saves_may_wait_elsewhere(dtype: str) -> None:
        """Gradients are the same bits, whoever keeps the tensors."""
        attention.has_tensor_cores = lambda device: True
        rng = np.random.default_rng(0)
        values = [rng.standard_normal((1, 2, 24, 16)) for _ in range(3)]
        attend = cugrad.nn.functional.scaled_dot_product_attention

        def gradients(saving: Any) -> list[Any]:
            leaves = [cugrad.tensor(v, dtype=getattr(cugrad, dtype), device="cuda",
                                    requires_grad=True) for v in values]  # fmt: skip
            for _ in range(2):  # the second time in the order of the first
                with saving:
                    y = attend(*[x * 1.5 for x in leaves], is_causal=True)
                    y = attend(y, *[x * 0.5 for x in leaves[1:]])
                grads = cugrad.autograd.grad(y.float().sin().sum(), leaves)
            return [x.float().cpu().numpy() for x in grads]

        moving = offload(min_bytes=0, keep_last=0, backlog=0)
        for got, want in zip(gradients(moving), gradients(nullcontext()), strict=True):
            np.testing.assert_array_equal(got, want)
        assert moving.stats.moved_to_host_bytes > 0
