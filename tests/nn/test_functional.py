"""Checks layers and losses: values, gradients and running statistics equal to PyTorch's."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import cugrad
from cugrad import nn
from cugrad.nn import functional as F


def draw(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape)


def host(tensor: Any) -> Any:
    return tensor.detach().cpu().numpy()


def both(function: Any, inputs: list[Any], device: str, tight: float = 1e-10) -> None:
    """Compares value and the gradient of every floating input with PyTorch's, in float64."""
    torch = pytest.importorskip("torch", reason="compares with PyTorch, which is not installed")
    results = []
    for lib, where in ((cugrad, device), (torch, "cpu")):
        tensors = [None if x is None else lib.tensor(x, device=where) for x in inputs]
        wanted = [t for t in tensors if t is not None and t.is_floating_point()]
        for t in wanted:
            t.requires_grad_()
        out = function(lib, *tensors)
        seed = lib.tensor(draw(*out.shape, seed=9), device=where)
        (out * seed).sum().backward()
        results.append([host(out), *(host(t.grad) for t in wanted if t.grad is not None)])
    assert len(results[0]) == len(results[1])
    for a, b in zip(*results, strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=tight, atol=tight)


CONVOLUTIONS: list[tuple[tuple[int, ...], tuple[int, ...], bool, dict[str, Any]]] = [
    ((2, 3, 6, 5), (4, 3, 3, 3), True, {}),
    ((2, 3, 6, 5), (4, 3, 3, 3), False, {"stride": 2, "padding": 1}),
    ((2, 3, 6, 5), (4, 3, 3, 2), True, {"padding": "same"}),
    ((2, 3, 7, 7), (4, 3, 2, 4), True, {"padding": "same", "dilation": (1, 2)}),
    ((2, 3, 6, 5), (4, 3, 3, 3), True, {"padding": "valid", "dilation": (2, 1)}),
    ((2, 4, 6, 5), (6, 2, 3, 3), True, {"groups": 2, "stride": (1, 2), "padding": (2, 0)}),
    ((3, 6, 5), (4, 3, 1, 1), True, {}),
    ((3, 6, 5), (4, 3, 2, 2), True, {"padding": "same"}),
]


@pytest.mark.filterwarnings("ignore:Using padding='same'")  # PyTorch's, about a copy it makes
@pytest.mark.parametrize("size, weight, bias, settings", CONVOLUTIONS)
def test_conv2d(size: Any, weight: Any, bias: bool, settings: dict[str, Any], device: str) -> None:
    if "groups" not in settings:
        weight = (weight[0], size[-3], *weight[2:])
    arrays = [draw(*size), draw(*weight, seed=1), draw(weight[0], seed=2) if bias else None]
    both(lambda lib, *a: lib.nn.functional.conv2d(*a, **settings), arrays, device)


@pytest.mark.parametrize(
    "settings",
    [
        {"kernel_size": 2},
        {"kernel_size": 3, "stride": 1, "padding": 1},
        {"kernel_size": (2, 3), "stride": (2, 1), "ceil_mode": True},
        {"kernel_size": 2, "dilation": 2, "stride": 2},
    ],
)
def test_max_pool2d(settings: dict[str, Any], device: str) -> None:
    both(lambda lib, x: lib.nn.functional.max_pool2d(x, **settings), [draw(2, 3, 7, 6)], device)
    both(lambda lib, x: lib.nn.functional.max_pool2d(x, **settings), [draw(3, 7, 6)], device)


def test_max_pool2d_indices(device: str) -> None:
    torch = pytest.importorskip("torch", reason="compares with PyTorch, which is not installed")
    x = draw(2, 3, 7, 6)
    ours = F.max_pool2d(cugrad.tensor(x, device=device), 3, 2, return_indices=True)
    theirs = torch.nn.functional.max_pool2d(torch.tensor(x), 3, 2, return_indices=True)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(host(a), host(b))


def test_linear(device: str) -> None:
    for shape in ((3,), (2, 3), (2, 4, 3)):
        for bias in (draw(5, seed=2), None):
            arrays = [draw(*shape), draw(5, 3, seed=1), bias]
            both(lambda lib, *a: lib.nn.functional.linear(*a), arrays, device)


