"""Recurrent layers and cells beside PyTorch's: values, all derivatives, packed sequences."""

from __future__ import annotations

import copy
import pickle
import warnings
from typing import Any

import numpy as np
import pytest

import cugrad
from cugrad.nn.recurrent import layer
from cugrad.nn.recurrent.scans import SCANS, Operands
from cugrad.nn.recurrent.steps import by_steps
from cugrad.nn.utils.rnn import pack_sequence

torch = pytest.importorskip("torch", reason="PyTorch, the oracle, is not installed")

RNG = np.random.default_rng(5)
KINDS: list[tuple[str, dict[str, Any]]] = [
    ("RNN", {}), ("RNN", {"nonlinearity": "relu"}), ("LSTM", {}), ("LSTM", {"proj_size": 3}),
    ("GRU", {}),
]  # fmt: skip
FORMS: list[dict[str, Any]] = [
    {}, {"bias": False, "batch_first": True}, {"num_layers": 2, "bidirectional": True},
]  # fmt: skip
X = np.random.default_rng(7).standard_normal((5, 2, 3))
each_kind = pytest.mark.parametrize("name, kind", KINDS, ids=str)


def pair(name: str, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
    """PyTorch's module in float64 and ours, with the same parameters."""
    torch.manual_seed(0)
    theirs = getattr(torch.nn, name)(*args, **kwargs, dtype=torch.float64)
    mine = getattr(cugrad.nn, name)(*args, **kwargs, dtype=cugrad.float64)
    assert repr(mine) == repr(theirs)
    assert list(mine.state_dict()) == list(theirs.state_dict())
    mine.load_state_dict(
        {k: cugrad.from_numpy(v.numpy().copy()) for k, v in theirs.state_dict().items()}
    )
    return theirs, mine


def flat(value: Any) -> list[Any]:
    """The tensors of a result, packed sequences and states among them."""
    if hasattr(value, "batch_sizes"):
        return [value.data]
    return [t for v in value for t in flat(v)] if isinstance(value, tuple) else [value]


def loss_of(lib: Any, outs: list[Any]) -> Any:
    weighted = [(o * lib.arange(1, o.numel() + 1).reshape(o.shape)).sin().sum() for o in outs]
    return sum(weighted)


def derivatives(lib: Any, run: Any, leaves: list[Any]) -> list[np.ndarray]:
    """The results, their gradients in a plain pass and in one with a graph, and second ones."""
    outs = flat(run())
    first = lib.autograd.grad(loss_of(lib, outs), leaves)
    again = lib.autograd.grad(loss_of(lib, flat(run())), leaves, create_graph=True)
    second = lib.autograd.grad(sum((g * g).sum() for g in again), leaves)
    return [t.detach().numpy() for t in (*outs, *first, *again, *second)]


def compare(found: list[Any], wanted: list[Any]) -> None:
    for i, (a, b) in enumerate(zip(found, wanted, strict=True)):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-8, err_msg=f"result {i}")


@each_kind
@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("way", ["plain", "states", "alone", "packed", "unsorted"])
def test_layers(name: str, kind: Any, form: Any, way: str) -> None:
    """Whole batches with states and without, one sequence alone, packed sequences in any order."""
    pairs = []
    theirs, mine = pair(name, 4, 5, **kind, **form)
    size = (6, 4) if way == "alone" else (6, 3, 4)
    x, states = RNG.standard_normal(size), None
    if way in ("states", "unsorted"):
        layers = theirs.num_layers * (1 + theirs.bidirectional)
        batch = x.shape[0 if form.get("batch_first") and way == "states" else 1]
        widths = [kind.get("proj_size", 5)] + [5] * (name == "LSTM")
        states = [RNG.standard_normal((layers, batch, width)) for width in widths]
    for lib, module in ((torch, theirs), (cugrad, mine)):
        leaves = [lib.from_numpy(a.copy()).requires_grad_() for a in (x, *(states or []))]
        hx = None if not states else leaves[1] if name != "LSTM" else tuple(leaves[1:])
        rnn = lib.nn.utils.rnn

        def run(rnn: Any = rnn, leaves: Any = leaves, hx: Any = hx, module: Any = module) -> Any:
            if way not in ("packed", "unsorted"):
                return module(leaves[0], hx)
            order = [6, 4, 1] if way == "packed" else [2, 6, 3]
            sequences = [leaves[0][:n, i] for i, n in enumerate(order)]
            packed = rnn.pack_sequence(sequences, enforce_sorted=way == "packed")
            out, last = module(packed, hx)
            return rnn.pad_packed_sequence(out, batch_first=True)[0], last

        pairs.append(derivatives(lib, run, [*leaves, *module.parameters()]))
    compare(pairs[1], pairs[0])


