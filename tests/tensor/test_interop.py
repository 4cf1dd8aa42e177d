"""Checks that tensors meet NumPy, DLPack, buffers, pickle and Python's own protocols."""

from __future__ import annotations

import copy
import gc
import pickle
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import cugrad


@pytest.fixture(autouse=True)
def on_the_host(sealed_state: None) -> Iterator[None]:
    """NumPy's arrays, buffers and capsules of the CPU are what these tests are about."""
    with cugrad.device("cpu"):
        yield


DTYPES = ["bool", "uint8", "int16", "int64", "float16", "float32", "float64", "complex64"]


@pytest.mark.filterwarnings("ignore:__array_wrap__ must accept:DeprecationWarning")
def test_arithmetic_with_arrays_is_a_tensors(lib: Any) -> None:
    x, a = lib.arange(3.0), np.arange(3.0)
    assert isinstance(x * a, lib.Tensor) and (x * a).dtype == lib.float64
    assert isinstance(np.float64(2) * x, lib.Tensor) and (np.float64(2) * x).dtype == lib.float32
    assert isinstance(a == x, lib.Tensor) and (a == x).all()
    assert isinstance(np.exp(x), lib.Tensor)
    assert np.exp(x, out=np.zeros(3)).tolist() == pytest.approx(np.exp([0, 1, 2]).tolist())
    assert isinstance(np.concatenate([a, x]), np.ndarray)
    with pytest.raises(RuntimeError, match="Can't call numpy"):
        np.exp(lib.ones(2, requires_grad=True))


def test_an_array_times_a_tensor_is_recorded() -> None:
    x = cugrad.ones(3, requires_grad=True)
    for y in (np.arange(3.0) * x, np.arange(3.0) - x, 2**x, np.ones(3) / x):
        assert isinstance(y, cugrad.Tensor) and y.grad_fn is not None
    assert (np.arange(3.0) - x).tolist() == [-1.0, 0.0, 1.0]
    assert (np.arange(3.0) < cugrad.ones(3)).tolist() == [True, False, False]


def test_ufuncs_with_several_results_and_methods() -> None:
    whole, rest = np.divmod(cugrad.arange(3.0), 2)
    assert whole.tolist() == [0.0, 0.0, 1.0] and rest.tolist() == [0.0, 1.0, 0.0]
    assert np.multiply.reduce(cugrad.arange(1.0, 4.0)).item() == 6.0
    x = cugrad.zeros(3)
    np.add(x, 1, out=x)
    assert x.tolist() == [1.0] * 3 and x._version == 1


@pytest.mark.parametrize("name", DTYPES)
def test_dlpack_with_numpy_shares_memory(name: str) -> None:
    x = cugrad.ones(2, 3).to(getattr(cugrad, name)).T
    array = np.from_dlpack(x)
    assert np.shares_memory(array, x.numpy()) and array.strides == x.numpy().strides
    back = cugrad.from_dlpack(array)
    assert back.dtype is x.dtype and back.stride() == x.stride()
    assert back.data_ptr() == x.data_ptr()


@pytest.mark.parametrize("name", [*DTYPES, "bfloat16"])
def test_dlpack_with_pytorch_shares_memory(name: str) -> None:
    torch = pytest.importorskip("torch")
    theirs = torch.ones(2, 3).to(getattr(torch, name))
    ours = cugrad.from_dlpack(theirs)
    assert str(ours.dtype) == str(theirs.dtype) and ours.data_ptr() == theirs.data_ptr()
    ours.zero_()
    assert not theirs.any()
    again = torch.from_dlpack(ours)
    assert again.data_ptr() == theirs.data_ptr() and again.dtype == theirs.dtype
    capsule = torch.utils.dlpack.from_dlpack(cugrad.to_dlpack(ours))
    assert capsule.data_ptr() == theirs.data_ptr()
    from_capsule = cugrad.from_dlpack(torch.utils.dlpack.to_dlpack(theirs))  # of an old version
    assert from_capsule.data_ptr() == theirs.data_ptr()
    from_capsule.fill_(1)
    assert theirs.all()
    from_capsule.zero_()
    del theirs, again, capsule, from_capsule
    gc.collect()
    assert ours.tolist() == cugrad.zeros(2, 3).to(ours.dtype).tolist()


def test_dlpack_refuses_what_it_must(lib: Any) -> None:
    with pytest.raises(BufferError, match="require gradient"):
        lib.ones(2, requires_grad=True).__dlpack__()
    with pytest.raises(AssertionError, match="stream should be None on cpu"):
        lib.ones(2).__dlpack__(stream=1)
    assert tuple(map(int, lib.ones(2).__dlpack_device__())) == (1, 0)
    x = lib.ones(2)
    assert lib.from_dlpack(x).data_ptr() == x.data_ptr()
    assert lib.from_dlpack(x, copy=True).data_ptr() != x.data_ptr()
    with pytest.raises((RuntimeError, AttributeError)):
        lib.from_dlpack(3)


