"""Checks sparse tensors beside PyTorch's: values, gradients, errors; and sparse gradients."""

from __future__ import annotations

import contextlib
import copy
import functools
import pickle
from typing import Any

import numpy as np
import pytest

import cugrad

PLACES = [[0, 2, 2, 0, 1], [1, 0, 3, 1, 2]]  # (0, 1) twice
VALUES = np.random.default_rng(0).standard_normal(5)
DENSE = np.random.default_rng(1).standard_normal((3, 4))

# a is (3, 4) with values v, b another one of them with values w; x (4, 2), y (3, 4), z (4,) dense.
CALLS = """
a.to_dense()
a.coalesce().values()
a.coalesce().indices()
torch.mm(a, x)
torch.matmul(a, x)
a @ x
a.mm(x)
torch.sparse.mm(a, x)
torch.spmm(a, x)
torch.dsmm(a, x)
torch.mv(a, z)
torch.sparse.addmm(y[:, :2], a, x, beta=2, alpha=3)
(a + b).to_dense()
torch.add(a, b).to_dense()
torch.add(a, b, alpha=2).to_dense()
a.add(b).to_dense()
(a - b).to_dense()
(-a).to_dense()
(a * 3).to_dense()
(3 * a).to_dense()
torch.mul(a, 3).to_dense()
(a / 2).to_dense()
(a * b).to_dense()
torch.mul(a.coalesce(), b.coalesce()).to_dense()
y + a
y - a
y - a.coalesce() * 2
torch.sub(y, a, alpha=2)
torch.sub(a, b, alpha=2).to_dense()
torch.sum(a)
a.sum()
torch.sum(a.detach(), 0, keepdim=True).to_dense()
a.detach().sum((1,), keepdim=True).to_dense()
a.sum((0, 1), keepdim=True)
torch.sparse.sum(a)
torch.sparse.sum(a, 0).to_dense()
torch.sparse.sum(a, (1,)).to_dense()
torch.sparse.sum(a, (0, 1))
a.t().to_dense()
torch.t(a).to_dense()
torch.transpose(a, 0, 1).to_dense()
a.mT.to_dense()
a.T.to_dense()
a.mH.to_dense()
a.H.to_dense()
torch.adjoint(a).to_dense()
a.permute(-1, 0).to_dense()
torch.permute(a, (0, 1)).to_dense()
torch.movedim(a, 0, 1).to_dense()
torch.sparse_coo_tensor([[1, 0, 1]], y, (2, 4)).permute(0, 1).to_dense()
torch.sparse_coo_tensor([[1, 0], [0, 1], [2, 2]], y[0, :2], (2, 3, 4)).mT.to_dense()
torch.sparse_coo_tensor([[1, 0], [0, 1], [2, 2]], y[0, :2], (2, 3, 4)).permute(2, 0, 1).to_dense()
a.detach().unsqueeze(0).to_dense()
torch.unsqueeze(a.detach(), -1).to_dense()
a.detach().coalesce().unsqueeze(1).coalesce().indices()
torch.sparse_coo_tensor([[1, 0, 1]], y.detach(), (2, 4)).unsqueeze(2).to_dense()
torch.cat([a, b]).detach().to_dense()
torch.cat([a, b.float(), a], -1).detach().to_dense()
torch.index_select(a.detach(), 0, torch.tensor([2, 0, 2])).to_dense()
a.detach().index_select(-1, torch.tensor([1, 3])).to_dense()
a.detach().index_select(1, torch.tensor([], dtype=torch.int64)).to_dense()
y.detach().to_sparse(1).index_select(1, torch.tensor([3, 1])).to_dense()
a.transpose(0, 1).coalesce().indices()
torch.sparse.mm(a, b.t()).to_dense()
a.t() @ y
y.t() @ a.to_dense()
y.to_sparse().to_dense()
(y * (y > 0)).to_sparse().values()
(y * (y > 0)).to_sparse().indices()
(y * (y > 0)).to_sparse(1).values()
y.sparse_mask(a.coalesce()).values()
a.double().to_dense()
a.detach().to_dense()
a.clone().to_dense()
torch.sparse_coo_tensor([[1, 0, 1]], y, (2, 4)).to_dense()
torch.sparse_coo_tensor([[1, 0, 1]], y, (2, 4)).coalesce().values()
torch.sparse_coo_tensor([[], []], [], (2, 3)).to_dense()
torch.sparse_coo_tensor((2, 3)).to_dense()
a.detach()[0].to_dense()
a[-1, 1]
a.detach()[:, 1].to_dense()
a.detach().select(1, 0).to_dense()
a.detach().unbind()[2].to_dense()
[row.to_dense() for row in a.detach()][0]
(y.detach().to_sparse(1) * 2)[..., 1].to_dense()
torch.relu(a).to_dense()
a.abs().to_dense()
torch.pow(a, 2).to_dense()
(a**3).to_dense()
torch.square(a).to_dense()
torch.sqrt((a * a).detach()).to_dense()
torch.sin(a.detach()).to_dense()
torch.tanh(a.detach()).to_dense()
torch.sparse.softmax(a, 1).to_dense()
torch.sparse.softmax(a, 0).to_dense()
torch.sparse.log_softmax(a, 1).to_dense()
torch.sparse.log_softmax(a.detach(), -1).to_dense()
torch.sparse.log_softmax(b.coalesce(), 0).coalesce().values()
torch.sparse.softmax(a.float(), 1, dtype=torch.float64).to_dense()
torch.nn.functional.linear(x.t() @ x @ y.t()[:2], a.detach().t())
torch.nn.functional.linear(y.reshape(3, 1, 4), a.detach(), z[:3])
torch.sparse.softmax(torch.sparse_coo_tensor([[1, 0, 1]], y, (2, 4)), 0).to_dense()
torch.sparse.log_softmax(torch.sparse_coo_tensor([[1, 0, 2]], y, (3, 4)), 1).to_dense()
torch.sparse.softmax(y.reshape(3, 2, 2).to_sparse(2), 1).to_dense()
torch.bmm(torch.stack([a.detach(), b.detach()]), torch.stack([x, 2 * x]))
torch.stack([a.detach(), b.detach()], 1).to_dense()
torch.stack([a.detach(), b.detach()], -1).to_dense()
a.detach().norm()
torch.norm(a.detach().coalesce(), 1)
a.detach().norm(float("inf"))
a.detach().any()
torch.any(torch.sparse_coo_tensor([[0]], [0.], (3,)))
torch.isnan(a.detach()).to_dense()
a.detach().isinf().to_dense()
a.detach().coalesce().narrow_copy(1, 1, 2).to_dense()
torch.sparse.spdiags(y.detach()[:2], torch.tensor([1, -2]), (4, 3)).to_dense()
torch.sparse.spdiags(z.detach(), torch.tensor(-1), (5, 4)).to_dense()
""".strip().splitlines()
FACTS = """
a.shape, a.dim(), a.sparse_dim(), a.dense_dim(), a._nnz(), a.is_sparse, a.numel(), len(a)
a.is_coalesced(), a.coalesce().is_coalesced(), a.coalesce()._nnz(), y.is_sparse
str(a.dtype), str(a.layout), a.requires_grad, a.detach().requires_grad, str(a.device)
torch.sparse_coo_tensor([[1, 4]], [2., 3.]).shape
isinstance(a, torch.Tensor), a.float().dtype == torch.float32
a.detach(), a.detach().float()
torch.sparse_coo_tensor(size=(2, 3)), a.is_contiguous()
torch.tensor([[3.]]).to_sparse().item(), bool(torch.tensor([0.]).to_sparse())
torch.sparse_coo_tensor((2, 3)), torch.sparse_coo_tensor([[0], [1]], [True], (2, 3))
a.type(), a.float().type(), isinstance(a, torch.DoubleTensor), isinstance(y, torch.DoubleTensor)
isinstance(a, torch.sparse.DoubleTensor), isinstance(y, torch.sparse.DoubleTensor)
torch.sparse.FloatTensor(a._indices(), a._values().float(), (3, 4)).to_dense().tolist()
torch.sparse.DoubleTensor(a._indices(), a._values()).shape, torch.sparse.LongTensor(2, 3).dtype
torch.sparse.FloatTensor(torch.Size([2, 3])).shape, torch.sparse.FloatTensor().shape
""".strip().splitlines()
WRONG = """
a.numpy()
a.item()
a.sum(2)
a.sum((0, 0))
torch.sparse.sum(a, -3)
torch.sparse.sum(a, (0, -2))
a.transpose(0, 2)
torch.sparse_coo_tensor()
y.detach().sparse_mask(y.detach())
torch.sparse_coo_tensor(size=(2, -3))
y.detach()[:2].sparse_mask(a)
a.indices()
a.values()
torch.sparse_coo_tensor([[3]], [1.], (3,))
torch.sparse_coo_tensor([[-1]], [1.], (3,))
torch.sparse_coo_tensor([[0, 1]], [1.], (3,))
torch.sparse_coo_tensor([0, 1], [1., 2.], (3,))
torch.sparse_coo_tensor([[0]], [1.], (3, 3))
torch.sparse.mm(a, y)
a + b.t()
torch.sparse.FloatTensor([2, 3])
torch.sparse.FloatTensor(a._indices(), [1.])
a[7]
a.select(2, 0)
a.index_select(0, torch.tensor([3]))
a.permute(0, 0)
a.permute(0)
torch.cat([a, b.t()])
torch.bmm(torch.stack([a.detach(), b.detach()]), torch.stack([y, y]))
torch.sparse.softmax(a, 2)
torch.sparse.softmax(a.long(), 1)
torch.sparse.softmax(y, 1)
torch.sparse.spdiags(y, torch.tensor([0, 0, 1]), (3, 4))
torch.sparse.spdiags(y, torch.tensor([0, 1]), (3, 4))
torch.sparse.spdiags([[1, 2]], torch.tensor([0]), (2, 2))
torch.sparse.spdiags(y, 0, (3, 4))
torch.sparse.spdiags(y[:1], torch.tensor([0]), 3)
""".strip().splitlines()
REFUSED = """
torch.exp(a)
torch.softmax(a, 1)
a[torch.tensor([0])]
a ** a
torch.relu_(a)
a.reshape(12)
torch.cat([a, y])
a.sort()
a.masked_fill(a > 0, 0)
y.to_sparse(layout=torch.strided)
a.norm(-1)
a.any(1)
torch.stack([a, y])
""".strip().splitlines()


