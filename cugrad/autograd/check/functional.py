"""What the functions of `autograd.functional` have in common: arguments, strictness, results."""

from __future__ import annotations

from typing import Any

from ...backends import several
from ...tensor import Tensor, make
from ..engine.differentiate import grad

__all__ = [
    "Tensors", "check_depends", "check_vector", "fresh", "gradients", "nested", "settled", "tupled",
    "with_zeros", "zeros_like",
]  # fmt: skip

Tensors = tuple[Tensor, ...]
Found = tuple[Tensor | None, ...]


def tupled(value: Any, what: str, name: str) -> tuple[bool, Tensors]:
    """Whether `value` is a tuple, and it as one; TypeError for what is no Tensor."""
    values = value if isinstance(value, tuple) else (value,)
    for i, x in enumerate(values):
        if not isinstance(x, Tensor):
            which = f"value at index {i}" if values is value else f"given {what}"
            raise TypeError(
                f"The {what} given to {name} must be either a Tensor or a tuple of Tensors but the "
                f"{which} has type {type(x)}."
            )
    return values is value, values


def nested(rows: Any, *is_tuple: bool) -> Any:
    """Nested tuples, without the outermost levels that stand for a single Tensor."""
    if len(is_tuple) > 1 and not is_tuple[1]:
        rows = tuple(row[0] for row in rows)
    return rows if is_tuple[0] else rows[0]


def zeros_like(x: Tensor, requires_grad: bool = False) -> Tensor:
    return make(several.zeros_like(x._array), requires_grad)


def fresh(tensors: Tensors, create_graph: bool, need_graph: bool = True) -> Tensors:
    """New Tensors with the same elements. So a tensor that the function also captures is a constant
    there.

    With `create_graph` those that require gradients keep their history.
    """
    return tuple(
        x.view_as(x) if create_graph and x.requires_grad else x.detach().requires_grad_(need_graph)
        for x in tensors
    )


def settled(results: Any, create_graph: bool) -> Any:
    """The results, in nested tuples, without history unless the caller wants it."""
    if create_graph:
        return results
    return tuple(x.detach() if isinstance(x, Tensor) else settled(x, False) for x in results)


def gradients(
    outputs: Any,
    inputs: Tensors,
    vectors: Any = None,
    create_graph: bool = False,
    retain_graph: bool | None = None,
    is_grads_batched: bool = False,
) -> Found:
    """`autograd.grad` where some outputs may be absent, or depend on nothing; None for no gradient.

    All inputs get None where no output is left.
    """
    vectors = (None,) * len(outputs) if vectors is None else vectors
    pairs = [
        (o, v) for o, v in zip(outputs, vectors, strict=True) if o is not None and o.requires_grad
    ]
    if not pairs:
        return (None,) * len(inputs)
    return grad(
        [o for o, _ in pairs],
        inputs,
        [v for _, v in pairs],
        retain_graph=retain_graph,
        create_graph=create_graph,
        allow_unused=True,
        is_grads_batched=is_grads_batched,
    )


def check_vector(v: Tensors, like: Tensors, is_tuple: bool) -> None:
    """RuntimeError unless `v` has the shapes of `like`."""
    if len(v) != len(like):
        raise RuntimeError(
            f"v is a tuple of invalid length: should be {len(like)} but got {len(v)}."
            if is_tuple
            else "The given v should contain a single Tensor."
        )
    for i, (x, y) in enumerate(zip(v, like, strict=True)):
        if x.shape != y.shape:
            raise RuntimeError(
                (f"Entry {i} in " if is_tuple else "")
                + f"v has invalid size: should be {y.shape} but got {x.shape}."
            )


# Strictness ---------------------------------------------------------------------------------------

# In strict mode a result that does not depend on an input is an error. What is looked at, and what
# is said of entry {i} where it requires no gradient:
INDEPENDENT = {
    "outputs": "Output {i} of the user-provided function does not require gradients. The outputs "
    "must be computed in a differentiable manner from the input when running in strict mode.",
    "grad_inputs": "The gradient with respect to input {i} is independent of the inputs of the "
    "user-provided function. This is not allowed in strict mode.",
    "jacobian": "While computing the hessian, found that the jacobian of the user-provided "
    "function with respect to input {i} is independent of the input. This is not allowed in strict "
    "mode. You should ensure that your function is twice differentiable and that the jacobian "
    "depends on the inputs (this would be violated by a linear function for example).",
    "hessian": "The hessian of the user-provided function with respect to input {i} is independent "
    "of the input. This is not allowed in strict mode. You should ensure that your function is "
    "thrice differentiable and that the hessian depends on the inputs.",
}
NOT_STRICT = "The output of the user-provided function is independent of input {i}. "
# By the pass in which no gradient arrived for entry {i}:
ABSENT = {
    "back": NOT_STRICT + "This is not allowed in strict mode.",
    "back_trick": "The gradient with respect to the input is independent of entry {i} in the "
    "grad_outputs when using the double backward trick to compute forward mode gradients. This is "
    "not allowed in strict mode.",
    "double_back": "The jacobian of the user-provided function is independent of input {i}. This "
    "is not allowed in strict mode.",
    "double_back_trick": "The hessian of the user-provided function is independent of entry {i} in "
    "the grad_jacobian. This is not allowed in strict mode as it prevents from using the double "
    "backward trick to replace forward mode AD.",
}


def check_depends(tensors: Found, what: str, strict: bool) -> None:
    """In strict mode, RuntimeError for what requires no gradient, or is absent."""
    for i, x in enumerate(tensors) if strict else ():
        if x is None:
            raise RuntimeError(ABSENT["back"].format(i=i))
        if not x.requires_grad:
            raise RuntimeError(INDEPENDENT[what].format(i=i))


def with_zeros(
    grads: Found, like: Tensors, strict: bool, create_graph: bool, stage: str
) -> Tensors:
    """Zeros for absent gradients; in strict mode RuntimeError for them, and for constants."""
    results: list[Tensor] = []
    for i, (g, x) in enumerate(zip(grads, like, strict=True)):
        if strict and g is None:
            raise RuntimeError(ABSENT[stage].format(i=i))
        if strict and create_graph and g is not None and not g.requires_grad:
            what = "hessian" if stage.startswith("double") else "jacobian"
            raise RuntimeError(
                f"The {what} of the user-provided function is independent of input {i}. This is "
                "not allowed in strict mode when create_graph=True."
            )
        results.append(zeros_like(x) if g is None else g)
    return tuple(results)
