"""Sample lines of the rows of networks: softmax, losses, norms, dropout, embedding."""

from __future__ import annotations

import math

import numpy as np

from tests.ops import samples
from tests.ops.sampling import exactly, integers, positive, sample


def _softmax(np, x, dim):
    return np.exp(_log_softmax(np, x, dim))


def _log_softmax(np, x, dim):
    shifted = x - np.max(x, axis=dim if x.ndim else None, keepdims=True)
    return shifted - np.log(np.sum(np.exp(shifted), dim if x.ndim else None, keepdims=True))


def _softmax_backward(np, g, y, dim):
    return y * (g - np.sum(g * y, dim, keepdims=True))


def _log_softmax_backward(np, g, y, dim):
    return g - np.exp(y) * np.sum(g, dim, keepdims=True)


for _name, _reference in (
    ("softmax", _softmax),
    ("log_softmax", _log_softmax),
):
    for _dim in (0, 1, -1):
        sample(_name, (3, 4), dim=_dim, reference=_reference,
               torch=lambda torch, x, dim, _name=_name: getattr(torch, _name)(x, dim))  # fmt: skip
    sample(_name, (), dim=0)
    sample(_name, (2, 0), dim=0, integer=False)
    sample(_name, exactly([[1000.0, 1001.0], [-1000.0, 0.0]]), dim=1)
for _dim in (0, 2):
    sample("softmax_backward", (3, 4, 2), (3, 4, 2), dim=_dim, reference=_softmax_backward,
           integer=False,
           torch=lambda torch, g, y, dim: _softmax_backward(_Torch(torch), g, y, dim))  # fmt: skip
    sample("log_softmax_backward", (3, 4, 2), (3, 4, 2), dim=_dim, reference=_log_softmax_backward,
           integer=False,
           torch=lambda torch, g, y, dim: _log_softmax_backward(_Torch(torch), g, y, dim)
           )  # fmt: skip


class _Torch:
    """NumPy's spelling of PyTorch's functions, for a reference that both can run."""

    def __init__(self, torch):
        self.exp = torch.exp
        self.sum = lambda x, dim, keepdims: torch.sum(x, dim, keepdim=keepdims)


def _nll_loss(np, x, target, weight=None, reduction="mean", ignore_index=-100):
    w = np.ones(x.shape[min(1, x.ndim - 1)]) if weight is None else weight
    if x.ndim == 1:
        x, label = x[None], np.reshape(target, (1,))
    else:
        label = target
    loss, total = np.zeros(label.shape), 0.0
    for at in np.ndindex(label.shape):
        if label[at] != ignore_index:
            loss[at] = -w[label[at]] * x[(at[0], label[at], *at[1:])]
            total += w[label[at]]
    if reduction == "none":
        return loss.reshape(target.shape), np.zeros(())
    return loss.sum() / (total if reduction == "mean" else 1), np.asarray(total)


def _torch_nll_loss(torch, x, target, weight=None, reduction="mean", ignore_index=-100):
    how = {"reduction": reduction, "ignore_index": ignore_index}
    loss = torch.nn.functional.nll_loss(x, target, weight, **how)
    w = torch.ones(x.shape[min(1, x.ndim - 1)], dtype=x.dtype) if weight is None else weight
    total = w[target[target != ignore_index]].sum() * (reduction != "none")
    return loss, total.detach()


def _nll_loss_backward(
    np, g, target, weight, total, input_shape, reduction="mean", ignore_index=-100
):
    grad = np.zeros(input_shape)
    for at in np.ndindex(target.shape):
        if target[at] != ignore_index:
            w = 1.0 if weight is None else weight[target[at]]
            scale = g[at] if reduction == "none" else g / total if reduction == "mean" else g
            grad[(at[0], target[at], *at[1:])] = -w * scale
    return grad


