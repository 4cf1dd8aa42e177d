"""How PyTorch's functions hand on a call: with their defaults filled in, or as it came.

PyTorch's functions in Python fill in defaults, by name; those in C hand on what they got. Nodes of
both libraries shall have the same arguments, and code the same text.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from .. import functional
from ..overrides import resolve_name

__all__ = ["NAMES", "as_pytorch_calls"]

_FUNCTIONAL = "torch.nn.functional."
# Functions of nn.functional that are C's, by where PyTorch has them.
_OF_C = {
    "torch.": """
        adaptive_avg_pool1d avg_pool1d bilinear celu_ channel_shuffle conv1d conv2d conv3d conv_tbc
        conv_transpose1d conv_transpose2d conv_transpose3d cosine_similarity hardshrink
        pairwise_distance pdist pixel_shuffle pixel_unshuffle prelu relu_ rrelu_ selu_ threshold_
    """,
    "torch._C._nn.": """
        avg_pool2d avg_pool3d elu_ gelu hardtanh_ leaky_relu_ linear one_hot
        scaled_dot_product_attention softplus softshrink
    """,
}
NAMES = {
    **{_FUNCTIONAL + name: home + name for home, names in _OF_C.items() for name in names.split()},
    **{f"torch.{name}": f"torch.functional.{name}" for name in functional.__all__},
}
# Functions of torch that fill in defaults.
_OF_PYTHON = {
    f"torch.{name}"
    for name in ("cdist", "norm", "pca_lowrank", "split", "stft", "svd_lowrank", "tensordot",
                 "unravel_index")
}  # fmt: skip
_METHODS = {f"{_FUNCTIONAL}{name}" for name in ("sigmoid", "tanh")}  # call the tensor's own
# Arguments that PyTorch's functions do not hand on, or do not have.
_UNSHOWN = {"keep_bits", "weight"}


def as_pytorch_calls(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[str, Any, tuple[Any, ...], dict[str, Any]]:
    """The kind of node, the target, and the arguments that PyTorch's function would hand on."""
    name = resolve_name(function) or ""
    if name in _METHODS:
        return "call_method", function.__name__, args, kwargs
    if name == "torch.einsum" and len(args) == 2 and isinstance(args[1], (list, tuple)):
        args = (args[0], *args[1])  # operands may come in a list
    is_bound = name in _OF_PYTHON or (name.startswith(_FUNCTIONAL) and name not in NAMES)
    if not is_bound:
        return "call_function", function, args, kwargs
    parameters = inspect.signature(function).parameters
    try:
        bound = inspect.signature(function).bind(*args, **kwargs)
    except TypeError:  # the call says what is wrong when it runs
        return "call_function", function, args, kwargs
    explicit = set(bound.arguments)
    bound.apply_defaults()
    by_position, by_name = [], {}
    for key, value in bound.arguments.items():
        parameter = parameters[key]
        if parameter.kind is parameter.VAR_POSITIONAL:
            by_position += value
        elif parameter.kind is parameter.VAR_KEYWORD:
            by_name.update(value)
        elif parameter.default is parameter.empty and parameter.kind is not parameter.KEYWORD_ONLY:
            by_position.append(value)
        elif key in explicit or key not in _UNSHOWN or name.endswith(("_norm", "entropy", "loss")):
            by_name[key] = value
    return "call_function", function, tuple(by_position), by_name
