"""What PyTorch's own tests of torch.func ask for and the other tests had missed."""

from __future__ import annotations

import functools
import importlib
import warnings
from collections import namedtuple
from collections.abc import Iterator
from typing import Any

import pytest

Point = namedtuple("Point", "a b")


@pytest.fixture(autouse=True)
def quiet(lib: Any) -> Iterator[None]:
    """What the libraries warn of is not what these tests are about."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.parametrize("output", [None, ()])
def test_functions_that_return_nothing(lib: Any, output: Any) -> None:
    x, words = lib.randn(3), "Expected f to be a function that has non-empty output"
    with pytest.raises(RuntimeError, match=rf"vjp\(f, \*primals\): {words}"):
        lib.func.vjp(lambda _: output, x)
    with pytest.raises(RuntimeError, match=rf"jvp\(f, primals, tangents\): {words}"):
        lib.func.jvp(lambda _: output, (x,), (x,))
    for transform in (lib.func.jacrev, lib.func.jacfwd):
        with pytest.raises(RuntimeError, match=rf"(vjp|jvp).+: {words}"):
            transform(lambda _: output)(x)


def test_functional_call_takes_dicts_alone(lib: Any) -> None:
    layer, x = lib.nn.Linear(2, 2), lib.ones(2)
    with pytest.raises(ValueError, match="Expected all elements of parameter_and_buffer_dicts"):
        lib.func.functional_call(layer, (3,), x)
    with pytest.raises(ValueError, match="to be a dict, or a list/tuple of dicts"):
        lib.func.functional_call(layer, 3, x)


def test_functional_call_gives_what_is_no_parameter(lib: Any) -> None:
    """An attribute, a bias of None, a name that is not there: used, and gone afterwards."""
    x = lib.ones(1, 2)

    class Scaled(lib.nn.Module):
        offset = None

        def __init__(self) -> None:
            super().__init__()
            self.scale = lib.ones(2)

        def forward(self, x: Any) -> Any:
            return x * self.scale * getattr(self, "more", 1) + (self.offset or 0)

    net = lib.nn.Sequential(Scaled(), lib.nn.Linear(2, 2, bias=False))
    with lib.no_grad():
        net[1].weight.copy_(lib.eye(2))
    call = lib.func.functional_call
    given = {"0.scale": lib.full((2,), 3.0), "0.more": lib.nn.Parameter(lib.full((2,), 2.0))}
    assert call(net, given, x).tolist() == [[6.0, 6.0]]
    assert call(net, {"1.bias": lib.ones(2), "0.offset": lib.ones(())}, x).tolist() == [[3.0, 3.0]]
    assert net(x).tolist() == [[1.0, 1.0]] and not hasattr(net[0], "more")
    assert list(net.state_dict()) == ["1.weight"]
    assert call(lib.nn.Linear(2, 2), {"weight": lib.eye(2), "bias": None}, x).tolist() == [[1, 1]]
    with pytest.raises(AttributeError, match="Sequential has no attribute `5`"):
        call(net, {"5.weight": x}, x)
    with pytest.raises(TypeError, match="attribute `in_features`: 2 is not an instance of"):
        call(net, {"1.in_features": x}, x)
    with pytest.raises(KeyError, match="be empty string"):
        call(net, {"": x}, x)
    with pytest.raises(RuntimeError, match="Unexpected key.s.: '1.bias'"):
        call(net, {"1.weight": x, "1.bias": x}, x, strict=True)


def test_functional_call_wants_one_name_of_tied_tensors(lib: Any) -> None:
    net = lib.nn.Sequential(lib.nn.Linear(2, 2, bias=False), lib.nn.Linear(2, 2, bias=False))
    net[1].weight = net[0].weight
    given, x = {"0.weight": lib.full((2, 2), 2.0)}, lib.ones(1, 2)
    assert lib.func.functional_call(net, given, x, strict=True).tolist() == [[16.0, 16.0]]
    with pytest.raises(RuntimeError, match="Missing key.s.: '1.weight'"):
        lib.func.functional_call(net, given, x, strict=True, tie_weights=False)


def test_functional_call_gives_a_parametrized_tensor(lib: Any) -> None:
    layer = lib.nn.utils.parametrizations.weight_norm(lib.nn.Linear(2, 2, bias=False))
    before = [p.tolist() for p in layer.parameters()]
    given, x = lib.tensor([[1.0, 0.0], [2.0, 5.0]]), lib.eye(2)
    y = lib.func.functional_call(layer, {"weight": given}, x)
    lib.testing.assert_close(y.detach(), given.T)
    lib.testing.assert_close([p.tolist() for p in layer.parameters()], before)

    class Doubled(lib.nn.Module):
        def forward(self, w: Any) -> Any:
            return w * 2

    layer = lib.nn.Linear(2, 2)
    lib.nn.utils.parametrize.register_parametrization(layer, "weight", Doubled())
    with pytest.raises(RuntimeError, match="Doubled does not implement right_inverse"):
        lib.func.functional_call(layer, {"weight": given}, x)


def test_functional_call_has_what_a_module_assigned(lib: Any) -> None:
    """A single dict gets the buffer that was computed anew; the module keeps its own."""

    class Counting(lib.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", lib.zeros(()))

        def forward(self, x: Any) -> Any:
            self.calls = self.calls + 1
            return x * self.calls

    counting, state = Counting(), {"calls": lib.full((), 4.0)}
    assert lib.func.functional_call(counting, state, lib.ones(1)).tolist() == [5.0]
    assert state["calls"].item() == 5 and counting.calls.item() == 0
    assert lib.func.functional_call(counting, (state, {}), lib.ones(1)).tolist() == [6.0]
    assert state["calls"].item() == 5


def test_out_dims_of_a_single_output(lib: Any) -> None:
    x = lib.randn(2, 3)
    assert lib.vmap(lambda x: x, out_dims=(1,))(x).shape == (3, 2)
    with pytest.raises(ValueError, match="not compatible"):
        lib.vmap(lambda x: x, out_dims=(0, 0))(x)


def test_what_is_no_tensor_passes_where_out_dims_are_none(lib: Any) -> None:
    x = lib.randn(2, 3)
    found = lib.vmap(lambda x: (x, "hello world"), out_dims=(0, None))(x)
    assert lib.equal(found[0], x) and found[1] == "hello world"
    assert lib.vmap(lambda x: "hello world", out_dims=None)(x) == "hello world"
    assert lib.vmap(lambda x: (None, 3), out_dims=(None, None))(x) == (None, 3)


def test_out_dims_are_looked_at_before_the_function_runs(lib: Any) -> None:
    def never(x: Any) -> Any:
        raise AssertionError

    with pytest.raises(ValueError, match="must be an int, None or a python collection of ints"):
        lib.vmap(never, out_dims="lol")(lib.ones(2))


def test_in_dims_are_of_the_same_kind_as_the_inputs(lib: Any) -> None:
    x = lib.randn(3)
    with pytest.raises(ValueError, match="in_dims is not compatible with the structure"):
        lib.vmap(lambda z: z[0] + z[1], in_dims=((0, 0),))([x, x])
    with pytest.raises(ValueError, match="in_dims is not compatible with the structure"):
        lib.vmap(lambda z: z[0] + z[1], in_dims=([0, 0],))((x, x))
    assert lib.vmap(lambda z: z[0] + z[1], in_dims=([0, 0],))([x, x]).shape == (3,)
    with pytest.raises(ValueError, match="not compatible"):
        lib.vmap(lambda x: Point(x, x), out_dims=(0, 0))(x)


def test_errors_of_vmap_name_the_function(lib: Any) -> None:
    class Pair(lib.nn.Module):
        def forward(self, x: Any) -> Any:
            return x, 1

    x = lib.randn(3)
    with pytest.raises(ValueError, match=r"vmap\(Pair\(\), \.\.\.\): `Pair\(\)` must only return"):
        lib.vmap(Pair())(x)
    with pytest.raises(ValueError, match=r"functools.partial\(mul, \.\.\.\)"):
        lib.vmap(functools.partial(lib.mul, x), in_dims=(0, 0))(x)
    with pytest.raises(ValueError, match="got no inputs"):
        lib.vmap(lambda x: x)(x=x)  # arguments by name are not mapped over


@pytest.mark.parametrize("name, args", [
    ("unsqueeze_", (0,)), ("squeeze_", ()), ("squeeze_", (0,)), ("t_", ()), ("transpose_", (0, 1)),
    ("swapaxes_", (0, 1)), ("swapdims_", (0, 1)), ("add_", (1,)), ("zero_", ()),
])  # fmt: skip
def test_an_argument_that_is_changed_is_a_result_as_it_has_become(
    lib: Any, name: str, args: Any
) -> None:
    def changed(x: Any) -> Any:
        return getattr(x, name)(*args)

    x = lib.arange(6.0).reshape(2, 1, 3)
    expected = lib.stack([changed(example.clone()) for example in x])
    for dims, given in ((0, x.clone()), (1, x.clone().transpose(0, 1))):
        assert lib.vmap(changed, in_dims=dims)(given).tolist() == expected.tolist()
    found = lib.vmap(lambda x: (changed(x), x))(x.clone())
    assert [each.tolist() for each in found] == [expected.tolist()] * 2


def test_chunks_draw_the_same(lib: Any) -> None:
    def drawn(x: Any) -> Any:
        return x * 0 + lib.randn(2)

    found = lib.vmap(drawn, randomness="same", chunk_size=2)(lib.ones(5, 2))
    assert lib.equal(found, found[:1].expand(5, 2))
    found = lib.vmap(drawn, randomness="different", chunk_size=2)(lib.ones(5, 2))
    assert not lib.equal(found[0], found[2])


def test_different_numbers_do_not_fit_what_is_not_mapped_over(lib: Any) -> None:
    y = lib.zeros(3)
    with pytest.raises(RuntimeError, match="Cannot ask for different inplace randomness on an unb"):
        lib.vmap(lambda x: x + y.normal_(), randomness="different")(lib.zeros(4, 3))
    found = lib.vmap(lambda x: x + y.normal_(), randomness="same")(lib.zeros(4, 3))
    assert lib.equal(found[0], y) and lib.equal(found[3], y)


def test_samples_of_the_same_weights(lib: Any) -> None:
    weights = lib.rand(4, 5)
    for given in ((2,), (6, True)):
        found = lib.vmap(
            lambda x, given=given: lib.multinomial(weights, *given), randomness="different"
        )(lib.ones(20))
        assert found.shape == (20, 4, given[0]) and not lib.equal(found[0], found[1])
        found = lib.vmap(
            lambda x, given=given: lib.multinomial(weights, *given), randomness="same"
        )(lib.ones(3))
        assert lib.equal(found[0], found[2])


def test_out_dims_of_a_function_s_own_rule(lib: Any) -> None:
    class Listed(lib.autograd.Function):
        @staticmethod
        def forward(x: Any) -> Any:
            return [lib.zeros(x.shape)]

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            pass

        @staticmethod
        def vmap(info: Any, in_dims: Any, x: Any) -> Any:
            return [lib.zeros(x.shape[1:])], (None,)

    with pytest.raises(RuntimeError, match="returned an incompatible"):
        lib.vmap(Listed.apply)(lib.randn(2, 3))


def test_matrices_in_a_vmap_within_a_vmap(lib: Any) -> None:
    x = lib.randn(2, 3, 4, 5)
    assert lib.equal(lib.vmap(lib.vmap(lambda a: a.mT))(x), x.mT)
    assert lib.equal(lib.vmap(lib.vmap(lambda a: a.transpose(0, 1)))(x), x.mT)
    inner = lib.vmap(lib.vmap(lib.inner))(x, x)
    assert lib.allclose(inner, x @ x.mT, atol=1e-5)
    shifts = lib.vmap(lib.vmap(lambda a: a.roll(1)))(x)
    assert lib.equal(shifts[1, 2], x[1, 2].roll(1))
    spectra = lib.vmap(lib.vmap(lib.fft.fftn))(x)
    assert lib.allclose(spectra, lib.fft.fftn(x, dim=(2, 3)), atol=1e-4)


def test_a_vmap_within_a_checkpoint(lib: Any) -> None:
    """What backward computes again meets gradients of the first run's vmap."""
    checkpoint = importlib.import_module(f"{lib.__name__}.utils.checkpoint").checkpoint
    x = lib.randn(4, 3, dtype=lib.float64, requires_grad=True)

    def nested(x: Any) -> Any:
        return lib.vmap(lib.vmap(lambda y: (y.sin() * y).exp()))(x).cos()

    def twice(x: Any) -> Any:
        return checkpoint(nested, lib.vmap(lib.sin)(x), use_reentrant=False)

    for function in (nested, twice):
        (want,) = lib.autograd.grad(function(x).sum(), x)
        out = checkpoint(function, x, use_reentrant=False)
        (found,) = lib.autograd.grad(out.sum(), x, retain_graph=True)
        assert lib.equal(found, want)
        rows = lib.eye(4, dtype=x.dtype)
        (found,) = lib.autograd.grad(out.sum(1), x, rows, is_grads_batched=True)
        assert lib.allclose(found.sum(0), want)


