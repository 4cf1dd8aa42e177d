"""`fully_shard`: a module whose parameters are in parts, and whole only while it computes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ....autograd.engine.backward_pass import task
from ....distributed.device_mesh import DeviceMesh
from ....distributed.groups import default_group
from ....distributed.tensor.placements import Shard
from ....tensor import Tensor
from ...modules.container import ModuleDict, ModuleList
from ...modules.module import Module
from .group import ShardedGroup, ShardedParameter
from .policies import MixedPrecisionPolicy, OffloadPolicy

__all__ = ["FSDPModule", "UnshardHandle", "fully_shard", "register_fsdp_forward_method"]

AS_THEY_ARE, ON_THE_DEVICE = MixedPrecisionPolicy(), OffloadPolicy()
_classes: dict[type, type] = {}  # by the class that a module had


class UnshardHandle:
    """What `unshard(async_op=True)` returns: `wait` before the parameters are used."""

    def __init__(self, group: ShardedGroup | None) -> None:
        self._group = group

    def wait(self) -> None:
        """Has the whole there."""
        if self._group is not None:
            self._group.unshard()
            self._group = None


class _Tree:
    """The sharded modules that the outermost one has, in the order in which forward is through."""

    def __init__(self, root: Module) -> None:
        self.root = root
        self.order: list[ShardedGroup] = []


class _Together:
    """The modules that have a group together, and those of them whose forward is to come."""

    def __init__(self, modules: list[Any]) -> None:
        self.modules = modules
        self.to_come: set[int] = set()

    def begin(self) -> None:
        """Before the forward of one."""
        if not self.to_come:
            self.to_come.update(id(module) for module in self.modules)

    def are_through(self, module: Any) -> bool:
        """Whether the forward of one was the last of all."""
        self.to_come.discard(id(module))
        return not self.to_come


class _Sharding:
    """What a sharded module knows of itself."""

    def __init__(
        self, group: ShardedGroup | None, policy: MixedPrecisionPolicy, members: _Together
    ) -> None:  # fmt: skip
        self.group, self.policy, self.members = group, policy, members
        self.tree: _Tree | None = None
        self.next_in_forward: list[Any] = []
        self.next_in_backward: list[Any] = []


class FSDPModule:
    """What `fully_shard` adds to a module; its class is a subclass of this one and of its own."""

    _sharding: _Sharding

    def unshard(self, async_op: bool = False) -> UnshardHandle | None:
        """Gathers this module's parameters; with `async_op` begins to, and returns a handle."""
        group = self._sharding.group
        handle = UnshardHandle(group)
        if group is not None:
            group.begin_unshard()
        if async_op:
            return handle
        handle.wait()
        return None

    def reshard(self) -> None:
        """Lets go of all but the parts of this module's parameters."""
        if self._sharding.group is not None:
            self._sharding.group.reshard()

    def set_requires_gradient_sync(
        self, requires_gradient_sync: bool, *, recurse: bool = True
    ) -> None:
        """Whether backward sums up gradients over ranks, or each rank adds up its own, whole."""
        for group in self._groups(recurse):
            group.syncs = requires_gradient_sync

    def set_requires_all_reduce(self, requires_all_reduce: bool, *, recurse: bool = True) -> None:
        """Whether, in a mesh of two dimensions, gradients are also summed up over the first."""
        for group in self._groups(recurse):
            group.syncs_copies = requires_all_reduce

    def set_reshard_after_forward(self, reshard_after_forward: bool, recurse: bool = True) -> None:
        """Whether the whole goes after forward, and is gathered again in backward."""
        for group in self._groups(recurse):
            group.reshards_after_forward = reshard_after_forward

    def set_reshard_after_backward(
        self, reshard_after_backward: bool, *, recurse: bool = True
    ) -> None:
        """Whether the whole goes after backward; without it, several share one gathering."""
        for group in self._groups(recurse):
            group.reshards_after_backward = reshard_after_backward

    def set_is_last_backward(self, is_last_backward: bool) -> None:
        """Whether backward waits for its reductions; without it, those of several overlap.

        Gradients are there after a backward that waits.
        """
        for group in self._groups(True):
            group.waits = is_last_backward
            if is_last_backward:
                group.wait_for_earlier()

    def set_gradient_divide_factor(self, factor: float) -> None:
        """By what the sum of gradients is divided, instead of the number of ranks."""
        for group in self._groups(False):
            group.divide_factor = float(factor)

    def set_modules_to_forward_prefetch(self, modules: list[FSDPModule]) -> None:
        """Which modules begin to be gathered when this one is about to compute."""
        self._sharding.next_in_forward = _sharded_ones("forward", modules)

    def set_modules_to_backward_prefetch(self, modules: list[FSDPModule]) -> None:
        """Which modules begin to be gathered when backward reaches this one; by default the one
        whose forward came before.
        """
        self._sharding.next_in_backward = _sharded_ones("backward", modules)

    def _groups(self, recurse: bool) -> Iterator[ShardedGroup]:
        modules: Iterable[Any] = self.modules() if recurse else [self]  # type: ignore[attr-defined]
        for module in modules:
            if isinstance(module, FSDPModule) and module._sharding.group is not None:
                yield module._sharding.group

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        for group in self._groups(True):
            group.reshard()
        return super()._apply(fn, recurse)  # type: ignore[misc]


