"""Rows of results without a derivative, always or at some points: asking for it is an error."""

from __future__ import annotations

from typing import Any

from .table import LINEAR, NONE, row

NO_NODE = "torch::autograd::NotImplemented"  # of ops for which PyTorch has no formula at all


def _in_backward(g: Any, function: str, node: str) -> None:
    if not function:  # its gradient goes nowhere
        return None
    if node == NO_NODE:
        raise RuntimeError(f"derivative for aten::{function} is not implemented")
    raise NotImplementedError(f"the derivative for '{function}' is not implemented.")


def _in_forward_mode(value_t: Any, self_t: Any, function: str) -> Any:
    if self_t is None:
        return value_t
    raise NotImplementedError(
        f"Trying to use forward AD with {function.partition(':')[0]} that does not support it "
        "because it has not been implemented yet; use input.detach()"
    )


row(
    "not_implemented", "value self",
    lambda xp, value, self, function, node=NO_NODE: value.copy(), NONE,
    node=lambda params: params["node"],
    value=lambda g: g, self=_in_backward, jvp=_in_forward_mode,
    doc="`value`, and an error that names the function for who asks for the derivative by `self`",
)  # fmt: skip


def _demand_none(xp: Any, self: Any, mask: Any, text: str) -> Any:
    if bool(xp.any(mask)):
        raise RuntimeError(text)
    return self.copy()


row(
    "differentiable_unless", "self mask", lambda xp, self, mask, text: self.copy(), NONE,
    self=lambda m, g, mask, text: m.demand_none(g, mask, text),
    jvp=lambda m, self_t, mask, text: m.demand_none(self_t, mask, text),
    doc="self, whose derivative is refused where the mask is true anywhere",
)  # fmt: skip

row(
    "demand_none", "self mask", _demand_none, LINEAR,
    self=lambda m, g, mask, text: m.demand_none(g, mask, text),
    doc="self; a RuntimeError where the mask is true anywhere, for which it waits for the device",
)  # fmt: skip