for _reduction in ("none", "mean", "sum"):
    sample("nll_loss", (4, 5), exactly([1, 3, -100, 0]), None, reduction=_reduction,
           reference=_nll_loss, torch=_torch_nll_loss)  # fmt: skip
    sample("nll_loss", (3, 5, 2, 2), integers((3, 2, 2), 5), positive((5,)), reduction=_reduction,
           strided=False)  # PyTorch fails on its own strided gradient  # fmt: skip
    sample("nll_loss", (3, 5, 2), integers((3, 2), 5), positive((5,)), reduction=_reduction,
           ignore_index=2)  # fmt: skip
    sample("nll_loss", (5,), exactly(3), positive((5,)), reduction=_reduction)
sample("nll_loss", (0, 5), integers((0,), 5), None, reduction="sum")
sample("nll_loss_backward", (), exactly([1, 3, -100]), None, positive(()), input_shape=(3, 5),
       reference=_nll_loss_backward)  # fmt: skip
sample("nll_loss_backward", (), integers((3, 2), 5), positive((5,)), positive(()),
       input_shape=(3, 5, 2), reduction="sum")  # fmt: skip
sample("nll_loss_backward", (3,), integers((3,), 5), positive((5,)), positive(()),
       input_shape=(3, 5), reduction="none", ignore_index=1)  # fmt: skip


def _cross_entropy(
    np, x, target, weight=None, reduction="mean", ignore_index=-100, label_smoothing=0.0
):
    """By the definition: the mean over classes of -weight * log p has a share label_smoothing."""
    dim = min(1, x.ndim - 1)
    planes = x.reshape(1, -1, 1) if x.ndim == 1 else x.reshape(*x.shape[:2], math.prod(x.shape[2:]))
    top = planes.max(1, keepdims=True)
    log_sum = np.log(np.exp(planes - top).sum(1, keepdims=True))
    scores = _log_softmax(np, x, dim)
    loss, total = _nll_loss(np, scores, target, weight, reduction, ignore_index)
    w = np.ones(x.shape[dim]) if weight is None else weight
    smooth = -(scores * w.reshape((-1,) + (1,) * (x.ndim - dim - 1))).mean(dim)
    smooth = np.where(target == ignore_index, 0, smooth)
    smooth = smooth if reduction == "none" else smooth.sum() / (total if reduction == "mean" else 1)
    return (1 - label_smoothing) * loss + label_smoothing * smooth, total, top, log_sum


def _torch_cross_entropy(torch, x, target, weight=None, reduction="mean", ignore_index=-100, **how):
    planes = x.detach().reshape(1, -1, 1) if x.ndim == 1 else (
        x.detach().reshape(*x.shape[:2], math.prod(x.shape[2:])))  # fmt: skip
    planes = planes.float() if x.dtype.itemsize == 2 else planes
    top = planes.amax(1, True)
    log_sum = (planes - top).logsumexp(1, True)
    how = {"weight": weight, "reduction": reduction, "ignore_index": ignore_index, **how}
    total = _torch_nll_loss(torch, x.detach(), target, weight, reduction, ignore_index)[1]
    return torch.nn.functional.cross_entropy(x, target, **how), total, top, log_sum


def _cross_entropy_backward(
    np,
    g,
    x,
    target,
    weight,
    total,
    top=None,
    log_sum=None,
    reduction="mean",
    ignore_index=-100,
    label_smoothing=0.0,
):
    h = _nll_loss_backward(np, g, target, weight, total, x.shape, reduction, ignore_index)
    w = np.ones(x.shape[1]) if weight is None else weight
    kept = np.where(target == ignore_index, 0, g / total if reduction == "mean" else g)
    spread = w.reshape((-1,) + (1,) * (x.ndim - 2)) / x.shape[1] * np.expand_dims(kept, 1)
    h = (1 - label_smoothing) * h - label_smoothing * spread
    return _log_softmax_backward(np, h, _log_softmax(np, x, 1), 1)


for _reduction in ("none", "mean", "sum"):
    sample("cross_entropy", (4, 5), exactly([1, 3, -100, 0]), None, reduction=_reduction,
           reference=_cross_entropy, torch=_torch_cross_entropy)  # fmt: skip
    sample("cross_entropy", (3, 5, 2), integers((3, 2), 5), positive((5,)), reduction=_reduction,
           ignore_index=2)  # fmt: skip