def _sharded_ones(direction: str, modules: Any) -> list[Any]:
    for module in modules:
        if not isinstance(module, FSDPModule):
            raise ValueError(
                f"set_modules_to_{direction}_prefetch: got {type(module).__name__}, want modules "
                "that fully_shard was called with"
            )
    return list(modules)


def fully_shard(
    module: Any,
    *,
    mesh: DeviceMesh | None = None,
    reshard_after_forward: bool | int | None = None,
    shard_placement_fn: Any = None,
    mp_policy: MixedPrecisionPolicy = AS_THEY_ARE,
    offload_policy: OffloadPolicy = ON_THE_DEVICE,
    ignored_params: set[Any] | None = None,
    dp_mesh_dims: Any = None,
) -> Any:
    """Puts the parameters of a module in parts along their first dimension, one for each rank.

    Forward gathers them, and lets go of them after it; so does backward, which leaves each rank its
    part of the gradients, averaged over all ranks. An optimizer made after this has the states of
    the parts. Call it for the parts of a model first, such as its layers, then for the model: each
    call takes the parameters that are not sharded yet. The module is changed, and returned. Of a
    list of modules the parameters come and go together.

    Args:
        mesh: the ranks, all in one dimension by default. In a mesh of two dimensions the parts are
            along the second, and each row has all of them.
        reshard_after_forward: whether backward gathers anew; None: but for the outermost.
        shard_placement_fn: says along which dimension a parameter is in parts: Shard(dim), which
            the ranks divide, or None for the first.
        mp_policy: the dtypes of what is gathered, summed up and returned.
        offload_policy: CPUOffloadPolicy() has the parts in host memory.
        ignored_params: parameters that stay as they are.

    ValueError for a parameter without dimensions.

    >>> import cugrad as torch
    >>> import cugrad.distributed as dist
    >>> from cugrad.distributed.fsdp import fully_shard
    >>> dist.init_process_group("mpi", rank=0, world_size=1)
    >>> net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 2))
    >>> for layer in net:
    ...     _ = fully_shard(layer)
    >>> optimizer = torch.optim.SGD(fully_shard(net).parameters(), lr=0.1)
    >>> net(torch.ones(3, 4)).sum().backward()
    >>> optimizer.step()
    >>> type(net[0].weight).__name__, net[0].weight.placements
    ('DTensor', (Shard(dim=0),))
    >>> dist.destroy_process_group()
    """
    modules: list[Any] = list(module) if isinstance(module, (list, tuple)) else [module]
    _check_modules(modules)
    refused: dict[str, Any] = {"dp_mesh_dims": dp_mesh_dims}
    if reshard_after_forward not in (None, True, False) or type(reshard_after_forward) is int:
        refused["reshard_after_forward"] = reshard_after_forward
    for name, value in refused.items():
        if value is not None:
            raise NotImplementedError(
                f"fully_shard: got {name}={value!r}, which is not here: leave it out"
            )
    parameters = _own_parameters(modules, ignored_params or set(), shard_placement_fn)
    if mesh is None:
        device = parameters[0].parameter.device.type if parameters else "cpu"
        mesh = DeviceMesh.from_group(default_group(), device)
    if mesh.ndim > 2:
        raise ValueError(f"fully_shard: got a mesh of {mesh.ndim} dimensions, want one or two")
    group = ShardedGroup(parameters, mesh, mp_policy, offload_policy) if parameters else None
    if group is not None:
        group.reshards_after_forward = (
            None if reshard_after_forward is None else bool(reshard_after_forward)
        )
    members = _Together(modules)
    for part in modules:
        _make_sharded(part, _Sharding(group, mp_policy, members))
    return module


