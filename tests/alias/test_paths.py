"""PyTorch's import paths that there are only for programs: what they give, and what they refuse."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import cugrad
from cugrad.alias.paths import (
    __config__,
    _dynamo,
    _jit_internal,
    _subclasses,
    common_types,
    library,
    storage,
    xpu,
)
from cugrad.alias.refusals import operators


def square(x: Any) -> Any:
    return x * x


def test_functions_come_back() -> None:
    for give_back in (_dynamo.disable, _dynamo.allow_in_graph, _jit_internal.unused,
                      _dynamo.disable(recursive=False), _jit_internal._overload):  # fmt: skip
        assert give_back(square) is square
    chosen = _jit_internal.boolean_dispatch(
        "flag", 1, False, lambda x, flag: 1, lambda x: 2, "", ""
    )
    assert (chosen(0), chosen(0, True), chosen(0, flag=True)) == (2, 1, 1)


@pytest.mark.parametrize("module", [_dynamo, library, xpu, _subclasses, storage])
def test_the_rest_refuses_at_use(module: Any) -> None:
    name = module.__name__.rpartition(".")[2]
    with pytest.raises(NotImplementedError, match=rf"^torch\.{name}\.Something: "):
        module.Something()
    with pytest.raises(AttributeError):
        module.__wrapped__  # noqa: B018


def test_settings_and_questions() -> None:
    with _dynamo.config.patch(suppress_errors=True):
        _dynamo.config.cache_size_limit = 8
    assert _dynamo.config.cache_size_limit == 8 and _dynamo.config.verbose is None
    _dynamo.mark_dynamic(cugrad.ones(1), 0)
    assert not (xpu.is_available() or xpu.device_count() or _dynamo.is_dynamo_supported())
    assert not _subclasses.is_fake(cugrad.ones(1))
    assert "cugrad" in __config__.show() and "get_num_threads" in __config__.parallel_info()
    assert cugrad.types.Device is not None and common_types._size_2_t is not None


def test_bytes_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "bytes"
    path.write_bytes(bytes(range(8)))
    whole = storage.UntypedStorage.from_file(path, nbytes=8)
    part = whole[2:6].untyped()
    assert (part.nbytes(), len(part), part[1], part.tolist()) == (4, 4, 3, [2, 3, 4, 5])
    x = cugrad.asarray(part, dtype=cugrad.uint8).view(cugrad.int16)
    assert x.tolist() == [0x302, 0x504]
    x += 1
    assert path.read_bytes() == bytes(range(8))


def test_an_operator_of_the_programs_own() -> None:
    @library.custom_op("tests::square", mutates_args=())
    def op(x: Any, times: int = 1) -> Any:
        return x * x * times

    assert operators.tests.square.default is op
    x = cugrad.tensor([2.0, 3.0], requires_grad=True)
    assert op(x, times=2).tolist() == [8.0, 18.0]
    with pytest.raises(RuntimeError, match="no autograd formula was registered"):
        op(x).sum().backward()
    library.register_autograd(
        "tests::square", lambda ctx, g: (2 * g * ctx.saved_tensors[0] * ctx.times, None),
        setup_context=keep,
    )  # fmt: skip
    assert op.register_fake(square) is square and library.register_fake(op)(square) is square
    op(x, 3).sum().backward()
    assert x.grad.tolist() == [12.0, 18.0]
    op.register_kernel("cpu", lambda x, times: x + times)
    assert op(cugrad.ones(1), times=4).tolist() == [5.0]


def test_an_operator_whose_ops_autograd_sees() -> None:
    ours = library.Library("tests", "FRAGMENT")
    for name in ("cube", "twice"):
        ours.define(f"{name}(Tensor x) -> Tensor")
    ours.impl("twice", lambda x: x * 2, "CompositeImplicitAutograd")
    ours.impl("cube", lambda x: x**3, "CPU")
    ours.impl("cube", Cube.apply, "AutogradCPU")
    x = cugrad.tensor([2.0, 3.0], requires_grad=True)
    (operators.tests.cube(x) + operators.tests.twice(x)).sum().backward()
    assert x.grad.tolist() == [14.0, 29.0]
    with pytest.raises(TypeError):
        operators.tests.cube(x, 1, 2)
    assert operators.tests.cube(x=x).tolist() == [8.0, 27.0]  # what failed has left nothing


class Cube(cugrad.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        with cugrad._C._AutoDispatchBelowAutograd():
            return operators.tests.cube(x)

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return 3 * ctx.saved_tensors[0] ** 2 * g


def keep(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(inputs[0])
    ctx.times = inputs[1]
