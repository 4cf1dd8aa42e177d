"""The op table: one row per op, and what follows from a row without knowing any engine."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any

import numpy as np

from ..backends import BY_ARRAY_TYPE, backend_of
from ..backends.batched import arrays as batched
from ..errors import FormulaError

__all__ = ["ELEMENTWISE", "LINEAR", "NONE", "TABLE", "Op", "raw", "row"]

ELEMENTWISE = "elementwise"  # the Jacobian is diagonal: the vjp formula is the jvp formula
LINEAR = "linear"  # linear in each differentiable argument: the jvp is the op on the tangent
NONE = "none"  # neither: the row writes its own jvp

COMMON = "common"  # operands meet in their common dtype
FLOAT = "float"  # as COMMON, and integers become the default floating-point dtype
SAME = "same"  # operands must have one dtype already
WEIGHED = "weighed"  # as SAME, and a last operand without dims meets the others as in COMMON
CAST = "cast"  # operands keep their dtypes; the gradients are cast to them

CHEAP = "cheap"  # as long as what it reads and writes takes: it may be run again at little cost
COSTLY = "costly"  # longer than that
PRODUCT = "product"  # costly, a product of matrices
CONVOLUTION = "convolution"

INHERITED = "inherited"  # `view=`: a view where its input is one, and else that tensor's other face
MIRRORED = "mirrored"  # `view=`: of other memory, which shows that of the input; see `Mirror`
AS_INPUT = "as input"  # `dense=`: channels of results lie last where those of an input do
CHANNELS_LAST = "channels last"  # so, too, and kernels that are written see to it themselves

Formula = Callable[..., Any]
REQUIRED: Any = type("Required", (), {"__repr__": lambda self: "REQUIRED"})()  # has no default


def parameters_of(function: Callable[..., Any]) -> tuple[str, ...]:
    """The names of a Python function's parameters. Far quicker than inspect.signature."""
    code = function.__code__
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


