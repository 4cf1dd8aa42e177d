"""What is done with graphs gives the same texts and numbers as with PyTorch's."""

from __future__ import annotations

import copy
import importlib
import io
import pickle
import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch as pytorch

import cugrad

pytestmark = pytest.mark.host_only

SCENES: list[Callable[[ModuleType], Any]] = []


def scene(run: Callable[[ModuleType], Any]) -> Callable[[ModuleType], Any]:
    SCENES.append(run)
    return run


def clipped(x: Any) -> Any:
    return x if x is None else abs(x)


def length(x: Any) -> int:
    return int(x.shape[0])


for _torch in (cugrad, pytorch):
    _torch.fx.wrap("length")
    _torch.fx.wrap(clipped)


def _module(torch: ModuleType) -> Any:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU())
            self.weight = torch.nn.Parameter(torch.arange(3.0))

        def forward(self, x: Any) -> Any:
            return torch.relu(self.body(x) + self.weight).sum(dim=1)

    net = Net()
    with torch.no_grad():
        net.body[0].weight.copy_(torch.linspace(-1, 1, 9).reshape(3, 3))
        net.body[0].bias.zero_()
    return net


def _said(call: Callable[[], Any]) -> str:
    with pytest.raises(Exception) as error:
        call()
    return f"{type(error.value).__name__}: {str(error.value).splitlines()[0]}"


@scene
def refusals(torch: ModuleType) -> Any:
    fx = torch.fx

    def branches(x: Any) -> Any:
        return x if x.sum() > 0 else -x

    def loops(x: Any) -> Any:
        return sum(row for row in x)

    def measures(x: Any) -> Any:
        return x * len(x)

    def sets(x: Any) -> Any:
        x[0] = 1
        return x

    def keys(x: Any) -> Any:
        return torch.relu({x: 1})

    net = _module(torch)
    other = torch.nn.Parameter(torch.ones(3))
    graph = fx.Graph()
    x = graph.placeholder("x")
    y = graph.call_function(torch.relu, (x,))
    graph.output(y)
    list_of = fx.immutable_collections.immutable_list([1])
    return [
        *(_said(lambda f=f: fx.symbolic_trace(f)) for f in (branches, loops, measures, sets)),
        _said(lambda: fx.symbolic_trace(lambda x: x + other)), _said(lambda: fx.wrap("length")),
        _said(lambda: graph.erase_node(y)), _said(lambda: fx.Graph().erase_node(x)),
        _said(lambda: fx.GraphModule({}, fx.symbolic_trace(net).graph)),
        _said(lambda: fx.wrap(3)), _said(lambda: fx.map_arg(x, 3)),
        _said(lambda: graph.create_node("no", "x"))[:14], _said(lambda: list_of.append(1))[:60],
        _said(lambda: graph.call_function("relu"))[:10],
        _said(lambda: fx.Interpreter(fx.symbolic_trace(lambda x, y: x)).run(1)),
    ]  # fmt: skip


@scene
def edits(torch: ModuleType) -> Any:
    module = torch.fx.symbolic_trace(_module(torch))
    texts = [module.code]
    graph = module.graph
    (relu,) = graph.find_nodes(op="call_function", target=torch.relu)
    with graph.inserting_before(relu):
        doubled = graph.call_function(torch.mul, (relu.args[0], 2))
    relu.update_arg(0, doubled)
    with graph.inserting_after(relu):
        graph.call_method("neg", (relu,))
    relu.next.meta["note"] = "unused"
    graph.lint()
    texts += [str(graph), str([n.name for n in graph.nodes if n < relu]), str(relu.all_input_nodes)]
    texts.append(str(graph.eliminate_dead_code()))
    relu.replace_all_uses_with(doubled)
    graph.erase_node(relu)
    module.recompile()
    texts += [
        module.code,
        str([list(n.users) for n in graph.nodes]),
        str(list(reversed(graph.nodes))),
    ]
    copied = copy.deepcopy(module)
    copied.graph.output_node().prepend(next(n for n in copied.graph.nodes if n.op == "get_attr"))
    texts += [str(copied.graph), module.code, type(copied).__name__]
    names = sorted(name for name, _ in module.named_parameters())
    module.add_submodule("extra.deep", torch.nn.ReLU())
    texts += [str(names), str(module.delete_submodule("extra.none"))]
    module.delete_all_unused_submodules()
    return [
        *texts,
        sorted(name for name, _ in module.named_modules()),
        module(torch.ones(2, 3)).tolist(),
    ]


@scene
def rewriting(torch: ModuleType) -> Any:
    def f(x: Any, w: Any) -> Any:
        a = torch.cat([x, w]).sum()
        b = torch.cat([w, x]).sum() + torch.cat([x, x]).max()
        return a + b, torch.neg(torch.relu(x)), torch.clamp(x, 0, 3)

    module = torch.fx.symbolic_trace(f)
    matches = torch.fx.replace_pattern(
        module, lambda a, b: torch.cat([a, b]).sum(), lambda a, b: torch.stack([b, a]).sum()
    )
    nested = torch.fx.replace_pattern(
        module, lambda a: torch.relu(a), lambda a: torch.relu(torch.exp(a))
    )
    literal = torch.fx.replace_pattern(module, lambda a: torch.clamp(a, 0, 2), lambda a: a)
    module.graph.lint()
    x = torch.linspace(-1, 1, 4)
    return [module.code, len(matches), len(nested), len(literal), str(matches[0].anchor),
            [[round(n, 5) for n in v.reshape(-1).tolist()] for v in module(x, x * 2)]]  # fmt: skip


