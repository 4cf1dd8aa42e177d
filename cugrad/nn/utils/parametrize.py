"""Parameters that are computed from others: a property of the module in their place."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from typing import Any, cast

from ...autograd.mode import no_grad
from ...runtime.kept import of_thread
from ...tensor import Tensor
from ..modules.container import ModuleDict, ModuleList
from ..modules.module import Module
from ..parameter import Parameter

__all__ = [
    "ParametrizationList", "cached", "is_parametrized", "register_parametrization",
    "remove_parametrizations", "transfer_parametrizations_and_params",
    "type_before_parametrizations",
]  # fmt: skip

UNSAFE = "Registering a parametrization may not change the {} of the tensor, unless "


class _Cache(threading.local):
    """What parametrizations have computed in this thread's `cached` regions."""

    depth = 0
    values: dict[tuple[int, str], Any] | None = None


_cache = of_thread(_Cache())


@contextmanager
def cached() -> Iterator[None]:
    """Within it, each parametrization of this thread is computed once.

    >>> import cugrad as torch
    >>> from cugrad.nn.utils import parametrize, parametrizations
    >>> layer = parametrizations.weight_norm(torch.nn.Linear(3, 3))
    >>> with parametrize.cached():
    ...     layer.weight is layer.weight
    True
    >>> layer.weight is layer.weight
    False
    """
    _cache.depth += 1
    try:
        yield
    finally:
        _cache.depth -= 1
        if not _cache.depth:
            _cache.values = None


def _register(module: Module, name: str, value: Tensor) -> None:
    if isinstance(value, Parameter):
        module.register_parameter(name, value)
    else:
        module.register_buffer(name, value)


def _set(tensor: Tensor, value: Tensor) -> None:
    """Gives a tensor the memory of another one."""
    if value is not tensor:
        with no_grad():
            tensor.set_(value.detach())


def _check_tensor(value: Any, text: str = "A parametrization must return a tensor. Got") -> None:
    if not isinstance(value, Tensor):
        raise ValueError(f"{text} {type(value).__name__}.")


class ParametrizationList(ModuleList):
    """The parametrizations of one tensor, and what they are applied to: `original`, or several:
    `original0`, `original1`, ...

    ValueError where what the modules' `right_inverse` or they themselves return is no tensor, or,
    without `unsafe`, has another dtype or shape.
    """

    original: Any
    unsafe: bool

    def __init__(self, modules: Sequence[Module], original: Tensor, unsafe: bool = False) -> None:
        if len(modules) == 0:
            raise ValueError("ParametrizationList requires one or more modules.")
        super().__init__(modules)
        self.unsafe = unsafe
        shape, dtype = original.shape, original.dtype
        new: Any = original
        with no_grad():
            for module in reversed(list(self)):
                if hasattr(module, "right_inverse"):
                    try:
                        new = module.right_inverse(new)
                    except NotImplementedError:  # it is applied to what was there
                        pass
        if not isinstance(new, (Tensor, Sequence)):
            raise ValueError(
                "'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). "
                f"Got {type(new).__name__}"
            )
        self.is_tensor = isinstance(new, Tensor)
        self.ntensors = 1 if isinstance(new, Tensor) else len(new)
        if isinstance(new, Tensor):
            self._take_one(original, new)
        else:
            self._take_several(original, new)
        if not unsafe:
            self._check(shape, dtype)

    def _take_one(self, original: Tensor, new: Tensor) -> None:
        for what in ("dtype", "device"):
            before, now = getattr(original, what), getattr(new, what)
            if before != now:
                raise ValueError(
                    f"When `right_inverse` outputs one tensor, it may not change the {what}.\n"
                    f"original.{what}: {before}\nright_inverse(original).{what}: {now}"
                )
        _set(original, new)
        _register(self, "original", original)

    def _take_several(self, original: Tensor, new: Sequence[Any]) -> None:
        for i, each in enumerate(new):
            if not isinstance(each, Tensor):
                raise ValueError(
                    "'right_inverse' must return a Tensor or a Sequence of tensors (list, "
                    f"tuple...). Got element {i} of the sequence with type {type(each).__name__}."
                )
            if isinstance(original, Parameter):
                each = Parameter(each, original.requires_grad)
            _register(self, f"original{i}", each.requires_grad_(original.requires_grad))

    def _check(self, shape: Any, dtype: Any) -> None:
        value: Any = self()
        _check_tensor(value)
        for what, before in (("dtype", dtype), ("shape", shape)):
            if getattr(value, what) != before:
                raise ValueError(
                    f"{UNSAFE.format(what)}`unsafe` flag is enabled.\n"
                    f"unparametrized {what}: {before}\nparametrized {what}: {getattr(value, what)}"
                )

    @no_grad()
    def right_inverse(self, value: Any) -> None:
        """Sets the originals so that the parametrized tensor becomes `value`, in reverse order.

        RuntimeError for a module without `right_inverse`, ValueError for what it should not return.
        """
        for (held, name), new in self._inverse_of(value):
            _set(held[name], new)

    def _inverse_of(self, value: Any) -> list[tuple[tuple[dict[str, Any], str], Tensor]]:
        """What the originals would be, for `value` to be the parametrized tensor.

        Each comes with the dict that holds the original, and its name there.
        """
        for module in reversed(list(self)):
            if not hasattr(module, "right_inverse"):
                raise RuntimeError(
                    f"parametrization {type(module).__name__} does not implement right_inverse."
                )
            value = module.right_inverse(value)
        if self.is_tensor:
            _check_tensor(value, "`right_inverse` should return a tensor. Got")
            value = [value]
        elif not isinstance(value, Sequence):
            raise ValueError(
                f"'right_inverse' must return a sequence of tensors. Got {type(value).__name__}."
            )
        elif len(value) != self.ntensors:
            raise ValueError(
                "'right_inverse' must return a sequence of tensors of length "
                f"{self.ntensors}. Got a sequence of length {len(value)}."
            )
        places = []
        for i, (name, new) in enumerate(zip(self._names(), value, strict=True)):
            held = self._parameters if name in self._parameters else self._buffers
            original: Any = held[name]
            _check_tensor(new, f"'right_inverse' must return tensors. Got element {i} of type")
            if original.dtype != new.dtype:
                which = "The tensor" if self.is_tensor else f"Tensor {i}"
                raise ValueError(
                    f"{which} returned by `right_inverse` has dtype {new.dtype} while `{name}` has "
                    f"dtype {original.dtype}"
                )
            places.append(((held, name), new))
        return places

    def _names(self) -> list[str]:
        return ["original"] if self.is_tensor else [f"original{i}" for i in range(self.ntensors)]

    def _originals(self) -> list[Any]:
        return [getattr(self, name) for name in self._names()]

    def forward(self) -> Tensor:
        """The parametrized tensor."""
        first, *others = list(self)
        value = first(*self._originals())
        for module in others:
            value = module(value)
        return cast(Tensor, value)


