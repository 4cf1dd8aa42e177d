"""Random networks, as the text of an expression: chains of layers whose sizes fit."""

from __future__ import annotations

from random import Random

__all__ = ["PRELUDE", "Network", "network"]

# What scripts have: `t` is the library, and `log` notes what is to be compared.
PRELUDE = '''
import copy, importlib, io
from collections import OrderedDict
from functools import partial
nn, F, optim = t.nn, t.nn.functional, t.optim
prune = importlib.import_module(nn.__name__ + '.utils.prune')
t.set_default_dtype(t.float64)

def numbers(*shape):
    """Numbers without a pattern that sums see."""
    count = 1
    for extent in shape:
        count *= extent
    waves = (t.arange(1, count + 1, dtype=t.float64) * 12.9898).sin()
    return (waves * 43.7).fmod(1.).reshape(shape)

def fill(module):
    """Gives parameters numbers of their own: libraries draw others."""
    with t.no_grad():
        for place, (name, p) in enumerate(module.named_parameters()):
            p.copy_(numbers(*p.shape) * .4 + .01 * place)
    return module

def ready(module, x):
    """Its lazy layers know their sizes, and all parameters are filled."""
    module.eval()
    module(x)
    fill(module)(x)  # the older weight_norm computes a weight when it is called
    return module.train()

class Residual(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return x + self.inner(x)

class Scale(nn.Module):
    """A parameter, buffers of which one is not saved, and a plain attribute."""

    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(t.ones(width))
        self.register_parameter("shift", None)
        self.register_buffer("calls", t.zeros((), dtype=t.int64))
        self.register_buffer("seen", t.zeros(width), persistent=False)

    def forward(self, x):
        if self.training:
            self.calls += 1
            with t.no_grad():
                self.seen.lerp_(x.reshape(-1, x.shape[-1]).mean(0), .1)
        return x * self.scale + (0 if self.shift is None else self.shift)

    def get_extra_state(self):
        return {"calls": int(self.calls)}

    def set_extra_state(self, state):
        log(state)

    def extra_repr(self):
        return f"width={len(self.scale)}"

class Twice(nn.Module):
    """One layer under two names, called twice."""

    def __init__(self, layer):
        super().__init__()
        self.first = self.second = layer

    def forward(self, x):
        return self.second(t.tanh(self.first(x)))

class Branches(nn.Module):
    def __init__(self, **branches):
        super().__init__()
        self.branches = nn.ModuleDict(branches)
        self.shares = nn.ParameterDict({name: t.ones(()) for name in branches})
        self.rest = nn.ParameterList([t.zeros(())])

    def forward(self, x):
        return sum(layer(x) * self.shares[name] for name, layer in self.branches.items()) \\
            + self.rest[0]

class Outputs(nn.Module):
    """The first of the results of a recurrent layer."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x)[0]

class Attends(nn.Module):
    def __init__(self, width, heads, **options):
        super().__init__()
        self.heads = nn.MultiheadAttention(width, heads, batch_first=True, **options)

    def forward(self, x):
        return self.heads(x, x, x, need_weights=False)[0]

class Checked(nn.Module):
    def __init__(self, layer, **options):
        super().__init__()
        self.layer, self.options = layer, options

    def forward(self, x):
        return t.utils.checkpoint.checkpoint(self.layer, x, **self.options)

class Does(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)

class Doubled(nn.Module):
    """A parametrization."""

    def forward(self, x):
        return x * 2

    def right_inverse(self, x):
        return x / 2

class Odd(nn.Module):
    """A parametrization without an inverse."""

    def forward(self, x):
        return x - x.flip(-1) * .5

def through_file(value, **options):
    file = io.BytesIO()
    t.save(value, file)
    file.seek(0)
    return t.load(file, **options)

def once_more():
    """A closure for optimizers that ask for the loss themselves."""
    opt.zero_grad()
    loss = cost(net(x), y)
    loss.backward()
    return loss
'''


class Network:
    """The text of a network and of its inputs; how many places its chain has."""

    def __init__(self, text: str, inputs: str, places: int) -> None:
        self.text, self.inputs, self.places = text, inputs, places


