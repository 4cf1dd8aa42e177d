"""Modules beside PyTorch's: the same parameters by name, the same outputs and gradients, repr."""

from __future__ import annotations

import ast
import importlib
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cugrad

torch = pytest.importorskip("torch", reason="PyTorch, the oracle, is not installed")

RNG = np.random.default_rng(3)


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def integers(*shape: int, high: int) -> np.ndarray:
    return RNG.integers(0, high, shape)


# name, constructor arguments, inputs; modules that draw at random are compared in evaluation mode
CASES: list[tuple[str, tuple[Any, ...], dict[str, Any], tuple[Any, ...]]] = [
    ("BatchNorm1d", (3,), {}, (normal(4, 3),)),
    ("BatchNorm1d", (3,), {"momentum": None}, (normal(4, 3, 5),)),
    ("BatchNorm3d", (2,), {"affine": False}, (normal(2, 2, 3, 3, 2),)),
    ("InstanceNorm1d", (3,), {}, (normal(2, 3, 5),)),
    ("InstanceNorm1d", (3,), {"affine": True}, (normal(3, 5),)),
    ("InstanceNorm2d", (3,), {"affine": True, "track_running_stats": True}, (normal(2, 3, 4, 4),)),
    ("InstanceNorm3d", (2,), {}, (normal(2, 2, 3, 3, 2),)),
    ("EmbeddingBag", (7, 3), {}, (integers(2, 4, high=7),)),
    ("EmbeddingBag", (7, 3), {"mode": "sum", "padding_idx": 2},
     (integers(6, high=7), np.array([0, 2, 2]))),
    ("EmbeddingBag", (7, 3), {"mode": "max"}, (integers(6, high=7), np.array([0, 4]))),
    ("Embedding", (7, 3), {"max_norm": 1.0}, (integers(2, 4, high=7),)),
    ("Embedding", (7, 3), {"scale_grad_by_freq": True}, (np.array([1, 1, 4]),)),
    ("MultiheadAttention", (8, 2), {}, (normal(5, 3, 8),) * 3),
    ("MultiheadAttention", (8, 4), {"batch_first": True, "bias": False}, (normal(3, 5, 8),) * 3),
    ("MultiheadAttention", (8, 2), {"kdim": 6, "vdim": 4},
     (normal(5, 3, 8), normal(7, 3, 6), normal(7, 3, 4))),
    ("MultiheadAttention", (8, 2), {"add_bias_kv": True, "add_zero_attn": True},
     (normal(5, 8),) * 3),
    ("RReLU", (), {}, (normal(4, 3),)),
    ("Softmax2d", (), {}, (normal(2, 3, 4, 4),)),
    ("Dropout1d", (0.3,), {}, (normal(2, 3, 4),)),
    ("Dropout2d", (0.3,), {}, (normal(2, 3, 4, 4),)),
    ("Dropout3d", (0.3,), {}, (normal(2, 3, 4, 4, 2),)),
    ("AlphaDropout", (0.3,), {}, (normal(4, 3),)),
    ("FeatureAlphaDropout", (0.3,), {}, (normal(2, 3, 4),)),
    ("MultiMarginLoss", (), {"p": 2, "margin": 0.5}, (normal(4, 3), integers(4, high=3))),
    ("MultiLabelMarginLoss", (), {}, (normal(2, 4), np.array([[3, 0, -1, 1], [1, -1, -1, -1]]))),
    ("TripletMarginWithDistanceLoss", (), {"swap": True},
     (normal(3, 4), normal(3, 4), normal(3, 4))),
    ("CTCLoss", (), {}, (normal(12, 3, 5), integers(3, 4, high=4) + 1, np.array([12, 9, 5]),
                         np.array([4, 2, 3]))),
    ("AdaptiveLogSoftmaxWithLoss", (8, 20), {"cutoffs": [5, 10], "div_value": 2.0},
     (normal(6, 8), np.array([0, 7, 19, 4, 5, 12]))),
    ("AdaptiveLogSoftmaxWithLoss", (8, 20), {"cutoffs": [5, 10], "head_bias": True, "div_value": 2},
     (normal(3, 8), np.array([0, 1, 4]))),
    ("AdaptiveLogSoftmaxWithLoss", (8, 20, [5]), {}, (normal(8), np.array(6))),
    ("CTCLoss", (), {"zero_infinity": True, "reduction": "sum"},
     (normal(4, 2, 5), np.array([[1, 1, 1], [2, 3, 0]]), np.array([4, 4]), np.array([3, 2]))),
]  # fmt: skip
DRAW = {"RReLU", "Dropout1d", "Dropout2d", "Dropout3d", "AlphaDropout", "FeatureAlphaDropout"}
UNUSUAL_REPR = {"TripletMarginWithDistanceLoss", "EmbeddingBag", "MultiheadAttention"}