@pytest.mark.parametrize(
    "name, kind",
    [
        ("RNNCell", {}),
        ("RNNCell", {"nonlinearity": "relu"}),
        ("LSTMCell", {}),
        ("GRUCell", {"bias": False}),
    ],
    ids=str,
)
@pytest.mark.parametrize("alone", [False, True], ids=["batch", "alone"])
def test_cells(name: str, kind: Any, alone: bool) -> None:
    theirs, mine = pair(name, 4, 5, **kind)
    lead = () if alone else (3,)
    x, h = RNG.standard_normal((*lead, 4)), RNG.standard_normal((*lead, 5))
    pairs = []
    for lib, cell in ((torch, theirs), (cugrad, mine)):
        leaves = [lib.from_numpy(a.copy()).requires_grad_() for a in (x, h)]

        def run(cell: Any = cell, leaves: Any = leaves) -> Any:
            hx = (leaves[1], leaves[1] * 2) if name == "LSTMCell" else leaves[1]
            return cell(leaves[0]), cell(leaves[0], hx)

        pairs.append(derivatives(lib, run, [*leaves, *cell.parameters()]))
    compare(pairs[1], pairs[0])


@each_kind
def test_every_transform_takes_a_layer(name: str, kind: Any) -> None:
    """vmap over examples, by example gradients, forward mode, beside loops and differences."""
    module = getattr(cugrad.nn, name)(3, 4, **kind, dtype=cugrad.float64)
    params = dict(module.named_parameters())
    x = cugrad.randn(2, 5, 3, dtype=cugrad.float64)

    def run(params: Any, x: Any) -> Any:
        return flat(cugrad.func.functional_call(module, params, (x,)))[0]

    def loss(params: Any, x: Any) -> Any:
        return run(params, x).sin().sum()

    compare([cugrad.vmap(run, (None, 0))(params, x).detach().numpy()],
            [np.stack([run(params, each).detach().numpy() for each in x])])  # fmt: skip
    each = cugrad.vmap(cugrad.func.grad(loss), (None, 0))(params, x)
    for name_, p in params.items():
        wanted = [cugrad.autograd.grad(loss(params, e), p)[0].numpy() for e in x]
        compare([each[name_].detach().numpy()], [np.stack(wanted)])
    _, tangent = cugrad.func.jvp(lambda x: loss(params, x), (x[0],), (cugrad.ones(5, 3).double(),))
    wanted = cugrad.autograd.grad(loss(params, y := x[0].clone().requires_grad_()), y)[0].sum()
    np.testing.assert_allclose(tangent.item(), wanted.item(), rtol=1e-9)
    assert cugrad.autograd.gradcheck(lambda *p: run(dict(zip(params, p, strict=True)), x[0]),
                                     tuple(params.values()))  # fmt: skip


@each_kind
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # in PyTorch itself
def test_gradients_have_tangents_and_examples(name: str, kind: Any) -> None:
    """Those that a node is given in backward, when it was recorded without any."""
    results = []
    for lib, module in zip((torch, cugrad), pair(name, 3, 4, **kind), strict=True):
        fw, x = lib.autograd.forward_ad, lib.tensor(X, requires_grad=True)
        out, leaves = module(x)[0], [x, *module.parameters()]
        vectors = lib.stack([lib.ones_like(out), out.detach()])
        several = lib.autograd.grad(
            out, leaves, vectors, is_grads_batched=True, retain_graph=True, allow_unused=True
        )
        with fw.dual_level():
            dual = fw.make_dual(vectors[0], vectors[1])
            grads = lib.autograd.grad(out, leaves, dual, allow_unused=True)
            tangents = [t for g in grads for t in fw.unpack_dual(g)]
        results.append([t.detach().numpy() for t in (*several, *tangents)])
    compare(*results)