def names(lib: Any) -> dict[str, Any]:
    rng = np.random.default_rng(2)
    v = lib.tensor(VALUES, requires_grad=True)
    w = lib.tensor(VALUES[:4] * 2, requires_grad=True)
    x = lib.tensor(rng.standard_normal((4, 2)), requires_grad=True)
    y = lib.tensor(DENSE, requires_grad=True)
    z = lib.tensor(rng.standard_normal(4), requires_grad=True)
    a = lib.sparse_coo_tensor(lib.tensor(PLACES), v, (3, 4))
    b = lib.sparse_coo_tensor(lib.tensor([[0, 2, 1, 1], [1, 0, 0, 3]]), w, (3, 4))
    return {"torch": lib, "a": a, "b": b, "v": v, "w": w, "x": x, "y": y, "z": z}


@pytest.mark.filterwarnings("ignore:Sparse invariant checks", "ignore:Sparse CSR tensor support")
@pytest.mark.parametrize("call", CALLS)
def test_values_and_gradients_are_pytorchs(call: str) -> None:
    torch = pytest.importorskip("torch", reason="compares with PyTorch, which is not installed")
    results: list[dict[str, Any]] = []
    for lib in (cugrad, torch):
        own = names(lib)
        out = eval(call, dict(own))
        if out.requires_grad:
            (out * out).sum().backward()
        leaves = {k: own[k].grad for k in "vwxyz"}
        grads = {k: g.to_dense() if g.is_sparse else g for k, g in leaves.items() if g is not None}
        results.append({"out": out, **grads})
    ours, theirs = results
    assert set(ours) == set(theirs)
    for name, value in theirs.items():
        a, b = ours[name].detach().numpy(), value.detach().numpy()
        assert a.shape == b.shape and a.dtype == b.dtype, name
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12, err_msg=name)


