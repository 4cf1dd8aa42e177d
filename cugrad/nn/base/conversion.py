"""How a parameter becomes another: new data of the same object, another object, or a swap."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ... import __future__ as chosen
from ...tensor import Tensor
from ...utils.swapping import swap_tensors
from ..parameter import Parameter, is_lazy

if TYPE_CHECKING:
    from ..modules.module import Module


def convert(
    module: Module, name: str, parameter: Parameter, fn: Callable[[Tensor], Tensor]
) -> None:
    """Puts what `fn` makes of a parameter, and of its gradient, in place of them.

    The parameter stays the same object, but for what comes from the device "meta" or goes there, or
    where `torch.__future__` says otherwise. RuntimeError for what cannot be swapped.
    """
    converted = fn(parameter.data)
    gradient = parameter.grad
    new_gradient = None if gradient is None else fn(gradient)
    swaps = chosen.get_swap_module_params_on_conversion()
    replaces = not is_lazy(parameter) and (
        swaps
        or parameter.is_meta is not converted.is_meta
        or chosen.get_overwrite_module_params_on_conversion()
    )
    if not replaces:
        parameter.grad = None  # it must not disagree with the data in between
        parameter.data = converted
        parameter.grad = new_gradient
        return
    other = Parameter(converted, parameter.requires_grad)
    if gradient is not None and new_gradient is not None:
        other.grad = new_gradient.requires_grad_(gradient.requires_grad)
    if not swaps:
        module._parameters[name] = other
        return
    parameter.grad = None
    try:
        if gradient is not None and other.grad is not None:  # an object that users may hold, too
            swap_tensors(gradient, other.grad)
            other.grad = gradient
        swap_tensors(parameter, other)
    except RuntimeError as error:
        text = f"_apply(): Couldn't swap {module._get_name()}.{name}"
        raise RuntimeError(text) from error


def load_by_swap(tensor: Tensor, value: Tensor, assign: bool) -> None:
    """Makes a parameter or buffer what its `module_load` gives for a value of a state dict.

    RuntimeError where that is one of the two themselves.
    """
    new: Tensor = tensor.module_load(value, assign=assign)
    if new is value or new is tensor:
        raise RuntimeError(
            "module_load returned one of self or other, please .detach() the result if returning "
            "one of the inputs in module_load"
        )
    if isinstance(tensor, Parameter):
        if not isinstance(new, Parameter):
            new = Parameter(new, requires_grad=tensor.requires_grad)
        new.requires_grad_(tensor.requires_grad)
    swap_tensors(tensor, new)
