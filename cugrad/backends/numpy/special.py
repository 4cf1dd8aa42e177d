"""SciPy's special functions for the NumPy backend, imported when the first of them is asked for."""

from __future__ import annotations

from typing import Any

__all__ = ["ScipySpecial"]


class ScipySpecial:
    """`xp.special` of the NumPy backend: scipy.special, which is an optional dependency."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            import scipy.special
        except ImportError as error:
            raise ImportError(
                f"special functions of tensors on the CPU need SciPy (here {name}), which is not "
                "installed; install it with: pip install 'cugrad[scipy]'"
            ) from error
        value = getattr(scipy.special, name)
        self.__dict__[name] = value  # found without this detour from now on
        return value
