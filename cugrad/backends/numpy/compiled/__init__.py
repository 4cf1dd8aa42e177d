"""What NumPy does by several calls, compiled to one loop by Numba, where it can be had.

Numba is an optional dependency. A loop has the bits of the calls: it is made of the same ones, in
the same order, one element at a time, and LLVM may neither reorder nor fuse them. So either may
serve at any time. `chains` are functions of blocks that become loops when they have been used
much, and the place to begin reading; `tracing` reads what they call; `loops` compiles.
Imported from outside: `loops` by optimizers, whose rules have their own text, and `chains`.
"""