@pytest.mark.parametrize(
    "call",
    [
        "torch.cat([a, b])",
        "torch.cat([a, b, a], 1)",
        "a.index_select(0, torch.tensor([2, 0, 2]))",
        "b.index_select(1, torch.tensor([3, 1]))",
        "torch.cat([a.T, b.mT]).T",
        "a.unsqueeze(1)",
        "torch.unsqueeze(b, -1)",
        "torch.stack([a, b], 1)",
        "torch.bmm(torch.stack([a, b]), torch.stack([x, x]))",
        "a[:, 1:3]",
        "b.narrow(0, 1, 2)",
        "a[1:, ::2]",
        "a[..., 3:1:1]",
    ],
)
def test_gradients_that_pytorch_lacks_are_those_of_dense_tensors(call: str) -> None:
    """PyTorch differentiates none of `cat`, `stack`, `index_select` and `unsqueeze` of sparse
    tensors, and slices none.
    """
    grads = []
    for is_dense in (False, True):
        own = names(cugrad)
        a, b = (own[name].to_dense() if is_dense else own[name] for name in "ab")
        out = eval(call, {**own, "a": a, "b": b})
        out = out.to_dense()
        (out * out).sum().backward()
        grads.append(
            [out.detach().numpy(), *(own[k].grad.numpy() for k in "vw" if own[k].grad is not None)]
        )
    for sparse, dense in zip(*grads, strict=True):
        np.testing.assert_allclose(sparse, dense, rtol=1e-14)


