"""Graphs of cuDNN with their algorithms, kept by form."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import cupy

from .frontend import handle_of, not_supported

__all__ = ["KINDS", "MOST_PLANS", "GraphPlan", "PlansByForm", "built", "new_graph"]

KINDS = {"float16": "HALF", "bfloat16": "BFLOAT16", "float32": "FLOAT", "float64": "DOUBLE"}
MOST_PLANS = 4096


class GraphPlan:
    """A graph that is built; `index` is that of its algorithm, None for the one it would choose."""

    __slots__ = ("module", "graph", "size", "index")

    def __init__(self, module: Any, graph: Any, size: int | None = None) -> None:
        self.module, self.graph = module, graph
        self.index: int | None = None
        self.size = graph.get_workspace_size() if size is None else size

    def run(self, *places: int) -> None:
        """Computes what lies at addresses, in the order of the uids of their tensors, from 1 on."""
        pointers = dict(enumerate(places, 1))
        handle = handle_of(self.module)
        workspace = cupy.cuda.alloc(self.size) if self.size else None  # of this stream's arena
        place = None if workspace is None else workspace.ptr
        if self.index is None:
            self.graph.execute(pointers, place, handle=handle)
        else:
            self.graph.execute_plan_at_index(pointers, place, self.index, handle=handle)


class PlansByForm(dict[Any, Any]):
    """What has been made for each form; None where cuDNN has no algorithm for it."""

    def of(self, module: Any, form: Any, make: Callable[[], GraphPlan]) -> GraphPlan | None:
        """The plan of a form, made where there is none yet."""
        try:
            return self[form]
        except KeyError:
            pass
        plan: GraphPlan | None
        try:
            plan = make()
        except not_supported(module):
            plan = None
        if len(self) >= MOST_PLANS:
            self.clear()
        self[form] = plan
        return plan


def new_graph(module: Any, dtype: str) -> tuple[Any, Any]:
    """The package's word for a dtype, and a graph of tensors of it, which sums in float32, or in
    float64 what is float64.
    """
    kinds = module.data_type
    kind = getattr(kinds, KINDS[dtype])
    sums = kinds.DOUBLE if dtype == "float64" else kinds.FLOAT
    graph = module.pygraph(
        io_data_type=kind, intermediate_data_type=sums, compute_data_type=sums,
        handle=handle_of(module),
    )  # fmt: skip
    return kind, graph


def built(module: Any, graph: Any, refused: Sequence[Any] = (), every: bool = False) -> Any:
    """The graph with its algorithms: `every` one, or that which cuDNN would choose, but for those
    with notes that are refused.
    """
    graph.validate()
    graph.build_operation_graph()
    graph.create_execution_plans([module.heur_mode.A, module.heur_mode.FALLBACK])
    if refused:
        graph.deselect_numeric_notes(list(refused))
    graph.check_support()
    policy = module.build_plan_policy
    graph.build_plans(policy.ALL if every else policy.HEURISTICS_CHOICE)
    return graph