def _check_modules(modules: list[Any]) -> None:
    if not modules:
        raise ValueError("fully_shard: got an empty list, want a Module")
    for module in modules:
        if isinstance(module, FSDPModule):
            raise AssertionError("fully_shard: this module is sharded already")
        if not isinstance(module, Module):
            raise NotImplementedError(
                f"fully_shard: got {type(module).__name__}, want a Module, or a list of them"
            )
        if isinstance(module, (ModuleDict, ModuleList)) and (
            type(module).forward is Module.forward
        ):
            raise ValueError(
                "fully_shard does not support containers that do not implement forward: "
                f"{type(module).__name__}"
            )


def _make_sharded(module: Any, sharding: _Sharding) -> None:
    """Makes it an FSDPModule, which gathers its parameters for forward."""
    vars(module)["_sharding"] = sharding
    kind = type(module)
    if kind not in _classes:
        refusing = {"__deepcopy__": _not_copied, "__reduce_ex__": _not_copied}
        _classes[kind] = type(f"FSDP{kind.__name__}", (FSDPModule, kind), refusing)
    module.__class__ = _classes[kind]
    module.register_forward_pre_hook(_before_forward, prepend=True, with_kwargs=True)
    module.register_forward_hook(_after_forward, with_kwargs=False)
    module.register_state_dict_pre_hook(_in_parts)
    module.register_load_state_dict_pre_hook(_in_parts)


def _not_copied(module: Any, *args: Any) -> Any:
    raise AssertionError(
        "FSDP does not support deepcopy. Please use state dict for serialization. (fully_shard: "
        "make the module anew, and load what get_model_state_dict gives)"
    )


def _own_parameters(
    modules: list[Module], ignored: set[Any], placed: Callable[[Any], Any] | None
) -> list[ShardedParameter]:
    """The parameters of modules and of those below them that are not sharded yet."""
    owners: dict[Any, list[tuple[Module, str]]] = {}
    names: dict[Any, str] = {}
    for prefix, part in (named for module in modules for named in module.named_modules()):
        if isinstance(part, FSDPModule):
            continue
        for name, parameter in part._parameters.items():
            if parameter is None or parameter in ignored or hasattr(parameter, "placements"):
                continue
            owners.setdefault(parameter, []).append((part, name))
            names.setdefault(parameter, f"{prefix}.{name}".lstrip("."))
            if not parameter.ndim:
                raise ValueError(
                    "fully_shard doesn't support scalar parameters. Change "
                    f"{names[parameter]} to a 1D tensor with numel equal to 1."
                )
    return [
        ShardedParameter(o, parameter, names[parameter], _dim_of(parameter, placed))
        for parameter, o in owners.items()
    ]


