"""Small trainings with packages written for PyTorch; each returns numbers to compare.

They know only `torch`. `python -m tests.packages.programs NAME ...` runs some with PyTorch, and
`python -m cugrad.as_torch -m tests.packages.programs NAME ...` the same on cugrad: a line of JSON
each, {"name": ..., "numbers": {what: [...]}} or {"name": ..., "error": ...}. Parameters are set by
name from NumPy, and nothing is drawn by torch, so both must compute the same.
"""

from __future__ import annotations

import json
import sys
import tempfile
import traceback
import warnings
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

STEPS = 20
Numbers = dict[str, list[float]]
PROGRAMS: dict[str, Callable[[], Numbers]] = {}


def program(run: Callable[[], Numbers]) -> Callable[[], Numbers]:
    PROGRAMS[run.__name__] = run
    return run


def numbers(name: str, *shape: int, scale: float = 1.0) -> np.ndarray[Any, Any]:
    """Numbers that depend on the name and the shape alone."""
    draws = np.random.default_rng(zlib.crc32(name.encode()))
    return np.asarray(draws.standard_normal(shape) * scale, "float32")


def data(name: str, *shape: int) -> torch.Tensor:
    return torch.from_numpy(numbers(name, *shape))


def whole(name: str, below: int, *shape: int) -> torch.Tensor:
    draws = np.random.default_rng(zlib.crc32(name.encode()))
    return torch.from_numpy(draws.integers(0, below, shape))


