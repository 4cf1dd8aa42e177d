"""Proves with an NVTX tool attached that what emit_nvtx emits is what it says."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

import cugrad
from cugrad.autograd import mode
from cugrad.cuda.emitter import Emitter, _choose, call_of
from cugrad.ops.table import TABLE
from cugrad.profiler.nvidia.nvtx import emit_nvtx
from tests.conftest import usable_devices
from tests.profiler.nvtx_capture import capture
from tests.profiler.nvtx_capture.capture import Event, Range, Run, ranges_of
from tests.support import fake_cuda

EMITTERS = ["cupy", "nvtx"]


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if capture.compiler() is None:
        pytest.skip("no C compiler (cc, gcc or clang) to build the NVTX tool with")
    return capture.build(tmp_path_factory.mktemp("nvtx"))


@pytest.fixture(params=EMITTERS)
def emitter(request: pytest.FixtureRequest) -> str:
    if importlib.util.find_spec(request.param) is None:
        pytest.skip(f"{request.param} is not installed")
    return str(request.param)


@pytest.fixture
def traced(library: Path, emitter: str, tmp_path: Path, device: str) -> Callable[[str], Run]:
    """Runs a script under the tool, on each device, once with each library that can emit."""
    if device == "cuda" and fake_cuda.REAL is not None:
        pytest.skip("the stand-in for CuPy is not in the process that the tool watches")
    return lambda script: capture.run(script, library, tmp_path / "events.tsv", emitter)


# The tool --------------------------------------------------------------------------------


def test_the_tool_sees_the_nvtx_package(library: Path, tmp_path: Path) -> None:
    pytest.importorskip("nvtx")
    events, _ = capture.run(
        "import nvtx\n"
        "nvtx.push_range('outer\\t\\n\\\\')\n"
        "nvtx.push_range('inner', domain='other', payload=-5)\n"
        "nvtx.mark('dot')\n"
        "nvtx.end_range(nvtx.start_range('free'))\n"
        "nvtx.pop_range(domain='other')\n"
        "nvtx.pop_range()\n",
        library,
        tmp_path / "events.tsv",
    )
    assert [event[2:] for event in events] == [
        ("push", "default", "outer\t\n\\", ""),
        ("push", "other", "inner", "-5"),
        ("mark", "default", "dot", ""),
        ("start", "default", "free", ""),
        ("end", "default", "", ""),
        ("pop", "other", "", ""),
        ("pop", "default", "", ""),
    ]


def test_the_tool_sees_cupy_and_threads(library: Path, tmp_path: Path) -> None:
    pytest.importorskip("cupy")
    events, _ = capture.run(
        "import threading\n"
        "from cupy.cuda import nvtx\n"
        "def pair():\n"
        "    nvtx.RangePush('größe, seq=2'); nvtx.Mark('dot'); nvtx.RangePop()\n"
        "pair()\n"
        "thread = threading.Thread(target=pair); thread.start(); thread.join()\n",
        library,
        tmp_path / "events.tsv",
    )
    assert [event.kind for event in events] == ["push", "mark", "pop"] * 2
    assert [each.name for each in ranges_of(events)] == ["größe"] * 2
    assert len({event.thread for event in events}) == 2


@pytest.mark.parametrize("kinds, fault", [("push", "nobody popped"), ("pop", "without a push")])
def test_the_reader_sees_imbalance(kinds: str, fault: str) -> None:
    with pytest.raises(AssertionError, match=fault):
        ranges_of([Event(0, 1, kinds, "default", "mul, seq=1", "")])


# Which library emits ---------------------------------------------------------------------------


@pytest.fixture
def choose() -> Iterator[Callable[[str], Emitter | None]]:
    """The choice that CUGRAD_NVTX=<argument> makes, as a fresh process would make it."""
    _choose.cache_clear()
    yield _choose
    _choose.cache_clear()


def hide(monkeypatch: pytest.MonkeyPatch, *packages: str) -> None:
    """Makes `import package` fail as it does where the package is not installed."""
    for package in packages:
        for name in [package, *(each for each in sys.modules if each.startswith(package + "."))]:
            monkeypatch.setitem(sys.modules, name, None)


def test_cupy_comes_before_nvtx(choose: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("nvtx")
    if fake_cuda.REAL is not None:
        pytest.skip("the stand-in for CuPy has no NVTX")
    cupy = importlib.util.find_spec("cupy") is not None
    assert choose("").name == ("cupy" if cupy else "nvtx")
    choose.cache_clear()
    hide(monkeypatch, "cupy")
    assert choose("").name == "nvtx"


def test_without_a_library_one_warning_names_both(
    choose: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    hide(monkeypatch, "cupy", "nvtx")
    monkeypatch.delenv("CUGRAD_NVTX", raising=False)
    with pytest.warns(UserWarning, match=r"cupy-cuda12x.* nvtx") as caught, emit_nvtx():
        cugrad.ones(2) * 2
    assert caught[0].filename == __file__
    with emit_nvtx():  # warnings are errors in this suite: the second time nothing is said
        cugrad.ones(2) * 2


@pytest.mark.parametrize("name, package", [("cupy", "cupy-cuda12x"), ("nvtx", "nvtx")])
def test_a_forced_library_that_is_missing(
    name: str, package: str, choose: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    hide(monkeypatch, name)
    with pytest.raises(ImportError, match=f"CUGRAD_NVTX={name}.*pip install {package}"):
        choose(name)


def test_an_unknown_library(choose: Any) -> None:
    with pytest.raises(ValueError, match="got 'nvtz', want 'cupy', 'nvtx' or 'none'"):
        choose("nvtz")


def test_none_silences(choose: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUGRAD_NVTX", "none")
    with emit_nvtx():
        assert not mode.state.observers


def test_importing_cugrad_does_not_touch_nvtx(library: Path, tmp_path: Path) -> None:
    script = "import sys, cugrad\nassert not {'nvtx', 'cupy.cuda.nvtx'} & set(sys.modules)"
    assert capture.run(script, library, tmp_path / "events.tsv").events == []


# The context manager ---------------------------------------------------------------------------


@pytest.fixture
def ranges(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that emit_nvtx pushes, each followed by "pop" where it ends."""
    heard: list[str] = []
    silent = Emitter("test", call_of(heard.append), lambda: heard.append("pop"), heard.append)
    monkeypatch.setattr("cugrad.profiler.nvidia.nvtx.emitter", lambda: silent)
    return heard


