"""Custom Functions: their node, their tangents, and how they map.

`context` is the node, which users know as `ctx`. `tangents` checks what is saved and what `jvp`
returns; `vmap` says which transform goes first. The face is `autograd.function`: begin there. It
alone imports from here.
"""
