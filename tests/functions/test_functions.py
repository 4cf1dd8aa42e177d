"""Public functions and indexing: values, gradients and errors, beside PyTorch where it is there."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cugrad

# Each line is evaluated with T = cugrad and with T = torch, on equal tensors.
EXPRESSIONS = """
x.sum()
x.sum(0)
x.sum((0, -1), keepdim=True)
x.sum(dim=1, dtype=T.float32)
s.sum(0)
s.mean(-1, keepdim=True)
x.mean()
x.mean((0, 1))
y.mean(1, True)
x.prod()
x.prod(1)
x.prod(0, keepdim=True)
x.prod(-1)
z.prod()
s.prod(0)
x.cumsum(1)
s.cumsum(0)
x.amax()
x.amax((0, 1), keepdim=True)
x.amin(1)
x.max()
x.max(1).values
x.max(0, keepdim=True)[0]
x.max(1)[1]
x.min(dim=1, keepdim=True).indices
s.max(0).values
s.max(0).indices
T.max(x, x*2)
x ** 3
x ** 4.0
x ** -2
T.tensor([1, -2, 3]) ** 3
T.where(x > 0, 1.0, 0.0)
T.where(x > 0, 1, 0)
T.where(x > 0, 1, 0.5)
x.argmax()
x.argmax(1)
x.argmin(0, keepdim=True)
s.argmax(0)
x.var()
x.var(0)
x.var(0, False)
x.var((0, 1), keepdim=True, correction=0)
x.var(False)
T.var(x, 1, correction=2)
y.std((0, 2))
x.std()
z.std()
T.var_mean(x, 0)[1]
T.std_mean(x, 0)[0]
x.logsumexp(1)
y.logsumexp((0, 2), keepdim=True)
i.logsumexp(0)
s.logsumexp(0)
x.norm()
x.norm(p=1)
x.norm(p=3, dim=1)
x.norm(p=float("inf"))
x.norm(p=-float("inf"), dim=0)
x.norm(p=0)
z.norm(p=3)
z.norm(p=1)
z.norm(p=float("inf"))
(x>0).any()
(x>0).all(1)
x.any(0, keepdim=True)
x.count_nonzero(1)
i.sum()
i.prod()
(i>0).sum()
i.cumsum(0)
i.to(T.uint8).sum()
i.to(T.uint8).any()
x.reshape(4, 3)
x.t().reshape(12)
x.reshape(-1)
x.view(2, -1)
x.view((12,))
x.t().view(4, 3, 1)
x.flatten()
y.flatten(1)
y.transpose(0, 1).flatten(1)
s.flatten()
x.unflatten(1, (2, -1))
y.permute(2, 0, 1)
y.permute((2, 0, 1))
y.transpose(0, -1)
x.t()
x.T
y.mT
v.t()
y.movedim(0, -1)
y.movedim((0, 1), (1, 2))
x.expand(2, 3, 4)
x.expand(2, -1, -1)
v.expand(3, 4)
v.expand(0, -1)
x.expand_as(y)
T.broadcast_to(v, (2, 4))
y[:, :1].expand(-1, 3, -1)
x.unsqueeze(0)
x.unsqueeze(-1)
x.unsqueeze(1).squeeze(1)
x.unsqueeze(0).squeeze()
x.squeeze(0)
x.select(1, -1)
x.narrow(1, 1, 2)
x.narrow(0, -2, 1)
x.diagonal()
x.diagonal(1)
x.diagonal(-1)
y.diagonal(0, 2, 0)
x.unbind(1)[2]
x.split(2)[0]
x.split(3, 1)[1]
x.split([1, 3], 1)[1]
x.chunk(3, 1)[0]
x.chunk(2)[1]
T.arange(10).chunk(4)[3]
x.tensor_split(3, 1)[0]
x.tensor_split((1, 3), dim=1)[1]
T.cat([x, x*2])
T.cat([x, y[0]], dim=1)
T.cat((x, T.ones(2, 4)), 0)
T.cat([x, i[:, None]], 1)
T.stack([x, x*2])
T.stack([x, x*2], -1)
T.hstack([x, x])
T.vstack([v, v])
x.flip(0)
x.flip((0, 1))
T.flip(x, [1])
x.roll(1)
x.roll((1, 2), (0, 1))
T.roll(x, 2, 0)
x.tril()
x.triu(1)
x.repeat(2, 1, 3)
v.repeat(2)
x.tile(2)
x.tile((2, 1, 1))
x.repeat_interleave(2, 1)
x.repeat_interleave(2)
x.clone()
x.t().contiguous()
x.masked_fill(x>0, 2.)
x.masked_fill(x.detach()>0, T.tensor(1.5))
v.masked_fill(x>0, 0)
x.sum_to_size(1, 4)
x[0]
x[-1]
x[0, 1]
x[:, 1]
x[1:]
x[:, 1:3]
x[..., 0]
x[None]
x[:, None, 1]
x[::2, 1::2]
x[i]
x[i, i]
x[:, i]
x[[0, 1]]
x[[0, 1], [1, 2]]
x[x>0]
x[T.tensor([True, False, True])]
x[:, T.tensor([True, False, True, True])]
y[0, :, i]
y[:, i, 0]
y[:, None, i]
y[i[:2]%2, :, i[:2]]
y[T.tensor(1)]
y[..., i]
x[T.tensor([[0, 1], [2, 0]])]
x[2:1]
x[-2:]
x[np.array([0, 1])]
x[True]
x[T.tensor(1), 1:]
x.gather(1, T.tensor([[0, 1], [2, 2]]))
x.gather(0, T.tensor([[0, 1]]))
s.gather(0, T.tensor(0))
x.scatter(1, T.tensor([[0, 1], [2, 3]]), y[0][:2, :2])
x.scatter(1, T.tensor([[0, 1], [2, 3]]), 1.5)
x.scatter(1, T.tensor([[0, 1], [2, 3]]), value=2)
x.scatter_add(1, T.tensor([[0, 0], [2, 3]]), y[0][:2, :2])
x.index_select(1, T.tensor([0, 0, 3]))
x.index_add(1, T.tensor([0, 0]), y[0, :, :2])
x.index_add(0, T.tensor([0, 2]), y[0, :2], alpha=2)
x.index_fill(0, T.tensor([0, 2]), 2.)
x.take(T.tensor([[0, 5], [11, 1]]))
x.take_along_dim(T.tensor([[0]]), 1)
x.take_along_dim(x.argsort(0), 0)
x.masked_select(x>0)
x.masked_select(T.tensor([True, False, True, True]))
x.nonzero()
i.nonzero(as_tuple=True)[0]
x.sort()[0]
x.sort(0, descending=True)[0]
x.sort(0, True)[1]
s.sort()[0]
x.argsort(1)
x.argsort(descending=True)
x.topk(2)[0]
x.topk(2, 0, largest=False)[0]
x.topk(2, dim=1)[1]
x.index_put((i[:2],), v)
x.index_put((T.tensor([0, 0]), T.tensor([1, 1])), v[:2], accumulate=True)
x@x.T
x@v
v@x.T
v@v
y@B
x@B
y@v
v@B
y@x.T
x.mm(w)
y.bmm(B)
x.mv(v)
v.dot(v)
v.outer(v)
T.inner(x, x)
T.inner(x, v)
T.addmm(x.T@x, w, x, beta=2, alpha=3)
T.addmm(v, w, x)
T.baddbmm(v[0], y, B)
T.einsum("ij,jk->ik", x, w)
T.einsum("ij,kj->ik", x, x)
T.einsum("ij->", x)
T.einsum("ij->ji", x)
T.einsum("ij,ij->i", x, x)
T.einsum("bij,bjk->bik", y, B)
T.einsum("bij,bjk", y, B)
T.einsum("ii->i", x[:, :3])
T.einsum("ii", x[:, :3])
T.einsum("i,j->ij", v, v)
T.einsum("ij,k->kji", x, v)
T.einsum("...ij,jk->...ik", y, w)
T.einsum("...j,...j->...", y, x)
T.einsum("bij,jk,bl->bkl", y, w, y[:, 0])
T.einsum("ij,j->i", x, v)
T.einsum("i,i->", v, v)
T.einsum("abc,acd->bd", y, B)
T.einsum("ijj->i", y[:, :, :3])
x.cumprod(1)
i.cumprod(-1, dtype=T.float64)
s.cumprod(0)
i.cumprod(0)
(x*(x>0)).cumprod(0)
x.clone().cumprod_(1)
x.clamp_min(0.1)
x.clamp_max(v)
x.clamp(min=v-1, max=v+1)
x.clamp(min=x.detach())
i.clamp_min(1.5)
x.clone().clamp_min_(0.1)
x.diff()
x.diff(2, 0)
x.diff(9)
x.diff(prepend=x[:, :1], append=u[:, None])
(x>0).diff()
x.diff(0)
(x@w).trace()
x[:, :3].trace()
i[None].trace()
(x*x+1).float_power(v)
T.float_power(i, 2)
T.float_power(2, x)
(x*1).float_power_(2)
x.ldexp(i[:, None])
(x*1).ldexp_(i[:, None])
x.isreal()
x.positive()
T.rsub(x, 2, alpha=3)
T.rsub(x, v)
i<<1
i>>1
2<<i
i<<i
i.bitwise_left_shift(i)
i.clone().bitwise_right_shift_(1)
T.xlogy(x, 2)
T.xlogy(2, x*x)
x.clone().xlogy_(v*v)
x.lerp(v, 0.3)
x.lerp(v, u[:, None])
x.clone().lerp_(x.detach()*2, 0.7)
T.addcmul(x, x, v, value=2)
T.addcdiv(v, x, v*v+1, value=-0.5)
x.clone().addcmul_(v, u[:, None])
x.copysign(-1)
x.copysign(v)
i.copysign(-1)
i.deg2rad()
x.rad2deg()
x.hypot(v)
x.frac()
x.sigmoid().logit()
(x*2).logit(0.2)
(x/0).nan_to_num()
(x/0).nan_to_num(1, 2, 3)
x.sinc()
z.hardshrink()
x.hardshrink(0.2)
x.fmax(v)
x.fmin(x)
x.logaddexp(v)
x.logaddexp2(v)
x.erfc()
i.erfc()
(x.detach()>0).long().heaviside(i[:1])
x.signbit()
i.gcd(i+1)
i.lcm(4-i)
T.special.entr(x*x)
T.special.entr(x.detach()*i[:, None])
T.special.expit(x)
T.special.ndtr(x)
T.special.softmax(x, -1)
T.special.log_softmax(i, 0, dtype=T.float64)
T.special.xlog1py(x, v*v)
T.special.xlog1py(T.tensor([0., 0., 2.]), T.tensor([-1., -2., -1.]))
T.special.xlogy(x, v*v)
T.celu(x, 0.5)
T.selu(x)
T.prelu(x, v)
T.threshold(x, 0.1, 2)
T.cosine_similarity(x, x*v)
""".strip().splitlines()

# Each line changes `a`, twice a leaf, in place.
ASSIGNMENTS = """
a[0]=v
a[:, 1]=u
a[1, 2]=5
a[...]=v
a[:]=0
a[1:, ::2]=M
a[None, 0]=v
a[k]=v
a[k, j]=u[:2]
a[:, j]=M[0]
a[a.detach()>0]=3.
a[a.detach()>0]=v.sum()
a[T.tensor([True, False, True])]=M[0, 0]
a[0, j]=u[:2]
a[k, 1]=u[:2]
a[0][1:3]=u[:2]
a[0]=v.double()
a[0]=k[0]
a[:, 0:1]=u[:, None]
a[1]=v[None]
a.masked_fill_(a.detach()>0, 2.)
a.scatter_(1, T.tensor([[0, 1], [2, 3]]), M)
a.scatter_add_(1, T.tensor([[0, 0], [2, 3]]), M)
a.index_add_(0, k, M.sum()*a.detach()[:2].clone())
a.index_put_((k,), v)
a.index_put_((k, j), v[:2], accumulate=True)
a.index_fill_(1, j, 0.)
a.tril_()
a[0]+=v
a[:, 1]*=u
a[k]+=v
a.t()[1]=u
a.view(-1)[3]=u[0]
a.unsqueeze(0)[0, 1]=v
a.diagonal()[:]=u
a.diagonal().mul_(u)
a.transpose(0, 1)[:2]=M.sum()
a.narrow(0, 0, 2).copy_(a.detach()[1:].clone()*u[:2, None])
a.select(1, 0).mul_(u)
a[:, None, 1]=u[:, None]
a[1]=True
a[T.tensor(1)]=v
a[np.array([0, 2])]=v
a[[0, 1], [1, 1]]=u[:2]
a[..., -1]=u
a[0, 0]=u[0]
""".strip().splitlines()

# Each line is wrong: the exception type is PyTorch's, and the text holds the core of its text.
REFUSED = [
    (
        "x.gather(0, T.tensor([[5]]))",
        RuntimeError,
        "index 5 is out of bounds for dimension 0 with size 3",
    ),
    (
        "x.gather(0, T.tensor([0]))",
        RuntimeError,
        "Index tensor must have the same number of dimensions as input tensor",
    ),
    ("x.index_select(0, T.tensor([5]))", IndexError, "index 5 is out of bounds for dimension 0"),
    (
        "s.reshape(1).index_add(0, T.tensor([1]), s.reshape(1))",
        IndexError,
        "index 1 is out of bounds",
    ),
    ("x.index_add(0, T.tensor([5]), x[:1])", RuntimeError, "index 5 is out of bounds for dimens"),
    ("x.index_reduce(0, T.tensor([-1]), x[:1], 'amax')", IndexError, "index -1 is out of bounds"),
    ("x[T.tensor([5])]", IndexError, "index 5 is out of bounds for dimension 0 with size 3"),
    ("x[5]", IndexError, "index 5 is out of bounds for dimension 0 with size 3"),
    ("x[0, 0, 0]", IndexError, "too many indices for tensor of dimension 2"),
    (
        "x[T.tensor([0, 1]), T.tensor([0, 1, 2])]",
        IndexError,
        "shape mismatch: indexing tensors could not be broadcast together with sh",
    ),
    (
        "x[T.tensor([True])]",
        IndexError,
        "The shape of the mask [1] at index 0 does not match the shape of the ind",
    ),
    (
        "x[1.0]",
        IndexError,
        "only integers, slices (`:`), ellipsis (`...`), None and long or byte Var",
    ),
    (
        "x[T.tensor([1.])]",
        IndexError,
        "tensors used as indices must be long, int, byte or bool tensors",
    ),
    ("x[::-1]", ValueError, "step must be greater than zero"),
    ("s[0]", IndexError, "invalid index of a 0-dim tensor. Use `tensor.item()` in Python"),
    (
        "i.mean()",
        RuntimeError,
        "mean(): could not infer output dtype. Input dtype must be either a float",
    ),
    (
        "x.sum(5)",
        IndexError,
        "Dimension out of range (expected to be in range of [-2, 1], but got 5)",
    ),
    ("x.sum((0, 0))", RuntimeError, "dim 0 appears multiple times in the list of dims"),
    ("x.view(5)", RuntimeError, "shape '[5]' is invalid for input of size 12"),
    ("x.reshape(-1, -1)", RuntimeError, "only one dimension can be inferred"),
    (
        "x.expand(2, 3, 5)",
        RuntimeError,
        "The expanded size of the tensor (5) must match the existing size (4) at",
    ),
    (
        "x.expand(-1, -1, 4)",
        RuntimeError,
        "The expanded size of the tensor (-1) isn't allowed in a leading, non-exi",
    ),
    ("x.permute(0, 0)", RuntimeError, "permute(): duplicate dims are not allowed"),
    (
        "x.t().view(-1)",
        RuntimeError,
        "view size is not compatible with input tensor's size and stride (at leas",
    ),
    ("y.t()", RuntimeError, "t() expects a tensor with <= 2 dimensions, but self is 3D"),
    ("T.cat([])", ValueError, "torch.cat(): expected a non-empty list of Tensors"),
    (
        "T.cat(x)",
        TypeError,
        "cat(): argument 'tensors' (position 1) must be tuple of Tensors, not Ten",
    ),
    (
        "T.cat([x, w])",
        RuntimeError,
        "Sizes of tensors must match except in dimension 0. Expected size 4 but g",
    ),
    (
        "T.stack([x, w])",
        RuntimeError,
        "stack expects each tensor to be equal size, but got [3, 4] at entry 0 an",
    ),
    ("x@x", RuntimeError, "mat1 and mat2 shapes cannot be multiplied (3x4 and 3x4)"),
    (
        "y@T.ones(3, 4, 5, dtype=T.float64)",
        RuntimeError,
        "The size of tensor a (2) must match the size of tensor b (3) at non-sing",
    ),
    ("T.dot(x, x)", RuntimeError, "1D tensors expected, but got 2D and 2D tensors"),
    ("x.narrow(0, 2, 5)", RuntimeError, "start (2) + length (5) exceeds dimension size (3)."),
    (
        "x.narrow(0, 5, 1)",
        IndexError,
        "start out of range (expected to be in range of [-3, 3], but got 5)",
    ),
    (
        "x.select(0, 7)",
        IndexError,
        "select(): index 7 out of range for tensor of size [3, 4] at dimension 0",
    ),
    (
        "x.split(0)",
        RuntimeError,
        "split_size can only be 0 if dimension size is 0, but got dimension size",
    ),
    (
        "x.split([1, 1])",
        RuntimeError,
        "split_with_sizes expects split_sizes to sum exactly to 3 (input tensor's",
    ),
    ("x.chunk(0)", RuntimeError, "chunk expects `chunks` to be greater than 0, got: 0"),
    (
        "x.unsqueeze(5)",
        IndexError,
        "Dimension out of range (expected to be in range of [-3, 2], but got 5)",
    ),
    (
        "x.flatten(1, 0)",
        RuntimeError,
        "flatten() has invalid args: start_dim cannot come after end_dim",
    ),
    (
        "x.unflatten(0, (2, 2))",
        RuntimeError,
        "unflatten: Provided sizes [2, 2] don't multiply up to the size of dim 0",
    ),
    ("x.topk(5)", RuntimeError, "selected index k out of range"),
    ("i.std()", RuntimeError, "std and var only support floating point and complex dtypes"),
    (
        "T.zeros(0).max()",
        RuntimeError,
        "max(): Expected reduction dim to be specified for input.numel() == 0. Sp",
    ),
    ("T.zeros(0, 3).max(0)", IndexError, "max(): Expected reduction dim 0 to have non-zero size."),
    (
        "T.zeros(0).argmax()",
        IndexError,
        "argmax(): Expected reduction dim to be specified for input.numel() == 0.",
    ),
    ("x.roll((1, 2), 0)", RuntimeError, "shifts and dimensions must align. shifts: 2, dims:1"),
    (
        "x.repeat(2)",
        RuntimeError,
        "Number of dimensions of repeat dims can not be smaller than number of di",
    ),
    ("x.diagonal(0, 0, 0)", RuntimeError, "diagonal dimensions cannot be identical 0, 0"),
    (
        'T.einsum("ij,jk", x, x)',
        RuntimeError,
        "einsum(): subscript j has size 3 for operand 1 which does not broadcast",
    ),
    (
        'T.einsum("ij->k", x)',
        RuntimeError,
        "einsum(): output subscript k does not appear in the equation for any inp",
    ),
    (
        'T.einsum("ij,jk->ik", x)',
        RuntimeError,
        "einsum(): fewer operands were provided than specified in the equation",
    ),
    (
        'T.einsum("ii", x)',
        RuntimeError,
        "einsum(): subscript i is repeated for operand 0 but the sizes don't matc",
    ),
    ("T.sum([1])", TypeError, "sum(): argument 'input' (position 1) must be Tensor, not list"),
    ("x.__setitem__(7, 0)", IndexError, "index 7 is out of bounds for dimension 0 with size 3"),
    ("v.tril()", RuntimeError, "tril: input tensor must have at least 2 dimensions"),
    ("x.diff(-1)", RuntimeError, "order must be non-negative but got -1"),
    ("s.diff()", RuntimeError, "diff expects input to be at least one-dimensional"),
    ("v.trace()", RuntimeError, "trace: expected a matrix, but got tensor with dim 1"),
    ("(x>0).positive()", RuntimeError, "The `+` operator, on a bool tensor is not supported."),
    ("T.ones(2).float_power_(2)", RuntimeError, "the base given to float_power_ has dtype"),
    ("x.ldexp(2)", TypeError, "ldexp(): argument 'other' (position 2) must be Tensor, not int"),
    ("x.matmul(1)", TypeError, "matmul(): argument 'other' (position"),
    ("T.sin(3)", TypeError, "sin(): argument 'input' must be Tensor, not int"),
    ("x + None", TypeError, "unsupported operand type(s) for +: 'Tensor' and 'NoneType'"),
    ("x.add(None)", TypeError, "add(): argument 'other' must be Tensor, not NoneType"),
    (
        "x + type('Tensor', (), {'__module__': 'other.tensor'})()",
        TypeError,
        "add(): argument 'other' must be Tensor, not other.Tensor",
    ),
    ("x & 1", NotImplementedError, "\"bitwise_and\" not implemented for 'Double'"),
    ("x @ T.ones(4).long()", RuntimeError, "torch.int64; convert one with .to(torch.float64)"),
    ("T.where(True, 1, 2)", TypeError, "where(): argument 'condition' (position 1) must be Tens"),
]

SHAPES = {"x": (3, 4), "y": (2, 3, 4), "v": (4,), "u": (3,), "s": (), "w": (4, 3), "B": (2, 4, 5),
          "M": (2, 2)}  # fmt: skip


def arguments(T: Any) -> dict[str, Any]:
    """The leaves that a line may name: float64, of SHAPES, and z of zeros."""
    rng = np.random.default_rng(0)
    leaves = {n: T.tensor(np.asarray(rng.standard_normal(s)), requires_grad=True)
              for n, s in SHAPES.items()}  # fmt: skip
    leaves["z"] = T.zeros(3, dtype=T.float64, requires_grad=True)
    return leaves


def names(T: Any, leaves: dict[str, Any]) -> dict[str, Any]:
    """Everything that a line may name."""
    i, j, k = T.tensor([0, 2, 2]), T.tensor([1, 3]), T.tensor([0, 2])
    return {**leaves, "i": i, "j": j, "k": k, "T": T, "np": np}


def random_like(T: Any, tensor: Any, seed: int) -> Any:
    values = np.random.default_rng(seed).standard_normal(tuple(tensor.shape))
    return T.tensor(np.asarray(values)).to(tensor.dtype)


def gradients(T: Any, result: Any, leaves: list[Any]) -> list[Any]:
    """The first and second derivatives along random directions."""
    v = random_like(T, result, 1)
    first = T.autograd.grad(result, leaves, v, allow_unused=True, create_graph=True)
    total = T.zeros((), dtype=T.float64)
    for i, g in enumerate(first):
        if g is not None and g.requires_grad:
            total = total + (g * random_like(T, g, 2 + i)).sum()
    if not total.requires_grad:
        return [*first]
    return [*first, *T.autograd.grad(total, leaves, allow_unused=True)]


def on_host(tensor: Any) -> Any:
    return None if tensor is None else tensor.detach().numpy(force=True)


def evaluate(T: Any, line: str) -> tuple[str, list[Any]]:
    leaves = arguments(T)
    result = eval(line, names(T, leaves))
    found = [result]
    if result.requires_grad:
        found += gradients(T, result, list(leaves.values()))
    return str(result.dtype), list(map(on_host, found))


def assign(T: Any, line: str) -> tuple[str, list[Any]]:
    leaves = arguments(T)
    a = leaves["x"] * 2
    exec(line, {**names(T, leaves), "a": a})
    weights = T.tensor(np.arange(1.0, 13.0).reshape(3, 4))
    grads = T.autograd.grad((a * a * weights).sum(), list(leaves.values()), allow_unused=True)
    return str(a.dtype), list(map(on_host, [a, *grads]))


def assert_same(ours: Any, theirs: Any) -> None:
    """Equal dtypes and values; no gradient is as good as a gradient of zeros."""
    assert ours[0] == theirs[0]
    for i in range(max(len(ours[1]), len(theirs[1]))):
        got, want = (r[1][i] if i < len(r[1]) else None for r in (ours, theirs))
        if got is None or want is None:
            assert not any(np.any(r) for r in (got, want) if r is not None)
        else:
            assert got.shape == want.shape
            np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-9)


@pytest.fixture
def on_device(device: str) -> Iterator[None]:
    """Each usable device in turn is where cugrad's tensors are made; PyTorch's are on the host."""
    with cugrad.device(device):
        yield


@pytest.mark.parametrize("line", EXPRESSIONS)
def test_function_is_pytorchs(line: str, on_device: None) -> None:
    """Value, dtype, first and second derivatives."""
    torch = pytest.importorskip("torch")
    assert_same(evaluate(cugrad, line), evaluate(torch, line))


@pytest.mark.parametrize("line", ASSIGNMENTS)
def test_assignment_is_pytorchs(line: str, on_device: None) -> None:
    """The tensor after it, and the gradients of everything that went in."""
    torch = pytest.importorskip("torch")
    assert_same(assign(cugrad, line), assign(torch, line))


@pytest.mark.parametrize("line, error, text", REFUSED)
def test_refusal(
    line: str, error: type[Exception], text: str, device: str, on_device: None
) -> None:
    if device != "cpu" and "out of bounds" in text and "T.tensor([" in line:
        pytest.skip("an index tensor on a GPU is not read: CuPy wraps what points outside")
    with pytest.raises(error) as caught:
        eval(line, names(cugrad, arguments(cugrad)))
    assert text in str(caught.value)


def test_sinc_bends_at_zero() -> None:
    """Where PyTorch's second derivative is NaN it is that of the series, -π²/3."""
    x = cugrad.zeros(2, dtype=cugrad.float64, requires_grad=True)
    (slope,) = cugrad.autograd.grad(x.sinc().sum(), x, create_graph=True)
    (bend,) = cugrad.autograd.grad(slope.sum(), x)
    assert slope.tolist() == [0.0, 0.0]
    np.testing.assert_allclose(on_host(bend), -(np.pi**2) / 3)