@pytest.mark.parametrize("mode", SCANS)
@pytest.mark.parametrize("sizes", [[3, 3, 3], [4, 2, 1]], ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_scans_are_the_steps(mode: str, sizes: list[int], dtype: str, device: str) -> None:
    """The loops over arrays compute what the steps compute, on every device and in half."""
    kind, gates = getattr(cugrad, dtype), SCANS[mode].gates
    width = 3 if mode == "LSTM" else 5
    shapes = [(sum(sizes), 4), (sizes[0], width), (sizes[0], 5), (gates * 5, 4),
              (gates * 5, width), (gates * 5,), (gates * 5,), (3, 5)]  # fmt: skip
    wanted = set(range(8)) - ({2, 7} if mode != "LSTM" else set())
    leaves = [cugrad.randn(s, dtype=kind, device=device).mul_(0.5).requires_grad_()
              if i in wanted else None for i, s in enumerate(shapes)]  # fmt: skip
    starts = np.cumsum([0, *sizes[:-1]]).tolist()
    for spans in (
        list(zip(starts, sizes, strict=True)),
        list(zip(starts, sizes, strict=True))[::-1],
    ):
        found = []
        for run in (layer.recurrent_layer, by_steps):
            outs = run(mode, Operands(*leaves), spans)
            assert all(o.dtype is kind and o.device.type == device for o in outs)
            total = sum((o.float() * (i + 1)).sin().sum() for i, o in enumerate(outs))
            grads = cugrad.autograd.grad(total, [t for t in leaves if t is not None])
            found.append([t.detach().cpu().float().numpy() for t in (*outs, *grads)])
        tolerance = 1e-5 if dtype == "float32" else 3e-2
        for a, b in zip(*found, strict=True):
            np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * 3)


def test_gradients_are_those_of_what_was_asked_for() -> None:
    """Of one operand alone; of the states alone; where one tensor is two operands."""
    lstm = cugrad.nn.LSTM(4, 5, dtype=cugrad.float64)
    x = cugrad.randn(6, 3, 4, dtype=cugrad.float64)
    same = cugrad.randn(1, 3, 5, dtype=cugrad.float64, requires_grad=True)
    for create_graph in (False, True):
        out, (h, c) = lstm(x, (same, same))
        assert out.grad_fn is not None and not x.requires_grad
        whole = cugrad.autograd.grad(h.sum() + c.sum(), same, create_graph=create_graph)[0]
        one, two = same.detach().requires_grad_(), same.detach().requires_grad_()
        _, (h, c) = lstm(x, (one, two))
        parts = cugrad.autograd.grad(h.sum() + c.sum(), [one, two])
        np.testing.assert_allclose(whole.detach().numpy(), (parts[0] + parts[1]).numpy())
    with cugrad.no_grad():
        assert lstm(x)[0].grad_fn is None


