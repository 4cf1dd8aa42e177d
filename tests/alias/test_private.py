"""Names that PyTorch keeps for itself and packages import: each is here, and does what it does."""

from __future__ import annotations

import importlib
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import cugrad
from cugrad import nn
from cugrad.alias import private
from cugrad.alias.paths import library
from cugrad.alias.private import (
    _foreach_utils,
    _reduction,
    _utils,
    functional,
    internals,
    jit_switches,
)
from cugrad.alias.private._higher_order_ops.associative_scan import associative_scan
from cugrad.distributed.tensor import placements
from tests.support import ROOT

pytestmark = pytest.mark.host_only


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch", reason="PyTorch, the oracle, is not installed")


def test_each_is_a_name_of_pytorchs(torch: Any) -> None:
    """So that none is listed that packages cannot mean."""
    for path in private.NAMES:
        home, _, name = f"torch.{path}".rpartition(".")
        assert hasattr(importlib.import_module(home), name), path
    for path in private.PATHS:
        importlib.import_module(f"torch.{path}")


def test_each_is_here() -> None:
    for path in private.NAMES.values():
        assert private.find(f"cugrad.{path}") is not None
    for path in private.PATHS.values():
        importlib.import_module(f"cugrad.{path}")


@pytest.mark.parametrize("size", [1, 2, 3, 8, 13])
def test_a_scan_combines_all_before(size: int) -> None:
    x, y = cugrad.rand(2, size, 3), cugrad.rand(2, size, 3)
    products = associative_scan(cugrad.mul, x, 1)
    assert cugrad.allclose(products, x.cumprod(1))
    added = associative_scan(lambda a, b: {"x": a["x"] + b["x"]}, {"x": x}, 1, reverse=True)
    assert cugrad.allclose(added["x"], x.flip(1).cumsum(1).flip(1))
    both = associative_scan(lambda a, b: (a[0] * b[0], b[0] * a[1] + b[1]), (x, y), 1)[1]
    one = y[:, 0]
    for i in range(1, size):
        one = x[:, i] * one + y[:, i]
    assert cugrad.allclose(both[:, -1], one)
    with pytest.raises(ValueError, match="want one size"):
        associative_scan(cugrad.add, (x, y[:, :0]), 1)


