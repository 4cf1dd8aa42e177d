"""Modules as functions of their parameters: torch.func's functional_call and stack_module_state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..functions import FUNCTIONS
from ..runtime.absent import explain
from ..runtime.kept import Switch
from ..tensor import Tensor
from .modules.batchnorm import BatchNorm1d, BatchNorm2d, BatchNorm3d
from .modules.module import Module

__all__ = ["functional_call", "replace_all_batch_norm_modules_", "stack_module_state"]

State = dict[str, Tensor]
Place = tuple[Any, str]  # a dict of a submodule's, or its _Attributes, and a key in it
ABSENT = object()  # what a place holds where nothing is


def functional_call(
    module: Module,
    parameter_and_buffer_dicts: State | Sequence[State],
    args: Any = None,
    kwargs: dict[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """Calls a module with other tensors as its parameters and buffers; the module stays as it was.

    Args:
        module: the module.
        parameter_and_buffer_dicts: tensors by name, as `named_parameters` and `named_buffers` have
            them, or None for none there; or several such dicts with no name in common. Other names
            are those of attributes that are tensors, None, or not there. What is given for a
            parametrized tensor goes through `right_inverse`. Where a module assigns to what a
            single dict gave, that dict has it afterwards.
        args: the positional arguments: a tuple, or the one argument.
        kwargs: arguments by name.
        tie_weights: a tensor given for one name is used for every name of the same parameter.
        strict: every parameter and buffer must be given, of tied ones one, and no other name.

    Raises ValueError for a name given twice or tied names that differ, RuntimeError for names that
    do not fit under `strict`, AttributeError for a name within a submodule that is not there,
    TypeError for the name of what is no tensor.

    >>> import cugrad as torch
    >>> layer = torch.nn.Linear(2, 1)
    >>> state = {"weight": torch.ones(1, 2), "bias": torch.zeros(1)}
    >>> torch.func.functional_call(layer, state, torch.tensor([2., 3.]))
    tensor([5.])
    """
    tensors = _merged(parameter_and_buffer_dicts)
    if args is None:
        args = ()
    elif not isinstance(args, tuple):
        args = (args,)
    with in_place_of(module, tensors, tie_weights, strict):
        return module(*args, **(kwargs or {}))


def in_place_of(module: Module, tensors: State, tie_weights: bool, strict: bool) -> _replaced:
    """A context in which a module has these tensors, by name, as its parameters and buffers."""
    places, own = _places(module), tensors
    if tie_weights:
        tensors = _tied(places, tensors)
    if strict:
        valid = {name for name, (held, key) in places.items() if held[key] is not None}
        missing, unexpected = sorted(valid - tensors.keys()), sorted(tensors.keys() - valid)
        texts = [
            f"\n\t{what} key(s): {', '.join(map(repr, keys))}."
            for what, keys in (("Unexpected", unexpected), ("Missing", missing)) if keys
        ]  # fmt: skip
        if texts:
            name = type(module).__name__
            raise RuntimeError(f"Error(s) in reparametrizing for {name}:{''.join(texts)}")
    return _replaced(module, places, tensors, own)


def _merged(dicts: State | Sequence[State]) -> State:
    if isinstance(dicts, dict):
        return dicts
    if not isinstance(dicts, Sequence):
        raise ValueError(
            "Expected parameter_and_buffer_dicts to be a dict, or a list/tuple of dicts, but got "
            f"{type(dicts)}"
        )
    if not all(isinstance(d, dict) for d in dicts):
        raise ValueError("Expected all elements of parameter_and_buffer_dicts to be dictionaries")
    merged: State = {}
    for part in dicts:
        twice = [name for name in part if name in merged]
        if twice:
            raise ValueError(
                f"{twice} appeared in multiple dictionaries; behavior of functional call is "
                "ambiguous"
            )
        merged.update(part)
    return merged


def _places(module: Module) -> dict[str, Place]:
    """By full name, the dict of a submodule that holds a parameter or buffer, and its key there."""
    places = {}
    for prefix, part in module.named_modules(remove_duplicate=False):
        for held in (part._parameters, part._buffers):
            for key in held:
                places[f"{prefix}.{key}" if prefix else key] = (held, key)
    return places


def _tied(places: dict[str, Place], tensors: State) -> State:
    """The tensors, also under the other names of the parameters that they stand for."""
    names: dict[int, list[str]] = {}
    for name, (held, key) in places.items():
        if held[key] is not None:
            names.setdefault(id(held[key]), []).append(name)
    full = dict(tensors)
    for same in names.values():
        different = {id(tensors[n]): tensors[n] for n in same if n in tensors}
        if len(different) > 1:
            raise ValueError(
                f"functional_call got multiple values for keys {same}, which are tied. Consider "
                "using tie_weights=False"
            )
        for tensor in different.values():
            full.update(dict.fromkeys(same, tensor))
    return full


class _Attributes:
    """The attributes of a module as a dict has its values: a Parameter is not registered."""

    def __init__(self, owner: Module) -> None:
        self.owner = owner

    def get(self, key: str, default: Any) -> Any:
        return getattr(self.owner, key, default)

    def __setitem__(self, key: str, value: Any) -> None:
        object.__setattr__(self.owner, key, value)

    def pop(self, key: str, default: Any) -> Any:
        return vars(self.owner).pop(key, default)


def _elsewhere(module: Module, name: str, tensor: Tensor) -> list[tuple[Any, str, Tensor]]:
    """Where what is given for a name of no parameter or buffer goes: places, and what they get."""
    if not name:
        raise KeyError('tensor name can\'t be empty string ""')
    path, _, key = name.rpartition(".")
    owner = module.get_submodule(path)
    parametrized = getattr(owner, "parametrizations", None)
    if isinstance(parametrized, Module) and key in parametrized._modules:
        originals = parametrized[key]._inverse_of(tensor)  # type: ignore[index]
        return [(held, name, new) for (held, name), new in originals]
    now = getattr(owner, key, None)
    if now is not None and not isinstance(now, Tensor):
        raise TypeError(f"attribute `{key}`: {now!r} is not an instance of torch.Tensor")
    return [(_Attributes(owner), key, tensor)]


class _replaced(Switch):
    """A module has these parameters and buffers inside, in the places of its own.

    What it assigns there meanwhile, as a buffer that it computes anew, is then in `own`.
    """

    def __init__(
        self, module: Module, places: dict[str, Place], tensors: State, own: State
    ) -> None:
        self._own, self._names = own, {}
        self._new: list[tuple[Any, str, Any]] = []
        for name, x in tensors.items():
            if x is not None and not isinstance(x, Tensor):
                raise TypeError(f"{x!r}, given for {name}, is not an instance of torch.Tensor")
            if name in places:
                self._new.append((*places[name], x))
                if name in own:
                    self._names[len(self._new) - 1] = name
            else:
                self._new.extend(_elsewhere(module, name, x))

    def as_is(self) -> list[tuple[Any, str, Any]]:
        return [(held, key, held.get(key, ABSENT)) for held, key, _ in self._new]

    def change(self, before: Any) -> None:
        for held, key, tensor in self._new:
            held[key] = tensor

    def put_back(self, before: list[tuple[Any, str, Any]]) -> None:
        for i, (held, key, value) in enumerate(before):
            now = held.get(key, ABSENT)
            if i in self._names and now is not value and isinstance(now, Tensor):
                self._own[self._names[i]] = now
            if value is ABSENT:
                held.pop(key, None)
            else:
                held[key] = value


def stack_module_state(models: Sequence[Module]) -> tuple[State, State]:
    """The parameters, and the buffers, of several modules of one class, stacked along a new dim 0.

    For an ensemble under `vmap`: `vmap(lambda p, b, x: functional_call(model, (p, b), x))`.

    Raises RuntimeError for no models, models of several classes or modes, and parameters of which
    some require gradients.

    >>> import cugrad as torch
    >>> params, buffers = torch.func.stack_module_state([torch.nn.Linear(3, 2) for _ in range(5)])
    >>> params["weight"].shape
    torch.Size([5, 2, 3])
    """
    if not models:
        raise RuntimeError("stack_module_state: Expected at least one model, got 0.")
    if len({m.training for m in models}) > 1:
        raise RuntimeError(
            "stack_module_state: Expected all models to have the same training/eval mode."
        )
    if len({type(m) for m in models}) > 1:
        raise RuntimeError("stack_module_state: Expected all models to be of the same class.")

    def stacked(states: list[State]) -> State:
        stacks = {}
        for name in states[0]:
            column = [state[name] for state in states]
            wants = column[0].requires_grad
            if any(t.requires_grad != wants for t in column):
                raise RuntimeError(
                    f"Expected {name} from each model to have the same .requires_grad"
                )
            whole = FUNCTIONS["stack"]([t.detach() for t in column])
            stacks[name] = whole.requires_grad_(wants)
        return stacks

    return (
        stacked([dict(m.named_parameters()) for m in models]),
        stacked([dict(m.named_buffers()) for m in models]),
    )


def replace_all_batch_norm_modules_(root: Module) -> Module:
    """Takes the running statistics out of all batch norms, which `vmap` could not change in place.

    They then normalise by the batch, also in eval mode. Returns `root`, which is changed.

    >>> import cugrad as torch
    >>> net = torch.func.replace_all_batch_norm_modules_(torch.nn.BatchNorm1d(2))
    >>> net.running_mean is None, net.track_running_stats
    (True, False)
    """
    for module in root.modules():
        if isinstance(module, (BatchNorm1d, BatchNorm2d, BatchNorm3d)):
            if module.track_running_stats:
                module.running_mean = module.running_var = module.num_batches_tracked = None
                module.track_running_stats = False
    return root


explain(__name__)
