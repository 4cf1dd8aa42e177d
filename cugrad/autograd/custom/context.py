"""The node of a custom Function, which is `ctx` to its forward and backward."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from ...backends.batched import arrays as batched
from ...backends.several import at
from ...tensor import Tensor, make
from ..mode import no_grad, state
from ..recording import saved as saving
from ..recording.node import FREED, FREED_TEXT, Node, Output, edge_of
from ..recording.recorded import recorded

if TYPE_CHECKING:
    from ..function import Function

__all__ = ["BackwardCFunction", "FunctionCtx"]


class FunctionCtx:
    """What `forward` and `backward` of a custom Function share: `ctx`."""

    # defaults of what the user may set
    to_save: tuple[Tensor | None, ...] | None = None
    saved_for_forward: tuple[Tensor | None, ...] | None = None
    dirty_tensors: tuple[Tensor, ...] | None = None
    non_differentiable: tuple[Tensor, ...] | None = None
    materialize_grads = True

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Saves tensors (inputs, outputs, or others) for `ctx.saved_tensors` in backward.

        Saved this way they go through saved-tensor hooks, are checked for in-place changes, and
        are freed after backward. Where a node is recorded, TypeError for anything but tensors and
        None.
        """
        self.to_save = tensors

    def save_for_forward(self, *tensors: Tensor | None) -> None:
        """Saves tensors for `ctx.saved_tensors` in `jvp`. AssertionError for anything else."""
        if not all(t is None or isinstance(t, Tensor) for t in tensors):
            raise AssertionError(
                "save_for_forward expects all arguments to be tensors; you should save non-tensors "
                "as attributes on ctx."
            )
        self.saved_for_forward = tensors

    def mark_dirty(self, *args: Tensor) -> None:
        """Says which inputs `forward` changed in place; each must be an output too."""
        self.dirty_tensors = args

    def mark_shared_storage(self, *pairs: Any) -> None:
        """Deprecated: shared storages are tracked without it."""
        warnings.warn(
            "`mark_shared_storage` is deprecated. Tensors with shared storages are automatically "
            "tracked. Note that calls to `set_()` are not tracked",
            FutureWarning,
            stacklevel=2,
        )

    def mark_non_differentiable(self, *args: Tensor) -> None:
        """Says which outputs have no gradient; integer outputs need not be named."""
        self.non_differentiable = args

    def set_materialize_grads(self, value: bool) -> None:
        """Whether backward gets zeros (True, the default) or None for outputs without gradient."""
        if not isinstance(value, bool):
            raise TypeError(
                "set_materialize_grads received an invalid combination of arguments - got "
                f"({type(value).__name__}), but expected (bool)"
            )
        self.materialize_grads = value


class FunctionPlan:
    """How the engine runs the node of a custom Function."""

    saves = ()

    def saved_name(self, index: int) -> str:
        return f"saved_tensors[{index}]"

    def vjp(self, node: BackwardCFunction, g: Any) -> Any:
        gradients = g if type(g) is tuple else (g,)
        wrapped = [None if x is None else make(x) for x in gradients]
        with no_grad():
            results = node.call_backward(wrapped)
        return [None if r is None else r if r.is_sparse else r._array for r in results]

    def vjp_recorded(self, node: BackwardCFunction, g: Any) -> Any:
        return node.call_backward(list(g) if type(g) is tuple else [g])


