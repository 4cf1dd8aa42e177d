"""cuSPARSE, NVIDIA's library of sparse matrices, as CuPy calls it.

`products` has the product of a sparse and a dense matrix, which `xp.sparse_product` is. Where the
library is not installed, products are sums by index. Begin with `products`.
"""

from .products import sparse_product as sparse_product
