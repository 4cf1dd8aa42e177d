"""autograd.Variable, the old name of tensors, and the import paths of torch.autograd."""

from __future__ import annotations

import importlib
from typing import Any

import pytest


def test_variables_are_tensors(lib: Any) -> None:
    Variable, t = lib.autograd.Variable, lib.ones(2)
    v = Variable(t, requires_grad=True)
    assert type(v) is lib.Tensor and v.requires_grad and not Variable(t).requires_grad
    assert Variable(t, True).requires_grad and v is not t and v.is_leaf
    assert isinstance(t, Variable) and isinstance(lib.nn.Parameter(t), Variable)
    assert not isinstance(3, Variable)
    t.add_(1)
    assert v.tolist() == [2, 2] and v._version == 1
    (v * v).sum().backward()
    assert v.grad.tolist() == [4, 4] and t.grad is None


def test_no_history_comes_along(lib: Any) -> None:
    x = lib.ones(2, requires_grad=True)
    for given in (x, x * 2):
        v = lib.autograd.Variable(given)
        assert not v.requires_grad and v.grad_fn is None
        assert lib.autograd.Variable(given, requires_grad=True).is_leaf
    assert lib.autograd.Variable().shape == (0,)


def test_what_variables_refuse(lib: Any) -> None:
    Variable = lib.autograd.Variable
    with pytest.raises(TypeError, match="Variable data has to be a tensor, but got list"):
        Variable([1, 2])
    with pytest.raises(RuntimeError, match="of floating point and complex dtype can require grad"):
        Variable(lib.tensor([1]), requires_grad=True)
    with pytest.warns(UserWarning, match="volatile was removed and now has no effect"):
        Variable(lib.ones(1), volatile=True)
    assert not Variable(lib.ones(1), volatile=False).requires_grad
    with pytest.raises(RuntimeError, match=r"torch.autograd.variable\(...\) is deprecated, use"):
        lib.autograd.variable(lib.ones(1))
    with pytest.raises(RuntimeError, match="create a SavedTensor object from Python is forbidden"):
        lib.autograd.SavedTensor()


PATHS = [
    ("autograd.variable", "Variable"),
    ("autograd.function", "Function", "FunctionCtx", "once_differentiable", "InplaceFunction"),
    ("autograd.grad_mode", "no_grad", "enable_grad", "set_grad_enabled", "inference_mode"),
    ("autograd.forward_ad", "dual_level", "make_dual", "unpack_dual", "enter_dual_level",
     "exit_dual_level", "UnpackedDualTensor"),
    ("autograd.graph", "saved_tensors_hooks", "save_on_cpu", "disable_saved_tensors_hooks",
     "register_multi_grad_hook", "allow_mutation_on_saved_tensors", "Node", "GradientEdge",
     "get_gradient_edge", "increment_version"),
    ("autograd.functional", "jacobian", "hessian", "vjp", "jvp", "vhp", "hvp"),
    ("autograd.gradcheck", "gradcheck", "gradgradcheck", "GradcheckError"),
    ("autograd.anomaly_mode", "detect_anomaly", "set_detect_anomaly"),
    ("autograd.profiler", "emit_nvtx"),
    ("func", "grad", "vjp", "jvp", "vmap", "jacrev", "jacfwd", "hessian", "functional_call",
     "stack_module_state", "grad_and_value", "linearize"),
    ("nn.parallel", "DataParallel", "data_parallel", "replicate", "scatter", "gather",
     "parallel_apply"),
    ("nn.parameter", "Parameter"),
    ("nn.functional", "relu"),
    ("cuda.profiler", "profile", "start", "stop"),
    ("serialization", "save", "load", "add_safe_globals", "safe_globals"),
]  # fmt: skip


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path[0])
def test_import_paths(lib: Any, path: tuple[str, ...]) -> None:
    module = importlib.import_module(f"{lib.__name__}.{path[0]}")
    for name in path[1:]:
        assert hasattr(module, name), f"{path[0]} has no {name}"