@pytest.mark.parametrize("dim", [0, -1])
def test_activations(dim: int, device: str) -> None:
    for function in (
        lambda lib, x: lib.nn.functional.relu(x),
        lambda lib, x: lib.nn.functional.softmax(x, dim=dim),
        lambda lib, x: lib.nn.functional.log_softmax(x, dim=dim),
        lambda lib, x: x.softmax(dim) + x.log_softmax(dim, lib.float64),
        lambda lib, x: lib.nn.functional.log_softmax(x * 1000, dim=dim),
        lambda lib, x: lib.nn.functional.softmax(x, dim=dim, dtype=lib.float32).double(),
    ):
        both(function, [draw(3, 4)], device, 1e-6)


def test_relu_in_place(device: str) -> None:
    x = cugrad.tensor([-1.0, 2.0], device=device)
    assert F.relu(x, inplace=True) is x and x.tolist() == [0.0, 2.0]


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("shape", [(4, 3, 2, 2), (5, 3), (2, 3, 4)])
def test_batch_norm(training: bool, affine: bool, shape: tuple[int, ...], device: str) -> None:
    mean, var = draw(3, seed=3), np.abs(draw(3, seed=4)) + 0.5
    scale = [draw(3, seed=1), draw(3, seed=2)] if affine else [None, None]
    seen = []

    def normalise(lib: Any, x: Any, weight: Any, bias: Any) -> Any:
        stats = [lib.tensor(v, device=x.device) for v in (mean, var)]
        out = lib.nn.functional.batch_norm(x, *stats, weight, bias, training, 0.3, 1e-3)
        seen.append([host(s) for s in stats])
        return out

    both(normalise, [draw(*shape) * 3 + 1, *scale], device)
    np.testing.assert_allclose(seen[0], seen[1], rtol=1e-10)


@pytest.mark.parametrize("settings", [{}, {"momentum": None}, {"momentum": 0.3, "affine": False},
                                      {"track_running_stats": False}])  # fmt: skip
def test_batch_norm_layer_over_several_batches(settings: dict[str, Any], device: str) -> None:
    torch = pytest.importorskip("torch", reason="compares with PyTorch, which is not installed")
    ours, theirs = nn.BatchNorm2d(3, **settings).to(device), torch.nn.BatchNorm2d(3, **settings)
    for batch in range(4):
        if batch == 3:
            ours.eval(), theirs.eval()
        x = (draw(4, 3, 2, 2, seed=batch) * (batch + 1)).astype(np.float32)
        a, b = ours(cugrad.tensor(x, device=device)), theirs(torch.tensor(x))
        np.testing.assert_allclose(host(a), host(b), rtol=1e-5, atol=1e-5)
        for name, value in theirs.state_dict().items():
            np.testing.assert_allclose(
                host(ours.state_dict()[name]), host(value), rtol=1e-5, atol=1e-6
            )


def test_batch_norm_of_half_precision_keeps_wide_statistics(device: str) -> None:
    x = cugrad.tensor(draw(64, 2, 8, 8) * 30 + 100, device=device).half()
    norm = nn.BatchNorm2d(2).to(device)
    out = norm(x)
    out.sum().backward()
    assert out.dtype is cugrad.float16 and norm.running_mean.dtype is cugrad.float32
    assert norm.weight.grad.dtype is cugrad.float32
    assert abs(host(out).astype("float64").mean()) < 1e-2
    assert abs(host(out).astype("float64").std() - 1) < 1e-2


# Losses ------------------------------------------------------------

CLASSES = {
    (4,): np.array(2),
    (3, 4): np.array([0, 3, 1]),
    (3, 4, 2): np.array([[0, 3], [1, 1], [2, 0]]),
}


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("shape", CLASSES)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_cross_entropy(
    reduction: str, shape: tuple[int, ...], weighted: bool, smoothing: float, device: str
) -> None:
    weight = np.abs(draw(4, seed=5)) if weighted else None
    settings = {"reduction": reduction, "label_smoothing": smoothing}
    for ignored in (-100, 1):

        def loss(lib: Any, x: Any, target: Any, ignored: int = ignored) -> Any:
            w = None if weight is None else lib.tensor(weight, device=x.device)
            return lib.nn.functional.cross_entropy(x, target, w, ignore_index=ignored, **settings)

        both(loss, [draw(*shape), CLASSES[shape]], device)
    probabilities = np.abs(draw(*shape, seed=6))

    def soft(lib: Any, x: Any, target: Any) -> Any:
        w = None if weight is None else lib.tensor(weight, device=x.device)
        return lib.nn.functional.cross_entropy(x, target, w, **settings)

    both(soft, [draw(*shape), probabilities], device)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_nll_loss_and_mse_loss(reduction: str, device: str) -> None:
    for shape, target in CLASSES.items():
        for weight in (None, np.abs(draw(4, seed=5))):
            both(
                lambda lib, x, t, w: lib.nn.functional.nll_loss(
                    x, t, None if w is None else w.detach(), ignore_index=3, reduction=reduction
                ),
                [draw(*shape), target, weight],
                device,
            )
    both(
        lambda lib, a, b: lib.nn.functional.mse_loss(a, b, reduction=reduction),
        [draw(2, 3), draw(2, 3, seed=1)],
        device,
    )


