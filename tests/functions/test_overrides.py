"""`__torch_function__`: classes and modes that take the calls of functions, as in PyTorch."""

from __future__ import annotations

import abc
import contextlib
import copy
import inspect
import pickle
import threading
import warnings
from collections.abc import Callable
from typing import Any

import pytest

import cugrad
from cugrad.autograd.recording.fast import compile_function
from cugrad.ops.table import TABLE
from cugrad.runtime import dispatching
from cugrad.runtime.absent import Absent
from tests.nn.test_modules import CASES

ANSWER = object()

# What PyTorch's own parser refuses before it asks; a slot of ours; constants of ours.
APART = {
    "torch.Tensor.set_", "torch.Tensor._grad.__get__", "torch.Tensor._grad_fn.__get__",
    "torch.Tensor.__setitem__", "torch.Tensor.requires_grad.__set__",
}  # fmt: skip

# Calls with x of a subclass, p a Tensor, w a Parameter: who is asked, of what class results are.
CALLS = """
    x+1; 1+x; x-1; 1-x; x*x; 1/x; x/2; 2//x; x%2; 2%x; 2**x; x@x.T; -x; abs(x); x==1; x!=1; 1<x
    x>=x; x[0]; x[x>1]; x[0,1]; len(x); bool(x.sum()>0); float(x[0,0]); x.shape; x.grad; x.T; x.data
    x.is_leaf; x.dtype; x.device; repr(x); str(x); x.size(); 1 in x; x.numpy(); x.add_(1)
    torch.add(x,1); torch.cat([p,x]); torch.stack((x,)); p+x; x+p; p*x; p@x.T; p.add(x)
    torch.add(p,x); w+x; w*2; F.linear(x,w); F.relu(x); F.softmax(x,0); torch.nn.Linear(3,2)(x)
    torch.nn.LayerNorm(3)(x); torch.zeros_like(x); x.new_zeros(2); x.tolist(); x.requires_grad_()
    torch.is_tensor(x); torch.numel(x); x.mT; x.real; x.to(torch.float64); x.double(); x.split(1)
    x.chunk(2); x.norm(); x.unique(); x.max(0); x.sort(); x.max(0).values; x.reshape(6); x.clone()
    x._version; x.stride(); x.is_contiguous(); x.backward(p); x.requires_grad_().sum().backward()
    torch.tensor(x); torch.as_tensor(x); torch.where(x>0,x,0); torch.linalg.norm(x)
    torch.fft.fft(x); torch.special.expm1(x); x.sum().item(); torch.equal(x,x)
    x.masked_fill(x>1,0); x.expand(2,2,3)
    x.unbind(0); torch.var_mean(x); x.fill_(1); p.copy_(x); x.grad_fn; torch.sum(input=x)
    torch.Tensor.add(p,x); torch.mul(input=p,other=x); S([1.,2.]); S(2,3); torch.nn.Parameter(x)
    S._make_subclass(S,p); S._make_subclass(S,p,True).requires_grad; hash(x); x.as_subclass(S)
    isinstance(torch.nn.Parameter(x), torch.nn.Parameter)
"""