@pytest.mark.filterwarnings("ignore:torch.sparse.SparseTensor", "ignore:Sparse invariant checks")
@pytest.mark.parametrize("call", FACTS)
def test_what_a_sparse_tensor_says_of_itself(call: str) -> None:
    torch = pytest.importorskip("torch", reason="compares with PyTorch, which is not installed")
    assert str(eval(call, names(cugrad))) == str(eval(call, names(torch)))


@pytest.mark.filterwarnings("ignore:torch.sparse.SparseTensor", "ignore:Sparse invariant checks")
@pytest.mark.parametrize("call", WRONG)
def test_errors_have_pytorchs_type(call: str) -> None:
    torch = pytest.importorskip("torch", reason="compares with PyTorch, which is not installed")
    torch.sparse.check_sparse_tensor_invariants.enable()
    try:
        with pytest.raises(Exception) as theirs:
            eval(call, names(torch))
    finally:
        torch.sparse.check_sparse_tensor_invariants.disable()
    with pytest.raises(theirs.type):
        eval(call, names(cugrad))


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
@pytest.mark.parametrize("call", ["x += b", "x -= b", "x.add_(b, alpha=3)", "x.sub_(b, alpha=2)"])
def test_sums_in_place(call: str) -> None:
    torch = pytest.importorskip("torch", reason="compares with PyTorch, which is not installed")
    results = []
    for lib in (cugrad, torch):
        own = names(lib)
        x = own["x"] = own["a"].detach().clone()
        own["b"] = own["b"].detach()
        exec(call, own)
        assert own["x"] is x
        results.append(x.to_dense().tolist())
        own["x"] = x.detach().clone().requires_grad_()
        with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
            exec(call, own)
    assert results[0] == results[1]


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
@pytest.mark.parametrize("call", ["y += b", "y -= b", "y.add_(b, alpha=3)", "y.sub_(b, alpha=2)"])
def test_sums_in_place_of_dense_tensors(call: str) -> None:
    """As in the step of a loop that has no optimizer."""
    torch = pytest.importorskip("torch", reason="compares with PyTorch, which is not installed")
    results = []
    for lib in (cugrad, torch):
        own = names(lib)
        leaf, y = own["y"], own["y"] * 1
        own["y"] = y
        exec(call, own)
        assert own["y"] is y
        (y * y).sum().backward()
        gradient = own["w"].grad.to_dense()
        results.append([y.tolist(), leaf.grad.tolist(), gradient.tolist()])
        own["y"] = lib.ones(3, 3, dtype=lib.float64)
        with pytest.raises(RuntimeError, match="size"):
            exec(call, own)
        own["y"] = lib.ones(3, 4, dtype=lib.int64)
        with pytest.raises(RuntimeError, match="can't be cast|Can't convert"):
            exec(call, own)
        own["y"] = leaf
        with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
            exec(call, own)
    np.testing.assert_allclose(results[0][0], results[1][0], rtol=1e-12)
    np.testing.assert_allclose(results[0][1], results[1][1], rtol=1e-12)
    np.testing.assert_allclose(results[0][2], results[1][2], rtol=1e-12)


def test_gradients_go_through_sums_in_place() -> None:
    own = names(cugrad)
    x = own["a"] * 1
    x.sub_(own["b"], alpha=2)
    x.to_dense().sum().backward()
    assert own["v"].grad.tolist() == [1] * 5 and own["w"].grad.tolist() == [-2] * 4


@pytest.mark.parametrize("call", REFUSED)
def test_what_has_no_sparse_form_says_so(call: str) -> None:
    with pytest.raises(NotImplementedError, match="want"):
        eval(call, names(cugrad))


def test_changes_in_place_that_a_sparse_tensor_has_not_say_so(device: str) -> None:
    x = cugrad.eye(2, device=device).to_sparse()
    for change in (lambda x: x.sin_(), lambda x: x.exp_(), lambda x: x.neg_()):
        with pytest.raises(NotImplementedError, match="_: got a sparse tensor, want a dense one"):
            change(x)


@pytest.mark.parametrize("step", [0, -1])
def test_slices_go_forward(step: int) -> None:
    for x in (names(cugrad)["a"], names(cugrad)["y"]):
        with pytest.raises(ValueError, match="greater than zero"):
            x[:, ::step]


def test_softmax_and_diagonals_have_gradients_of_any_order() -> None:
    """Also along dims from behind, where PyTorch's of `log_softmax` and `softmax` are wrong."""
    v = cugrad.tensor(VALUES, requires_grad=True)

    def f(v: Any) -> Any:
        a = cugrad.sparse_coo_tensor(PLACES, v, (3, 4))
        places = cugrad.tensor([0, -1])
        diagonals = cugrad.sparse.spdiags(v[:4].reshape(2, 2), places, (3, 2))
        each = cugrad.sparse.softmax(a, -1), cugrad.sparse.log_softmax(a, -2), diagonals
        return tuple(x.to_dense() for x in each)

    assert cugrad.autograd.gradcheck(f, v) and cugrad.autograd.gradgradcheck(f, v)


