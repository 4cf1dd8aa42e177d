"""Arrays that stand for one element of any: what a row does to them is a graph of expressions.

A row runs on them as on arrays of a device, and its formulas too, so that a kernel can be written
from what they say. `arrays` are the elements and their graph, and the place to begin reading;
`namespace` is `xp` for them, with NumPy's dtypes. `rows` says which rows are such expressions,
`lists` what kernels over lists of arrays compute.
"""
