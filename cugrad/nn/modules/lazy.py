"""What lazy modules share: their parameters get shapes from the first input that they are given."""

from __future__ import annotations

from typing import Any

from ...autograd.mode import no_grad
from ...tensor import Tensor
from ..parameter import UninitializedParameter, is_lazy
from .module import Module

__all__: list[str] = []


class LazyModuleMixin(Module):
    """For a module whose parameters get their shapes from its first input.

    A subclass declares `UninitializedParameter`s and `UninitializedBuffer`s, and its
    `initialize_parameters` materializes them; it gets the arguments of the first call. After that
    the module is of the class `cls_to_become`, where there is one. A state dict that has the shapes
    materializes them too.

    >>> import cugrad as torch
    >>> layer = torch.nn.LazyLinear(2)
    >>> layer
    LazyLinear(in_features=0, out_features=2, bias=True)
    >>> layer(torch.ones(5, 3)).shape
    torch.Size([5, 2])
    >>> layer
    Linear(in_features=3, out_features=2, bias=True)
    """

    cls_to_become: type[Module] | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._load_hook = self._register_load_state_dict_pre_hook(self._lazy_load_hook)
        self._initialize_hook = self.register_forward_pre_hook(
            self._infer_parameters, with_kwargs=True
        )

    def _lazy_load_hook(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        """Gives tensors without a shape that of what they are about to load."""
        for name, tensor in [*self._parameters.items(), *self._buffers.items()]:
            value: Any = state_dict.get(prefix + name)
            if value is not None and is_lazy(tensor) and not is_lazy(value):
                with no_grad():
                    tensor.materialize(value.shape)  # type: ignore[union-attr]

    def initialize_parameters(self, *args: Any, **kwargs: Any) -> None:
        """Materializes what has no shape yet; a subclass writes it."""
        raise NotImplementedError(
            f"initialize_parameters is not implemented for {type(self).__name__}"
        )

    def has_uninitialized_params(self) -> bool:
        """Whether a parameter or a buffer of its own has no shape yet."""
        return any(is_lazy(t) for t in [*self._parameters.values(), *self._buffers.values()])

    def _infer_parameters(self, module: Any, args: tuple[Any, ...], kwargs: Any = None) -> None:
        """The hook that runs before the first forward, and then is gone."""
        try:
            module.initialize_parameters(*args, **(kwargs or {}))
        except AttributeError:
            if not args or isinstance(args[0], Tensor):
                raise
            raise TypeError(
                f"{module._get_name()}: argument 'input' must be Tensor, not "
                f"{type(args[0]).__name__}: it says what shapes the parameters have"
            ) from None
        if module.has_uninitialized_params():
            raise RuntimeError(f"module {self._get_name()} has not been fully initialized")
        module._initialize_hook.remove()
        module._load_hook.remove()
        del module._initialize_hook, module._load_hook
        if module.cls_to_become is not None:
            module.__class__ = module.cls_to_become

    def _declare(self, names: str, device: Any, dtype: Any) -> None:
        """Parameters of these names, without a shape."""
        for name in names.split():
            setattr(self, name, UninitializedParameter(device=device, dtype=dtype))
