"""What each script begins with, as text: `t` is the library."""

from __future__ import annotations

__all__ = ["PRELUDE"]

# What scripts have: `t` is the library, and `log` notes what is to be compared.
PRELUDE = '''
import copy, importlib, io, pickle, tempfile
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

class Cubed(t.autograd.Function):
    """x³, and its derivatives in both modes and under `vmap`."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x ** 3

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx, grad):
        return 3 * ctx.saved_tensors[0] ** 2 * grad

    @staticmethod
    def jvp(ctx, tangent):
        return 3 * ctx.saved_tensors[0] ** 2 * tangent

class Clipped(t.autograd.Function):
    """x, whose gradient is clipped, and a mask without one."""

    @staticmethod
    def forward(ctx, x, most):
        ctx.most = most
        mask = x > 0
        ctx.mark_non_differentiable(mask)
        return x.clone(), mask

    @staticmethod
    def backward(ctx, grad, of_mask):
        return grad.clamp(-ctx.most, ctx.most), None

class Negated(t.autograd.Function):
    """-x, in x itself."""

    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.neg_()

    @staticmethod
    @t.autograd.function.once_differentiable
    def backward(ctx, grad):
        return -grad

class Packed(nn.Module):
    """A recurrent layer, over sequences of different lengths."""

    def __init__(self, layer, in_order=False):
        super().__init__()
        self.layer, self.in_order = layer, in_order

    def forward(self, x):
        sizes = t.tensor([4, 3, 1] if self.in_order else [2, 4, 3], device="cpu")[:len(x)]
        packed = nn.utils.rnn.pack_padded_sequence(
            x, sizes, batch_first=True, enforce_sorted=self.in_order)
        out, last = self.layer(packed)
        padded, _ = nn.utils.rnn.pad_packed_sequence(
            out, batch_first=True, padding_value=.1, total_length=x.shape[1])
        return padded

class Cells(nn.Module):
    """A cell, in a loop that is cut off behind each second step."""

    def __init__(self, cell):
        super().__init__()
        self.cell = cell

    def forward(self, x):
        state, outs = None, []
        for step, part in enumerate(x.unbind(1)):
            state = self.cell(part, state)
            outs.append(state[0] if isinstance(state, tuple) else state)
            if step % 2:
                state = tuple(s.detach() for s in state) if isinstance(state, tuple) \\
                    else state.detach()
        return t.stack(outs, 1)

class Masked(nn.Module):
    """A layer of a Transformer that does not look ahead, nor at the padding."""

    def __init__(self, layer, **names):
        super().__init__()
        self.layer, self.names = layer, names

    def forward(self, x):
        ahead = nn.Transformer.generate_square_subsequent_mask(x.shape[1]).to(x.dtype)
        pads = t.arange(x.shape[1]) >= t.tensor([4, 3, 2])[:len(x), None]
        masks = {"ahead": ahead, "pads": pads, "both": ahead < 0, "memory": x * .5, "yes": True}
        return self.layer(x, **{name: masks[mask] for name, mask in self.names.items()})

class Asks(nn.Module):
    """Attention with other keys and values, whose weights are part of the result."""

    def __init__(self, width, **options):
        super().__init__()
        self.heads = nn.MultiheadAttention(
            width, 2, kdim=3, vdim=5, batch_first=True, **options)

    def forward(self, x):
        keys, values = numbers(len(x), 2, 3).to(x.dtype), numbers(len(x), 2, 5).to(x.dtype)
        out, shares = self.heads(x, keys, values, average_attn_weights=False)
        return out + shares.sum(1).mean(-1, keepdim=True)

class Pairs(nn.Module):
    """A layer of two inputs, which are one here."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x, x)

class Places(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Embedding(4, width)

    def forward(self, x):
        return x + self.weight(t.arange(x.shape[1]))

class Tied(nn.Module):
    """Two layers with one weight."""

    def __init__(self, width):
        super().__init__()
        self.first, self.inner = nn.Linear(width, width), nn.Linear(width, width, bias=False)
        self.inner.weight = self.first.weight

    def forward(self, x):
        return self.inner(t.tanh(self.first(x)))

class Within(nn.Module):
    """A layer within a context."""

    def __init__(self, layer, context):
        super().__init__()
        self.layer, self.context = layer, context

    def forward(self, x):
        with self.context():
            return self.layer(x)

class Casts(nn.Module):
    """A layer of float32 that computes in fewer bits."""

    def __init__(self, layer, dtype):
        super().__init__()
        self.layer, self.dtype = layer.float(), dtype

    def forward(self, x):
        with t.autocast(here, dtype=self.dtype):
            return self.layer(x.float()).to(x.dtype)

class Unpools(nn.Module):
    def forward(self, x):
        most, places = F.max_pool2d(x, 2, return_indices=True)
        return F.max_unpool2d(most, places, 2)

class Odd(nn.Module):
    """A parametrization without an inverse."""

    def forward(self, x):
        return x - x.flip(-1) * .5

def through_file(value, **options):
    file = io.BytesIO()
    t.save(value, file)
    file.seek(0)
    return t.load(file, **options)

def through_disk(value, **options):
    with tempfile.NamedTemporaryFile(suffix=".pt") as file:
        t.save(value, file.name)
        return t.load(file.name, **options)

def spectral(layer, older=False):
    """Whose vectors are not random."""
    utils = nn.utils if older else nn.utils.parametrizations
    layer = utils.spectral_norm(layer)
    for buffer in layer.buffers():
        buffer.copy_(F.normalize(numbers(*buffer.shape), dim=0))
    return layer

def floats(dtype):
    """All numbers have another dtype."""
    global x
    net.to(dtype)
    x = x.to(dtype) if x.is_floating_point() else x

def cast(dtype, **options):
    """The loss, in an autocast region."""
    with t.autocast(here, dtype=dtype, **options):
        return cost(net(x), y)

def everywhere(kind, hook):
    """A pass, with a hook of all modules."""
    global loss
    handle = getattr(nn.modules.module, f"register_module_{kind}")(hook)
    try:
        loss = cost(net(x), y)
        loss.backward()
    finally:
        handle.remove()

def batches(**options):
    return t.utils.data.DataLoader(t.utils.data.TensorDataset(x, y), **options)

def learnt(names=None):
    """What a function of parameters takes."""
    return {name: p for name, p in net.named_parameters() if names is None or name in names}

def cost_of(p, a, b):
    return cost(t.func.functional_call(net, p, (a,)), b)

def once_more():
    """A closure for optimizers that ask for the loss themselves."""
    opt.zero_grad()
    loss = cost(net(x), y)
    loss.backward()
    return loss
'''