def test_loss_modules_are_their_functions(device: str) -> None:
    x, t = cugrad.tensor(draw(3, 4), device=device), cugrad.tensor([0, 3, 1], device=device)
    w = cugrad.tensor([1.0, 2.0, 3.0, 4.0], dtype=cugrad.float64, device=device)
    a = nn.CrossEntropyLoss(w, reduction="sum", label_smoothing=0.1)(x, t)
    assert a.item() == F.cross_entropy(x, t, w, reduction="sum", label_smoothing=0.1).item()
    b = nn.NLLLoss(w, ignore_index=3)(F.log_softmax(x, 1), t)
    assert b.item() == F.cross_entropy(x, t, w, ignore_index=3).item()
    assert nn.MSELoss(reduction="sum")(x, x + 2).item() == pytest.approx(48)


@pytest.mark.parametrize(
    "call, error, message",
    [
        (lambda x, t: F.cross_entropy(x, t, reduction="avg"), ValueError, "is not a valid value"),
        (lambda x, t: nn.CrossEntropyLoss(reduction="avg"), ValueError, "is not a valid value"),
        (lambda x, t: F.cross_entropy(x, t, label_smoothing=2.0), RuntimeError, "label_smoothing"),
        (lambda x, t: F.cross_entropy(x, t[:2]), ValueError, "batch_size"),
        (lambda x, t: F.nll_loss(x, t.double()), RuntimeError, "Long or Byte"),
        (lambda x, t: F.cross_entropy(x, x.long()), RuntimeError, "Expected floating point type"),
        (lambda x, t: F.cross_entropy(x, x, ignore_index=1), RuntimeError, "is not supported"),
        (lambda x, t: F.nll_loss(x, t, x[0].float()), RuntimeError, "scalar type .* but found"),
        (lambda x, t: F.multi_margin_loss(x, t[:2]), RuntimeError, r"size \[3\], but got \[2\]"),
        (lambda x, t: nn.HuberLoss(delta=1j), TypeError, "delta must be a float or int"),
        (lambda x, t: F.huber_loss(x, x, delta=1j), TypeError, "must be float, not complex"),
        (lambda x, t: nn.BatchNorm1d(4, eps=0.0)(x), ValueError, "eps must be positive"),
        (lambda x, t: nn.BatchNorm1d(4, eps=-1.0).eval()(x), ValueError, "non-negative"),
        (lambda x, t: F.nll_loss(x, t + 9), IndexError, "Target 9 is out of bounds"),
        (lambda x, t: F.nll_loss(x, t, x[0, :3]), RuntimeError, "weight"),
        (lambda x, t: F.dropout(x, -0.1), ValueError, "between 0 and 1, but got -0.1"),
        (lambda x, t: F.conv2d(x, x), RuntimeError, r"Expected 3D \(unbatched\)"),
        (lambda x, t: F.max_pool2d(x, 2), RuntimeError, "non-empty 3D or 4D"),
        (lambda x, t: F.max_pool2d(x[None], 2, 0), RuntimeError, "stride should not be zero"),
        (lambda x, t: F.conv2d(x[None, None], x[None, None], padding=-1), RuntimeError, "negative"),
        (lambda x, t: F.batch_norm(x, None, None), RuntimeError, "running_mean"),
        (lambda x, t: F.batch_norm(x, t, t), RuntimeError, "contain 4 elements not 3"),
        (lambda x, t: F.batch_norm(x[:, :1], None, None, t, t, True), RuntimeError, "not 3"),
    ],
)
def test_bad_input_is_named(call: Any, error: Any, message: str) -> None:
    x, t = cugrad.tensor(draw(3, 4), device="cpu"), cugrad.tensor([0, 3, 1], device="cpu")
    with pytest.raises(error, match=message):
        call(x, t)