PROGRAM = """
import torch
from torch.distributions.multivariate_normal import Distribution
from torch.nn.init import _calculate_fan_in_and_fan_out as fans
from torch.optim.optimizer import Tensor
from torch.utils.data.dataloader import _collate_fn_t
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass

assert Tensor is torch.Tensor and Distribution is torch.distributions.Distribution
assert fans(torch.ones(2, 3, 4)) == (12, 8)
assert issubclass(torch.jit.TracerWarning, Warning) and torch.__config__.show()
assert not is_traceable_wrapper_subclass(torch.ones(1))
assert str(torch.qint8) == "torch.qint8"
from torch.utils.model_zoo import load_url
assert load_url is torch.hub.load_state_dict_from_url and torch.utils.model_zoo.load_url is load_url
from torch.utils.model_zoo import tqdm
with tqdm(total=2, disable=True) as bar: bar.update(2)
bar.set_description("done"), bar.close()
from torch._C._functorch import is_batchedtensor
from torch._functorch.vmap import _add_batch_dim, tree_flatten
torch.vmap(lambda x: [x, print(end="" if is_batchedtensor(x) else "no")][0])(torch.ones(2))
from torch._vmap_internals import _vmap
assert _vmap(torch.sum)(torch.ones(2, 3)).tolist() == [3, 3]
from torch.autograd.functional import (
    _as_tuple, _construct_standard_basis_for, _grad_postprocess, _tuple_postprocess,
)
tall, wide = _construct_standard_basis_for((torch.ones(2), torch.ones(1).double()), (2, 1))
assert tall.tolist() == [[1, 0], [0, 1], [0, 0]] and wide.tolist() == [[0], [0], [1]]
assert wide.dtype == torch.float64 and tall.is_contiguous()
was_tuple, (one,) = _as_tuple(tall.requires_grad_(), "inputs", "f")
assert not was_tuple and one is tall and _as_tuple((one,), "", "") == (True, (one,))
assert _tuple_postprocess(((1,),), (False, False)) == 1 and _tuple_postprocess((1,), True) == (1,)
assert not _grad_postprocess((tall * 2,), create_graph=False)[0].requires_grad
from torch.optim.lbfgs import _cubic_interpolate, _strong_wolfe
assert abs(_cubic_interpolate(0.0, 1.0, torch.tensor(-2.0), 2.0, 1.0, torch.tensor(2.0)) - 1) < 1e-6
value, slope, length, calls = _strong_wolfe(
    lambda x, t, d: (float((x + t * d).square().sum()), 2 * (x + t * d)), torch.tensor([3.0]),
    0.1, torch.tensor([-6.0]), 9.0, torch.tensor([6.0]), torch.tensor(-36.0), c2=0.1,
)
assert value < 0.1 and abs(slope).max() < 0.6 and abs(length - 0.5) < 0.05 and calls > 1
assert not torch._C._is_tracing()
from torch.autograd.profiler_util import EventList, FunctionEvent, FunctionEventAvg
from torch.autograd.profiler_util import _format_memory, _format_time, _format_time_share
average = FunctionEventAvg().add(FunctionEvent(0, "a", 0, 10, 15))
average += FunctionEvent(1, "a", 0, 0, 7)
assert average.count == 2 and average.cpu_time_total == 12 and isinstance(EventList([]), list)
assert [_format_time(1500.0), _format_memory(2048), _format_time_share(1, 4)] == [
    "1.500ms", "2.00 KB", "25.00%"]
future = torch.jit.fork(lambda x, y: x + y, 1, y=2)
assert isinstance(future, torch.jit.Future) and torch.jit.wait(future) == future.wait() == 3
assert not is_batchedtensor(torch.ones(1)) and tree_flatten([1, (2,)])[0] == [1, 2]
from torch.nn.utils._named_member_accessor import swap_tensor
layer = torch.nn.BatchNorm1d(2)
old = layer.running_mean
assert swap_tensor(layer, "running_mean", old + 1) is old and (layer.running_mean == 1).all()
swap_tensor(layer, "weight", old)  # no Parameter: programs compute with functions of it
assert layer.weight is old and layer._parameters["weight"] is old
for wrong in ((None, "weight", old), (layer, "nothing", old), (layer, "training", old),
              (layer, "a.b", old), (layer, "weight", 3)):
    try: swap_tensor(*wrong)
    except (AttributeError, KeyError, TypeError): pass
    else: raise AssertionError
from torch.utils._contextlib import _NoParamDecoratorContextManager
class doubled(_NoParamDecoratorContextManager):
    def __enter__(self):
        self.before = torch.get_default_dtype()
        torch.set_default_dtype(torch.double)
    def __exit__(self, *error): torch.set_default_dtype(self.before)
@doubled
def made(): return torch.ones(1)
assert made().dtype is torch.double and torch.ones(1).dtype is torch.float
from torch.nn.modules.module import _global_parameter_registration_hooks as hooks
from torch.nn.modules.module import register_module_parameter_registration_hook as register
handle = register(lambda *args: None)
assert len(hooks.values()) == 1 and callable(hooks.values()[0])
handle.remove()
import torch._VF as _VF
from torch.nn.functional import _Reduction, _pair
from torch.nn.modules.module import _addindent
from torch.cuda.amp.grad_scaler import OptState
from torch._jit_internal import BroadcastingList2, List, Optional
from torch._functorch import config as functorch_config
import torch._functorch.config
functorch_config.activation_memory_budget = 0.5
def sized(size: BroadcastingList2[int], names: Optional[List[str]] = None): return size
assert _VF.lstm is torch._C._VariableFunctions.lstm is torch.lstm is torch._VF.lstm
assert _Reduction.get_enum("mean") == 1 and _pair(3) == (3, 3)
assert _addindent("a\\nb", 2) == "a\\n  b"
assert torch._utils._import_dotted_name("torch.nn.Linear") is torch.nn.Linear
torch._C._jit_set_profiling_executor(False)
assert isinstance(layer.weight, torch._C._TensorBase) and OptState.READY.value == 0
try: torch.ops.load_library("nothing.so")
except OSError as error: print(error)
try: from torch.optim.optimizer import nothing
except ImportError: pass
else: raise AssertionError
try: TorchDispatchMode()
except NotImplementedError: pass
else: raise AssertionError
"""


def test_programs_import_them() -> None:
    """Those, and what modules of PyTorch's have because they import it themselves."""
    start = [sys.executable, "-c", f"import cugrad.as_torch\n{PROGRAM}"]
    run = subprocess.run(start, capture_output=True, text=True, cwd=ROOT)
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("nothing.so: operators of C++ libraries cannot be loaded")


def test_each_is_found_where_pytorch_has_it() -> None:
    start = [sys.executable, "-W", "ignore", "-c", """
import cugrad.as_torch, operator, torch
from cugrad.alias import private
for path in private.NAMES:
    operator.attrgetter(path)(torch)
"""]  # fmt: skip
    run = subprocess.run(start, capture_output=True, text=True, cwd=ROOT)
    assert run.returncode == 0, run.stderr


