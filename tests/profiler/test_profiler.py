"""Profiles: what they see, in which thread, and what is noted of it."""

from __future__ import annotations

import re
import threading
import tracemalloc
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import cugrad
from cugrad import nn
from cugrad.autograd import mode, profiler
from cugrad.nn.parallel.parallel_apply import parallel_apply
from cugrad.profiler import RecordScope
from cugrad.utils.checkpoint import checkpoint
from tests.profiler.profiler_cases import leaf, names

pytestmark = pytest.mark.host_only


@pytest.fixture(autouse=True)
def on_the_host() -> Iterator[None]:
    with cugrad.device("cpu"):
        yield


def test_ops_and_their_nodes_share_a_number() -> None:
    x = leaf(3)
    with profiler.profile() as prof:
        (x * x).sum().backward()
        cugrad.ones(3) + 1
    mul, total, back_total, back_mul, leaves, add = prof.function_events
    assert names(prof) == ["mul", "sum", "SumBackward0", "MulBackward0",
                           "torch::autograd::AccumulateGrad", "add"]  # fmt: skip
    assert mul.sequence_nr == back_mul.sequence_nr >= 0
    assert total.sequence_nr == back_total.sequence_nr > mul.sequence_nr
    assert back_mul.fwd_thread == mul.thread
    assert leaves.sequence_nr == add.sequence_nr == -1  # no node is made where none is needed
    assert [str(each.scope) for each in (mul, back_mul)] == ["function", "backward"]
    assert all(0 <= each.time_range.start <= each.time_range.end for each in prof.function_events)
    assert prof.self_cpu_time_total > 0
    assert prof.total_average().count == 6


def test_double_backward_is_nested_and_numbered() -> None:
    x = leaf(3)
    with profiler.profile() as prof:
        (g,) = cugrad.autograd.grad((x**3).sum(), x, create_graph=True)
        g.sum().backward()
    node = next(each for each in prof.function_events if each.name == "PowBackward0")
    inside = [each.name for each in node.cpu_children]
    assert "mul" in inside
    made = {each.sequence_nr for each in node.cpu_children if each.sequence_nr >= 0}
    again = {e.sequence_nr for e in prof.function_events if e.scope == 1 and e is not node}
    assert made & again


def test_nothing_is_left_behind() -> None:
    with pytest.raises(ZeroDivisionError), profiler.profile() as prof:
        cugrad.ones(2).exp()
        raise ZeroDivisionError
    assert not mode.state.observers and not mode.state.ranges
    cugrad.ones(2).exp()
    assert names(prof) == ["exp"]


@pytest.mark.parametrize("options", [{}, {"record_shapes": True, "use_device": "simulated"}])
def test_a_profile_entered_or_left_in_the_middle(options: dict[str, Any]) -> None:
    class Switch(cugrad.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: cugrad.Tensor, switch: Any) -> cugrad.Tensor:
            switch()
            return x * 2

    prof = profiler.profile(**options)
    Switch.apply(leaf(3), prof.__enter__)
    Switch.apply(leaf(3), prof.__exit__)
    assert names(prof) == ["mul", "Switch"]
    prof = profiler.profile(**options)
    with profiler.record_function("begun before"):
        prof.__enter__()
        cugrad.ones(2).exp()
    with profiler.record_function("ends after"):
        prof.__exit__()
        cugrad.ones(2).sin()
    assert names(prof) == ["exp", "ends after"]
    assert all(event.cpu_time_total >= 0 for event in prof.function_events)
    assert not mode.state.observers and not mode.state.ranges


def test_threads_of_a_parallel_module_do_not_mix() -> None:
    nets = [nn.Sequential(nn.Linear(3, 3), nn.ReLU()) for _ in range(3)]
    with profiler.profile(with_modules=True, with_stack=True, record_shapes=True) as prof:
        outs = parallel_apply(nets, [(cugrad.ones(2, 3),)] * 3)
        sum(out.sum() for out in outs).backward()
    for event in prof.function_events:
        if event.name in ("linear", "relu"):
            assert event.module_hierarchy == f"Sequential.{int(event.name == 'relu')}"
        if event.cpu_parent is not None:
            assert event.cpu_parent.thread == event.thread
    assert {event.scope for event in prof.function_events if event.name.startswith("nn.")} == {
        RecordScope.MODULE
    }


def test_an_op_that_fails_is_seen() -> None:
    with profiler.profile(record_shapes=True) as prof, pytest.raises(RuntimeError):
        cugrad.ones(2, 3) + cugrad.ones(2, 4)
    assert names(prof) == ["add"]
    assert prof.function_events[0].input_shapes[:2] == [[2, 3], [2, 4]]