# A norm says whether it has a bias.
SAID = [pytest.param(*case[:3], marks=[pytest.mark.pinned_torch] * ("Norm" in case[0]))
        for case in [*CASES, ("SyncBatchNorm", (4,), {})]
        if case[0] not in UNUSUAL_REPR]  # fmt: skip


@pytest.mark.parametrize("name, args, kwargs", SAID)
def test_repr(name: str, args: Any, kwargs: Any) -> None:
    ours, theirs = (getattr(lib.nn, name)(*args, **kwargs) for lib in (cugrad, torch))
    assert repr(ours) == repr(theirs)


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c[0]}{c[1]}{c[2]}")
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_module(case: Any, training: bool) -> None:
    name, args, kwargs, arrays = case
    if training and name in DRAW:
        pytest.skip("draws at random; tests below and test_opinfo look at what")
    theirs = getattr(torch.nn, name)(*args, **kwargs).train(training)
    mine = getattr(cugrad.nn, name)(*args, **kwargs).train(training)
    assert list(mine.state_dict()) == list(theirs.state_dict())
    mine.load_state_dict({k: cugrad.from_numpy(v.numpy().copy())
                          for k, v in theirs.state_dict().items()})  # fmt: skip

    def run(lib: Any, module: Any) -> tuple[list[Any], list[Any]]:
        inputs = [lib.from_numpy(a.copy()) for a in arrays]
        leaves = [x.requires_grad_() for x in inputs if x.is_floating_point()]
        if name == "CTCLoss":  # PyTorch's gradient is right for log-probabilities that add up
            inputs = [lib.log_softmax(inputs[0], -1), *inputs[1:]]
        out = module(*inputs)
        outs = [o for o in (out if isinstance(out, tuple) else (out,)) if o is not None]
        leaves += list(module.parameters())
        total = sum((o * lib.arange(1, o.numel() + 1).reshape(o.shape)).sum() for o in outs)
        grads = lib.autograd.grad(total, leaves, allow_unused=True) if leaves else []
        found = [*outs, *[g for g in grads if g is not None], *module.buffers()]
        return [x.detach().numpy() for x in found], [g is None for g in grads]

    got, absent = run(cugrad, mine)
    want, theirs_absent = run(torch, theirs)
    assert absent == theirs_absent
    for i, (a, b) in enumerate(zip(got, want, strict=True)):
        assert a.shape == b.shape, f"{i}: {a.shape}, PyTorch has {b.shape}"
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-4, err_msg=f"result {i}")


@pytest.mark.parametrize("name, shape, axes", [
    ("dropout1d", (50, 40, 3), (2,)), ("dropout2d", (50, 40, 3, 2), (2, 3)),
    ("dropout3d", (50, 40, 2, 2, 2), (2, 3, 4)), ("dropout", (50, 40), ()),
])  # fmt: skip
def test_dropout_drops_whole_channels_at_its_rate(name: str, shape: Any, axes: Any) -> None:
    cugrad.manual_seed(0)
    x = cugrad.ones(shape, requires_grad=True)
    y = getattr(cugrad.nn.functional, name)(x, 0.25)
    values = y.detach().numpy()
    assert np.unique(values).tolist() == pytest.approx([0.0, 4 / 3])
    assert abs((values == 0).mean() - 0.25) < 0.03
    per_channel = values.any(axes) == values.all(axes) if axes else True
    assert np.all(per_channel)
    y.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), values)


@pytest.mark.parametrize("name", ["alpha_dropout", "feature_alpha_dropout"])
def test_alpha_dropout_keeps_mean_and_variance(name: str) -> None:
    cugrad.manual_seed(0)
    x = cugrad.randn(2000, 50)
    y = getattr(cugrad.nn.functional, name)(x, 0.2, training=True)
    assert abs(y.mean().item()) < 0.03 and abs(y.std().item() - 1) < 0.03


