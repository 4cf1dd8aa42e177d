"""Autocast chooses dtypes as PyTorch's lists say, on each device, and GradScaler scales as it."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import cugrad
from cugrad import backends, nn
from cugrad.amp.grad_scaler import OptState
from cugrad.autograd.autocast import POLICIES, settings
from cugrad.autograd.recording import record
from cugrad.ops.table import TABLE
from cugrad.utils.checkpoint import checkpoint

F = cugrad.nn.functional
pytest.importorskip("ml_dtypes", reason="bfloat16 needs ml_dtypes")


def lists_of(torch: Any, kind: str) -> Iterator[tuple[str, Any, Any, str]]:
    """(name, its arguments, more of them, what it runs in) by PyTorch's own tests of autocast."""
    tests = pytest.importorskip("torch.testing._internal.autocast_test_lists")
    lists = (tests.AutocastTestLists if kind == "cuda" else tests.AutocastCPUTestLists)("cpu")
    for group, runs in {
        "torch_fp16": "lower", "torch_16": "lower", "nn_fp16": "lower", "nn_16": "lower",
        "linalg_fp16": "lower", "methods_fp16": "lower", "torch_fp32": "float32",
        "nn_fp32": "float32", "methods_fp32": "float32", "torch_need_autocast_promote": "float32",
    }.items():  # fmt: skip
        for name, args, *more in getattr(lists, group, ()):
            yield name, args, more[0] if more and isinstance(more[0], dict) else {}, runs


def ours(value: Any, device: str) -> Any:
    if type(value) in (tuple, list):
        return type(value)(ours(v, device) for v in value)
    if not hasattr(value, "requires_grad"):
        return value
    if str(value.dtype) == "torch.bfloat16":
        return cugrad.tensor(value.float().numpy()).bfloat16().to(device)
    return cugrad.tensor(value.numpy()).to(device)


def found(name: str) -> Callable[..., Any] | None:
    name = name.removeprefix("linalg_")
    for room in (cugrad, F, cugrad.linalg):
        if name in dir(room):
            return getattr(room, name)
    return getattr(cugrad.Tensor, name, None)


