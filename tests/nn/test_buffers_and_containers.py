"""What PyTorch's own tests of torch.nn ask for beside layers: buffers, parameters in containers."""

from __future__ import annotations

import copy
import io
import pickle
from collections import OrderedDict
from typing import Any

import pytest


def test_buffers_by_assignment(lib: Any) -> None:
    net = lib.nn.Module()
    net.running = lib.nn.Buffer(lib.ones(2))
    net.scratch = lib.nn.Buffer(lib.zeros(1), persistent=False)
    assert [name for name, _ in net.named_buffers()] == ["running", "scratch"]
    assert list(net.state_dict()) == ["running"] and list(net.parameters()) == []
    assert isinstance(net.running, lib.nn.Buffer) and isinstance(net.running, lib.Tensor)
    assert not isinstance(lib.ones(1), lib.nn.Buffer) and not isinstance(3, lib.nn.Buffer)
    net.scratch = lib.ones(3)  # a tensor takes the place, and stays out of the state
    assert list(net.state_dict()) == ["running"] and net.scratch.shape == (3,)
    net.layer = lib.nn.ReLU()
    with pytest.raises(TypeError, match="as child module 'layer'"):
        net.layer = lib.nn.Buffer(lib.ones(1))
    plain = lib.ones(2)
    assert lib.nn.Buffer(plain).data_ptr() == plain.data_ptr()
    with pytest.raises(AttributeError, match="before Module.__init__"):
        lib.nn.Module.__new__(lib.nn.Module).b = lib.nn.Buffer(plain)


def test_lists_of_parameters(lib: Any) -> None:
    held = lib.nn.ParameterList([lib.nn.Parameter(lib.ones(2)), lib.zeros(3), "text"])
    assert [name for name, _ in held.named_parameters()] == ["0", "1"] and len(held) == 3
    assert repr(held) == (
        f"ParameterList(\n    (0): Parameter containing: [{lib.float32} of size 2]\n"
        f"    (1): Parameter containing: [{lib.float32} of size 3]\n"
        "    (2): Object of type: str\n)"
    ) or held[0].device.type != "cpu"  # fmt: skip
    held.append(lib.ones(1))
    held.extend([lib.ones(4)])
    held += [lib.ones(5)]
    assert [p.shape[0] for p in held if p != "text"] == [2, 3, 1, 4, 5]
    held[-1] = lib.ones(6)
    assert isinstance(held[-1], lib.nn.Parameter) and held[5].shape == (6,)
    assert len(held[1:3]) == 2 and held[1:3][1] == "text"
    for wrong in (7, -7):
        with pytest.raises(IndexError, match=f"index {wrong} is out of range"):
            held[wrong]
    with pytest.raises(TypeError, match="should be called with an iterable, but got Tensor"):
        held.extend(lib.ones(2))
    with pytest.raises(RuntimeError, match="ParameterList should not be called"):
        held(1)
    again = pickle.loads(pickle.dumps(held))
    assert lib.equal(again[0], held[0]) and again[2] == "text"
    again.load_state_dict(held.state_dict())


def test_dicts_of_parameters(lib: Any) -> None:
    held = lib.nn.ParameterDict({"left": lib.ones(2), "n": 4})
    held["right"] = lib.nn.Parameter(lib.zeros(3), requires_grad=False)
    assert list(held) == ["left", "n", "right"] == list(held.keys()) and len(held) == 3
    assert [name for name, _ in held.named_parameters()] == ["left", "right"]
    assert list(reversed(held)) == ["right", "n", "left"] and "n" in held and "m" not in held
    assert held.get("m", 3) == 3 and held.setdefault("n", 5) == 4
    assert lib.equal(dict(held.items())["left"], held["left"]) and list(held.values())[1] == 4
    held.update([("m", lib.ones(1))])
    held.update({"o": lib.ones(1)})
    assert isinstance(held.pop("m"), lib.nn.Parameter) and held.popitem()[0] == "o"
    both = held | lib.nn.ParameterDict({"up": lib.ones(1)})
    assert list(both) == ["left", "n", "right", "up"] and both["left"] is held["left"]
    held |= lib.nn.ParameterDict({"down": lib.ones(1)})
    del held["down"]
    assert list(copy.deepcopy(held)) == ["left", "n", "right"]
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        held["nothing"]
    with pytest.raises(RuntimeError, match="ParameterDict should not be called"):
        held(1)
    held.clear()
    assert len(held) == 0 and list(held.parameters()) == []
    with pytest.raises(TypeError, match="cannot be used as a key as it is not a string"):
        held[3] = lib.ones(1)


