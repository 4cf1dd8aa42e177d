"""Small names that programs use, each in a line or two."""

from __future__ import annotations

import importlib

import pytest

import cugrad


def test_every_method_of_a_tensor_says_what_it_does() -> None:
    names = [n for n in dir(cugrad.Tensor) if not n.startswith("_")]
    methods = {n: getattr(cugrad.Tensor, n, None) for n in names}
    silent = [n for n, m in methods.items() if callable(m) and not (m.__doc__ or "").strip()]
    assert not silent


def test_the_path_of_functional_call() -> None:
    stateless = importlib.import_module("cugrad.nn.utils.stateless")
    assert stateless is cugrad.nn.utils.stateless is cugrad.nn.stateless


def test_sums_of_adagrad_are_shared() -> None:
    parameter = cugrad.nn.Parameter(cugrad.ones(3))
    optimizer = cugrad.optim.Adagrad([parameter], initial_accumulator_value=0.5)
    parameter.grad = cugrad.ones(3)
    optimizer.step()
    optimizer.share_memory()
    total = optimizer.state[parameter]["sum"]
    assert total.is_shared() and total.tolist() == [1.5] * 3


@pytest.mark.host_only
def test_a_batch_in_memory_that_was_asked_for() -> None:
    """As copies of PyTorch's `default_collate` make it in a worker."""
    rows = [cugrad.full((3,), float(i)) for i in range(2)]
    memory = rows[0].storage()._new_shared(6)
    out = rows[0].new(memory).resize_(2, 3)
    assert cugrad.stack(rows, 0, out=out) is out and memory.tolist() == [0, 0, 0, 1, 1, 1]
    assert len(cugrad.UntypedStorage._new_shared(4)) == 4


def test_a_storage_keeps_its_size() -> None:
    x = cugrad.ones(3)
    for storage in (x.storage(), x.untyped_storage()):
        storage.resize_(storage.size())
        with pytest.raises(NotImplementedError, match="x.new_empty"):
            storage.resize_(0)


def test_what_a_process_has_raised() -> None:
    error = cugrad.multiprocessing.ProcessRaisedException("it fell", error_index=1, error_pid=7)
    assert (error.msg, error.error_index, error.pid) == ("it fell", 1, 7)


@pytest.mark.parametrize("name", ["cat", "concat", "concatenate"])
def test_errors_of_what_joins_name_the_function(name: str) -> None:
    function = getattr(cugrad, name)
    assert function.__name__ == name
    for wrong in (cugrad.ones(2), 5, [cugrad.ones(2), 3]):
        with pytest.raises(TypeError, match=rf"^{name}\(\): argument 'tensors'"):
            function(wrong)