class Op:
    """One row of the table: a forward over arrays, and one derivative formula per input.

    The parameter names of a formula say what a node saves: an input's name is its value, an
    output's name (`result` unless the row says otherwise) is that output, `self_shape` the shape
    of `self` only, `m` the op namespace, `g` the incoming gradient; any other name is a parameter.
    """

    __slots__ = (
        "name", "inputs", "optional", "variadic", "params", "defaults", "forward", "ufunc", "kind",
        "formulas", "jvp_formula", "view", "outputs", "differentiable", "promote", "promoted",
        "holomorphic", "node_name", "_gradients", "doc", "many", "_counted", "inplace", "held",
        "inherits", "cost", "flops", "refuses", "fits", "public", "also", "out", "in_place",
        "widens", "passes", "dense", "lies", "number_first", "kernels", "demands", "numbers",
        "_saves", "exact", "mirrors", "spared",
    )  # fmt: skip

    def __init__(
        self,
        /,
        name: str,
        inputs: str,
        forward: str | Callable[..., Any],
        kind: str = NONE,
        *,
        jvp: Formula | None = None,
        view: bool | str = False,
        outputs: str = "result",
        nondifferentiable: str = "",
        promote: str | None = None,
        holomorphic: bool = True,
        node: str | Callable[..., str] | None = None,
        inplace: Callable[..., None] | None = None,
        held: bool = False,
        cost: str = CHEAP,
        flops: Callable[[list[Any], list[int]], int] | None = None,
        refuses: str = "",
        fits: str = "",
        demands: Callable[..., None] | None = None,
        public: bool | None = None,
        also: str = "",
        out: bool = True,
        in_place: bool = True,
        number_first: str = "",
        dense: bool | str = False,
        widens: bool = True,
        passes: int | None = None,
        kernels: tuple[int, int] = (0, 0),
        exact: str = "",
        spared: bool = False,
        doc: str = "",
        **formulas: Formula,
    ) -> None:
        names = inputs.split()
        self.name, self.kind, self.doc = name, kind, doc
        self.view, self.inherits = bool(view), view == INHERITED
        self.mirrors = view == MIRRORED
        self.variadic = len(names) == 1 and names[0].endswith("*")
        self.inputs = tuple(n.rstrip("?*") for n in names)
        self.optional = frozenset(n.rstrip("?") for n in names if n.endswith("?"))
        self.many = outputs.endswith("*")
        self.outputs = tuple(outputs.rstrip("*").split())
        hidden = nondifferentiable.split()
        self.differentiable = tuple(i for i, o in enumerate(self.outputs) if o not in hidden)
        self.holomorphic, self.inplace = holomorphic, inplace
        self.held = held  # its parameters count as saved: backward frees the node
        self.cost, self.flops = cost, flops  # operations, from the inputs' shapes and the result's
        self.refuses = refuses  # kinds of dtype, as NumPy's letters, once operands have met
        self.fits = tuple(fits.split())  # inputs and parameters: see promotion.check_numbers
        self.demands = demands  # of operands as they come: raises, before they meet
        derived = name.startswith("special_") or name.endswith("_backward")
        self.public = kind == ELEMENTWISE and not derived if public is None else public
        self.also = tuple(also.split())  # public functions that run it, beside one of its name
        self.out = out  # whether its public function takes out=
        self.in_place = in_place  # whether its method with an underscore is the row, in place
        self.number_first = number_first  # of its function: once stood before the operands
        self.dense = bool(dense)
        self.lies = lying_as if dense == AS_INPUT else None  # as the first operands do
        self.widens = widens  # whether a host computes half precision in float32, rounded once
        self.passes = passes  # of the forward over its elements, where its code has more than calls
        self.spared = spared  # a result that it saves is copied first where it is changed in place
        self.exact = exact  # an input of which a host rounds one number to half precision never
        self.kernels = kernels  # that a GPU has for its forward, and its gradients, if any
        self.node_name = node or _camel(name) + "Backward0"
        self.ufunc = forward if isinstance(forward, str) else None
        self.forward = _named(forward) if isinstance(forward, str) else forward
        if dense in (AS_INPUT, CHANNELS_LAST):
            self.forward = _as_input(self.forward)
        elif dense:
            self.forward = _densely(self.forward)
        self.params = self._read_params(forward)
        self.numbers = frozenset(self._wanted_numbers(kind))
        self.defaults = {n: d for n, d in self.params.items() if d is not REQUIRED}
        for wrong in set(formulas) - set(self.inputs):
            raise FormulaError(f"row {name}: a formula for {wrong!r}, want one of {self.inputs}")
        self.formulas = tuple(formulas.get(n) for n in self.inputs)
        self.jvp_formula = jvp
        if promote is None and kind == ELEMENTWISE:
            promote = COMMON
        self.promote = promote
        self.promoted = tuple(
            i for i, f in enumerate(self.formulas) if f is not None or not formulas
        )
        plain = {"m", "g", *self.inputs, *self.outputs, *self.params}
        for formula in filter(None, self.formulas):
            for parameter in parameters_of(formula):
                if parameter not in plain:  # a shape, or an error
                    self.where(parameter)
        if jvp is not None:
            for parameter in parameters_of(jvp):
                self.where(parameter, allowed=tuple(n + "_t" for n in self.inputs))
        elif kind == NONE and formulas:
            raise FormulaError(f"row {name}: of no kind, so it must write jvp=")
        self._gradients: dict[int, Callable[..., Any]] = {}
        self._saves: dict[int, tuple[str, ...]] = {}
        self._counted: dict[int, Op] = {}

    def counted(self, number: int) -> Op:
        """Of an op whose outputs are a list (`outputs="results*"`): the op with so many outputs."""
        op = self._counted.get(number)
        if op is None:
            op = self._counted[number] = copy(self)
            op.many, op._saves = False, {}
            op.outputs = tuple([f"{self.outputs[0]}{i}" for i in range(number)])
            op.differentiable = tuple(range(number))
        return op

    def _read_params(self, forward: str | Callable[..., Any]) -> dict[str, Any]:
        """The parameters of the forward after `xp` and the inputs, each with its default."""
        if isinstance(forward, str):
            return {}
        names, count = parameters_of(forward), len(self.inputs)
        if names[: count + 1] != ("xp", *self.inputs):
            raise FormulaError(
                f"row {self.name}: forward takes {names}, want xp, then {', '.join(self.inputs)}, "
                "then parameters"
            )
        defaults = dict(zip(reversed(names), reversed(forward.__defaults__ or ()), strict=False))
        defaults.update(forward.__kwdefaults__ or {})
        return {n: defaults.get(n, REQUIRED) for n in names[count + 1 :]}

    def _wanted_numbers(self, kind: str) -> list[str]:
        """The parameters that are numbers, if anything: with one as default, or that fit."""
        may_be = (float, type(None)) if kind == ELEMENTWISE else (float,)
        return [n for n, d in self.params.items() if n in self.fits or type(d) in may_be]

    def where(self, name: str, allowed: tuple[str, ...] = ()) -> str:
        """The expression that fetches a formula's parameter `name` from a node's belongings."""
        if name in ("m", "g") or name in allowed:
            return name
        if name in self.inputs or name in self.outputs:
            return f"s_{name}"
        if name.endswith("_shape") and name[:-6] in self.inputs:
            return f"shapes[{self.inputs.index(name[:-6])}]"
        if name.endswith("_shapes") and name[:-7] in self.inputs and self.variadic:
            return "shapes"
        if name in self.params:
            return f"params[{name!r}]"
        raise FormulaError(
            f"row {self.name}: a formula asks for {name!r}; known are m, g, inputs {self.inputs}, "
            f"outputs {self.outputs}, shapes such as {self.inputs[0]}_shape, and parameters "
            f"{tuple(self.params)}"
        )

    def saves(self, mask: int) -> tuple[str, ...]:
        """The inputs and outputs to save when the inputs in the bit set `mask` need a gradient.

        More inputs leave these in order, and put others between them.
        """
        if mask in self._saves:
            return self._saves[mask]
        needs = [
            (mask >> i & 1, name)
            for i, formula in enumerate(self.formulas)
            if formula is not None
            for name in parameters_of(formula)
            if self.where(name) == f"s_{name}"
        ]
        needed = {name for asked, name in needs if asked}
        names = dict.fromkeys(name for _, name in needs if name in needed)
        return self._saves.setdefault(mask, tuple(names))

    def gradients(self, mask: int) -> Callable[..., Any]:
        """`vjp(m, g, saved, shapes, params)` for the inputs in the bit set `mask`.

        It returns a tuple with one gradient (or None) per input; `saved` holds what `saves` names.
        Compiled once per mask into straight-line code.
        """
        vjp = self._gradients.get(mask)
        if vjp is None:
            vjp = self._gradients[mask] = self._compile_gradients(mask)
        return vjp

    def _compile_gradients(self, mask: int) -> Callable[..., Any]:
        places = {name: f"saved[{k}]" for k, name in enumerate(self.saves(mask))}
        calls = self.calls(mask, places)
        body = calls if self.variadic else f"({calls},)"
        scope = {"__name__": __name__, **self.formula_names()}
        return eval(f"lambda m, g, saved, shapes, params: {body}", scope)

    def calls(self, mask: int, places: dict[str, str]) -> str:
        """One call per input, as text: `F0(g, saved[0]), None` where `mask` has the first only.

        `places` says where what is saved lies, and what is called otherwise than in `where`.
        """
        calls = []
        for i, formula in enumerate(self.formulas):
            if formula is None or not mask >> i & 1:
                calls.append("None")
            else:
                arguments = [places.get(n) or self.where(n) for n in parameters_of(formula)]
                calls.append(f"F{i}({', '.join(arguments)})")
        return ", ".join(calls)

    def formula_names(self) -> dict[str, Formula]:
        """What `calls` calls its formulas."""
        return {f"F{i}": f for i, f in enumerate(self.formulas) if f is not None}

    def jvp(
        self,
        m: Any,
        primals: tuple[Any, ...],
        tangents: tuple[Any, ...],
        results: tuple[Any, ...],
        params: dict[str, Any],
    ) -> Any:
        """The tangent of the outputs at `primals` along `tangents` (None where an input has none).

        From the kind where the row has one: ELEMENTWISE sums its vjp formulas at the tangents,
        LINEAR runs the op with each tangent in its argument's place; else the row's own `jvp=`.
        """
        shapes = tuple(getattr(p, "shape", ()) for p in primals)
        if self.jvp_formula is not None:
            return self._own_jvp(m, primals, tangents, results, shapes, params)
        this, params = getattr(m, self.name), {**self.defaults, **params}
        if self.kind == LINEAR and self.variadic:
            pairs = zip(primals, tangents, strict=True)
            filled = [m.zero_like(p) if t is None else t for p, t in pairs]
            return this(filled, **params)
        total = None
        for i, tangent in enumerate(tangents):
            if tangent is None or self.formulas[i] is None:
                continue
            if self.kind == LINEAR:
                term = this(*primals[:i], tangent, *primals[i + 1 :], **params)
            else:
                values = dict(zip(self.inputs + self.outputs, primals + results, strict=True))
                saved = [values[name] for name in self.saves(1 << i)]
                term = self.gradients(1 << i)(m, tangent, saved, shapes, params)[i]
            total = term if total is None else total + term
        return total

    def _own_jvp(
        self, m: Any, primals: Any, tangents: Any, results: Any, shapes: Any, params: Any
    ) -> Any:
        formula = self.jvp_formula
        assert formula is not None
        values: dict[str, Any] = dict(zip(self.inputs, primals, strict=True))
        values.update(zip((n + "_t" for n in self.inputs), tangents, strict=True))
        values.update(zip(self.outputs, results, strict=True))
        values.update((n + "_shape", s) for n, s in zip(self.inputs, shapes, strict=True))
        values.update({"m": m, **self.defaults, **params})
        return formula(**{n: values[n] for n in parameters_of(formula)})

    def name_of_node(self, params: dict[str, Any]) -> str:
        """What PyTorch calls the node of this op: `SumBackward1`, where the row names it so."""
        name = self.node_name
        return name if isinstance(name, str) else name(params)

    def __repr__(self) -> str:
        return f"Op({self.name!r}, {' '.join(self.inputs)!r}, {self.kind})"


