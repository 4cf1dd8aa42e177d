"""Arguments by all the names and places that PyTorch's documentation has for them."""

from __future__ import annotations

import io
import math
import pickle
import warnings
from typing import Any

import numpy as np
import pytest

import cugrad

torch = pytest.importorskip("torch")

CALLS = """
torch.abs_(input=a.clone())
torch.fill_(input=a.clone(), value=2)
torch.clamp_(input=a.clone(), min=0)
torch.as_strided_(input=a.clone(), size=(2,), stride=(1,))
torch.detach(input=a)
torch.index_put_(input=a.clone(), indices=(i,), values=a[0])
torch.resize_as_(input=a.clone(), the_template=a)
torch.squeeze_copy(a, out=torch.empty(0))
torch.narrow_copy(a, 0, 0, 2, out=torch.empty(0))
torch.split_copy(a, split_size=2)[1]
torch.view_copy(a, size=(9,))
torch.cholesky_solve(input=a, input2=spd)
a.cholesky_solve(input2=spd)
torch.det(input=a)
torch.inverse(input=spd)
torch.matrix_exp(input=a)
torch.matrix_power(input=a, n=2)
torch.slogdet(input=spd)[1]
torch.orgqr(input=a, input2=a[0])
a.orgqr(input2=a[0])
torch.ormqr(input=a, input2=a[0], input3=a)
torch.lu_solve(input=a, LU_data=spd, LU_pivots=torch.tensor([1, 2, 3], dtype=torch.int32))
torch.triangular_solve(input=a, A=spd)[0]
torch.linalg.norm(input=a)
torch.linalg.cond(input=a)
torch.linalg.lstsq(input=a, b=a).solution
torch.linalg.svdvals(a, driver=None)
torch.softmax(a, 0, torch.float64)
torch.log_softmax(a, 0, torch.float64)
torch.nn.functional.softmax(a, 0, 3, torch.float64)
torch.nn.functional.softmin(a, 0, _stacklevel=3)
torch.nonzero_static(a, size=4, out=torch.empty(0, dtype=torch.int64))
torch.nuclear_norm(a, out=torch.empty(()))
torch.frobenius_norm(a, dim=(0, 1), out=torch.empty(()))
torch.norm(a, 2, 0, False, None, torch.float64)
torch.tensordot(a, a, 1, torch.empty(0))
torch.rand_like(a, generator=torch.Generator()).shape
torch.randn_like(a, generator=torch.Generator()).shape
torch.randint_like(a, high=3, generator=torch.Generator()).shape
torch.randint(high=3, size=(2,)).shape
torch.rrelu(a, 0.1, 0.2, True, torch.Generator()).shape
torch.rrelu_(a.clone(), 0.1, 0.2, True, torch.Generator()).shape
torch.rsub(a, 1, 2)
torch.pow(self=2, exponent=a)
torch.bitwise_and(self=1, other=i)
torch.special.xlog1py(self=2.0, other=a.abs())
torch.searchsorted(a[0].sort()[0], self=0.5)
torch.tril_indices(2, 2, requires_grad=False)
torch.histogramdd(a, [2, 2, 2], [0.0, 1.0, 0.0, 1.0, 0.0, 1.0], None, True)[0]
torch.smm(a.to_sparse(), mat2=a).to_dense()
torch.unsafe_split(input=a, split_size=2)[0]
torch.tensor_split(a, tensor_indices_or_sections=torch.tensor(2))[0]
torch.rnn_tanh(r, h, w, True, 1, 0.0, False, False, False)[0]
torch.rnn_tanh(input=r, hx=h, params=w, has_biases=True, num_layers=1, dropout=0.0, train=False, bidirectional=False, batch_first=False)[0]
torch.rnn_tanh(data=r[:, 0], batch_sizes=i[:1].expand(4) + 1, hx=h, params=w, has_biases=True, num_layers=1, dropout=0.0, train=False, bidirectional=False)[0]
torch.bartlett_window(4, periodic=True, layout=torch.strided)
torch.repeat_interleave(repeats=i, output_size=1)
torch.sparse_coo_tensor(ii[:2, :2], a[0, :2], (3, 3), pin_memory=False).to_dense()
torch.arange(end=4)
torch.arange(end=4, dtype=torch.float32)
torch.arange(start=1, end=4)
str(torch.result_type(scalar=3, tensor=a))
str(torch.result_type(tensor=i, other=2.5))
torch.alias_copy(input=a)
torch.detach_copy(input=a)
torch.split_copy(input=a, split_size=1)[2]
torch.unfold_copy(input=a, dimension=0, size=2, step=1)
a.sum_to_size(size=(1, 3))
a.sum_to_size(1, 3)
a.clone().uniform_(**{"from": 2, "to": 3}).floor()
a.clone().random_(**{"from": 2, "to": 3})
a.copy_(other=a * 2)
a.count_nonzero(0, 1)
a.count_nonzero(dim=0)
a.cpu(memory_format=torch.preserve_format)
a.cumprod_(0, dtype=torch.float32)
a.expand((3, 3), implicit=False)
a.expand(size=(2, 3, 3))
a.broadcast_to(2, 3, 3)
a.permute(dims=(1, 0))
a.reshape(shape=(9,))
a.repeat(repeats=(2, 1))
a.tile(dims=(2,))
a.flip(dims=(0,))
a.view(size=(9,))
a.resize_(size=(3, 3))
a.swapaxes_(axis0=0, axis1=1)
a.is_pinned(device=None)
a.map_(other=a, callable=lambda x, y: x - y)
a.map2_(a, a, lambda x, y, z: x * y + z)
a.new_tensor([1], device="cpu")
a.new_tensor(data=[1], dtype=torch.int64)
a.new(size=(2, 3)).shape
a.new(2, device="cpu").shape
a.new_zeros((2,), pin_memory=False, layout=torch.strided)
a.new_full((2,), 1.0, layout=torch.strided, pin_memory=False)
a.new_empty_strided((2, 3), (1, 2), layout=torch.strided, pin_memory=False).stride()
a.to_sparse(layout=None, blocksize=None, dense_dim=None).to_dense()
a.to_sparse(dense_dim=1).values()
reversed(a)
saved(a, pickle, 2, True)
saved(a, _disable_byteorder_record=True)
""".strip().splitlines()  # noqa: E501


