"""Einstein summation, made of views, sums and batched matrix products."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from ...autograd.autocast import autocasts
from ...autograd.recording.record import recorded
from ...tensor import Tensor
from ..calls.arguments import array_of
from ..shapes.views import reshape

__all__ = ["einsum"]

Labels = tuple[
    str, ...
]  # one for each dim; the dims of an ellipsis are ".0", ".1", ... from behind


@autocasts
def einsum(equation: str | Tensor, *operands: Any) -> Tensor:
    """Sums of products of elements, where dims that share a letter run together.

    Letters that are not in the output are summed over; `...` stands for dims that broadcast.
    Without `->` the output has the letters that occur once, in alphabetical order. Operands are
    contracted from left to right.

    Without an equation each operand is followed by a list of the numbers, 0 to 51, of its dims, and
    the last may be followed by that of the output; `...` may be in them.

    >>> import cugrad as torch
    >>> a, b = torch.ones(2, 3), torch.ones(3, 4)
    >>> torch.einsum("ij,jk->ik", a, b).shape, torch.einsum("ii", torch.ones(3, 3))
    (torch.Size([2, 4]), tensor(3.))
    >>> torch.einsum(a, [0, 1], b, [1, 2], [0, 2]).shape
    torch.Size([2, 4])
    """
    if isinstance(equation, Tensor):
        equation, operands = _by_numbers((equation, *operands))
    if len(operands) == 1 and isinstance(operands[0], Sequence):
        operands = tuple(operands[0])
    inputs, output = _read(equation, operands)
    sizes = _sizes(inputs, operands)
    for label in output:
        if label not in sizes:
            raise RuntimeError(
                f"einsum(): output subscript {label} does not appear in the equation for any "
                "input operand"
            )
    terms = [_diagonals(x, labels) for x, labels in zip(operands, inputs)]
    result, have = terms[0]
    for i, (operand, labels) in enumerate(terms[1:], 1):
        later = dict.fromkeys([*output, *[n for _, names in terms[i + 1 :] for n in names]])
        result, have = _contract(result, have, operand, labels, list(later), sizes)
    result, have = _sum_out(result, have, set(output))
    if have == output and all(result is not x for x in operands):
        return result
    return recorded.permute(result, tuple([have.index(label) for label in output]))


def _by_numbers(arguments: tuple[Any, ...]) -> tuple[str, tuple[Any, ...]]:
    """The equation, and the operands, of operands that lists of numbers follow."""
    ends = len(arguments) % 2
    lists = [*arguments[1::2], *arguments[len(arguments) - ends :]]
    for numbers in lists:
        if not isinstance(numbers, (list, tuple)):
            raise TypeError(
                f"einsum(): got {type(numbers).__name__}, want a list of numbers of dims"
            )
    terms = ["".join(map(_letter, numbers)) for numbers in lists]
    if ends:
        return f"{','.join(terms[:-1])}->{terms[-1]}", arguments[:-1:2]
    return ",".join(terms), arguments[::2]


def _letter(number: Any) -> str:
    if number is Ellipsis:
        return "..."
    if not 0 <= number < 52:
        raise ValueError(
            "einsum(): subscript in subscript list is not within the valid range [0, 52)"
        )
    return chr(ord("A") + number) if number < 26 else chr(ord("a") + number - 26)


def _read(equation: str, operands: Sequence[Any]) -> tuple[list[Labels], Labels]:
    """The labels of the dims of each operand, and of the result."""
    if not isinstance(equation, str):
        raise TypeError(
            f"einsum(): the first argument must be an equation such as 'ij,jk->ik', got "
            f"{type(equation).__name__}"
        )
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(operands):
        few = "fewer" if len(operands) < len(terms) else "more"
        raise RuntimeError(
            f"einsum(): {few} operands were provided than specified in the equation: got "
            f"{len(operands)}, want {len(terms)} for {equation!r}"
        )
    inputs = [
        _labels(term, array_of(x, "einsum", "operands", i + 2).ndim, f"operand {i}")
        for i, (term, x) in enumerate(zip(terms, operands))
    ]
    spread = max((len([n for n in labels if n[0] == "."]) for labels in inputs), default=0)
    dots = tuple([f".{i}" for i in reversed(range(spread))])
    if arrow:
        before, marker, after = right.partition("...")
        output = (*before, *(dots if marker else ()), *after)
    else:
        letters = left.replace(",", "").replace(".", "")
        output = (*dots, *sorted({n for n in letters if letters.count(n) == 1}))
    for label in output:
        if output.count(label) > 1:
            raise RuntimeError(f"einsum(): output subscript {label} appears more than once")
    return inputs, output


def _labels(term: str, ndim: int, what: str) -> Labels:
    before, marker, after = term.partition("...")
    for letter in before + after:
        if not letter.isalpha():
            raise RuntimeError(
                f"einsum(): invalid subscript given in {term!r}, subscripts must be in [a-zA-Z]"
            )
    hidden = ndim - len(before) - len(after)
    if hidden < 0 or hidden and not marker:
        raise RuntimeError(
            f"einsum(): the number of subscripts in the equation ({len(before + after)}) does not "
            f"match the number of dimensions ({ndim}) for {what}"
        )
    return (*before, *[f".{i}" for i in reversed(range(hidden))], *after)


def _sizes(inputs: list[Labels], operands: Sequence[Any]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for i, (labels, operand) in enumerate(zip(inputs, operands)):
        own: dict[str, int] = {}
        for label, n in zip(labels, operand._array.shape):
            if own.setdefault(label, n) != n:
                raise RuntimeError(
                    f"einsum(): subscript {label} is repeated for operand {i} but the sizes don't "
                    f"match, {n} != {own[label]}"
                )
            size = sizes.get(label, 1)
            if size == 1:
                sizes[label] = n
            elif n not in (1, size):
                raise RuntimeError(
                    f"einsum(): subscript {label} has size {n} for operand {i} which does not "
                    f"broadcast with previously seen size {size}"
                )
    return sizes


def _diagonals(operand: Tensor, labels: Labels) -> tuple[Tensor, Labels]:
    """A view of an operand without repeated labels."""
    seen = list(labels)
    for label in labels:
        while seen.count(label) > 1:
            first = seen.index(label)
            second = seen.index(label, first + 1)
            operand = recorded.diagonal(operand, 0, first, second)
            seen = [n for d, n in enumerate(seen) if d not in (first, second)] + [label]
    return operand, tuple(seen)


def _sum_out(operand: Tensor, labels: Labels, kept: set[str]) -> tuple[Tensor, Labels]:
    dims = tuple([d for d, label in enumerate(labels) if label not in kept])
    if not dims:
        return operand, labels
    return recorded.sum(operand, dims), tuple([n for n in labels if n in kept])


def _contract(
    a: Tensor,
    a_labels: Labels,
    b: Tensor,
    b_labels: Labels,
    later: list[str],
    sizes: dict[str, int],
) -> tuple[Tensor, Labels]:
    """The product of two operands, summed over the labels that nothing later asks for.

    `later` has the others in their order, in which the product lies as far as it can.
    """
    extents = [dict(zip(labels, x._array.shape)) for x, labels in ((a, a_labels), (b, b_labels))]
    uneven = {n for n in extents[0] if extents[0][n] != extents[1].get(n)}  # 1, and more
    both = (set(a_labels) & set(b_labels)) - uneven
    a, a_labels = _sum_out(a, a_labels, both.union(later))
    b, b_labels = _sum_out(b, b_labels, both.union(later))
    shared = [n for n in a_labels if n in b_labels]
    batch = [n for n in later if n in shared]
    summed = [n for n in shared if n not in later]
    if not summed:
        order = tuple([n for n in later if n in a_labels or n in b_labels])
        return recorded.mul(_along(a, a_labels, order), _along(b, b_labels, order)), order
    a_only = [n for n in later if n in a_labels and n not in b_labels]
    b_only = [n for n in later if n in b_labels and n not in a_labels]
    if a_only and b_only and later.index(b_only[0]) < later.index(a_only[0]):
        a, a_labels, a_only, b, b_labels, b_only = b, b_labels, b_only, a, a_labels, a_only
    left = _matrices(a, a_labels, (batch, a_only, summed), sizes)
    right = _matrices(b, b_labels, (batch, summed, b_only), sizes)
    product = _multiply(left, right, bool(batch))
    labels = (*batch, *a_only, *b_only)
    return reshape(product, tuple([sizes[n] for n in labels])), labels


def _along(x: Tensor, labels: Labels, order: Labels) -> Tensor:
    """A view of `x` whose dims are those of `order`: of extent 1 where it has none of the name."""
    own = tuple([labels.index(n) for n in order if n in labels])
    if own != tuple(range(len(own))):
        x = recorded.permute(x, own)
    for d, label in enumerate(order):
        if label not in labels:
            x = recorded.unsqueeze(x, d)
    return x


def _multiply(left: Tensor, right: Tensor, batched: bool) -> Tensor:
    if left._array.shape[2] == 1 == right._array.shape[1]:
        return recorded.mul(left, right)  # sums of one element
    if batched:
        return recorded.bmm(left, right)
    return recorded.mm(recorded.select(left, 0, 0), recorded.select(right, 0, 0))


def _matrices(
    x: Tensor, labels: Labels, groups: tuple[list[str], ...], sizes: dict[str, int]
) -> Tensor:
    """`x` as a batch of matrices: its dims grouped into three, those of extent 1 broadcast."""
    order = [n for group in groups for n in group]
    if tuple(order) != labels:
        x = recorded.permute(x, tuple([labels.index(n) for n in order]))
    full = tuple([sizes[n] for n in order])
    if x._array.shape != full:
        x = recorded.expand(x, full)
    return reshape(x, tuple([prod([sizes[n] for n in group]) for group in groups]))
