"""Kernels that ops launch on CUDA, and how often a tensor passes through memory, by count.

Nothing is timed and no GPU is needed: a CuPy made of NumPy counts what it would launch. Passes are
elements that are read and written, over the elements of the largest operand. Beside them stands
what PyTorch's eager mode launches, from its sources.

    python benchmarks/kernels.py [--check] [--only REGEX] [--json FILE] [-v]

--check fails where an op launches more than its goal: a kernel each way for an elementwise row, at
most one more than PyTorch for an op, and for models what has been reached.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np

from benchmarks.common import provenance
from benchmarks.kernel_counts import Case, Counts, measured, tensor, torch  # which plays CuPy
from cugrad.autograd.recording.recorded import recorded
from cugrad.backends import get
from cugrad.models import Block, resnet18
from cugrad.ops.table import ELEMENTWISE, TABLE
from tests.support import fake_launches

F: Any = torch.nn.functional
BFLOAT16 = torch.bfloat16

# What has no kernel of its own for a reason: copies, and functions that CUDA's library lacks.
LEFT = """
    real imag conj digamma polygamma special_zeta igamma igammac gamma_quantile
    gamma_cdf_slope erfinv special_erfcx special_log_ndtr special_ndtri i0 special_i0e
    special_i1 special_i1e