def names(lib: Any) -> dict[str, Any]:
    """What the calls speak of."""

    def saved(tensor: Any, *args: Any, **options: Any) -> Any:
        file = io.BytesIO()
        lib.save(tensor, file, *args, **options)
        file.seek(0)
        return lib.load(file, "cpu", pickle, weights_only=False)

    values = np.random.RandomState(0).randn(3, 3).astype("f4")
    return {
        "torch": lib, "pickle": pickle, "saved": saved, "a": lib.from_numpy(values.copy()),
        "spd": lib.eye(3) * 2, "i": lib.tensor([0, 1]),
        "ii": lib.tensor([[0, 1, 2], [1, 2, 0], [2, 0, 1]]), "r": lib.ones(4, 1, 3),
        "h": lib.zeros(1, 1, 2),
        "w": [lib.ones(2, 3), lib.ones(2, 2), lib.ones(2), lib.ones(2)],
    }  # fmt: skip


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call[:40])
def test_the_call_is_understood_as_in_pytorch(call: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours, theirs = eval(call, names(cugrad)), eval(call, names(torch))
    if not isinstance(theirs, torch.Tensor):
        assert tuple(ours) == tuple(theirs) if isinstance(theirs, tuple) else ours == theirs
        return
    assert str(ours.dtype) == str(theirs.dtype)
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-5, atol=1e-6)


def test_the_dtype_of_a_product() -> None:
    a = cugrad.full((2, 2), 1 + 2**-7, dtype=cugrad.bfloat16)
    assert cugrad.mm(a, a).dtype is cugrad.bfloat16
    for wide in (
        cugrad.mm(a, a, cugrad.float32), cugrad.bmm(a[None], a[None], out_dtype=cugrad.float32)[0],
        cugrad.addmm(a * 0, a, a, out_dtype=cugrad.float32),
        cugrad.baddbmm(a[None] * 0, a[None], a[None], out_dtype=cugrad.float32)[0],
    ):  # fmt: skip
        assert cugrad.equal(wide, a.float() @ a.float())
    with pytest.raises(RuntimeError, match="out_dtype must be the same as input dtype or fp32"):
        cugrad.mm(a, a, cugrad.float64)