def test_a_capsule_is_used_once() -> None:
    capsule = cugrad.ones(2).__dlpack__()
    assert cugrad.from_dlpack(capsule).tolist() == [1.0, 1.0]
    with pytest.raises(RuntimeError, match="invalid capsule"):
        cugrad.from_dlpack(capsule)


def test_cudas_interface_is_for_tensors_there(lib: Any) -> None:
    x = lib.ones(2)
    assert not hasattr(x, "__cuda_array_interface__")
    with pytest.raises(AttributeError, match="on non-CUDA tensor type: torch.FloatTensor"):
        _ = x.__cuda_array_interface__


def test_frombuffer(lib: Any) -> None:
    memory = bytearray(8)
    x = lib.frombuffer(memory, dtype=lib.int16, offset=2, count=2)
    x.fill_(1)
    assert bytes(memory) == b"\0\0\1\0\1\0\0\0"
    with pytest.warns(UserWarning, match="not writable"):
        lib.frombuffer(b"abcd", dtype=lib.uint8)
    for options in ({"offset": 8}, {"offset": 1}, {"count": 3}, {"count": 0}):
        with pytest.raises(ValueError):
            lib.frombuffer(memory, dtype=lib.float32, **options)
    with pytest.raises(ValueError, match="buffer protocol"):
        lib.frombuffer(3, dtype=lib.float32)
    with pytest.raises(RuntimeError):
        lib.frombuffer(memory, dtype=lib.int32, requires_grad=True)


def test_asarray_shares_where_it_can(lib: Any) -> None:
    a, x = np.arange(3.0), lib.ones(3)
    assert lib.asarray(a).data_ptr() == a.ctypes.data and lib.asarray(x) is x
    assert lib.asarray(a, copy=True).data_ptr() != a.ctypes.data
    assert lib.asarray(a, dtype=lib.float32).dtype == lib.float32
    for made in (lambda: lib.asarray([1, 2], copy=False),
                 lambda: lib.asarray(x, dtype=lib.int32, copy=False)):  # fmt: skip
        with pytest.raises(ValueError, match="can't alias"):
            made()
    assert lib.asarray([1.0], requires_grad=True).requires_grad
    assert lib.asarray(bytearray(b"ab"), dtype=lib.uint8).tolist() == [97, 98]
    assert lib.asarray(3.5).item() == 3.5 and lib.asarray(np.float64(2)).dtype == lib.float64


def test_an_array_and_a_tensor_share_memory_and_no_more(lib: Any) -> None:
    """Shape, dtype and flags of an array are its own, on both ways."""
    array = np.arange(6.0)
    tensors = [lib.from_numpy(array), lib.as_tensor(array, device="cpu"), lib.asarray(array)]
    array.shape = (2, 3)
    array[1, 2] = 7.0
    assert all(x.shape == (6,) and x[5] == 7 for x in tensors)
    seen = tensors[0].numpy()
    assert seen is not tensors[0].numpy()
    seen.shape = (3, 2)
    seen.setflags(write=False)
    tensors[0].mul_(2)
    assert tensors[0].shape == (6,) and seen[2, 1] == 14


def test_from_numpy_refuses_what_a_tensor_cannot_share(lib: Any) -> None:
    read_only = np.arange(3.0)
    read_only.setflags(write=False)
    with pytest.warns(UserWarning, match="not writable"):
        lib.from_numpy(read_only)
    for array, error in ((np.arange(3)[::-1], ValueError), (np.arange(3, dtype=">i8"), ValueError),
                         (np.array(["a"]), TypeError), ([1], TypeError)):  # fmt: skip
        with pytest.raises(error):
            lib.from_numpy(array)


def test_numbers_of_a_tensor(lib: Any) -> None:
    assert int(lib.tensor(2.7)) == 2 and float(lib.tensor([[2]])) == 2.0
    assert complex(lib.tensor(2j)) == 2j and [1, 2, 3][lib.tensor(1)] == 2
    assert f"{lib.tensor(2.5):.2f}" == "2.50" and 1.0 in lib.arange(3.0)
    for bad, error in (
        (lambda: int(lib.ones(3)), ValueError), (lambda: float(lib.tensor(2j)), RuntimeError),
        (lambda: bool(lib.ones(3)), RuntimeError), (lambda: bool(lib.ones(0)), RuntimeError),
        (lambda: [1, 2][lib.tensor(1.0)], TypeError), (lambda: len(lib.tensor(1)), TypeError),
        (lambda: list(lib.tensor(1)), TypeError), (lambda: None in lib.ones(3), RuntimeError),
        (lambda: f"{lib.ones(3):.1f}", TypeError), (lambda: lib.ones(3).item(), RuntimeError),
    ):  # fmt: skip
        with pytest.raises(error):
            bad()