def _camel(name: str) -> str:
    """As PyTorch has it, with a capital behind a digit too: log1p leaves `Log1PBackward0`."""
    return name.title().replace("_", "") if name.islower() else name[0].upper() + name[1:]


def _named(function: str) -> Callable[..., Any]:
    return lambda xp, *arrays: getattr(xp, function)(*arrays)


def _densely(forward: Callable[..., Any]) -> Callable[..., Any]:
    """A forward whose results lie in the order of their dims, whatever the inputs do: they can be
    seen in another shape, where PyTorch's can."""

    def run(xp: Any, *args: Any, **params: Any) -> Any:
        value = forward(xp, *args, **params)
        if type(value) is tuple:
            return tuple([in_order(xp, x) for x in value])
        return in_order(xp, value)

    return run


def _as_input(forward: Callable[..., Any]) -> Callable[..., Any]:
    """A forward whose results have their channels last where those of an operand lie so."""

    def run(xp: Any, *args: Any, **params: Any) -> Any:
        value = forward(xp, *args, **params)
        return lying_as(xp, args[:2], value)

    return run


def lying_as(xp: Any, operands: tuple[Any, ...], value: Any) -> Any:
    """Results, one or a tuple, in the order of their dims, or with their channels last where those
    of an operand lie so.
    """
    rank = getattr(operands[0], "ndim", 0)
    order = (0, *range(2, rank), 1)
    last = rank in (4, 5) and any(
        getattr(x, "ndim", 0) == rank
        and not x.flags.c_contiguous
        and x.transpose(order).flags.c_contiguous
        for x in operands
    )
    back = (0, rank - 1, *range(1, rank - 1))
    results = [
        xp.ascontiguousarray(x.transpose(order)).transpose(back)
        if last and x.ndim == rank
        else in_order(xp, x, True)
        for x in (value if type(value) is tuple else (value,))
    ]
    return tuple(results) if type(value) is tuple else results[0]


