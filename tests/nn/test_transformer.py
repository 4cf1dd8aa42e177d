"""The Transformer and its parts beside PyTorch's: outputs, gradients, masks, warnings, errors."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import cugrad

torch = pytest.importorskip("torch", reason="PyTorch, the oracle, is not installed")

RNG = np.random.default_rng(6)
SMALL = {"dim_feedforward": 12, "dropout": 0.0}
SRC, TGT = RNG.standard_normal((5, 3, 8)), RNG.standard_normal((4, 3, 8))
PADDING = np.array([[False] * 5, [False] * 4 + [True], [False] * 3 + [True] * 2])


def causal(lib: Any, n: int) -> Any:
    return lib.nn.Transformer.generate_square_subsequent_mask(n, dtype=lib.float64)


# what is built, and what is called with it; `t` makes a tensor of an array
CASES: dict[str, Any] = {
    "layer": (
        lambda n, o: n.TransformerEncoderLayer(8, 2, **SMALL, **o), lambda lib, t, m: m(t(SRC))),
    "layer, causal": (
        lambda n, o: n.TransformerEncoderLayer(8, 2, **SMALL, **o),
        lambda lib, t, m: m(t(SRC)[:3], src_mask=causal(lib, 3), is_causal=True)),
    "layer, one sequence": (
        lambda n, o: n.TransformerEncoderLayer(8, 2, **SMALL, **o),
        lambda lib, t, m: m(t(SRC[:, 0]))),
    "decoder layer": (
        lambda n, o: n.TransformerDecoderLayer(8, 2, **SMALL, **o),
        lambda lib, t, m: m(t(TGT[:3]), t(SRC[:3]), memory_mask=causal(lib, 3))),
    "encoder": (
        lambda n, o: n.TransformerEncoder(n.TransformerEncoderLayer(8, 2, **SMALL, **o), 2,
                                          n.LayerNorm(8)),
        lambda lib, t, m: m(t(SRC[:3]), mask=causal(lib, 3))),
    "decoder": (
        lambda n, o: n.TransformerDecoder(n.TransformerDecoderLayer(8, 2, **SMALL, **o), 2),
        lambda lib, t, m: m(t(TGT[:3]), t(SRC[:3]), tgt_mask=causal(lib, 3))),
    "whole": (
        lambda n, o: n.Transformer(8, 2, 1, 2, **SMALL, **o),
        lambda lib, t, m: m(t(SRC[:3]), t(TGT[:3]), tgt_mask=causal(lib, 3))),
}  # fmt: skip
OPTIONS: list[dict[str, Any]] = [
    {}, {"norm_first": True, "bias": False}, {"batch_first": True, "activation": "gelu"},
]  # fmt: skip


def pair(build: Any, options: Any) -> tuple[Any, Any]:
    """Both modules in float64, with the same parameters."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        theirs, mine = build(torch.nn, options).double(), build(cugrad.nn, options).double()
    assert list(mine.state_dict()) == list(theirs.state_dict())
    mine.load_state_dict(
        {k: cugrad.from_numpy(v.numpy().copy()) for k, v in theirs.state_dict().items()}
    )
    return theirs, mine


def results(lib: Any, module: Any, call: Any) -> list[np.ndarray]:
    leaves: list[Any] = []

    def tensor(array: Any) -> Any:
        leaves.append(lib.from_numpy(array.copy()).requires_grad_(array.dtype.kind == "f"))
        return leaves[-1]

    out = call(lib, tensor, module)
    total = (out * lib.arange(1, out.numel() + 1).reshape(out.shape)).sin().sum()
    wanted = [x for x in leaves if x.requires_grad] + list(module.parameters())
    grads = lib.autograd.grad(total, wanted)
    return [x.detach().numpy() for x in (out, *grads)]