RUNS = {  # names of PyTorch's dispatcher, and functions that take other arguments than it
    "nll_loss2d": "nll_loss", "grid_sampler": None, "_convolution": None, "convolution": None,
    "poisson_nll_loss": "poisson_nll_loss",
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:reduction")
@pytest.mark.parametrize(("kind", "device"), [("cpu", "cpu"), ("cuda", "simulated")])
def test_each_op_of_pytorch_s_lists_runs_in_their_dtype(kind: str, device: str) -> None:
    torch, seen = pytest.importorskip("torch"), 0
    for name, args, options, runs in lists_of(torch, kind):
        function = found(str(RUNS.get(name, name)))
        if function is None or RUNS.get(name, name) is None:
            continue
        if name == "einsum":
            args = ("bk,qk->bq", *(torch.ones(2, 3),) * 2)
        if name == "margin_ranking_loss":
            args = (*args[:2], torch.ones(args[0].shape))
        lower = cugrad.bfloat16 if kind == "cpu" else cugrad.float16
        with cugrad.autocast(device, dtype=lower):
            result = function(*ours(tuple(args), device), **options)
        wanted = lower if runs == "lower" else cugrad.float32
        assert (result[0] if isinstance(result, tuple) else result).dtype is wanted, name
        seen += 1
    assert seen > (25 if kind == "cpu" else 70)


RNG = np.random.default_rng(0)
SQUARE = RNG.random((4, 4), "float32") + 4 * np.eye(4, dtype="float32")
ROW = RNG.random(4, "float32")
IMAGES, VOLUMES = RNG.random((2, 3, 6, 6), "float32"), RNG.random((1, 2, 4, 4, 4), "float32")
LOGITS, GRID = RNG.random((5, 2, 4), "float32"), np.zeros((2, 2, 2, 2), "float32")
WEIGHT, KERNEL = np.ones((2, 4, 4), "float32"), np.ones((2, 3, 2, 2), "float32")
BIAS = np.ones(2, "float32")
CALLS: dict[str, Callable[[Any, Callable[[Any], Any]], Any]] = {
    "trace": lambda lib, t: lib.trace(t(SQUARE)),
    "quantile": lambda lib, t: lib.quantile(t(SQUARE), 0.5),
    "nanquantile": lambda lib, t: lib.nanquantile(t(SQUARE), 0.5),
    "cdist": lambda lib, t: lib.cdist(t(SQUARE), t(SQUARE)),
    "prod": lambda lib, t: lib.prod(t(SQUARE), 0),
    "prodall": lambda lib, t: lib.prod(t(SQUARE)),
    "fft": lambda lib, t: lib.fft.fft(t(ROW)),
    "rfft": lambda lib, t: lib.fft.rfft(t(ROW)),
    "irfft": lambda lib, t: lib.fft.irfft(lib.fft.rfft(t(ROW))),
    "chol": lambda lib, t: lib.linalg.cholesky(t(SQUARE @ SQUARE.T)),
    "inv": lambda lib, t: lib.linalg.inv(t(SQUARE)),
    "solve": lambda lib, t: lib.linalg.solve(t(SQUARE), t(ROW)),
    "svdvals": lambda lib, t: lib.linalg.svdvals(t(SQUARE)),
    "qr": lambda lib, t: lib.linalg.qr(t(SQUARE))[0],
    "eigh": lambda lib, t: lib.linalg.eigvalsh(t(SQUARE)),
    "matrix_exp": lambda lib, t: lib.linalg.matrix_exp(t(SQUARE)),
    "avg3": lambda lib, t: lib.nn.functional.avg_pool3d(t(VOLUMES), 2),
    "max3": lambda lib, t: lib.nn.functional.max_pool3d(t(VOLUMES), 2),
    "adavg3": lambda lib, t: lib.nn.functional.adaptive_avg_pool3d(t(VOLUMES), 2),
    "avg2": lambda lib, t: lib.nn.functional.avg_pool2d(t(IMAGES), 2),
    "reflect": lambda lib, t: lib.nn.functional.pad(t(IMAGES), (1, 1, 1, 1), mode="reflect"),
    "replicate": lambda lib, t: lib.nn.functional.pad(t(IMAGES), (1, 1, 1, 1), mode="replicate"),
    "grid": lambda lib, t: lib.nn.functional.grid_sample(t(IMAGES), t(GRID), align_corners=False),
    "interp": lambda lib, t: lib.nn.functional.interpolate(t(IMAGES), scale_factor=2),
    "softmax": lambda lib, t: lib.softmax(t(SQUARE), 0),
    "layer_norm": lambda lib, t: lib.nn.functional.layer_norm(t(SQUARE), (4, )),
    "norm": lambda lib, t: lib.norm(t(SQUARE)),
    "exp": lambda lib, t: lib.exp(t(SQUARE)),
    "sum": lambda lib, t: lib.sum(t(SQUARE)),
    "cumsum": lambda lib, t: lib.cumsum(t(SQUARE), 0),
    "einsum": lambda lib, t: lib.einsum("ij, jk->ik", t(SQUARE), t(SQUARE)),
    "tensordot": lambda lib, t: lib.tensordot(t(SQUARE), t(SQUARE), 1),
    "mv": lambda lib, t: lib.mv(t(SQUARE), t(ROW)),
    "addmv": lambda lib, t: lib.addmv(t(ROW), t(SQUARE), t(ROW)),
    "dot": lambda lib, t: lib.dot(t(ROW), t(ROW)),
    "addr": lambda lib, t: lib.addr(t(SQUARE), t(ROW), t(ROW)),
    "bilinear": lambda lib, t: lib.nn.functional.bilinear(t(SQUARE), t(SQUARE), t(WEIGHT)),
    "sdpa": lambda lib, t: lib.nn.functional.scaled_dot_product_attention(
        *(t(IMAGES),) * 3),
    "multi_dot": lambda lib, t: lib.linalg.multi_dot([t(SQUARE), t(SQUARE), t(SQUARE)]),
    "chain": lambda lib, t: lib.chain_matmul(t(SQUARE), t(SQUARE)),
    "matrix_power": lambda lib, t: lib.linalg.matrix_power(t(SQUARE), 3),
    "vecdot": lambda lib, t: lib.linalg.vecdot(t(ROW), t(ROW)),
    "outer": lambda lib, t: lib.outer(t(ROW), t(ROW)),
    "inner": lambda lib, t: lib.inner(t(SQUARE), t(SQUARE)),
    "kron": lambda lib, t: lib.kron(t(SQUARE), t(SQUARE)),
    "bn": lambda lib, t: lib.nn.functional.batch_norm(t(IMAGES), None, None, training=True),
    "gn": lambda lib, t: lib.nn.functional.group_norm(t(IMAGES), 3),
    "cos": lambda lib, t: lib.nn.functional.cosine_similarity(t(SQUARE), t(SQUARE)),
    "ce": lambda lib, t: lib.nn.functional.cross_entropy(t(SQUARE), lib.tensor([0, 1, 2, 3])),
    "gnll": lambda lib, t: lib.nn.functional.gaussian_nll_loss(t(SQUARE), t(SQUARE), t(SQUARE)),
    "mlsm": lambda lib, t: lib.nn.functional.multilabel_soft_margin_loss(t(SQUARE), t(SQUARE)),
    "dist": lambda lib, t: lib.dist(t(SQUARE), t(SQUARE)),
    "renorm": lambda lib, t: lib.renorm(t(SQUARE), 2, 0, 1.),
    "cat": lambda lib, t: lib.cat([t(SQUARE), lib.ones(4, 4)]),
    "index_copy": lambda lib, t: lib.index_copy(t(SQUARE), 0, lib.tensor([0]), t(SQUARE[:1])),
    "prelu": lambda lib, t: lib.nn.functional.prelu(t(SQUARE), t(ROW[:1])),
    "ctc": lambda lib, t: lib.nn.functional.ctc_loss(
        lib.log_softmax(t(LOGITS), -1), lib.tensor([[1, 2], [1, 3]]), lib.tensor([5, 5]),
        lib.tensor([2, 2])),
    "median": lambda lib, t: lib.median(t(SQUARE)),
    "var": lambda lib, t: lib.var(t(SQUARE)),
    "logsumexp": lambda lib, t: lib.logsumexp(t(SQUARE), 0),
    "conv_transpose": lambda lib, t: lib.nn.functional.conv_transpose2d(
        t(IMAGES).bfloat16(), t(KERNEL.swapaxes(0, 1)), t(BIAS)),
    "conv_bias": lambda lib, t: lib.nn.functional.conv2d(t(IMAGES), t(KERNEL), t(BIAS)),
}  # fmt: skip


def given_by(lib: Any, dtype: str) -> Callable[[Any], Any]:
    return lambda x: lib.tensor(x).to(getattr(lib, dtype))


@pytest.mark.filterwarnings("ignore:torch.chain_matmul")
@pytest.mark.parametrize("given", ["bfloat16", "float32", "float64"])
@pytest.mark.parametrize("name", CALLS)
def test_dtypes_on_a_cpu_are_those_of_pytorch(name: str, given: str) -> None:
    kinds = []
    for lib in (cugrad, pytest.importorskip("torch")):
        try:
            with lib.autocast("cpu", dtype=lib.bfloat16):
                kinds.append(CALLS[name](lib, given_by(lib, given)).dtype)
        except (RuntimeError, ValueError):
            kinds.append("refused")
    assert str(kinds[0]) == str(kinds[1])


@pytest.mark.parametrize("name", ["binary_cross_entropy"])
def test_what_is_unsafe_is_refused_on_cuda(name: str) -> None:
    x = cugrad.rand(3, device="simulated")
    with cugrad.autocast("simulated"), pytest.raises(RuntimeError, match="unsafe to autocast"):
        getattr(F, name)(x, x)


def test_every_name_in_the_lists_is_a_row_or_a_function() -> None:
    for policies in POLICIES.values():
        for name in policies:
            assert name in TABLE or found(name) is not None, name


def test_values_are_those_of_pytorch() -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    x, w, b = (rng.standard_normal(s).astype("float32") for s in ((4, 8), (5, 8), (5,)))
    out = []
    for lib in (cugrad, torch):
        inputs = [lib.tensor(v, requires_grad=True) for v in (x, w, b)]
        with lib.autocast("cpu", dtype=lib.bfloat16):
            y = lib.nn.functional.linear(*inputs)
            h = lib.nn.functional.gelu(y) + inputs[0].sum()
            loss = lib.nn.functional.cross_entropy(h, lib.tensor([0, 1, 2, 3]))
        loss.backward()
        out.append([str(t.dtype) for t in (y, h, loss, *(i.grad for i in inputs))])
        out.append([t.detach().float().numpy() for t in (loss, *(i.grad for i in inputs))])
    assert out[0] == out[2]
    for got, wanted in zip(out[1], out[3], strict=True):
        np.testing.assert_allclose(got, wanted, rtol=0.03, atol=0.01)


def test_a_weight_is_cast_once_in_a_region() -> None:
    w, x = cugrad.ones(3, 3, requires_grad=True), cugrad.ones(2, 3)
    casts: list[str] = []

    class Names:
        def op_begin(self, name: str, seq: int, args: Any) -> None:
            casts.append(name)

        def op_end(self, name: str, seq: int, result: Any) -> None: ...
        def node_begin(self, node: Any) -> None: ...
        def node_end(self, node: Any) -> None: ...

    from cugrad.autograd.mode import pop_observer, push_observer

    names = Names()
    push_observer(names)
    try:
        with cugrad.autocast("cpu"):
            with cugrad.no_grad():
                x @ w
            (x @ w).sum().backward()
            x @ w
            assert casts.count("to_dtype") == 2 + 3  # once without a graph; x each time
            with cugrad.no_grad():
                w.add_(1.0)
            assert (x @ w)[0, 0].item() == 6.0  # not the cast of what it was
            casts.clear()
        with cugrad.autocast("cpu", cache_enabled=False):
            x @ w
            x @ w
        assert casts.count("to_dtype") == 4
    finally:
        pop_observer(names)
    assert w.grad is not None and w.grad.dtype is cugrad.float32


def test_what_an_op_does_leaves_autocast_on() -> None:
    """An error, a view that gets a new history, and hooks, whose ops are cast as others are."""
    x, w = (cugrad.ones(3, 3, requires_grad=True, device="cpu") for _ in range(2))
    low, seen = cugrad.bfloat16, []

    def pack(saved: Any) -> Any:
        seen.append((w @ w).dtype)
        return saved

    with cugrad.autocast("cpu", dtype=low):
        with pytest.raises(RuntimeError):
            x @ cugrad.ones(2, 2, device="cpu")
        assert (x @ w).dtype is low
        base = x * 1.5
        view = base[0]
        base.add_(1.0)
        assert (view @ w).dtype is low
        for mode in (cugrad.no_grad, cugrad.enable_grad, cugrad.inference_mode):
            with mode():
                assert (x @ w).dtype is low and (x + 1).dtype is x.dtype
            assert (x @ w).dtype is low
        hooks = cugrad.autograd.graph.saved_tensors_hooks
        with hooks(pack, lambda saved: saved):
            y = base * w
        assert (x @ w).dtype is low
    assert (x @ w).dtype is x.dtype
    assert seen == [low, low] and y.dtype is x.dtype


def test_ops_take_their_fast_path(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **params: Any) -> Any:
        raise AssertionError("the general way was asked")

    x, w = (cugrad.ones(3, 3, requires_grad=True, device="cpu") for _ in range(2))
    with cugrad.autocast("cpu", dtype=cugrad.bfloat16):
        (x @ w).relu()
        monkeypatch.setattr(record, "execute", refuse)
        assert (x @ w).relu().dtype is cugrad.bfloat16
        assert (x + w).dtype is x.dtype


def test_what_is_not_cast() -> None:
    x64, x = cugrad.ones(2, 2, dtype=cugrad.float64), cugrad.ones(2, 2)
    with cugrad.autocast("cpu"):
        assert (x64 @ x64).dtype is cugrad.float64
        assert (x.to("simulated") @ x.to("simulated")).dtype is cugrad.float32
        assert (x + x).dtype is cugrad.float32
        y = cugrad.zeros(2, 2)
        assert y.addmm_(x, x) is y and y.dtype is cugrad.float32
        with cugrad.autocast("cpu", enabled=False):
            assert (x @ x).dtype is cugrad.float32
            with cugrad.autocast("cpu", dtype=cugrad.float16):
                assert (x @ x).dtype is cugrad.float16
        assert (x @ x).dtype is cugrad.bfloat16
        other = []
        thread = threading.Thread(target=lambda: other.append((x @ x).dtype))
        thread.start()
        thread.join()
        assert other == [cugrad.float32]  # each thread has its own
    assert (x @ x).dtype is cugrad.float32


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("early_stop", [False, True])
@pytest.mark.parametrize("inside", [False, True])
def test_a_checkpoint_runs_again_under_the_autocast_of_forward(
    reentrant: bool, dtype: str, early_stop: bool, inside: bool
) -> None:
    net = cugrad.nn.Sequential(cugrad.nn.Linear(6, 6), cugrad.nn.GELU(), cugrad.nn.Linear(6, 6),
                               cugrad.nn.Softmax(-1))  # fmt: skip
    x = cugrad.randn(5, 6)
    seen: list[Any] = []
    net[1].register_forward_hook(lambda m, args, out: seen.append(out.dtype))
    grads = []
    for checkpointed in (False, True):
        given = x.clone().requires_grad_()
        net.zero_grad()
        with cugrad.autocast("cpu", dtype=getattr(cugrad, dtype)):
            if checkpointed:
                with cugrad.utils.checkpoint.set_checkpoint_early_stop(early_stop):
                    y = checkpoint(net, given, use_reentrant=reentrant)
            else:
                y = net(given)
            loss = (y * y).sum()
            if inside:
                loss.backward()
        if not inside:
            loss.backward()
        params = [given, *net.parameters()]
        grads.append([p.grad.numpy().tobytes() for p in params if p.grad is not None])
    assert grads[0] == grads[1] and set(seen) == {getattr(cugrad, dtype)} and len(seen) == 3
    assert not cugrad.is_autocast_enabled("cpu")


@pytest.mark.parametrize("way", [
    cugrad.memory.offload, cugrad.memory.recompute, lambda: cugrad.memory.recompute(ops="all"),
    lambda: cugrad.autograd.graph.save_on_cpu(pin_memory=True),
])  # fmt: skip
def test_placements_give_the_same_bits(way: Callable[[], Any]) -> None:
    cugrad.manual_seed(0)
    net = cugrad.nn.Sequential(cugrad.nn.Linear(64, 64), cugrad.nn.LayerNorm(64), cugrad.nn.GELU(),
                               cugrad.nn.Linear(64, 64)).to("simulated")  # fmt: skip
    x = cugrad.randn(32, 64, device="simulated")
    grads = []
    for context in (None, way()):
        net.zero_grad()
        with cugrad.autocast("simulated"):
            if context is None:
                loss = F.mse_loss(net(x), x)
            else:
                with context:
                    loss = F.mse_loss(net(x), x)
        loss.backward()
        grads.append([p.grad.cpu().numpy().tobytes() for p in net.parameters()])
    assert grads[0] == grads[1]


@pytest.mark.filterwarnings("ignore:budget. the step took")  # before it has settled
@pytest.mark.parametrize("share", [0.65])
def test_a_budget_gives_the_same_bits(share: float) -> None:
    cugrad.manual_seed(0)
    layers = [m for _ in range(8) for m in (cugrad.nn.Linear(64, 64), cugrad.nn.GELU())]
    net = cugrad.nn.Sequential(*layers).to("simulated")
    x = cugrad.randn(1024, 64, device="simulated")

    def step() -> list[bytes]:
        net.zero_grad()
        with cugrad.autocast("simulated"):
            loss = net(x).float().square().mean()
        loss.backward()
        return [p.grad.cpu().numpy().tobytes() for p in net.parameters()]

    step()
    device = backends.get("simulated")
    device.reset_peak_memory_stats()
    wanted = step()
    limit = int(share * device.max_memory_allocated())
    for _ in range(8):
        with cugrad.memory.budget(limit, device="simulated") as plan:
            assert step() == wanted
    assert plan.report()["peak"] <= limit < plan.report()["peak_without"]


def test_transforms_and_double_backward() -> None:
    w = cugrad.randn(3, 3)
    with cugrad.autocast("cpu"):
        per = cugrad.func.vmap(lambda v: v @ w)(cugrad.ones(2, 3))
        tangent = cugrad.func.jvp(lambda v: v @ w, (cugrad.ones(3),), (cugrad.ones(3),))[1]
        x = cugrad.ones(2, 3, requires_grad=True)
        (g,) = cugrad.autograd.grad(((x @ w) ** 2).sum(), x, create_graph=True)
        g.sum().backward()
    assert per.dtype is tangent.dtype is cugrad.bfloat16
    assert g.dtype is x.grad.dtype is cugrad.float32


def test_custom_functions() -> None:
    class Product(cugrad.autograd.Function):
        @staticmethod
        @cugrad.amp.custom_fwd(device_type="cpu", cast_inputs=cugrad.float32)
        def forward(ctx: Any, a: Any, b: Any) -> Any:
            ctx.save_for_backward(a, b)
            assert not cugrad.is_autocast_enabled("cpu")
            return a @ b

        @staticmethod
        @cugrad.amp.custom_bwd(device_type="cpu")
        def backward(ctx: Any, g: Any) -> Any:
            a, b = ctx.saved_tensors
            assert not cugrad.is_autocast_enabled("cpu")
            return g @ b.mT, a.mT @ g

    class Plain(Product):
        @staticmethod
        @cugrad.amp.custom_fwd(device_type="cpu")
        def forward(ctx: Any, a: Any, b: Any) -> Any:
            ctx.save_for_backward(a, b)
            return a @ b

        @staticmethod
        @cugrad.amp.custom_bwd(device_type="cpu")
        def backward(ctx: Any, g: Any) -> Any:
            assert cugrad.is_autocast_enabled("cpu")
            a, b = ctx.saved_tensors
            return g @ b.mT, a.mT @ g

    for function, dtype in ((Product, cugrad.float32), (Plain, cugrad.bfloat16)):
        a = cugrad.ones(2, 2, requires_grad=True)
        with cugrad.autocast("cpu"):
            y = function.apply(a, cugrad.ones(2, 2))
            assert y.dtype is dtype
        y.float().sum().backward()
        assert a.grad is not None and a.grad.dtype is cugrad.float32
        assert function.apply(a, cugrad.ones(2, 2)).dtype is cugrad.float32


@pytest.mark.parametrize(("call", "error", "text"), [
    (lambda lib: lib.autocast(1), ValueError, "Expected `device_type` of type `str`"),
    (lambda lib: lib.autocast("mps2"), RuntimeError, "mps2"),
    (lambda lib: lib.autocast("cpu")(3), TypeError, "requires a callable, but got int"),
    (lambda lib: lib.set_autocast_enabled("cpu", "yes"), TypeError, "must be"),
    (lambda lib: lib.set_autocast_cache_enabled("yes"), TypeError, "bool"),
    (lambda lib: lib.amp.custom_fwd(device_type=3), ValueError, "of type `str`"),
    (lambda lib: lib.amp.GradScaler("cpu", growth_factor=1.0), AssertionError, "must be > 1.0"),
    (lambda lib: lib.amp.GradScaler("cpu", backoff_factor=1.0), AssertionError, "must be < 1.0"),
    (lambda lib: lib.amp.GradScaler("cpu").update(), AssertionError, "_scale is None"),
    (lambda lib: lib.amp.GradScaler("cpu").load_state_dict({}), RuntimeError, "is empty"),
    (lambda lib: lib.amp.GradScaler("cpu").scale(3), ValueError, "iterable of Tensors"),
])  # fmt: skip
def test_mistakes(lib: Any, call: Callable[[Any], Any], error: type, text: str) -> None:
    with pytest.raises(error, match=text):
        call(lib)


def test_a_dtype_that_is_none_of_both_disables_it(lib: Any) -> None:
    with pytest.warns(UserWarning, match="Disabling autocast"):
        context = lib.autocast("cpu", dtype=lib.float32)
    with context:
        assert not lib.is_autocast_enabled("cpu")
    if not lib.cuda.is_available():
        with pytest.warns(UserWarning, match="CUDA is not available"):
            lib.autocast("cuda")


@pytest.mark.parametrize("name", ["cpu", "gpu"])
def test_settings_by_their_former_names(lib: Any, name: str) -> None:
    kind = "cuda" if name == "gpu" else name
    with pytest.warns(DeprecationWarning, match=f"_autocast_dtype.'{kind}'"):
        before = getattr(lib, f"get_autocast_{name}_dtype")()
    with pytest.warns(DeprecationWarning, match=f"set_autocast_dtype.'{kind}', dtype"):
        getattr(lib, f"set_autocast_{name}_dtype")(lib.bfloat16)
    assert lib.get_autocast_dtype(kind) == lib.bfloat16
    lib.set_autocast_dtype(kind, before)


def test_autocast_is_turned_on_by_its_former_names(lib: Any) -> None:
    for enabled in (True, False):
        with pytest.warns(DeprecationWarning, match="set_autocast_enabled.'cpu', enabled"):
            lib.set_autocast_cpu_enabled(enabled)
        with pytest.warns(DeprecationWarning, match="is_autocast_enabled.'cpu'"):
            assert lib.is_autocast_cpu_enabled() is enabled
        lib.set_autocast_enabled(enabled)
        assert lib.is_autocast_enabled() is enabled
    with pytest.raises(TypeError):
        lib.set_autocast_enabled(3)


def test_a_region_of_a_programs_own_ends_what_was_cast_in_it() -> None:
    w, x = cugrad.ones(2, 2, requires_grad=True), cugrad.ones(2, 2)
    with cugrad.device("cpu"):
        assert cugrad.autocast_increment_nesting() == 1
    cugrad.set_autocast_enabled(x.device.type, True)
    try:
        x @ w
        assert settings.cache
    finally:
        cugrad.set_autocast_enabled(x.device.type, False)
        assert cugrad.autocast_decrement_nesting() == 0
    assert not settings.cache


class Allowing(cugrad.amp.GradScaler):
    """As scripts that train in float16 alone have it."""

    def _unscale_grads_(self, optimizer: Any, inv_scale: Any, found_inf: Any, half: bool) -> Any:
        return super()._unscale_grads_(optimizer, inv_scale, found_inf, True)


@pytest.mark.parametrize("grad", [2.0, float("inf")])
def test_a_scaler_of_ones_own_may_unscale_half_precision(grad: float) -> None:
    p = nn.Parameter(cugrad.ones(2, dtype=cugrad.float16, device="cpu"))
    optimizer = cugrad.optim.SGD([p], lr=1.0)
    scaler = Allowing("cpu", init_scale=4.0)
    scaler.scale(p.float().sum())
    p.grad = cugrad.full_like(p, grad)
    assert [*scaler._check_inf_per_device(optimizer).values()][0].item() == (grad == float("inf"))
    assert p.grad[0].item() == grad
    scaler.unscale_(optimizer)
    state = scaler._per_optimizer_states[id(optimizer)]
    assert state["stage"] is OptState.UNSCALED
    assert state["found_inf_per_device"] == scaler._found_inf_per_device(optimizer)
    scaler.step(optimizer)
    assert p.tolist() == ([0.5, 0.5] if grad == 2.0 else [1.0, 1.0])
    scaler.update()
    assert not scaler._per_optimizer_states and scaler._growth_tracker is not None


def test_settings_by_function(lib: Any) -> None:
    assert lib.get_autocast_dtype("cpu") == lib.bfloat16 and not lib.is_autocast_enabled("cpu")
    assert lib.amp.is_autocast_available("cpu") and lib.is_autocast_cache_enabled()
    on_cpu = lib.ones(2, 2, device="cpu")
    lib.set_autocast_enabled("cpu", True)
    lib.set_autocast_dtype("cpu", lib.float16)
    try:
        assert (on_cpu @ on_cpu).dtype == lib.float16
    finally:
        lib.set_autocast_enabled("cpu", False)
        lib.set_autocast_dtype("cpu", lib.bfloat16)
    lib.clear_autocast_cache()

    @lib.autocast("cpu")
    def product(x: Any) -> Any:
        return x @ x

    assert product(on_cpu).dtype == lib.bfloat16


def scales(lib: Any) -> list[Any]:
    w = lib.ones(2, requires_grad=True)
    optimizer = lib.optim.SGD([w], lr=1.0)
    scaler = lib.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)
    seen: list[Any] = []
    for factor in (1.0, 1.0, float("inf"), 1.0, float("nan"), 1.0, 1.0):
        optimizer.zero_grad()
        scaler.scale((w * factor).sum()).backward()
        if factor == 1.0:
            scaler.unscale_(optimizer)
            with pytest.raises(RuntimeError, match="unscale_.. has already been called"):
                scaler.unscale_(optimizer)
        scaler.step(optimizer)
        with pytest.raises(RuntimeError, match="step.. has already been called"):
            scaler.step(optimizer)
        scaler.update()
        seen.append((scaler.get_scale(), w.tolist()))
    first, second = scaler.scale([w.sum(), w.sum() * 2])
    other = lib.amp.GradScaler("cpu")
    other.load_state_dict(scaler.state_dict())
    seen += [first.item(), second.item(), other.get_scale(), sorted(scaler.state_dict())]
    scaler.update(4.0)
    off = lib.amp.GradScaler("cpu", enabled=False)
    assert off.scale(w) is w and off.state_dict() == {} and not off.is_enabled()
    return [*seen, scaler.get_scale(), off.get_scale()]