# Dropout ------------------------------------------------------------


def test_dropout_scales_what_it_keeps_and_its_gradient_alike(device: str) -> None:
    x = cugrad.ones(20_000, device=device, requires_grad=True)
    y = F.dropout(x, 0.25)
    values = host(y)
    kept = values != 0
    assert abs(kept.mean() - 0.75) < 0.02
    np.testing.assert_allclose(values[kept], 1 / 0.75, rtol=1e-6)
    y.sum().backward()
    np.testing.assert_array_equal(host(x.grad), values)


def test_dropout_at_its_limits(device: str) -> None:
    x = cugrad.ones(5, device=device)
    assert F.dropout(x, 1.0).tolist() == [0.0] * 5
    assert F.dropout(x, 0.0).tolist() == [1.0] * 5
    assert F.dropout(x, 0.5, training=False).tolist() == [1.0] * 5
    assert nn.Dropout(0.9).eval()(x).tolist() == [1.0] * 5
    assert F.dropout(x, 1.0, inplace=True) is x and x.tolist() == [0.0] * 5


def test_the_seed_decides_what_is_dropped(device: str) -> None:
    x, seen = cugrad.ones(50, device=device), []
    for _ in range(2):
        cugrad.manual_seed(5)
        seen.append(F.dropout(x).tolist())
    assert seen[0] == seen[1] != F.dropout(x).tolist()


