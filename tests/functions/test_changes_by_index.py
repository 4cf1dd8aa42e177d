"""Methods that put or add values in place where indices say: what they change is what the functions
give, is counted as a change once, and has their gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import cugrad
from cugrad import Tensor

Make = Callable[..., Tensor]
LINES = [2, 0, 3, 0]

# by method: its arguments
CALLS: dict[str, Callable[[Make, Any], tuple[Any, ...]]] = {
    "scatter": lambda draw, index: (0, index[:, None].expand(4, 3), draw(4, 3)),
    "scatter of a number": lambda draw, index: (0, index[:, None], 2.5),
    "scatter of the last dim": lambda draw, index: (1, index[:3, None] % 3, draw(3, 1)),
    "scatter_add": lambda draw, index: (0, index[:, None].expand(4, 3), draw(4, 3)),
    "index_add": lambda draw, index: (0, index, draw(4, 3)),
    "index_add of the last dim": lambda draw, index: (1, index[:3] % 3, draw(5, 3)),
    "index_copy": lambda draw, index: (0, index[:3], draw(3, 3)),
    "index_fill": lambda draw, index: (0, index - 1, 1.5),
    "index_fill of a tensor's number": lambda draw, index: (0, index - 1, draw()),
    "index_fill of the last dim": lambda draw, index: (1, index[:3] % 3, draw()),
    "masked_fill of a tensor's number": lambda draw, index: (draw(5, 3).detach() > 0, draw()),
    "masked_fill": lambda draw, index: (draw(5, 3).detach() > 0, 0.5),
}  # fmt: skip
LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "dense": lambda x: x, "turned": lambda x: x.t().contiguous().t(),
    "apart": lambda x: cugrad.stack([x, x], 1)[:, 1],
}  # fmt: skip


def drawn(device: str) -> Make:
    cugrad.manual_seed(0)
    return lambda *shape: cugrad.randn(*shape, device="cpu").to(device).requires_grad_()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("case", CALLS)
def test_the_method_puts_what_the_function_gives(case: str, layout: str, device: str) -> None:
    name, draw = case.partition(" of ")[0], drawn(device)
    x = draw(5, 3)
    args = CALLS[case](draw, cugrad.tensor(LINES, device=device))
    leaves = [x, *(a for a in args if isinstance(a, Tensor) and a.requires_grad)]
    expected = getattr(cugrad, name)(x, *args)
    y = LAYOUTS[layout](x * 1)
    version, strides = y._version, y.stride()
    assert getattr(y, name + "_")(*args) is y
    assert (y._version, y.stride()) == (version + 1, strides)
    assert cugrad.equal(y, expected)
    g = drawn(device)(5, 3).detach()
    for mine, theirs in zip(cugrad.autograd.grad(y, leaves, g, allow_unused=True),
                            cugrad.autograd.grad(expected, leaves, g, allow_unused=True),
                            strict=True):  # fmt: skip
        cugrad.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("case", CALLS)
def test_what_shares_memory_is_read_before(case: str, device: str) -> None:
    """Values are a part of the tensor that is changed."""
    name, draw = case.partition(" of ")[0], drawn(device)
    args = CALLS[case](draw, cugrad.tensor(LINES, device=device))
    if not isinstance(args[-1], Tensor) or not args[-1].dim():
        return
    with cugrad.no_grad():
        x, shape = draw(6, 4), args[-1].shape
        target, values = x[1:, 1:], x[: shape[0], : shape[1]]
        expected = getattr(cugrad, name)(target.clone(), *args[:-1], values.clone())
        getattr(target, name + "_")(*args[:-1], values)
    assert cugrad.equal(target, expected)


def test_a_leaf_that_requires_a_gradient_is_not_changed(device: str) -> None:
    draw = drawn(device)
    for case, make in CALLS.items():
        x = draw(5, 3)
        with pytest.raises(RuntimeError, match="leaf"):
            getattr(x, case.partition(" of ")[0] + "_")(
                *make(draw, cugrad.tensor(LINES, device=device))
            )
