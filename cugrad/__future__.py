"""torch.__future__: how modules replace their parameters when they are moved, cast or loaded."""

from __future__ import annotations

__all__ = [
    "get_overwrite_module_params_on_conversion", "get_swap_module_params_on_conversion",
    "set_overwrite_module_params_on_conversion", "set_swap_module_params_on_conversion",
]  # fmt: skip


class _Replacing:
    overwrite = False
    swap = False


def set_overwrite_module_params_on_conversion(value: bool) -> None:
    """Whether `module.to()` and its like make new Parameters, instead of new data for the old."""
    _Replacing.overwrite = value


def get_overwrite_module_params_on_conversion() -> bool:
    """What was set, at first False."""
    return _Replacing.overwrite


def set_swap_module_params_on_conversion(value: bool) -> None:
    """Whether parameters are exchanged by `utils.swap_tensors` where they are converted or loaded.

    Each stays the object that it is, of which `module.to()`, its like and `load_state_dict` make
    what the conversion, or `Tensor.module_load`, gives. It counts before
    `set_overwrite_module_params_on_conversion`.
    """
    _Replacing.swap = value


def get_swap_module_params_on_conversion() -> bool:
    """What was set, at first False."""
    return _Replacing.swap