def in_order(xp: Any, array: Any, last: bool = False) -> Any:
    """An array that lies in the order of its dims, or with its channels last."""
    if array.flags.c_contiguous:
        if 1 not in array.shape:
            return array
        return array.reshape(-1).reshape(array.shape)  # a dim of 1 may have had any stride
    if last and array.ndim in (4, 5):
        if array.transpose(0, *range(2, array.ndim), 1).flags.c_contiguous:
            return array
    return xp.ascontiguousarray(array)


TABLE: dict[str, Op] = {}


class RawNamespace:
    """The ops on arrays of any backend: `m` in a formula when backward builds no graph."""

    def fitted(self, gradients: Any, shapes: Any, dtypes: Any) -> tuple[Any, ...]:
        """Gradients in the shapes and dtypes of inputs: un-broadcast, real part, cast."""
        results = []
        for x, shape, dtype in zip(gradients, shapes, dtypes, strict=True):
            if x is not None and x.shape != shape:
                x = raw.sum_to_shape(x, shape)  # type: ignore[attr-defined]
            if x is not None and dtype is not None and x.dtype != dtype:
                if x.dtype.kind == "c" and dtype.kind != "c":
                    x = raw.real(x)  # type: ignore[attr-defined]
                x = raw.to_dtype(x, dtype)  # type: ignore[attr-defined]
            results.append(x)
        return tuple(results)