def test_not_reentrant(ranges: list[str]) -> None:
    with emit_nvtx() as outer:
        for inner in (outer, emit_nvtx()):
            with pytest.raises(RuntimeError, match="context manager is not reentrant"), inner:
                pass
        cugrad.ones(2) * 2
    assert len(ranges) == 2  # the failed entries neither doubled nor ended the outer one's ranges
    with outer:
        cugrad.ones(2) * 2
    assert len(ranges) == 4


def test_disabled(ranges: list[str]) -> None:
    with emit_nvtx(), emit_nvtx(enabled=False), emit_nvtx(False):
        pass
    with emit_nvtx(enabled=False) as context, context:
        cugrad.ones(2) * 2
    assert ranges == []


def test_an_exception_in_the_block_comes_through(ranges: list[str]) -> None:
    with pytest.raises(ZeroDivisionError), emit_nvtx():
        raise ZeroDivisionError
    assert not mode.state.observers


def test_entered_and_left_in_the_middle_of_an_op(ranges: list[str]) -> None:
    """In the middle of an op its end comes without a begin, or its begin without an end."""
    context, at_exit = emit_nvtx(), list[str]()

    class Enter(cugrad.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: cugrad.Tensor) -> cugrad.Tensor:
            context.__enter__()
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: cugrad.Tensor) -> cugrad.Tensor:
            context.__exit__(None, None, None)
            at_exit.extend(ranges)
            return g * 2

    y = Enter.apply(cugrad.ones(2, requires_grad=True)).sum()
    y.backward()
    depths = list(accumulate(-1 if text == "pop" else 1 for text in ranges))
    assert min(depths) == depths[-1] == 0
    assert any("stashed" in text for text in ranges)
    assert at_exit == ranges, "a range was left open, or popped after the exit"


def test_sizes(ranges: list[str]) -> None:
    a, b = cugrad.ones(2, 3), cugrad.ones(2, 3)
    with emit_nvtx(record_shapes=True):
        a * b
        a * 2
        cugrad.cat([a, b], 0)
        a.sum()
    texts = [re.sub(r"seq=\d+", "seq=N", text) for text in ranges if text != "pop"]
    assert texts[0] == "mul, seq=N, sizes=[[2, 3], [2, 3]]"
    assert texts[1] == "mul, seq=N, sizes=[[2, 3], []]"
    assert texts[2].startswith("cat, seq=N, sizes=[[2, 3], [2, 3]")
    assert texts[3].startswith("sum, seq=N, sizes=[[2, 3]")


