"""Saved tensors that are not kept: what made them runs again in backward.

`context` has `recompute`; begin there. `recipes` writes down how values were made, and runs those
ops again. `budgeting` imports both.
"""