def test_no_layer_draws_a_gradient_for_its_mask(device: str) -> None:
    layer = nn.Sequential(nn.Dropout(0.5), nn.ReLU())
    x = cugrad.ones(3, device=device, requires_grad=True)
    layer(x).sum().backward()
    assert x.grad is not None


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("settings", [{}, {"stride": 2, "padding": 1}, {"groups": 2}], ids=str)
def test_gradients_of_convolutions_as_functions(n: int, settings: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch", reason="compares with PyTorch, which is not installed")
    x, weight = draw(2, 4, *[6] * n), draw(6, 4 // settings.get("groups", 1), *[3] * n, seed=1)
    grad = draw(2, 6, *[3 if "stride" in settings else 4] * n, seed=2)
    results = []
    for lib in (cugrad, torch):
        a, w, g = (lib.tensor(array) for array in (x, weight, grad))
        results.append([
            getattr(lib.nn.grad, f"conv{n}d_input")(x.shape, w, g, **settings),
            getattr(lib.nn.grad, f"conv{n}d_weight")(a, weight.shape, g, **settings),
        ])  # fmt: skip
    for ours, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(host(ours), host(theirs), rtol=1e-10, atol=1e-10)


# Operands of two dtypes --------------------------------------------------------------------------

VECTORS: dict[str, Any] = {
    "layer_norm": lambda F, x, v: F.layer_norm(x, (3,), v(), v()),
    "layer_norm, one": lambda F, x, v: F.layer_norm(x, (3,), v(), v().to(x.dtype)),
    "group_norm": lambda F, x, v: F.group_norm(x, 3, v(), v()),
    "batch_norm": lambda F, x, v: F.batch_norm(x, v(), v(), v(), v(), True),
    "batch_norm, statistics": lambda F, x, v: F.batch_norm(x, v(), v()),
    "instance_norm": lambda F, x, v: F.instance_norm(x[..., None] + x[..., None, :], weight=v()),
    "rms_norm": lambda F, x, v: F.rms_norm(x, (3,), v()),
    "nll_loss": lambda F, x, v: F.nll_loss(x, x[:, 0].long(), v()),
    "cross_entropy": lambda F, x, v: F.cross_entropy(x, x[:, 0].long(), v()),
    "cross_entropy, smooth": lambda F, x, v: F.cross_entropy(
        x, x[:, 0].long(), v(), label_smoothing=0.1
    ),
    "cross_entropy, soft": lambda F, x, v: F.cross_entropy(x, x, v()),
    "embedding_bag": lambda F, x, v: F.embedding_bag(
        x.long().clamp(0, 1), v()[:, None].to(x.dtype), per_sample_weights=v().expand(2, 3),
        mode="sum",
    ),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:Mismatch dtype between input and weight")  # PyTorch's
@pytest.mark.parametrize("name", VECTORS)
def test_operands_of_two_dtypes_meet_as_in_pytorch(name: str) -> None:
    """The dtype of the result, or an error of the same type."""
    torch = pytest.importorskip("torch", reason="compares with PyTorch, which is not installed")
    for wide, narrow in product(("float64", "float32", "float16", "bfloat16"), repeat=2):
        results = []
        for lib in (torch, cugrad):
            x = lib.tensor([[1.0, 0.0, 2.0], [0.0, 1.0, 4.0]], dtype=getattr(lib, wide))
            of = getattr(lib, narrow)

            def vector(lib: Any = lib, of: Any = of) -> Any:
                return lib.ones(3, dtype=of)

            try:
                results.append(str(VECTORS[name](lib.nn.functional, x, vector).dtype))
            except RuntimeError as error:
                results.append(type(error).__name__)
        assert results[0] == results[1], (wide, narrow)


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("name", ["attention", "masked", "normed", "rnn", "loss"])
def test_what_is_packed_is_unpacked_once(name: str, create_graph: bool, device: str) -> None:
    x, mask = (cugrad.tensor(draw(1, 2, *shape), device=device, requires_grad=True)
               for shape in ((5, 4), (5, 5)))  # fmt: skip
    attend = F.scaled_dot_product_attention
    layer = nn.GRU(4, 3, dtype=x.dtype, device=device)
    labels = cugrad.zeros(2, 4, dtype=cugrad.int64, device=device)
    calls: dict[str, Any] = {
        "attention": lambda: attend(x, x * 2, x * 3, is_causal=True),
        "masked": lambda: attend(x, x * 2, x * 3, mask),
        "normed": lambda: F.group_norm(F.layer_norm(x.sin(), (4,)), 2),
        "rnn": lambda: layer(x[0])[0],
        "loss": lambda: F.cross_entropy(x[0], labels),
    }
    packed, unpacked = [], []

    def pack(t: Any) -> Any:
        packed.append(len(packed))
        return packed[-1], t

    def unpack(held: Any) -> Any:
        unpacked.append(held[0])
        return held[1]

    with cugrad.autograd.graph.saved_tensors_hooks(pack, unpack):
        y = calls[name]().sum()
    y.backward(create_graph=create_graph)
    assert packed and sorted(unpacked) == packed


def test_grouped_heads_that_are_missing_are_named() -> None:
    x = cugrad.ones(2, 3)
    with pytest.raises(IndexError, match=r"Dimension out of range .*\[-2, 1\], but got -3"):
        F.scaled_dot_product_attention(x, x, x, enable_gqa=True)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float64", "complex64"])
@pytest.mark.parametrize("size", [1e-4, 1e-2, 1.0])
def test_the_epsilon_of_rms_norm_is_that_of_what_computes(dtype: str, size: float) -> None:
    """Where it is not given. Small rows show it: in half precision it is float32's."""
    torch = pytest.importorskip("torch", reason="compares with PyTorch, which is not installed")
    found: list[Any] = []
    for lib in (cugrad, torch):
        kind = getattr(lib, dtype)
        x = (lib.tensor([[1.0, -2.0, 3.0]]) * size).to(kind).requires_grad_()
        y = lib.nn.RMSNorm(3, dtype=kind)(x)
        y.abs().sum().backward()
        wide = lib.complex128 if dtype.startswith("complex") else lib.float64
        found.append([v.detach().to(wide).numpy() for v in (y, x.grad)])
    near = {"bfloat16": 2e-2, "float16": 3e-3}.get(dtype, 1e-5)
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=near, atol=near * abs(theirs).max())


def test_what_conv_tbc_gives_is_no_view() -> None:
    x, weight = cugrad.ones(4, 1, 2, requires_grad=True), cugrad.ones(3, 2, 5)
    result = F.conv_tbc(x, weight, cugrad.zeros(5))
    assert result._base is None
    result.mul_(2).sum().backward()
    assert x.grad.sum().item() == 120.0 and not result.detach_().requires_grad


@pytest.mark.parametrize("dtype", [cugrad.int32, cugrad.uint8, cugrad.bool])
@pytest.mark.parametrize("norm", [
    lambda x: F.layer_norm(x, (3,)), lambda x: F.group_norm(x, 2), lambda x: F.rms_norm(x, (3,)),
    lambda x: F.batch_norm(x, None, None, training=True), F.instance_norm,
])  # fmt: skip
def test_norms_are_not_of_whole_numbers(norm: Any, dtype: Any) -> None:
    with pytest.raises(NotImplementedError, match="not implemented for"):
        norm(cugrad.ones(2, 4, 3).to(dtype))