sample("cross_entropy", (5,), exactly(3), positive((5,)))
sample("cross_entropy", (2, 5, 2, 3), integers((2, 2, 3), 5), None)
sample("cross_entropy", exactly([[1e4, 1e4 + 1, 0.0]]), exactly([0]), None)
sample("cross_entropy", (0, 5), integers((0,), 5), None, reduction="sum")
sample("cross_entropy_backward", (), (3, 5), exactly([1, 3, -100]), None, positive(()), None, None,
       reference=_cross_entropy_backward)  # fmt: skip
sample("cross_entropy_backward", (), (3, 5, 2), integers((3, 2), 5), positive((5,)), positive(()),
       None, None, reduction="sum")  # fmt: skip
sample("cross_entropy_backward", (3,), (3, 5), integers((3,), 5), positive((5,)), positive(()),
       None, None, reduction="none", ignore_index=1)  # fmt: skip
for _reduction in ("none", "mean", "sum"):
    sample("cross_entropy", (3, 5, 2), integers((3, 2), 5), positive((5,)), reduction=_reduction,
           ignore_index=2, label_smoothing=0.2)  # fmt: skip
    sample("cross_entropy_backward", (3, 2) if _reduction == "none" else (), (3, 5, 2),
           integers((3, 2), 5), positive((5,)), positive(()), None, None, reduction=_reduction,
           ignore_index=1, label_smoothing=0.2)  # fmt: skip
sample("cross_entropy", (4, 5), exactly([1, 3, -100, 0]), None, label_smoothing=0.1)


def _channels(x):
    return (0, *range(2, x.ndim))


def _spread(value, x):
    return value.reshape((-1,) + (1,) * (x.ndim - 2))


def _batch_norm(np, x, weight=None, bias=None, eps=1e-5):
    mean, var = x.mean(_channels(x)), x.var(_channels(x))
    y = _batch_norm_inference(np, x, weight, bias, mean, var, eps)
    return y, mean, 1 / np.sqrt(var + eps)


def _batch_norm_inference(np, x, weight, bias, mean, var, eps=1e-5):
    y = (x - _spread(mean, x)) / _spread(np.sqrt(var + eps), x)
    y = y if weight is None else y * _spread(weight, x)
    return y if bias is None else y + _spread(bias, x)


def _batch_norm_backward(np, g, x, weight=None, mean=None, invstd=None, eps=1e-5):
    xhat, _, invstd = _batch_norm(np, x, None, None, eps)
    over = {"axis": _channels(x), "keepdims": True}
    slope = _spread(invstd if weight is None else invstd * weight, x)
    return slope * (g - g.mean(**over) - xhat * (g * xhat).mean(**over))


def _torch_batch_norm(torch, x, weight=None, bias=None, eps=1e-5):
    y = torch.nn.functional.batch_norm(x, None, None, weight, bias, True, 0.0, eps)
    mean, var = x.detach().mean(_channels(x)), x.detach().var(_channels(x), unbiased=False)
    return y, mean, 1 / torch.sqrt(var + eps)


def _torch_batch_norm_backward(torch, g, x, weight=None, mean=None, invstd=None, eps=1e-5):
    y = torch.nn.functional.batch_norm(x, None, None, weight, None, True, 0.0, eps)
    return torch.autograd.grad(y, x, g, create_graph=True)[0]


def _torch_batch_norm_backward_weight(torch, g, x, mean=None, invstd=None, eps=1e-5):
    y = torch.nn.functional.batch_norm(x, None, None, None, None, True, 0.0, eps)
    return (g * y).sum(_channels(x))