raw = RawNamespace()


def row(name: str, inputs: str, forward: Any, kind: str = NONE, **columns: Any) -> Op:
    """Declares an op. See `Op` for the columns; docs/adding-an-op.md for a worked example."""
    if name in TABLE:
        raise FormulaError(f"row {name}: declared twice")
    op = TABLE[name] = Op(name, inputs, forward, kind, **columns)
    setattr(raw, name, _raw_function(op))
    return op


def _raw_function(op: Op) -> Callable[..., Any]:
    forward, single = op.forward, len(op.outputs) == 1 and not op.many
    alone, pair = len(op.inputs) == 1, len(op.inputs) == 2
    functions: dict[type, Callable[..., Any]] = {}  # the row's forward, by the kind of its arrays

    if op.variadic:

        def call(*args: Any, **params: Any) -> Any:
            members = args[0]
            if batched.HIDING and batched.any_batched(members):
                members = batched.unify(members)
            backend, members = _on_one_backend(members)
            operands = list(members), *args[1:]
            if backend.runs_rows:
                return backend.wrap(backend.run_row(op, operands, params))
            return backend.wrap(forward(backend.xp, *operands, **params))

    else:

        def call(*args: Any, **params: Any) -> Any:
            if batched.HIDING:
                args = _unified(args, params)
            kind = type(args[0])
            if alone or pair and len(args) > 1 and type(args[1]) is kind:
                function = functions.get(kind)
                if function is not None:
                    value = function(*args, **params)
                    if type(value) is kind:
                        return value
                    wrap = BY_ARRAY_TYPE[kind].wrap
                    return wrap(value) if single else tuple(map(wrap, value))
            backend, args = _on_one_backend(args)
            if backend.runs_rows:
                value = backend.run_row(op, args, params)
                if kind in BY_ARRAY_TYPE and BY_ARRAY_TYPE[kind] is backend:
                    functions[kind] = backend.row_function(op)
            else:
                value = forward(backend.xp, *args, **params)
            return backend.wrap(value) if single else tuple(map(backend.wrap, value))

    call.__name__ = op.name
    return call


def _unified(args: tuple[Any, ...], params: dict[str, Any]) -> tuple[Any, ...]:
    """The arrays among the arguments at the same levels of vmap, those in parameters included."""
    others = [x for p in params.values() for x in (p if type(p) is tuple else (p,))]
    if batched.any_batched(args) or batched.any_batched(others):
        return tuple(batched.unify((*args, *others))[: len(args)])
    return args


def _on_one_backend(args: Any) -> tuple[Any, Any]:
    """The backend of the first array, and the arguments with arrays in the place of scalars.

    Operators make NumPy scalars of 0-d arrays: formulas have them between rows, no row gets one.
    They lie wherever the arrays beside them do.
    """
    backend = of_scalars = None
    for value in args:
        owner = BY_ARRAY_TYPE.get(type(value))
        if owner is None and hasattr(value, "dtype"):  # a scalar, or an array of a vmap
            owner = backend_of(value)
            if isinstance(value, np.generic):
                of_scalars = owner
                continue
        backend = backend or owner
    if of_scalars is not None:
        backend = backend or of_scalars
        args = [backend.wrap(x) if isinstance(x, np.generic) else x for x in args]
    if backend is None:
        raise TypeError("a raw op wants at least one array")
    return backend, args