def test_parts_and_elements_have_gradients() -> None:
    v = cugrad.tensor(VALUES, requires_grad=True)

    def f(v: Any) -> Any:
        a = cugrad.sparse_coo_tensor(PLACES, v, (3, 4))
        return cugrad.sin(a)[2].to_dense(), a[0, 1], cugrad.tanh(a).t().select(0, 1).to_dense()

    assert cugrad.autograd.gradcheck(f, v)


def test_second_derivatives_and_transforms() -> None:
    own = names(cugrad)

    def product(v: Any, x: Any) -> Any:
        return cugrad.sparse_coo_tensor(PLACES, v, (3, 4)) @ x

    assert cugrad.autograd.gradcheck(product, (own["v"], own["x"]))
    assert cugrad.autograd.gradgradcheck(product, (own["v"], own["x"]))


def test_sparse_tensors_move_are_copied_and_are_buffers(device: str) -> None:
    a = names(cugrad)["a"].detach().to(device)
    for twin in (copy.deepcopy(a), pickle.loads(pickle.dumps(a.cpu())).to(device)):
        assert cugrad.equal(twin.to_dense(), a.to_dense())
    module = cugrad.nn.Module()
    module.register_buffer("adjacency", a)
    module.to(device, cugrad.float32)
    assert module.adjacency.is_sparse and module.adjacency.dtype is cugrad.float32
    out = module.adjacency @ cugrad.ones(4, 2, device=device)
    assert str(out.device) == str(a.device)
    leaf = a.clone().requires_grad_()
    (leaf @ cugrad.ones(4, 1, dtype=cugrad.float64, device=device)).sum().backward()
    assert leaf.grad.is_sparse and cugrad.equal(leaf.grad.values(), leaf.grad.values() * 0 + 1)


# Sparse gradients ---------------------------------------------------------------------------------

LAYERS = """
nn.Embedding(7, 3, sparse=True)(i)
nn.Embedding(7, 3, padding_idx=2, sparse=True)(i)
nn.EmbeddingBag(7, 3, sparse=True)(i)
nn.EmbeddingBag(7, 3, mode='sum', sparse=True)(i, per_sample_weights=s)
""".strip().splitlines()


def layer_of(lib: Any, text: str) -> Any:
    layer = eval(text.rpartition(")(")[0] + ")", {"nn": lib.nn})
    layer.weight.data = lib.tensor(np.arange(21.0).reshape(7, 3) / 10)
    return layer


def outputs(lib: Any, layer: Any, text: str, step: int) -> Any:
    own = {"layer": layer, "i": lib.tensor([[step, 1, 1], [2, 3, step]]),
           "s": lib.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], dtype=lib.float64)}  # fmt: skip
    return eval("layer(" + text.rpartition(")(")[2], own)


@pytest.mark.parametrize("text", LAYERS)
def test_gradients_of_tables(text: str) -> None:
    torch = pytest.importorskip("torch", reason="compares with PyTorch, which is not installed")
    grads = []
    for lib in (cugrad, torch):
        layer = layer_of(lib, text)
        for step in range(2):  # they add up
            (outputs(lib, layer, text, step) ** 2).sum().backward()
        grad = layer.weight.grad
        assert grad.is_sparse and grad.sparse_dim() == 1
        alone = lib.autograd.grad(outputs(lib, layer, text, 0).sum(), layer.weight)[0]
        grads.append([grad.to_dense().numpy(), alone.to_dense().numpy()])
        (layer.weight * 2).sum().backward()  # and to dense ones
        assert not layer.weight.grad.is_sparse
        grads[-1].append(layer.weight.grad.numpy())
        layer.zero_grad()
        assert layer.weight.grad is None
    for ours, theirs in zip(*grads, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)


