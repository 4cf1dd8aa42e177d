"""Lines of random programs with sparse tensors and gradients; the templates are table.py's.

Each place of a tensor is listed, for no element is 0: what PyTorch gives to places that are not is
now zero, now a number.
"""

from __future__ import annotations

from .table import rows_of

SPARSE = rows_of("""
{x}.to_sparse().to_dense()  1d | clear({x}, 0)
{x}.to_sparse().values()  1d | clear({x}, 0)
{x}.to_sparse(1).to_dense()  2d | clear({x}, 0)
{x}.to_sparse().clone().to_dense()  1d | clear({x}, 0)
({x}.to_sparse() * {c}).coalesce().to_dense()  1d | clear({x}, 0)
({x}.to_sparse() / {c}).to_dense()  1d | clear({x}, 0)
(-{x}.to_sparse()).to_dense()  1d | clear({x}, 0)
({x}.to_sparse() + {x}.mul({c}).to_sparse()).to_dense()  1d | clear({x}, 0)
({x}.to_sparse() - {x}.mul({c}).to_sparse()).coalesce().values()  1d | clear({x}, 0)
({x}.to_sparse() * {x}.mul({c}).to_sparse()).to_dense()  1d | clear({x}, 0)
{x} + {x}.to_sparse()  1d | clear({x}, 0)
{x}.to_sparse().t().to_dense()  =2d | clear({x}, 0)
{x}.to_sparse().transpose(0, 1).coalesce().to_dense()  2d | clear({x}, 0)
{x}.to_sparse().to(t.complex128).to_dense()  1d | clear({x}, 0)
t.sparse.sum({x}.to_sparse())  1d | clear({x}, 0)
t.sparse.sum({x}.to_sparse(), 0).to_dense()  2d | clear({x}, 0)
t.sparse.mm({x}.to_sparse(), {x}.mT)  =2d | clear({x}, 0)
t.sparse.mm({x}.to_sparse(), {y})  =2d | clear({x}, 0)
t.sparse.addmm({y}, {x}.to_sparse(), {x})  =2d square | clear({x}, 0)
{x}.to_sparse() @ {x}.mT  =2d | clear({x}, 0)
{x} @ {x}.to_sparse()  =2d square | clear({x}, 0)
scattered({j}[None], {x}[{j}], {x}.shape).to_dense()  1d
scattered({j}[None], {x}[{j}], {x}.shape).coalesce().to_dense()  1d
scattered({j}[None], {x}[{j}], {x}.shape).coalesce().values()  1d
scattered(t.stack([{j}, {j}]), {x}[{j}, {j}], {x}.shape) @ {x}  =2d square
t.nn.functional.embedding({j}, {x}, sparse=True)  real =2d own | own({x})
t.nn.functional.embedding({j}, {x}, 0, sparse=True)  real =2d own | own({x})
t.nn.functional.embedding_bag({j}, {x}, t.tensor([0]), sparse=True, mode='sum')  real =2d own | own({x})
""")  # fmt: skip  # noqa: E501