def test_a_checkpoint_that_draws_under_batched_gradients(lib: Any) -> None:
    """The second run is no part of the vmap that backward runs in."""
    if lib.__name__ == "torch":
        pytest.skip("PyTorch refuses to draw in the second run")
    checkpoint = importlib.import_module(f"{lib.__name__}.utils.checkpoint").checkpoint
    x = lib.randn(4, 3, requires_grad=True)

    def function(x: Any) -> Any:
        return lib.nn.functional.dropout(x.sin(), 0.5).exp().sum(1)

    found = []
    for run in (function, functools.partial(checkpoint, function, use_reentrant=False)):
        lib.manual_seed(0)
        out = run(x)
        found += lib.autograd.grad(out, x, lib.eye(4), is_grads_batched=True)
    assert lib.equal(*found)


def test_matrices_that_are_looked_at_are_batched(lib: Any) -> None:
    """Without a loop over the examples, and with the number of the example that fails."""
    x = lib.randn(3, 4, 4)
    a = x @ x.mT + 4 * lib.eye(4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for function in (lib.linalg.cholesky, lib.matrix_exp, lib.linalg.eigvals):
            assert lib.allclose(lib.vmap(function)(a), function(a), rtol=1e-4)
        edges, values = x[:, 0].contiguous().sort().values, x[:, 1].contiguous()
        found = lib.vmap(lib.searchsorted)(edges, values)
        assert lib.equal(found, lib.searchsorted(edges, values))
    bad = lib.stack([lib.eye(4), -lib.eye(4)])
    with pytest.raises(RuntimeError, match=r"linalg.cholesky: \(Batch element 1\)"):
        lib.vmap(lib.linalg.cholesky)(bad)
    with pytest.raises(RuntimeError, match="should not contain infs or NaNs"):
        lib.vmap(lib.linalg.eig)(bad / 0)


def test_what_is_the_same_for_all_meets_what_is_not(lib: Any) -> None:
    x, y = lib.rand(3, 3), lib.rand(4, 3)
    each = (None, 0)
    assert lib.vmap(lib.isclose, each)(y[0], y).shape == (4, 3)
    for function in (
        lambda x, y: lib.select_scatter(x, y, 0, 1), lambda x, y: lib.diagonal_scatter(x, y),
        lambda x, y: lib.slice_scatter(x, y[None], 0, 1, 2),
    ):  # fmt: skip
        found = lib.vmap(function, each)(x, y)
        for k in range(4):
            assert lib.equal(found[k], function(x, y[k]))
    loss = lib.nn.functional.binary_cross_entropy
    assert lib.allclose(lib.vmap(loss)(y, y), lib.stack([loss(v, v) for v in y]))
    loss = lib.nn.functional.gaussian_nll_loss
    assert lib.vmap(loss, (0, None, None))(y, x[0], x[1] + 1).shape == (4,)
    mask = lib.stack([lib.eye(3), lib.ones(3, 3)]) > 0
    found = lib.vmap(lib.masked_scatter, (None, 0, None))(x, mask, x + 1)
    assert lib.equal(found, lib.stack([lib.masked_scatter(x, m, x + 1) for m in mask]))
    mean, var, weights = lib.zeros(3), lib.ones(3), lib.rand(2, 3)
    norm = lib.nn.functional.batch_norm
    found = lib.vmap(lambda w: norm(x, mean, var, w, training=True))(weights)
    assert lib.allclose(found[1], norm(x, None, None, weights[1], training=True), 1e-4, 1e-5)
    assert lib.allclose(mean, 0.1 * x.mean(0))
    loss = lib.nn.functional.binary_cross_entropy
    if lib.__name__ == "cugrad" and y.device.type == "cpu":
        with pytest.raises(RuntimeError, match="should be between 0 and 1"):
            lib.vmap(loss)(y + 1, y)


def test_strides_in_a_vmap(lib: Any) -> None:
    x = lib.arange(12.0).reshape(3, 4)
    found = lib.vmap(lambda x: x.as_strided((2, 2), (1, 2)))(x)
    assert found[2].tolist() == [[8.0, 10.0], [9.0, 11.0]]
    column = lib.vmap(lambda x: lib.as_strided(x, (2,), (2,), 1))(x)
    assert column[0].tolist() == [1.0, 3.0] or lib.__name__ == "torch"


@pytest.mark.parametrize("name", ["cdist", "pdist"])
def test_distances_of_order_zero_have_gradients_of_zeros(lib: Any, name: str) -> None:
    x = lib.tensor([[1.0, 2.0], [1.0, 3.0], [0.0, 0.0]], requires_grad=True)
    args = (x, x * 1, 0.0) if name == "cdist" else (x, 0.0)
    place = lib if name == "cdist" else lib.nn.functional
    found = getattr(place, name)(*args)
    assert float(found.detach().sum()) == (10 if name == "cdist" else 5)
    (g,) = lib.autograd.grad(found.sum(), x)
    assert lib.equal(g, lib.zeros(3, 2))
