"""Layers that exist over one, two and three dims: a class for each, told apart by a number."""

from __future__ import annotations

from typing import Any

__all__ = ["OverDims"]

SPACES = {1: "L", 2: "H, W", 3: "D, H, W"}  # PyTorch's letters for the dims
THINGS = {1: "signals", 2: "images", 3: "volumes"}


class Each:
    """Writes as many copies of a text as there are dims: `{each:8}` is "8, 8" for two."""

    def __init__(self, dims: int) -> None:
        self.dims = dims

    def __format__(self, text: str) -> str:
        return ", ".join([text] * self.dims)


class OverDims:
    """A layer over `spatial` dims, which a class says in its head; `_about` is its docstring.

    There `{n}` is the number of dims, `{space}` their letters, `{things}` what has as many, and
    `{each:8}` an 8 for each of them.

    >>> class _Blur(OverDims):
    ...     _about = "Blurs {things} (N, C, {space}) by ({each:3}), see Sharpen{n}d."
    >>> class Blur2d(_Blur, dims=2): ...
    >>> Blur2d.spatial, Blur2d.__doc__
    (2, 'Blurs images (N, C, H, W) by (3, 3), see Sharpen2d.')
    """

    spatial = 0
    _about = ""

    def __init_subclass__(cls, dims: int = 0, **options: Any) -> None:
        super().__init_subclass__(**options)
        if dims:
            cls.spatial = dims
            cls.__doc__ = cls._about.format(
                n=dims, space=SPACES[dims], things=THINGS[dims], each=Each(dims)
            )
