"""flex_attention and its masks beside PyTorch's: values, gradients, blocks, drawings, errors."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import cugrad
from tests.support.pinned_torch import cases

torch = pytest.importorskip("torch", reason="PyTorch, the oracle, is not installed")
theirs: Any = pytest.importorskip("torch.nn.attention.flex_attention")
inner: Any = pytest.importorskip("torch._higher_order_ops.flex_attention")
mine = cugrad.nn.attention.flex_attention

RNG = np.random.default_rng(11)
HEADS, LENGTH = 4, 5
SIDES = RNG.standard_normal((2, HEADS, LENGTH, 3)), RNG.standard_normal((2, HEADS, LENGTH, 2))
TABLE = RNG.standard_normal((HEADS, 2 * LENGTH))
DOCUMENTS = np.array([0, 0, 1, 1, 1])
Mod = Callable[..., Any]


@pytest.fixture(autouse=True)
def uncompiled(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """PyTorch's eager way, which is the definition, and takes no seconds to compile."""
    monkeypatch.setattr(theirs, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)
    yield


# Functions of a place, made of a library and what they read: `table` learns.
def alibi(lib: Any, table: Any) -> Mod:
    return lambda s, b, h, q, k: s + (k - q) * lib.exp2(-(h + 1) * 8.0 / HEADS)


def relative(lib: Any, table: Any) -> Mod:
    return lambda s, b, h, q, k: s + table[h, q - k + LENGTH]


def capped(lib: Any, table: Any) -> Mod:
    return lambda s, b, h, q, k: 2.0 * lib.tanh(s / 2.0)


def learnt(lib: Any, table: Any) -> Mod:
    return lambda s, b, h, q, k: lib.where(q >= k, s * table[h, k].exp() + b, -math.inf)


def causal(lib: Any) -> Mod:
    return lambda b, h, q, k: q >= k


def window(lib: Any) -> Mod:
    return lambda b, h, q, k: (q >= k) & (q - k < 2 + h)


def documents(lib: Any) -> Mod:
    names = lib.tensor(DOCUMENTS)
    return lambda b, h, q, k: names[q] == names[k]


def some_blind(lib: Any) -> Mod:
    return lambda b, h, q, k: (q > k) & (q != 2 + b)


def mixed(lib: Any) -> Mod:
    flex = lib.nn.attention.flex_attention
    prefix = flex.or_masks(causal(lib), lambda b, h, q, k: k < 2)
    return flex.and_masks(prefix, documents(lib), flex.noop_mask)


SCORES = [None, alibi, relative, capped, learnt]
MASKS = [None, causal, window, documents, some_blind, mixed]
PAIRS = [(s, MASKS[(i + j) % 6]) for i, s in enumerate(SCORES) for j in (0, 1, 4)]


def name_of(x: Any) -> str:
    return getattr(x, "__name__", str(x))


def block_mask(lib: Any, mask: Any, size: Any = 2, heads: Any = HEADS) -> Any:
    if mask is None:
        return None
    flex = lib.nn.attention.flex_attention
    return flex.create_block_mask(mask(lib), 2, heads, LENGTH, LENGTH, "cpu", BLOCK_SIZE=size)


def attention_of_torch(q: Any, k: Any, v: Any, mod: Any, mask: Any) -> tuple[Any, Any]:
    """PyTorch's definition, in which, unlike in what users call, a CPU has gradients."""
    mask = mask or theirs._create_empty_block_mask(q, k)
    scale = 1 / math.sqrt(q.shape[-1])
    out, lse, _ = inner.math_attention(q, k, v, mod or theirs._identity, mask.as_tuple(), scale, {})
    return out, lse * math.log(2)


def attention_of_mine(q: Any, k: Any, v: Any, mod: Any, mask: Any) -> tuple[Any, Any]:
    request = mine.AuxRequest(lse=True)
    out, aux = mine.flex_attention(q, k, v, mod, mask, enable_gqa=True, return_aux=request)
    return out, aux.lse


def slopes(lib: Any, attention: Any, score: Any, mask: Any, groups: int) -> list[Any]:
    """Output, lse, and first and second gradients, as arrays."""
    q, v = (lib.tensor(x) for x in SIDES)
    k = q.flip(3)[:, ::groups].clone()
    v = v[:, ::groups].clone()
    leaves = [x.requires_grad_() for x in (q, k, v, lib.tensor(TABLE))]
    mod = score and score(lib, leaves[3])
    out, lse = attention(*leaves[:3], mod, block_mask(lib, mask))
    loss = (out**2).sum() + lse[~lse.isinf()].sum()
    wanted = leaves if score in (relative, learnt) else leaves[:3]
    first = lib.autograd.grad(loss, wanted, create_graph=True)
    # PyTorch's gradient of a table that is read by places has no gradient
    second = lib.autograd.grad(sum((g**2).sum() for g in first[:3]), leaves[:3])
    return [x.detach().numpy() for x in (out, lse, *first, *second)]