def filled(model: Any) -> Any:
    """The model with parameters of its names: matrices by their width, vectors near 0 or 1."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            shape = tuple(parameter.shape)
            if len(shape) > 1:
                values = numbers(name, *shape, scale=0.5 / np.sqrt(np.prod(shape[1:])))
                parameter.copy_(torch.from_numpy(values))
            else:
                around = 0.0 if "bias" in name else 1.0
                parameter.copy_(torch.from_numpy(numbers(name, *shape, scale=0.02)) + around)
    return model


def trained(model: Any, loss_of: Callable[[], Any], optimizer: Any = None) -> list[float]:
    """The losses of STEPS steps."""
    if optimizer is None:
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def mlp() -> Any:
    return filled(nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 3)))


@program
def einops() -> Numbers:
    from einops import pack, rearrange, reduce, repeat, unpack
    from einops.layers.torch import EinMix, Rearrange, Reduce

    images = data("images", 4, 3, 8, 8)
    model = filled(nn.Sequential(
        Rearrange("b c (h p) (w q) -> b (h w) (c p q)", p=4, q=4), nn.Linear(48, 16), nn.GELU(),
        EinMix("b t c -> b t d", weight_shape="c d", bias_shape="d", c=16, d=12),
        Reduce("b t d -> b d", "mean"), nn.Linear(12, 5),
    ))  # fmt: skip
    labels = whole("labels", 5, 4)
    both, shapes = pack([images, images[:, :, 0]], "b c *")
    parts = unpack(both, shapes, "b c *")
    shown = reduce(repeat(rearrange(images, "b c h w -> b (h w) c"), "b n c -> b n (c k)", k=2),
                   "b (n m) c -> b n c", "max", m=8)  # fmt: skip
    return {
        "losses": trained(model, lambda: F.cross_entropy(model(images), labels)),
        "shapes": [*map(float, shown.shape), float(parts[1].sum()), float(shown.sum())],
    }


@program
def torchdiffeq() -> Numbers:
    from torchdiffeq import odeint, odeint_adjoint

    class Field(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2))

        def forward(self, t: Any, y: Any) -> Any:
            return self.net(y**3)

    start, times = torch.tensor([[2.0, 0.0]]), torch.linspace(0.0, 1.0, 6)
    goal = torch.stack([start * (1 - 0.2 * k) for k in range(6)])
    curves = {}
    for solver, method in ((odeint, "dopri5"), (odeint, "rk4"), (odeint_adjoint, "dopri5")):
        field = filled(Field())
        curves[f"{solver.__name__} {method}"] = trained(
            field,
            lambda field=field, solver=solver, method=method:
                (solver(field, start, times, method=method) - goal).abs().mean(),
        )  # fmt: skip
    return curves


@program
def torchmetrics() -> Numbers:
    from torchmetrics import MeanSquaredError, MetricCollection, PearsonCorrCoef, R2Score
    from torchmetrics.classification import (
        MulticlassAccuracy,
        MulticlassAUROC,
        MulticlassConfusionMatrix,
        MulticlassF1Score,
    )
    from torchmetrics.functional.image import structural_similarity_index_measure as ssim
    from torchmetrics.text import Perplexity

    classes = MetricCollection([
        MulticlassAccuracy(4), MulticlassF1Score(4), MulticlassAUROC(4, thresholds=None)
    ])  # fmt: skip
    table, fit = MulticlassConfusionMatrix(4), MetricCollection([MeanSquaredError(), R2Score()])
    together, words = PearsonCorrCoef(), Perplexity()
    for step in range(3):
        scores, labels = data(f"scores {step}", 16, 4).softmax(-1), whole(f"labels {step}", 4, 16)
        classes.update(scores, labels)
        table.update(scores, labels)
        fit.update(scores[:, 0], labels.float())
        together.update(scores[:, 0], labels.float())
        words.update(data(f"words {step}", 2, 5, 7), whole(f"words {step}", 7, 2, 5))
    values = {**classes.compute(), **fit.compute()}
    images = data("image", 1, 1, 16, 16).sigmoid()
    return {
        "values": [float(values[k]) for k in sorted(values)],
        "table": table.compute().flatten().tolist(),
        "others": [float(together.compute()), float(words.compute()),
                   float(ssim(images, images.flip(-1), data_range=1.0))],
    }  # fmt: skip


@program
def x_transformers() -> Numbers:
    from x_transformers import AutoregressiveWrapper, Decoder, Encoder, TransformerWrapper

    tokens = whole("tokens", 20, 2, 12)
    decoder = TransformerWrapper(
        num_tokens=20, max_seq_len=12,
        attn_layers=Decoder(dim=24, depth=2, heads=2, rotary_pos_emb=True, attn_dim_head=12),
    )  # fmt: skip
    model = filled(AutoregressiveWrapper(decoder))
    encoder = filled(TransformerWrapper(
        num_tokens=20, max_seq_len=12, attn_layers=Encoder(dim=24, depth=1, heads=2)
    ))  # fmt: skip
    return {
        "losses": trained(model, lambda: model(tokens)),
        "encoder": trained(encoder, lambda: F.cross_entropy(encoder(tokens).mT, tokens)),
        "generated": model.generate(tokens[:, :4], 6, temperature=0.0).flatten().tolist(),
    }


@program
def torchinfo() -> Numbers:
    from torchinfo import summary

    net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(),
                        nn.Linear(8 * 64, 10))  # fmt: skip
    facts = summary(net, input_size=(2, 3, 8, 8), verbose=0)
    lines = [line for line in str(facts).splitlines() if "Conv2d" in line or "Linear" in line]
    assert len(lines) == 2 and "[2, 8, 8, 8]" in lines[0], lines
    return {"facts": [facts.total_params, facts.total_mult_adds, facts.total_output_bytes]}


@program
def lion_pytorch() -> Numbers:
    from lion_pytorch import Lion

    inputs, labels = data("inputs", 8, 6), whole("labels", 3, 8)
    curves = {}
    for foreach in (False, True):
        model = mlp()
        curves[f"foreach={foreach}"] = trained(
            model, lambda model=model: F.cross_entropy(model(inputs), labels),
            Lion(model.parameters(), lr=1e-3, weight_decay=1e-2, use_foreach=foreach)
            if "use_foreach" in Lion.__init__.__code__.co_varnames
            else Lion(model.parameters(), lr=1e-3, weight_decay=1e-2),
        )  # fmt: skip
    return curves


@program
def schedulefree() -> Numbers:
    import schedulefree as free

    inputs, labels = data("inputs", 8, 6), whole("labels", 3, 8)
    curves = {}
    for kind in (free.AdamWScheduleFree, free.SGDScheduleFree, free.RAdamScheduleFree):
        model = mlp()
        optimizer = kind(model.parameters(), lr=1e-2)
        optimizer.train()
        curves[kind.__name__] = trained(
            model, lambda model=model: F.cross_entropy(model(inputs), labels), optimizer
        )
        optimizer.eval()
        curves[kind.__name__].append(float(F.cross_entropy(model(inputs), labels)))
    return curves


@program
def loralib() -> Numbers:
    import loralib as lora

    model = filled(nn.Sequential(
        lora.Embedding(10, 8, r=2), lora.Linear(8, 16, r=4, lora_alpha=8), nn.ReLU(),
        lora.MergedLinear(16, 12, r=2, enable_lora=[True, False, True]), lora.Linear(12, 3, r=2),
    ))  # fmt: skip
    lora.mark_only_lora_as_trainable(model)
    tokens, labels = whole("tokens", 10, 8), whole("labels", 3, 8)
    losses = trained(model, lambda: F.cross_entropy(model(tokens), labels))
    model.eval()  # merges
    after = float(F.cross_entropy(model(tokens), labels))
    return {"losses": losses, "after": [after, float(len(lora.lora_state_dict(model)))]}


@program
def safetensors() -> Numbers:
    from safetensors import safe_open
    from safetensors.torch import load_file, load_model, save, save_file, save_model

    model = mlp()
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/model.safetensors"
        save_model(model, path)
        other = nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 3))
        load_model(other, path)
        x = data("x", 2, 6)
        assert torch.equal(other(x), model(x))
        save_file({"half": x.half(), "brain": x.bfloat16(), "whole": torch.arange(5)}, path)
        back = load_file(path)
        with safe_open(path, framework="pt") as file:
            part = file.get_slice("half")[:1, 2:4]
    assert back["brain"].dtype is torch.bfloat16 and back["whole"].tolist() == [0, 1, 2, 3, 4]
    return {"sums": [float(back["half"].float().sum()), float(part.float().sum()),
                     float(len(save({"x": x})))]}  # fmt: skip


@program
def gpytorch() -> Numbers:
    import gpytorch as gp

    class Exact(gp.models.ExactGP):
        def __init__(self, x: Any, y: Any, likelihood: Any) -> None:
            super().__init__(x, y, likelihood)
            self.mean_module = gp.means.ConstantMean()
            self.covar_module = gp.kernels.ScaleKernel(gp.kernels.MaternKernel(nu=2.5))

        def forward(self, x: Any) -> Any:
            return gp.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    x = torch.linspace(0, 1, 24)
    y = torch.sin(6 * x) + 0.1 * data("noise", 24)
    likelihood = gp.likelihoods.GaussianLikelihood()
    model = Exact(x, y, likelihood)
    model.train()
    likelihood.train()
    marginal = gp.mlls.ExactMarginalLogLikelihood(likelihood, model)
    losses = trained(
        model, lambda: -marginal(model(x), y), torch.optim.Adam(model.parameters(), lr=0.1)
    )
    model.eval()
    likelihood.eval()
    with torch.no_grad(), gp.settings.fast_pred_var():
        prediction = likelihood(model(torch.linspace(0, 1, 5)))
    return {"losses": losses, "mean": prediction.mean.tolist(),
            "variance": prediction.variance.tolist()}  # fmt: skip


@program
def pyro() -> Numbers:
    import pyro as p
    import pyro.distributions as dist
    from pyro.infer import SVI, Trace_ELBO
    from pyro.infer.autoguide import AutoDelta

    p.clear_param_store()
    x, y = data("x", 30, 3), data("y", 30)

    def model(x: Any, y: Any) -> None:
        weights = p.sample("weights", dist.Normal(torch.zeros(3), 1.0).to_event(1))
        noise = p.sample("noise", dist.HalfNormal(1.0))
        with p.plate("data", 30):
            p.sample("y", dist.Normal(x @ weights, noise), obs=y)

    guide = AutoDelta(
        model,
        init_loc_fn=p.infer.autoguide.init_to_value(
            values={"weights": torch.tensor([0.1, -0.2, 0.3]), "noise": torch.tensor(0.8)}
        ),
    )
    inference = SVI(model, guide, p.optim.Adam({"lr": 0.05}), Trace_ELBO())
    losses = [float(inference.step(x, y)) for _ in range(STEPS)]
    trace = p.poutine.trace(p.condition(model, {"weights": torch.ones(3), "noise": torch.ones(())})
                            ).get_trace(x, y)  # fmt: skip
    return {"losses": losses, "log": [float(trace.log_prob_sum())],
            "weights": guide.median()["weights"].tolist()}  # fmt: skip


@program
def kornia() -> Numbers:
    import kornia as k

    image = data("image", 2, 3, 16, 16).sigmoid()
    functions: dict[str, Callable[[], Any]] = {
        "blur": lambda: k.filters.gaussian_blur2d(image, (3, 3), (1.0, 1.0)),
        "sobel": lambda: k.filters.sobel(image), "median": lambda: k.filters.median_blur(image, 3),
        "canny": lambda: k.filters.canny(image)[0],
        "gray": lambda: k.color.rgb_to_grayscale(image), "hsv": lambda: k.color.rgb_to_hsv(image),
        "lab": lambda: k.color.rgb_to_lab(image),
        "rotate": lambda: k.geometry.rotate(image, torch.tensor([20.0, -10.0])),
        "resize": lambda: k.geometry.resize(image, (8, 12)),
        "dilation": lambda: k.morphology.dilation(image, torch.ones(3, 3)),
        "ssim": lambda: k.metrics.ssim(image, image.flip(-1), 5),
        "harris": lambda: k.feature.harris_response(k.color.rgb_to_grayscale(image)),
    }  # fmt: skip
    values = {name: [float(f().mean()), float(f().std())] for name, f in functions.items()}
    source, target = torch.tensor([[[1.0, 1], [14, 1], [14, 14], [1, 14]]]), None
    target = source + data("corners", 1, 4, 2)
    matrix = k.geometry.get_perspective_transform(source, target)
    values["perspective"] = matrix.flatten().tolist()
    angle = nn.Parameter(torch.full((2,), 0.37))  # at 0 samples lie where cells meet: kinks
    goal = k.geometry.rotate(image, torch.tensor([12.0, -8.0]))
    values["losses"] = trained(
        None, lambda: F.mse_loss(k.geometry.rotate(image, angle), goal),
        torch.optim.SGD([angle], lr=100.0),
    )  # fmt: skip
    return values


@program
def accelerate() -> Numbers:
    from accelerate import Accelerator
    from torch.utils.data import DataLoader, TensorDataset

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = mlp()
    loader = DataLoader(TensorDataset(data("inputs", 16, 6), whole("labels", 3, 16)), batch_size=4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    losses = []
    for _ in range(5):
        for inputs, labels in loader:
            with accelerator.accumulate(model):
                loss = F.cross_entropy(model(inputs), labels)
                accelerator.backward(loss)
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            losses.append(accelerator.gather(loss).item())
    with tempfile.TemporaryDirectory() as folder:
        accelerator.save_state(folder)
        accelerator.load_state(folder)
    return {"losses": losses}


def of_transformers(model: Any, **inputs: Any) -> Numbers:
    """Losses, and the loss of the model that was saved and loaded."""
    model = filled(model)
    losses = trained(model, lambda: model(**inputs).loss)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        again = type(model).from_pretrained(folder)
    model.eval()
    again.eval()
    with torch.no_grad():
        return {
            "losses": losses,
            "saved": [float(model(**inputs).loss), float(again(**inputs).loss)],
        }


@program
def transformers_gpt2() -> Numbers:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=40, n_positions=16, n_embd=24, n_layer=2, n_head=2,
                        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0,
                        eos_token_id=1, pad_token_id=1)  # fmt: skip
    tokens = whole("tokens", 40, 2, 10)
    model = GPT2LMHeadModel(config)
    numbers = of_transformers(model, input_ids=tokens, labels=tokens)
    more = model.generate(tokens[:, :4], max_new_tokens=5, do_sample=False)
    beams = model.generate(tokens[:, :4], max_new_tokens=4, num_beams=2, do_sample=False)
    return {**numbers, "generated": more.flatten().tolist(), "beams": beams.flatten().tolist()}


@program
def transformers_llama() -> Numbers:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(vocab_size=40, hidden_size=24, intermediate_size=48, num_hidden_layers=2,
                         num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=32,
                         bos_token_id=0, eos_token_id=1, pad_token_id=1)  # fmt: skip
    tokens = whole("tokens", 40, 2, 10)
    model = LlamaForCausalLM(config)
    numbers = of_transformers(model, input_ids=tokens, labels=tokens)
    more = model.generate(tokens[:, :4], max_new_tokens=5, do_sample=False)
    return {**numbers, "generated": more.flatten().tolist()}


@program
def transformers_bert() -> Numbers:
    from transformers import BertConfig, BertForMaskedLM, BertForSequenceClassification

    config = BertConfig(vocab_size=40, hidden_size=24, num_hidden_layers=2, num_attention_heads=2,
                        intermediate_size=48, max_position_embeddings=16, num_labels=3,
                        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)  # fmt: skip
    tokens, mask = whole("tokens", 40, 2, 10), torch.ones(2, 10, dtype=torch.long)
    mask[1, 6:] = 0
    whole_words = of_transformers(BertForMaskedLM(config), input_ids=tokens, attention_mask=mask,
                                  labels=tokens)  # fmt: skip
    classes = of_transformers(BertForSequenceClassification(config), input_ids=tokens,
                              attention_mask=mask, labels=whole("labels", 3, 2))  # fmt: skip
    return {**whole_words, **{f"{k} of classes": v for k, v in classes.items()}}


@program
def transformers_vit() -> Numbers:
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(image_size=16, patch_size=8, hidden_size=24, num_hidden_layers=2,
                       num_attention_heads=2, intermediate_size=48, num_labels=4,
                       hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)  # fmt: skip
    return of_transformers(ViTForImageClassification(config), pixel_values=data("x", 3, 3, 16, 16),
                           labels=whole("labels", 4, 3))  # fmt: skip


@program
def transformers_trainer() -> Numbers:
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

    config = GPT2Config(vocab_size=40, n_positions=16, n_embd=24, n_layer=1, n_head=2,
                        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)  # fmt: skip
    rows = [{"input_ids": row, "labels": row} for row in whole("tokens", 40, 8, 10)]

    class InOrder(Trainer):
        def _get_train_sampler(self, *args: Any) -> Any:
            return torch.utils.data.SequentialSampler(rows)

    with tempfile.TemporaryDirectory() as folder:
        trainer = InOrder(
            model=filled(GPT2LMHeadModel(config)), train_dataset=rows,
            args=TrainingArguments(folder, max_steps=10, logging_steps=1, report_to=[],
                                   per_device_train_batch_size=4, learning_rate=3e-3,
                                   use_cpu=True, save_steps=10, disable_tqdm=True),
        )  # fmt: skip
        trainer.train()
        return {"losses": [log["loss"] for log in trainer.state.log_history if "loss" in log]}


@program
def diffusers() -> Numbers:
    from diffusers import DDIMScheduler, DDPMScheduler, UNet2DModel

    model = filled(UNet2DModel(
        sample_size=8, in_channels=3, out_channels=3, layers_per_block=1, norm_num_groups=4,
        block_out_channels=(8, 16), down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"), attention_head_dim=4,
    ))  # fmt: skip
    schedule, noise = DDPMScheduler(num_train_timesteps=50), data("noise", 2, 3, 8, 8)
    steps = torch.tensor([3, 40])
    noisy = schedule.add_noise(data("images", 2, 3, 8, 8), noise, steps)
    losses = trained(model, lambda: F.mse_loss(model(noisy, steps).sample, noise))
    back, x = DDIMScheduler(num_train_timesteps=50), noise
    back.set_timesteps(4)
    with torch.no_grad():
        for t in back.timesteps:
            x = back.step(model(x, t).sample, t, x).prev_sample
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        again = UNet2DModel.from_pretrained(folder)
    with torch.no_grad():
        saved = [float(F.mse_loss(m(noisy, steps).sample, noise)) for m in (model, again)]
    return {"losses": losses, "image": [float(x.mean()), float(x.std())], "saved": saved}


@program
def pytorch_lightning() -> Numbers:
    import pytorch_lightning as pl
    from torch.utils.data import DataLoader, TensorDataset

    losses: list[float] = []

    class Classifier(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = mlp()

        def training_step(self, batch: Any, number: int) -> Any:
            loss = F.cross_entropy(self.net(batch[0]), batch[1])
            self.log("loss", loss)
            losses.append(loss.item())
            return loss

        def validation_step(self, batch: Any, number: int) -> None:
            self.log("seen", F.cross_entropy(self.net(batch[0]), batch[1]))

        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
            return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 2)]

    loader = DataLoader(TensorDataset(data("inputs", 16, 6), whole("labels", 3, 16)), batch_size=4)
    with tempfile.TemporaryDirectory() as folder:
        trainer = pl.Trainer(
            max_epochs=5, accelerator="cpu", logger=False, default_root_dir=folder,
            enable_progress_bar=False, enable_model_summary=False, gradient_clip_val=1.0,
        )  # fmt: skip
        model = Classifier()
        trainer.fit(model, loader, loader)
        trainer.save_checkpoint(f"{folder}/model.ckpt")
        again = Classifier.load_from_checkpoint(f"{folder}/model.ckpt")
        seen = trainer.validate(again, loader, verbose=False)[0]["seen"]
    return {"losses": losses, "seen": [seen]}


@program
def zuko() -> Numbers:
    import zuko as z
    from zuko.bayesian import BayesianModel

    x, context = data("x", 16, 3), data("context", 16, 2)
    curves: Numbers = {}
    for kind in (z.flows.MAF, z.flows.NSF):
        flow = filled(kind(3, 2, transforms=2, hidden_features=(12, 12)))
        curves[kind.__name__] = trained(flow, lambda flow=flow: -flow(context).log_prob(x).mean())
        transform = flow(context).transform
        curves[f"{kind.__name__} inverted"] = transform.inv(transform(x)).flatten().tolist()
    base = mlp()
    with BayesianModel(base).reparameterize(local_trick=False) as drawn:
        curves["shape"] = [*map(float, drawn(data("inputs", 8, 6)).shape)]
    return curves


@program
def ema_pytorch() -> Numbers:
    from ema_pytorch import EMA

    model, inputs = mlp(), data("inputs", 8, 6)
    average = EMA(model, beta=0.9, update_after_step=2, update_every=1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    values = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()
        average.update()
        values.append(float(average(inputs).square().mean()))
    return {"values": values}


def main(names: list[str]) -> None:
    warnings.simplefilter("ignore")
    for name in names or PROGRAMS:
        torch.manual_seed(0)
        try:
            line: dict[str, Any] = {"name": name, "numbers": PROGRAMS[name]()}
        except Exception:
            line = {"name": name, "error": traceback.format_exc()}
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