def _refuse_pickle(self: Any) -> Any:
    raise RuntimeError(
        "Serialization of parametrized modules is only supported through state_dict(). See:\n"
        "https://pytorch.org/tutorials/beginner/saving_loading_models.html"
        "#saving-loading-a-general-checkpoint-for-inference-and-or-resuming-training"
    )


def _deepcopied(self: Any, memo: dict[int, Any]) -> Any:
    if id(self) not in memo:
        twin = memo[id(self)] = self.__new__(type(self))
        twin.__dict__ = deepcopy(self.__dict__, memo)
    return memo[id(self)]


def _give_class(module: Module) -> None:
    """Gives a module a class of its own, which can have properties."""
    kind = type(module)
    names: dict[str, Any] = {"__getstate__": _refuse_pickle}
    if not hasattr(kind, "__deepcopy__"):
        names["__deepcopy__"] = _deepcopied
    module.__class__ = type(f"Parametrized{kind.__name__}", (kind,), names)


def _give_property(module: Module, name: str) -> None:
    if hasattr(module, name):
        raise AssertionError(f"Module already has an attribute named '{name}'")

    def get(self: Any) -> Any:
        parametrization = self.parametrizations[name]
        if not _cache.depth:
            return parametrization()
        if _cache.values is None:
            _cache.values = {}
        key = id(self), name
        if key not in _cache.values:
            _cache.values[key] = parametrization()
        return _cache.values[key]

    def put(self: Any, value: Tensor) -> None:
        self.parametrizations[name].right_inverse(value)

    setattr(type(module), name, property(get, put))