# Layers of vectors (n, w), of images (n, w, s, s), and of sequences (n, 4, w), which keep the shape
# but where an arrow names another width.
VECTORS = """
nn.Linear({w}, {v}) -> v
nn.Linear({w}, {v}, bias=False) -> v
nn.Bilinear({w}, {w}, {w})
nn.ReLU()
nn.ReLU(inplace=True)
nn.Tanh()
nn.GELU(approximate='tanh')
nn.SiLU()
nn.PReLU()
nn.PReLU({w})
nn.Softplus(beta=2.)
nn.LogSoftmax(-1)
nn.Dropout(0.)
nn.Identity(3, key=4)
nn.LayerNorm({w})
nn.LayerNorm({w}, bias=False)
nn.LayerNorm({w}, elementwise_affine=False)
nn.RMSNorm({w})
nn.BatchNorm1d({w})
nn.BatchNorm1d({w}, momentum=None)
nn.BatchNorm1d({w}, affine=False)
nn.BatchNorm1d({w}, track_running_stats=False)
nn.GroupNorm(2, {w})
nn.LazyLinear({w})
nn.LazyBatchNorm1d()
Scale({w})
Residual(nn.Linear({w}, {w}))
Residual(nn.Sequential(nn.Linear({w}, {v}), nn.Tanh(), nn.Linear({v}, {w})))
Twice(nn.Linear({w}, {w}))
Branches(one=nn.Linear({w}, {w}), two=Scale({w}))
Checked(nn.Linear({w}, {w}), use_reentrant=False)
Checked(nn.Sequential(nn.Linear({w}, {w}), nn.Tanh()), use_reentrant=True)
Does(lambda x: F.normalize(x, dim=-1, eps=.1))
Does(partial(F.leaky_relu, negative_slope=.2))
nn.Sequential(OrderedDict(inner=nn.Linear({w}, {w}), act=nn.ELU()))
t.nn.utils.parametrizations.weight_norm(nn.Linear({w}, {w}))
t.nn.utils.weight_norm(nn.Linear({w}, {w}), dim=None)
t.nn.utils.parametrize.register_parametrization(nn.Linear({w}, {w}), 'weight', Doubled())
t.nn.utils.parametrize.register_parametrization(nn.Linear({w}, {w}), 'bias', Odd(), unsafe=True)
"""
IMAGES = """
nn.Conv2d({w}, {v}, 3, padding=1) -> v
nn.Conv2d({w}, {w}, 3, padding='same', padding_mode='circular')
nn.Conv2d({w}, {w}, 3, padding=1, groups={w}, bias=False)
nn.ConvTranspose2d({w}, {v}, 3, padding=1) -> v
nn.LazyConv2d({w}, 1)
nn.BatchNorm2d({w})
nn.SyncBatchNorm({w})
nn.InstanceNorm2d({w}, affine=True, track_running_stats=True)
nn.GroupNorm(2, {w}, affine=False)
nn.LocalResponseNorm(2)
nn.ReLU()
nn.Hardswish()
nn.Dropout2d(0.)
nn.AvgPool2d(3, 1, 1)
nn.MaxPool2d(3, 1, 1)
nn.Upsample(scale_factor=1., mode='nearest')
Residual(nn.Sequential(nn.Conv2d({w}, {w}, 1), nn.BatchNorm2d({w}), nn.ReLU()))
t.nn.utils.parametrizations.weight_norm(nn.Conv2d({w}, {w}, 1))
nn.Sequential(nn.Conv2d({w}, {w}, 1), nn.Softmax2d())
"""
SEQUENCES = """
nn.Linear({w}, {v}) -> v
nn.LayerNorm({w})
nn.RMSNorm({w}, elementwise_affine=False)
nn.GELU()
Scale({w})
Residual(Scale({w}))
Attends({w}, 2)
Attends({w}, 2, bias=False)
Attends({w}, 2, add_bias_kv=True, add_zero_attn=True)
Outputs(nn.LSTM({w}, {v}, batch_first=True)) -> v
Outputs(nn.LSTM({w}, {w}, 2, batch_first=True, bias=False))
Outputs(nn.GRU({w}, {v}, batch_first=True)) -> v
Outputs(nn.RNN({w}, {w}, nonlinearity='relu'))
nn.TransformerEncoderLayer({w}, 2, 6, 0., batch_first=True)
nn.TransformerEncoderLayer({w}, 2, 6, 0., 'gelu', batch_first=True, norm_first=True)
nn.TransformerEncoder(nn.TransformerEncoderLayer({w}, 2, 6, 0., batch_first=True), 2, enable_nested_tensor=False)
Checked(nn.TransformerEncoderLayer({w}, 2, 6, 0., batch_first=True), use_reentrant=False)
nn.Conv1d(4, 4, 3, padding=1)
"""  # noqa: E501
ENDS = {
    "vectors": "nn.Linear({w}, 3)",
    "images": "nn.Flatten(1), nn.Linear({w} * 16, 3)",
    "sequences": "Does(lambda x: x.mean(1)), nn.Linear({w}, 3)",
    "tokens": "Does(lambda x: x.mean(1)), nn.Linear({w}, 3)",
}
LAYERS = {"vectors": VECTORS, "images": IMAGES, "sequences": SEQUENCES, "tokens": SEQUENCES}
INPUTS = {
    "vectors": "numbers(6, {w})",
    "images": "numbers(3, {w}, 4, 4)",
    "sequences": "numbers(3, 4, {w})",
    "tokens": "(t.arange(12) * 5 % 7).reshape(3, 4)",
}
BEGINS = [
    "nn.Embedding(7, {w})", "nn.Embedding(7, {w}, padding_idx=0)",
    "nn.Embedding(7, {w}, scale_grad_by_freq=True)",
]  # fmt: skip


def network(draw: Random) -> Network:
    """A chain of one to five layers and what makes three numbers of each example."""
    kind = draw.choice([*LAYERS, "vectors", "vectors"])
    width = start = draw.choice([2, 4, 6])
    chain = []
    if kind == "tokens":
        chain.append(draw.choice(BEGINS).format(w=width))
    lines = LAYERS[kind].strip().splitlines()
    for _ in range(draw.randint(1, 5)):
        text, _, wider = draw.choice(lines).partition(" -> ")
        other = draw.choice([2, 4, 6])
        chain.append(text.format(w=width, v=other))
        width = other if wider else width
    chain.append(ENDS[kind].format(w=width))
    layers = ", ".join(chain)
    return Network(f"nn.Sequential({layers})", INPUTS[kind].format(w=start), layers.count("nn."))
