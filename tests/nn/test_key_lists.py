"""State dicts of public models load into ours, and ours into them: names and shapes are the same.

`key_lists.txt` has the names and shapes that torchvision and transformers give.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cugrad
from cugrad import models
from tests.nn.key_lists import FILE, LARGE, LLAMAS, TORCHVISION, Shapes, lists, text

GPTS = ["gpt2", "gpt2 with its head", "gpt2-medium"]
MADE: dict[str, Callable[[], Any]] = {
    **{name: getattr(models, name) for name in TORCHVISION},
    "gpt2": models.GPT, "gpt2 with its head": models.GPT,
    "gpt2-medium": lambda: models.GPT(width=1024, layers=24, heads=16),
    "bert-base": models.BertModel,
    "bert-large": lambda: models.BertModel(**LARGE, intermediate_size=4096),
    "bert-base before training": models.BertForPreTraining,
    "bert-base of classes": lambda: models.BertForSequenceClassification(3),
    **{name: lambda options=options: models.Llama(**options) for name, options in LLAMAS.items()},
}  # fmt: skip


def test_all_lists_are_tested() -> None:
    assert set(MADE) == set(lists())


def test_lists_are_read_as_they_are_written() -> None:
    lines = [line for name, shapes in lists().items() for line in ("", f"[{name}]", *text(shapes))]
    assert FILE.read_text().splitlines()[1:] == lines


@pytest.mark.parametrize("name", MADE)
def test_a_file_loads_strictly_and_ours_has_its_names(name: str) -> None:
    with cugrad.device("meta"):
        model = MADE[name]()
        shapes = lists()[name]
        ours: Shapes = {key: tuple(value.shape) for key, value in model.state_dict().items()}
        state = {key: cugrad.empty(shape) for key, shape in shapes.items()}
    result = model.load_state_dict(state)
    assert not result.missing_keys and not result.unexpected_keys
    del state[next(key for key in state if key.endswith(".weight"))]
    with pytest.raises(RuntimeError, match="Missing key"):
        model.load_state_dict(state)
    if name in GPTS:  # ours has nanoGPT's names, prefixed, and its weights the other way round
        turned = ("c_attn.weight", "c_proj.weight", "c_fc.weight")
        shapes = {
            "transformer." * (not key.startswith(("transformer.", "lm_head."))) + key:
                shape[::-1] if key.endswith(turned) else shape
            for key, shape in shapes.items()
        }  # fmt: skip
        shapes["lm_head.weight"] = shapes["transformer.wte.weight"]
    assert ours == shapes


# Outputs ------------------------------------------------------------------------------------------

# Of torchvision's models in float64, with the weights and the image below: the first scores.
SCORES: dict[str, list[float]] = {
    "resnet18": [-2.3933953571996636, 9.181237331774886, 13.163407412063851, 6.281972121607466],
    "resnet50": [-5.319256445374131, -1.9257843821958827, 8.44748558110592, -11.510929985092668],
    "mobilenet_v2":
        [5.790003835647141, -8.332302709945289, 6.170156775806177, -0.21477669495795915],
    "mobilenet_v3_small":
        [-0.3635391811114499, -1.1259762116955598, 1.2414664886276099, 0.44677905661343537],
    "mobilenet_v3_large":
        [-2.4262854588827465, 1.4434558836483025, 0.6040482225499789, -2.173454407096595],
}  # fmt: skip


def filled(name: str, shape: tuple[int, ...], seed: int) -> Any:
    """A state of waves: one for each tensor, as large as at initialization."""
    wave = np.sin(np.arange(np.prod(shape, dtype=int)) * 0.37 + seed).reshape(shape)
    if name.endswith("running_var") or (len(shape) == 1 and name.endswith("weight")):
        return 1 + 0.3 * wave
    return wave * (1.7 / np.sqrt(np.prod(shape[1:]))) if len(shape) > 1 else 0.1 * wave


def waves(shapes: Shapes) -> dict[str, Any]:
    return {
        name: filled(name, shape, seed)
        for seed, (name, shape) in enumerate(sorted(shapes.items()))
        if not name.endswith("num_batches_tracked")
    }


def image() -> Any:
    return np.cos(np.arange(3 * 64 * 64) * 0.11).reshape(1, 3, 64, 64)


@pytest.mark.parametrize("name", SCORES)
def test_scores_are_torchvisions(name: str) -> None:
    with cugrad.device("meta"):  # the numbers that it would begin with take long to draw
        model = MADE[name]()
    model = model.to_empty(device="cpu").double().eval()
    state = {key: cugrad.tensor(value) for key, value in waves(lists()[name]).items()}
    model.load_state_dict(state, strict=False)
    with cugrad.no_grad():
        scores = model(cugrad.tensor(image()))[0, :4].tolist()
    np.testing.assert_allclose(scores, SCORES[name], rtol=1e-9)
