"""Checks that public checkpoints would load: key lists written by rule, and sizes as published.

The libraries' own lists are in test_key_lists.py; these are of other sizes, and of older files.

A rule says names and shapes of a file for any size of the model. At the published size their sum is
the published number of parameters, so the rule is that of the file; at a small size a dict made by
the rule loads, strictly.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import pytest

import cugrad
from cugrad import models

Shapes = dict[str, tuple[int, ...]]
STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


def norm(name: str, width: int) -> Shapes:
    shapes: Shapes = {f"{name}.{k}": (width,) for k in ("weight", "bias", *STATISTICS[:2])}
    return {**shapes, f"{name}.num_batches_tracked": ()}


def affine(name: str, *shape: int, bias: bool = True) -> Shapes:
    shapes: Shapes = {f"{name}.weight": shape}
    return {**shapes, f"{name}.bias": shape[:1]} if bias else shapes


def resnet(layers: list[int], bottleneck: bool, width: int = 64, classes: int = 1000) -> Shapes:
    keys = {"conv1.weight": (width, 3, 7, 7), **norm("bn1", width)}
    inside, growth = width, 4 if bottleneck else 1
    for stage, count in enumerate(layers, 1):
        planes = width << (stage - 1)
        for block in range(count):
            at, out = f"layer{stage}.{block}", planes * growth
            shapes = [(planes, inside, 3, 3), (planes, planes, 3, 3)]
            if bottleneck:
                shapes = [(planes, inside, 1, 1), (planes, planes, 3, 3), (out, planes, 1, 1)]
            for number, shape in enumerate(shapes, 1):
                keys[f"{at}.conv{number}.weight"] = shape
                keys.update(norm(f"{at}.bn{number}", shape[0]))
            if block == 0 and (stage > 1 or bottleneck):
                keys[f"{at}.downsample.0.weight"] = (out, inside, 1, 1)
                keys.update(norm(f"{at}.downsample.1", out))
            inside = out
    return {**keys, **affine("fc", classes, inside)}


def vgg(
    plan: str, batch_norm: bool, width: int = 64, hidden: int = 4096, out: int = 1000
) -> Shapes:
    """`plan` has a digit for each convolution, of `width` shifted by it, and M for each pooling."""
    keys: Shapes = {}
    at, inside = 0, 3
    for step in plan:
        if step == "M":
            at += 1
            continue
        channels = width << int(step)
        keys.update(affine(f"features.{at}", channels, inside, 3, 3))
        if batch_norm:
            keys.update(norm(f"features.{at + 1}", channels))
        at, inside = at + (3 if batch_norm else 2), channels
    for name, shape in ((0, (hidden, 49 * inside)), (3, (hidden, hidden)), (6, (out, hidden))):
        keys.update(affine(f"classifier.{name}", *shape))
    return keys


def mobilenet(classes: int = 1000) -> Shapes:
    plan = [(1, 16, 1), (6, 24, 2), (6, 32, 3), (6, 64, 4), (6, 96, 3), (6, 160, 3), (6, 320, 1)]
    keys = {"features.0.0.weight": (32, 3, 3, 3), **norm("features.0.1", 32)}
    inside, at = 32, 1
    for growth, out, count in plan:
        for _ in range(count):
            name, wide, part = f"features.{at}.conv", inside * growth, 0
            if growth != 1:
                keys[f"{name}.0.0.weight"] = (wide, inside, 1, 1)
                keys.update(norm(f"{name}.0.1", wide))
                part = 1
            keys[f"{name}.{part}.0.weight"] = (wide, 1, 3, 3)
            keys.update(norm(f"{name}.{part}.1", wide))
            keys[f"{name}.{part + 1}.weight"] = (out, wide, 1, 1)
            keys.update(norm(f"{name}.{part + 2}", out))
            inside, at = out, at + 1
    keys.update({f"features.{at}.0.weight": (1280, inside, 1, 1), **norm(f"features.{at}.1", 1280)})
    return {**keys, **affine("classifier.1", classes, 1280)}


def vit(image: int, patch: int, layers: int, width: int, mlp: int, classes: int = 1000) -> Shapes:
    keys: Shapes = {
        "class_token": (1, 1, width),
        "encoder.pos_embedding": (1, (image // patch) ** 2 + 1, width),
        **affine("conv_proj", width, 3, patch, patch),
    }
    for number in range(layers):
        name = f"encoder.layers.encoder_layer_{number}"
        keys.update(affine(f"{name}.ln_1", width))
        keys[f"{name}.self_attention.in_proj_weight"] = (3 * width, width)
        keys[f"{name}.self_attention.in_proj_bias"] = (3 * width,)
        keys.update(affine(f"{name}.self_attention.out_proj", width, width))
        keys.update(affine(f"{name}.ln_2", width))
        keys.update(affine(f"{name}.mlp.0", mlp, width))
        keys.update(affine(f"{name}.mlp.3", width, mlp))
    return {**keys, **affine("encoder.ln", width), **affine("heads.head", classes, width)}


def unet(width: int = 64, classes: int = 2) -> Shapes:
    def twice(name: str, inside: int, out: int) -> Shapes:
        return {
            f"{name}.double_conv.0.weight": (out, inside, 3, 3),
            f"{name}.double_conv.3.weight": (out, out, 3, 3),
            **norm(f"{name}.double_conv.1", out), **norm(f"{name}.double_conv.4", out),
        }  # fmt: skip

    keys = twice("inc", 3, width)
    for number in range(1, 5):
        small, large = width << (number - 1), width << number
        keys.update(twice(f"down{number}.maxpool_conv.1", small, large))
        back = width << (4 - number)
        keys[f"up{number}.up.weight"], keys[f"up{number}.up.bias"] = (2 * back, back, 2, 2), (back,)
        keys.update(twice(f"up{number}.conv", 2 * back, back))
    return {**keys, **affine("outc.conv", classes, width, 1, 1)}


def gpt2(layers: int, width: int, vocabulary: int = 50257, context: int = 1024) -> Shapes:
    """A file of transformers, as `gpt2` has it: no prefix, masks, weights as (in, out)."""
    keys: Shapes = {"wte.weight": (vocabulary, width), "wpe.weight": (context, width)}
    for number in range(layers):
        at = f"h.{number}"
        keys[f"{at}.attn.bias"] = (1, 1, context, context)
        for name, inside, out in (("attn.c_attn", 1, 3), ("attn.c_proj", 1, 1), ("mlp.c_fc", 1, 4),
                                  ("mlp.c_proj", 4, 1)):  # fmt: skip
            keys[f"{at}.{name}.weight"] = (inside * width, out * width)
            keys[f"{at}.{name}.bias"] = (out * width,)
        keys.update({**affine(f"{at}.ln_1", width), **affine(f"{at}.ln_2", width)})
    return {**keys, **affine("ln_f", width)}


def nanogpt(layers: int, width: int, vocabulary: int, context: int, bias: bool) -> Shapes:
    """nanoGPT's, compiled, without Flash Attention: `_orig_mod`, masks, weights as (out, in)."""
    keys: Shapes = {}
    for name, shape in gpt2(layers, width, vocabulary, context).items():
        turned = name.endswith(("c_attn.weight", "c_proj.weight", "c_fc.weight"))
        if bias or not name.endswith("bias") or name.endswith(".attn.bias"):
            keys["_orig_mod.transformer." + name] = shape[::-1] if turned else shape
    return {**keys, "_orig_mod.lm_head.weight": (vocabulary, width)}