OPTIMIZERS: list[tuple[str, dict[str, Any]]] = [
    ("SGD", {"lr": 0.1}), ("SGD", {"lr": 0.1, "maximize": True}), ("Adagrad", {"lr": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.2}),
    ("SGD", {"lr": 0.1, "momentum": 0.5, "nesterov": True}),
    ("Adagrad", {"lr": 0.1, "lr_decay": 0.1, "initial_accumulator_value": 0.5}),
    ("SparseAdam", {"lr": 0.1}), ("SparseAdam", {"lr": 0.1, "betas": (0.5, 0.9), "maximize": True}),
]  # fmt: skip


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
@pytest.mark.parametrize("name, settings", OPTIMIZERS, ids=str)
def test_optimizers_of_sparse_gradients(name: str, settings: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch", reason="compares with PyTorch, which is not installed")
    tables = []
    for lib in (cugrad, torch):
        layer = layer_of(lib, LAYERS[0])
        optimizer = getattr(lib.optim, name)(layer.parameters(), **settings)
        for step in range(6):
            if step == 3:  # on from a state dict
                state = optimizer.state_dict()
                optimizer = getattr(lib.optim, name)(layer.parameters(), **settings)
                optimizer.load_state_dict(state)
            optimizer.zero_grad()
            (outputs(lib, layer, LAYERS[0], step) ** 2).mean().backward()
            optimizer.step()
        tables.append(layer.weight.detach().numpy())
    np.testing.assert_allclose(tables[0], tables[1], rtol=1e-9, atol=1e-9)


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
@pytest.mark.parametrize("name, settings", OPTIMIZERS, ids=str)
def test_gradients_of_two_sparse_dims(name: str, settings: dict[str, Any]) -> None:
    """Elements, not rows, go a step; one that is listed twice has the sum."""
    torch = pytest.importorskip("torch", reason="compares with PyTorch, which is not installed")
    ends = []
    for lib in (cugrad, torch):
        weight = lib.nn.Parameter(lib.tensor(DENSE))
        optimizer = getattr(lib.optim, name)([weight], **settings)
        for scale in (1.0, 2.0, -3.0):
            weight.grad = lib.sparse_coo_tensor(PLACES, lib.tensor(VALUES) * scale, (3, 4))
            optimizer.step()
        ends.append(weight.detach().numpy())
    np.testing.assert_allclose(*ends, rtol=1e-9, atol=1e-9)


def test_other_optimizers_refuse_sparse_gradients() -> None:
    def step(name: str, **settings: Any) -> None:
        layer = layer_of(cugrad, LAYERS[0])
        outputs(cugrad, layer, LAYERS[0], 0).sum().backward()
        getattr(cugrad.optim, name)(layer.parameters(), **settings).step()

    for name in (
        "Adam",
        "AdamW",
        "Adamax",
        "RMSprop",
        "NAdam",
        "RAdam",
        "Rprop",
        "ASGD",
        "Adadelta",
    ):
        with pytest.raises(RuntimeError, match=f"{name} does not support sparse gradients"):
            step(name, lr=0.1)
    for name, setting in (
        ("SGD", "weight_decay"),
        ("Adagrad", "weight_decay"),
    ):
        with pytest.raises(RuntimeError, match=f"{setting} option is not compatible with sparse"):
            step(name, lr=0.1, **{setting: 0.5})
    with pytest.raises(RuntimeError, match="does not support dense gradients"):
        w = cugrad.ones(2, requires_grad=True)
        w.sum().backward()
        cugrad.optim.SparseAdam([w]).step()
    with pytest.raises(NotImplementedError, match="sparse parameter"):
        cugrad.optim.SGD([cugrad.ones(2).to_sparse().requires_grad_()], lr=0.1)
    with pytest.raises(RuntimeError, match="scale_grad_by_freq not supported with sparse"):
        outputs(cugrad, cugrad.nn.Embedding(7, 3, scale_grad_by_freq=True, sparse=True), "x)(i)", 0)


# of a leaf s that lists a place twice, and a dense y
OF_A_LEAF = """
(s.to_dense() * y).sum()
((s * 2).to_dense() ** 2).sum()
(s.coalesce().values() ** 2).sum()
((s + s).to_dense() ** 2).sum()
torch.sparse.sum(s * y)
""".strip().splitlines()


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
@pytest.mark.parametrize("call", OF_A_LEAF)
def test_a_leaf_has_one_gradient_a_place(call: str) -> None:
    """By backward, which adds up, also to one that was set; by grad; and as hooks have it."""
    torch = pytest.importorskip("torch", reason="compares with PyTorch, which is not installed")
    found: list[list[Any]] = []
    for lib in (cugrad, torch):
        y, seen = lib.tensor(DENSE), list[Any]()
        s = lib.sparse_coo_tensor(PLACES, lib.tensor(VALUES), (3, 4)).requires_grad_()
        loss = lambda s=s, y=y, lib=lib: eval(call, {"s": s, "y": y, "torch": lib})
        loss().backward()
        s.grad = s.grad * 1
        handle = s.register_hook(lambda g, seen=seen: (seen.append(g), g * 2)[1])
        loss().backward()
        handle.remove()
        seen += [s.grad, *lib.autograd.grad(loss(), s)]
        s.grad = None
        loss().backward(inputs=[s])
        double = s * 2
        double.retain_grad()
        s.register_post_accumulate_grad_hook(lambda s, seen=seen: seen.append(s.grad))
        (double.to_dense() * y).sum().backward()
        seen += [s.grad, double.grad]
        with pytest.raises(RuntimeError, match="different type"):
            s.grad = y
        found.append([str(g.coalesce()) for g in seen])
        found[-1].append(f"{seen[0]}")
    assert found[0] == found[1]


def test_hooks_see_sparse_gradients() -> None:
    layer, seen = layer_of(cugrad, LAYERS[0]), []
    layer.weight.register_hook(lambda g: seen.append(g.is_sparse))
    layer.weight.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.is_sparse))
    outputs(cugrad, layer, LAYERS[0], 0).sum().backward()
    assert seen == [True, True] and layer.weight.grad.is_sparse
    layer.zero_grad(set_to_none=False)
    assert layer.weight.grad._nnz() == 0


