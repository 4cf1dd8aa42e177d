"""Lists and dicts that do not change: what nodes have as arguments."""

from __future__ import annotations

from typing import Any, NoReturn, TypeVar

from ..utils._pytree import register_pytree_node

__all__ = ["immutable_dict", "immutable_list"]

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")


def _refuse(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
    raise TypeError(
        f"{type(self).__name__!r} object does not support mutation. If you are attempting to "
        "modify the kwargs or args of a torch.fx.Node object, instead create a new copy of it "
        "and assign the copy to the node:\n    new_args = ...  # copy and mutate args\n"
        "    node.args = new_args"
    )


class immutable_list(list[T]):
    """A list that refuses to be changed, and can be hashed.

    >>> immutable_list([1, 2]).append(3)
    Traceback (most recent call last):
    TypeError: 'immutable_list' object does not support mutation. ...
    """

    __delitem__ = __iadd__ = __imul__ = __setitem__ = _refuse
    append = clear = extend = insert = pop = remove = reverse = sort = _refuse

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (tuple(self),)


class immutable_dict(dict[K, V]):
    """A dict that refuses to be changed, and can be hashed.

    >>> immutable_dict(a=1).update(b=2)
    Traceback (most recent call last):
    TypeError: 'immutable_dict' object does not support mutation. ...
    """

    __delitem__ = __ior__ = __setitem__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (tuple(self.items()),)


register_pytree_node(immutable_list, lambda x: (list(x), None), lambda x, _: immutable_list(x))
register_pytree_node(
    immutable_dict,
    lambda x: (list(x.values()), list(x)),
    lambda values, keys: immutable_dict(zip(keys, values)),
)
