"""nn.DataParallel and nn.parallel: pieces, copies, threads and what they carry."""

from __future__ import annotations

import threading
from collections import namedtuple
from typing import Any

import pytest

import cugrad
from cugrad import nn
from cugrad.nn import parallel

TWO = ["cpu", "cpu"]
BOTH = ["cpu", "simulated"]


def model(device: str = "cpu") -> Any:
    cugrad.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 2)).to(device)


def batch(device: str = "cpu") -> Any:
    return cugrad.arange(18.0, device=device).reshape(6, 3) / 10


@pytest.mark.parametrize("devices", [TWO, BOTH, ["simulated", "cpu"], ["cpu"], ["cpu"] * 4])
def test_values_and_gradients_are_those_of_the_module(devices: list[str]) -> None:
    plain, wrapped = model(devices[0]).eval(), model(devices[0]).eval()
    x = batch(devices[0]).requires_grad_()
    z = batch(devices[0]).requires_grad_()
    whole = nn.DataParallel(wrapped, device_ids=devices)
    y = whole(x)
    assert y.device == z.device and cugrad.allclose(y, plain(z))
    y.square().sum().backward()
    plain(z).square().sum().backward()
    assert cugrad.allclose(x.grad, z.grad)
    for p, q in zip(wrapped.parameters(), plain.parameters(), strict=True):
        assert cugrad.allclose(p.grad, q.grad) and p.grad.device == q.grad.device


def test_it_is_the_module_where_there_is_no_gpu(lib: Any) -> None:
    if lib.cuda.is_available():
        pytest.skip("there is a GPU")
    net = lib.nn.Linear(2, 1)
    for ids in (None, [0, 1]):
        whole = lib.nn.DataParallel(net, device_ids=ids)
        x = lib.ones(3, 2)
        assert whole.device_ids == [] and whole(x).tolist() == net(x).tolist()
        assert [name for name, _ in whole.named_parameters()] == ["module.weight", "module.bias"]


def test_one_device_moves_the_module() -> None:
    whole = nn.DataParallel(nn.Linear(2, 1, device="cpu"), device_ids=["simulated"])
    assert whole(cugrad.ones(3, 2, device="cpu")).device.type == "simulated"


def test_buffers_of_the_first_device_are_the_module_s() -> None:
    net = nn.BatchNorm1d(3, device="cpu").train()
    nn.DataParallel(net, device_ids=BOTH)(batch())
    assert net.num_batches_tracked.item() == 1 and net.running_mean.tolist() != [0, 0, 0]


def test_replicas() -> None:
    net = model()
    net[0].shared = net[3]
    first, second = parallel.replicate(net, BOTH)
    for copy, device in ((first, "cpu"), (second, "simulated")):
        assert type(copy) is nn.Sequential and list(copy.parameters()) == []
        assert copy[0].weight.device.type == device and copy[0].weight.requires_grad
        assert copy[0].shared is copy[3] and copy[1].running_mean.device.type == device
    assert not parallel.replicate(net, TWO, detach=True)[0][0].weight.requires_grad
    assert len(list(net.parameters())) == 6


def test_scatter_and_gather() -> None:
    Pair = namedtuple("Pair", "a b")
    x = cugrad.arange(4.0, device="cpu")
    pieces = parallel.scatter({"x": [x, "same"], "p": Pair(x * 2, (x,)), "n": None, "e": ()}, BOTH)
    assert [p["x"][0].tolist() for p in pieces] == [[0, 1], [2, 3]]
    assert pieces[1]["p"].a.device.type == "simulated" and pieces[0]["x"][1] == "same"
    back = parallel.gather([{"p": p["p"], "n": None, "x": [p["x"][0]]} for p in pieces], "cpu")
    assert back["p"].a.tolist() == (x * 2).tolist() and back["n"] is None
    assert back["x"][0].tolist() == x.tolist() and type(back["p"]) is Pair
    assert len(parallel.scatter(x, ["cpu"] * 9)) == 4
    with pytest.warns(UserWarning, match="Was asked to gather along dimension 0, but all input"):
        assert parallel.gather([x[1], x[2]], -1).tolist() == [1, 2]
    with pytest.raises(ValueError, match="All dicts must have the same number of keys"):
        parallel.gather([{"a": x}, {}], "cpu")


class Looks(nn.Module):
    """Notes in which mode and thread it is called."""

    def __init__(self, seen: list[Any]) -> None:
        super().__init__()
        self.seen = seen

    def forward(self, x: Any) -> Any:
        state = (cugrad.is_grad_enabled(), cugrad.is_inference_mode_enabled())
        self.seen.append((threading.get_ident(), *state))
        return x * x


def test_threads_carry_grad_mode_and_hooks() -> None:
    seen: list[Any] = []
    packed: list[Any] = []

    def pack(t: Any) -> Any:
        packed.append((threading.get_ident(), t.tolist()))
        return t

    whole = nn.DataParallel(Looks(seen), device_ids=TWO)
    x = cugrad.arange(4.0, device="cpu", requires_grad=True)
    with cugrad.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        y = whole(x)
    others = [entry for entry in packed if entry[0] != threading.get_ident()]
    assert sorted(value for _, value in others) == [[0, 1], [0, 1], [2, 3], [2, 3]]
    y.sum().backward()
    assert x.grad.tolist() == [0, 2, 4, 6]
    with cugrad.no_grad():
        assert not whole(x).requires_grad
    with cugrad.inference_mode():
        whole(x)
    modes = [entry[1:] for entry in seen]
    assert modes == [(True, False)] * 2 + [(False, False)] * 2 + [(False, True)] * 2
    assert threading.get_ident() not in {entry[0] for entry in seen}


def test_errors_say_which_replica() -> None:
    class Fails(nn.Module):
        def forward(self, x: Any) -> Any:
            if x[0] > 1:
                raise KeyError("lost")
            return x

    with pytest.raises(KeyError, match="Caught KeyError in replica 1 on device cpu.*lost"):
        nn.DataParallel(Fails(), device_ids=TWO)(cugrad.arange(4.0, device="cpu"))
    with pytest.raises(AssertionError, match="number of modules 1 is not equal"):
        parallel.parallel_apply([Fails()], [1, 2])
    with pytest.raises(RuntimeError, match="no device was provided and no tensor input"):
        parallel.parallel_apply([Fails()], [(1,)])
    with pytest.raises(RuntimeError, match="module must have its parameters and buffers on device"):
        nn.DataParallel(nn.Linear(1, 1, device="cpu"), ["simulated", "cpu"])(cugrad.ones(2, 1))


def test_arguments_by_name_and_none_at_all() -> None:
    class Adds(nn.Module):
        def forward(self, x: Any = None, *, y: Any = None, scale: float = 1) -> Any:
            if y is None:
                return cugrad.zeros(1, device="cpu")
            return (0 if x is None else x) + y * scale

    whole = nn.DataParallel(Adds(), device_ids=TWO)
    x = cugrad.arange(3.0, device="cpu")
    assert whole(x, y=x, scale=2).tolist() == [0, 3, 6]
    assert whole(y=x).tolist() == [0, 1, 2]
    assert whole().tolist() == [0]
    found = parallel.data_parallel(Adds(), x, TWO, module_kwargs={"y": x}, output_device=-1)
    assert found.tolist() == [0, 2, 4]


def test_along_another_dim() -> None:
    whole = nn.DataParallel(nn.Identity(), device_ids=TWO, dim=1)
    assert whole(batch()).tolist() == batch().tolist()
