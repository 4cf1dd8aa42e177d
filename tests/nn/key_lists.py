"""Names and shapes of public models' state dicts, as their libraries make them: `key_lists.txt`.

    python -m tests.nn.key_lists

writes the file anew, where torchvision and transformers are installed. A line of it is a shape and
the names that have it. `{a,b}` in a name stands for each of its parts, `{0-3}` for the numbers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_suffix(".txt")
Shapes = dict[str, tuple[int, ...]]
TORCHVISION = (
    "resnet18", "resnet34", "resnet50", "resnet101", "resnet152", "vgg11", "vgg11_bn", "vgg13",
    "vgg13_bn", "vgg16", "vgg16_bn", "vgg19", "vgg19_bn", "mobilenet_v2", "mobilenet_v3_small",
    "mobilenet_v3_large", "vit_b_16", "vit_b_32", "vit_l_16", "vit_l_32", "vit_h_14",
)  # fmt: skip
LLAMAS: dict[str, dict[str, Any]] = {
    "Llama-2-7b": {"vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008,
                   "num_hidden_layers": 32, "num_attention_heads": 32},
    "Llama-3-8B": {"vocab_size": 128256, "hidden_size": 4096, "intermediate_size": 14336,
                   "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8},
    "Llama-3.2-1B": {"vocab_size": 128256, "hidden_size": 2048, "intermediate_size": 8192,
                     "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8,
                     "tie_word_embeddings": True},
}  # fmt: skip
LARGE = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16}


@cache
def lists() -> dict[str, Shapes]:
    """Of each model the shapes by name."""
    found: dict[str, Shapes] = {}
    for line in FILE.read_text().splitlines():
        if line.startswith("["):
            shapes = found[line[1:-1]] = {}
        elif line and not line.startswith("#"):
            shape, *names = line.split()
            size = tuple(map(int, shape.split("x"))) if shape != "-" else ()
            shapes.update({name: size for group in names for name in _spelt_out(group)})
    return found


def _spelt_out(group: str) -> Iterator[str]:
    parts = [_choices(part) for part in re.split(r"(\{[^}]*\})", group)]
    return ("".join(chosen) for chosen in product(*parts))


def _choices(part: str) -> list[str]:
    if not part.startswith("{"):
        return [part]
    found = []
    for choice in part[1:-1].split(","):
        first, dash, last = choice.partition("-")
        found += [str(k) for k in range(int(first), int(last) + 1)] if dash else [choice]
    return found


# Writing ------------------------------------------------------------------------------------------


def _short(names: list[str]) -> list[str]:
    """Names with what differs in one place alone in braces, place by place from the end."""
    groups = [tuple((part,) for part in name.split(".")) for name in names]
    for place in range(1, max(map(len, groups)) + 1):
        merged: dict[Any, list[str]] = {}
        for group in groups:
            if len(group) < place:
                merged[group] = []
                continue
            key = (group[:-place], group[len(group) - place + 1 :])
            merged.setdefault(key, []).extend(group[-place])
        groups = [
            (*key[0], tuple(parts), *key[1]) if parts else key for key, parts in merged.items()
        ]
    return [".".join(map(_braces, group)) for group in groups]


def _braces(parts: tuple[str, ...]) -> str:
    if len(parts) == 1:
        return parts[0]
    if not all(part.isdigit() for part in parts):
        return "{" + ",".join(parts) + "}"
    runs: list[list[int]] = []
    for number in map(int, parts):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return "{" + ",".join(
        f"{run[0]}-{run[-1]}" if len(run) > 2 else ",".join(map(str, run)) for run in runs
    ) + "}"  # fmt: skip


def text(shapes: Shapes) -> Iterator[str]:
    """The lines of a model."""
    by_shape: dict[tuple[int, ...], list[str]] = {}
    for name, shape in shapes.items():
        by_shape.setdefault(shape, []).append(name)
    for shape, names in by_shape.items():
        yield f"{'x'.join(map(str, shape)) or '-'} {' '.join(_short(names))}"


def _makers() -> Iterator[tuple[str, Callable[[], Any]]]:
    import torchvision
    from transformers import (
        BertConfig,
        BertForPreTraining,
        BertForSequenceClassification,
        BertModel,
        GPT2Config,
        GPT2LMHeadModel,
        GPT2Model,
        LlamaConfig,
        LlamaForCausalLM,
    )

    for name in TORCHVISION:
        yield name, getattr(torchvision.models, name)
    yield "gpt2", lambda: GPT2Model(GPT2Config())
    yield "gpt2 with its head", lambda: GPT2LMHeadModel(GPT2Config())
    medium = {"n_embd": 1024, "n_layer": 24, "n_head": 16}
    yield "gpt2-medium", lambda: GPT2Model(GPT2Config(**medium))
    for name, options in LLAMAS.items():
        yield name, lambda options=options: LlamaForCausalLM(LlamaConfig(**options))
    yield "bert-base", lambda: BertModel(BertConfig())
    yield "bert-large", lambda: BertModel(BertConfig(**LARGE, intermediate_size=4096))
    yield "bert-base before training", lambda: BertForPreTraining(BertConfig())
    yield "bert-base of classes", lambda: BertForSequenceClassification(BertConfig(num_labels=3))


def write() -> None:
    import torch
    import torchvision
    import transformers

    versions = f"torchvision {torchvision.__version__}, transformers {transformers.__version__}"
    lines = [f"# State dicts of {re.sub(r'[+].*?,', ',', versions)}. See key_lists.py."]
    for name, make in _makers():
        with torch.device("meta"):
            shapes = {key: tuple(value.shape) for key, value in make().state_dict().items()}
        lines += ["", f"[{name}]", *text(shapes)]
    FILE.write_text("\n".join(lines) + "\n")
    print(f"{sum(map(len, lists().values()))} names, {len(lines)} lines")


if __name__ == "__main__":
    write()