class BackwardCFunction(Node, FunctionCtx):
    """The node of a custom Function, which is also its `ctx`."""

    plan = FunctionPlan()
    _forward_cls: type[Function]
    _materialize_non_diff_grads = True
    needs_input_grad: tuple[bool, ...] = ()
    viewing: dict[int, int] | None = None  # under forward mode: outputs that are views of inputs

    def __init__(self) -> None:
        self.seq, self.edges, self.saved = 0, (), ()
        self.versions = self.meta = self.rare = None
        self.inputs_like: list[Any] = []  # per argument: (shape, dtype, _shared_by(it)), or None
        self.outputs_like: list[Any] = []  # per output: see `call_backward`

    def name(self) -> str:
        return type(self).__name__

    def __repr__(self) -> str:
        return f"<torch.autograd.function.{self.name()} object at {id(self):#x}>"

    @property
    def output_count(self) -> int:  # type: ignore[override]
        return len(self.outputs_like)

    @property
    def is_freed(self) -> bool:
        return self.saved is FREED

    def output(self, output_nr: int) -> Any:
        return self if self.output_count == 1 else Output(self, output_nr)

    def edge_of_entry(self, index: int) -> Any:
        entry = self.saved[index]
        return edge_of(entry) if entry.requires_grad else None

    def keep_packed(self, entries: tuple[Any, ...]) -> None:
        self.saved = entries

    def release(self) -> None:
        self.to_save = None
        if self.saved:
            self.saved, self.versions = FREED, None

    @property
    def saved_tensors(self) -> tuple[Tensor | None, ...]:
        """The tensors given to `save_for_backward`, unpacked and checked; those for `jvp` in it."""
        if self.saved_for_forward is not None:
            return self.saved_for_forward
        if self.is_freed:
            raise RuntimeError(FREED_TEXT)
        return saving.tensors(self)

    @property
    def saved_variables(self) -> tuple[Tensor | None, ...]:
        """Deprecated: `saved_tensors`."""
        warnings.warn("'saved_variables' is deprecated; use 'saved_tensors'", DeprecationWarning,
                      stacklevel=2)  # fmt: skip
        return self.saved_tensors

    @property
    def _raw_saved_tensors(self) -> tuple[saving.SavedTensor, ...]:
        if self.is_freed:
            raise RuntimeError(FREED_TEXT)
        return tuple([saving.SavedTensor(self, i) for i in range(len(self.saved))])

    def apply(self, *args: Any) -> Any:
        """Calls the user's backward with these gradients."""
        return self._forward_cls.backward_of()(self, *args)

    def apply_jvp(self, *args: Any) -> Any:
        """Calls the user's jvp with these tangents."""
        return self._forward_cls.jvp(self, *args)

    def keep(self, outputs: dict[int, Tensor]) -> None:
        """Turns what `save_for_backward` was given into saved entries; outputs go by number."""
        entries = list(self.to_save or ())
        for i, t in enumerate(entries):
            if t is not None and not isinstance(t, Tensor):
                raise TypeError(
                    f"save_for_backward can only save variables, but argument {i} is of type "
                    f"{type(t).__name__}"
                )
        for nr, out in outputs.items():
            for i, t in enumerate(entries):
                if t is out:
                    entries[i] = saving.keep_result(out, nr)
        self.saved, self.to_save = tuple(entries), None
        self.versions = saving.versions_of(self.saved) if entries else None
        if state.hooks:
            saving.pack(self)

    def call_backward(self, grads: list[Any]) -> list[Any]:
        """Runs the user's backward; the gradients of the tensor arguments, checked."""
        if self.materialize_grads:
            for i, (g, like) in enumerate(zip(grads, self.outputs_like, strict=True)):
                if g is None and like is not None:
                    shape, dtype, backend, place, differentiable = like
                    if differentiable or self._materialize_non_diff_grads:
                        with at(place):
                            grads[i] = make(backend.xp.zeros(shape, dtype))
        results = self.apply(*grads)
        results = list(results) if isinstance(results, tuple) else [results]
        expected = len(self.inputs_like)
        while len(results) > expected and results[-1] is None:
            results.pop()
        if len(results) != expected:
            raise RuntimeError(
                f"function {self.name()} returned an incorrect number of gradients (expected "
                f"{expected}, got {len(results)})"
            )
        edges = iter(self.edges)
        return [
            self._checked(i, r, like, next(edges))
            for i, (r, like) in enumerate(zip(results, self.inputs_like, strict=True))
            if like is not None or self._must_be_none(i, r)
        ]

    def _must_be_none(self, i: int, r: Any) -> bool:
        if r is not None:
            raise RuntimeError(
                f"function {self.name()} returned a gradient different than None at position "
                f"{i + 1}, but the corresponding forward input was not a Variable"
            )
        return False

    def _checked(self, i: int, r: Any, like: Any, edge: Any) -> Tensor | None:
        if r is None:
            return None
        if not isinstance(r, Tensor):
            raise RuntimeError(
                f"expected Variable or None (got {type(r).__name__}) from {self.name()} as "
                f"gradient {i}; backward returns one per argument of forward, several as a tuple"
            )
        if edge is None:  # it goes nowhere
            return r
        shape, dtype, shared_by = like
        if r.is_sparse and r.shape == shape and r.dtype.numpy == dtype:
            return r
        for level in shared_by:
            if level in batched.levels_of(r._array):
                r = recorded.vmap_total(r, level)
        if r._array.shape != shape:
            if not _broadcasts(shape, r._array.shape):
                raise RuntimeError(
                    f"Function {self.name()} returned an invalid gradient at index {i} - got "
                    f"{list(r.shape)} but expected shape compatible with {list(shape)}"
                )
            r = recorded.sum_to_shape(r, shape)
        if r._array.dtype != dtype:
            if r._array.dtype.kind == "c" and dtype.kind != "c":
                raise RuntimeError(
                    f"Function {self.name()} returned an invalid gradient at index {i} - got a "
                    "complex gradient for a real input: return its real part, gradient.real"
                )
            r = recorded.to_dtype(r, dtype)
        return r


def _broadcasts(shape: tuple[int, ...], wide: tuple[int, ...]) -> bool:
    """Whether a tensor of `shape` can be broadcast to `wide`."""
    pairs = zip(reversed(shape), reversed(wide))
    return len(shape) <= len(wide) and all(n in (1, m) for n, m in pairs)