def test_attention_in_blocks_is_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no gradient is asked for, scores of a few queries are held at a time."""
    from cugrad.nn.functional import attention

    q, k, v = (cugrad.from_numpy(normal(2, 3, n, 4)) for n in (9, 7, 7))
    mask = cugrad.from_numpy(RNG.random((9, 7)) > 0.4)
    attend = cugrad.nn.functional.scaled_dot_product_attention
    whole = [attend(q, k, v, mask), attend(q, k, v, is_causal=True), attend(q, k, v)]
    monkeypatch.setattr(attention, "BLOCK", 90)
    parts = [attend(q, k, v, mask), attend(q, k, v, is_causal=True), attend(q, k, v)]
    for a, b in zip(whole, parts, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["bool", "float"])
def test_query_that_sees_no_key_attends_to_nothing(kind: str) -> None:
    """The output is 0 there and all gradients are finite, however the mask is written."""
    q, k, v = (cugrad.from_numpy(normal(2, n, 4)).requires_grad_() for n in (3, 5, 5))
    seen = cugrad.ones(3, 5, dtype=cugrad.bool)
    seen[1] = False
    hidden = cugrad.zeros(3, 5, dtype=q.dtype).masked_fill(~seen, float("-inf"))
    attend = cugrad.nn.functional.scaled_dot_product_attention
    out = attend(q, k, v, seen if kind == "bool" else hidden.requires_grad_())
    out.sum().backward()
    assert not out[:, 1].detach().numpy().any() and out[:, 0].detach().numpy().all()
    assert all(np.isfinite(x.grad.numpy()).all() for x in (q, k, v))
    assert hidden.grad is None or np.isfinite(hidden.grad.numpy()).all()


def classes() -> dict[str, tuple[type, type]]:
    """Every class of torch.nn that is here: ours, and theirs."""
    names = [n for n in dir(torch.nn) if isinstance(getattr(torch.nn, n), type)
             and isinstance(getattr(cugrad.nn, n, None), type)]  # fmt: skip
    return {n: (getattr(cugrad.nn, n), getattr(torch.nn, n)) for n in names}


@pytest.mark.pinned_torch
def test_a_class_lives_where_pytorch_has_it() -> None:
    """Its path, by which pickle finds it, its own docstring, and its place in the room's list."""
    listed: set[str] = set()
    for name, (ours, theirs) in classes().items():
        assert ours.__module__ == theirs.__module__.replace("torch", "cugrad", 1)
        home = importlib.import_module(ours.__module__)
        assert getattr(home, name) is ours and ours.__qualname__ == ours.__name__ == name
        assert pickle.loads(pickle.dumps(ours)) is ours
        assert ours.__doc__ and "{n}" not in ours.__doc__
        if ours.__module__.startswith("cugrad.nn.modules."):
            listed.add(name)
    assert listed == set(cugrad.nn.modules.__all__) <= set(cugrad.nn.__all__)


@pytest.mark.parametrize("room", ["nn", "nn.functional", "nn.modules"])
def test_type_checkers_see_what_star_imports_bring(room: str) -> None:
    """They take every name of a module without `__all__`; one that they half understand hides the
    rest, and `nn.Linear` becomes Any for a user.
    """
    path = importlib.import_module(f"cugrad.{room}").__file__
    assert path is not None
    for statement in ast.parse(Path(path).read_text()).body:
        text = ast.unparse(statement)
        assert "__all__ =" not in text or text.startswith("if not _typing.TYPE_CHECKING:"), text


def test_a_class_of_ones_own_keeps_its_number_of_dims_and_its_docstring() -> None:
    class Halved(cugrad.nn.MaxPool2d):
        """Ours."""

    assert Halved.__doc__ == "Ours." and Halved(2)(cugrad.ones(1, 4, 4)).shape == (1, 2, 2)


def test_layers_are_of_one_another_s_classes_as_in_pytorch() -> None:
    """`isinstance(layer, nn.Dropout)` and its like: every pair of classes, and the shared ones."""
    both = classes()
    for path in ("batchnorm._BatchNorm", "batchnorm._NormBase", "instancenorm._InstanceNorm",
                 "conv._ConvNd", "conv._ConvTransposeNd", "dropout._DropoutNd", "loss._Loss",
                 "loss._WeightedLoss", "padding._CircularPadNd", "padding._ConstantPadNd",
                 "padding._ReflectionPadNd", "padding._ReplicationPadNd",
                 "pooling._AdaptiveAvgPoolNd", "pooling._AdaptiveMaxPoolNd", "pooling._AvgPoolNd",
                 "pooling._LPPoolNd", "pooling._MaxPoolNd", "pooling._MaxUnpoolNd"):  # fmt: skip
        room, _, name = path.partition(".")
        homes = [importlib.import_module(f"{lib}.nn.modules.{room}") for lib in ("cugrad", "torch")]
        both[path] = (getattr(homes[0], name), getattr(homes[1], name))
    for a, (ours, theirs) in both.items():
        for b, (our_other, their_other) in both.items():
            assert issubclass(ours, our_other) == issubclass(theirs, their_other), (a, b)