def loggers(lib: Any) -> tuple[Any, Any, list[Any]]:
    """A class and a mode that note what they are asked, and do what would be done without them."""
    seen: list[Any] = []

    class S(lib.Tensor):
        @classmethod
        def __torch_function__(
            cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            seen.append((lib.overrides.resolve_name(func), tuple(t.__name__ for t in types)))
            return super().__torch_function__(func, types, args, kwargs)

    class Mode(lib.overrides.TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            seen.append(("mode", lib.overrides.resolve_name(func)))
            return func(*args, **(kwargs or {}))

    return S, Mode, seen


def kind_of(value: Any) -> Any:
    if isinstance(value, (tuple, list)) and type(value).__name__ != "Size":
        return [kind_of(x) for x in value]
    return type(value).__name__


def outcome(lib: Any, call: str, with_mode: bool) -> tuple[list[Any], Any]:
    S, Mode, seen = loggers(lib)
    names = {"x": lib.arange(6.0).reshape(2, 3).as_subclass(S), "p": lib.ones(2, 3), "S": S,
             "F": lib.nn.functional, "w": lib.nn.Parameter(lib.ones(2, 3)),
             "torch": lib}  # fmt: skip
    seen.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            if with_mode:
                with Mode():
                    result = eval(call, names)
            else:
                result = eval(call, names)
        except Exception as error:
            result = error
    return list(seen), kind_of(result)


@pytest.mark.parametrize("with_mode", [False, True], ids=["class", "mode"])
def test_who_is_asked_and_what_results_are(with_mode: bool) -> None:
    torch = pytest.importorskip("torch")
    calls = [call.strip() for line in CALLS.split("\n") for call in line.split(";") if call.strip()]
    if with_mode:  # what a mode sees of how a layer is made is the library's own doing
        calls = [call for call in calls if not call.startswith("torch.nn.")]
    differing = []
    for call in calls:
        theirs, ours = outcome(torch, call, with_mode), outcome(cugrad, call, with_mode)
        if theirs != ours:
            differing.append((call, theirs, ours))
    assert len(calls) > 90 and not differing


def at(lib: Any, name: str) -> Any:
    """What is called `torch.Tensor.shape.__get__`, in a library; None if it has none."""
    thing = lib
    for part in name.split(".")[1:]:
        is_member = thing is lib.Tensor
        thing = (
            inspect.getattr_static(thing, part, None) if is_member else getattr(thing, part, None)
        )
        if thing is None or isinstance(thing, Absent):
            return None
    return thing if callable(thing) else None


def test_every_function_asks() -> None:
    """All of PyTorch's functions and methods that ask the class of an argument do so here."""
    torch = pytest.importorskip("torch")

    def asking(lib: Any) -> tuple[Any, list[Any]]:
        seen: list[Any] = []

        class S(lib.Tensor):
            @classmethod
            def __torch_function__(cls, func: Any, *more: Any) -> Any:
                seen.append(func)
                return ANSWER

        return lib.ones(2, 3).as_subclass(S), seen

    (x, seen), (y, noted) = asking(torch), asking(cugrad)

    def answers(function: Callable[..., Any], value: Any, count: int, calls: list[Any]) -> Any:
        calls.clear()
        try:
            return function(*[value] * count) is ANSWER and calls[0]
        except Exception:  # PyTorch's parser wants an int, before it asks
            return None

    count, wrong = 0, []
    for function, stand_in in torch.overrides.get_testing_overrides().items():
        name = torch.overrides.resolve_name(function)
        ours = at(cugrad, name) if name and name.startswith("torch.") else None
        if ours is None or name in APART:
            continue
        parameters = inspect.signature(stand_in).parameters.values()
        needed = sum(p.default is p.empty and p.kind <= p.POSITIONAL_OR_KEYWORD for p in parameters)
        theirs = answers(function, x, needed, seen)
        if not theirs or theirs is torch.Tensor.__index__:
            continue
        count += 1
        got = answers(ours, y, needed, noted)
        same = got is ours or cugrad.overrides.resolve_name(got) == name
        if not same and got != at(cugrad, torch.overrides.resolve_name(theirs) or ""):
            wrong.append(name)
    assert count > 900 and not wrong


def test_layers_give_what_their_input_is() -> None:
    torch = pytest.importorskip("torch")

    def kinds(lib: Any) -> list[Any]:
        class S(lib.Tensor):
            pass

        found = []
        for name, args, options, inputs in CASES:
            layer = getattr(lib.nn, name)(*args, **options).eval()
            values = [lib.tensor(v).as_subclass(S) if hasattr(v, "dtype") else v for v in inputs]
            try:
                found.append((name, kind_of(layer(*values))))
            except RuntimeError as error:  # what a layer refuses is another test's
                found.append((name, type(error).__name__))
        return found

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours = kinds(cugrad)
        assert ours == kinds(torch) and sum("S" in str(kind) for _, kind in ours) > 25


def test_without_subclasses_nothing_is_replaced() -> None:
    code = cugrad.add.__code__, cugrad.Tensor.mul.__code__

    class Weight(cugrad.nn.Parameter):
        pass

    assert not dispatching.TWINS
    assert (cugrad.add.__code__, cugrad.Tensor.mul.__code__) == code
    assert type(Weight(cugrad.ones(2)) + 1) is cugrad.Tensor

    class Image(cugrad.Tensor):
        pass

    assert cugrad.add.__code__ != code[0] and dispatching.TWINS


def test_a_function_that_was_imported_before_asks() -> None:
    from cugrad import exp
    from cugrad.nn.functional import gelu

    class Image(cugrad.Tensor):
        pass

    x = cugrad.ones(2).as_subclass(Image)
    assert type(exp(x)) is type(gelu(x)) is Image and exp is cugrad.exp
    assert "input" in inspect.signature(cugrad.sum).parameters


def test_values_and_gradients_are_those_of_a_tensor() -> None:
    class Image(cugrad.Tensor):
        pass

    def loss(w: Any, x: Any) -> Any:
        y = cugrad.nn.functional.layer_norm(x @ w, [4]).tanh() * 1.5
        y[0] = y[0] * 2
        return (y.softmax(1)[:, :2] ** 2).sum()

    x, w = cugrad.randn(3, 5), cugrad.randn(5, 4, requires_grad=True)
    v = w.detach().clone().requires_grad_()
    for context in (cugrad.no_grad, cugrad.enable_grad):
        with context():
            plain, image = loss(w, x), loss(v, x.as_subclass(Image))
        assert type(image) is Image and plain.item() == image.item()
    with cugrad.autograd.graph.save_on_cpu():
        image = loss(v, x.as_subclass(Image))
    plain.backward()
    image.backward()
    assert cugrad.equal(w.grad, v.grad) and type(v.grad) is cugrad.Tensor
    first, second = (cugrad.autograd.grad(loss(t, s), t, create_graph=True)[0].square().sum()
                     for t, s in ((w, x), (v, x.as_subclass(Image))))  # fmt: skip
    assert cugrad.equal(*(cugrad.autograd.grad(g, t)[0] for g, t in ((first, w), (second, v))))


@pytest.mark.parametrize("with_mode", [False, True])
def test_formulas_ask_no_one(lib: Any, with_mode: bool) -> None:
    """What is saved is of a class; so is a gradient that a hook gives, which meets another."""
    S, Mode, seen = loggers(lib)
    x = lib.tensor([0.5, 2.0], requires_grad=True)
    special = x.as_subclass(S)
    y = (special * special + special).log2().as_subclass(lib.Tensor)
    y.register_hook(lambda g: lib.Tensor.as_subclass(g, S) if g.requires_grad else None)
    ones = lib.ones(2)
    with Mode() if with_mode else contextlib.nullcontext():
        del seen[:]
        (g,) = lib.autograd.grad(y, x, ones, create_graph=True)
        for _ in range(2):
            lib.autograd.backward(lib.Tensor.as_subclass(g, lib.Tensor), ones, create_graph=True)
        called = {str(each[each[0] == "mode"]).rpartition(".")[2] for each in seen}
    assert called <= {"grad", "backward", "as_subclass", "__get__", "None"}  # torch.autograd
    assert x.grad.shape == (2,)


def test_a_changed_view_of_a_subclass_has_its_history() -> None:
    class Image(cugrad.Tensor):
        pass

    w = cugrad.ones(2, requires_grad=True)
    x = (w * 3).as_subclass(Image)
    x.mul_(2)
    assert type(x) is Image and x._is_view()
    x.sum().backward()
    assert w.grad.tolist() == [6, 6]


@pytest.mark.filterwarnings("ignore:`torch.jit")  # PyTorch's forward mode compiles
def test_a_subclass_may_have_slots(lib: Any) -> None:
    class Noted(lib.Tensor):
        __slots__ = ("note",)

    w = lib.ones(2, requires_grad=True)
    base = w * 3
    x = base.as_subclass(Noted)
    x.note = "kept"
    other = (x * 1).as_subclass(Noted)
    assert type(other) is Noted and not hasattr(other, "note")
    base.mul_(2)  # and its view has the new history
    assert type(x.sum()) is Noted and x.note == "kept" and x._is_view() and x._base is base
    x.mul_(2)
    base.sum().backward()
    assert w.grad.tolist() == [12, 12] and base.tolist() == [12, 12]
    plain = lib.Tensor._make_subclass(Noted, lib.ones(2), True)
    plain.square().sum().backward()
    assert plain.is_leaf and plain.grad.tolist() == [2, 2]
    with lib.autograd.forward_ad.dual_level():
        dual = lib.autograd.forward_ad.make_dual(lib.ones(2), lib.full((2,), 5.0))
        tangent = lib.autograd.forward_ad.unpack_dual(dual.as_subclass(Noted) * 2).tangent
        assert tangent.tolist() == [10, 10]


class Measured(cugrad.Tensor):
    """A tensor with a unit, which adds to its like alone."""

    unit = "m"

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is cugrad.Tensor.sub:
            return NotImplemented
        return super().__torch_function__(func, types, args, kwargs)


def test_copies_and_files_keep_the_class() -> None:
    dispatching.switch_on()  # as the class did, before tests began
    x = cugrad.ones(2).as_subclass(Measured)
    x.unit = "km"
    for y in (copy.copy(x), copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert type(y) is Measured and y.unit == "km" and y.tolist() == [1, 1]
    assert repr(x) == "Measured([1., 1.])"


def test_where_none_answers() -> None:
    class Other(cugrad.Tensor):  # switches functions on
        pass

    x = cugrad.ones(2).as_subclass(Measured)
    with pytest.raises(TypeError, match=r"no implementation found for .*sub.*\[Measured\]"):
        x.sub(1)
    with pytest.raises(TypeError, match="no implementation found for 'cugrad.add' .*Measured"):
        cugrad.add(x, cugrad.ones(2).as_subclass(Other))  # neither is a base of the other


class Scaled:
    """A class that derives from nothing of the library."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return cugrad.overrides.resolve_name(func)


@pytest.mark.parametrize(
    "call", ["torch.mean(d)", "torch.add(t, d)", "torch.mul(t, d)", "torch.cat([t, d])",
             "torch.exp(d)", "torch.nn.functional.conv2d(d, t)", "torch.linalg.norm(d)",
             "torch.where(d, t, t)", "torch.einsum('i->i', d)", "torch.Tensor.mul(t, d)"],
)  # fmt: skip
def test_classes_that_are_no_tensors_get_the_first_call(call: str) -> None:
    names = {"torch": cugrad, "t": cugrad.ones(2), "d": Scaled()}
    assert not dispatching.TWINS
    answers = eval(call, names), eval(call, names)
    assert answers == (call.partition("(")[0],) * 2


def test_modes_nest_and_are_of_their_thread() -> None:
    order: list[str] = []

    class Mode(cugrad.overrides.TorchFunctionMode):
        def __init__(self, name: str) -> None:
            self.name = name

        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            order.append(self.name)
            return func(*args, **(kwargs or {}))

    with Mode("outer"), Mode("inner"):
        cugrad.ones(1)
        thread = threading.Thread(target=cugrad.ones, args=(1,))
        thread.start()
        thread.join()
        with cugrad._C.DisableTorchFunctionSubclass():
            cugrad.zeros(1)
        with cugrad._C.DisableTorchFunction():
            cugrad.zeros(1)
    assert order == ["inner", "outer"] * 2
    refusal = pytest.raises(NotImplementedError, match="has no __torch_function__")
    with refusal, cugrad.overrides.TorchFunctionMode():
        cugrad.ones(1)
    assert cugrad._C._len_torch_function_stack() == 0


def test_functions_of_programs() -> None:
    depth: list[str] = []

    class Logged(cugrad.Tensor):
        @classmethod
        def __torch_function__(
            cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            depth.append(func.__name__)
            return cugrad.overrides.redispatch_function(func, types, args, kwargs)

    def scaled(a: Any, b: Any) -> Any:
        if cugrad.overrides.has_torch_function((a, b)):
            return cugrad.overrides.handle_torch_function(scaled, (a, b), a, b)
        return a * b + 1

    x = cugrad.full((1,), 3.0).as_subclass(Logged)
    result = scaled(x, x)
    assert depth == ["scaled", "mul"] and type(result) is cugrad.Tensor and result.item() == 10

    first = compile_function(TABLE["sin"])  # whose code is made when it is first called
    dispatching.overridable(first)
    first(x)
    assert depth == ["scaled", "mul", "sin"]

    class Silent(Logged):
        __torch_function__ = classmethod(lambda cls, *args: NotImplemented)  # type: ignore

    with pytest.raises(TypeError, match="no implementation found for .*scaled"):
        scaled(x.as_subclass(Silent), 1)


def test_lists_of_functions() -> None:
    overrides = cugrad.overrides
    listed = overrides.get_overridable_functions()
    assert cugrad.add in listed[cugrad] and cugrad.Tensor.add in listed[cugrad.Tensor]
    assert cugrad.nn.functional.relu in listed[cugrad.nn.functional]
    assert cugrad.zeros in overrides.get_ignored_functions()
    stand_in = overrides.get_testing_overrides()[cugrad.Tensor.shape.__get__]
    assert stand_in() == -1
    for function in (x for functions in listed.values() for x in functions):
        assert overrides.resolve_name(function), function


def test_what_cannot_become_a_subclass() -> None:
    class Unfinished(cugrad.Tensor, abc.ABC):
        __slots__ = ("extra",)

        @abc.abstractmethod
        def finish(self) -> None: ...

    with pytest.raises(TypeError, match="Unfinished: a Tensor does not become one .*abstract"):
        cugrad.ones(1).as_subclass(Unfinished)
    with pytest.raises(TypeError, match="must be a subclass of Tensor"):
        cugrad.ones(1).as_subclass(int)
    with pytest.raises(TypeError, match="_make_subclass.*must be a subclass of Tensor"):
        cugrad.Tensor._make_subclass(int, cugrad.ones(1))
    with pytest.raises(TypeError, match="'data' must be Tensor, not list"):
        cugrad.Tensor._make_subclass(Measured, [1])


def test_what_would_be_asked_below_autograd_is_refused_by_name() -> None:
    """Not left unasked: a class that is to unwrap its tensors would compute with nothing."""

    class Below(cugrad.Tensor):
        @classmethod
        def __torch_dispatch__(
            cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            return func(*args)

    for make in (lambda: cugrad.ones(1).as_subclass(Below),
                 lambda: cugrad.Tensor._make_subclass(Below, cugrad.ones(1)),
                 lambda: cugrad.Tensor._make_wrapper_subclass(Below, (1,))):  # fmt: skip
        with pytest.raises(NotImplementedError, match="Below.*__torch_function__ alone"):
            make()


def test_who_is_asked_can_read_the_locals_of_all_frames() -> None:
    seen: list[tuple[str, ...]] = []

    class Looking(cugrad.Tensor):
        @classmethod
        def __torch_function__(
            cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
        ) -> Any:
            frame = inspect.currentframe()
            while frame is not None:
                seen.append((frame.f_code.co_name, *frame.f_locals))
                frame = frame.f_back
            return ANSWER

    x = cugrad.ones(2).as_subclass(Looking)
    of_cells = [
        function for functions in cugrad.overrides.get_overridable_functions().values()
        for function in functions if getattr(getattr(function, "__code__", None), "co_freevars", ())
    ][:20]  # fmt: skip
    for function in of_cells:
        assert function(x) is ANSWER
        cells = {*function.__code__.co_freevars}
        assert any(name == function.__code__.co_name and cells <= {*rest} for name, *rest in seen)
    assert of_cells