for _shape in ((6, 3), (4, 3, 5), (2, 3, 4, 2)):
    sample("native_batch_norm", _shape, (3,), (3,), reference=_batch_norm, torch=_torch_batch_norm)
    sample("native_batch_norm", _shape, None, None, eps=0.1)
    sample("native_batch_norm_backward", _shape, _shape, (3,), None, None,
           reference=_batch_norm_backward, torch=_torch_batch_norm_backward)  # fmt: skip
    sample("native_batch_norm_backward", _shape, _shape, None, None, None, eps=0.1)
    sample("native_batch_norm_backward_weight", _shape, _shape, None, None,
           reference=lambda np, g, x, mean=None, invstd=None, eps=1e-5: (
               g * _batch_norm(np, x, eps=eps)[0]).sum(_channels(x)),
           torch=_torch_batch_norm_backward_weight)  # fmt: skip
    sample("batch_norm_inference", _shape, (3,), (3,), (3,), positive((3,)),
           reference=_batch_norm_inference,
           torch=lambda torch, x, w, b, mean, var, eps=1e-5: torch.nn.functional.batch_norm(
               x, mean, var, w, b, False, 0.0, eps))  # fmt: skip
    sample("batch_norm_inference", _shape, None, None, (3,), positive((3,)), eps=0.1)


def _layer_norm(np, x, weight, bias, normalized_shape, eps=1e-5):
    over = {"axis": tuple(range(-len(normalized_shape), 0)), "keepdims": True}
    mean, rstd = x.mean(**over), 1 / np.sqrt(x.var(**over) + eps)
    y = (x - mean) * rstd
    y = y if weight is None else y * weight
    return y if bias is None else y + bias, mean, rstd


def _layer_norm_backward(np, g, x, weight, mean, rstd, normalized_shape, eps=1e-5):
    over = {"axis": tuple(range(-len(normalized_shape), 0)), "keepdims": True}
    xhat, _, rstd = _layer_norm(np, x, None, None, normalized_shape, eps)
    g = g if weight is None else g * weight
    return rstd * (g - g.mean(**over) - xhat * (g * xhat).mean(**over))


def _torch_layer_norm(torch, x, weight, bias, normalized_shape, eps=1e-5):
    y, mean, rstd = torch.native_layer_norm(x, normalized_shape, weight, bias, eps)
    return y, mean.detach(), rstd.detach()


def _torch_layer_norm_backward(torch, g, x, weight, mean, rstd, normalized_shape, eps=1e-5):
    y = torch.nn.functional.layer_norm(x, normalized_shape, weight, None, eps)
    return torch.autograd.grad(y, x, g, create_graph=True)[0]


for _shape, _last in (((4, 5), (5,)), ((2, 3, 4), (3, 4))):
    sample("native_layer_norm", _shape, _last, _last, normalized_shape=_last,
           reference=_layer_norm, torch=_torch_layer_norm)  # fmt: skip
    sample("native_layer_norm", _shape, None, None, normalized_shape=_last, eps=0.1)
    sample("native_layer_norm_backward", _shape, _shape, _last, None, None, normalized_shape=_last,
           reference=_layer_norm_backward, torch=_torch_layer_norm_backward)  # fmt: skip
    sample("native_layer_norm_backward", _shape, _shape, None, None, None, normalized_shape=_last)
    sample("native_layer_norm_backward_weight", _shape, _shape, None, None, normalized_shape=_last,
           reference=lambda np, g, x, mean, rstd, normalized_shape, eps=1e-5: (
               g * _layer_norm(np, x, None, None, normalized_shape, eps)[0]).sum(0),
           torch=lambda torch, g, x, mean, rstd, normalized_shape, eps=1e-5: (
               g * torch.nn.functional.layer_norm(x, normalized_shape, eps=eps)).sum(0),
           )  # fmt: skip


def _group_norm(np, x, weight, bias, num_groups, eps=1e-5):
    grouped = x.reshape(x.shape[0], num_groups, -1)
    y, mean, rstd = _layer_norm(np, grouped, None, None, grouped.shape[2:], eps)
    y = y.reshape(x.shape) * (1 if weight is None else _spread(weight, x))
    return y if bias is None else y + _spread(bias, x), mean[..., 0], rstd[..., 0]


def _torch_group_norm(torch, x, weight, bias, num_groups, eps=1e-5):
    y = torch.nn.functional.group_norm(x, num_groups, weight, bias, eps)
    grouped = x.detach().reshape(x.shape[0], num_groups, -1)
    grouped = grouped.float() if x.dtype.itemsize == 2 else grouped
    return y, grouped.mean(2), 1 / torch.sqrt(grouped.var(2, unbiased=False) + eps)