def _dim_of(parameter: Tensor, placed: Callable[[Any], Any] | None) -> int:
    """The dimension along which a parameter is in parts."""
    placement = None if placed is None else placed(parameter)
    if placement is None:
        return 0
    if type(placement) is not Shard or not -parameter.ndim <= placement.dim < parameter.ndim:
        raise AssertionError(
            f"fully_shard: shard_placement_fn returned {placement!r} for a parameter of shape "
            f"{list(parameter.shape)}, want Shard(dim) or None"
        )
    return placement.dim % parameter.ndim


# ---------------------------------------------------------------------- around forward


def _before_forward(module: Any, args: Any, kwargs: Any) -> Any:
    sharding = module._sharding
    if sharding.tree is None:  # of all that are called, the outermost is the first
        sharding.tree = _Tree(module)
        for part in module.modules():
            if isinstance(part, FSDPModule) and part._sharding.tree is None:
                part._sharding.tree = sharding.tree
    if sharding.tree.root is module and not task.running:
        sharding.tree.order = []
    if not task.running:
        sharding.members.begin()
    if sharding.group is not None:
        sharding.group.unshard()
    for other in sharding.next_in_forward:
        if other._sharding.group is not None:
            other._sharding.group.begin_unshard()
    policy = sharding.policy
    if policy.param_dtype is not None and policy.cast_forward_inputs:
        args, kwargs = _cast((args, kwargs), policy.param_dtype)
    return args, kwargs


def _after_forward(module: Any, args: Any, output: Any) -> Any:
    sharding = module._sharding
    if sharding.policy.output_dtype is not None:
        output = _cast(output, sharding.policy.output_dtype)
    group, tree = sharding.group, sharding.tree
    if group is None:
        return output
    is_again = bool(task.running)  # a checkpoint's, within backward, which needs the whole yet
    if not is_again and sharding.members.are_through(module):
        reshards = group.reshards_after_forward
        if tree.root is not module if reshards is None else reshards:
            group.reshard()
        if sharding.next_in_backward:
            group.ahead_in_backward = None
        elif tree.order:
            group.ahead_in_backward = tree.order[-1]
        tree.order.append(group)
    if not is_again and tree.root is module:
        _end_forward(module)

    def before_backward(_: Tensor) -> None:
        group.before_backward()
        for other in sharding.next_in_backward:
            if other._sharding.group is not None:
                other._sharding.group.begin_unshard()

    for tensor in _tensors_in(output):
        if tensor.requires_grad:
            tensor.register_hook(before_backward)
    return output


def _end_forward(root: Any) -> None:
    """Lets go of groups of several modules of which not all have computed."""
    for module in root.modules():
        if isinstance(module, FSDPModule) and module._sharding.members.to_come:
            sharding = module._sharding
            sharding.members.to_come.clear()
            if sharding.group is not None and sharding.group.reshards_after_forward is not False:
                sharding.group.reshard()


def _in_parts(module: Any, *args: Any) -> None:
    """Before state dicts are made or read."""
    module.reshard()


def register_fsdp_forward_method(module: Any, method_name: str) -> None:
    """Has another method of a sharded module, than `forward`, gather its parameters, too."""
    if not isinstance(module, FSDPModule):
        return
    method = getattr(module, method_name)

    def called(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = _before_forward(module, args, kwargs)
        return _after_forward(module, args, method(*args, **kwargs))

    setattr(module, method_name, called)


def _tensors_in(value: Any) -> Iterator[Any]:
    waiting = [value]
    while waiting:
        x = waiting.pop()
        if isinstance(x, Tensor):
            yield x
        elif isinstance(x, dict):
            waiting.extend(x.values())
        elif isinstance(x, (list, tuple)):
            waiting.extend(x)
        elif hasattr(x, "__dataclass_fields__"):
            waiting.extend(vars(x).values())


def _cast(value: Any, dtype: Any) -> Any:
    """The same with its floating-point tensors in a dtype."""
    if isinstance(value, Tensor):
        return value.to(dtype) if value.is_floating_point() else value
    if isinstance(value, dict):
        return {k: _cast(x, dtype) for k, x in value.items()}
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return type(value)(_cast(x, dtype) for x in value)
    return value
