"""Matrix products whose operands do not lie as tensor cores read them: by aligned copies.

cuBLAS computes a product of 50257 columns in half precision, as a model of language has one, at a
sixth of the rate of one of 50264. `plan` says, in numbers alone, what is copied and whether that is
quicker; `products` does it. Begin with `plan`. Only `cugrad/backends/cupy/gemm.py` and those who
choose between its products and others import from here.
"""