def test_a_profile_is_of_its_thread_and_of_what_backward_starts() -> None:
    def other() -> None:
        cugrad.ones(2).exp()

    class Deep(cugrad.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: cugrad.Tensor, depth: int) -> cugrad.Tensor:
            ctx.depth = depth
            return x * 1

        @staticmethod
        def backward(ctx: Any, g: cugrad.Tensor) -> Any:
            if ctx.depth:
                with cugrad.enable_grad():
                    Deep.apply(leaf(2), ctx.depth - 1).sum().backward()
            return g, None

    with profiler.profile() as prof:
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        Deep.apply(leaf(2), 200).sum().backward()  # half the stack is full: other threads
    assert "exp" not in names(prof)
    assert names(prof).count("DeepBackward") == 201
    assert len({each.thread for each in prof.function_events}) > 1
    for each in prof.function_events:
        if each.name == "DeepBackward":
            assert each.fwd_thread is not None


def test_profiles_may_be_nested_but_not_entered_twice() -> None:
    with profiler.profile() as outer:
        cugrad.ones(2).exp()
        with profiler.profile() as inner:
            cugrad.ones(2).sin()
        with pytest.raises(RuntimeError, match="not reentrant"), outer:
            pass
    assert (names(outer), names(inner)) == (["exp", "sin"], ["sin"])


def test_accumulated_events() -> None:
    for accumulate in (False, True):
        prof = profiler.profile(acc_events=accumulate)
        for _ in range(3):
            with prof:
                cugrad.ones(2).exp()
        assert len(prof.function_events) == (3 if accumulate else 1)
        assert prof.key_averages()[0].count == len(prof.function_events)


def test_a_profile_that_is_off_or_not_over() -> None:
    off = profiler.profile(enabled=False)
    with off:
        cugrad.ones(2).exp()
    with pytest.raises(AssertionError, match="Expected profiling results"):
        off.key_averages()
    on = profiler.profile()
    assert str(on) == repr(on) == "<unfinished torch.autograd.profile>"
    with on:
        assert str(on) == "<unfinished torch.autograd.profile>"
        with pytest.raises(AssertionError, match="has not ended"):
            on.table()
    assert str(on) == ""


def test_arguments_that_cannot_be() -> None:
    with pytest.raises(AssertionError, match="use_kineto=True"):
        profiler.profile(use_cpu=False)
    with pytest.raises(AssertionError, match="No activities"):
        profiler.profile(use_cpu=False, use_kineto=True)
    with pytest.raises(ValueError, match="non-negative"):
        profiler.profile(post_processing_timeout_s=-1.0)
    with pytest.raises(TypeError, match="experimental_config"):
        profiler.profile(experimental_config=object())
    with pytest.warns(UserWarning, match="not a valid device option"):
        assert profiler.profile(use_device="toaster").use_device is None
    if not cugrad.cuda.is_available():
        with pytest.warns(FutureWarning, match="use_cuda"), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "CUDA is not available")
            profiler.profile(use_cuda=True)
    with profiler.profile() as prof:
        pass
    with pytest.raises(AssertionError, match="with_stack=True"):
        prof.export_stacks("nowhere")
    with pytest.raises(ValueError, match="Kineto"):
        prof.export_chrome_trace("nowhere", use_python_export=False)


def test_a_timeout_gives_part_of_the_events() -> None:
    with profiler.profile(post_processing_timeout_s=0.0) as prof:
        for _ in range(50):
            cugrad.ones(2).exp()
    assert 0 < len(prof.function_events) < 50


# ---------------------------------------------------------------------- ranges


def test_ranges_of_the_user() -> None:
    @profiler.record_function("decorated")
    def step(x: cugrad.Tensor) -> cugrad.Tensor:
        with profiler.record_function("inner", "3"):
            return x.exp()

    x = cugrad.ones(2)
    with profiler.record_function("no one looks"):
        pass
    with profiler.profile(record_shapes=True) as prof:
        step(x)
        step(x)
    assert names(prof) == ["decorated", "inner", "exp"] * 2
    outer, inner, exp = prof.function_events[:3]
    assert inner.concrete_inputs == ["3"] and inner.input_shapes == [[]]
    assert exp.cpu_parent is inner and inner.cpu_parent is outer
    assert outer.scope == RecordScope.USER_SCOPE and outer.is_user_annotation
    assert outer.self_cpu_time_total == pytest.approx(
        outer.cpu_time_total - inner.cpu_time_total, abs=1e-6
    )


def test_optimizers_and_recomputes_are_events() -> None:
    w = nn.Parameter(cugrad.ones(3))
    optimizer = cugrad.optim.SGD([w], lr=0.1)
    for reentrant in (False, True):
        with profiler.profile() as prof:
            checkpoint(lambda w: w.exp().sin(), w, use_reentrant=reentrant).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        found = {event.name: event for event in prof.function_events}
        assert str(found["checkpoint: recompute"].scope) == "recompute"
        inside = [event.name for event in found["checkpoint: recompute"].cpu_children]
        assert "exp" in inside
        assert str(found["Optimizer.step#SGD.step"].scope) == "optimizer"
        assert "Optimizer.zero_grad#SGD.zero_grad" in found