# What a training step emits --------------------------------------------------------------------

# Each script writes the truth, {sequence number: name of the node}, as JSON to its standard output;
# it gets that from the graph itself, by walking next_functions.
TRUTH = """
import json
import cugrad as torch
import cugrad.nn.functional as F
from cugrad import nn
from cugrad.autograd.profiler import emit_nvtx

truth = {}

def remember(*roots):
    todo = [each.grad_fn for each in roots]
    while todo:
        node = todo.pop()
        if node is not None and node.seq < 2**63:
            truth[node.seq] = node.name()
            todo += [each for each, _ in node.next_functions]
"""
CONV = """
model = nn.Sequential(
    nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
    nn.Linear(4 * 4 * 4, 16), nn.ReLU(), nn.Linear(16, 10),
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
x, y = torch.randn(8, 1, 8, 8), torch.randint(0, 10, (8,))
with emit_nvtx(record_shapes=True):
    for step in range(2):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        remember(loss)
        loss.backward()
        optimizer.step()
"""
BRANCHES = """
a, b = torch.randn(3, 4, requires_grad=True), torch.randn(4, 3, requires_grad=True)
with emit_nvtx():
    with torch.no_grad():  # makes no node: its number is that of the next op that does
        a * a
    h = a @ b
    parts = h.split(1)
    out = torch.cat([p.exp() * q.sin() for p, q in zip(parts, h.unbind(1))])
    view = out.reshape(-1)[1:]
    view = view.clone()
    view.mul_(2)
    loss = (view * view).mean()
    remember(loss)
    loss.backward()
"""
DOUBLE = """
x = torch.randn(5, requires_grad=True)
with emit_nvtx():
    y = (x.sin() * x).sum()
    remember(y)
    (g,) = torch.autograd.grad(y, x, create_graph=True)
    z = (g * g).sum()
    remember(z)
    z.backward()
"""
CUSTOM = """
class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2
    @staticmethod
    def backward(ctx, g):
        return g * 2

x = torch.randn(5, requires_grad=True)
with emit_nvtx():
    y = Twice.apply(x.exp()).sum()
    remember(y)
    y.backward()
"""
PRINT = "print(json.dumps(truth))\n"


def made(op: str, node: str) -> bool:
    """Whether an op of this name leaves a node of this name, which a parameter may decide."""
    if op not in TABLE:
        return f"{op}Backward" == node
    given = [{}, *[{name: True} for name in TABLE[op].params]]
    return node in [TABLE[op].name_of_node(params) for params in given]


def in_backward(ranges: list[Range]) -> list[Range]:
    return [each for each in ranges if each.stashed is not None]


def check_makers(ranges: list[Range]) -> None:
    """Every backward range has the number of a forward range of the op that leaves such a node."""
    makers: dict[int | None, list[str]] = defaultdict(list)
    for each in ranges:
        makers[each.seq].append(each.name)
    for each in in_backward(ranges):
        ops = makers[each.stashed]
        assert any(made(op, each.name) for op in ops), f"{each.text} was made by {ops or 'no op'}"


SCRIPTS = {"conv": CONV, "branches": BRANCHES, "double": DOUBLE, "custom": CUSTOM}


# Each script with each library, and on each device: all pairs, of half of the combinations.
DEVICES = usable_devices()
TURNS = [(name, emitter, DEVICES[(k + e) % len(DEVICES)])
         for k, name in enumerate(SCRIPTS) for e, emitter in enumerate(EMITTERS)]  # fmt: skip


@pytest.mark.parametrize(("name", "emitter", "device"), TURNS, indirect=["emitter", "device"])
def test_every_node_finds_the_op_that_made_it(name: str, traced: Callable[[str], Run]) -> None:
    run = traced(TRUTH + SCRIPTS[name] + PRINT)
    truth = {int(seq): name for seq, name in json.loads(run.printed).items()}
    ranges = ranges_of(run.events)
    check_makers(ranges)
    ran = [(each.stashed, each.name) for each in in_backward(ranges)]
    assert set(truth.items()) <= set(ran), "a node of the graph ran outside a range"


