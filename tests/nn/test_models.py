"""cugrad.models beside PyTorch: sizes that are published, and equal outputs and gradients."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import cugrad
from cugrad import models
from tests.support.patience import patient


def size_of(net: Any) -> int:
    return sum(p.numel() for p in net.parameters())


# torchvision's numbers of parameters, of 1000 classes
@pytest.mark.parametrize(
    "name, parameters",
    [("resnet18", 11_689_512), ("resnet34", 21_797_672), ("resnet50", 25_557_032)],
)
def test_resnets_are_as_large_as_published(name: str, parameters: int) -> None:
    with cugrad.device("meta"):
        assert size_of(getattr(models, name)()) == parameters


def test_deep_resnets_have_torchvisions_layout() -> None:
    names = models.resnet152(width=2).state_dict()
    assert len(names) == 932  # of torchvision's resnet152, running statistics included
    assert {"layer3.35.conv3.weight", "layer4.0.downsample.1.num_batches_tracked"} <= set(names)
    assert len(models.resnet101(width=2).layer3) == 23


def test_gpt_is_as_large_as_gpt_2() -> None:
    # 124,439,808 = 50257 * 768 + 1024 * 768 + 12 blocks + the last norm; here with one block
    block = 12 * 768 * 768 + 13 * 768
    rest = 50257 * 768 + 1024 * 768 + 2 * 768
    assert rest + 12 * block == 124_439_808
    with cugrad.device("meta"):
        assert size_of(models.GPT(layers=1)) == rest + block
    assert size_of(models.GPT(7, 4, width=8, heads=2, layers=1, tied=False)) == (
        7 * 8 * 2 + 4 * 8 + 12 * 64 + 13 * 8 + 2 * 8
    )


def test_importing_cugrad_does_not_import_the_models() -> None:
    code = "import sys, cugrad; assert 'cugrad.models' not in sys.modules; cugrad.models.resnet18"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=patient())


def test_a_sequence_beyond_the_context_is_refused() -> None:
    net = models.GPT(5, 4, width=8, heads=2, layers=1)
    with pytest.raises(ValueError, match="got 6 tokens, want at most context = 4"):
        net(cugrad.zeros(1, 6, dtype=cugrad.int64))
    with pytest.raises(ValueError, match="width 8 and 3 heads"):
        models.GPT(5, 4, width=8, heads=3, layers=1)


def test_zero_init_residual_begins_with_blocks_that_pass_their_input_on() -> None:
    net = models.resnet50(10, width=4, zero_init_residual=True)
    block = net.layer1[1].eval()
    x = cugrad.rand(1, 16, 4, 4)
    assert cugrad.equal(block(x), x)


# Beside PyTorch -----------------------------------------------------------------------------------

RNG = np.random.default_rng(0)
IMAGES = RNG.standard_normal((2, 3, 32, 32))
TOKENS = RNG.integers(0, 11, (2, 9))


@pytest.fixture(scope="module")
def twins() -> tuple[Any, SimpleNamespace]:
    """PyTorch, and the models made of its modules."""
    torch = pytest.importorskip("torch", reason="PyTorch, the oracle, is not installed")
    from benchmarks.twins import models_on

    return torch, models_on(torch)


def check(ours: Any, theirs: Any, torch: Any, values: np.ndarray, tolerance: float) -> None:
    """Equal outputs, gradients and running statistics, from the same parameters by name.

    In float64: batch norm of two images, at 1x1 in the last stage, multiplies what is rounded.
    """
    ours, theirs = ours.double(), theirs.double()
    state = {k: v.detach().numpy() for k, v in theirs.state_dict().items()}
    missing = ours.load_state_dict({k: cugrad.tensor(v) for k, v in state.items()})
    assert not missing.missing_keys and not missing.unexpected_keys
    y, z = ours(cugrad.tensor(values)), theirs(torch.tensor(values))
    (y * y).mean().backward()
    (z * z).mean().backward()

    def close(a: Any, b: Any, name: str) -> None:
        a, b = a.detach().numpy(), b.detach().numpy()
        assert a.dtype == b.dtype and a.shape == b.shape, name
        assert np.abs(a - b).max() <= tolerance * max(1e-6, np.abs(b).max()), name

    close(y, z, "output")
    after, parameters = ours.state_dict(), dict(ours.named_parameters())
    for name, value in theirs.state_dict().items():
        close(after[name], value, name)
    for name, value in theirs.named_parameters():
        close(parameters[name].grad, value.grad, name)


@pytest.mark.parametrize("inplace", [True, False])
@pytest.mark.parametrize("name", ["resnet18", "resnet50"])
def test_resnet_equals_pytorchs(twins: Any, name: str, inplace: bool) -> None:
    torch, theirs = twins
    torch.manual_seed(0)
    made = [getattr(m, name)(7, width=4, inplace=inplace) for m in (models, theirs)]
    check(*made, torch, IMAGES, 1e-9)  # type: ignore[misc]


def test_unet_equals_pytorchs(twins: Any) -> None:
    torch, theirs = twins
    torch.manual_seed(0)
    made = [m.UNet(3, 2, width=4, depth=3) for m in (models, theirs)]
    check(*made, torch, IMAGES, 1e-9)  # type: ignore[misc]


# A small one of each other model, and what it is called with.
SMALL: list[tuple[str, str]] = [
    ("VGG(11, num_classes=3, width=2, hidden=8, dropout=0.0)", "images"),
    ("VGG(13, True, 3, width=2, hidden=8, dropout=0.0)", "images"),
    ("MobileNetV2(3, width_mult=0.1, dropout=0.0)", "images"),
    ("mobilenet_v3_small(3, width_mult=0.1, dropout=0.0)", "images"),
    ("mobilenet_v3_large(3, width_mult=0.1, dropout=0.0)", "images"),
    ("VisionTransformer(32, 8, 2, 2, 8, 16, num_classes=3)", "images"),
    ("Llama(11, 16, 24, 2, 4)", "tokens"),
    ("Llama(11, 16, 24, 2, 4, 2, head_dim=6, rope_scaling=SCALING, tie_word_embeddings=True)",
     "tokens"),
    ("BertForSequenceClassification(3, 11, 16, 2, 4, 24, dropout=0.0)", "tokens"),
]  # fmt: skip
SCALING = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
           "original_max_position_embeddings": 16}  # fmt: skip


@pytest.mark.parametrize("text, kind", SMALL)
def test_models_equal_pytorchs(twins: Any, text: str, kind: str) -> None:
    torch, theirs = twins
    torch.manual_seed(0)
    pair = [eval(text, {**vars(m), "SCALING": SCALING}) for m in (models, theirs)]
    tight = 1e-5 if "Llama" in text else 1e-8  # its angles are float32
    if "v3" in text:  # its scores begin near zero, and the sums of their gradients nearer
        tight = 1e-6
    check(*pair, torch, IMAGES if kind == "images" else TOKENS, tight)  # type: ignore[misc]


def test_bert_leaves_out_what_is_masked(twins: Any) -> None:
    torch, theirs = twins
    net = models.BertForPreTraining(11, 16, 2, 4, 24).eval()
    tokens, mask = TOKENS.copy(), np.ones_like(TOKENS)
    mask[:, 6:] = 0
    before = net(cugrad.tensor(tokens), cugrad.tensor(mask), cugrad.tensor(mask * 0))
    tokens[:, 6:] = 3
    after = net(cugrad.tensor(tokens), cugrad.tensor(mask))
    np.testing.assert_allclose(before[0][:, :6].detach(), after[0][:, :6].detach(), atol=1e-6)
    twin = theirs.BertForPreTraining(11, 16, 2, 4, 24).eval()
    state = {name: torch.tensor(value.numpy()) for name, value in net.state_dict().items()}
    twin.load_state_dict(state)
    expected = twin(torch.tensor(tokens), torch.tensor(mask))
    for ours, other in zip(after, expected, strict=True):
        np.testing.assert_allclose(ours.detach().numpy(), other.detach().numpy(), atol=1e-5)


@pytest.mark.parametrize("tied", [True, False])
def test_gpt_equals_pytorchs(twins: Any, tied: bool) -> None:
    torch, theirs = twins
    torch.manual_seed(0)
    made = [m.GPT(11, 12, width=16, heads=4, layers=3, tied=tied) for m in (models, theirs)]
    check(*made, torch, TOKENS, 1e-9)  # type: ignore[misc]


def test_a_block_is_pytorchs_encoder_layer_that_looks_back_only(twins: Any) -> None:
    torch, _ = twins
    layer = torch.nn.TransformerEncoderLayer(
        16, 4, 64, 0.0, torch.nn.GELU("tanh"), batch_first=True, norm_first=True
    )
    state = {k: cugrad.tensor(v.detach().numpy()) for k, v in layer.state_dict().items()}
    names = {"self_attn.in_proj_": "attn.c_attn.", "self_attn.out_proj.": "attn.c_proj.",
             "linear1.": "mlp.c_fc.", "linear2.": "mlp.c_proj.", "norm": "ln_"}  # fmt: skip
    renamed = {}
    for key, value in state.items():
        for old, new in names.items():
            key = key.replace(old, new)
        renamed[key] = value
    block = models.Block(16, 4)
    block.load_state_dict(renamed)
    values = RNG.standard_normal((2, 6, 16)).astype(np.float32)
    mask = torch.nn.Transformer.generate_square_subsequent_mask(6)
    want = layer(torch.tensor(values), src_mask=mask, is_causal=True).detach().numpy()
    np.testing.assert_allclose(block(cugrad.tensor(values)).detach().numpy(), want, atol=2e-6)


def test_dropout_of_a_gpt_is_off_in_evaluation() -> None:
    net = models.GPT(11, 12, width=16, heads=4, layers=1, dropout=0.5)
    tokens = cugrad.tensor(TOKENS)
    assert not cugrad.equal(net(tokens), net(tokens))
    net.eval()
    assert cugrad.equal(net(tokens), net(tokens))