def test_modules_by_path(lib: Any) -> None:
    net = lib.nn.Sequential(lib.nn.Sequential(lib.nn.ReLU()))
    net.set_submodule("0.0", lib.nn.Tanh())
    assert type(net[0][0]).__name__ == "Tanh"
    net.set_submodule("0.new", lib.nn.Tanh())
    assert len(net[0]) == 2
    with pytest.raises(AttributeError, match="has no attribute `gone`"):
        net.set_submodule("0.gone", lib.nn.Tanh(), strict=True)
    with pytest.raises(ValueError, match="without a target name"):
        net.set_submodule("", lib.nn.Tanh())
    with pytest.raises(ValueError, match="is not an nn.Module, found"):
        net.set_submodule("0.0", 3)
    with pytest.raises(AttributeError, match="`training` is not an nn.Module"):
        net.set_submodule("0.training", lib.nn.Tanh())


def test_parts_by_path_are_of_their_kind(lib: Any) -> None:
    net = lib.nn.Sequential(lib.nn.BatchNorm1d(2))
    assert net.get_parameter("0.weight") is net[0].weight
    assert net.get_buffer("0.running_mean") is net[0].running_mean
    with pytest.raises(AttributeError, match="`running_mean` is not an nn.Parameter"):
        net.get_parameter("0.running_mean")
    with pytest.raises(AttributeError, match="`weight` is not a buffer"):
        net.get_buffer("0.weight")
    with pytest.raises(AttributeError, match="BatchNorm1d has no attribute `gone`"):
        net.get_buffer("0.gone")


def test_modules_are_cast_to_dtypes_alone(lib: Any) -> None:
    with pytest.raises(TypeError):
        lib.nn.Linear(1, 1).to("cpu", lib.tensor(2))


def test_sequential_times_a_number(lib: Any) -> None:
    net = lib.nn.Sequential(lib.nn.Linear(2, 2), lib.nn.ReLU())
    assert len(net * 3) == len(2 * net) + 2 == 6 and (net * 2)[2] is net[0]
    net *= 2
    assert len(net) == 4
    with pytest.raises(ValueError, match="Non-positive multiplication factor 0 for"):
        net * 0
    with pytest.raises(TypeError, match="unsupported operand type"):
        net * 1.5


def test_two_inputs_and_splitting_a_dimension(lib: Any) -> None:
    layer = lib.nn.Bilinear(2, 3, 4)
    x, y = lib.randn(5, 2), lib.randn(5, 3)
    want = lib.einsum("bi,oij,bj->bo", x, layer.weight, y) + layer.bias
    assert lib.allclose(layer(x, y), want, atol=1e-5)
    assert repr(layer) == "Bilinear(in1_features=2, in2_features=3, out_features=4, bias=True)"
    assert float(layer.weight.detach().abs().max()) <= 2**-0.5
    with pytest.raises(ValueError, match="in1_features must be > 0, but got"):
        lib.nn.Bilinear(0, 3, 4)
    split = lib.nn.Unflatten(1, (2, -1))
    assert split(lib.ones(3, 10)).shape == (3, 2, 5)
    assert repr(split) == "Unflatten(dim=1, unflattened_size=(2, -1))"
    with pytest.raises(TypeError, match="must be tuple of ints, but found element of type str"):
        lib.nn.Unflatten(1, (2, "a"))


def test_modules_without_values(lib: Any) -> None:
    layer = lib.nn.Linear(2, 3)
    weight, place = layer.weight, layer.weight.device
    assert layer.to_empty(device=place) is layer and layer.weight is weight
    assert weight.shape == (3, 2) and weight.requires_grad


def test_state_dict_by_position_is_deprecated(lib: Any) -> None:
    layer, found = lib.nn.Linear(1, 1), OrderedDict[str, Any]()
    with pytest.warns(FutureWarning, match="Positional args are being deprecated"):
        assert layer.state_dict(found, "p.", True) is found
    assert list(found) == ["p.weight", "p.bias"] and found["p.weight"] is layer.weight


