"""The sparse gradient of one parameter, which is reduced by gathering the rows of all ranks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ... import distributed as dist
from ...autograd.mode import no_grad
from ...distributed.groups import ProcessGroup
from ...dtypes import int64
from ...functions.creation.factories import empty, tensor
from ...functions.shapes.copies import cat
from ...futures import Future
from ...sparse import SparseTensor
from ...tensor import Tensor
from ..modules.module import Module
from ..modules.sparse import Embedding, EmbeddingBag

__all__ = ["SparseBucket", "sparse_parameters"]


def sparse_parameters(module: Module) -> Iterator[Tensor]:
    """The parameters whose gradients will be sparse: those of embeddings that say so."""
    for part in module.modules():
        if isinstance(part, (Embedding, EmbeddingBag)) and part.sparse:
            yield from part.parameters(recurse=False)


class SparseBucket:
    """A parameter whose gradient is sparse. It is as large as ranks have rows, and so is made anew
    in each step: its result is the mean of all ranks' gradients, coalesced.
    """

    def __init__(self, parameters: list[tuple[int, Tensor]]) -> None:
        self.parameters = parameters
        self.missing = len(parameters)
        self.future: Any = None

    def begin(self, group: ProcessGroup, divisor: int) -> Future[Tensor]:
        """Begins to gather; ranks that have no gradient have no rows."""
        ((_, param),) = self.parameters
        gradient: Any = param._grad
        if gradient is None:
            indices = empty((1, 0), dtype=int64, device=param.device)
            values = empty((0, *param.shape[1:]), dtype=param.dtype, device=param.device)
        else:
            if not gradient.is_sparse:
                raise RuntimeError(
                    "DistributedDataParallel: got a dense gradient for a parameter of a module "
                    "with sparse=True: use it in that module alone"
                )
            gradient = gradient.detach().coalesce()
            indices, values = gradient.indices(), gradient.values()
        count = tensor([values.shape[0]], device=param.device)
        counts = [empty((1,), dtype=count.dtype, device=param.device) for _ in group.ranks]
        dist.all_gather(counts, count, group)
        numbers = [int(c.item()) for c in counts]
        places = [empty((n, indices.shape[0]), dtype=indices.dtype, device=param.device)
                  for n in numbers]  # fmt: skip
        rows = [empty((n, *values.shape[1:]), dtype=values.dtype, device=param.device)
                for n in numbers]  # fmt: skip
        works = [
            dist.all_gather(places, indices.t().contiguous(), group, async_op=True),
            dist.all_gather(rows, values.contiguous(), group, async_op=True),
        ]

        def together() -> Tensor:
            for work in works:
                assert work is not None
                work.wait()
            with no_grad():
                whole = SparseTensor(cat(places).t(), cat(rows) / divisor, param.shape)
                return whole.coalesce()

        return Future.of(together)

    def deliver(self, result: Tensor, as_views: bool, unused: set[int]) -> None:
        """Makes the result the gradient, where a rank has used the parameter."""
        ((i, param),) = self.parameters
        if i not in unused:
            param._grad = result