def test_reshape_is_a_view_where_memory_allows() -> None:
    x = cugrad.zeros(3, 4)
    assert x.reshape(2, 6)._base is x
    assert x.t().reshape(12)._base is None


def test_reshape_that_copies_is_one_node() -> None:
    x = cugrad.zeros(3, 4, requires_grad=True)
    node = x.t().reshape(12).grad_fn
    assert node.name() == "UnsafeViewBackward0"
    assert node.next_functions[0][0].name() == "TBackward0"


def test_mean_of_nothing_or_infinities_does_not_warn() -> None:
    for values in ([], [float("inf"), -float("inf")]):
        assert cugrad.tensor(values, device="cpu").mean().isnan()


def test_return_types_are_named_tuples() -> None:
    values, indices = result = cugrad.tensor([[1, 5], [3, 2]]).max(1)
    assert result.values is values and result.indices is indices
    assert repr(result).startswith("torch.return_types.max(\nvalues=tensor([5, 3]")


def test_a_mask_may_change_after_it_was_used() -> None:
    x = cugrad.ones(3, requires_grad=True)
    mask = cugrad.tensor([True, False, True])
    y = x[mask] * 2
    mask.fill_(True)
    y.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [2.0, 0.0, 2.0]


def test_a_public_name_has_one_declaration() -> None:
    """Functions and methods raise at the second one when they are put together; star imports and
    imports by name do not, so they are looked at here.
    """
    from cugrad.functions import FUNCTIONS, declared
    from cugrad.runtime.lazy import lazily

    with pytest.raises(ValueError, match="'cat' is declared twice"):
        declared(FUNCTIONS, {"cat": cugrad.stack})
    with pytest.raises(ValueError, match="'fuse' has two homes, func and func.fusing"):
        lazily("cugrad", {"func": "fuse vmap", "func.fusing": "fuse"})
    for room in (cugrad.nn.functional, cugrad.nn.modules):
        paths = sorted(Path(room.__path__[0]).glob("[a-z]*.py"))
        files = [importlib.import_module(f"{room.__name__}.{path.stem}") for path in paths]
        assert len(files) > 10
        declared(*({name: getattr(file, name) for name in file.__all__} for file in files))
    statements = ast.parse(Path(cugrad.__file__).read_text()).body
    imported = {alias.asname or alias.name for statement in statements
                if isinstance(statement, ast.ImportFrom) for alias in statement.names}  # fmt: skip
    assert not imported & {*FUNCTIONS, *cugrad.linalg.FUNCTIONS}


