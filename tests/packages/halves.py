"""Trainings with packages written for PyTorch, in half of the memory that they take.

They know only `torch`, and the device "cuda", which is a simulated one with CUGRAD_SIMULATE_CUDA=1:
`python -m cugrad.as_torch -m tests.packages.halves NAME ...` runs each twice, as it is and within
`memory.budget` of half of the peak that the first run had. A line of JSON says for each the losses
and the peak of both. Models are small and batches large, as where memory is short: what backward
saves is most of what is in use.
"""

from __future__ import annotations

import gc
import json
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from .programs import data, filled, whole

STEPS = 6
Losses = list[float]
TRAININGS: dict[str, Callable[[], Losses]] = {}


def training(run: Callable[[], Losses]) -> Callable[[], Losses]:
    TRAININGS[run.__name__] = run
    return run


def losses_of(model: Any, loss_of: Callable[[], Any], optimizer: Any = None) -> Losses:
    """The losses of STEPS steps."""
    if optimizer is None:
        optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=3e-3)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        del loss
    return losses


def onto(device: str, *values: Any) -> Any:
    moved = [v.to(device) for v in values]
    return moved if len(moved) > 1 else moved[0]


def deep(inputs: int, outputs: int, width: int = 32, depth: int = 10) -> Any:
    """A network of equal layers."""
    between = [layer for _ in range(depth - 1) for layer in (nn.Linear(width, width), nn.GELU())]
    return nn.Sequential(nn.Linear(inputs, width), nn.GELU(), *between, nn.Linear(width, outputs))


def mlp() -> tuple[Any, Callable[[], Any]]:
    """A network, and what computes its loss."""
    model, x, labels = onto("cuda", filled(deep(16, 3)), data("x", 800, 16), whole("l", 3, 800))
    return model, lambda: F.cross_entropy(model(x), labels)


def batches() -> Any:
    """A loader of STEPS batches."""
    n = 800 * STEPS
    rows = torch.utils.data.TensorDataset(data("rows", n, 16), whole("of rows", 3, n))
    return torch.utils.data.DataLoader(rows, batch_size=800)


@training
def einops() -> Losses:
    from einops.layers.torch import EinMix, Rearrange, Reduce

    layers = [
        layer
        for _ in range(6)
        for layer in (
            EinMix("b t c -> b t d", weight_shape="c d", bias_shape="d", c=32, d=32),
            nn.GELU(),
        )
    ]
    model, images, labels = onto("cuda", filled(nn.Sequential(
        Rearrange("b c (h p) (w q) -> b (h w) (c p q)", p=2, q=2), nn.Linear(12, 32), nn.GELU(),
        *layers, Reduce("b t d -> b d", "mean"), nn.Linear(32, 5),
    )), data("images", 16, 3, 16, 16), whole("labels", 5, 16))  # fmt: skip
    return losses_of(model, lambda: F.cross_entropy(model(images), labels))


@training
def torchdiffeq() -> Losses:
    from torchdiffeq import odeint

    class Field(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 2))

        def forward(self, t: Any, y: Any) -> Any:
            return self.net(y**3)

    field, start, times = onto("cuda", filled(Field()), data("start", 256, 2) / 4,
                               torch.linspace(0.0, 1.0, 6))  # fmt: skip
    return losses_of(field, lambda: odeint(field, start, times, method="rk4").square().mean())


@training
def x_transformers() -> Losses:
    from x_transformers import AutoregressiveWrapper, Decoder, TransformerWrapper

    model, tokens = onto("cuda", filled(AutoregressiveWrapper(TransformerWrapper(
        num_tokens=20, max_seq_len=16,
        attn_layers=Decoder(dim=32, depth=4, heads=2, rotary_pos_emb=True, attn_dim_head=16),
    ))), whole("tokens", 20, 32, 16))  # fmt: skip
    return losses_of(model, lambda: model(tokens))


@training
def loralib() -> Losses:
    import loralib as lora

    layers = [layer for _ in range(8) for layer in (lora.Linear(32, 32, r=2), nn.GELU())]
    model, tokens, labels = onto("cuda", filled(nn.Sequential(
        lora.Embedding(10, 32, r=2), *layers,
        lora.MergedLinear(32, 12, r=2, enable_lora=[True, False, True]), lora.Linear(12, 3, r=2),
    )), whole("tokens", 10, 1500), whole("labels", 3, 1500))  # fmt: skip
    lora.mark_only_lora_as_trainable(model)
    return losses_of(model, lambda: F.cross_entropy(model(tokens), labels))