@each_kind
@pytest.mark.parametrize("create_graph", [False, True])
def test_where_no_gradient_comes_none_goes_on(name: str, kind: Any, create_graph: bool) -> None:
    lib: Any
    for lib, made in zip((torch, cugrad), pair(name, 3, 4, **kind), strict=True):

        class Lone(lib.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                return x * 3

            @staticmethod
            def backward(ctx: Any, gradient: Any) -> None:
                return None

        x = lib.ones(5, 2, 3, dtype=lib.float64).requires_grad_()
        leaves = [x, *made.parameters()]
        out = Lone.apply(made(x)[0]).sum()
        found = lib.autograd.grad(out, leaves, create_graph=create_graph, allow_unused=True)
        assert found == (None,) * len(leaves), lib.__name__


def test_saved_tensors_pass_hooks_and_are_versioned() -> None:
    lstm, x = cugrad.nn.LSTM(4, 5), cugrad.randn(6, 3, 4)
    lstm(x)[0].sin().sum().backward()
    wanted = [p.grad.clone() for p in lstm.parameters()]
    lstm.zero_grad()
    with cugrad.memory.offload(), cugrad.autograd.graph.save_on_cpu():
        y = lstm(x)[0].sin().sum()
    y.backward()
    assert all(cugrad.equal(p.grad, w) for p, w in zip(lstm.parameters(), wanted, strict=True))
    y = lstm(x)[0].sum()
    with cugrad.no_grad():
        lstm.weight_hh_l0.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


@pytest.mark.parametrize("name", ["LSTM", "GRU", "RNN", "LSTMCell", "GRUCell", "RNNCell"])
def test_autocast(name: str) -> None:
    """PyTorch's dtypes on a CPU; only a GRU's are those of bfloat16 where autocast has it so."""
    found = []
    for lib in (cugrad, torch):
        module = getattr(lib.nn, name)(4, 5)
        with lib.autocast("cpu", lib.bfloat16):
            try:
                outs = flat(module(lib.randn(3, 2, 4) if "Cell" not in name else lib.randn(2, 4)))
            except RuntimeError as error:
                if lib is cugrad or "could not create a primitive" not in str(error):
                    raise
                pytest.skip("PyTorch's oneDNN has no such layer of bfloat16 on this processor")
        sum(o.float().sum() for o in outs).backward()
        assert all(p.grad.dtype is lib.float32 for p in module.parameters())
        found.append([str(o.dtype) for o in outs])
    assert found[0] == found[1]


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "bidirectional": True}])
def test_autocast_leaves_the_cells_of_a_projected_lstm_wide(options: dict[str, Any]) -> None:
    x = np.random.default_rng(0).standard_normal((3, 2, 4)).astype(np.float32)
    weights: dict[str, Any] = {}
    found = []
    for lib in (torch, cugrad):
        module = lib.nn.LSTM(4, 5, proj_size=2, **options)
        weights = weights or {k: v.numpy() for k, v in module.state_dict().items()}
        module.load_state_dict({k: lib.tensor(v) for k, v in weights.items()})
        with lib.autocast("cpu", lib.bfloat16):
            outs = flat(module(lib.tensor(x)))
        sum(o.float().square().sum() for o in outs).backward()
        grads = [p.grad for p in module.parameters()]
        found.append([(str(o.dtype), o.detach().float().numpy()) for o in (*outs, *grads)])
    for (kind, theirs), (own_kind, ours) in zip(*found, strict=True):
        assert own_kind == kind
        np.testing.assert_allclose(ours, theirs, rtol=0.05, atol=0.05)


def test_dropout_is_between_layers_and_in_training_alone() -> None:
    x = cugrad.ones(50, 4, 3)
    deep = cugrad.nn.GRU(3, 8, num_layers=2, dropout=0.5)
    assert not cugrad.equal(deep(x)[0], deep(x)[0])
    assert cugrad.equal(deep(x)[1][0], deep(x)[1][0])  # the first layer has none before it
    deep.eval()
    assert cugrad.equal(deep(x)[0], deep(x)[0])


