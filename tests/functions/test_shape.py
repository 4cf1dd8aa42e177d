"""Views, pieces, padding and memory: one body for cugrad and PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cugrad


def ramp(lib: Any, *shape: int, grad: bool = True) -> Any:
    n = int(np.prod(shape))
    x = lib.arange(float(n)).reshape(shape)
    return x.requires_grad_() if grad else x


# Several views at once ----------------------------------------------------------------------------


def test_unbind_and_split_are_one_node(lib: Any) -> None:
    x = ramp(lib, 4, 3)
    rows, halves, sizes = x.unbind(), x.split(2), x.split([1, 3])
    assert {r.grad_fn.name() for r in rows} == {"UnbindBackward0"}
    assert halves[0].grad_fn.name() == "SplitBackward0"
    assert sizes[0].grad_fn.name() == "SplitWithSizesBackward0"
    assert rows[0].grad_fn is rows[3].grad_fn or rows[0].grad_fn == rows[3].grad_fn
    (rows[0].sum() * 2 + rows[2].sum() * 3).backward()
    assert x.grad.tolist() == [[2.0] * 3, [0.0] * 3, [3.0] * 3, [0.0] * 3]


def test_iteration_unbinds(lib: Any) -> None:
    x = ramp(lib, 3, 2)
    first, *_ = x
    assert first.grad_fn.name() == "UnbindBackward0"


@pytest.mark.parametrize("cut", ["unbind()", "split(2)", "split([1, 3])", "chunk(2)"])
def test_pieces_may_not_be_changed_in_place(lib: Any, cut: str) -> None:
    y = ramp(lib, 4, 3) * 1
    first = eval(f"y.{cut}[0]", {"y": y})
    with pytest.raises(RuntimeError, match="output of a function that returns multiple views"):
        first.mul_(2)


def test_nor_where_only_the_change_has_history(lib: Any) -> None:
    y, w = lib.zeros(2, 3), lib.ones(3).requires_grad_()
    first, _ = y.unbind()
    with pytest.raises(RuntimeError, match="modified inplace"):
        first.mul_(w)


def test_unsafe_pieces_may(lib: Any) -> None:
    x = ramp(lib, 4, 3)
    first = (x * 1).unsafe_chunk(2)[0]
    first.mul_(2)
    first.sum().backward()
    assert x.grad.tolist() == [[2.0] * 3] * 2 + [[0.0] * 3] * 2


def test_double_backward_through_pieces(lib: Any) -> None:
    x = ramp(lib, 3, 2)
    a, _, c = x.unbind()
    (g,) = lib.autograd.grad((a * a * c).sum(), x, create_graph=True)
    (h,) = lib.autograd.grad(g.sum(), x)
    assert h.tolist() == [[8.0, 12.0], [0.0, 0.0], [0.0, 2.0]]


# Strides ------------------------------------------------------------------------------------------


def test_as_strided_is_a_view_with_its_gradient(lib: Any) -> None:
    x = ramp(lib, 6)
    w = lib.tensor([[1.0, 2.0, 3.0]] * 4)
    (x.as_strided((4, 3), (1, 1)) * w).sum().backward()
    assert x.grad.tolist() == [1.0, 3.0, 6.0, 6.0, 5.0, 3.0]
    y = ramp(lib, 6) * 1
    y.as_strided((2, 2), (3, 1), 1).mul_(2)
    assert y.tolist() == [0.0, 2.0, 4.0, 3.0, 8.0, 10.0]


def test_as_strided_counts_what_overlaps_in_the_input(lib: Any) -> None:
    x = ramp(lib, 2)
    wide = x.expand(3, 2)
    wide.as_strided((2,), (1,)).sum().backward()
    assert x.grad.tolist() == [1.0, 1.0]


def test_as_strided_gradient_of_a_transposed_tensor(lib: Any) -> None:
    x = ramp(lib, 2, 3)
    x.t().as_strided((3,), (1,), 2).mul(lib.tensor([1.0, 2.0, 3.0])).sum().backward()
    assert x.grad.tolist() == [[0.0, 0.0, 1.0], [2.0, 3.0, 0.0]]


def test_as_strided_stays_inside(lib: Any) -> None:
    with pytest.raises(RuntimeError, match="out of bounds for storage of size"):
        lib.arange(4).as_strided((5,), (1,))


def test_unfold_is_a_view(lib: Any) -> None:
    y = ramp(lib, 2, 4, grad=False)
    y.unfold(1, 2, 2).mul_(lib.tensor([2.0, 3.0]))
    assert y.tolist() == [[0.0, 3.0, 4.0, 9.0], [8.0, 15.0, 12.0, 21.0]]


def test_complex_views_share_memory(lib: Any) -> None:
    x = ramp(lib, 2, 2)
    y = x * 1
    lib.view_as_complex(y).mul_(2j)
    assert y.tolist() == [[-2.0, 0.0], [-6.0, 4.0]]
    y.sum().backward()
    assert x.grad.tolist() == [[2.0, -2.0], [2.0, -2.0]]


def test_the_same_bytes_as_another_dtype(lib: Any) -> None:
    x = lib.tensor([1.0, 2.0], dtype=lib.float32)
    assert x.view(lib.int32).tolist() == [0x3F800000, 0x40000000]
    assert tuple(x.view(lib.uint8).shape) == (8,)
    assert tuple(lib.zeros(2, 4, dtype=lib.int16).view(lib.float64).shape) == (2, 1)


# Views in place -----------------------------------------------------------------------------------


def test_views_in_place_keep_history(lib: Any) -> None:
    x = ramp(lib, 2, 3)
    y = x * 2
    row = y[0]
    y.t_()
    y.mul_(3)
    assert tuple(y.shape) == (3, 2)
    (row * row).sum().backward()
    assert x.grad.tolist() == [[0.0, 72.0, 144.0], [0.0, 0.0, 0.0]]


def test_a_view_may_turn_in_place(lib: Any) -> None:
    x = ramp(lib, 2, 3)
    y = x * 2
    v = y.view(3, 2)
    v.transpose_(0, 1)
    v.mul_(lib.tensor([[1.0], [5.0]]))
    y.sum().backward()
    assert x.grad.tolist() == [[2.0, 10.0, 2.0], [10.0, 2.0, 10.0]]


def test_a_leaf_may_not(lib: Any) -> None:
    with pytest.raises(RuntimeError, match="leaf"):
        ramp(lib, 2, 3).t_()


# Memory -------------------------------------------------------------------------------------------


def test_clones_keep_the_order_of_dims(lib: Any) -> None:
    x = lib.zeros(2, 3, 4).permute(2, 0, 1)
    assert tuple(x.clone().stride()) == tuple(lib.empty_like(x).stride()) == (1, 12, 4)
    assert tuple(x[::2].clone().stride()) == (1, 6, 2)
    assert tuple(x.clone(memory_format=lib.contiguous_format).stride()) == (6, 3, 1)
    image = lib.zeros(2, 3, 4, 5).contiguous(memory_format=lib.channels_last)
    assert tuple(image.stride()) == (60, 1, 15, 3)
    assert image.is_contiguous(memory_format=lib.channels_last)
    assert not image.is_contiguous()


def test_storage(lib: Any) -> None:
    x = lib.arange(6)
    assert x[2:].storage_offset() == 2
    assert x[2:].is_set_to(x[2:]) and not x[2:].is_set_to(x[1:])
    assert x[3:].untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
    assert x.untyped_storage().nbytes() == 48
    x.resize_(2, 2)
    assert x.tolist() == [[0, 1], [2, 3]]
    assert tuple(lib.empty_permuted((2, 3, 4), (0, 2, 1)).stride()) == (12, 1, 3)


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
def test_storages_are_of_public_classes(lib: Any) -> None:
    x = lib.tensor([[1.0, 2.0], [3.0, 4.0]])
    memory, typed = x[1].untyped_storage(), x[1].storage()
    assert type(memory) is lib.UntypedStorage and isinstance(typed, lib.TypedStorage)
    assert isinstance(typed, lib.FloatStorage) and not isinstance(typed, lib.LongStorage)
    assert (len(memory), memory.nbytes(), len(typed), typed.nbytes()) == (16, 16, 4, 16)
    assert typed.tolist() == [1, 2, 3, 4] and typed[2] == 3 and typed.dtype == lib.float32
    assert typed.untyped().data_ptr() == memory.data_ptr() and memory[3] == 63
    typed[1] = 7.0
    assert x.tolist() == [[1, 7], [3, 4]]
    made = lib.DoubleStorage([1.0, 2.0])
    assert isinstance(made, lib.DoubleStorage) and made.tolist() == [1, 2]
    empty = lib.UntypedStorage(4).fill_(3)
    assert empty.tolist() == [3] * 4 and empty.clone().copy_(memory[:4])[3] == 63


# Padding ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate", "circular"])
def test_pad_of_images(lib: Any, mode: str) -> None:
    x = ramp(lib, 1, 1, 2, 3)
    y = lib.nn.functional.pad(x, (1, 2, 1, 0), mode=mode)
    top = {"constant": 0.0, "reflect": 4.0, "replicate": 0.0, "circular": 5.0}[mode]
    assert tuple(y.shape) == (1, 1, 3, 6) and y[0, 0, 0, 0].item() == top
    y.sum().backward()
    assert x.grad.sum().item() == (6.0 if mode == "constant" else 18.0)


def test_pad_says_what_is_wrong(lib: Any) -> None:
    x = ramp(lib, 1, 2, 3)
    with pytest.raises(RuntimeError, match="Padding length"):
        lib.nn.functional.pad(x, (1, 1, 1))
    with pytest.raises(RuntimeError, match="Padding size should be less than"):
        lib.nn.functional.pad(x, (3, 0), mode="reflect")
    with pytest.raises(NotImplementedError, match="Unrecognised padding mode"):
        lib.nn.functional.pad(x, (1, 0), mode="mirror")
    for cut in ((-4, 5), (1, 1, 4, -3), (0, 0, -3, 4)):  # more than there is, and then a border
        with pytest.raises(RuntimeError, match="negative"):
            lib.nn.functional.pad(x, cut)


ORDERS = """
torch.zeros(2, 3)
torch.zeros(2, 3).t()
torch.zeros(())
torch.zeros(1, 1, 1)
torch.zeros(2, 1, 3)
torch.zeros(2, 3, 4, 5).to(memory_format=torch.channels_last)
torch.zeros(2, 3, 4, 5, 6).to(memory_format=torch.channels_last_3d)
torch.zeros(2, 1, 3, 3)
torch.zeros(2, 3, 1, 1)
torch.zeros(3, 1, 4).expand(3, 5, 4).transpose(0, 2)
torch.zeros(2, 3, 5, 6)[:, :, ::2].permute(3, 1, 0, 2)
torch.zeros(5).as_strided((3, 2), (1, 1))
torch.zeros(5).as_strided((2, 3), (1, 1))
"""
CHECKS = ["False", "True", "[]", "[torch.contiguous_format]", "[torch.channels_last]", "3", "[3]",
          "[torch.contiguous_format, torch.channels_last]"]  # fmt: skip


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("tensor", ORDERS.strip().splitlines())
def test_the_order_of_dims_in_memory(tensor: str, check: str) -> None:
    def order(lib: Any) -> Any:
        x, how = eval(tensor, {"torch": lib}), eval(check, {"torch": lib})
        try:
            return x.dim_order(ambiguity_check=how)
        except (RuntimeError, TypeError) as error:
            return type(error), str(error)

    assert order(cugrad) == order(pytest.importorskip("torch"))