def llama(
    vocabulary: int, width: int, mlp: int, layers: int, heads: int, groups: int, tied: bool = False,
    angles: bool = False,
) -> Shapes:  # fmt: skip
    keys: Shapes = {"model.embed_tokens.weight": (vocabulary, width), "model.norm.weight": (width,)}
    keys.update({} if tied else {"lm_head.weight": (vocabulary, width)})
    for number in range(layers):
        at, shared = f"model.layers.{number}", width // heads * groups
        for name, shape in {
            "self_attn.q_proj": (width, width), "self_attn.k_proj": (shared, width),
            "self_attn.v_proj": (shared, width), "self_attn.o_proj": (width, width),
            "mlp.gate_proj": (mlp, width), "mlp.up_proj": (mlp, width),
            "mlp.down_proj": (width, mlp), "input_layernorm": (width,),
            "post_attention_layernorm": (width,),
        }.items():  # fmt: skip
            keys[f"{at}.{name}.weight"] = shape
        if angles:
            keys[f"{at}.self_attn.rotary_emb.inv_freq"] = (width // heads // 2,)
    return keys


def bert(
    layers: int, width: int, mlp: int, vocabulary: int = 30522, places: int = 512,
    prefix: str = "", heads: bool = False, old: bool = False,
) -> Shapes:  # fmt: skip
    keys: Shapes = {
        f"{prefix}embeddings.word_embeddings.weight": (vocabulary, width),
        f"{prefix}embeddings.position_embeddings.weight": (places, width),
        f"{prefix}embeddings.token_type_embeddings.weight": (2, width),
        **affine(f"{prefix}embeddings.LayerNorm", width),
        **affine(f"{prefix}pooler.dense", width, width),
    }
    for number in range(layers):
        at = f"{prefix}encoder.layer.{number}"
        for name in ("self.query", "self.key", "self.value", "output.dense"):
            keys.update(affine(f"{at}.attention.{name}", width, width))
        keys.update(affine(f"{at}.attention.output.LayerNorm", width))
        keys.update(affine(f"{at}.intermediate.dense", mlp, width))
        keys.update(affine(f"{at}.output.dense", width, mlp))
        keys.update(affine(f"{at}.output.LayerNorm", width))
    if heads:
        keys["cls.predictions.bias"] = (vocabulary,)
        keys.update(affine("cls.predictions.transform.dense", width, width))
        keys.update(affine("cls.predictions.transform.LayerNorm", width))
        keys.update(affine("cls.seq_relationship", 2, width))
        if old:
            keys["cls.predictions.decoder.weight"] = (vocabulary, width)
    if not old:
        return {**keys, f"{prefix}embeddings.position_ids": (1, places)}
    names = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    for new, before in names.items():
        keys = {name.replace(new, before): shape for name, shape in keys.items()}
    return keys


PLANS = {11: "0M1M22M33M33M", 13: "00M11M22M33M33M", 16: "00M11M222M333M333M",
         19: "00M11M2222M3333M3333M"}  # fmt: skip
PUBLISHED: list[tuple[str, Shapes, int]] = [
    ("resnet18", resnet([2, 2, 2, 2], False), 11_689_512),
    ("resnet34", resnet([3, 4, 6, 3], False), 21_797_672),
    ("resnet50", resnet([3, 4, 6, 3], True), 25_557_032),
    ("resnet101", resnet([3, 4, 23, 3], True), 44_549_160),
    ("resnet152", resnet([3, 8, 36, 3], True), 60_192_808),
    ("vgg11", vgg(PLANS[11], False), 132_863_336),
    ("vgg13", vgg(PLANS[13], False), 133_047_848),
    ("vgg16", vgg(PLANS[16], False), 138_357_544),
    ("vgg16_bn", vgg(PLANS[16], True), 138_365_992),
    ("vgg19", vgg(PLANS[19], False), 143_667_240),
    ("mobilenet_v2", mobilenet(), 3_504_872),
    ("vit_b_16", vit(224, 16, 12, 768, 3072), 86_567_656),
    ("vit_b_32", vit(224, 32, 12, 768, 3072), 88_224_232),
    ("vit_l_16", vit(224, 16, 24, 1024, 4096), 304_326_632),
    ("gpt2", gpt2(12, 768), 124_439_808),
    ("gpt2-medium", gpt2(24, 1024), 354_823_168),
    ("gpt2-xl", gpt2(48, 1600), 1_557_611_200),
    ("Llama-2-7b", llama(32000, 4096, 11008, 32, 32, 32), 6_738_415_616),
    ("Llama-3-8B", llama(128256, 4096, 14336, 32, 32, 8), 8_030_261_248),
    ("Llama-3.2-1B", llama(128256, 2048, 8192, 16, 32, 8, tied=True), 1_235_814_400),
    ("bert-base-uncased", bert(12, 768, 3072), 109_482_240),
    ("bert-large-uncased", bert(24, 1024, 4096), 335_141_888),
]
NO_PARAMETERS = (*STATISTICS, ".attn.bias", "position_ids")


@pytest.mark.parametrize("name, keys, parameters", PUBLISHED, ids=[p[0] for p in PUBLISHED])
def test_rules_are_as_large_as_published(name: str, keys: Shapes, parameters: int) -> None:
    assert sum(prod(s) for key, s in keys.items() if not key.endswith(NO_PARAMETERS)) == parameters


def plan(stages: str, batch_norm: bool) -> Shapes:
    return vgg(stages, batch_norm, 2, 8, 5)


# A small model, and the file of such a one.
FILES: dict[str, tuple[Callable[[], Any], Shapes]] = {
    "resnet18": (lambda: models.resnet18(5, width=2), resnet([2, 2, 2, 2], False, 2, 5)),
    "resnet34": (lambda: models.resnet34(5, width=2), resnet([3, 4, 6, 3], False, 2, 5)),
    "resnet50": (lambda: models.resnet50(5, width=2), resnet([3, 4, 6, 3], True, 2, 5)),
    "resnet101": (lambda: models.resnet101(5, width=2), resnet([3, 4, 23, 3], True, 2, 5)),
    "resnet152": (lambda: models.resnet152(5, width=2), resnet([3, 8, 36, 3], True, 2, 5)),
    "vgg11": (lambda: models.vgg11(5, width=2, hidden=8), plan(PLANS[11], False)),
    "vgg13": (lambda: models.vgg13(5, width=2, hidden=8), plan(PLANS[13], False)),
    "vgg16": (lambda: models.vgg16(5, width=2, hidden=8), plan(PLANS[16], False)),
    "vgg19": (lambda: models.vgg19(5, width=2, hidden=8), plan(PLANS[19], False)),
    "vgg16_bn": (lambda: models.vgg16_bn(5, width=2, hidden=8), plan(PLANS[16], True)),
    "mobilenet_v2": (lambda: models.mobilenet_v2(5), mobilenet(5)),
    "vit": (lambda: models.VisionTransformer(16, 4, 3, 2, 8, 16, num_classes=5),
            vit(16, 4, 3, 8, 16, 5)),
    "unet": (lambda: models.UNet(3, 5, width=2), unet(2, 5)),
    "gpt2": (lambda: models.GPT(11, 6, width=8, heads=2, layers=2), gpt2(2, 8, 11, 6)),
    "nanogpt": (lambda: models.GPT(11, 6, width=8, heads=2, layers=2), nanogpt(2, 8, 11, 6, True)),
    "nanogpt without biases": (
        lambda: models.GPT(11, 6, width=8, heads=2, layers=2, bias=False),
        nanogpt(2, 8, 11, 6, False)),
    "llama": (lambda: models.Llama(11, 8, 12, 2, 4, 2), llama(11, 8, 12, 2, 4, 2, angles=True)),
    "llama, tied": (lambda: models.Llama(11, 8, 12, 2, 4, tie_word_embeddings=True),
                    llama(11, 8, 12, 2, 4, 4, tied=True)),
    "bert": (lambda: models.BertModel(11, 8, 2, 2, 16, max_position_embeddings=6),
             bert(2, 8, 16, 11, 6)),
    "bert of a file with heads": (
        lambda: models.BertModel(11, 8, 2, 2, 16, max_position_embeddings=6),
        bert(2, 8, 16, 11, 6, "bert.", heads=True, old=True)),
    "bert with heads, old": (
        lambda: models.BertForPreTraining(11, 8, 2, 2, 16, max_position_embeddings=6),
        bert(2, 8, 16, 11, 6, "bert.", heads=True, old=True)),
    "bert with heads": (
        lambda: models.BertForPreTraining(11, 8, 2, 2, 16, max_position_embeddings=6),
        bert(2, 8, 16, 11, 6, "bert.", heads=True)),
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_files_load(name: str) -> None:
    make, keys = FILES[name]
    model = make()
    state = {}
    for number, (key, shape) in enumerate(keys.items()):
        state[key] = cugrad.full(shape, number / 64)
    result = model.load_state_dict(state)
    assert not result.missing_keys and not result.unexpected_keys
    numbers = {number / 64 for number in range(len(keys))}
    for key, value in model.state_dict().items():
        if value.is_floating_point():  # each was filled, from one tensor
            assert value.min() == value.max() and value.flatten()[0].item() in numbers, key
    wrong = {key: value for key, value in state.items() if "embed" not in key and "wte" not in key}
    wrong.pop(list(wrong)[len(wrong) // 2], None)
    wrong["more.weight"] = cugrad.ones(1)
    with pytest.raises(RuntimeError, match=r'Unexpected key\(s\) in state_dict: .*"more.weight"'):
        make().load_state_dict(wrong)


def test_weights_of_transformers_gpt2_are_turned() -> None:
    net, state = models.GPT(11, 6, width=8, heads=2, layers=2), {}
    for key, shape in gpt2(2, 8, 11, 6).items():
        state[key] = cugrad.rand(shape)
    net.load_state_dict(state)
    block: Any = net.transformer["h"][1]
    for name in ("attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"):
        weight = block.get_parameter(f"{name}.weight")
        assert cugrad.equal(weight, state[f"h.1.{name}.weight"].t()), name
    assert net.lm_head.weight is net.transformer["wte"].weight