for _shape in ((3, 4), (2, 6, 3), (2, 4, 2, 2)):
    sample("native_group_norm", _shape, _shape[1:2], _shape[1:2], num_groups=2,
           reference=_group_norm, torch=_torch_group_norm)  # fmt: skip
    sample("native_group_norm", _shape, None, None, num_groups=1, eps=0.1)
    sample("native_group_norm_backward_weight", _shape, _shape, None, None, num_groups=2,
           reference=lambda np, g, x, mean, rstd, num_groups, eps=1e-5: (
               g * _group_norm(np, x, None, None, num_groups, eps)[0]).sum(_channels(x)),
           torch=lambda torch, g, x, mean, rstd, num_groups, eps=1e-5: (
               g * torch.nn.functional.group_norm(x, num_groups, eps=eps)).sum(_channels(x)),
           )  # fmt: skip


def _rms_norm(np, x, weight, normalized_shape, eps=1e-5):
    over = {"axis": tuple(range(-len(normalized_shape), 0)), "keepdims": True}
    rstd = 1 / np.sqrt((x * x).mean(**over) + eps)
    return x * rstd * (1 if weight is None else weight), rstd


def _torch_rms_norm(torch, x, weight, normalized_shape, eps=1e-5):
    y = torch.nn.functional.rms_norm(x, normalized_shape, weight, eps)
    wide = x.detach().float() if x.dtype.itemsize == 2 else x.detach()
    squares = (wide * wide).mean(tuple(range(-len(normalized_shape), 0)), True)
    return y, 1 / torch.sqrt(squares + eps)


def _rms_norm_backward(np, g, x, weight, rstd, normalized_shape, eps=1e-5):
    g = g if weight is None else g * weight
    y, rstd = _rms_norm(np, x, None, normalized_shape, eps)
    over = {"axis": tuple(range(-len(normalized_shape), 0)), "keepdims": True}
    return rstd * (g - y * (g * y).mean(**over))


def _torch_rms_norm_backward(torch, g, x, weight, rstd, normalized_shape, eps=1e-5):
    y = torch.nn.functional.rms_norm(x, normalized_shape, weight, eps)
    return torch.autograd.grad(y, x, g, create_graph=True)[0]


for _shape, _last in (((4, 5), (5,)), ((2, 3, 4), (3, 4))):
    sample("rms_norm", _shape, _last, normalized_shape=_last, reference=_rms_norm,
           torch=_torch_rms_norm)  # fmt: skip
    sample("rms_norm", _shape, None, normalized_shape=_last, eps=0.1)
    sample("rms_norm_backward", _shape, _shape, _last, None, normalized_shape=_last,
           reference=_rms_norm_backward, torch=_torch_rms_norm_backward)  # fmt: skip
    sample("rms_norm_backward", _shape, _shape, None, None, normalized_shape=_last)
samples.REAL_ONLY |= {"native_layer_norm", "native_layer_norm_backward", "native_group_norm"}
samples.REAL_ONLY |= {"rms_norm", "rms_norm_backward"}
samples.REAL_ONLY |= {"native_layer_norm_backward_weight", "native_group_norm_backward_weight"}


def _native_dropout(np, x, bits, mask_shape, p):
    mask = np.unpackbits(bits, count=math.prod(mask_shape)).reshape(mask_shape)
    return x * mask / (1 - p or 1)


def _torch_native_dropout(torch, x, bits, mask_shape, p):
    mask = np.unpackbits(bits.numpy(), count=math.prod(mask_shape)).reshape(mask_shape)
    return x * torch.from_numpy(mask) / (1 - p or 1)


_bits = np.array([0b10110100, 0b01010011, 0b11111111], np.uint8)
sample("native_dropout", (3, 4), exactly(_bits[:2]), mask_shape=(3, 4), p=0.3,
       reference=_native_dropout, torch=_torch_native_dropout)  # fmt: skip
