"""Sobol sequences, whose points fill a cube more evenly than random ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import dtypes
from ..functions.creation.factories import tensor
from ..functions.creation.random import Generator, randint
from ..tensor import Tensor

__all__ = ["SobolEngine"]


class SobolEngine:
    """Points of the Sobol sequence in the cube [0, 1)^dimension, one after another.

    Args:
        dimension: 1 to 21201, or ValueError.
        scramble: the sequence is turned at random, which leaves it as even as it is.
        seed: of that; None draws from the generator of the CPU.

    The direction numbers are those of Joe and Kuo, as SciPy has them (ImportError without it).
    Source of the scrambling: Matousek 1998, "On the L2-discrepancy for anchored boxes".

    >>> import cugrad as torch
    >>> torch.quasirandom.SobolEngine(2).draw(4, dtype=torch.float32)
    tensor([[0.0000, 0.0000],
            [0.5000, 0.5000],
            [0.7500, 0.2500],
            [0.2500, 0.7500]])
    """

    MAXBIT = 30
    MAXDIM = 21201

    def __init__(self, dimension: int, scramble: bool = False, seed: int | None = None) -> None:
        if not 1 <= dimension <= self.MAXDIM:
            raise ValueError(
                f"Supported range of dimensionality for SobolEngine is [1, {self.MAXDIM}]"
            )
        self.dimension, self.scramble, self.seed = dimension, scramble, seed
        self._turned = self._drawn_bits() if scramble else None
        self.reset()

    def _drawn_bits(self) -> tuple[Any, Any]:
        """For each dimension a triangle of bits that mixes those of a number, and bits to flip."""
        generator = None if self.seed is None else Generator().manual_seed(self.seed)
        places = (self.dimension, self.MAXBIT)
        how: Any = {"generator": generator, "device": "cpu"}
        flipped = randint(2, places, **how).numpy()
        mixed = np.tril(randint(2, (*places, self.MAXBIT), **how).numpy(), -1)
        return mixed + np.eye(self.MAXBIT, dtype=mixed.dtype), flipped

    def reset(self) -> SobolEngine:
        """Begins with the first point again."""
        try:
            from scipy.stats import qmc
        except ImportError as error:
            raise ImportError(
                "SobolEngine needs scipy, which is not installed; install it with: "
                "pip install 'cugrad[scipy]'"
            ) from error
        self._engine: Any = qmc.Sobol(self.dimension, scramble=False, bits=self.MAXBIT)
        self._first: Any = self._engine.random(1)  # by itself: SciPy warns of odd counts there
        self.num_generated = 0
        return self

    def draw(
        self, n: int = 1, out: Tensor | None = None, dtype: dtypes.dtype | None = None
    ) -> Tensor:
        """The next n points, (n, dimension), of the default dtype where none is named."""
        kind = dtypes.get_default_dtype() if dtype is None else dtype
        if not kind.is_floating_point:
            raise NotImplementedError(
                f"\"_sobol_engine_draw\" not implemented for '{dtypes.type_name(kind)}'"
            )
        begins = self.num_generated == 0 and n > 0
        rest = self._engine.random(n - begins) if n > begins else self._first[:0]
        points = np.concatenate([self._first, rest]) if begins else rest
        self.num_generated += n
        points = points if self._turned is None else self._turn(points)
        result = tensor(points, dtype=kind, device="cpu")
        return result if out is None else out.resize_as_(result).copy_(result)

    def _turn(self, points: Any) -> Any:
        mixed, flipped = self._turned or ((), ())
        shifts = np.arange(self.MAXBIT - 1, -1, -1)  # the highest bit first
        bits = (points * 2**self.MAXBIT).astype(np.int64)[..., None] >> shifts & 1
        bits = (np.einsum("dij,ndj->ndi", mixed, bits) + flipped) % 2
        return (bits << shifts).sum(-1) / 2**self.MAXBIT

    def draw_base2(
        self, m: int, out: Tensor | None = None, dtype: dtypes.dtype | None = None
    ) -> Tensor:
        """The next 2**m points; ValueError unless there are then a power of two of them in all."""
        total = self.num_generated + 2**m
        if total & (total - 1):
            raise ValueError(
                "The balance properties of Sobol' points require n to be a power of 2. "
                f"{self.num_generated} points have been previously generated, then: "
                f"n={self.num_generated}+2**{m}={total}. If you still want to do this, please use "
                "'SobolEngine.draw()' instead."
            )
        return self.draw(2**m, out, dtype)

    def fast_forward(self, n: int) -> SobolEngine:
        """Leaves n points out."""
        self._engine.fast_forward(n - (self.num_generated == 0))
        self.num_generated += n
        return self

    def __repr__(self) -> str:
        said = [f"dimension={self.dimension}"]
        said += ["scramble=True"] if self.scramble else []
        said += [] if self.seed is None else [f"seed={self.seed}"]
        return f"SobolEngine({', '.join(said)})"