@training
def gpytorch() -> Losses:
    import gpytorch as gp

    class Exact(gp.models.ExactGP):
        def __init__(self, x: Any, y: Any, likelihood: Any) -> None:
            super().__init__(x, y, likelihood)
            self.mean_module = gp.means.ConstantMean()
            self.covar_module = gp.kernels.ScaleKernel(gp.kernels.MaternKernel(nu=2.5))
            self.features = filled(deep(2, 2, width=16, depth=60))

        def forward(self, x: Any) -> Any:
            x = self.features(x)
            return gp.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    x, y = onto("cuda", data("x", 96, 2), data("y", 96))
    likelihood = gp.likelihoods.GaussianLikelihood().cuda()
    model = Exact(x, y, likelihood).cuda()
    marginal = gp.mlls.ExactMarginalLogLikelihood(likelihood, model)
    return losses_of(model, lambda: -marginal(model(x), y))


@training
def kornia() -> Losses:
    import kornia as k

    class Rotated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.angle = nn.Parameter(torch.full((4,), 0.37))

        def forward(self, image: Any) -> Any:
            image = k.geometry.rotate(image, self.angle)
            for _ in range(8):
                image = k.filters.gaussian_blur2d(image.square().sigmoid(), (3, 3), (1.0, 1.0))
            return image.sub(0.5).mul(100.0)  # the angle is to be seen after eight sigmoids

    model, image = onto("cuda", Rotated(), data("image", 4, 3, 24, 24).sigmoid())
    turning = torch.optim.AdamW(model.parameters(), lr=3.0)  # degrees
    return losses_of(model, lambda: model(image).square().mean(), turning)


@training
def diffusers() -> Losses:
    from diffusers import UNet2DModel

    model, noisy, noise, steps = onto("cuda", filled(UNet2DModel(
        sample_size=8, in_channels=3, out_channels=3, layers_per_block=1, norm_num_groups=4,
        block_out_channels=(8, 16), down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"), attention_head_dim=4,
    )), data("noisy", 32, 3, 8, 8), data("noise", 32, 3, 8, 8), whole("t", 50, 32))  # fmt: skip
    return losses_of(model, lambda: F.mse_loss(model(noisy, steps).sample, noise))


def of_transformers(model: Any, **inputs: Any) -> Losses:
    model = filled(model).cuda()
    inputs = {name: value.cuda() for name, value in inputs.items()}
    return losses_of(model, lambda: model(**inputs).loss)


@training
def transformers_gpt2() -> Losses:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=40, n_positions=32, n_embd=24, n_layer=4, n_head=2,
                        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0,
                        eos_token_id=1, pad_token_id=1)  # fmt: skip
    tokens = whole("tokens", 40, 16, 24)
    return of_transformers(GPT2LMHeadModel(config), input_ids=tokens, labels=tokens)


@training
def transformers_llama() -> Losses:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(vocab_size=40, hidden_size=24, intermediate_size=48, num_hidden_layers=4,
                         num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=32,
                         bos_token_id=0, eos_token_id=1, pad_token_id=1)  # fmt: skip
    tokens = whole("tokens", 40, 16, 24)
    return of_transformers(LlamaForCausalLM(config), input_ids=tokens, labels=tokens)


@training
def transformers_bert() -> Losses:
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(vocab_size=40, hidden_size=24, num_hidden_layers=4, num_attention_heads=2,
                        intermediate_size=48, max_position_embeddings=32, num_labels=3,
                        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)  # fmt: skip
    tokens, mask = whole("tokens", 40, 16, 24), torch.ones(16, 24, dtype=torch.long)
    mask[1, 6:] = 0
    return of_transformers(BertForMaskedLM(config), input_ids=tokens, attention_mask=mask,
                           labels=tokens)  # fmt: skip


@training
def transformers_vit() -> Losses:
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(image_size=32, patch_size=8, hidden_size=24, num_hidden_layers=4,
                       num_attention_heads=2, intermediate_size=48, num_labels=4,
                       hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)  # fmt: skip
    return of_transformers(ViTForImageClassification(config), labels=whole("labels", 4, 24),
                           pixel_values=data("x", 24, 3, 32, 32))  # fmt: skip