def test_lists_of_tensors(torch: Any) -> None:
    rows = [np.arange(6.0).reshape(2, 3), np.ones(2), np.float32(3)]
    ours, theirs = ([lib.tensor(row) for row in rows] for lib in (cugrad, torch))
    flat = _utils._flatten_dense_tensors(ours)
    from torch import _utils as peer
    from torch.utils import _foreach_utils as groups

    assert flat.tolist() == peer._flatten_dense_tensors(theirs).tolist()
    for one, other in zip(
        _utils._unflatten_dense_tensors(flat, ours),
        peer._unflatten_dense_tensors(peer._flatten_dense_tensors(theirs), theirs),
    ):
        assert one.tolist() == other.tolist() and tuple(one.shape) == tuple(other.shape)
    assert _utils._element_size(cugrad.bfloat16) == peer._element_size(torch.bfloat16)
    sorted_ours = _foreach_utils._group_tensors_by_device_and_dtype([ours, ours[::-1]], True)
    sorted_theirs = groups._group_tensors_by_device_and_dtype([theirs, theirs[::-1]], True)

    def told(some: Any) -> Any:
        return {
            str(key[1]).partition(".")[2]: ([[t.tolist() for t in part] for part in parts], places)
            for key, (parts, places) in some.items()
        }

    assert told(sorted_ours) == told(sorted_theirs)


@pytest.mark.parametrize("limit", [1, 24, 28, 1000])
def test_lists_of_one_type_and_so_many_bytes(torch: Any, limit: int) -> None:
    from torch import _utils as peer

    rows = [np.ones(3), np.float32([1, 2, 3]), np.ones((2, 2)), np.float32(5), np.ones(1)]
    ours, theirs = (
        [[t.tolist() for t in part] for part in take([lib.tensor(row) for row in rows], limit)]
        for lib, take in ((cugrad, _utils._take_tensors), (torch, peer._take_tensors))
    )
    assert ours == theirs


def _projected(lib: Any, parts: Any, same: str, bias: bool) -> Any:
    x = [lib.tensor(np.random.RandomState(i).randn(2, 3, 4)) for i in range(3)]
    q, k, v = (x[int(i)] for i in same)
    w = lib.tensor(np.random.RandomState(5).randn(12, 4))
    b = lib.tensor(np.random.RandomState(6).randn(12)) if bias else None
    biases = (None,) * 3 if b is None else b.chunk(3)
    packed = parts._in_projection_packed(q, k, v, w, b)
    return [t.numpy() for t in (*packed, *parts._in_projection(q, k, v, *w.chunk(3), *biases))]


@pytest.mark.parametrize("same", ["000", "011", "012"])
def test_parts_of_attention(torch: Any, same: str) -> None:
    import torch.nn.functional as peer

    for bias in (False, True):
        ours, theirs = (
            _projected(cugrad, functional, same, bias),
            _projected(torch, peer, same, bias),
        )
        for one, other in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12)
    x = cugrad.ones(2, 3, 4)
    parts = functional._in_projection_packed(x, x, x, cugrad.ones(12, 4))
    assert all(part.is_contiguous() for part in parts)
    x, y = cugrad.ones(2, 3, 4), cugrad.ones(3, 4)
    assert functional._mha_shape_check(x, x, x, None, None, 2)
    assert not functional._mha_shape_check(y, y, y, None, None, 2)
    for wrong in ((x, x, x, *[cugrad.ones(2, 4)] * 3), (x, x, x, *[cugrad.ones(4, 4)] * 3, y)):
        with pytest.raises(AssertionError, match="shape of"):
            functional._in_projection(*wrong)


def test_parts_of_norms_and_of_a_softmax(torch: Any) -> None:
    import torch.nn.functional as peer

    for lib in (functional, peer):
        with pytest.warns(UserWarning, match="Implicit dimension choice for softmax"):
            assert [lib._get_softmax_dim("softmax", n, 2) for n in range(5)] == [0, 0, 1, 0, 1]
        lib._verify_batch_size([2, 3])
        with pytest.raises(ValueError, match="more than 1 value per channel"):
            lib._verify_batch_size([1, 3, 1])
        assert lib._list_with_default([None, 2], [5, 6, 7]) == [6, 2]
        with pytest.raises(ValueError, match="at least 3"):
            lib._list_with_default([None, 2], [5, 6])
    assert functional._none_or_dtype(cugrad.ones(1)) is cugrad.float32
    assert functional._none_or_dtype(None) is None
    with pytest.raises(RuntimeError, match="must be None or"):
        functional._none_or_dtype(3)  # type: ignore[arg-type]


def test_switches_keep_what_they_are_told() -> None:
    for name in jit_switches.SWITCHES:
        switch = getattr(jit_switches, name)
        before = switch("other")
        assert switch(before) == "other" and switch(before) == before
    with jit_switches.optimized_execution(False):
        pass