def test_ops_of_a_backward_that_is_recorded_have_numbers(traced: Callable[[str], Run]) -> None:
    ranges = ranges_of(traced(TRUTH + DOUBLE).events)
    inner = [each for each in ranges if each.seq and any("stashed" in p for p in each.parents)]
    assert inner, "create_graph=True emits no forward ranges inside backward ones"
    later = {each.stashed for each in in_backward(ranges)}
    assert later & {each.seq for each in inner}, "no node of the double backward finds its op"


def test_exceptions_leave_the_ranges_balanced(traced: Callable[[str], Run]) -> None:
    script = """
import cugrad as torch
from cugrad.autograd.profiler import emit_nvtx

class Bad(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, where):
        ctx.where = where
        if where == "forward":
            raise ValueError(where)
        return x * 2
    @staticmethod
    def backward(ctx, g):
        if ctx.where == "backward":
            raise ValueError(ctx.where)
        return (g,) * 5  # want 2

def fail(g):
    raise ValueError("hook")

def hooked(x):
    y = x * 2
    y.register_hook(fail)
    return y.sum()

def tripped(x):
    raised = (x * 2).sum()
    with torch.no_grad():
        return torch.ones(2, 3) @ torch.ones(2, 3)

x = torch.ones(2, requires_grad=True)
wrong = [
    lambda: x + torch.ones(3),
    lambda: tripped(x),
    lambda: Bad.apply(x, "forward"),
    lambda: Bad.apply(x, "backward").sum().backward(),
    lambda: Bad.apply(x, "count").sum().backward(),
    lambda: hooked(x).backward(),
]
with emit_nvtx():
    for trial in wrong:
        try:
            trial()
        except (ValueError, RuntimeError):
            x.exp()
        else:
            raise AssertionError("did not raise")
try:
    with emit_nvtx():
        x.tanh()
        hooked(x).backward()
except ValueError:
    pass
with emit_nvtx():
    x.cos()
"""
    ranges = ranges_of(traced(script).events)
    after = [each for each in ranges if each.name in ("exp", "tanh", "cos")]
    assert [each.name for each in after] == ["exp"] * 6 + ["tanh", "cos"]
    assert not any(each.parents for each in after), "a range is still open after its op raised"


def test_each_thread_has_its_ranges(traced: Callable[[str], Run]) -> None:
    script = """
import threading
import cugrad as torch
from cugrad.autograd.profiler import emit_nvtx

def step():
    x = torch.ones(2, requires_grad=True)
    for _ in range(20):
        x.exp().sum().backward()

def watched():
    with emit_nvtx():
        step()

threads = [threading.Thread(target=each) for each in (watched, watched, step)]
for each in threads: each.start()
for each in threads: each.join()
step()
"""
    ranges = ranges_of(traced(script).events)
    count = [sum(each.thread == thread for each in ranges) for thread in {r.thread for r in ranges}]
    assert len(count) == 2
    assert count[0] == count[1] >= 80


def test_shapes_of_a_training_step(traced: Callable[[str], Run]) -> None:
    ranges = ranges_of(traced(TRUTH + CONV).events)
    assert all(each.sizes is not None for each in ranges if each.seq is not None)
    convolutions = [each for each in ranges if "conv" in each.name and each.seq is not None]
    assert convolutions
    assert convolutions[0].sizes is not None
    assert json.loads(convolutions[0].sizes)[:3] == [[8, 1, 8, 8], [4, 1, 3, 3], [4]]


@pytest.mark.parametrize("device", ["cpu"])  # which the script says itself
@pytest.mark.parametrize("emitter", ["nvtx"], indirect=True)  # tests above have both
def test_the_training_example(traced: Callable[[str], Run], tmp_path: Path) -> None:
    """examples/train_digits.py says that three steps carry ranges: all of forward and backward."""
    for package in ("sklearn", "matplotlib", "tqdm"):  # not importorskip: sklearn sets os.environ
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"the example needs {package}, which is not installed")
    arguments = ["train_digits.py", "--epochs", "1", "--device", "cpu"]
    script = f"""
import runpy, sys
sys.argv = {[*arguments, "--out", str(tmp_path / "digits.png")]!r}
try:
    runpy.run_path({str(capture.ROOT / "examples" / "train_digits.py")!r}, run_name="__main__")
except SystemExit as end:
    assert not end.code
"""
    ranges = ranges_of(traced(script).events)
    check_makers(ranges)
    count = Counter(each.name for each in in_backward(ranges))
    assert count["NllLossBackward0"] == 3
    assert all(number % 3 == 0 for number in count.values())
