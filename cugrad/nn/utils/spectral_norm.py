"""Spectral normalisation: a weight divided by its largest singular value, which is estimated."""

from __future__ import annotations

from typing import Any, TypeVar

from ...autograd.mode import no_grad
from ...functions.maths.products import dot, mv
from ...linalg import multi_dot, pinv
from ...tensor import Tensor
from ..functional import normalize
from ..modules.conv import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from ..modules.module import Module
from ..parameter import Parameter
from .weight_norm import keys_of

__all__ = [
    "SpectralNorm", "SpectralNormLoadStateDictPreHook", "SpectralNormStateDictHook",
    "remove_spectral_norm", "spectral_norm",
]  # fmt: skip

M = TypeVar("M", bound=Module)


def default_dim(module: Module) -> int:
    """The dimension of a weight that counts its outputs."""
    turned = (ConvTranspose1d, ConvTranspose2d, ConvTranspose3d)
    return 1 if isinstance(module, turned) else 0


class SpectralNorm:
    """A hook that computes a weight before each call of its module; it goes on by a step of power
    iteration where the module is trained.
    """

    _version = 1

    def __init__(
        self, name: str = "weight", n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12
    ) -> None:
        if n_power_iterations <= 0:
            raise ValueError(
                "Expected n_power_iterations to be positive, but got "
                f"n_power_iterations={n_power_iterations}"
            )
        self.name, self.dim, self.eps = name, dim, eps
        self.n_power_iterations = n_power_iterations

    def reshape_weight_to_matrix(self, weight: Tensor) -> Tensor:
        """The weight with a row for each output."""
        if self.dim != 0:
            others = [d for d in range(weight.dim()) if d != self.dim]
            weight = weight.permute(self.dim, *others)
        return weight.reshape(weight.shape[0], -1)

    def compute_weight(self, module: Module, do_power_iteration: bool) -> Tensor:
        """The weight divided by its norm. Power iteration writes to the buffers in place."""
        weight = getattr(module, self.name + "_orig")
        u, v = getattr(module, self.name + "_u"), getattr(module, self.name + "_v")
        matrix = self.reshape_weight_to_matrix(weight)
        if do_power_iteration:
            with no_grad():
                for _ in range(self.n_power_iterations):
                    v.copy_(normalize(mv(matrix.t(), u), dim=0, eps=self.eps))
                    u.copy_(normalize(mv(matrix, v), dim=0, eps=self.eps))
                u, v = u.clone(), v.clone()  # the next step changes the buffers before backward
        normalized: Tensor = weight / dot(u, mv(matrix, v))
        return normalized

    def remove(self, module: Module) -> None:
        """Makes the weight a parameter again."""
        with no_grad():
            weight = self.compute_weight(module, do_power_iteration=False)
        for suffix in ("", "_u", "_v", "_orig"):
            delattr(module, self.name + suffix)
        module.register_parameter(self.name, Parameter(weight.detach()))

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self.name, self.compute_weight(module, do_power_iteration=module.training))

    def _solve_v_and_rescale(self, weight_mat: Tensor, u: Tensor, target_sigma: Tensor) -> Tensor:
        inverse = pinv(weight_mat.t().mm(weight_mat))
        v = multi_dot([inverse, weight_mat.t(), u.unsqueeze(1)]).squeeze(1)
        rescaled: Tensor = v.mul_(target_sigma / dot(u, mv(weight_mat, v)))
        return rescaled

    @staticmethod
    def apply(
        module: Module, name: str, n_power_iterations: int, dim: int, eps: float
    ) -> SpectralNorm:
        """Puts the original, and two vectors, in the place of a parameter. RuntimeError for a
        second time, ValueError where the parameter is None.
        """
        if keys_of(module, SpectralNorm, name):
            raise RuntimeError(
                f"Cannot register two spectral_norm hooks on the same parameter {name}"
            )
        norm = SpectralNorm(name, n_power_iterations, dim, eps)
        weight: Any = module._parameters[name]
        if weight is None:
            raise ValueError(f"`SpectralNorm` cannot be applied as parameter `{name}` is None")
        with no_grad():
            height, width = norm.reshape_weight_to_matrix(weight).shape
            u, v = (normalize(weight.new_empty(n).normal_(0, 1), dim=0, eps=eps)
                    for n in (height, width))  # fmt: skip
        delattr(module, name)
        module.register_parameter(name + "_orig", weight)
        setattr(module, name, weight.data)  # what is no parameter: it is computed anew in each call
        module.register_buffer(name + "_u", u)
        module.register_buffer(name + "_v", v)
        module.register_forward_pre_hook(norm)
        module._register_state_dict_hook(SpectralNormStateDictHook(norm))
        module._register_load_state_dict_pre_hook(SpectralNormLoadStateDictPreHook(norm))
        return norm