BAD: dict[str, Any] = {
    "dims": lambda n, t: n.LSTM(4, 5)(t.ones(4)),
    "dims of an RNN": lambda n, t: n.RNN(4, 5)(t.ones(4)),
    "size": lambda n, t: n.GRU(4, 5)(t.ones(3, 2, 5)),
    "dtype": lambda n, t: n.GRU(4, 5)(t.ones(3, 2, 4, dtype=t.float64)),
    "state": lambda n, t: n.GRU(4, 5)(t.ones(3, 2, 4), t.ones(1, 2, 6)),
    "state, dims": lambda n, t: n.GRU(4, 5)(t.ones(3, 2, 4), t.ones(2, 5)),
    "state, alone": lambda n, t: n.GRU(4, 5)(t.ones(3, 4), t.ones(1, 1, 5)),
    "states": lambda n, t: n.LSTM(4, 5)(t.ones(3, 2, 4), (t.ones(1, 2, 5), t.ones(1, 3, 5))),
    "states, dims": lambda n, t: n.LSTM(4, 5)(t.ones(3, 2, 4), (t.ones(2, 5), t.ones(1, 2, 5))),
    "states, alone": lambda n, t: n.LSTM(4, 5)(t.ones(3, 4), (t.ones(1, 5), t.ones(1, 1, 5))),
    "no time": lambda n, t: n.LSTM(4, 5)(t.ones(0, 2, 4)),
    "projected too wide": lambda n, t: n.LSTM(4, 5, proj_size=5),
    "projected backwards": lambda n, t: n.LSTM(4, 5, proj_size=-1),
    "projected GRU": lambda n, t: n.GRU(4, 5, proj_size=2),
    "projected RNN": lambda n, t: n.RNN(4, 5, proj_size=2),
    "nonlinearity": lambda n, t: n.RNN(4, 5, nonlinearity="x"),
    "nonlinearity, fourth": lambda n, t: n.RNN(4, 5, 1, "x"),
    "dropout": lambda n, t: n.LSTM(4, 5, dropout=1.5),
    "dropout, bool": lambda n, t: n.LSTM(4, 5, dropout=True),
    "dropout for nothing": lambda n, t: n.LSTM(4, 5, dropout=0.5) and None,
    "bias": lambda n, t: n.LSTM(4, 5, bias=1),
    "batch_first": lambda n, t: n.LSTM(4, 5, batch_first=1),
    "input_size": lambda n, t: n.LSTM(4.0, 5),
    "no input": lambda n, t: n.LSTM(0, 5),
    "no outputs": lambda n, t: n.LSTM(4, 0),
    "no layers": lambda n, t: n.LSTM(4, 5, 0),
    "mode": lambda n, t: n.RNNBase("X", 4, 5),
    "cell, dims": lambda n, t: n.LSTMCell(4, 5)(t.ones(1, 2, 4)),
    "cell, state dims": lambda n, t: n.GRUCell(4, 5)(t.ones(2, 4), t.ones(1, 2, 5)),
    "cell, states' dims": lambda n, t: n.LSTMCell(4, 5)(t.ones(2, 4), (t.ones(1, 1, 5),) * 2),
    "cell, size": lambda n, t: n.RNNCell(4, 5)(t.ones(2, 3)),
    "cell, batch": lambda n, t: n.LSTMCell(4, 5)(t.ones(2, 4), (t.ones(2, 5), t.ones(3, 5))),
    "cell, state": lambda n, t: n.GRUCell(4, 5)(t.ones(2, 4), t.ones(2, 6)),
    "cell, nonlinearity": lambda n, t: n.RNNCell(4, 5, nonlinearity="x")(t.ones(2, 4)),
    "lengths": lambda n, t: n.utils.rnn.pack_padded_sequence(t.ones(3, 2), [2, 3]),
    "lengths of others": lambda n, t: n.utils.rnn.pack_padded_sequence(t.ones(3, 2), [2]),
    "length of nothing": lambda n, t: n.utils.rnn.pack_padded_sequence(t.ones(3, 2), [2, 0]),
    "nothing to pack": lambda n, t: n.utils.rnn.pack_padded_sequence(t.ones(0, 2), [0, 0]),
    "total length": lambda n, t: n.utils.rnn.pad_packed_sequence(
        n.utils.rnn.pack_sequence([t.ones(3)]), total_length=2),
    "nothing to pad": lambda n, t: n.utils.rnn.pad_sequence([]),
    "a number to pad": lambda n, t: n.utils.rnn.pad_sequence(3),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_what_is_refused_is_refused_as_pytorch_does(name: str) -> None:
    found = []
    for lib in (cugrad, torch):
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            try:
                result = BAD[name](lib.nn, lib)
            except Exception as error:
                result = type(error), str(error).partition("\n")[0]
        found.append((result, [str(w.message) for w in warned]))
    assert found[0] == found[1] and any(found[0])


PACKED: dict[str, Any] = {
    "padded": lambda r, t, x: r.pack_padded_sequence(x, [4, 2, 1]),
    "padded, batches first": lambda r, t, x: r.pack_padded_sequence(
        x.transpose(0, 1), t.tensor([4, 2, 1]), batch_first=True),
    "padded, any order": lambda r, t, x: r.pack_padded_sequence(x, [1, 4, 2], enforce_sorted=False),
    "and back": lambda r, t, x: r.pad_packed_sequence(r.pack_padded_sequence(x, [3, 3, 1])),
    "and back, longer": lambda r, t, x: r.pad_packed_sequence(
        r.pack_padded_sequence(x, [1, 4, 2], enforce_sorted=False), True, -1.0, 6),
    "sequences": lambda r, t, x: r.pack_sequence([x[:3, 0], x[:2, 1]]),
    "sequences and back": lambda r, t, x: tuple(r.unpack_sequence(
        r.pack_sequence([x[:1, 0], x[:3, 1], x[:2, 2]], enforce_sorted=False))),
    "pad": lambda r, t, x: r.pad_sequence([x[:1, 0], x[:3, 1]]),
    "pad left": lambda r, t, x: r.pad_sequence([x[:1, 0], x[:3, 1]], True, 2.5, "left"),
    "pad a tensor": lambda r, t, x: r.pad_sequence(x),
    "unpad": lambda r, t, x: tuple(r.unpad_sequence(x.clone(), t.tensor([4, 1, 2]))),
    "casts": lambda r, t, x: r.pack_padded_sequence(x, [1, 4, 2], enforce_sorted=False).float(),
    "inverse": lambda r, t, x: r.invert_permutation(t.tensor([2, 0, 1])),
    "of two": lambda r, t, x: r.PackedSequence((x[0], t.tensor([3]))),
}  # fmt: skip


@pytest.mark.parametrize("name", PACKED)
def test_packed_sequences(name: str) -> None:
    x, found = RNG.standard_normal((4, 3, 2)), []
    for lib in (cugrad, torch):
        given = lib.from_numpy(x.copy())
        result = PACKED[name](lib.nn.utils.rnn, lib, given)
        parts = list(result) if isinstance(result, tuple) else [result]
        found.append([None if t is None else (str(t.dtype), t.tolist()) for t in parts])
    assert found[0] == found[1]


def test_a_packed_sequence_keeps_its_class() -> None:
    packed = pack_sequence([cugrad.ones(2), cugrad.ones(3)], enforce_sorted=False)
    assert packed.to("cpu") is packed and packed.cpu() is packed and not packed.is_cuda
    assert packed.double().data.dtype is cugrad.float64 and not packed.is_pinned()
    assert packed.double().unsorted_indices is packed.unsorted_indices
    twin = pickle.loads(pickle.dumps(packed))
    assert type(twin) is type(packed) and cugrad.equal(twin.data, packed.data)
    with pytest.raises(ValueError, match="batch_sizes should always be on CPU"):
        type(packed)(packed.data, packed.batch_sizes.to("simulated"))


def test_layers_are_copied_shared_and_called_with_other_weights() -> None:
    lstm = cugrad.nn.LSTM(4, 5, num_layers=2, bidirectional=True)
    x = cugrad.randn(3, 2, 4)
    for twin in (copy.deepcopy(lstm), pickle.loads(pickle.dumps(lstm))):
        assert cugrad.equal(twin(x)[0], lstm(x)[0])
    assert [len(w) for w in lstm.all_weights] == [4] * 4
    assert lstm.all_weights[3][1] is lstm.weight_hh_l1_reverse
    lstm.flatten_parameters()
    changed = {name: p * 0 for name, p in lstm.named_parameters()}
    assert not cugrad.func.functional_call(lstm, changed, (x,))[0].any()
    assert lstm(x)[0].any()
    assert lstm.double()._flat_weights[0].dtype is cugrad.float64
    lstm.weight_ih_l0 = cugrad.nn.Parameter(cugrad.zeros(20, 4, dtype=cugrad.float64))
    assert lstm._flat_weights[0] is lstm.weight_ih_l0


def test_the_functions_are_torchs() -> None:
    """`torch.lstm` and its like, for padded and for packed rows."""
    found = []
    for lib in (torch, cugrad):
        x, h = lib.arange(24.0).reshape(3, 2, 4) / 10, lib.ones(1, 2, 5)
        weights = [lib.full(s, 0.1) for s in ((20, 4), (20, 5), (20,), (20,))]
        rest = (True, 1, 0.0, False, False)
        outs = [*lib.lstm(x, (h, h), weights, *rest, False),
                *lib.gru(x, h, [w[:15] for w in weights], *rest, False),
                *lib.rnn_tanh(x.transpose(0, 1), h, [w[:5] for w in weights], *rest, True),
                *lib.rnn_relu(x.reshape(6, 4), lib.tensor([2, 2, 2]), h,
                              [w[:5] for w in weights], *rest)]  # fmt: skip
        outs += [*lib.lstm_cell(x[0], (h[0], h[0]), *weights),
                 lib.rnn_tanh_cell(x[0], h[0], weights[0][:5], weights[1][:5])]  # fmt: skip
        found.append([o.numpy() for o in outs])
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)
    with pytest.raises(TypeError, match="batch_first"):
        cugrad.lstm(x, (h, h), weights)