sample("native_dropout", (2, 5, 3), exactly(_bits[1:]), mask_shape=(2, 5, 1), p=0.5)
sample("native_dropout", (3, 4), exactly(_bits[:2] * 0), mask_shape=(3, 4), p=1.0)
sample("where_bits", (3, 4), exactly(_bits[:2]),
       reference=lambda np, x, bits: x * np.unpackbits(bits, count=x.size).reshape(x.shape),
       torch=lambda torch, x, bits: x * torch.from_numpy(
           np.unpackbits(bits.numpy(), count=x.numel()).reshape(x.shape)))  # fmt: skip


def _embedding_backward(np, g, indices, num_weights, padding_idx=-1):
    out = np.zeros((num_weights, g.shape[-1]), g.dtype)
    for at in np.ndindex(indices.shape):
        if indices[at] != padding_idx:
            out[indices[at]] += g[at]
    return out


sample("embedding", (6, 3), integers((2, 4), 6),
       reference=lambda np, weight, indices, padding_idx=-1: weight[indices],
       torch=lambda torch, weight, indices, padding_idx=-1: torch.ops.aten.embedding(
           weight, indices, padding_idx))  # fmt: skip
sample("embedding", (6, 3), integers((), 6))
sample("embedding_dense_backward", (2, 4, 3), integers((2, 4), 6), num_weights=6,
       reference=_embedding_backward,
       torch=lambda torch, g, indices, num_weights, padding_idx=-1: (
           torch.ops.aten.embedding_dense_backward(g, indices, num_weights, padding_idx, False)
       ))  # fmt: skip
sample("embedding_dense_backward", (5, 3), exactly([1, 2, 1, 0, 2]), num_weights=4, padding_idx=2)


def _bags(np, weight, indices, offsets, weights=None, mean=False, padding_idx=-1):
    """The rows of each bag that count, times their weights, and how many they are."""
    flat = np.reshape(indices, -1)
    times = np.ones(flat.shape) if weights is None else np.reshape(weights, -1)
    begins = np.arange(indices.shape[0]) * indices.shape[-1] if offsets is None else offsets
    for k, begin in enumerate(begins):
        end = begins[k + 1] if k + 1 < len(begins) else flat.size
        places = [j for j in range(begin, end) if flat[j] != padding_idx]
        yield k, places, [times[j] / (len(places) if mean else 1) for j in places]


def _embedding_bag(np, weight, indices, offsets, weights=None, mean=False, padding_idx=-1):
    bags = [*_bags(np, weight, indices, offsets, weights, mean, padding_idx)]
    flat, out = np.reshape(indices, -1), np.zeros((len(bags), weight.shape[1]), weight.dtype)
    for k, places, shares in bags:
        for j, share in zip(places, shares, strict=True):
            out[k] = out[k] + weight[flat[j]] * share
    return out


def _embedding_bag_backward(
    np, g, indices, offsets, weights=None, num_weights=0, mean=False, padding_idx=-1
):
    flat, out = np.reshape(indices, -1), np.zeros((num_weights, g.shape[1]), g.dtype)
    for k, places, shares in _bags(np, g, indices, offsets, weights, mean, padding_idx):
        for j, share in zip(places, shares, strict=True):
            out[flat[j]] = out[flat[j]] + g[k] * share
    return out


def _embedding_bag_weights(np, g, weight, indices, offsets, mean=False, padding_idx=-1):
    flat, out = np.reshape(indices, -1), np.zeros(indices.size, g.dtype)
    for k, places, shares in _bags(np, weight, indices, offsets, None, mean, padding_idx):
        for j, share in zip(places, shares, strict=True):
            out[j] = (g[k] * weight[flat[j]]).sum() * share
    return np.reshape(out, indices.shape)


def _torch_bag(torch, weight, indices, offsets, weights=None, mean=False, padding_idx=-1):
    return torch.nn.functional.embedding_bag(
        indices, weight, offsets, mode="mean" if mean else "sum", per_sample_weights=weights,
        padding_idx=None if padding_idx < 0 else padding_idx,
    )  # fmt: skip


