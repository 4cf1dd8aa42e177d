"""What a profile says of each event is what PyTorch's says: names, numbers, shapes, threads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

import cugrad

torch = pytest.importorskip("torch")
EVALUATE = "autograd::engine::evaluate_function: "


def leaf(lib: Any, *shape: int) -> Any:
    return lib.full(shape, 0.5, requires_grad=True)


def chain(lib: Any) -> None:
    (leaf(lib, 2, 3) * 2 + 1).exp().sum().backward()


def products(lib: Any) -> None:
    (leaf(lib, 2, 3).mm(leaf(lib, 3, 4)).tanh() - leaf(lib, 4)).sum().backward()


def layers(lib: Any) -> None:
    net = lib.nn.Sequential(lib.nn.Linear(3, 4), lib.nn.ReLU(), lib.nn.Linear(4, 2))
    net(lib.ones(5, 3)).sum().backward()


def labelled(lib: Any) -> None:
    with lib.autograd.profiler.record_function("outer"):
        y = leaf(lib, 4) * 2
        with lib.autograd.profiler.record_function("inner", "its arguments"):
            y = y + 1
    y.sum().backward()


def in_place(lib: Any) -> None:
    y = leaf(lib, 3) * 2
    y.mul_(3)
    y.sum().backward()


def custom(lib: Any) -> None:
    class Cube(lib.autograd.Function):  # type: ignore[name-defined,misc]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x.exp()

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (x,) = ctx.saved_tensors
            return g.mul(x)

    Cube.apply(leaf(lib, 2, 2)).sum().backward()


def twice(lib: Any) -> None:
    x = leaf(lib, 3)
    (g,) = lib.autograd.grad((x * x).sum(), x, create_graph=True)
    (g * g).sum().backward()


def no_graph(lib: Any) -> None:
    x = leaf(lib, 3)
    with lib.no_grad():
        x.exp()
    x.exp().sum().backward()


def several(lib: Any) -> None:
    a, b = leaf(lib, 4, 2).unbind(1)
    lib.cat([a, b.exp(), leaf(lib, 1)]).sum().backward()


def hooked(lib: Any) -> None:
    x = leaf(lib, 3)
    y = x.exp()
    y.register_hook(lambda g: g.mul(2))
    y.sum().backward()


def broadcast(lib: Any) -> None:
    (leaf(lib, 3, 1) * leaf(lib, 4)).sum().backward()


def views(lib: Any) -> None:
    x = leaf(lib, 2, 6)
    x.view(3, 4).transpose(0, 1).sum().backward()


PROGRAMS: list[Callable[[Any], None]] = [
    chain, products, layers, labelled, in_place, custom, twice, no_graph, several, hooked,
    broadcast, views,
]  # fmt: skip


def profiled(lib: Any, program: Callable[[Any], None]) -> list[Any]:
    more = {"names": "aten"} if lib is cugrad else {}
    program(lib)  # PyTorch names what runs for the first time, too
    with lib.autograd.profiler.profile(record_shapes=True, **more) as prof:
        program(lib)
    return list(prof.function_events)


def nodes(events: list[Any]) -> list[Any]:
    """Of each node its name, the shapes of its gradients, and what is around it."""
    return [
        (e.name, e.input_shapes, int(e.scope), e.is_async, e.cpu_parent and e.cpu_parent.name)
        for e in events if int(e.scope) == 1
    ]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda each: each.__name__)
def test_nodes_are_theirs(program: Callable[[Any], None]) -> None:
    mine, their = profiled(cugrad, program), profiled(torch, program)
    wanted = [each for each in nodes(their) if each[0] != "TBackward0"]  # a linear is one op here
    assert sorted(nodes(mine), key=str) == sorted(wanted, key=str)
    ops = {e.sequence_nr: e for e in mine
           if int(e.scope) == 0 and not e.name.startswith(EVALUATE)}  # fmt: skip
    around = [e for e in mine if e.name.startswith(EVALUATE)]
    assert [e.name.removeprefix(EVALUATE) for e in around] == [row[0] for row in nodes(mine)]
    for node in (*around, *(e for e in mine if int(e.scope) == 1)):
        if "AccumulateGrad" in node.name:
            assert (node.sequence_nr, node.fwd_thread) == (-1, 0)
        else:
            assert node.fwd_thread == ops[node.sequence_nr].thread
    assert all(e.fwd_thread == 0 for e in ops.values())


def forward_ops(events: list[Any]) -> list[Any]:
    """Of each op that runs in none, and in no node, its name, whether it records, and shapes."""
    found = []
    for event in events:
        above = event.cpu_parent
        while above is not None and int(above.scope) == 7:
            above = above.cpu_parent
        if above is None and int(event.scope) == 0 and not event.name.startswith(EVALUATE):
            shapes = [shape for shape in event.input_shapes if shape]
            found.append((event.name, event.sequence_nr >= 0, shapes))
    return found


MADE = ("ones", "full", "empty", "zeros", "uniform_", "ones_like", "detach", "fill_", "copy_")


@pytest.mark.parametrize(
    "program", [p for p in PROGRAMS if p not in (twice, hooked)], ids=lambda each: each.__name__
)
def test_ops_are_theirs(program: Callable[[Any], None]) -> None:
    """What makes tensors is no op here; what hooks do, and sums of gradients, stand beside nodes,
    in PyTorch in the event around them."""
    mine = [each for each in forward_ops(profiled(cugrad, program)) if each[0][6:] not in MADE]
    their = [each for each in forward_ops(profiled(torch, program)) if each[0][6:] not in MADE]
    assert mine == their


def test_ranges_are_theirs() -> None:
    for lib in (cugrad, torch):
        events = profiled(lib, labelled)
        outer, inner = (next(e for e in events if e.name == name) for name in ("outer", "inner"))
        assert inner.cpu_parent is outer
        assert [int(e.scope) for e in (outer, inner)] == [7, 7]
        assert outer.is_user_annotation and outer.sequence_nr == -1 and outer.input_shapes == []


def test_ops_within_ops_are_theirs() -> None:
    """Those of a Function, forward and backward, with their shapes."""
    for lib in (cugrad, torch):
        events = profiled(lib, custom)
        cube = next(e for e in events if e.name == "Cube")
        assert cube.sequence_nr >= 0 and cube.input_shapes == [[2, 2]]
        assert [(e.name, e.input_shapes, e.sequence_nr) for e in cube.cpu_children] == [
            ("aten::exp", [[2, 2]], -1)
        ]
        back = next(e for e in events if e.name == "CubeBackward")
        assert back.sequence_nr == cube.sequence_nr and back.input_shapes == [[2, 2]]
        assert [(e.name, e.input_shapes) for e in back.cpu_children] == [
            ("aten::mul", [[2, 2], [2, 2]])
        ]


def test_names_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUGRAD_PROFILE_NAMES", "aten")
    with cugrad.profiler.profile(activities=[cugrad.profiler.ProfilerActivity.CPU]) as prof:
        cugrad.ones(2).exp()
    assert [e.name for e in prof.events()] == ["aten::exp"]
    with cugrad.autograd.profiler.profile(names="cugrad") as plain:
        cugrad.ones(2).exp()
    assert [e.name for e in plain.function_events] == ["exp"]
    monkeypatch.setenv("CUGRAD_PROFILE_NAMES", "kineto")
    with pytest.raises(ValueError, match="got 'kineto', want 'aten' or 'cugrad'"):
        cugrad.autograd.profiler.profile()
    with pytest.raises(ValueError, match="got 'torch', want 'aten' or 'cugrad'"):
        cugrad.profiler.profile(names="torch")


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda each: each.__name__)
def test_names_change_nothing_else(program: Callable[[Any], None]) -> None:
    """Sums, flops and what belongs to what are the same under either names."""

    def told(names: str) -> Any:
        with cugrad.autograd.profiler.profile(with_flops=True, names=names) as prof:
            program(cugrad)
        events = prof.function_events
        found = cugrad.profiler.correlate(events)
        rows: Counter[str] = Counter()
        for row in found.rows:
            rows[row.name.removeprefix("aten::").removesuffix("_")] += row.forward.calls
            rows += Counter(row.nodes)
        return rows, [e.flops for e in events if e.flops], len(found.calls)

    assert told("aten") == told("cugrad")