# What a hook makes of a sparse gradient.
CHANGES: dict[str, Any] = {
    "scaled": lambda lib, g: g * 2,
    "added": lambda lib, g: g + g,
    "in order": lambda lib, g: g.coalesce(),
    "in another order": lambda lib, g: lib.sparse_coo_tensor(
        g.coalesce().indices().flip(1), g.coalesce().values().flip(0) * 3, g.shape
    ),
    "in place": lambda lib, g: g.clone().mul_(3).div_(2),
}


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
@pytest.mark.parametrize("change", CHANGES)
def test_hooks_change_sparse_gradients(change: str) -> None:
    """Of a table, where a dense gradient comes as well or none; and of a sparse leaf."""
    torch = pytest.importorskip("torch", reason="compares with PyTorch, which is not installed")
    found: list[list[Any]] = []
    for lib in (cugrad, torch):
        rows, hook = [], functools.partial(CHANGES[change], lib)
        for more in (0.0, 1.0):
            w = lib.tensor(DENSE, requires_grad=True)
            rows.append(w)
            w.register_hook(lambda g, hook=hook: hook(g) if g.is_sparse else g * 2)
            w.register_post_accumulate_grad_hook(lambda w: setattr(w, "grad", w.grad * 3))
            places = lib.tensor([1, 0, 1])
            out = lib.nn.functional.embedding(places, w, sparse=True).square().sum()
            (out + more * (w * w).sum() if more else out).backward()
        s = lib.sparse_coo_tensor(PLACES, lib.tensor(VALUES), (3, 4)).coalesce()
        s = s.detach().requires_grad_()
        s.register_hook(hook)
        (s.to_dense() * lib.tensor(DENSE)).sum().backward()
        found.append([g.to_dense().tolist() for g in (rows[0].grad, rows[1].grad, s.grad)])
    assert found[0] == found[1]


def test_hooks_do_not_make_other_gradients_of_sparse_ones() -> None:
    w = cugrad.tensor(DENSE, requires_grad=True)
    w.register_hook(lambda g: g.to_dense())
    loss = cugrad.nn.functional.embedding(cugrad.tensor([1]), w, sparse=True).sum()
    with pytest.raises(RuntimeError, match="changed the type"):
        loss.backward()
    s = cugrad.eye(3).to_sparse().requires_grad_()
    s.register_hook(lambda g: cugrad.ones(3, 3).to_sparse())
    with pytest.raises(RuntimeError, match="does not list"):
        s.to_dense().sum().backward()


def _under_profile(t: Any, run: Any, y: Any) -> Any:
    with t.autograd.profiler.profile():
        return run(y)


def _recomputed(t: Any, run: Any, y: Any) -> Any:
    from cugrad.utils.checkpoint import checkpoint

    return checkpoint(run, y, use_reentrant=False)


def _beside_batched(t: Any, run: Any, y: Any) -> Any:
    """Where other tensors are being mapped: what is the same for all is lifted."""
    return t.vmap(lambda z: run(y) * z.sum())(t.ones(2, 3, dtype=y.dtype))[1] / 3


WAYS: dict[str, Any] = {
    "profile": _under_profile,
    "checkpoint": _recomputed,
    "beside vmap": _beside_batched,
    "in vmap": lambda t, run, y: t.vmap(run)(t.stack([y, y]))[1],
    "jvp": lambda t, run, y: t.func.jvp(run, (y,), (y,))[1],  # it is linear
    "vjp": lambda t, run, y: t.func.vjp(run, y)[0],
}