@pytest.mark.pinned_torch  # whose norms say whether they have a bias
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_repr(name: str, options: Any) -> None:
    theirs, mine = pair(CASES[name][0], options)
    assert repr(mine) == repr(theirs)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_outputs_and_gradients(name: str, options: Any, training: bool) -> None:
    build, call = CASES[name]
    theirs, mine = pair(build, options)
    found = results(cugrad, mine.train(training), call)
    for a, b in zip(found, results(torch, theirs.train(training), call), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("mask", [None, "bool", "float"])
def test_padding(mask: str | None) -> None:
    """Of source, target and memory; with another mask of the same kind, or of another: it warns."""

    def call(lib: Any, t: Any, m: Any) -> Any:
        padding = lib.from_numpy(PADDING.copy())
        other = None if mask is None else causal(lib, 5) if mask == "float" else causal(lib, 5) != 0
        return m(t(SRC), t(SRC), other, other, None, padding, padding, padding)

    theirs, mine = pair(lambda n, o: n.Transformer(8, 2, 1, 1, **SMALL), {})
    said, found = [], []
    for lib, module in ((torch, theirs), (cugrad, mine)):
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            found.append(results(lib, module, call))
        said.append({str(w.message) for w in warned if "mismatched" in str(w.message)})
    assert said[0] == said[1] and bool(said[0]) == (mask == "float")
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-10)


class Scaled:
    """A custom encoder that is no module of PyTorch's."""

    def __call__(self, src: Any, **masks: Any) -> Any:
        return src * 2


SAID: dict[str, Any] = {
    "norm_first": lambda n, t: n.TransformerEncoder(
        n.TransformerEncoderLayer(8, 2, 12, norm_first=True), 1),
    "batch_first": lambda n, t: n.TransformerEncoder(n.TransformerEncoderLayer(8, 2, 12), 1),
    "bias": lambda n, t: n.TransformerEncoder(
        n.TransformerEncoderLayer(8, 2, 12, batch_first=True, bias=False), 1),
    "activation": lambda n, t: n.TransformerEncoder(
        n.TransformerEncoderLayer(8, 2, 12, activation=n.Tanh(), batch_first=True), 1),
    "odd": lambda n, t: n.TransformerEncoder(
        n.TransformerEncoderLayer(9, 3, 12, batch_first=True), 1),
    "nested": lambda n, t: n.TransformerEncoder(
        n.TransformerEncoderLayer(8, 2, 12, batch_first=True), 1).use_nested_tensor,
    "not nested": lambda n, t: n.TransformerEncoder(
        n.TransformerEncoderLayer(8, 2, 12), 1, enable_nested_tensor=False).use_nested_tensor,
    "unknown activation": lambda n, t: n.TransformerEncoderLayer(8, 2, 12, activation="tanh"),
    "batches": lambda n, t: n.Transformer(8, 2, 1, 1, 12)(t.ones(5, 3, 8), t.ones(5, 2, 8)),
    "features": lambda n, t: n.Transformer(8, 2, 1, 1, 12)(t.ones(5, 3, 8), t.ones(5, 3, 6)),
    "a hint without a mask": lambda n, t: n.TransformerEncoderLayer(8, 2, 12)(
        t.ones(5, 3, 8), is_causal=True),
    "a mask of numbers": lambda n, t: n.TransformerEncoderLayer(8, 2, 12)(
        t.ones(5, 3, 8), t.ones(5, 5, dtype=t.int64)),
    "a mask": lambda n, t: n.Transformer.generate_square_subsequent_mask(3).tolist(),
    "own encoder": lambda n, t: tuple(n.Transformer(
        8, 2, 1, 1, 12, custom_encoder=Scaled())(t.ones(5, 3, 8), t.ones(4, 3, 8)).shape),
    "heads": lambda n, t: n.TransformerDecoderLayer(8, 3),
}  # fmt: skip


@pytest.mark.parametrize("name", SAID)
def test_what_is_said_is_what_pytorch_says(name: str) -> None:
    found = []
    for lib in (cugrad, torch):
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            try:
                result = SAID[name](lib.nn, lib)
            except Exception as error:
                result = type(error), str(error)
        found.append((None if hasattr(result, "forward") else result,
                      [str(w.message) for w in warned]))  # fmt: skip
    assert found[0] == found[1]


def test_a_causal_mask_is_known_by_its_numbers(lib: Any) -> None:
    detect = lib.nn.modules.transformer._detect_is_causal_mask
    mask = lib.nn.Transformer.generate_square_subsequent_mask(4)
    assert detect(mask) and detect(mask, size=4) and not detect(mask, size=3)
    assert not detect(mask * 0) and not detect(mask, False) and detect(mask * 0, True)
    assert not detect(None) and detect(None, True)