def _embedding_bag_max(np, weight, indices, offsets, padding_idx=-1):
    flat, bags = np.reshape(indices, -1), [*_bags(np, weight, indices, offsets, None, False,
                                                  padding_idx)]  # fmt: skip
    out = np.zeros((len(bags), weight.shape[1]), weight.dtype)
    rows = np.full(out.shape, weight.shape[0], np.int64)
    for k, places, _ in bags:
        for j in places:
            for column in range(out.shape[1]):
                value = weight[flat[j], column]
                if j == places[0] or value > out[k, column]:
                    out[k, column], rows[k, column] = value, flat[j]
    return out, rows


_numbers, _begins = exactly([1, 2, 1, 0, 2, 3, 2]), exactly([0, 3, 3, 4])
sample("embedding_bag", (4, 3), _numbers, _begins, None, reference=_embedding_bag,
       torch=_torch_bag, integer=False)  # fmt: skip
for _mean, _padding in ((True, -1), (True, 2), (False, 2)):
    _how = {"mean": _mean, "padding_idx": _padding}
    sample("embedding_bag", (6, 3), integers((2, 4), 6), None, None, integer=False, **_how)
    sample("embedding_bag_backward", (4, 3), _numbers, _begins, None, num_weights=5,
           reference=_embedding_bag_backward, integer=False, **_how)  # fmt: skip
    sample("embedding_bag_weights_backward", (4, 3), (4, 3), _numbers, _begins,
           reference=_embedding_bag_weights, integer=False, **_how)  # fmt: skip
    sample("embedding_bag_max", (6, 3), integers((2, 4), 6), None, padding_idx=_padding,
           reference=_embedding_bag_max, integer=False)  # fmt: skip
sample("embedding_bag", (4, 3), _numbers, _begins, (7,), padding_idx=2, integer=False)
sample("embedding_bag_backward", (4, 3), _numbers, _begins, (7,), num_weights=5, integer=False)
sample("embedding_bag_backward", (2, 3), integers((2, 4), 6), None, (2, 4), num_weights=6,
       padding_idx=1, integer=False)  # fmt: skip
sample("embedding_bag_weights_backward", (2, 3), (6, 3), integers((2, 4), 6), None, integer=False)
sample("embedding_bag_max", (4, 3), _numbers, _begins, padding_idx=2, integer=False)
for _name in ("embedding_bag_backward", "embedding_bag_weights_backward"):
    samples.NO_TORCH[_name] = "aten's want more; the gradients of embedding_bag are compared"
samples.NO_TORCH["embedding_bag_max"] = "the function's first result alone is public"
samples.REAL_ONLY |= {"embedding_bag", "embedding_bag_max", *samples.NO_TORCH} & {
    "embedding_bag", "embedding_bag_max", "embedding_bag_backward",
    "embedding_bag_weights_backward",
}  # fmt: skip

samples.REAL_ONLY |= {
    "softmax", "softmax_backward", "log_softmax", "log_softmax_backward", "nll_loss",
    "nll_loss_backward", "cross_entropy", "cross_entropy_backward", "native_batch_norm",
    "native_batch_norm_backward", "native_batch_norm_backward_weight", "batch_norm_inference",
}  # fmt: skip
samples.NO_TORCH["cross_entropy_backward"] = "aten has none; cross_entropy's gradients are compared"
samples.NO_TORCH["nll_loss_backward"] = "aten's wants the input too; nll_loss's gradients are seen"

sample("gate", (3, 4), (3, 4), integer=False, reference=lambda np, x, y: x / (1 + np.exp(-y)),
       torch=lambda torch, x, y: x * torch.sigmoid(y))  # fmt: skip
sample(
    "normal_cdf",
    (3, 4),
    torch=lambda torch, x: torch.special.ndtr(x),
    reference=lambda np, x: np.vectorize(lambda x: math.erfc(-x / math.sqrt(2)) / 2, "d")(x),
)
sample("normal_density", (3, 4), integer=False,
       reference=lambda np, x: np.exp(-x * x / 2) / math.sqrt(2 * math.pi),
       torch=lambda torch, x: torch.exp(torch.distributions.Normal(0, 1).log_prob(x)))  # fmt: skip
samples.REAL_ONLY |= {"gate", "normal_cdf", "normal_density"}
