"""How modules replace their parameters when they are converted or loaded: torch.__future__."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

import cugrad


@pytest.fixture(params=["cugrad", "torch"])
def lib(request: Any) -> Iterator[Any]:
    library = cugrad if request.param == "cugrad" else pytest.importorskip("torch")
    yield library
    library.__future__.set_swap_module_params_on_conversion(False)
    library.__future__.set_overwrite_module_params_on_conversion(False)


def layer(lib: Any) -> tuple[Any, Any, Any]:
    module = lib.nn.Linear(2, 2)
    module(lib.ones(1, 2)).sum().backward()
    return module, module.weight, module.weight.grad


@pytest.mark.parametrize("way", ["data", "overwrite", "swap", "overwrite and swap"])
@pytest.mark.parametrize(
    "convert", [lambda m: m.double(), lambda m: m.to("meta"), lambda m: m.to_empty(device="meta")]
)
def test_parameters_stay_or_are_replaced(lib: Any, way: str, convert: Any) -> None:
    """PyTorch keeps the objects, but for those that leave for the device "meta"."""
    lib.__future__.set_overwrite_module_params_on_conversion("overwrite" in way)
    lib.__future__.set_swap_module_params_on_conversion("swap" in way)
    assert lib.__future__.get_swap_module_params_on_conversion() is ("swap" in way)
    module, weight, grad = layer(lib)
    convert(module)
    swapped, kept = "swap" in way, way == "data" and not module.weight.is_meta
    assert (module.weight is weight) is (swapped or kept)
    assert module.weight.requires_grad and isinstance(module.weight, lib.nn.Parameter)
    assert (module.weight.grad is grad) is (swapped or (lib is not cugrad and kept))
    assert module.weight.grad.dtype is module.weight.dtype


def test_loading_by_swaps(lib: Any) -> None:
    """`module_load` says what a parameter becomes; it may not be one of the two."""
    lib.__future__.set_swap_module_params_on_conversion(True)
    state = lib.nn.Linear(2, 2).double().state_dict()
    for assign, dtype in ((False, lib.float32), (True, lib.float64)):
        module, weight, _ = layer(lib)
        module.load_state_dict(state, assign=assign)
        assert module.weight is weight and weight.dtype is dtype and weight.requires_grad
        assert bool((weight == state["weight"].to(dtype)).all())

    class Itself(lib.nn.Parameter):  # type: ignore[misc, name-defined]
        def module_load(self, other: Any, assign: bool = False) -> Any:
            return self

    module.weight = Itself(lib.ones(2, 2))
    with pytest.raises(RuntimeError, match="While swapping.*module_load returned one of self"):
        module.load_state_dict(state)


def test_what_cannot_be_swapped(lib: Any) -> None:
    lib.__future__.set_swap_module_params_on_conversion(True)
    module = lib.nn.Linear(2, 2)
    held = weakref.ref(module.weight)
    with pytest.raises(RuntimeError, match=r"_apply\(\): Couldn't swap Linear.weight"):
        module.double()
    assert held() is module.weight

    class Slotted(lib.Tensor):  # type: ignore[misc, name-defined]
        __slots__ = ("more",)

    with pytest.raises(RuntimeError, match="different slots"):
        lib.utils.swap_tensors(lib.ones(1), Slotted([1.0]))


def test_two_tensors_become_each_other(lib: Any) -> None:
    one, two = lib.ones(2), lib.nn.Parameter(lib.zeros(3))
    two.note, first = "a note", [one]
    lib.utils.swap_tensors(one, two)
    assert first[0] is one and isinstance(one, lib.nn.Parameter) and one.note == "a note"
    assert one.shape == (3,) and one.requires_grad
    assert type(two) is lib.Tensor and two.tolist() == [1, 1] and not hasattr(two, "note")


def test_values_for_parameters_without_elements_are_told(lib: Any) -> None:
    module = lib.nn.Linear(2, 2, device="meta")
    with pytest.warns(UserWarning, match="which is a no-op"):
        module.load_state_dict(lib.nn.Linear(2, 2).state_dict())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        module.load_state_dict(lib.nn.Linear(2, 2).state_dict(), assign=True)


def test_a_number_may_be_a_vector_of_one(lib: Any) -> None:
    """Files of PyTorch 0.3 have no tensors without dims."""
    module = lib.nn.Module()
    module.scale = lib.nn.Parameter(lib.tensor(1.0))
    module.load_state_dict({"scale": lib.tensor([3.0])})
    assert module.scale.item() == 3