@scene
def running(torch: ModuleType) -> Any:
    shape_prop = importlib.import_module(f"{torch.__name__}.fx.passes.shape_prop")

    class Swapped(torch.fx.Transformer):
        def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
            return super().call_function(
                torch.neg if target is torch.relu else target, args, kwargs
            )

        def call_method(self, target: Any, args: Any, kwargs: Any) -> Any:
            return super().call_method("mean" if target == "sum" else target, args, kwargs)

    module = torch.fx.symbolic_trace(_module(torch))
    x = torch.linspace(0, 1, 6).reshape(2, 3)
    ran = torch.fx.Interpreter(module).run(x).tolist()
    shape_prop.ShapeProp(module).propagate(x)
    metas = [str(n.meta["tensor_meta"]) for n in module.graph.nodes if "tensor_meta" in n.meta]
    stack = [str(list(n.meta.get("nn_module_stack", {}))) for n in module.graph.nodes]
    readable = module.print_readable(print_output=False, include_stride=True)
    swapped = Swapped(module).transform()
    again = torch.fx.symbolic_trace(module)
    return [
        ran,
        metas,
        stack,
        readable,
        swapped.code,
        swapped(x).tolist(),
        again.code == module.code,
    ]


@scene
def wrapping(torch: ModuleType) -> Any:
    import math

    module = torch.fx.symbolic_trace(lambda x: clipped(x) * length(x) + math.sqrt(length(x)))
    module.graph.print_tabular()
    return [module.code, module(torch.tensor([-4.0, 1.0])).tolist()]


@scene
def concrete(torch: ModuleType) -> Any:
    def f(x: Any, flag: bool, more: Any = None) -> Any:
        return x + 1 if flag else x - 1

    def tree(x: Any) -> Any:
        return {"sum": x["a"] + x["b"][0]}

    module = torch.fx.symbolic_trace(f, concrete_args={"flag": True, "more": None})
    PH = torch.fx.PH
    nested = torch.fx.symbolic_trace(tree, concrete_args={"x": {"a": PH, "b": [PH]}})
    one, two = torch.tensor(1.0), torch.tensor(2.0)
    return [module.code, nested.code, float(nested({"a": one, "b": [two]})["sum"])]


@scene
def by_hand(torch: ModuleType) -> Any:
    graph = torch.fx.Graph()
    x = torch.fx.Proxy(graph.placeholder("x", torch.Tensor))
    y = torch.fx.Proxy(graph.placeholder("y", default_value=2.0))
    low, high = (x * y).sort()[0], x.T @ x
    graph.output((low.node, {"high": high.node}, slice(low.node, None)), list[torch.Tensor])
    code = graph.python_code("self")
    with graph.on_generate_code(lambda before: lambda body: ["pass\n", *body]):
        changed = graph.python_code("me").src
    return [code.src, changed, sorted(code.globals), x.node.next.name, str(graph)]


@scene
def leaves(torch: ModuleType) -> Any:
    class Shallow(torch.fx.Tracer):
        def is_leaf_module(self, m: Any, name: str) -> bool:
            return name == "body" or super().is_leaf_module(m, name)

    tracer = Shallow(param_shapes_constant=True)
    graph = tracer.trace(_module(torch))
    scopes = {name: scope[0] for name, scope in tracer.node_name_to_scope.items()}
    return [str(graph), scopes, torch.fx.GraphModule(tracer.root, graph, "Shallow").code]


@pytest.mark.parametrize("run", SCENES, ids=lambda run: run.__name__)
def test_a_scene_gives_what_it_gives_with_pytorch(
    run: Any, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = SimpleNamespace(tabulate=lambda rows, headers: f"{headers}: {rows}")
    monkeypatch.setitem(sys.modules, "tabulate", rows)
    mine, printed = run(cugrad), capsys.readouterr().out
    theirs, other = run(pytorch), capsys.readouterr().out
    assert mine == theirs
    numbers = "0123456789abcdefx"
    assert printed.translate(str.maketrans("", "", numbers)) == other.translate(
        str.maketrans("", "", numbers)
    )


def test_a_module_goes_through_pickle_and_checkpoints() -> None:
    module = cugrad.fx.symbolic_trace(
        cugrad.nn.Sequential(cugrad.nn.Linear(3, 2), cugrad.nn.ReLU())
    )
    x, file = cugrad.ones(1, 3), io.BytesIO()
    for again in (pickle.loads(pickle.dumps(module)), copy.deepcopy(module), copy.copy(module)):
        assert cugrad.equal(again(x), module(x))
        assert again.code == module.code
    cugrad.save(module, file)
    file.seek(0)
    assert cugrad.equal(cugrad.load(file, weights_only=False)(x), module(x))


def test_gradients_pass_through_and_modules_are_as_before() -> None:
    linear = cugrad.nn.Linear(3, 2)
    module = cugrad.fx.symbolic_trace(cugrad.nn.Sequential(linear))
    module(cugrad.ones(1, 3)).sum().backward()
    assert linear.weight.grad is not None
    assert "__call__" not in vars(cugrad.nn.Module)
    assert not cugrad.fx._symbolic_trace.is_fx_tracing()