class SpectralNormLoadStateDictPreHook:
    """Makes `name_v` of a state dict that older versions of PyTorch wrote without it."""

    def __init__(self, fn: SpectralNorm) -> None:
        self.fn = fn

    def __call__(
        self, state_dict: Any, prefix: str, local_metadata: Any, strict: bool,
        missing_keys: list[str], unexpected_keys: list[str], error_msgs: list[str],
    ) -> None:  # fmt: skip
        fn, key = self.fn, prefix + self.fn.name
        version = local_metadata.get("spectral_norm", {}).get(fn.name + ".version")
        if version is not None and version >= 1:
            return
        whole = all(key + suffix in state_dict for suffix in ("_orig", "_u", "_v"))
        if version is None and whole and key not in state_dict:
            return
        missing = [key + suffix for suffix in ("_orig", "", "_u") if key + suffix not in state_dict]
        if missing:
            missing_keys.extend(missing if strict else [])
            return
        with no_grad():
            original, weight = state_dict[key + "_orig"], state_dict.pop(key)
            matrix = fn.reshape_weight_to_matrix(original)
            sigma = (original / weight).mean()
            state_dict[key + "_v"] = fn._solve_v_and_rescale(matrix, state_dict[key + "_u"], sigma)


class SpectralNormStateDictHook:
    """Notes in the metadata of a state dict that it has `name_v`."""

    def __init__(self, fn: SpectralNorm) -> None:
        self.fn = fn

    def __call__(self, module: Any, state_dict: Any, prefix: str, local_metadata: Any) -> None:
        noted = local_metadata.setdefault("spectral_norm", {})
        key = self.fn.name + ".version"
        if key in noted:
            raise RuntimeError(f"Unexpected key in metadata['spectral_norm']: {key}")
        noted[key] = self.fn._version


def spectral_norm(
    module: M,
    name: str = "weight",
    n_power_iterations: int = 1,
    eps: float = 1e-12,
    dim: int | None = None,
) -> M:
    """Divides a parameter by its largest singular value in each call of a module; the module.

    `dim` is the dimension that counts outputs: 1 for transposed convolutions, else 0. The singular
    value is estimated by `n_power_iterations` steps in each call in training. Source:
    https://arxiv.org/abs/1802.05957.

    >>> import cugrad as torch
    >>> layer = torch.nn.utils.spectral_norm(torch.nn.Linear(20, 40))
    >>> layer.weight_u.shape, [name for name, _ in layer.named_parameters()]
    (torch.Size([40]), ['bias', 'weight_orig'])
    """
    dim = default_dim(module) if dim is None else dim
    SpectralNorm.apply(module, name, n_power_iterations, dim, eps)
    return module


def remove_spectral_norm(module: M, name: str = "weight") -> M:
    """Makes the weight a parameter again; ValueError where `spectral_norm` was not applied."""
    keys = keys_of(module, SpectralNorm, name)
    if not keys:
        raise ValueError(f"spectral_norm of '{name}' not found in {module}")
    hooks: dict[Any, Any] = module._forward_pre_hooks
    hooks.pop(keys[0]).remove(module)
    theirs = (SpectralNormStateDictHook, SpectralNormLoadStateDictPreHook)
    registered: list[Any] = [module._state_dict_hooks, module._load_state_dict_pre_hooks]
    for hooks in registered:
        for key, hook in list(hooks.items()):
            hook = getattr(hook, "hook", hook)
            if isinstance(hook, theirs) and hook.fn.name == name:
                del hooks[key]
                break
    return module
