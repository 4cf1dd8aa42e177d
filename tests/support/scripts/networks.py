"""Random networks, as the text of an expression: chains of layers whose sizes fit."""

from __future__ import annotations

from random import Random

__all__ = ["Network", "network"]


class Network:
    """The text of a network and of its inputs; how many places its chain has."""

    def __init__(self, text: str, inputs: str, places: int) -> None:
        self.text, self.inputs, self.places = text, inputs, places


# Layers of vectors (n, w), of images (n, w, s, s), and of sequences (n, 4, w), which keep the shape
# but where an arrow names another width.
VECTORS = """
nn.Linear({w}, {v}) -> v
nn.Linear({w}, {v}, bias=False) -> v
Pairs(nn.Bilinear({w}, {w}, {v})) -> v
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
Does(Cubed.apply)
Does(lambda x: Clipped.apply(x, .05)[0])
Does(lambda x: Negated.apply(x * 1))
Does(lambda x: x.clone().mul_(2.).add_(x))
Does(lambda x: t.where(x > 0, x, x.exp() - 1))
Does(lambda x: x[:, t.arange(x.shape[1] - 1, -1, -1)])
Does(lambda x: t.stack([x, x.flip(1), x.detach()]).max(0).values)
Does(lambda x: t.cat(x.chunk(2, 1)[::-1], 1))
Does(lambda x: t.einsum('ni,nj->nj', x, x) / 2)
Does(lambda x: x - x.mean(0, keepdim=True).detach())
nn.Sequential(nn.Unflatten(1, (2, -1)), nn.Softmin(-1), nn.Flatten(1))
nn.Sequential(nn.Linear({w}, 2 * {w}), nn.GLU())
nn.Mish(inplace=True)
nn.Hardtanh(-.5, .5)
nn.CELU(.5)
nn.SELU(inplace=True)
nn.Softshrink(.1)
nn.LogSigmoid()
nn.AlphaDropout(0.)
Tied({w})
Casts(nn.Linear({w}, {w}), t.bfloat16)
Casts(nn.Sequential(nn.Linear({w}, {w}), nn.LayerNorm({w}), nn.Softmax(-1)), t.bfloat16)
Casts(nn.Sequential(nn.Linear({w}, {w}), nn.GELU(), nn.Linear({w}, {w})), t.float16)
Within(nn.Linear({w}, {w}), t.no_grad)
Within(nn.Sequential(nn.Linear({w}, {w}), nn.Tanh()), t.autograd.graph.save_on_cpu)
Within(nn.Linear({w}, {w}), partial(t.autograd.graph.saved_tensors_hooks, lambda v: v.clone(), lambda v: v * 1))
Checked(nn.BatchNorm1d({w}), use_reentrant=False)
Checked(Twice(nn.Linear({w}, {w})), use_reentrant=False, preserve_rng_state=False, determinism_check='none')
Checked(Checked(nn.Linear({w}, {w}), use_reentrant=False), use_reentrant=False)
spectral(nn.Linear({w}, {w}))
spectral(nn.Linear({w}, {w}), older=True)
nn.utils.parametrizations.orthogonal(nn.Linear({w}, {w}), 'weight', 'cayley', use_trivialization=False)
prune.identity(nn.Linear({w}, {w}), 'weight')
"""  # noqa: E501
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
nn.Conv2d({w}, {v}, 3, padding=2, dilation=2) -> v
nn.Conv2d({w}, {w}, 3, padding=1, padding_mode='reflect')
nn.Sequential(nn.Conv2d({w}, {w}, 3, 2, 1), nn.Upsample(scale_factor=2., mode='bilinear'))
nn.Sequential(nn.Conv2d({w}, {w}, 2, 2), nn.LazyConvTranspose2d({w}, 2, 2))
nn.Sequential(nn.Unflatten(1, (1, -1)), nn.Conv3d(1, 1, 3, padding=1), nn.Flatten(1, 2))
nn.Sequential(nn.PixelUnshuffle(2), nn.ChannelShuffle(2), nn.PixelShuffle(2))
nn.Sequential(nn.Unfold(3, padding=1), nn.Fold((4, 4), 3, padding=1))
nn.Sequential(nn.ZeroPad2d((1, 0, 1, 0)), nn.MaxPool2d(2, 1))
nn.AdaptiveAvgPool2d(4)
nn.Sequential(nn.AdaptiveMaxPool2d((2, 3)), nn.Upsample((4, 4), mode='bicubic', align_corners=True))
nn.LPPool2d(2, 1)
Unpools()
nn.LazyInstanceNorm2d()
Does(lambda x: x.contiguous(memory_format=t.channels_last))
Does(lambda x: F.grid_sample(x, F.affine_grid(numbers(len(x), 2, 3).to(x.dtype), x.shape, False), align_corners=False))
Does(lambda x: F.pad(x, (1, 1, 1, 1), 'replicate')[..., 1:-1, :-2])
Casts(nn.Sequential(nn.Conv2d({w}, {w}, 3, padding=1), nn.BatchNorm2d({w}), nn.ReLU(inplace=True)), t.bfloat16)
Checked(nn.Sequential(nn.Conv2d({w}, {w}, 1), nn.BatchNorm2d({w}), nn.ReLU(inplace=True)), use_reentrant=False)
spectral(nn.Conv2d({w}, {w}, 3, padding=1))
"""  # noqa: E501
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
Outputs(nn.LSTM({w}, {v} // 2, bidirectional=True, batch_first=True)) -> v
Outputs(nn.LSTM({w}, 7, proj_size={v}, batch_first=True)) -> v
Packed(nn.LSTM({w}, {v}, batch_first=True)) -> v
Packed(nn.LSTM({w}, {v}, 2, batch_first=True), in_order=True) -> v
Packed(nn.GRU({w}, {v} // 2, bidirectional=True, batch_first=True)) -> v
Packed(nn.RNN({w}, {v}, bias=False, batch_first=True)) -> v
Cells(nn.LSTMCell({w}, {v})) -> v
Cells(nn.GRUCell({w}, {v})) -> v
Cells(nn.RNNCell({w}, {w}, nonlinearity='relu'))
Masked(nn.TransformerEncoderLayer({w}, 2, 6, 0., batch_first=True), src_mask='ahead')
Masked(nn.TransformerEncoderLayer({w}, 2, 6, 0., F.silu, batch_first=True), src_mask='both', src_key_padding_mask='pads')
Masked(nn.TransformerEncoder(nn.TransformerEncoderLayer({w}, 2, 6, 0., batch_first=True), 2, nn.LayerNorm({w}), False), mask='ahead', is_causal='yes')
Masked(nn.TransformerDecoderLayer({w}, 2, 6, 0., batch_first=True), memory='memory', tgt_mask='ahead', tgt_is_causal='yes', memory_key_padding_mask='pads')
Masked(nn.Transformer({w}, 2, 1, 1, 6, 0., batch_first=True), tgt='memory', tgt_mask='ahead', src_key_padding_mask='pads')
Asks({w})
Asks({w}, bias=False)
Places({w})
Does(lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True))
Does(lambda x: F.scaled_dot_product_attention(x, x, x, numbers(4, 4).to(x.dtype), scale=.5))
Does(lambda x: x.cumsum(1) / t.arange(1, 5)[:, None])
Does(lambda x: nn.utils.rnn.pad_sequence([row[:n] for row, n in zip(x, (4, 2, 3))], batch_first=True))
Does(lambda x: x.masked_fill(t.arange(4)[:, None] >= 3, 0.))
Within(nn.Linear({w}, {w}), t.autograd.graph.save_on_cpu)
nn.Sequential(Does(lambda x: x.mT), nn.BatchNorm1d({w}), nn.Conv1d({w}, {w}, 3, padding=1, groups=2), Does(lambda x: x.mT))
"""  # noqa: E501
ENDS = {
    "vectors": "nn.Linear({w}, 3)",
    "images": "nn.Flatten(1), nn.Linear({w} * 16, 3)",
    "sequences": "Does(lambda x: x.mean(1)), nn.Linear({w}, 3)",
    "tokens": "Does(lambda x: x.mean(1)), nn.Linear({w}, 3)",
    "bags": "nn.Linear({w}, 3)",
}
LAYERS = {
    "vectors": VECTORS, "images": IMAGES, "sequences": SEQUENCES, "tokens": SEQUENCES,
    "bags": VECTORS,
}  # fmt: skip
INPUTS = {
    "vectors": "numbers(6, {w})",
    "images": "numbers(3, {w}, 4, 4)",
    "sequences": "numbers(3, 4, {w})",
    "tokens": "(t.arange(12) * 5 % 7).reshape(3, 4)",
    "bags": "(t.arange(12) * 5 % 7).reshape(4, 3)",
}
BEGINS = {
    "tokens": [
        "nn.Embedding(7, {w})", "nn.Embedding(7, {w}, padding_idx=0)",
        "nn.Embedding(7, {w}, scale_grad_by_freq=True)", "nn.Embedding(7, {w}, sparse=True)",
        "nn.Embedding(7, {w}, max_norm=.5)", "nn.Embedding(7, {w}, 0, sparse=True)",
        "nn.Embedding.from_pretrained(numbers(7, {w}), freeze=False)",
    ],
    "bags": [
        "nn.EmbeddingBag(7, {w})", "nn.EmbeddingBag(7, {w}, mode='sum', sparse=True)",
        "nn.EmbeddingBag(7, {w}, mode='max')", "nn.EmbeddingBag(7, {w}, padding_idx=1)",
        "nn.EmbeddingBag(7, {w}, sparse=True, padding_idx=2)",
        "nn.EmbeddingBag(7, {w}, max_norm=.5)",
    ],
}  # fmt: skip


def network(draw: Random) -> Network:
    """A chain of one to five layers and what makes three numbers of each example."""
    kind = draw.choice([*LAYERS, "vectors", "vectors"])
    width = start = draw.choice([2, 4, 6])
    chain = []
    if kind in BEGINS:
        chain.append(draw.choice(BEGINS[kind]).format(w=width))
    lines = LAYERS[kind].strip().splitlines()
    for _ in range(draw.randint(1, 5)):
        text, _, wider = draw.choice(lines).partition(" -> ")
        other = draw.choice([2, 4, 6])
        chain.append(text.format(w=width, v=other))
        width = other if wider else width
    chain.append(ENDS[kind].format(w=width))
    layers = ", ".join(chain)
    return Network(f"nn.Sequential({layers})", INPUTS[kind].format(w=start), layers.count("nn."))