def made_of_parts(lib: Any) -> list[Any]:
    """What layers compute that are a program's own."""
    nn = lib.nn

    class Standardized(nn.Conv2d):  # type: ignore[name-defined, misc]
        def forward(self, x: Any) -> Any:
            return self._conv_forward(x, self.weight - self.weight.mean(), self.bias)

    class Masked(nn.Conv2d):  # type: ignore[name-defined, misc]
        def _conv_forward(self, x: Any, weight: Any, bias: Any) -> Any:
            return super()._conv_forward(x, weight * 0 + 1, bias)

    class Own(nn.modules.conv._ConvNd):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__(
                1, 2, (3, 2), (1, 1), (0, 1), (1, 1), False, (0, 0), 1, False, "circular"
            )

        def forward(self, x: Any) -> Any:
            border = self._reversed_padding_repeated_twice
            x = nn.functional.pad(x, border, mode=self.padding_mode)
            return nn.functional.conv2d(x, lib.ones_like(self.weight), None, self.stride)

    class Norm(nn.modules.batchnorm._BatchNorm):  # type: ignore[name-defined, misc]
        def _check_input_dim(self, x: Any) -> None:
            if x.dim() != 4:
                raise ValueError("four dims")

    x = lib.arange(32.0).reshape(1, 1, 8, 4)
    one = lib.nn.ConvTranspose2d(1, 1, 3, stride=2)
    where = one.stride, one.padding, one.kernel_size
    layers = [Standardized(1, 1, 3, padding=1, padding_mode="reflect", bias=False),
              Masked(1, 1, 3, bias=False), Own(), Norm(1)]  # fmt: skip
    layers[0].weight.data.fill_(2)
    with pytest.raises(ValueError, match="four dims"):
        layers[3](x[0])
    with pytest.raises(NotImplementedError):
        nn.modules.batchnorm._BatchNorm(1)(x)
    return [
        [layer(x).tolist() for layer in layers], [list(layer(x).shape) for layer in layers],
        list(one._output_padding(x, (18, 9), *where, 2)), str(layers[2])[4:],
        list(one._output_padding(x, None, *where, 2)),
    ]  # fmt: skip


def test_layers_of_a_program_are_made_of_parts_of_ours() -> None:
    """As weight standardization, convolutions with a mask and norms of other inputs are."""
    (want, *others), (got, *ours) = made_of_parts(torch), made_of_parts(cugrad)
    np.testing.assert_allclose(got.pop(), want.pop(), atol=1e-6)
    assert got == want and ours == others


def test_a_model_in_another_memory_format() -> None:
    strides = []
    for lib in (cugrad, torch):
        model = lib.nn.Sequential(lib.nn.Conv2d(3, 4, 3), lib.nn.BatchNorm2d(4), lib.nn.Flatten())
        model.to(memory_format=lib.channels_last)
        strides.append([p.stride() for p in model.state_dict().values()])
    assert strides[0] == strides[1]


def test_adaptive_softmax_knows_all_classes() -> None:
    theirs = torch.nn.AdaptiveLogSoftmaxWithLoss(8, 20, [3, 9], div_value=2.0)
    mine = cugrad.nn.AdaptiveLogSoftmaxWithLoss(8, 20, [3, 9], div_value=2.0)
    mine.load_state_dict({k: cugrad.from_numpy(v.numpy().copy())
                          for k, v in theirs.state_dict().items()})  # fmt: skip
    x = normal(30, 8) * 5
    for name in ("log_prob", "predict"):
        found, wanted = (getattr(m, name)(lib.from_numpy(x))
                         for lib, m in ((cugrad, mine), (torch, theirs)))  # fmt: skip
        np.testing.assert_allclose(found.detach().numpy(), wanted.detach().numpy(), atol=1e-4)
    assert len(set(found.tolist())) > 3


