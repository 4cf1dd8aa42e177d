"""The words of errors that programs match, which are those of PyTorch's that begin its text."""

from __future__ import annotations

import re
from typing import Any

import pytest

R, T, V, N, A = RuntimeError, TypeError, ValueError, NotImplementedError, AssertionError
x, wide, ints, flags = "t.ones(2)", "t.ones(2).double()", "t.ones(2).long()", "(t.ones(2) > 0)"
table = "t.zeros(4, 3)"
SEEN = "to view Float as Double (different element sizes)"

WORDS = [
    (f"{table}[:, :2].view(t.double)", R, f"self.stride(0) must be divisible by 2 {SEEN}"),
    (f"{table}[0, 1:].view(t.double)", R, f"self.storage_offset() must be divisible by 2 {SEEN}"),
    (f"{table}.view(t.double)", R, f"self.size(-1) must be divisible by 2 {SEEN}, but got 3"),
    (f"{table}.t().view(t.double)", R, f"self.stride(-1) must be 1 {SEEN}, but got 3"),
    ("t.tensor(1.0).view(t.double)", R, f"self.dim() cannot be 0 {SEEN}"),
    (f"t.take({x}, {x})", R, "take(): Expected a long tensor for index, but got Float"),
    (f"t.take({x}, {ints}.int())", R, "take(): Expected a long tensor for index, but got Int"),
    (f"t.take_along_dim({x}, {ints}.int(), 0)", R, "dtype of indices should be Long but got Int"),
    (f"-{flags}", R, "Negation, the `-` operator, on a bool tensor is not supported."),
    (f"{flags}.neg_()", R, "Negation, the `-` operator, on a bool tensor is not supported."),
    (f"{x}.bitwise_not()", N, "not implemented for 'Float'"),
    (f"{x} & {x}", N, "not implemented for 'Float'"),
    ("t.device('cpu', -2)", R, "Device index must not be negative"),
    (f"t.movedim({table}, (0, -2), (0, 1))", R, "movedim: repeated dim in `source`"),
    (f"t.movedim({table}, (0, 1), (1, 1))", R, "movedim: repeated dim in `destination`"),
    (f"t.unravel_index({x}, (2, 2))", T, "expected 'indices' to be integer dtype"),
    (f"t.unravel_index({ints}, {ints})", T, "expected 'shape' to be int or sequence of ints"),
    ("t.nn.TripletMarginLoss(margin=0)", V, "expected margin to be greater than 0, got 0 instead"),
    ("t.nn.Hardtanh(2, 1)", A, "max_val (1) must be greater than min_val (2)"),
    (f"t.polar({x}, {wide})", R, "scalar type Float but got scalar type Double for second"),
    (f"t.complex({x}, {wide})", R, "scalar type Float but got scalar type Double for second arg"),
    (f"t.complex({ints}, {x})", R, "Half, Float or Double tensors but got Long and Float"),
    (f"t.where({x}, 1, 2)", R, "to be a boolean tensor, but got a tensor with dtype Float"),
    (f"{ints}.mean()", R, "must be either a floating point or complex dtype. Got: Long"),
    (f"t.isclose({x}, {wide})", R, "Float did not match Double"),
    (f"{x}.masked_fill({x}, 1)", R, "only supports boolean masks, but got mask with dtype float"),
    (f"{x}.masked_fill({flags}, {x})", R, "masked_fill_ only supports a 0-dimensional value"),
    (f"{x}.put({ints}, {wide})", R, "got self.dtype = Float and source.dtype = Double"),
    (f"{x}.index_put(({ints},), {wide})", R, "Float for the destination and Double for the"),
    (f"{x}.index_copy(0, {ints}, {wide})", R, "but got (self) Float and (source) Double"),
    (f"{table}.scatter(0, {ints}, {x})", R, "the same number of dimensions as self tensor"),
    (f"{table}.gather(0, {ints})", R, "the same number of dimensions as input tensor"),
    ("t.zeros(2).scatter(0, t.zeros(3).long(), t.zeros(2))", R,
     "Expected index [3] to be no larger than self [2] apart from dimension 0"),
    (f"{x}.split(-1)", R, "split expects split_size be non-negative, but got split_size=-1"),
    ("t.nn.Linear(3, 2)(t.ones(4, 2))", R, "mat1 and mat2 shapes cannot be multiplied (4x2 and"),
    ("t.nn.Linear(3, 2)(t.ones(2, 4, 2))", R, "cannot be multiplied (8x2 and 3x2)"),
    (f"t.nn.functional.conv1d({table}, t.ones(2, 4, 1), padding='all')", R, "Invalid padding"),
    (f"{x}.normal_(0, -1)", R, "normal expects std >= 0.0, but found std -1"),
]  # fmt: skip


@pytest.mark.parametrize("line, kind, words", WORDS, ids=[line for line, _, _ in WORDS])
def test_the_words_of_an_error(lib: Any, line: str, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=re.escape(words)):
        eval(line, {"t": lib})