def test_nonzero_static_and_diag_embed_are_those_that_know_batches() -> None:
    """Each was there twice, and of nonzero_static the one that waits for the device was public."""
    x = cugrad.tensor([[0.0, 1, 2], [0, 0, 0]])
    found = cugrad.vmap(lambda row: cugrad.nonzero_static(row, size=2))(x)
    assert found.tolist() == [[[1], [2]], [[-1], [-1]]]
    assert cugrad.vmap(cugrad.diag_embed)(x).tolist() == cugrad.diag_embed(x).tolist()
    with pytest.raises(IndexError, match="Dimension out of range"):
        cugrad.diag_embed(cugrad.tensor(1.0))


@pytest.mark.parametrize("kind", ["float64", "complex64", "int64"])
def test_what_has_no_elements_counts_in_the_dtype_of_cat(lib: Any, kind: str) -> None:
    """Of shape (0,) it joins with everything."""
    nothing, row = lib.zeros(0, dtype=getattr(lib, kind)), lib.ones(2, 3)
    for joined in (
        lib.cat([nothing, row]),
        lib.cat([row, nothing], 1),
        lib.hstack([nothing, row[0]]),
    ):
        assert joined.dtype is lib.promote_types(nothing.dtype, row.dtype)
        assert joined.tolist() in (row.tolist(), row[0].tolist())


def test_the_tangent_of_fmax_of_equals_is_of_what_has_the_gradient() -> None:
    x = cugrad.tensor([1.0])
    assert cugrad.func.grad(lambda x, y: cugrad.fmax(x, y).sum())(x, x).tolist() == [1.0]
    tangents = cugrad.tensor([2.0]), cugrad.tensor([3.0])
    assert cugrad.func.jvp(cugrad.fmax, (x, x), tangents)[1].tolist() == [2.0]


def test_the_gradient_of_polar_by_lengths_below_zero() -> None:
    lengths, angles = cugrad.tensor([-2.0, 0.0, 1.0]), cugrad.tensor([0.0, 0.0, 0.0])
    gradient = cugrad.func.grad(lambda r: cugrad.polar(r, angles).real.sum())(lengths)
    assert gradient.tolist() == [1.0, 1.0, 1.0]
