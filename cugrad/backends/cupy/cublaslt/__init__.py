"""Matrix products by cuBLASLt, which add a bias, or sum up its gradient, in the same kernel.

`library` binds what is called of it, with the numbers of its header; `products` makes one call for
operands that lie in one way. Begin with `products`. `cugrad/backends/cupy/written/products.py`
asks for them where `torch.backends.cuda.preferred_blas_library` says so.
"""
