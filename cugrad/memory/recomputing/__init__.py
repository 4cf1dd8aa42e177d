"""Saved tensors that are not kept: what made them runs again in backward.

`context` has `recompute`; begin there. `recipes` write down how values were made.
"""