def test_small_ones(torch: Any) -> None:
    from torch.nn import _reduction as peer

    for size_average in (None, True, False):
        for reduce in (None, True, False):
            assert _reduction.legacy_get_enum(size_average, reduce, False) == (
                peer.legacy_get_enum(size_average, reduce, False)
            )
    scores, grad = np.array([[0.5, 1.0, -2.0]]), np.array([[1.0, -1.0, 0.25]])
    theirs = torch.tensor(scores).softmax(1)
    ours = internals._softmax_backward_data(
        cugrad.tensor(grad), cugrad.tensor(scores).softmax(1), 1, cugrad.float64
    )
    want = torch._softmax_backward_data(torch.tensor(grad), theirs, 1, torch.float64)
    np.testing.assert_allclose(ours.numpy(), want.numpy(), rtol=1e-12)
    with pytest.raises(AssertionError, match="told"):
        cugrad._assert(False, "told")
    shape = cugrad.full((20000,), 3.0, requires_grad=True)
    drawn = internals._standard_gamma(shape)
    drawn.mean().backward()
    assert shape.grad is not None and abs(shape.grad.sum().item() - 1) < 0.1
    assert abs(drawn.mean().item() - 3) < 0.1
    parts = internals._sample_dirichlet(cugrad.ones(5, 3))
    assert cugrad.allclose(parts.sum(1), cugrad.ones(5)) and (parts > 0).all()
    layer = nn.Linear(2, 1)
    with internals._reparametrize_module(layer, {"weight": cugrad.zeros(1, 2)}):
        assert layer.weight.tolist() == [[0.0, 0.0]]
    assert layer.weight.requires_grad
    assert placements.Shard(1).is_shard(1) and not placements.Replicate().is_shard()
    assert placements.Replicate() == placements.Replicate() != placements.Partial()
    keys = internals.DispatchKeySet(internals.DispatchKey.AutocastCPU)
    with cugrad.autocast("cpu"), internals._ExcludeDispatchKeyGuard(keys):
        assert not cugrad.is_autocast_enabled("cpu")


def test_operators_that_python_defines() -> None:
    lib = library.Library("tested", "DEF")
    assert lib.define("scaled(Tensor x, float by=2) -> Tensor") == "scaled"
    op = library.operators.tested.scaled
    x = cugrad.ones(2, requires_grad=True)
    with pytest.raises(NotImplementedError, match="Could not run 'tested::scaled' with .* cpu"):
        op(x)
    lib.impl("scaled", lambda x, by=2: x * by, "CPU")
    assert op(x, by=3).tolist() == [3.0, 3.0] == op.default(x, 3).tolist()
    library.register_autograd("tested::scaled", lambda ctx, grad: (grad * 2, None))
    op(x, 2).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [2.0, 2.0]
    with pytest.raises(ValueError, match="Unsupported kind"):
        library.Library("tested", "OTHER")


def test_a_subclass_may_have_a_new_of_its_own() -> None:
    class Tagged(cugrad.Tensor):
        def __new__(cls, data: cugrad.Tensor, tag: str) -> Any:
            made: Any = cugrad.Tensor._make_subclass(cls, data)
            made.tag = tag
            return made

    class Marked(nn.Parameter):
        def __new__(cls, data: Any, tag: str = "", requires_grad: bool = True) -> Any:
            made: Any = super().__new__(cls, data, requires_grad)
            made.tag = tag
            return made

    assert Tagged(cugrad.ones(2), tag="a").tag == "a"
    mark: Any = Marked(cugrad.ones(2), tag="b")
    assert (mark.tag, mark.requires_grad, isinstance(mark, nn.Parameter)) == ("b", True, True)
    with pytest.raises(TypeError):
        cugrad.Tensor(2, tag="c")  # type: ignore[call-arg]


def test_classes_that_print_themselves(torch: Any) -> None:
    from torch import _tensor_str as theirs

    from cugrad.alias.private import _tensor_str as ours

    for values in (np.arange(2000.0).reshape(40, 50), np.zeros((0, 3)), np.float64(2.5),
                   np.array([True]), np.array([1 + 2j, 3])):  # fmt: skip
        for depth in (0, 7):
            shown = ours._tensor_str(cugrad.tensor(values), depth)
            assert shown == theirs._tensor_str(torch.tensor(values), depth)
    for suffixes in ([], ["a=1"], ["long" * 20, "b"]):
        for newline in (False, True):
            assert ours._add_suffixes("C([1,\n  2]", suffixes, 2, newline) == (
                theirs._add_suffixes("C([1,\n  2]", suffixes, 2, newline)
            )
    with ours.printoptions(precision=1):
        assert str(cugrad.tensor([0.123])) == "tensor([0.1])"
    assert str(cugrad.tensor([0.123])) == "tensor([0.1230])"