@pytest.mark.pinned_torch
def test_errors_of_adaptive_softmax_are_pytorchs() -> None:
    for bad in (lambda lib: lib.nn.AdaptiveLogSoftmaxWithLoss(8, 20, []),
                lambda lib: lib.nn.AdaptiveLogSoftmaxWithLoss(8, 20, [5, 5]),
                lambda lib: lib.nn.AdaptiveLogSoftmaxWithLoss(8, 20, [5, 20]),
                lambda lib: lib.nn.AdaptiveLogSoftmaxWithLoss(8, 20, [5])(
                    lib.ones(2, 8), lib.tensor([0, 20])),
                lambda lib: lib.nn.AdaptiveLogSoftmaxWithLoss(8, 20, [5])(
                    lib.ones(2, 8), lib.tensor([0])),
                lambda lib: lib.nn.AdaptiveLogSoftmaxWithLoss(8, 20, [5])(
                    lib.ones(2, 8), lib.tensor(1)),
                lambda lib: lib.nn.CrossMapLRN2d(2)(lib.ones(2, 8))):  # fmt: skip
        said = []
        for lib in (cugrad, torch):
            with pytest.raises((ValueError, RuntimeError)) as caught:
                bad(lib)
            said.append((caught.type, str(caught.value)))
        assert said[0] == said[1]


def test_sync_batch_norm_is_a_batch_norm_in_one_process() -> None:
    model = cugrad.nn.Sequential(cugrad.nn.Linear(3, 4), cugrad.nn.BatchNorm1d(4))
    sync = cugrad.nn.SyncBatchNorm.convert_sync_batchnorm(model)
    theirs = torch.nn.SyncBatchNorm(4)
    assert sync is model and repr(sync[1]) == repr(cugrad.nn.SyncBatchNorm(4))
    assert list(sync[1].state_dict()) == list(theirs.state_dict())
    x = normal(5, 4, 2)
    for training in (True, False):
        found = sync[1].train(training)(cugrad.from_numpy(x))
        wanted = theirs.train(training)(torch.from_numpy(x))
        np.testing.assert_allclose(found.detach().numpy(), wanted.detach().numpy(), atol=1e-5)
    for bad, error in ((lambda n: n.SyncBatchNorm(4)(cugrad.ones(4)), ValueError),
                       (lambda n: n.SyncBatchNorm(4)(cugrad.ones(4, 0)), ValueError)):  # fmt: skip
        with pytest.raises(error, match="SyncBatchNorm|at least 2D"):
            bad(cugrad.nn)


@pytest.mark.parametrize("size, channels", [(1, 4), (3, 6), (4, 6), (5, 3), (7, 2)])
def test_cross_map_norm(size: int, channels: int) -> None:
    """PyTorch's values; the gradient is that of the function, and PyTorch's that of another."""
    mine, theirs = (lib.nn.CrossMapLRN2d(size, 0.5, k=2) for lib in (cugrad, torch))
    x = RNG.standard_normal((2, channels, 2, 3))
    assert repr(mine) == repr(theirs)
    found = mine(cugrad.from_numpy(x)).numpy()
    np.testing.assert_allclose(found, theirs(torch.from_numpy(x)).numpy(), rtol=1e-9)
    assert cugrad.autograd.gradcheck(mine, cugrad.from_numpy(x[:1, :, :1, :1]).requires_grad_())


NORMS = [
    (name, arguments, shape)
    for name, arguments, shapes in (
        ("BatchNorm1d", (3,), [(0, 3), (0, 3, 4), (2, 3, 0)]),
        ("BatchNorm2d", (3, 1e-5, None), [(0, 3, 2, 2), (2, 3, 0, 2)]),
        ("BatchNorm1d", (3, 1e-5, 0.1, True, False), [(0, 3)]),
        ("InstanceNorm1d", (3, 1e-5, 0.1, True, True), [(2, 3, 0)]),
        ("GroupNorm", (3, 3), [(0, 3), (0, 3, 4)]),
        ("LayerNorm", (3,), [(0, 3)]),
        ("RMSNorm", (3,), [(0, 2, 3)]),
    )
    for shape in shapes
]


@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
@pytest.mark.parametrize("name, arguments, shape", NORMS)
def test_an_empty_batch_moves_nothing(
    lib: Any, name: str, arguments: Any, shape: Any, kind: str
) -> None:
    """As an expert that no token chose: no statistic becomes nan, and gradients are zero."""
    dtype = getattr(lib, kind)
    layer = getattr(lib.nn, name)(*arguments).to(dtype)
    before = {k: v.clone() for k, v in layer.state_dict().items()}
    x = lib.zeros(shape, dtype=dtype, requires_grad=True)
    out = layer(x)
    assert out.shape == shape and out.dtype is dtype
    grads = lib.autograd.grad(out.sum(), [x, *layer.parameters()], create_graph=True)
    assert grads[0].shape == shape
    for grad in grads[1:]:
        assert not grad.any() and grad.dtype is dtype
    for key, value in layer.state_dict().items():
        want = before[key] + (key == "num_batches_tracked" and not name.startswith("Instance"))
        assert lib.equal(value, want)