"""
LEFT_TO_CUPY = LEFT.split()


def rows() -> list[Case]:
    """Every elementwise row: a kernel forward, a kernel backward."""
    params = {"masked_fill": {"value": 0.5}, "to_dtype": {"dtype": np.dtype("float16")},
              "threshold": {"threshold": 0.1, "value": 2.0},
              "clamp": {"min": 0.2, "max": 0.6}}  # fmt: skip
    found = []
    for name, op in TABLE.items():
        if op.kind != ELEMENTWISE or name in LEFT_TO_CUPY:
            continue

        def make(op: Any = op) -> tuple[Any, ...]:
            masks = ("condition", "mask")
            return tuple([tensor(8, 8).detach() > 0.5 if n in masks else tensor(8, 8)
                          for n in op.inputs])  # fmt: skip

        def call(*args: Any, name: str = name) -> Any:
            return getattr(recorded, name)(*args, **params.get(name, {}))

        goal = None if name == "lgamma" else 1  # its gradient is digamma
        found.append(Case(f"row {name}", make, call, "1/1", 1, goal))
    return found


def ops() -> list[Case]:
    """The ops of networks."""
    index = torch.tensor(np.random.default_rng(0).integers(0, 8, (8,)))
    places = torch.tensor(np.random.default_rng(0).integers(0, 8, (4, 4)))
    wide = places.repeat(1, 2)
    seen = F.max_pool2d(tensor(2, 4, 8, 8).detach(), 2, return_indices=True)[1]
    mean, var = torch.zeros(4), torch.ones(4)
    square = lambda dtype=None: lambda: (tensor(8, 8, dtype=dtype),)
    heads = lambda dtype=None: lambda: tuple([tensor(2, 3, 8, 16, dtype=dtype) for _ in range(3)])
    images = lambda: (tensor(2, 4, 8, 8),)
    last = lambda x: x.to(memory_format=torch.channels_last)
    image = lambda make: lambda: (last(make()[0]).detach().requires_grad_(), *make()[1:])
    normed = lambda x, w, b: F.batch_norm(x, mean, var, w, b, True)
    by_given = lambda x, w, b: F.batch_norm(x, mean, var, w, b)
    depthwise = lambda: (tensor(2, 8, 8, 8), tensor(8, 1, 3, 3), tensor(8))
    alone = lambda x, w, b: F.conv2d(x, w, b, padding=1, groups=8)
    pair = lambda: (tensor(8, 8), tensor(8, 8))
    affine = lambda *s: lambda: (tensor(*s), tensor(s[1]), tensor(s[1]))
    attend = lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return [
        Case("a * b", lambda: (tensor(8, 8), tensor(8, 8)), lambda a, b: a * b, "1/2", 1, 1),
        Case("a * b, bfloat16", lambda: (*square(BFLOAT16)(), *square(BFLOAT16)()),
             lambda a, b: a * b, "1/2", 1, 1),
        Case("a * 2.5", square(), lambda a: a * 2.5, "1/1", 1, 1),
        Case("add, alpha", pair, lambda a, b: torch.add(a, b, alpha=0.5), "1/1", 1, 1),
        Case("sub, alpha", pair, lambda a, b: torch.sub(a, b, alpha=0.5), "1/1", 1, 1),
        Case("add_, alpha", pair, lambda a, b: a.detach().add_(b.detach(), alpha=0.5), "1/0", 1, 0),
        Case("relu", square(), F.relu, "1/1", 1, 1),
        Case("gelu", square(), F.gelu, "1/1", 1, 1),
        Case("gelu, bfloat16", square(BFLOAT16), F.gelu, "1/1", 1, 1),
        Case("gelu, tanh", square(), lambda a: F.gelu(a, approximate="tanh"), "1/1", 1, 1),
        Case("silu", square(), F.silu, "1/1", 1, 1),
        Case("x + bias", lambda: (tensor(8, 16), tensor(16)), lambda x, b: x + b, "1/1", 1, 1),
        Case("x * weight", lambda: (tensor(8, 16), tensor(16)), lambda x, w: x * w, "1/3", 1, 1),
        Case("linear, 3-D", lambda: (tensor(2, 8, 16), tensor(32, 16), tensor(32)), F.linear,
             "1/3", 2, 3),
        Case("matmul, 4-D", lambda: (tensor(2, 3, 8, 16), tensor(2, 3, 16, 8)), torch.matmul,
             "1/2", 1, 2),
        Case("softmax", square(), lambda a: F.softmax(a, -1), "1/1", 1, 1),
        Case("cross_entropy", square(), lambda a: F.cross_entropy(a, index), "2/4", 1, 2,
             passes=(2, 4)),
        Case("cross_entropy with probabilities", lambda: (tensor(8, 8), tensor(8, 8).detach()),
             F.cross_entropy, "5/5", 6, 5, passes=(6, 6)),
        Case("layer_norm", lambda: (tensor(8, 16), tensor(16), tensor(16)),
             lambda x, w, b: F.layer_norm(x, (16,), w, b), "1/2-3", 1, 2),
        Case("rms_norm", lambda: (tensor(8, 16), tensor(16)),
             lambda x, w: F.rms_norm(x, (16,), w), "1/2-3", 1, 2),
        Case("batch_norm, training", affine(2, 4, 8, 8), normed, "1-2/1", 2, 2, passes=(3, 5)),
        Case("batch_norm, training, channels last", image(affine(2, 4, 8, 8)), normed, "2/2", 2, 2,
             passes=(3, 5)),
        Case("batch_norm, given statistics", affine(2, 4, 8, 8), by_given, "1/1-3", 1, 2,
             passes=(2, 4)),
        Case("batch_norm, given statistics, channels last", image(affine(2, 4, 8, 8)), by_given,
             "1/1-3", 1, 2, passes=(2, 4)),
        Case("group_norm", affine(2, 4, 8, 8),
             lambda x, w, b: F.group_norm(x, 2, w, b), "2/3", 1, 2),
        Case("conv2d 3x3", lambda: (tensor(2, 4, 8, 8), tensor(8, 4, 3, 3), tensor(8)),
             lambda x, w, b: F.conv2d(x, w, b, padding=1), "1-2/2-3", 1, 3),
        Case("conv2d 3x3, channels last",
             lambda: (last(tensor(2, 4, 8, 8)), last(tensor(8, 4, 3, 3)), tensor(8)),
             lambda x, w, b: F.conv2d(x, w, b, padding=1), "1-2/2-3", 3, 5),
        Case("depthwise conv2d 3x3", depthwise, alone, "1/3", 1, 3, passes=(2, 5)),
        Case("depthwise conv2d 3x3, channels last", image(depthwise), alone, "1-2/3-6", 1, 3,
             passes=(2, 5)),
        Case("grid_sample", lambda: (tensor(2, 4, 8, 8), tensor(2, 4, 4, 2)), F.grid_sample, "1/2",
             1, 2),
        Case("grid_sample, bicubic", lambda: (tensor(2, 4, 8, 8), tensor(2, 4, 4, 2)),
             lambda x, g: F.grid_sample(x, g, "bicubic", "border"), "1/2", 1, 2),
        Case("grid_sample, 3-D", lambda: (tensor(2, 4, 4, 4, 4), tensor(2, 4, 4, 4, 3)),
             F.grid_sample, "1/2", 1, 2),
        *[Case(f"pad, {mode}", images, lambda x, mode=mode: F.pad(x, (1, 1, 1, 1), mode), theirs,
               most, most)
          for mode, theirs, most in (("constant", "2/2", 2), ("reflect", "1/1-2", 1),
                                     ("replicate", "1/1-2", 1), ("circular", "5/many", 1))],
        Case("max_pool2d with indices", images,
             lambda x: F.max_pool2d(x, 2, return_indices=True)[0], "1/1-2", 2, 1),
        Case("max_unpool2d", lambda: (tensor(2, 4, 4, 4),),
             lambda x: F.max_unpool2d(x, seen, 2), "2/1", 2, 1),
        Case("unfold", images, lambda x: F.unfold(x, 3), "1/1", 1, 1),
        Case("fold", lambda: (tensor(2, 36, 36),), lambda x: F.fold(x, (8, 8), 3), "1/1", 1, 1),
        Case("max_pool2d 3x3", images, lambda x: F.max_pool2d(x, 3, 2, 1), "1/1-2", 1, 1),
        Case("avg_pool2d 2x2", images, lambda x: F.avg_pool2d(x, 2), "1/1", 1, 1,
             passes=(1.25, 1.25)),
        Case("avg_pool2d 2x2, channels last", image(images), lambda x: F.avg_pool2d(x, 2), "1/1",
             1, 1, passes=(1.25, 1.25)),
        Case("global average, channels last", image(images), lambda x: F.adaptive_avg_pool2d(x, 1),
             "1/1", 1, 1),
        Case("adaptive_avg_pool2d, uneven", images, lambda x: F.adaptive_avg_pool2d(x, 3), "1/1",
             2, 2),
        *[Case(f"interpolate {mode}", images,
               lambda x, mode=mode: F.interpolate(x, (11, 13), mode=mode), "1/1", most, most)
          for mode, most in (("nearest", 1), ("bilinear", 2), ("bicubic", 2))],
        *[Case(f"interpolate nearest by 2{more}", make, lambda x: F.interpolate(x, scale_factor=2),
               "1/1", 1, 1) for more, make in (("", images), (", channels last", image(images)))],
        Case("adaptive_max_pool2d, uneven", images, lambda x: F.adaptive_max_pool2d(x, 3), "1/2",
             1, 1),
        Case("fractional_max_pool2d", lambda: (*images(), tensor(2, 4, 2).detach()),
             lambda x, u: F.fractional_max_pool2d(x, 2, 5, _random_samples=u), "1/2", 1, 1),
        Case("attention, causal", heads(), attend, "1/2-3", 1, 2),
        Case("attention, causal, bfloat16", heads(BFLOAT16), attend, "1/2-3", 1, 2),
        Case("attention, heads of 256", lambda: tuple([tensor(2, 3, 8, 256) for _ in range(3)]),
             attend, "1/2-3", 1, 2),
        Case("attention, heads of 256, bfloat16",
             lambda: tuple([tensor(2, 3, 8, 256, dtype=BFLOAT16) for _ in range(3)]), attend,
             "1/2-3", 1, 2),
        Case("attention, a gradient of the mask", lambda: (*heads()(), tensor(1, 3, 8, 8)),
             F.scaled_dot_product_attention, "1/2-3", 1, 3),
        Case("dropout", square(), lambda a: F.dropout(a, 0.1, True), "1/1", 2, 1, passes=(3, 3)),
        Case("cat", pair, lambda a, b: torch.cat([a, b], 1), "1/0", 1, 0, passes=(4, 0)),
        Case("stack", pair, lambda a, b: torch.stack([a, b], 1), "1/0", 1, 0, passes=(4, 0)),
        Case("split", square(), lambda a: a.split(4, 1), "0/1", 0, 1, passes=(0, 2)),
        Case("split, one piece", square(), lambda a: a.split(4, 1)[0], "0/2", 0, 2,
             passes=(0, 2.5)),
        Case("chunk", square(), lambda a: a.chunk(2), "0/1", 0, 1, passes=(0, 2)),
        Case("unbind", square(), lambda a: a.unbind(1), "0/1", 0, 1, passes=(0, 2)),
        Case("x[t]", square(), lambda a: a[index], "1/many", 2, 2, passes=(2, 4)),
        Case("x[:, t]", square(), lambda a: a[:, index], "1/many", 2, 2, passes=(2, 4)),
        Case("x[t, u]", square(), lambda a: a[index, wide[0]], "1/many", 2, 3, passes=(2, 4)),
        *puts(),
        *vectors(),
        Case("contiguous", square(), lambda a: a.t().contiguous(), "1/0", 1, 0, passes=(2, 0)),
        Case("tril", square(), lambda a: a.tril(), "1/1", 1, 1, passes=(2, 2)),
        Case("triu, turned", square(), lambda a: a.t().triu(1), "1/1", 1, 1, passes=(2, 2)),
        Case("zeros_like and an add", square(), lambda a: torch.zeros_like(a) + a, "2/0", 2, 0,
             passes=(4, 0)),
        Case("embedding", lambda: (tensor(8, 16),), lambda w: F.embedding(places, w), "1/1", 1, 2),
        *bags(places),
        Case("gather", square(), lambda a: a.gather(1, places[:, :4]), "1/2", 1, 1),
        Case("logsumexp", square(), lambda a: a.logsumexp(-1), "4/2", 1, 1),
        Case("var of a dim", square(), lambda a: a.var(-1), "1/3", 1, 1),
        Case("std of a dim", square(), lambda a: a.std(-1), "1/5", 1, 1),
        Case("cumsum", square(), lambda a: a.cumsum(-1), "1/3", 1, 1),
        Case("cumprod", square(), lambda a: a.cumprod(-1), "1/many", 1, 1),
        Case("logcumsumexp", square(), lambda a: a.logcumsumexp(-1), "1/many", 1, 1),
        Case("cummax", square(), lambda a: a.cummax(-1), "1/2", 1, 1),
        Case("sort", square(), torch.sort, "1/2", 1, 1),
        Case("topk", square(), lambda a: a.topk(3), "1-2/2", 1, 1),
        Case("topk of a long row", lambda: (tensor(2, 4100),), lambda a: a.topk(3), "1-2/2", 2, 1),
        Case("topk of a long row, many", lambda: (tensor(2, 50000),), lambda a: a.topk(1000)[0],
             "many/2", 6, 1),
        Case("topk of a long row, more", lambda: (tensor(2, 50000),), lambda a: a.topk(2000)[0],
             "many/2", 4, 1),
        Case("sort of a long row", lambda: (tensor(2, 50000),), lambda a: a.sort()[0], "many/2", 2,
             1),
        Case("kthvalue", square(), lambda a: a.kthvalue(3), "1/2", 1, 1),
        Case("median", square(), lambda a: a.median(-1), "1/2", 1, 1),
        Case("max of a dim", square(), lambda a: a.max(-1), "1/2", 1, 1),
        Case("scatter", lambda: (tensor(8, 8), tensor(4, 8)),
             lambda a, b: a.scatter(0, wide, b), "2/3", 2, 3),
        Case("scatter_add", lambda: (tensor(8, 8), tensor(4, 8)),
             lambda a, b: a.scatter_add(0, wide, b), "2/1", 1, 1),
        *reductions(),
        Case("index_add", lambda: (tensor(8, 8), tensor(8, 8)),
             lambda a, b: a.index_add(0, index, b), "2/1", 2, 2),
        Case("index_select", square(), lambda a: a.index_select(0, index), "1/2", 1, 2),
        Case("nll_loss", square(), lambda a: F.nll_loss(a, index), "1/2", 1, 2),
        Case("LSTM, 10 steps", lambda: (tensor(10, 2, 8),), torch.nn.LSTM(8, 8), "few, by cuDNN",
             25, 34),
        Case("GRU, 10 steps", lambda: (tensor(10, 2, 8),), torch.nn.GRU(8, 8), "few, by cuDNN",
             23, 32),
        ctc(),
        Case("mean of a dim", square(), lambda a: a.mean(-1), "1/1", 1, 1),
        *losses(places),
        Case("GPT block", lambda: (tensor(2, 16, 64),), Block(64, 4), "16/28", 14, 24),
        Case("ResNet-18", lambda: (tensor(2, 3, 32, 32),), resnet18(10, width=4), "62/130",
             90, 110),
        Case("ResNet-18, as of large images", lambda: (tensor(2, 3, 32, 32),),
             resnet18(10, width=4), "62/130", 110, 150, large=True),
        Case("ResNet-18, channels last", lambda: (last(tensor(2, 3, 64, 64)),),
             last(resnet18(10, width=4)), "62/130", 112, 150),
        Case("ResNet-18, by cuDNN", lambda: (tensor(2, 3, 32, 32),),
             resnet18(10, width=4), "62/130", 90, 110, cudnn=True),
        Case("ResNet-18, by cuDNN, channels last", lambda: (last(tensor(2, 3, 64, 64)),),
             last(resnet18(10, width=4)), "62/130", 90, 110, cudnn=True),
    ]  # fmt: skip


def puts() -> list[Case]:
    """What goes where indices say; a copy of them is kept for backward, as of those above."""
    t, u = torch.tensor([0, 3, 1, 5, 2, 7, 6, 4]), torch.tensor([1, 2, 0, 5, 6, 1, 1, 3])
    pair, line = lambda: (tensor(8, 8), tensor(8, 8)), lambda: (tensor(8, 8), tensor(8))
    there, wide = tensor(8, 8).detach(), t[:, None].repeat(1, 8)
    mask = there > 0.5

    def put(value: Any, *named: Any) -> None:
        there[named] = value

    def part_of(a: Any, value: Any = 2.0) -> Any:
        a = a * 1
        a[0] = value
        return a

    return [
        Case("index_copy", pair, lambda a, b: a.index_copy(0, t, b), "2/3", 3, 3, passes=(4, 5)),
        Case("index_put", pair, lambda a, b: a.index_put((t,), b), "2/3", 3, 3, passes=(4, 5)),
        Case("index_put of two", line, lambda a, b: a.index_put((t, u), b), "2/3", 3, 3),
        Case("index_put, added up", pair, lambda a, b: a.index_put((t,), b, accumulate=True),
             "many/1", 3, 1),
        Case("index_fill", lambda: (tensor(8, 8),), lambda a: a.index_fill(0, t, 2.0), "2/2", 3, 1),
        Case("x[t] = y", lambda: (tensor(8, 8).detach(),), lambda y: put(y, t), "1/0", 1, 0),
        Case("x[t, u] = y", lambda: (tensor(8).detach(),), lambda y: put(y, t, u), "1/0", 1, 0),
        Case("index_put of two, added up", line, lambda a, b: a.index_put((t, u), b, True),
             "many/1", 4, 2),
        *[Case(name, lambda: (tensor(8, 8).detach(),), call, theirs, most, 0)
          for name, call, theirs, most in (
            ("scatter_", lambda a: a.scatter_(0, wide, there), "1/0", 1),
            ("scatter_ of a number", lambda a: a.scatter_(0, wide, 2.0), "1/0", 2),
            ("scatter_add_", lambda a: a.scatter_add_(0, wide, there), "1/0", 1),
            ("index_add_", lambda a: a.index_add_(0, t, there), "1/0", 1),
            ("index_copy_", lambda a: a.index_copy_(0, t, there), "1/0", 1),
            ("index_fill_", lambda a: a.index_fill_(0, t, 2.0), "1/0", 2),
            ("index_put_, added up", lambda a: a.index_put_((t,), there, True), "many/0", 1),
            ("index_put_ of two, added up", lambda a: a.index_put_((t, u), there[0], True),
             "many/0", 2),
            ("masked_fill_", lambda a: a.masked_fill_(mask, 0.0), "1/0", 1),
        )],
        Case("y[0] = b, recorded", lambda: (tensor(8, 8), tensor(8)), part_of, "2/5", 2, 4),
        Case("y[0] = 2, recorded", lambda: (tensor(8, 8),), part_of, "2/5", 2, 3),
        Case("one_hot", lambda: (t,), lambda t: F.one_hot(t, 8), "2/0", 1, 0),
    ]  # fmt: skip


def vectors() -> list[Case]:
    """Statistics, norms, products; and windows that overlap."""
    one, pair = lambda: (tensor(8, 8),), lambda: (tensor(8, 8), tensor(8, 8))
    images = lambda: (tensor(2, 4, 8, 8),)
    number = lambda: torch.complex(tensor(8, 8).detach(), tensor(8, 8).detach())
    numbers = lambda: (number().requires_grad_(), number().requires_grad_())
    half, whole = tensor(8, 8, dtype=BFLOAT16).detach(), torch.zeros(8, 8, dtype=torch.int32)
    norm, few = torch.linalg.vector_norm, torch.tensor([[0, 3], [1, 2], [7, 7], [4, 0]])
    return [
        Case("dropout2d", images, lambda x: F.dropout2d(x, 0.5), "3/1", 2, 1),
        Case("alpha_dropout", one, lambda x: F.alpha_dropout(x, 0.5, True), "7/2", 6, 3),
        Case("var_mean of a dim", one, lambda a: torch.var_mean(a, -1), "1/6", 1, 7),
        Case("std_mean of a dim", one, lambda a: torch.std_mean(a, -1), "1/10", 1, 11),
        Case("norm of order 1", one, lambda a: norm(a, 1, -1), "1/2", 1, 2),
        Case("norm of the largest", one, lambda a: norm(a, math.inf, -1), "1/9", 1, 5),
        Case("aminmax of a dim", one, lambda a: torch.aminmax(a, dim=-1), "1/9", 2, 6),
        Case("prod", one, lambda a: a.prod(), "1/many", 1, 2),
        Case("prod of a dim", one, lambda a: a.prod(-1), "1/many", 1, 1),
        Case("prod of a long line", lambda: (tensor(2, 20000),), lambda a: a.prod(-1), "1/many", 1,
             3),
        Case("addmm with numbers", lambda: (*pair(), tensor(8, 8)),
             lambda a, b, c: torch.addmm(a, b, c, beta=0.5, alpha=2.0), "1/5", 2, 3),
        *[Case(f"{name}, complex", numbers, call, theirs, 1, most) for name, call, theirs, most in (
            ("a + b", lambda a, b: a + b, "1/0", 0), ("a * b", lambda a, b: a * b, "1/4", 1),
            ("a / b", lambda a, b: a / b, "1/many", 1))],
        Case("cross", lambda: (tensor(8, 3), tensor(8, 3)), torch.linalg.cross, "1/2", 1, 2),
        *[Case(name, lambda: (tensor(8, 8).detach(),),
               lambda a, name=name, args=args: getattr(a, name)(*args), "1/0", most, 0)
          for name, args, most in (("uniform_", (), 1), ("normal_", (1.0, 2.0), 1),
                                   ("random_", (), 1), ("exponential_", (), 1),
                                   ("log_normal_", (), 1), ("bernoulli_", (), 1))],
        *[Case(f"{name} of part of a tensor", lambda: (tensor(8, 8).detach(),),
               lambda a, name=name: getattr(a[:, :4], name)(), "1/0", 2, 0)
          for name in ("uniform_", "random_")],
        *[Case(name, lambda: (tensor(8, 8).detach(), half, whole), call, "1/0", 1, 0)
          for name, call in (
            ("normal_, bfloat16", lambda a, half, whole: half.normal_(1.0, 2.0)),
            ("random_, int32", lambda a, half, whole: whole.random_(9)),
            ("randn, bfloat16", lambda a, half, whole: torch.randn(8, 8, dtype=BFLOAT16)),
            ("randint, int32", lambda a, half, whole: torch.randint(9, (8, 8), dtype=torch.int32)),
            ("bernoulli", lambda a, half, whole: a.bernoulli()),
            ("bernoulli_ of chances", lambda a, half, whole: half.bernoulli_(a)),
            ("normal of means", lambda a, half, whole: torch.normal(a, 2.0)))],
        Case("histc", lambda: (tensor(8, 8).detach(),), lambda a: a.histc(9, 0, 1), "2/0", 3, 0),
        Case("tril_indices", one, lambda a: torch.tril_indices(8, 6, 1), "1/0", 1, 0),
        Case("triu_indices, int32", one, lambda a: torch.triu_indices(8, 6, dtype=torch.int32),
             "1/0", 1, 0),
        Case("hann_window", one, lambda a: torch.hann_window(9), "5/0", 1, 0),
        Case("Tensor.unfold", one, lambda a: a.unfold(1, 3, 1), "0/2", 0, 1),
        Case("gather of a part", one, lambda a: a.gather(0, few), "1/2", 1, 1),
    ]  # fmt: skip


def ctc() -> Case:
    """The means are of numbers, which three functions compute."""
    labels = torch.tensor([[1, 2, 3], [2, 2, 4], [5, 1, 1]])
    lose = lambda x: F.ctc_loss(x, labels, (10, 9, 8), (3, 2, 3))
    return Case("ctc_loss", lambda: (tensor(10, 3, 6),), lose, "4/6", 4, 5)


def bags(places: Any) -> list[Case]:
    """PyTorch sorts the numbers backward, unless they are of maxima."""
    begins = torch.tensor([0, 3, 3, 9])
    weights = lambda: (tensor(8, 16), tensor(4, 4))
    pool = lambda w, s=None, **how: F.embedding_bag(places, w, per_sample_weights=s, **how)
    found = [Case(f"embedding_bag {mode}", lambda: (tensor(8, 16),),
                  lambda w, mode=mode: pool(w, mode=mode), "2-3/many", 1, 1 if mode == "max" else 3)
             for mode in ("sum", "mean", "max")]  # fmt: skip
    flat = lambda w: F.embedding_bag(places.reshape(-1), w, begins, padding_idx=2)
    return [
        *found,
        Case("embedding_bag of offsets", lambda: (tensor(8, 16),), flat, "2-3/many", 1, 3),
        Case("embedding_bag with weights", weights, lambda w, s: pool(w, s, mode="sum"), "2-3/many",
             1, 4),
    ]  # fmt: skip


def losses(places: Any) -> list[Case]:
    """Of elements, and lengths. A gradient of one number, and what its mean divides, are two."""
    one, pair = lambda: (tensor(8, 8),), lambda: (tensor(8, 8), tensor(8, 8).detach())
    seen = places.reshape(1, 4, 4).repeat(2, 1, 1)
    return [
        Case("mse_loss", pair, F.mse_loss, "2/2", 2, 2, passes=(4, 3)),
        Case("mse_loss, a gradient of the target", lambda: (tensor(8, 8), tensor(8, 8)),
             lambda x, y: F.mse_loss(x, y, reduction="sum"), "2/3", 2, 3, passes=(4, 6)),
        Case("mse_loss of elements", pair, lambda x, y: F.mse_loss(x, y, reduction="none"), "1/1",
             2, 1),
        Case("kl_div", pair, lambda x, y: F.kl_div(x, y, reduction="batchmean"), "5/5", 5, 4),
        Case("poisson_nll_loss", pair, F.poisson_nll_loss, "4/6", 4, 6),
        Case("gaussian_nll_loss", lambda: (*pair(), tensor(8, 8)), F.gaussian_nll_loss, "9/13",
             10, 8),
        Case("soft_margin_loss", pair, F.soft_margin_loss, "5/6", 4, 5),
        Case("nll_loss of images", lambda: (tensor(2, 8, 4, 4),),
             lambda x: F.nll_loss(x, seen), "1/3", 1, 2),
        Case("l1_loss", pair, F.l1_loss, "3/4", 3, 3),
        Case("smooth_l1_loss", pair, F.smooth_l1_loss, "2/3", 2, 3, passes=(4, 4)),
        Case("huber_loss", pair, F.huber_loss, "2/3", 2, 3, passes=(4, 4)),
        Case("binary_cross_entropy", pair, F.binary_cross_entropy, "2/3", 2, 3),
        Case("binary_cross_entropy_with_logits", pair, F.binary_cross_entropy_with_logits, "5/6",
             2, 3),
        Case("glu", one, F.glu, "1/1", 1, 1),
        Case("product of two halves", one, lambda a: torch.mul(*a.chunk(2, 1)), "1/3", 1, 1),
        Case("norm", one, lambda a: a.norm(), "1/5", 1, 2),
        Case("norm of a dim", one, lambda a: torch.linalg.vector_norm(a, dim=-1), "1/4", 1, 1),
        Case("normalize", one, F.normalize, "3/12", 3, 4),
        Case("cosine_similarity", lambda: (tensor(8, 8), tensor(8, 8)), F.cosine_similarity,
             "8/20", 8, 9),
    ]  # fmt: skip


def reductions() -> list[Case]:
    """By indices, which are the same for all that lies behind their dim."""
    index = torch.tensor(np.random.default_rng(0).integers(0, 8, (8,)))
    pair = lambda: (tensor(8, 8), tensor(8, 8))
    found = []
    for how, theirs, goals in (("amax", "2/12", (2, 3)), ("amin", "2/12", (2, 3)),
                               ("prod", "2/many", (2, 3)), ("mean", "8/many", (5, 2))):  # fmt: skip
        wide = lambda a, b, how=how: a.scatter_reduce(0, index[:, None].expand(8, 8), b, how)
        found.append(Case(f"scatter_reduce {how}", pair, wide, theirs, *goals))
        by_slices = lambda a, b, how=how: a.index_reduce(0, index, b, how)
        found.append(Case(f"index_reduce {how}", pair, by_slices, theirs, *goals))
    few = torch.tensor(np.random.default_rng(0).integers(0, 8, (5, 6)))
    for how in ("sum", "amax", "prod"):
        of_few = lambda a, b, how=how: a.scatter_reduce(0, few, b, how)
        goals = (2, 3) if how == "sum" else (3, 6)  # src is larger: a copy of its part, and zeros
        found.append(Case(f"scatter_reduce {how}, a part", pair, of_few, "2/many", *goals))
    half = lambda: tuple(tensor(8, 8, dtype=BFLOAT16) for _ in range(2))
    without = lambda a, b: a.index_reduce(0, index, b, "amax", include_self=False)
    found.append(Case("index_reduce amax, bfloat16", half, without, "3/many", 4, 3))
    return found


def steps() -> list[Counts]:
    """One step of an optimizer, for all parameters of a model."""
    block = list(Block(64, 4).parameters())
    several = [tensor(8, 8) for _ in range(148)]  # as many as GPT-2 has
    found = []
    for name, kind, params, settings, goal in (
        ("SGD, momentum, 148 tensors", torch.optim.SGD, several, {"momentum": 0.9}, 2),
        ("Adam, 148 tensors", torch.optim.Adam, several, {}, 2),
        ("Adam, capturable, 148 tensors", torch.optim.Adam, several, {"capturable": True}, 3),
        ("AdamW of a GPT block", torch.optim.AdamW, block, {}, 1),
        ("Adafactor, 148 matrices of one shape", torch.optim.Adafactor, several, {}, 25),
        ("Muon, 148 matrices of one shape", torch.optim.Muon, several, {}, 60),
    ):
        for w in params:
            w.grad = torch.ones_like(w)
        optimizer = kind(params, lr=0.1, **settings)
        optimizer.step()
        with fake_launches.counted() as step:
            optimizer.step()
        size = sum(w.numel() for w in params)
        found.append(Counts(name, (step.count, 0), (step.elements / size, 0.0), "few for all",
                            (goal, None), (dict(step.kernels), {})))  # fmt: skip
    calls: list[tuple[str, Callable[[], Any], int]] = [
        ("clip_grad_norm_, 148 tensors", lambda: torch.nn.utils.clip_grad_norm_(several, 1.0), 2),
        ("GradScaler, a fused step", scaled_step(several), 8),
        ("clip_grads_with_norm_, 148 tensors",
         lambda: torch.nn.utils.clip_grads_with_norm_(several, 1.0, torch.ones(())), 3),
        ("clip_grad_value_, 148 tensors", lambda: torch.nn.utils.clip_grad_value_(several, 1.0), 1),
        ("zero_grad to zeros, 148 tensors",
         lambda: torch.optim.SGD(several).zero_grad(set_to_none=False), 1),
        ("_foreach_mul_, 148 tensors", lambda: torch._foreach_mul_([w.grad for w in several], 2.0),
         1),
        ("_foreach_norm, 148 tensors", lambda: torch._foreach_norm([w.grad for w in several]), 3),
        ("_foreach_max, 148 tensors", lambda: torch._foreach_max([w.grad for w in several]), 2),
        ("_foreach_addcdiv_, 148 tensors, as many numbers",
         lambda: torch._foreach_addcdiv_(*[[w.grad for w in several]] * 3, [*range(148)]), 3),
    ]  # fmt: skip
    for name, call, goal in calls:
        call()
        with fake_launches.counted() as step:
            call()
        found.append(Counts(name, (step.count, 0), (step.elements / (148 * 64), 0.0),
                            "few for all", (goal, None), (dict(step.kernels), {})))  # fmt: skip
    return found


def scaled_step(params: list[Any]) -> Callable[[], None]:
    """What becomes of gradients that were scaled: checked, taken a step along, a new scale."""
    scaler, optimizer = torch.amp.GradScaler("cuda"), torch.optim.Adam(params, fused=True)
    scaler.scale(torch.ones(1))

    def step() -> None:
        scaler.step(optimizer)
        scaler.update()

    return step


def table(counts: list[Counts]) -> str:
    lines = ["| op | kernels | passes | PyTorch's kernels |", "|---|---|---|---|"]
    for c in counts:
        kernels = f"{c.kernels[0]}/{c.kernels[1]}"
        passes = f"{c.passes[0]:.3g}/{c.passes[1]:.3g}"
        lines.append(f"| {c.name} | {kernels}{' (!)' * c.missed} | {passes} | {c.torch} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="fail where a goal is missed")
    parser.add_argument("--only", default="", help="cases whose name has this")
    parser.add_argument("--json", help="a file for the counts")
    parser.add_argument("-v", action="store_true", help="name the kernels of each")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    get("cuda")
    fake_launches.count_plans()
    cases = [c for c in (*ops(), *rows()) if re.search(options.only, c.name)]
    counts = [measured(case) for case in cases]
    counts += [c for c in steps() if re.search(options.only, c.name)]
    print(table(counts))
    if options.v:
        for c in counts:
            print(c.name, *c.what, sep="\n    ")
    if options.json:
        found = [{**c._asdict(), "missed": c.missed} for c in counts]
        Path(options.json).write_text(json.dumps({**provenance(), "counts": found}, indent=1))
    missed = [c.name for c in counts if c.missed]
    if missed:
        print(f"more kernels than the goal: {', '.join(missed)}")
    return int(options.check and bool(missed))


if __name__ == "__main__":
    sys.exit(main())
