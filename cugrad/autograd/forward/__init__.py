"""Forward mode: tensors with tangents, by level.

`dual` has the levels and how an op computes the tangent of its result: begin there.
`dual_inplace` has the same for ops in place. Programs use `autograd.forward_ad`; rooms above import
`dual`.
"""