def register_parametrization(
    module: Module, tensor_name: str, parametrization: Module, *, unsafe: bool = False
) -> Module:
    """Has a module compute a parameter or buffer from what it was before; the module.

    `parametrization` is called with the original whenever the tensor is asked for. With a method
    `right_inverse` the tensor can be assigned to, and it says what the originals are at first, of
    which there may be several. A second parametrization is applied to the result of the first.

    ValueError for a name that is no parameter or buffer, and, without `unsafe`, for another dtype
    or shape.

    >>> import cugrad as torch
    >>> from cugrad.nn.utils import parametrize
    >>> class Symmetric(torch.nn.Module):
    ...     def forward(self, x): return x.triu() + x.triu(1).mT
    >>> layer = torch.nn.Linear(3, 3)
    >>> _ = parametrize.register_parametrization(layer, "weight", Symmetric())
    >>> torch.equal(layer.weight, layer.weight.mT), [name for name, _ in layer.named_parameters()]
    (True, ['bias', 'parametrizations.weight.original'])
    """
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        several: Any = module.parametrizations[tensor_name]
        if not unsafe:
            _check_another(module, tensor_name, parametrization)
        several.append(parametrization)
        several.unsafe |= unsafe
    elif tensor_name in module._buffers or tensor_name in module._parameters:
        original = getattr(module, tensor_name)
        parametrizations = ParametrizationList([parametrization], original, unsafe=unsafe)
        delattr(module, tensor_name)
        if not is_parametrized(module):
            _give_class(module)
            module.parametrizations = ModuleDict()
        _give_property(module, tensor_name)
        module.parametrizations[tensor_name] = parametrizations
    else:
        raise ValueError(
            f"Module '{module}' does not have a parameter, a buffer, or a parametrized element "
            f"with name '{tensor_name}'"
        )
    return module


def _check_another(module: Module, name: str, parametrization: Any) -> None:
    """ValueError unless a further parametrization keeps dtype and shape, there and back."""
    before = getattr(module, name)
    now = parametrization(before)
    _check_tensor(now)
    for what in ("dtype", "shape"):
        if getattr(now, what) != getattr(before, what):
            raise ValueError(
                f"{UNSAFE.format(what)}the `unsafe` flag is enabled.\n"
                f"module.{name}.{what}: {getattr(before, what)}\n"
                f"parametrization(module.{name}).{what}: {getattr(now, what)}"
            )
    if not hasattr(parametrization, "right_inverse"):
        return
    try:
        back = parametrization.right_inverse(now)
    except NotImplementedError:
        return
    if not isinstance(back, Tensor):
        raise ValueError(
            f"parametrization.right_inverse must return a tensor. Got: {type(back).__name__}"
        )
    for what in ("dtype", "shape"):
        if getattr(back, what) != getattr(before, what):
            raise ValueError(
                f"The tensor returned by parametrization.right_inverse must have the same {what} "
                f"as module.{name}, unless the `unsafe` flag is enabled.\n"
                f"module.{name}.{what}: {getattr(before, what)}\n"
                f"returned {what}: {getattr(back, what)}"
            )


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Whether a tensor of a module is parametrized, or any of them."""
    lists = getattr(module, "parametrizations", None)
    if not isinstance(lists, ModuleDict):
        return False
    return len(lists) > 0 if tensor_name is None else tensor_name in lists


def remove_parametrizations(
    module: Module, tensor_name: str, leave_parametrized: bool = True
) -> Module:
    """Makes a tensor a parameter or buffer again; the module.

    It keeps the value that it has, or with `leave_parametrized=False` that of the original.
    ValueError where it is not parametrized, or has several originals to leave.
    """
    if not is_parametrized(module, tensor_name):
        raise ValueError(f"Module {module} does not have a parametrization on {tensor_name}")
    all_of_them: Any = module.parametrizations
    several = all_of_them[tensor_name]
    if several.is_tensor:
        original = several.original
        if leave_parametrized:
            with no_grad():
                value = getattr(module, tensor_name)
            _set(original, value)
    elif leave_parametrized:
        value = getattr(module, tensor_name)
        original = Parameter(value) if value.requires_grad else value
    else:
        raise ValueError(
            "Cannot leave unparametrized (`leave_parametrized=False`) a tensor that is "
            "parametrized in terms of a sequence of tensors."
        )
    delattr(type(module), tensor_name)
    del all_of_them[tensor_name]
    _register(module, tensor_name, original)
    if not is_parametrized(module):
        delattr(module, "parametrizations")
        module.__class__ = type(module).__bases__[0]
    return module


def type_before_parametrizations(module: Module) -> type:
    """The class that a module had before a tensor of it was parametrized."""
    return type(module).__bases__[0] if is_parametrized(module) else type(module)


def transfer_parametrizations_and_params(
    from_module: Module, to_module: Module, tensor_name: str | None = None
) -> Module:
    """Parametrizes tensors of a module as those of another one, which share their originals."""
    if not is_parametrized(from_module):
        return to_module
    theirs: Any = from_module.parametrizations
    for name in list(theirs) if tensor_name is None else [tensor_name]:
        if not hasattr(to_module, name):
            setattr(to_module, name, Parameter(getattr(from_module, name)))
        for parametrization in theirs[name]:
            register_parametrization(to_module, name, parametrization)
        mine: Any = to_module.parametrizations
        if theirs[name].is_tensor:
            mine[name].original = theirs[name].original
        else:
            for i in range(theirs[name].ntensors):
                setattr(mine[name], f"original{i}", getattr(theirs[name], f"original{i}"))
    return to_module