def test_array_protocol_of_numpy_2() -> None:
    x = cugrad.arange(3.0)
    assert np.shares_memory(np.asarray(x), x.numpy())
    assert not np.shares_memory(np.array(x, copy=True), x.numpy())
    assert np.asarray(x, dtype=np.int8).tolist() == [0, 1, 2]
    with pytest.raises(ValueError):
        x.__array__(dtype=np.int8, copy=False)
    for grad in (cugrad.ones(2, requires_grad=True),):
        with pytest.raises(RuntimeError, match="Use tensor.detach"):
            np.asarray(grad)
        assert grad.numpy(force=True).tolist() == [1.0, 1.0]


def test_pickles_and_copies(lib: Any) -> None:
    x = lib.arange(6.0).reshape(2, 3).T.requires_grad_()
    again = pickle.loads(pickle.dumps(x))
    assert again.requires_grad and again.tolist() == x.tolist() and again.is_leaf
    computed = pickle.loads(pickle.dumps(x * 2))
    assert computed.is_leaf and computed.requires_grad
    x.register_hook(lambda g: g)
    with pytest.warns(UserWarning, match="will not be serialized"):
        pickle.dumps(x)
    twice = copy.deepcopy([x, x])
    assert twice[0] is twice[1] and twice[0].data_ptr() != x.data_ptr()
    parameter = lib.nn.Parameter(lib.ones(2))
    assert type(copy.deepcopy(parameter)) is lib.nn.Parameter
    with pytest.raises(RuntimeError, match="graph leaves"):
        copy.deepcopy(x * 2)


STANDARD = """abs acos acosh add all any arange argmax argmin argsort asarray asin asinh astype atan
atan2 atanh bitwise_and bitwise_invert bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor
broadcast_arrays broadcast_to can_cast ceil clip concat conj copysign cos cosh count_nonzero
cumulative_prod cumulative_sum diff divide empty empty_like equal exp expand_dims expm1 eye finfo
flip floor floor_divide from_dlpack full full_like greater greater_equal hypot iinfo imag isdtype
isfinite isinf isnan less less_equal linspace log log10 log1p log2 logaddexp logical_and logical_not
logical_or logical_xor matmul matrix_transpose max maximum mean meshgrid min minimum moveaxis
multiply negative nextafter nonzero not_equal ones ones_like permute_dims positive pow prod real
reciprocal remainder repeat reshape result_type roll round searchsorted sign signbit sin sinh sort
sqrt square squeeze stack std subtract sum take take_along_axis tan tanh tensordot tile tril triu
trunc unique_all unique_counts unique_inverse unique_values unstack var vecdot where zeros
zeros_like"""
LINALG = """cholesky cross det diagonal eigh eigvalsh inv matmul matrix_norm matrix_power
matrix_rank matrix_transpose outer pinv qr slogdet solve svd svdvals tensordot trace vecdot
vector_norm"""


def test_the_array_api_namespace_has_every_name() -> None:
    space = cugrad.ones(2).__array_namespace__()
    assert [n for n in STANDARD.split() if not callable(getattr(space, n, None))] == []
    assert [n for n in LINALG.split() if not callable(getattr(space.linalg, n, None))] == []
    assert callable(space.fft.fftn) and space.__array_api_version__ == "2024.12"
    with pytest.raises(ValueError):
        cugrad.ones(2).__array_namespace__(api_version="1999.01")


def test_the_array_api_computes_what_numpy_does() -> None:
    a = np.arange(6.0).reshape(2, 3)
    x, xp = cugrad.tensor(a), cugrad.tensor(a).__array_namespace__()
    calls = [
        lambda p, v: p.sum(v, axis=0), lambda p, v: p.prod(v + 1), lambda p, v: p.max(v, axis=1),
        lambda p, v: p.var(v, axis=0, correction=1), lambda p, v: p.flip(v),
        lambda p, v: p.concat([v, v], axis=None), lambda p, v: p.roll(v, 1),
        lambda p, v: p.cumulative_sum(v, axis=1, include_initial=True),
        lambda p, v: p.take(v, p.asarray([2, 0]), axis=1), lambda p, v: p.tril(v, k=-1),
        lambda p, v: p.unique_all(p.astype(v > 2, v.dtype))[1], lambda p, v: p.all(v, axis=1),
        lambda p, v: p.permute_dims(v, (1, 0)), lambda p, v: p.linalg.trace(v, offset=1),
        lambda p, v: p.linspace(0, 1, 5, endpoint=False), lambda p, v: p.expand_dims(v, axis=1),
        lambda p, v: p.reshape(v, (3, 2), copy=True), lambda p, v: p.repeat(v, 2, axis=0),
        lambda p, v: p.sort(v, descending=True) if p is xp else np.sort(v)[:, ::-1],
    ]  # fmt: skip
    for call in calls:
        found, wanted = call(xp, x), call(np, a)
        np.testing.assert_allclose(np.asarray(found), np.asarray(wanted))
    assert xp.result_type(x, xp.int8) is xp.float64 and xp.isdtype(xp.int8, "integral")
    assert xp.can_cast(xp.int8, xp.int16) and not xp.can_cast(x, xp.int16)


def test_no_warning_from_numpys_deprecations() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.exp(cugrad.ones(2)), np.sqrt(np.ones(2) * cugrad.ones(2))
