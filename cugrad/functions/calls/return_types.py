"""The tuples with names that functions return, which print as PyTorch's `torch.return_types` do."""

from __future__ import annotations

from operator import itemgetter
from typing import Any

__all__ = ["CLASSES", "ReturnType", "return_type"]

LIBRARY = __name__.partition(".")[0]
CLASSES: dict[str, Any] = {}  # each class by its name, as torch.return_types has them


class ReturnType(tuple[Any, ...]):
    """A tuple whose items have names, with what a `namedtuple` has beside them.

    `namedtuple` compiles a constructor for each class. There are thirty of them, and that took a
    twentieth of the import.
    """

    __slots__ = ()
    _fields: tuple[str, ...] = ()
    n_fields = n_sequence_fields = n_unnamed_fields = 0

    def __new__(cls, *values: Any) -> ReturnType:
        if len(values) == 1 < len(cls._fields):  # PyTorch's take one sequence
            values = tuple(values[0])
        if len(values) != len(cls._fields):
            names = ", ".join(cls._fields)
            raise TypeError(f"{cls.__name__}: got {len(values)} values, want {names}")
        return tuple.__new__(cls, values)

    @classmethod
    def _make(cls, values: Any) -> ReturnType:
        return cls(*values)

    def _asdict(self) -> dict[str, Any]:
        return dict(zip(self._fields, self))

    def _replace(self, **values: Any) -> ReturnType:
        more = values.keys() - set(self._fields)
        if more:
            raise ValueError(f"{type(self).__name__} has no {', '.join(sorted(more))}")
        return type(self)(*(self._asdict() | values).values())

    def __getnewargs__(self) -> tuple[Any, ...]:
        return tuple(self)

    def __repr__(self) -> str:
        lines = ",\n".join(f"{name}={value!r}" for name, value in zip(self._fields, self))
        return f"torch.return_types.{type(self).__name__}(\n{lines})"


def return_type(name: str, fields: str = "values indices") -> Any:
    """A class of tuples that prints as PyTorch's `torch.return_types.<name>` does.

    >>> import cugrad as torch
    >>> torch.tensor([2, 1]).sort()
    torch.return_types.sort(
    values=tensor([1, 2]),
    indices=tensor([1, 0]))
    """
    names = tuple(fields.split())
    items = {field: property(itemgetter(k)) for k, field in enumerate(names)}
    more = {
        "__slots__": (), "_fields": names, "__match_args__": names, "n_fields": len(names),
        "n_sequence_fields": len(names), "__module__": f"{LIBRARY}.return_types",
    }  # fmt: skip
    return CLASSES.setdefault(name, type(name, (ReturnType,), items | more))