def test_arguments_that_are_refused() -> None:
    x = cugrad.ones(2, 2)
    for error, message, call in [
        (RuntimeError, "driver=", lambda: cugrad.linalg.svd(x, driver="gesvd")),
        (RuntimeError, "CPU device type not an accelerator", lambda: x.pin_memory("cpu")),
        (RuntimeError, "should match", lambda: x.cumprod_(0, dtype=cugrad.float64)),
        (RuntimeError, "blocksize", lambda: x.to_sparse(blocksize=(1, 1))),
        (RuntimeError, "can require gradients",
         lambda: cugrad.tril_indices(2, 2, requires_grad=True)),
        (TypeError, "twice", lambda: x.view(4, size=(4,))),
        (NotImplementedError, "pickle_module", lambda: cugrad.save(x, io.BytesIO(), io)),
        (RuntimeError, "weights_only=False", lambda: cugrad.load(io.BytesIO(), None, pickle)),
        (TypeError, "LazyLinear: argument 'input' must be Tensor, not int",
         lambda: cugrad.nn.LazyLinear(2)(3)),
    ]:  # fmt: skip
        with pytest.raises(error, match=message):
            call()


@pytest.mark.filterwarnings("ignore:This overload")
def test_two_numbers_in_the_old_order_are_alpha_and_the_operand(lib: Any) -> None:
    one = lib.ones(2)
    for made, value in (
        (one.clone().add_(2, 3), 7), (one.add(2, 3), 7), (lib.add(one, 2, 3), 7),
        (one.clone().sub_(2, 3), -5), (lib.sub(one, 2, 3), -5),
    ):  # fmt: skip
        assert made.tolist() == [value, value]


@pytest.mark.filterwarnings("ignore:This overload")
def test_numbers_stand_before_tensors_or_are_named(lib: Any) -> None:
    one, square, cube = lib.ones(2), lib.ones(2, 2), lib.ones(2, 2, 2)
    affine = {
        "addmm": [square] * 3, "addmv": [one, square, one], "addr": [square, one, one],
        "addbmm": [square, cube, cube], "baddbmm": [cube] * 3,
    }  # fmt: skip
    for name, (first, *others) in affine.items():
        for method in (getattr(first, name), getattr(first.clone(), name + "_")):
            want = getattr(first, name)(*others, beta=2, alpha=3)
            assert method(2, 3, *others).tolist() == want.tolist()
            with pytest.raises(TypeError):
                method(*others, 3)
    for name in ("addcmul", "addcdiv"):
        assert getattr(one, name)(5, one, one).tolist() == [6, 6]
    for name in ("add", "sub"):
        want = getattr(one, name)(one, alpha=3).tolist()
        assert getattr(lib, name)(one, 3, one).tolist() == want
        for call in (getattr(one, name), getattr(one.clone(), name + "_")):
            assert call(3, one).tolist() == want
            with pytest.raises(TypeError):
                call(one, 3)
        with pytest.raises(TypeError):
            getattr(lib, name)(one, one, 3)


def test_tensors_of_one_number_are_settings(lib: Any) -> None:
    F, x, n = lib.nn.functional, lib.tensor([-0.1, 0.7, 0.95]), lib.tensor
    for name, settings in {
        "softshrink": (0.25,), "hardshrink": (0.25,), "hardtanh": (0.0, 0.5), "elu": (2.0,),
        "celu": (2.0,), "leaky_relu": (0.5,), "threshold": (0.5, 0.0), "softplus": (2.0, 20.0),
    }.items():  # fmt: skip
        function = getattr(F, name)
        assert function(x, *[n(s) for s in settings]).tolist() == function(x, *settings).tolist()


def test_an_eps_above_a_half_counts_before_its_counterpart(lib: Any) -> None:
    x = lib.tensor([0.1, 0.7, 0.95])
    want = [0.405465, -0.405465, -0.405465]
    assert lib.logit(x, eps=0.6).tolist() == pytest.approx(want, rel=1e-4)
    assert lib.logit(x, eps=1.0).tolist() == [math.inf] * 3


def test_of_no_images_a_transposed_convolution_makes_nothing(lib: Any) -> None:
    made = lib.conv_transpose2d(lib.ones(0, 1, 2, 2), lib.ones(1, 1, 1, 1), padding=1)
    assert made.shape == (0, 1, 0, 0)