@pytest.mark.parametrize("way", WAYS)
def test_products_in_contexts(way: str) -> None:
    t = cugrad
    values = t.tensor([3.0, 4.0, 5.0], dtype=t.float64, requires_grad=True)
    y = t.arange(6.0, dtype=t.float64).reshape(3, 2).requires_grad_()
    a = t.sparse_coo_tensor([[0, 1, 1], [2, 0, 2]], values, (2, 3))
    plain = t.mm(a, y)
    wanting = t.autograd.grad(plain.square().sum(), [values, y], retain_graph=True)
    out = WAYS[way](t, lambda y: t.mm(a, y), y)
    assert t.allclose(out, plain)
    inputs = [values] if way in ("jvp", "vjp") else [values, y]
    for got, want in zip(t.autograd.grad(out.square().sum(), inputs), wanting):
        assert t.allclose(got, want)


def test_products_under_autocast_stay_in_their_dtype() -> None:
    a = cugrad.sparse_coo_tensor([[0, 1], [2, 0]], [3.0, 4.0], (2, 3))
    with cugrad.autocast("cpu", dtype=cugrad.bfloat16):
        assert cugrad.mm(a, cugrad.ones(3, 2)).tolist() == [[3, 3], [4, 4]]


STEPS: dict[str, Any] = {
    "recompute": lambda: cugrad.memory.recompute(),
    "save_on_cpu": cugrad.autograd.graph.save_on_cpu,
    "profile": cugrad.autograd.profiler.profile,
    "budget": lambda: cugrad.memory.budget("1GiB"),
}


@pytest.mark.parametrize("context", STEPS)
def test_tables_train_in_contexts(context: str) -> None:
    """Sparse gradients that add up, to sparse and to dense ones, beside the same without."""
    grads = []
    for within in (contextlib.nullcontext, STEPS[context]):
        table = cugrad.arange(12.0, dtype=cugrad.float64).reshape(6, 2).requires_grad_()
        with within():
            for scale in (1.0, 2.0):
                rows = cugrad.nn.functional.embedding(
                    cugrad.tensor([1, 4, 1]), table, sparse=True
                )  # fmt: skip
                (rows.exp() * scale).sum().backward()
            assert table.grad is not None and table.grad.is_sparse
            (table * 2).sum().backward()
            (table * 2).sum().backward()
            dense = table.grad
            rows = cugrad.nn.functional.embedding(cugrad.tensor([1, 1]), table, sparse=True)
            (rows.sin().sum() + table.cos().sum()).backward(retain_graph=True)
            rows.sum().backward()
            assert table.grad is dense  # as in PyTorch sums are kept in place
        grads.append(table.grad.numpy())
    np.testing.assert_array_equal(*grads)


class KeepsItsMatrix(cugrad.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, matrix: Any) -> Any:
        ctx.save_for_backward(matrix)
        return matrix @ x

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        (matrix,) = ctx.saved_tensors
        return matrix.t() @ g, None


@pytest.mark.parametrize("context", STEPS)
def test_a_function_may_save_a_sparse_matrix(context: str) -> None:
    x = cugrad.arange(6.0, dtype=cugrad.float64).reshape(3, 2).requires_grad_()
    matrix = cugrad.sparse_coo_tensor([[0, 1], [2, 0]], [3.0, 4.0], (2, 3), dtype=cugrad.float64)
    with STEPS[context]():
        KeepsItsMatrix.apply(x, matrix).square().sum().backward()
    assert x.grad.tolist() == [[0, 32], [0, 0], [72, 90]]


def test_a_sparse_parameter_is_converted_and_loaded(lib: Any) -> None:
    """It is a Parameter, whose data is replaced as that of any other."""
    module = lib.nn.Module()
    module.weight = lib.nn.Parameter(lib.eye(3).to_sparse())
    weight, other = module.weight, lib.ones(3, 3).to_sparse()
    assert (
        isinstance(weight, lib.nn.Parameter) and dict(module.named_parameters())["weight"] is weight
    )
    assert (weight.is_meta, weight.element_size(), weight.itemsize) == (False, 4, 4)
    (weight.to_dense() * 3).sum().backward()
    module.double()
    assert weight.dtype is lib.float64 and weight.grad.dtype is lib.float64 and weight.requires_grad
    assert weight.grad.to_dense().tolist() == (3 * lib.eye(3)).tolist()
    module.load_state_dict({"weight": other})
    assert weight._nnz() == 9 and weight.to_dense().dtype is lib.float64
    weight.data = 2 * weight.data
    assert float(weight.detach().to_dense().sum()) == 18 and other._nnz() == 9
    with pytest.raises(RuntimeError, match="copy_.. between dense and sparse"), lib.no_grad():
        weight.copy_(lib.ones(3, 3))