@training
def lion_pytorch() -> Losses:
    from lion_pytorch import Lion

    model, loss_of = mlp()
    return losses_of(model, loss_of, Lion(model.parameters(), lr=1e-3, weight_decay=1e-2))


@training
def schedulefree() -> Losses:
    from schedulefree import AdamWScheduleFree

    model, loss_of = mlp()
    optimizer = AdamWScheduleFree(model.parameters(), lr=1e-2)
    optimizer.train()
    return losses_of(model, loss_of, optimizer)


@training
def ema_pytorch() -> Losses:
    from ema_pytorch import EMA

    model, loss_of = mlp()
    average, optimizer = EMA(model, beta=0.9), torch.optim.AdamW(model.parameters())
    losses = []
    for _ in range(STEPS):
        losses += losses_of(model, loss_of, optimizer)[:1]
        average.update()
    return losses


@training
def pyro() -> Losses:
    import pyro as p
    import pyro.distributions as dist

    p.clear_param_store()
    decoder, encoder, x = onto("cuda", filled(deep(4, 16)), filled(deep(16, 8)), data("x", 400, 16))

    def model(x: Any) -> None:
        p.module("decoder", decoder)
        with p.plate("data", len(x)):
            z = p.sample("z", dist.Normal(x.new_zeros(len(x), 4), 1.0).to_event(1))
            p.sample("x", dist.Normal(decoder(z), 1.0).to_event(1), obs=x)

    def guide(x: Any) -> None:
        p.module("encoder", encoder)
        with p.plate("data", len(x)):
            mean, spread = encoder(x).chunk(2, -1)
            p.sample("z", dist.Normal(mean, spread.exp()).to_event(1))

    inference = p.infer.SVI(model, guide, p.optim.Adam({"lr": 0.01}), p.infer.Trace_ELBO())
    return [float(inference.step(x)) for _ in range(STEPS)]


@training
def accelerate() -> Losses:
    from accelerate import Accelerator

    model, loader = filled(deep(16, 3)), batches()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    accelerator = Accelerator()
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    losses = []
    for inputs, labels in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs), labels)
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
        del loss
    return losses


@training
def pytorch_lightning() -> Losses:
    import pytorch_lightning as pl

    losses: Losses = []

    class Classifier(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = filled(deep(16, 3))

        def training_step(self, batch: Any, number: int) -> Any:
            loss = F.cross_entropy(self.net(batch[0]), batch[1])
            losses.append(loss.item())
            return loss

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters(), lr=1e-2)

    with tempfile.TemporaryDirectory() as folder:
        pl.Trainer(
            max_epochs=1, accelerator="gpu", devices=1, logger=False, default_root_dir=folder,
            enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        ).fit(Classifier(), batches())  # fmt: skip
    return losses


@training
def transformers_trainer() -> Losses:
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

    config = GPT2Config(vocab_size=40, n_positions=32, n_embd=24, n_layer=4, n_head=2,
                        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)  # fmt: skip
    rows = [{"input_ids": row, "labels": row} for row in whole("tokens", 40, 16 * STEPS, 24)]
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            model=filled(GPT2LMHeadModel(config)), train_dataset=rows,
            args=TrainingArguments(folder, max_steps=STEPS, logging_steps=1, report_to=[],
                                   per_device_train_batch_size=16, learning_rate=3e-3,
                                   save_strategy="no", disable_tqdm=True),
        )  # fmt: skip
        trainer.train()
        return [log["loss"] for log in trainer.state.log_history if "loss" in log]


# ---------------------------------------------------------------------------- each of them, twice


def outcome(run: Callable[[], Losses], limit: int | None = None) -> dict[str, Any]:
    """What a training has lost, and the bytes that were in use at most."""
    gc.collect()
    torch.manual_seed(0)
    torch.cuda.reset_peak_memory_stats()
    with nullcontext() if limit is None else torch.memory.budget(limit, device="cuda"):
        losses = run()
    return {"losses": losses, "peak": torch.cuda.max_memory_allocated()}


def main(names: list[str]) -> None:
    warnings.simplefilter("ignore")
    for name in names or TRAININGS:
        try:
            plain = outcome(TRAININGS[name])
            half = outcome(TRAININGS[name], plain["peak"] // 2)
            line: dict[str, Any] = {"name": name, "plain": plain, "half": half}
        except Exception:
            line = {"name": name, "error": traceback.format_exc()}
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