def test_a_scaler_does_what_pytorch_s_does() -> None:
    assert scales(cugrad) == scales(pytest.importorskip("torch"))


def test_a_scaler_is_copied_between_iterations(lib: Any) -> None:
    """A copy would not know the optimizer whose gradients are unscaled already."""
    w = lib.ones(2, requires_grad=True)
    optimizer, scaler = lib.optim.SGD([w], lr=1.0), lib.amp.GradScaler("cpu", init_scale=8.0)
    scaler.scale(w.sum()).backward()
    assert pickle.loads(pickle.dumps(scaler)).get_scale() == 8
    scaler.unscale_(optimizer)
    for copied in (pickle.dumps, copy.deepcopy):
        with pytest.raises(AssertionError, match="may only be pickled at the beginning"):
            copied(scaler)
    scaler.step(optimizer)
    scaler.update()
    assert copy.deepcopy(scaler).state_dict() == scaler.state_dict()


def test_a_step_that_raises_may_be_asked_for_again(lib: Any) -> None:
    class Fails(lib.optim.SGD):
        fails = True

        def step(self) -> Any:
            if self.fails:
                raise ValueError("here")
            return super().step()

    w = lib.ones(2, requires_grad=True)
    optimizer = Fails([w], lr=1.0)
    scaler = lib.amp.GradScaler("cpu", init_scale=8.0)
    scaler.scale(w.sum()).backward()
    with pytest.raises(ValueError, match="here"):
        scaler.step(optimizer)
    optimizer.fails = False
    scaler.step(optimizer)
    assert w.tolist() == [0, 0]