def test_modules() -> None:
    net = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))
    with profiler.profile() as plain:
        net(cugrad.ones(1, 2))
    assert names(plain) == ["linear", "relu", "linear"]
    with profiler.profile(with_modules=True) as prof:
        net(cugrad.ones(1, 2))
        net(cugrad.ones(1, 2))
    assert names(prof)[:7] == [
        "nn.Module: Sequential_0", "nn.Module: Linear_0", "linear", "nn.Module: ReLU_0", "relu",
        "nn.Module: Linear_1", "linear",
    ]  # fmt: skip
    assert names(prof)[7:] == names(prof)[:7]
    relu = prof.function_events[4]
    assert relu.module_hierarchy == "Sequential.1"
    assert relu.cpu_parent.scope == RecordScope.MODULE


def test_stacks(tmp_path: Path) -> None:
    x = leaf(3)

    def forward() -> cugrad.Tensor:
        return (x * x).sum()

    with profiler.profile(with_stack=True) as prof:
        forward().backward()
    mul = prof.function_events[0]
    assert re.match(r".*test_profiler.py\(\d+\): forward$", mul.stack[0])
    assert mul.stack[1].endswith("test_stacks")
    node = next(each for each in prof.function_events if each.name == "MulBackward0")
    assert node.stack == mul.stack
    assert all("cugrad/autograd" not in line for line in mul.stack)
    averages = prof.key_averages(group_by_stack_n=2)
    assert [len(each.stack) for each in averages if each.key == "mul"] == [2]
    assert "Source Location" in averages.table()
    prof.export_stacks(tmp_path / "stacks.txt")
    for line in (tmp_path / "stacks.txt").read_text().splitlines():
        stack, weight = line.rsplit(" ", 1)
        assert int(weight) > 0 and stack.count(";") > 1 and " " not in stack


# ---------------------------------------------------------------------- shapes, flops, memory


def test_shapes_group() -> None:
    with profiler.profile(record_shapes=True) as prof:
        for n in (2, 2, 3):
            cugrad.ones(n, 4) @ cugrad.ones(4, 5)
            cugrad.ones(n).sum(0, keepdim=True)
    counts = {(e.key, str(e.input_shapes)): e.count for e in prof.key_averages(True)}
    assert counts["mm", "[[2, 4], [4, 5]]"] == 2
    assert counts["mm", "[[3, 4], [4, 5]]"] == 1
    total = next(each for each in prof.function_events if each.name == "sum")
    assert (total.input_dtypes[0], total.input_shapes[0]) == ("float32", [2])
    assert total.kwinputs["keepdim"] is True


def test_flops_of_backward_and_of_attention() -> None:
    with profiler.profile(with_flops=True) as prof:
        (leaf(3, 4) @ leaf(4, 5)).sum().backward()
        (leaf(3, 4) @ cugrad.ones(4, 5)).sum().backward()
    flops = [event.flops for event in prof.function_events if event.flops]
    assert flops == [120, 240, 120, 120]
    with profiler.profile(with_flops=True) as prof:
        (leaf(3, 4) @ leaf(4, 5)).sum().backward(create_graph=True)
    flops = [event.flops for event in prof.function_events if event.flops]
    assert flops == [120, 120, 120]  # the products within the node, and not the node besides
    q = leaf(2, 6, 8)
    with profiler.profile(with_flops=True) as prof:
        nn.functional.scaled_dot_product_attention(q, q, q).sum().backward()
    found = prof.key_averages()
    products = [e.flops for e in found if e.key in ("matmul", "bmm", "mm")]
    forward = 2 * (2 * 2 * 6 * 6 * 8)
    assert sum(products) == 3.5 * forward  # backward computes the weights again
    assert "Total " in found.table() and "FLOPs" in found.table()


def test_memory_of_the_host() -> None:
    with profiler.profile(profile_memory=True) as prof:
        kept = cugrad.ones(1000, 1000).exp()
        del kept
        cugrad.ones(3).sin()
    exp = next(each for each in prof.function_events if each.name == "exp")
    assert exp.cpu_memory_usage == pytest.approx(4_000_000, abs=50_000)
    given_back = sum(e.cpu_memory_usage for e in prof.function_events if e.name == "[memory]")
    assert given_back == pytest.approx(-4_000_000, abs=4_100_000)
    assert "Self CPU Mem" in prof.key_averages().table()
    assert not tracemalloc.is_tracing()
