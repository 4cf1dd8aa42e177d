"""Kernels made from rows: what a row and its formulas do to an element, as one kernel each way.

`rows` is what the backend asks, and the place to begin reading: it traces a row (see `traced`),
keeps a plan for each kind of operands, and declines what no kernel can do. `layouts` says how the
operands lie, `expressions` writes a graph as CUDA C, `source` writes the kernel around it, `launch`
compiles and starts it, and `reductions` are kernels that also add up. `lists` are kernels over
lists of arrays, such as all parameters of a model, which `list_source` writes. `draws` are kernels
of random numbers, `tables` of places, whose elements `elements` writes. Only `cugrad/backends/cupy`
imports from here.
"""
