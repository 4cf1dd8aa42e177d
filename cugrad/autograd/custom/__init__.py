"""Custom Functions: their node, their tangents, and how they map.

The face is `autograd.function`; begin there.
"""