@pytest.mark.parametrize(("score", "mask"), PAIRS, ids=name_of)
def test_values_and_gradients_are_those_of_pytorch(score: Any, mask: Any) -> None:
    groups = 2 if score in (None, relative) else 1
    want = slopes(torch, attention_of_torch, score, mask, groups)
    got = slopes(cugrad, attention_of_mine, score, mask, groups)
    for value, wanted in zip(got, want, strict=True):
        assert np.isfinite(value).all() or value is got[1]
        np.testing.assert_allclose(
            value, np.nan_to_num(wanted, nan=0.0, neginf=-np.inf), 1e-9, 1e-9
        )


@pytest.mark.parametrize("kind", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("mask", [None, causal, some_blind], ids=name_of)
def test_without_a_score_mod_it_is_attention_with_a_dense_mask(mask: Any, kind: str) -> None:
    results = []
    for lib, flex in ((torch, theirs), (cugrad, mine)):
        q, v = (lib.tensor(x).to(getattr(lib, kind)) for x in SIDES)
        more = {"block_mask": block_mask(lib, mask, (2, 3)), "scale": 0.7, "enable_gqa": True}
        out = flex.flex_attention(q, q[:, ::2], v[:, ::2], **more)
        assert out.dtype is getattr(lib, kind)
        results.append(out.double().numpy())
    near = {"float64": 1e-12, "float32": 1e-6, "float16": 2e-3, "bfloat16": 2e-2}[kind]
    np.testing.assert_allclose(*results, near, near)


def test_a_batch_of_one_of_keys_and_what_else_is_given() -> None:
    q, v = (cugrad.tensor(x) for x in SIDES)
    k, v, mask = q[:1], v[:1], block_mask(cugrad, some_blind)
    request = mine.AuxRequest(lse=True, max_scores=True)
    out, aux = mine.flex_attention(q, k, v, block_mask=mask, return_aux=request)
    whole = [x.expand(2, *x.shape[1:]) for x in (k, v)]
    again = mine.flex_attention(q, *whole, block_mask=mask)
    np.testing.assert_allclose(out.numpy(), again.numpy(), 1e-12, 1e-12)
    scores = (q @ k.mT / math.sqrt(3)).masked_fill(~mask.elements((2, 4, 5, 5)), -math.inf)
    np.testing.assert_allclose(aux.max_scores.numpy(), scores.amax(-1).numpy())
    with pytest.warns(FutureWarning, match="return_lse is deprecated"):
        pair = mine.flex_attention(q, *whole, block_mask=mask, return_lse=True)
    assert np.array_equal(pair[1].numpy(), aux.lse.numpy())
    assert mine.flex_attention(q, k, v, None, mask, return_aux=mine.AuxRequest())[1] == (None, None)


@pytest.mark.pinned_torch  # whose masks have more fields
@pytest.mark.parametrize("mask", MASKS[1:], ids=name_of)
@pytest.mark.parametrize("size", [1, 2, (3, 2), 128])
def test_block_masks_have_the_fields_and_drawings_of_pytorch(mask: Any, size: Any) -> None:
    want, got = block_mask(torch, mask, size), block_mask(cugrad, mask, size)
    for index in (None, (0,), (slice(None), -1), (1, slice(1, 3), slice(0, 1))):
        if index is not None:
            want, got = block_mask(torch, mask, size)[index], block_mask(cugrad, mask, size)[index]
        assert repr(got) == repr(want).replace("_sliced_mask", "sliced_mask")
        assert str(got) == str(want)
        assert (got.shape, got.numel(), got.sparsity()) == (
            want.shape, want.numel(), want.sparsity())  # fmt: skip
        assert got.to_string(grid_size=(2, 1), limit=2) == want.to_string((2, 1), 2)
        assert got.to_string(-1) == want.to_string(-1)
        assert np.array_equal(got.to_dense().numpy(), want.to_dense().numpy())
        for flatten in (True, False):
            pairs = zip(got.as_tuple(flatten)[:-1], want.as_tuple(flatten)[:-1], strict=True)
            for value, wanted in pairs:
                if isinstance(wanted, torch.Tensor):
                    assert str(value.dtype) == str(wanted.dtype)
                    value, wanted = value.tolist(), wanted.tolist()
                assert value == wanted
    assert repr(got.to("cpu")) == repr(got)


def test_a_cropped_mask_is_the_mask_of_less() -> None:
    whole = mine.create_block_mask(window(cugrad), None, 2, 8, 8, "cpu", 2)
    less = mine.create_block_mask(window(cugrad), None, 2, 5, 6, "cpu", 2)
    assert np.array_equal(whole._adjust(5, 6).to_dense().numpy(), less.to_dense().numpy())
    assert whole._adjust(5, 6).shape == less.shape


def test_masks_are_made_of_functions_of_scores_too() -> None:
    for lib, flex in ((torch, theirs), (cugrad, mine)):
        seen = flex.create_mask(learnt(lib, lib.tensor(TABLE)), 2, HEADS, 3, 4, "cpu")
        np.testing.assert_array_equal(
            seen.numpy(), np.tri(3, 4, dtype=bool) & np.ones((2, 4, 1, 1), bool)
        )
    assert mine.create_mask(mine.noop_mask, None, None, 2, 3).shape == (1, 1, 2, 3)


def test_blocks_that_are_not_listed_are_not_seen() -> None:
    q, v = (cugrad.tensor(x[:, :, :4]) for x in SIDES)
    blocks = np.array([[1, 0], [1, 1]])
    counts, places = (cugrad.tensor(x, dtype=cugrad.int32) for x in ([[[1, 2]]], [[[[0, 1]] * 2]]))
    mask = mine.BlockMask.from_kv_blocks(counts, places, BLOCK_SIZE=2)
    dense = cugrad.tensor(np.kron(blocks, np.ones((2, 2))).astype(bool))
    want = cugrad.nn.functional.scaled_dot_product_attention(q, q, v, dense)
    np.testing.assert_allclose(mine.flex_attention(q, q, v, None, mask).numpy(), want.numpy())


def test_what_a_score_mod_reads_has_gradients_of_second_order() -> None:
    def attend(x: Any, table: Any) -> Any:
        mask = mine.create_block_mask(some_blind(cugrad), 1, 1, 3, 3, "cpu", 2)
        out, aux = mine.flex_attention(
            x, x.flip(2), x, learnt(cugrad, table), mask, return_aux=mine.AuxRequest(lse=True)
        )
        return out, aux.lse.exp()

    arrays = SIDES[0][:1, :1, :3, :2], TABLE[:1, :3]
    leaves = [cugrad.tensor(x, requires_grad=True) for x in arrays]
    assert cugrad.autograd.gradgradcheck(attend, leaves)


def test_every_device_computes_it(device: str) -> None:
    results = []
    for place in ("cpu", device):
        q, v, table = (cugrad.tensor(x, device=place) for x in (*SIDES, TABLE))
        table.requires_grad_()
        mask = mine.create_block_mask(window(cugrad), None, HEADS, LENGTH, LENGTH, place, 2)
        mine.flex_attention(q, q, v, relative(cugrad, table), mask).sum().backward()
        results.append(table.grad.cpu().numpy())
    np.testing.assert_allclose(*results, 1e-9, 1e-12)


X = np.ones((2, 4, 6, 3), "f4")
BAD: dict[str, Callable[[Any, Any, Any], Any]] = {
    "dims": lambda f, t, m: f.flex_attention(t(X[0]), t(X[0]), t(X[0])),
    "no dims": lambda f, t, m: f.flex_attention(t(X[0, 0, 0]), t(X), t(X)),
    "width": lambda f, t, m: f.flex_attention(t(X), t(X[..., :2]), t(X)),
    "heads": lambda f, t, m: f.flex_attention(t(X), t(X[:, :2]), t(X[:, :2])),
    "groups": lambda f, t, m: f.flex_attention(t(X), t(X[:, :3]), t(X[:, :3]), enable_gqa=True),
    "batch": lambda f, t, m: f.flex_attention(t(X), t(X[:1]), t(X[:1])),
    "batch of mask": lambda f, t, m: f.flex_attention(t(X), t(X[:1]), t(X[:1]), None, m(6)),
    "mask too short": lambda f, t, m: f.flex_attention(t(X), t(X), t(X), None, m(4)),
    "mask too long": lambda f, t, m: f.flex_attention(t(X), t(X), t(X), None, m(8)),
    "slice": lambda f, t, m: f.flex_attention(t(X), t(X), t(X), None, m(6)[0]),
    "mod of slice": lambda f, t, m: m(6)[0].mask_mod(*t(X[0, 0, :4, 0])),
    "both": lambda f, t, m: f.flex_attention(
        t(X), t(X), t(X), return_lse=True, return_aux=f.AuxRequest()),
    "backend": lambda f, t, m: f.flex_attention(
        t(X), t(X), t(X), kernel_options={"BACKEND": "MINE"}),
    "backends": lambda f, t, m: f.flex_attention(
        t(X), t(X), t(X), kernel_options={"BACKEND": "AUTO", "FORCE_USE_FLEX_ATTENTION": True}),
    "arguments": lambda f, t, m: f.create_mask(lambda b, h: b, 1, 1, 2, 2, "cpu"),
    "score_mod": lambda f, t, m: f.create_block_mask(lambda s, b, h, q, k: s, 1, 1, 2, 2, "cpu"),
    "dtype": lambda f, t, m: f.create_block_mask(lambda b, h, q, k: q + k, 1, 1, 2, 2, "cpu"),
    "order": lambda f, t, m: f.create_block_mask(
        f.noop_mask, 1, 1, 2, 2, "cpu", dq_kv_order=1),
    "or": lambda f, t, m: f.or_masks(f.noop_mask, 3),
    "and": lambda f, t, m: f.and_masks(3),
    "vector": lambda f, t, m: f.BlockMask.from_kv_blocks(t(X[0, 0, 0]), t(X[0, 0, 0])),
    "half of a pair": lambda f, t, m: f.BlockMask.from_kv_blocks(
        t(X[0, 0]), t(X[0, 0]), t(X[0, 0])),
}  # fmt: skip


@pytest.mark.parametrize("call", cases(BAD, ["order"]))
def test_errors_are_those_of_pytorch(call: str) -> None:
    errors: list[Any] = []
    for lib, flex in ((torch, theirs), (cugrad, mine)):

        def mask(length: int, flex: Any = flex) -> Any:
            return flex.create_block_mask(lambda b, h, q, k: q >= k, 1, 1, length, length, "cpu", 2)

        with pytest.raises(Exception) as caught:  # they are compared
            BAD[call](flex, lib.tensor, mask)
        errors.append(caught.value)
    want, got = ((type(e), " ".join(str(e).split()).split(" 0x")[0]) for e in errors)
    assert got[0] is want[0]
    assert got[1][:110] == want[1][:110] or "<function" in got[1]


REFUSED: dict[str, tuple[type[Exception], str, Callable[[Any, Any], Any]]] = {
    "another backend": (NotImplementedError, "of PyTorch's", lambda t, m: mine.flex_attention(
        t(X), t(X), t(X), kernel_options={"BACKEND": "TRITON"})),
    "unknown hint": (ValueError, "no 'BLOCK_Q'", lambda t, m: mine.flex_attention(
        t(X), t(X), t(X), kernel_options={"BLOCK_Q": 2})),  # type: ignore[typeddict-unknown-key]
    "order of writes": (NotImplementedError, "leave it False", lambda t, m: mine.create_block_mask(
        mine.noop_mask, 1, 1, 2, 2, "cpu", compute_dq_write_order=True)),
    "integers": (RuntimeError, "floating dtypes", lambda t, m: mine.flex_attention(
        t(X).int(), t(X), t(X))),
    "complex": (NotImplementedError, "not implemented", lambda t, m: mine.flex_attention(
        t(X) * 1j, t(X), t(X))),
    "values": (ValueError, "key and value", lambda t, m: mine.flex_attention(
        t(X), t(X), t(X[:, :, :2]))),
    "heads of mask": (ValueError, "for .1, 3. batches", lambda t, m: mine.flex_attention(
        t(X), t(X), t(X), None, m(3, causal(cugrad)))),
    "mask of numbers": (RuntimeError, "must return a boolean", lambda t, m: mine.flex_attention(
        t(X), t(X), t(X), None, changed(m(1, causal(cugrad)), lambda b, h, q, k: q))),
    "vectors": (RuntimeError, "want a tensor without dim", lambda t, m: mine.flex_attention(
        t(X), t(X), t(X), lambda s, b, h, q, k: s + t(X[0, 0, 0]))),
}  # fmt: skip


def changed(mask: Any, mod: Mod) -> Any:
    mask.mask_mod = mod
    return mask


@pytest.mark.parametrize("call", REFUSED)
def test_what_is_not_supported_says_so(call: str) -> None:
    kind, words, run = REFUSED[call]
    with pytest.raises(kind, match=words):
        run(cugrad.tensor, lambda h, mod: mine.create_block_mask(mod, 1, h, 6, 6, "cpu", 2))


def test_hints_change_nothing() -> None:
    q = cugrad.tensor(X)
    want = mine.flex_attention(q, q, q)
    hints: Any = {"BACKEND": "AUTO", "fwd_BLOCK_M": 16, "bwd_num_warps": 4, "PRESCALE_QK": True}
    assert cugrad.equal(mine.flex_attention(q, q, q, kernel_options=hints), want)
    with pytest.warns(DeprecationWarning, match="_compile flag"):
        mask = mine.create_block_mask(mine.noop_mask, None, None, 6, 6, "cpu", _compile=True)
    assert mask.sparsity() < 0  # as PyTorch counts blocks beyond the end


def test_autocast_computes_it_in_half_precision() -> None:
    q = cugrad.tensor(X)
    with cugrad.autocast("cpu", cugrad.bfloat16):
        assert mine.flex_attention(q, q, q, capped(cugrad, None)).dtype is cugrad.bfloat16
