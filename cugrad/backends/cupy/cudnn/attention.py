"""Attention of half precision, and its gradients, as graphs of cuDNN that are kept by form.

None is answered where cuDNN is not installed or has no algorithm. What forward keeps beside the
result, the logarithm of each query's sum of exponentials, is what written kernels keep, so that
either may compute the gradients.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import cupy

from ...several import several
from ...wanted import wanted
from ..launches.starting import call, not_noted
from ..written.attention import Heads, heads_of
from ..written.launch import dense, name_of
from ..written.placed.neighbours import gradients_for
from .frontend import frontend
from .graphs import GraphPlan, PlansByForm, built, new_graph

__all__ = ["attend", "gradients"]

Array = Any  # cupy.ndarray
Steps = tuple[int, int, int, int]
ndarray = cupy.ndarray
ALIGNED = 16  # bytes that addresses and steps are multiples of

plans = PlansByForm()


class AttentionForm(NamedTuple):
    """What a graph depends on: operands as (batch, heads, rows, width), with steps in elements."""

    what: str  # "sdpa" or "sdpa_backward"
    dtype: str
    lying: tuple[tuple[Steps, Steps], ...]  # of queries, keys, values, result, ...
    scale: float
    causal: str  # the argument that says so, or nothing
    deterministic: bool
    device: int


def _aligned(x: Array) -> Heads:
    """An operand as cuDNN takes it, or a copy of it that is."""
    heads = heads_of(x)
    steps = [s for n, s in zip(heads.shape[:3], heads.steps[:3]) if n > 1]
    each = ALIGNED // x.itemsize
    if heads.array.data.ptr % ALIGNED or any(s <= 0 or s % each for s in steps):
        return heads_of(dense(x))
    return heads


def _steps(x: Heads) -> Steps:
    """Those of dims with one place are as if all were dense."""
    shape = x.shape
    dense_ones = (prod(shape[1:]), prod(shape[2:]), shape[3], 1)
    a, b, c, d = (s if n > 1 else m for n, s, m in zip(shape, x.steps, dense_ones))
    return a, b, c, d


def _causal(how: Any, queries: int, keys: int) -> str | None:
    """How cuDNN is told which keys a query sees; None where it cannot be."""
    if not how.causal:
        return ""
    if how.start == 0:
        return "use_causal_mask"
    return "use_causal_mask_bottom_right" if how.start == keys - queries else None


def _form(what: str, operands: Sequence[Heads], how: Any) -> AttentionForm | None:
    """None for what cuDNN is not asked for."""
    q, k, v = operands[:3]
    causal = _causal(how, q.shape[2], k.shape[2])
    widths = q.shape[3], v.shape[3]
    if causal is None or any(n % 8 for n in widths) or not all(x.array.size for x in operands):
        return None
    if k.shape[:2] != v.shape[:2] or q.shape[:2] != (k.shape[0], k.shape[1] * how.groups):
        return None
    if several.devices:
        not_noted()  # another device has another graph
    return AttentionForm(
        what, name_of(q.array.dtype), tuple([(x.shape, _steps(x)) for x in operands]),
        float(how.scale), causal, wanted.deterministic, cupy.cuda.runtime.getDevice(),
    )  # fmt: skip


def _plan(module: Any, form: AttentionForm) -> GraphPlan:
    """A graph whose tensors have uids from 1 on: operands, and behind them what it computes."""
    kind, graph = new_graph(module, form.dtype)
    sums = module.data_type.FLOAT
    (batch, heads, rows, _), _ = form.lying[0]
    logs = [batch, heads, rows, 1], [heads * rows, rows, 1, 1]  # one for each query
    names = ("q", "k", "v") if form.what == "sdpa" else ("q", "k", "v", "o", "dO")
    places = [([*shape], [*steps]) for shape, steps in form.lying]
    operands = {
        name: graph.tensor(name=name, dim=dim, stride=stride, data_type=kind, uid=uid)
        for uid, (name, (dim, stride)) in enumerate(zip(names, places), 1)
    }
    uid = len(names) + 1
    how: dict[str, Any] = {"attn_scale": form.scale}
    if form.causal:
        how[form.causal] = True
    if form.what == "sdpa":
        results = graph.sdpa(**operands, generate_stats=True, **how)
        lying = [(kind, *places[3]), (sums, *logs)]
    else:
        dim, stride = logs
        operands["stats"] = graph.tensor(
            name="stats", dim=dim, stride=stride, data_type=sums, uid=uid
        )
        uid += 1
        how["use_deterministic_algorithm"] = form.deterministic
        results = graph.sdpa_backward(**operands, **how)
        lying = [(kind, *place) for place in places[5:]]
    for result, (dtype, dim, stride) in zip(results, lying, strict=True):
        result.set_output(True).set_data_type(dtype).set_dim(dim).set_stride(stride).set_uid(uid)
        uid += 1
    return GraphPlan(module, built(module, graph))


def attend(query: Array, key: Array, value: Array, how: Any) -> tuple[Array, Array] | None:
    """The attention, and what backward needs beside it; see `written/attention.py`."""
    module = frontend()
    if module is None:
        return None
    q, k, v = map(_aligned, (query, key, value))
    batch, heads, length, _ = q.shape
    block = ndarray((batch, length, heads, v.shape[3]), query.dtype)
    result = block.transpose(0, 2, 1, 3)
    form = _form("sdpa", (q, k, v, heads_of(result)), how)
    plan = None if form is None else plans.of(module, form, lambda: _plan(module, form))
    if plan is None:
        return None
    logs = ndarray((batch, heads, length), "float32")
    call(plan.run, q.array, k.array, v.array, block, logs, written=2)
    return result.reshape(*query.shape[:-1], v.shape[3]), logs


def gradients(
    g: Array, query: Array, key: Array, value: Array, result: Array, logs: Array, how: Any
) -> tuple[Array, Array, Array] | None:
    """The gradients of query, key and value, which lie as these do where cuDNN takes them so."""
    module = frontend()
    if module is None:
        return None
    operands = [*map(_aligned, (query, key, value, result, g))]
    slopes = gradients_for([x.array for x in operands[:3]])
    form = _form("sdpa_backward", [*operands, *map(heads_of, slopes)], how)
    plan = None if form is None else plans.of(module, form, lambda: _plan(module, form))
    if plan is None:
        return None
    call(plan.run, *[x.array for x in operands], dense(logs), *slopes, written=3)
    dq, dk, dv = [x.reshape(like.shape) for x, like in zip(slopes, (query, key, value))]
    return dq, dk, dv