@pytest.mark.parametrize("unscales", [False, True])
@pytest.mark.parametrize("worst", [1.0, float("inf")])
def test_sparse_gradients_are_unscaled(lib: Any, unscales: bool, worst: float) -> None:
    """An index that comes twice has one gradient, which is not finite if one of its parts is."""
    table = lib.nn.Embedding(4, 2, sparse=True)
    with lib.no_grad():
        table.weight.fill_(1.0)
    optimizer = lib.optim.SGD(table.parameters(), lr=0.5)
    scaler = lib.amp.GradScaler("cpu", init_scale=8.0)
    costs = lib.tensor([[worst], [1.0], [1.0]])
    scaler.scale((table(lib.tensor([1, 3, 1])) * costs).sum()).backward()
    if unscales:
        scaler.unscale_(optimizer)
        assert table.weight.grad.is_sparse
        assert table.weight.grad.to_dense()[3].tolist() == [1.0, 1.0]
    scaler.step(optimizer)
    scaler.update()
    rows = [1.0, 0.0, 1.0, 0.5] if worst == 1 else [1.0] * 4
    assert table.weight.tolist() == [[row] * 2 for row in rows]
    assert scaler.get_scale() == (8 if worst == 1 else 4)


@pytest.mark.parametrize("fused", [False, True])
def test_a_step_without_gradients(lib: Any, fused: bool) -> None:
    """Is none; a fused optimizer, which looks at the gradients itself, is asked all the same."""
    v, w = lib.ones(2, requires_grad=True), lib.ones(2, requires_grad=True)
    optimizer, scaler = lib.optim.Adam([w], fused=fused), lib.amp.GradScaler("cpu")
    scaler.scale(v.sum()).backward()
    if fused:
        scaler.step(optimizer)
    else:
        with pytest.raises(AssertionError, match="No inf checks were recorded for this optimizer"):
            scaler.step(optimizer)
    with pytest.raises(AssertionError, match="No inf checks were recorded prior to update"):
        scaler.update()
    assert w.tolist() == [1, 1]


def test_cuda_amp_has_pytorchs_names() -> None:
    torch = pytest.importorskip("torch")
    amp = cugrad.cuda.amp
    assert set(amp.__all__) == set(torch.cuda.amp.__all__)
    assert amp.amp_definitely_not_available() is not cugrad.cuda.is_available()
