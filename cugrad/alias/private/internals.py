"""Small things of PyTorch's own that packages import: each does what it does there."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from typing import Any

from ...amp import autocast
from ...autograd.mode import no_grad
from ...distributions.positive import gamma_draws
from ...distributions.unit_interval import Dirichlet
from ...functions.creation.factories import eye
from ...nn.base.global_hooks import common
from ...nn.modules.module import Module
from ...nn.stateless import in_place_of
from ...optim import line_search
from ...tensor import Tensor
from ..refusals import refusal
from . import _reduction as _Reduction
from . import variable_functions as _VF

__all__ = ["_VF", "JitError", "TracerWarning", "_Reduction"]

_collate_fn_t = Callable[[list[Any]], Any]
_worker_init_fn_t = Callable[[int], None]


class TracerWarning(Warning):
    """torch.jit's warning of what a trace does not hold; nothing is traced, so it never comes."""


_JIT = "there are no graphs of jit: see torch.fx"
_get_trace_graph = refusal("torch.jit._get_trace_graph", _JIT)
Graph, Node, Value = (refusal(f"torch._C.{name}", _JIT) for name in ("Graph", "Node", "Value"))


class JitError(RuntimeError):
    """torch.jit's error from compiled code; nothing is compiled, so it never comes."""


def _construct_standard_basis_for(
    tensors: tuple[Tensor, ...], tensor_numels: tuple[int, ...]
) -> tuple[Tensor, ...]:
    """The unit vectors of all elements as rows, in a matrix for each tensor's part of them."""
    total = sum(tensor_numels)
    if not tensors or len(tensors) != len(tensor_numels):
        raise AssertionError(f"got {len(tensors)} tensors and {len(tensor_numels)} sizes of them")
    ends = [*accumulate(tensor_numels)]
    return tuple(
        eye(total, dtype=x.dtype, device=x.device)[:, end - n : end].clone()
        for x, n, end in zip(tensors, tensor_numels, ends)
    )


def _as_tuple(inp: Any, arg_name: str = "", fn_name: str = "") -> tuple[bool, tuple[Tensor, ...]]:
    """Whether it is a tuple of tensors, and it as one; TypeError for anything else."""
    values = inp if isinstance(inp, tuple) else (inp,)
    for value in values:
        if not isinstance(value, Tensor):
            raise TypeError(
                f"The {arg_name} given to {fn_name} must be either a Tensor or a tuple of Tensors "
                f"but got {type(value).__name__}."
            )
    return values is inp, values


def _tuple_postprocess(res: Any, to_unpack: bool | tuple[bool, bool]) -> Any:
    """What stands in tuples of one, in those that are not to stay: (outer, inner), or the one."""
    outer, inner = to_unpack if isinstance(to_unpack, tuple) else (to_unpack, True)
    res = res if inner else tuple(each[0] for each in res)
    return res if outer else res[0]


def _grad_postprocess(inputs: Any, create_graph: bool) -> Any:
    """The tensors, in tuples in tuples, without their graph unless it is to stay."""
    if isinstance(inputs, Tensor):
        return inputs if create_graph else inputs.detach()
    return tuple(_grad_postprocess(each, create_graph) for each in inputs)


def _strong_wolfe(
    obj_func: Callable[[Any, Any, Tensor], tuple[float, Tensor]], x: Any, t: Any, d: Tensor,
    f: float, g: Tensor, gtd: Any, c1: float = line_search.DECREASE,
    c2: float = line_search.CURVATURE, tolerance_change: float = 1e-9, max_ls: int = 25,
) -> tuple[float, Tensor, Any, int]:  # fmt: skip
    """The line search of LBFGS from `x` along `d`: value, gradient, step, and evaluations."""
    return line_search.strong_wolfe(
        lambda step: obj_func(x, step, d), t, d, f, g, gtd, tolerance_change, max_ls, c1, c2
    )


def _cubic_interpolate(
    x1: Any, f1: Any, g1: Any, x2: Any, f2: Any, g2: Any, bounds: tuple[Any, Any] | None = None
) -> Any:
    """Where the cubic through two values with their slopes is lowest, within bounds."""
    first, second = (line_search.Point(x, f, g, g) for x, f, g in ((x1, f1, g1), (x2, f2, g2)))
    return line_search.lowest_of_cubic(first, second, bounds)


@no_grad()
def _softmax_backward_data(
    grad_output: Tensor, output: Tensor, dim: int, input_dtype: Any
) -> Tensor:
    """The gradient of softmax's input: `output * (grad - sum(grad * output))` along a dim."""
    product: Any = grad_output * output
    return (product - output * product.sum(dim=dim, keepdim=True)).to(input_dtype)


def _standard_gamma(concentration: Tensor, generator: Any = None) -> Tensor:
    """Draws of the gamma law of rate 1, which have a gradient."""
    return gamma_draws(concentration, concentration.shape)


def _sample_dirichlet(concentration: Tensor, generator: Any = None) -> Tensor:
    """Draws of the Dirichlet law, which have a gradient."""
    return Dirichlet(concentration).rsample()


def _reparametrize_module(
    module: Module, parameters_and_buffers: dict[str, Tensor], *, tie_weights: bool = False,
    strict: bool = False, stack_weights: bool = False,
) -> Any:  # fmt: skip
    """A context in which a module has other tensors as its parameters and buffers."""
    return in_place_of(module, parameters_and_buffers, tie_weights, strict)


def _addindent(s_: str, numSpaces: int) -> str:
    """A text whose lines, but for the first, begin so far to the right."""
    return ("\n" + numSpaces * " ").join(s_.split("\n"))


class _Names(type):
    def __getattr__(cls, name: str) -> str:
        if name.startswith("__"):
            raise AttributeError(name)
        return name


class DispatchKey(metaclass=_Names):
    """The names of PyTorch's layers of dispatch: `DispatchKey.AutocastCUDA` is its own name."""


class DispatchKeySet(frozenset[str]):
    """A set of such names, from one: `DispatchKeySet(key) | DispatchKeySet(other)`."""

    def __new__(cls, key: str) -> DispatchKeySet:
        return super().__new__(cls, [key])


class _ExcludeDispatchKeyGuard:
    """A context without layers of dispatch: of those here, autocast is left out."""

    def __init__(self, keys: Any) -> None:
        kinds = [k[len("Autocast") :].lower() for k in keys if k.startswith("Autocast")]
        self._off = [autocast(kind, enabled=False) for kind in kinds if kind in ("cpu", "cuda")]

    def __enter__(self) -> None:
        for context in self._off:
            context.__enter__()

    def __exit__(self, *error: Any) -> None:
        for context in reversed(self._off):
            context.__exit__(*error)


_has_xpu = False


def _get_privateuse1_backend_name() -> str:
    """The name of a kind of device that nothing here has."""
    return "privateuseone"


def functional_datapipe(name: str, enable_df_api_tracing: bool = False) -> Callable[[Any], Any]:
    """A decorator that gives the class back: there are no data pipes whose method it could be."""
    return lambda cls: cls


class _HooksOfAll:
    """The hooks of all modules that are told of what modules are given, as a table of them."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def values(self) -> list[Callable[..., Any]]:
        """The hooks, in the order of registration."""
        return [hook.call for hook in common(self.kind)]


_global_parameter_registration_hooks = _HooksOfAll("parameter")
_global_buffer_registration_hooks = _HooksOfAll("buffer")
