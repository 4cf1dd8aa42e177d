"""Forward mode: tensors with tangents, by level.

The face is `autograd.forward_ad`; begin with `dual`.
"""
