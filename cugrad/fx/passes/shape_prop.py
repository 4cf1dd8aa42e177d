"""Runs a graph and notes the shapes, dtypes and strides of what its nodes return."""

from __future__ import annotations

import traceback
from typing import Any

from ...functions.shapes.layouts import channels_last, channels_last_3d, contiguous_format
from ...tensor import Tensor
from ..graph_module import GraphModule
from ..interpreter import Interpreter
from ..metadata import TensorMetadata
from ..node import Node, map_aggregate

__all__ = ["ShapeProp", "TensorMetadata"]


def _extract_tensor_metadata(result: Tensor, include_contiguity: bool = True) -> TensorMetadata:
    """What is known of a tensor without its values."""
    layout = None
    if include_contiguity:
        formats = (contiguous_format, channels_last, channels_last_3d)
        layout = next((f for f in formats if result.is_contiguous(memory_format=f)), None)
    return TensorMetadata(
        result.shape, result.dtype, result.requires_grad, result.stride(), layout, False, {}
    )


class ShapeProp(Interpreter):
    """Runs a module's graph, and notes of each node `meta["tensor_meta"]` and `meta["type"]`.

    RuntimeError for an error in a node.

    >>> import cugrad as torch
    >>> from cugrad.fx.passes.shape_prop import ShapeProp
    >>> module = torch.fx.symbolic_trace(lambda x: x.sum(0))
    >>> _ = ShapeProp(module).propagate(torch.ones(3, 2))
    >>> [tuple(n.meta["tensor_meta"].shape) for n in module.graph.nodes]
    [(3, 2), (2,), (2,)]
    """

    def __init__(self, gm: GraphModule) -> None:
        super().__init__(gm)

    def run_node(self, n: Node) -> Any:
        try:
            result = super().run_node(n)
        except Exception as error:
            traceback.print_exc()
            raise RuntimeError(
                f"ShapeProp error for: node={n.format_node()} with meta={n.meta}"
            ) from error
        tensors = 0

        def note(x: Any) -> Any:
            nonlocal tensors
            tensors += isinstance(x, Tensor)
            return _extract_tensor_metadata(x) if isinstance(x, Tensor) else x

        meta = map_aggregate(result, note)
        if tensors:
            n.meta["tensor_meta"] = meta
        n.meta["type"] = type(result)
        return result

    def propagate(self, *args: Any) -> Any:
        """What the graph returns for some arguments, as `run` does."""
        return self.run(*args)
