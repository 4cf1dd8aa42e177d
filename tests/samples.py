"""One sample line per row of the op table, or a few; tests/sampling.py says what a line may hold.

    sample("mul", (3, 4), (4,))                  a tuple: a float64 normal input of that shape
    sample("log", positive((3,)))                or unit away distinct integers boolean exactly
    sample("cat", [(2, 3), (2, 1)], dim=1)       a list for a row with `tensors*`; params by keyword
    sample("conv2d", (2, 3, 5, 5), (4, 3, 3, 3), None, stride=(2, 2))    None for an absent `bias?`
    sample("silly", (3,), reference=lambda np, self: np.sin(self) ** 2)  where NumPy has no `silly`

The constructor avoids a kink or pole of the row: `away((3, 4), 0)`, `distinct((3, 4))`. A reference
is said once per row; without it the reference is NumPy's function of the row's name. Strided,
complex, float32 and half variants are made from each line, and for elementwise rows also 0-d, empty
and broadcast ones; other rows say their empty or 0-d shapes as further lines.
"""

# ruff: noqa: F401 -- the constructors are here for every line to come

from __future__ import annotations

from tests.sampling import (
    REFERENCE,
    away,
    boolean,
    distinct,
    exactly,
    integers,
    normal,
    positive,
    sample,
    unit,
)

# Rows that have no complex meaning, as in PyTorch.
REAL_ONLY: set[str] = set()

# Rows that compute in no half precision. Row -> reason.
NO_HALF: dict[str, str] = {}

# Rows that have no reference, and why. Row -> reason.
NO_REFERENCE: dict[str, str] = {}

# Rows that cannot be differentiated twice, and why. Row -> reason.
ONCE: dict[str, str] = {}

# elementwise -------------------------------------------------------------------------------------


# reduce ------------------------------------------------------------------------------------------


# shape -------------------------------------------------------------------------------------------


# index -------------------------------------------------------------------------------------------


# linalg ------------------------------------------------------------------------------------------


# nn ----------------------------------------------------------------------------------------------


# conv --------------------------------------------------------------------------------------------


# random ------------------------------------------------------------------------------------------
