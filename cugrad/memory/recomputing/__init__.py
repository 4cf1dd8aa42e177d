"""Saved tensors that are not kept: what made them runs again in backward.

`context` has `recompute`: begin there. `recorder` sees ops and notes, for each of the `values`,
the recipe that made it; `recipes` runs ops again. `budgeting` imports all three.
"""
