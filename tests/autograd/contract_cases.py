"""Every kind of tensor under every action in every mode: what comes out, on either library."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

# How a tensor came to be: (what its gradient goes to, the tensor). Made in normal mode.

Two = tuple[Any, Any]


def _leaf(lib: Any) -> Any:
    return lib.tensor([1.0, 2.0, 3.0], requires_grad=True)


def _plain(lib: Any) -> Any:
    return lib.tensor([1.0, 2.0, 3.0])


def _computed_now(lib: Any) -> Any:
    return _leaf(lib) * 1


def plain(lib: Any) -> Two:
    x = _plain(lib)
    return x, x


def leaf(lib: Any) -> Two:
    x = _leaf(lib)
    return x, x


def computed(lib: Any) -> Two:
    x = _leaf(lib)
    return x, x * 1


def _inside(mode: Callable[[Any], Any], make: Callable[[Any], Two]) -> Callable[[Any], Two]:
    def made(lib: Any) -> Two:
        with mode(lib):
            return make(lib)

    return made


def _of(base: Callable[[Any], Two], view: Callable[[Any, Any], Any], *modes: str) -> Any:
    """What `view` makes of a tensor, in modes one within the other."""

    def made(lib: Any) -> Two:
        root, x = base(lib)
        with ExitStack() as stack:
            for mode in modes:
                stack.enter_context(MODES[mode](lib))
            return root, view(lib, x)

    return made


def _whole(lib: Any, x: Any) -> Any:
    return x.view(3, 1)


def _first(lib: Any, x: Any) -> Any:
    return x[:2]


def _one_of_many(lib: Any, x: Any) -> Any:
    return x.split(2)[0]


def _again(lib: Any, x: Any) -> Any:
    return x.view(-1)


def _function(change: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """A custom Function whose forward is `change`, and whose gradient that of a view."""

    def call(lib: Any, x: Any) -> Any:
        class Own(lib.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                ctx.shape = x.shape
                return change(ctx, x)

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                return g.reshape(ctx.shape)

        return Own.apply(x)

    return call


def _dirty(ctx: Any, x: Any) -> Any:
    ctx.mark_dirty(x)
    return x.mul_(2)


def _retaining(lib: Any, x: Any) -> Any:
    x.retain_grad()
    return x


def _changed(lib: Any, x: Any) -> Any:
    x.mul_(2)
    return x


def _view_of_changed(lib: Any, x: Any) -> Any:
    view = x.view(3, 1)
    x.mul_(2)
    return view


@contextmanager
def _normal(lib: Any) -> Iterator[None]:
    yield


@contextmanager
def _enabled_in_inference(lib: Any) -> Iterator[None]:
    with lib.inference_mode(), lib.enable_grad():
        yield


@contextmanager
def _normal_in_inference(lib: Any) -> Iterator[None]:
    with lib.inference_mode(), lib.inference_mode(False):
        yield


MODES: dict[str, Callable[[Any], Any]] = {
    "normal": _normal,
    "no_grad": lambda lib: lib.no_grad(),
    "inference": lambda lib: lib.inference_mode(),
    "enabled": _enabled_in_inference,
    "off_again": _normal_in_inference,
}


def _attribute(name: str, value: Any) -> Callable[[Any, Any], Any]:
    return lambda lib, x: setattr(x, name, value)


def _with(other: Callable[[Any], Any], op: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda lib, x: op(x, other(lib).reshape(x.shape))


def _setitem(lib: Any, x: Any) -> None:
    x[0] = 5.0


def _through_pickle(lib: Any, x: Any) -> Any:
    return pickle.loads(pickle.dumps(x))


def _data(lib: Any, x: Any) -> Any:
    y = lib.zeros(x.shape)
    y.data = x
    return y


def _saving(lib: Any, x: Any) -> Any:
    class Twice(lib.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (x,) = ctx.saved_tensors
            return g * 2 + x * 0

    return Twice.apply(x)


BASES: dict[str, Callable[[Any], Two]] = {"plain": plain, "leaf": leaf, "computed": computed}
SUBJECTS: dict[str, Callable[[Any], Two]] = {
    **BASES,
    "inference": _inside(MODES["inference"], plain),
    "inference_leaf": _inside(MODES["inference"], leaf),
    "inference_computed": _inside(MODES["inference"], computed),
    "enabled": _inside(MODES["enabled"], computed),
    "off_again": _inside(MODES["off_again"], computed),
    "inference_view": _of(_inside(MODES["inference"], plain), _whole, "inference"),
    "inference_slice": _of(_inside(MODES["inference"], plain), _first, "inference"),
    "many_of_inference": _of(_inside(MODES["inference"], plain), _one_of_many, "inference"),
    "later_view_of_inference": _of(_inside(MODES["inference"], plain), _whole),
    **{f"view_of_{name}": _of(base, _whole) for name, base in BASES.items()},
    **{f"slice_of_{name}": _of(base, _first) for name, base in BASES.items()},
    **{f"one_of_many_of_{name}": _of(base, _one_of_many) for name, base in BASES.items()},
    **{f"view_of_one_of_many_of_{name}": _of(_of(base, _one_of_many), _again)
       for name, base in BASES.items()},
    **{f"{mode}_view_of_{name}": _of(base, _whole, mode)
       for name, base in BASES.items() for mode in ("no_grad", "inference", "enabled")},
    **{f"{mode}_one_of_many_of_{name}": _of(base, _one_of_many, mode)
       for name, base in BASES.items() for mode in ("no_grad", "inference")},
    **{f"view_of_{mode}_view_of_{name}": _of(_of(base, _whole, mode), _again)
       for name, base in BASES.items() for mode in ("no_grad", "inference")},
    "no_grad_view_of_inference_view": _of(_of(computed, _whole, "inference"), _again, "no_grad"),
    "no_grad_view_of_view": _of(_of(computed, _whole), _again, "no_grad"),
    **{f"detach_of_{name}": _of(base, lambda lib, x: x.detach()) for name, base in BASES.items()},
    **{f"data_of_{name}": _of(base, lambda lib, x: x.data) for name, base in BASES.items()},
    "view_of_detached": _of(computed, lambda lib, x: x.detach().view(3, 1)),
    "function_view": _of(computed, _function(lambda ctx, x: x.view(3, 1))),
    "function_identity": _of(computed, _function(lambda ctx, x: x)),
    "function_identity_of_leaf": _of(leaf, _function(lambda ctx, x: x)),
    "function_of_view": _of(_of(computed, _whole), _function(lambda ctx, x: x)),
    "view_of_function_view": _of(_of(computed, _function(lambda ctx, x: x.view(3, 1))), _again),
    "function_dirty": _of(computed, _function(_dirty)),
    "function_copy": _of(computed, _function(lambda ctx, x: x * 1)),
    "no_grad_function_view": _of(computed, _function(lambda ctx, x: x.view(3, 1)), "no_grad"),
    "expanded": _of(computed, lambda lib, x: x.expand(2, 3)),
    "diagonal": _of(computed, lambda lib, x: x.diag().diagonal()),
    "retaining": _of(computed, _retaining),
    "changed": _of(computed, _changed),
    "view_of_changed": _of(computed, _view_of_changed),
}  # fmt: skip

ACTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "itself": lambda lib, x: x,
    "add": lambda lib, x: x + 1,
    "mul": lambda lib, x: x * 2,
    "mul self": lambda lib, x: x * x,
    "sin": lambda lib, x: x.sin(),
    "exp": lambda lib, x: x.exp(),
    "sum": lambda lib, x: x.sum(),
    "sum dim": lambda lib, x: x.sum(0),
    "argmax": lambda lib, x: x.argmax(),
    "greater": lambda lib, x: x > 1,
    "sort": lambda lib, x: x.sort(0)[0],
    "double": lambda lib, x: x.to(lib.float64),
    "float": lambda lib, x: x.to(lib.float32),
    "bool": lambda lib, x: bool(x.sum() > 1),
    "clone": lambda lib, x: x.clone(),
    "contiguous": lambda lib, x: x.contiguous(),
    "zeros_like": lambda lib, x: lib.zeros_like(x),
    "cat": lambda lib, x: lib.cat([x, x]),
    "stack": lambda lib, x: lib.stack([x, x]),
    "view": lambda lib, x: x.view(-1),
    "view view": lambda lib, x: x.view(-1).view(-1, 1),
    "t": lambda lib, x: x.t(),
    "select": lambda lib, x: x[0],
    "slice": lambda lib, x: x[:2],
    "unbind": lambda lib, x: x.unbind(0)[1],
    "expand": lambda lib, x: x.reshape(1, -1).expand(2, -1),
    "detach": lambda lib, x: x.detach(),
    "detach_": lambda lib, x: x.detach_(),
    "data": lambda lib, x: x.data,
    "data of another": _data,
    "deepcopy": lambda lib, x: copy.deepcopy(x),
    "pickle": _through_pickle,
    "parameter": lambda lib, x: lib.nn.Parameter(x),
    "as_tensor": lambda lib, x: lib.as_tensor(x),
    "add_": lambda lib, x: x.add_(1),
    "mul_": lambda lib, x: x.mul_(2),
    "zero_": lambda lib, x: x.zero_(),
    "iadd": lambda lib, x: x.__iadd__(1),
    "setitem": _setitem,
    "fill slice": lambda lib, x: x[:1].fill_(2.0),
    "view add_": lambda lib, x: x.view(-1).add_(1),
    "detach add_": lambda lib, x: x.detach().add_(1),
    "data add_": lambda lib, x: x.data.add_(1),
    "copy_": _with(_plain, lambda x, y: x.copy_(y)),
    "copied": _with(_plain, lambda x, y: y.copy_(x)),
    "unsqueeze_": lambda lib, x: x.unsqueeze_(0),
    "add out": lambda lib, x: lib.add(lib.ones(x.shape), 1, out=x),
    "leaf + x": _with(_leaf, lambda x, n: n + x),
    "leaf * x": _with(_leaf, lambda x, n: n * x),
    "x * leaf": _with(_leaf, lambda x, n: x * n),
    "x * computed": _with(_computed_now, lambda x, n: x * n),
    "where": _with(_leaf, lambda x, n: n.where(n > 1, x)),
    "add_ leaf": _with(_leaf, lambda x, n: x.add_(n)),
    "mul_ leaf": _with(_leaf, lambda x, n: x.mul_(n)),
    "(leaf).add_": _with(_computed_now, lambda x, n: n.add_(x)),
    "(leaf).mul_": _with(_computed_now, lambda x, n: n.mul_(x)),
    "function": _saving,
    "requires_grad_": lambda lib, x: x.requires_grad_(),
    "requires_grad_ off": lambda lib, x: x.requires_grad_(False),
    "requires_grad=": _attribute("requires_grad", True),
    "reads": lambda lib, x: [_said(lambda r=read: r(lib, x)) for read in READS.values()],
    "retain_grad": lambda lib, x: x.retain_grad(),
    "register_hook": lambda lib, x: x.register_hook(lambda g: g) and None,
    "is_inference": lambda lib, x: (x.is_inference(), lib.is_inference(x)),
    "increment_version": lambda lib, x: lib.autograd.graph.increment_version(x),
    "backward": lambda lib, x: x.sum().backward(),
    "grad": _with(_leaf, lambda x, n: _leaf_grad(n, x)),
    "repr": lambda lib, x: repr(x)[:7],
    "numpy": lambda lib, x: x.detach().numpy().tolist(),
}


def _leaf_grad(n: Any, x: Any) -> Any:
    """The gradient of a leaf where `x` is the gradient that comes in."""
    (n * 2).backward(x)
    return n.grad


def _described(lib: Any, value: Any) -> Any:
    if isinstance(value, lib.Tensor):
        return (
            f"inference={value.is_inference()} requires_grad={value.requires_grad} "
            f"leaf={value.is_leaf} base={value._base is not None} "
            f"values={[round(v, 3) for v in value.detach().double().reshape(-1).tolist()]}"
        )
    return repr(value)


def _said(call: Callable[[], Any]) -> str:
    """What a call returns, or its error up to the first full stop."""
    try:
        return str(call())
    except Exception as error:
        return f"{type(error).__name__}: {str(error).partition('.')[0]}"


def _gradient(lib: Any, root: Any, x: Any) -> Any:
    """The gradient of what a tensor is now, with respect to what it came from."""
    if not (isinstance(x, lib.Tensor) and x.requires_grad and root.requires_grad):
        return None
    (g,) = lib.autograd.grad((x * x).sum(), root, allow_unused=True, retain_graph=True)
    return None if g is None else [round(v, 3) for v in g.tolist()]


PYTORCH_CRASHES = {("view_of_changed", "register_hook")}

READS: dict[str, Callable[[Any, Any], Any]] = {
    "version": lambda lib, x: x._version,
    "requires_grad": lambda lib, x: x.requires_grad,
    "leaf": lambda lib, x: x.is_leaf,
    "grad_fn": lambda lib, x: x.grad_fn is not None,
    "output_nr": lambda lib, x: x.output_nr,
    "retains_grad": lambda lib, x: x.retains_grad,
    "base": lambda lib, x: None if x._base is None else x._base._version,
}


def outcome(lib: Any, subject: str, action: str, mode: str) -> list[str]:
    """What an action on a subject does, as lines of text that are the same on both libraries."""
    root, x = SUBJECTS[subject](lib)
    result: list[Any] = []

    def act() -> str:
        with MODES[mode](lib):
            result.append(ACTIONS[action](lib, x))
            return _described(lib, result[0])

    lines = [f"result: {_said(act)}"]
    lines += [f"{name}: {_said(lambda r=read: r(lib, x))}" for name, read in READS.items()]
    lines.append(f"gradient: {_said(lambda: _gradient(lib, root, x))}")
    if result and result[0] is not x:
        lines.append(f"result's gradient: {_said(lambda: _gradient(lib, root, result[0]))}")
    return lines
