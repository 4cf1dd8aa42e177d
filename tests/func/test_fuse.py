"""fuse: what a fused function computes is what the function does, in a kernel each way."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

import cugrad as torch
from tests.backends import cuda_toolchain as toolchain
from tests.support import fake_cuda
from tests.support.programs.fused_on_host import fused_on_host

pytestmark = pytest.mark.host_only

F = torch.nn.functional


def bias_gelu(x: Any, bias: Any) -> Any:
    return F.gelu(x + bias)


def swiglu(x: Any, gate: Any) -> Any:
    return F.silu(gate) * x


def residual(x: Any, y: Any, scale: float, keep: float = 0.9) -> Any:
    return x + scale * torch.tanh(y) / keep


def squeezed(x: Any) -> Any:
    y = torch.exp(-x.abs()).clamp(0.1, 0.95)
    return torch.where(x > 0, y, 1 - y) ** 2


def two(x: Any, y: Any) -> Any:
    return x * y, torch.sigmoid(x - y)


def unneeded(x: Any, y: Any) -> Any:
    return 3 * x + torch.relu(y)


CHAINS: dict[Callable[..., Any], list[tuple[Any, ...]]] = {
    bias_gelu: [((5, 8), (8,)), ((3, 1, 4), (2, 1))],
    swiglu: [((6, 16), (6, 16))],
    residual: [((33,), (33,), 0.5), ((33,), (33,), 0.25, 0.5)],
    squeezed: [((7, 9),)],
    two: [((4, 5), (5,))],
    unneeded: [((4, 8), (4, 8))],
}
CASES = [(f, args) for f, several in CHAINS.items() for args in several]
HALVES = [torch.bfloat16, torch.float16]
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]


def dtypes_of(function: Any) -> list[Any]:
    """float32, and of the others one in turn: how elements are read and written is no function's
    affair.
    """
    return [DTYPES[0], DTYPES[1 + list(CHAINS).index(function) % 3]]


named = pytest.mark.parametrize("function, shapes", CASES, ids=lambda c: getattr(c, "__name__", ""))


def arguments(
    shapes: tuple[Any, ...], dtype: Any = torch.float32, device: str = "cuda"
) -> list[Any]:
    """Tensors for shapes, the same ones each time; numbers stay."""
    rng = np.random.default_rng(0)
    return [
        torch.tensor(rng.standard_normal(s), device=device).to(dtype).detach().requires_grad_()
        if isinstance(s, tuple) else s for s in shapes
    ]  # fmt: skip


def results(
    function: Any, shapes: tuple[Any, ...], dtype: Any, device: str = "cuda", wide: bool = False
) -> list[Any]:
    """The outputs, the gradients, and in float32 those that are differentiated again."""
    args = arguments(shapes, dtype, device)
    if wide:  # what half precision holds, computed in float32
        args = [x.float() if isinstance(x, torch.Tensor) else x for x in args]
    tensors = [x for x in args if isinstance(x, torch.Tensor)]
    y = function(*args)
    outputs = list(y) if isinstance(y, tuple) else [y]
    given = [torch.ones_like(y) * (k + 0.5) for k, y in enumerate(outputs)]
    plain = torch.autograd.grad(outputs, tensors, given, retain_graph=True)
    if dtype != torch.float32:
        return [*outputs, *plain]
    grads = torch.autograd.grad(outputs, tensors, given, create_graph=True)
    penalty = sum((g * g).sum() for g in grads)
    second: Any = ()
    if penalty.requires_grad:
        second = torch.autograd.grad(penalty, tensors, allow_unused=True)
    return [*outputs, *plain, *grads, *[g for g in second if g is not None]]


@named
def test_it_is_the_function_itself_on_the_cpu(function: Any, shapes: tuple[Any, ...]) -> None:
    both = [results(f, shapes, torch.float64, "cpu") for f in (function, torch.fuse(function))]
    assert all(torch.equal(a, b) for a, b in zip(*both, strict=True))
    assert torch.fuse(function).__name__ == function.__name__


def test_a_result_of_fewer_elements_is_no_kernels() -> None:
    x, y = torch.ones(2, 3), torch.ones(3)
    with fused_on_host():
        assert torch.fuse(torch.mul)(x, y.requires_grad_()).grad_fn.name() == "FusedCallBackward"
        with pytest.warns(UserWarning, match="runs op by op, since it returns .* fewer elements"):
            assert torch.fuse(lambda x, y: y.exp())(x, y).shape == (3,)


def test_a_result_that_only_constants_make_has_no_gradient() -> None:
    x, y = torch.ones(3, requires_grad=True), torch.ones(3)
    with fused_on_host():
        both = torch.fuse(lambda x, y: (x * 2, y * 3))(x, y)
        assert [z.requires_grad for z in both] == [True, False]
        assert torch.autograd.grad(both[0].sum(), x)[0].tolist() == [2, 2, 2]
        assert not torch.fuse(lambda x, y: y.exp())(x, y).requires_grad


def test_an_argument_that_makes_no_difference_is_no_part_of_the_graph() -> None:
    x, y = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
    heard: list[Any] = []
    y.register_hook(heard.append)
    with fused_on_host():
        z = torch.fuse(lambda x, y: x.exp())(x, y)
        assert z.grad_fn.name() == "FusedCallBackward"
        (z * z).sum().backward()
    assert not heard and x.grad is not None and y.grad is None


if fake_cuda.REAL is None:

    def test_over_the_fake_cuda() -> None:
        pytest.importorskip("cupy", reason="CuPy is not installed")
        pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
        toolchain.host_compiler()
        fake_cuda.passed(__file__, fused=True)

else:
    FUSED = {function: torch.fuse(function) for function in CHAINS}

    @pytest.fixture(scope="module", autouse=True)
    def compiled() -> Iterator[None]:
        fake_cuda.CHECKS = True
        with fake_cuda.compiled_together():
            for function, shapes in CASES:
                for dtype in dtypes_of(function):
                    results(FUSED[function], shapes, dtype)
        yield
        fake_cuda.CHECKS = False

    @named
    def test_a_kernel_computes_what_the_function_does(
        function: Any, shapes: tuple[Any, ...]
    ) -> None:
        for dtype in dtypes_of(function):
            found = results(FUSED[function], shapes, dtype)
            assert found[0].grad_fn.name() == "FusedCallBackward"
            wanted = results(function, shapes, dtype, "cpu", wide=dtype in HALVES)
            rtol = {torch.float64: 1e-12, torch.float32: 2e-6}.get(dtype, 5e-2)
            for a, b in zip(found, wanted, strict=True):
                assert a.dtype == dtype and a.shape == b.shape
                x, y = (t.detach().cpu().to(torch.float64).numpy() for t in (a, b))
                np.testing.assert_allclose(x, y, rtol=rtol, atol=rtol * max(1, np.abs(y).max()))

    @named
    def test_it_launches_a_kernel_each_way(function: Any, shapes: tuple[Any, ...]) -> None:
        args = arguments(shapes)
        fake_cuda.COLLECTED = []
        try:
            y = FUSED[function](*args)
            assert len(fake_cuda.COLLECTED) == 1
            outputs = list(y) if isinstance(y, tuple) else [y]
            tensors = [x for x in args if isinstance(x, torch.Tensor)]
            vectors = [torch.ones_like(y) for y in outputs]
            fake_cuda.COLLECTED = []
            torch.autograd.grad(outputs, tensors, vectors)
            both = all(x.shape != outputs[0].shape for x in tensors)  # sums of two sorts
            assert len(fake_cuda.COLLECTED) == 1 or both
        finally:
            fake_cuda.COLLECTED = None

    def test_it_keeps_what_its_gradients_need() -> None:
        x, y = arguments(((4, 8), (4, 8)))
        node = FUSED[unneeded](x, y).grad_fn
        assert [t is y for t in node.saved_tensors] == [True]
        packed = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t) or t, lambda t: t):
            z = FUSED[unneeded](x, y)
        assert len(packed) == 1
        with torch.no_grad():
            assert not FUSED[unneeded](x, y).requires_grad
        z.sum().backward()
        assert torch.equal(x.grad, torch.full_like(x, 3.0))

    def summed(x: Any) -> Any:
        return x - x.sum()

    def valued(x: Any) -> Any:
        return x if (x > 0).all() else -x

    def special(x: Any) -> Any:
        return torch.digamma(x)

    @pytest.mark.parametrize("function, why", [(summed, "sum"), (special, "digamma"), (valued, "")])
    def test_what_is_no_kernel_runs_as_it_is_and_says_so(function: Any, why: str) -> None:
        x, fused = torch.rand(3, 4, device="cuda") + 0.5, torch.fuse(function)
        with pytest.warns(UserWarning, match=f"fuse: {function.__name__} runs op by op.*{why}"):
            first = fused(x)
        with warnings.catch_warnings():  # once
            warnings.simplefilter("error")
            assert torch.equal(first, fused(x)) and torch.equal(first, function(x))

    def test_a_tensor_that_is_no_argument() -> None:
        weight = torch.rand(4, device="cuda")
        with pytest.warns(UserWarning, match="runs op by op"):
            found = torch.fuse(lambda x: x * weight)(torch.ones(3, 4, device="cuda"))
        assert torch.equal(found, weight.expand(3, 4))

    def test_where_nothing_is_fused_nothing_is_said() -> None:
        fused, ones = torch.fuse(lambda x: x * 2), torch.ones(3, device="cuda")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert fused(torch.arange(3, device="cuda")).tolist() == [0, 2, 4]
            assert torch.vmap(fused)(torch.ones(2, 3, device="cuda")).shape == (2, 3)
            out, tangent = torch.func.jvp(fused, (ones,), (ones,))
            assert tangent.tolist() == [2, 2, 2]
            with torch.autocast("cuda", dtype=torch.bfloat16):
                assert fused(ones).dtype == torch.float32

    def test_errors_of_the_function_are_its_own() -> None:
        warned = pytest.warns(UserWarning, match="tracing it raises")
        with warned, pytest.raises(ZeroDivisionError):
            torch.fuse(lambda x: x / (1 // 0))(torch.ones(3, device="cuda"))

    def chain(x: Any, y: Any) -> Any:
        return torch.sigmoid(x * y) * x + y.exp() * 0.1

    def twice_differentiated(y: Any, *leaves: Any) -> list[Any]:
        grads = torch.autograd.grad(y.sum(), leaves, create_graph=True)
        return [*grads, *torch.autograd.grad(sum((g * g).sum() for g in grads), leaves)]

    def of_itself(f: Any, x: Any, y: Any) -> Any:
        return twice_differentiated(f(x, x), x)

    def of_what_is_made_of_another(f: Any, x: Any, y: Any) -> Any:
        return twice_differentiated(f(x, f(x, y)), x, y)

    def of_what_has_hooks(f: Any, x: Any, y: Any) -> Any:
        z = x * 1
        z.register_hook(lambda g: g * 2)
        return twice_differentiated(f(z, y), x, y)

    def under_transforms(f: Any, x: Any, y: Any) -> Any:
        of_x = torch.func.grad(lambda x: f(x, y).sum())
        _, pull = torch.func.vjp(f, x, y)
        return [
            torch.func.grad(lambda x: of_x(x).square().sum())(x),
            torch.func.hessian(lambda x: f(x, y[0]).sum())(x[0]),
            *torch.vmap(pull)(torch.stack([x, y])),
            *torch.func.jvp(of_x, (x,), (y,)),
        ]

    def by_batches_of_gradients(f: Any, x: Any, y: Any) -> Any:
        vectors = torch.stack([x.detach(), y.detach()])
        return torch.autograd.grad(f(x, y), (x, y), vectors, is_grads_batched=True)

    def with_tangents_in_backward(f: Any, x: Any, y: Any) -> Any:
        z, fw = f(x, y), torch.autograd.forward_ad
        with fw.dual_level():
            vector = fw.make_dual(torch.ones_like(z), x.detach())
            return [t for g in torch.autograd.grad(z, (x, y), vector) for t in fw.unpack_dual(g)]

    @pytest.mark.parametrize("program", [
        of_itself, of_what_is_made_of_another, of_what_has_hooks, under_transforms,
        by_batches_of_gradients, with_tangents_in_backward,
    ])  # fmt: skip
    def test_a_node_among_others(program: Any) -> None:
        fused = torch.fuse(chain)
        assert fused(*arguments(((3, 4), (3, 4)), torch.float64)).grad_fn.name().startswith("Fused")
        both = [program(f, *arguments(((3, 4), (3, 4)), torch.float64)) for f in (chain, fused)]
        for a, b in zip(*both, strict=True):
            torch.testing.assert_close(a, b)


def test_what_is_no_function_is_refused() -> None:
    with pytest.raises(TypeError, match="fuse: function: got int, want a callable"):
        torch.fuse(3)  # type: ignore[arg-type]


def test_a_subclass_gets_each_op() -> None:
    class Kept(torch.Tensor):
        pass

    x = torch.full((3,), 0.5, requires_grad=True)
    with fused_on_host():
        plain, kept = (torch.fuse(squeezed)(each) for each in (x, x.as_subclass(Kept)))
    assert plain.grad_fn.name().startswith("Fused") and type(kept) is Kept
    torch.testing.assert_close(kept.as_subclass(torch.Tensor), plain)


@pytest.mark.parametrize("reruns_within", [False, True])
def test_what_a_mode_has_seen_op_by_op_runs_again_so(reruns_within: bool) -> None:
    class Seeing(torch.overrides.TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            return func(*args, **(kwargs or {}))

    def gradient(mode: Any, function: Any) -> Any:
        x = torch.full((3,), 0.5, requires_grad=True)
        with mode:
            y = torch.utils.checkpoint.checkpoint(function, x, use_reentrant=False)
            if reruns_within:
                return torch.autograd.grad(y.sum(), x)[0]
        return torch.autograd.grad(y.sum(), x)[0]

    def function(x: Any) -> Any:
        return (x.exp() * x.sin()).tanh() * x

    with fused_on_host():
        got = gradient(Seeing(), torch.fuse(function))
    torch.testing.assert_close(got, gradient(nullcontext(), function))