def test_containers_are_saved(lib: Any) -> None:
    net = lib.nn.Module()
    net.held = lib.nn.ParameterDict({"a": lib.ones(2)})
    net.b = lib.nn.Buffer(lib.zeros(2))
    file = io.BytesIO()
    lib.save(net.state_dict(), file)
    file.seek(0)
    net.load_state_dict(lib.load(file))
    file = io.BytesIO()
    lib.save(net, file)
    file.seek(0)
    again = lib.load(file, weights_only=False)
    assert lib.equal(again.held["a"], net.held["a"]) and lib.equal(again.b, net.b)


def test_containers_refuse_and_order_as_pytorchs(lib: Any) -> None:
    nn = lib.nn
    assert list(nn.ParameterDict({"b": lib.ones(1), "a": lib.ones(1)})) == ["a", "b"]
    assert list(nn.ParameterDict([("b", lib.ones(1)), ("a", lib.ones(1))])) == ["b", "a"]
    assert list(nn.ModuleDict({"b": nn.ReLU(), "a": nn.ReLU()})) == ["b", "a"]
    assert "FloatTensor of size 1" in repr(nn.ParameterDict({"a": lib.ones(1)}))
    assert repr(nn.EmbeddingBag(4, 2, padding_idx=0, sparse=True)) == (
        "EmbeddingBag(4, 2, mode='mean', padding_idx=0)"
    )
    for error, text, call in (
        (ValueError, "add operator supports only", lambda: nn.Sequential() + 3),
        (ValueError, "Non-positive multiplication factor 0", lambda: nn.Sequential() * 0),
        (AssertionError, "module should be of type", lambda: nn.Sequential().insert(0, 3)),
        (TypeError, "iterable of key/value pairs", lambda: nn.ModuleDict().update(3)),
        (TypeError, "element #0 should be Iterable", lambda: nn.ModuleDict().update([1])),
        (ValueError, "has length 3; 2 is required", lambda: nn.ModuleDict().update([(1, 2, 3)])),
        (TypeError, "FloatTensor", lambda: nn.ReLU().register_parameter("p", lib.ones(1))),
    ):  # fmt: skip
        with pytest.raises(error, match=text):
            call()


def test_texts_of_lists_and_dicts_in_one_another(lib: Any) -> None:
    """What is put in has a line; modules have another one, as in any module."""
    nn = lib.nn
    inner = nn.ParameterList([lib.ones(2)])
    outer = nn.ParameterDict({"list": inner, "number": 3, "layer": nn.Linear(1, 1)})
    if inner[0].device.type != "cpu":
        return  # it has a line that says where
    one = f"Parameter containing: [{lib.float32} of size 2]"
    assert repr(inner) == f"ParameterList(  (0): {one})"
    assert repr(nn.Sequential(outer, nn.ParameterDict())) == (
        "Sequential(\n  (0): ParameterDict(\n"
        "      (layer): Object of type: Linear\n"
        "      (list): Object of type: ParameterList\n"
        "      (number): Object of type: int\n"
        "    (layer): Linear(in_features=1, out_features=1, bias=True)\n"
        f"    (list): ParameterList(  (0): {one})\n"
        "  )\n  (1): ParameterDict()\n)"
    )


def test_a_buffer_says_anew_whether_a_state_dict_holds_it(lib: Any) -> None:
    net = lib.nn.Module()
    net.register_buffer("mean", lib.zeros(2), persistent=False)
    net.mean = lib.ones(2)
    assert list(net.state_dict()) == []
    net.mean = lib.nn.Buffer(lib.ones(2))
    assert list(net.state_dict()) == ["mean"]
    net.mean = lib.nn.Buffer(lib.ones(2), persistent=False)
    assert list(net.state_dict()) == []


def test_none_is_no_parameter_to_get(lib: Any) -> None:
    net = lib.nn.Linear(2, 2, bias=False)
    with pytest.raises(AttributeError, match="`bias` is not an nn.Parameter"):
        net.get_parameter("bias")


def test_a_list_answers_an_insertion_with_nothing(lib: Any) -> None:
    layers = lib.nn.ModuleList([lib.nn.ReLU()])
    assert layers.insert(0, lib.nn.Tanh()) is None and len(layers) == 2
    assert layers.append(lib.nn.Tanh()) is layers is layers.extend([])
    chain = lib.nn.Sequential(lib.nn.ReLU())
    assert chain.insert(0, lib.nn.Tanh()) is chain
