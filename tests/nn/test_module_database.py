"""Every module of PyTorch's own database: representation, state, outputs, gradients and errors."""

from __future__ import annotations

import copy
import importlib.util
import pickle
import re
from typing import Any

import numpy as np
import pytest

import cugrad
from tests.support.pinned_torch import skip_module

torch = pytest.importorskip("torch", reason="PyTorch, the oracle, is not installed")
for _name in ("expecttest", "scipy", "ml_dtypes"):
    if importlib.util.find_spec(_name) is None:
        pytest.skip(f"{_name}, which PyTorch's database needs, is not installed",
                    allow_module_level=True)  # fmt: skip
skip_module()

from tests.ops import opinfo  # noqa: E402
from tests.support import torch_databases  # noqa: E402

with torch_databases.imported():
    from torch.testing._internal.common_modules import module_db

MODULES = {info.name: info for info in module_db}
TOLERANCE = {"float64": (1e-7, 1e-9), "complex128": (1e-7, 1e-9), "float32": (2e-4, 2e-5)}
LAZY = "Lazy"  # what it is made of is not there yet
SAMPLES = 4  # of float64 in each mode; of other dtypes a third of it

# Those that draw at random in training: another generator, other numbers.
DRAWING = ("Dropout", "RReLU", "Transformer", "Fractional")
# Words of an error that are PyTorch's own in one place and not in another.
IN_OTHER_WORDS = {
    "eps must be positive": "batch_norm says it of eps < 0 and, in training, of 0: as PyTorch's",
}


def class_of(info: Any) -> Any:
    found: Any = cugrad
    for part in info.module_cls.__module__.split(".")[1:]:
        found = getattr(found, part)
    return getattr(found, info.module_cls.__name__)


def made(info: Any, given: Any, dtype: Any, training: bool) -> tuple[Any, Any]:
    """The module in both libraries, with the same state; PyTorch's first."""
    theirs = info.module_cls(*given.args, **given.kwargs).to(dtype).train(training)
    mine = class_of(info)(*opinfo.ours(given.args), **opinfo.ours(given.kwargs))
    mine = mine.to(opinfo.ours(dtype)).train(training)
    assert repr(mine) == repr(theirs)
    assert list(mine.state_dict()) == list(theirs.state_dict())
    if LAZY not in info.name:
        state = {name: opinfo.ours(x) for name, x in theirs.state_dict().items()}
        mine.load_state_dict(state)
        assert [p.requires_grad for p in mine.parameters()] == [
            p.requires_grad for p in theirs.parameters()
        ]
    return theirs, mine


def tensors_in(value: Any) -> list[Any]:
    if isinstance(value, (torch.Tensor, cugrad.Tensor)):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [x for v in value for x in tensors_in(v)] if isinstance(value, (list, tuple)) else []


def outcome(lib: Any, module: Any, given: Any, gradients: bool) -> Any:
    """What a module returns, and the gradients by its inputs and parameters; or an error's type."""
    args, kwargs = (given.args, given.kwargs) if lib is torch else given
    try:
        outputs = tensors_in(module(*args, **kwargs))
    except Exception as error:
        return type(error)
    leaves = [x for x in [*tensors_in([args, kwargs]), *module.parameters()] if x.requires_grad]
    leaves = list({id(x): x for x in leaves}.values())
    graded = [x for x in outputs if x.requires_grad]
    found = []
    if graded and gradients and leaves:
        weights = [lib.linspace(0.5, 1.5, x.numel(), dtype=lib.float64) for x in graded]
        weights = [w.reshape(x.shape).to(x.dtype) for w, x in zip(weights, graded, strict=True)]
        found = list(lib.autograd.grad(graded, leaves, weights, allow_unused=True))
    return [
        None if x is None else (str(x.dtype)[6:], tuple(x.shape), x.detach().numpy())
        for x in outputs + found
    ]


def check_same(theirs: Any, mine: Any, tolerance: tuple[float, float]) -> None:
    if isinstance(theirs, type) or isinstance(mine, type):
        assert mine == theirs
        return
    assert [None if x is None else x[:2] for x in mine] == [
        None if x is None else x[:2] for x in theirs
    ]
    for a, b in zip(mine, theirs, strict=True):
        if a is not None:
            np.testing.assert_allclose(a[2], b[2], *tolerance)


def inputs_of(info: Any, given: Any) -> Any:
    """The inputs as this library's; leaves, which the database's need not be."""
    args, kwargs = opinfo.ours(given.args), opinfo.ours(given.kwargs)
    same = [(i, j) for i, x in enumerate(given.args) for j in range(i) if x is given.args[j]]
    if same and isinstance(given.args[0], torch.Tensor):
        args = list(args)
        for i, j in same:
            args[i] = args[j]
    return args, kwargs


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MODULES)
def test_module(name: str) -> None:
    info = MODULES[name]
    for dtype in (torch.float64, torch.float32, torch.complex128):
        if dtype not in info.dtypes:
            continue
        differ = info.train_and_eval_differ or any(word in name for word in DRAWING)
        for training in (True, False) if differ else (True,):
            options = {"dtype": dtype, "requires_grad": True, "training": training}
            drawing = training and any(word in name for word in DRAWING)
            samples = list(info.module_inputs_func(info, device="cpu", **options))
            step = max(1, len(samples) // SAMPLES)
            for sample in samples[:: step if dtype is torch.float64 else 3 * step]:
                torch.manual_seed(0)
                try:
                    theirs, mine = made(info, sample.constructor_input, dtype, training)
                except NotImplementedError:  # a module among the arguments
                    continue
                if dtype is torch.float64 and training:
                    pickle.loads(pickle.dumps(mine))
                    copy.deepcopy(mine)
                given = sample.forward_input
                if given is None or drawing or LAZY in name:
                    continue
                # by the scores before log_softmax PyTorch's is the same; see the page
                check_same(
                    outcome(torch, theirs, given, name != "nn.CTCLoss"),
                    outcome(cugrad, mine, inputs_of(info, given), name != "nn.CTCLoss"),
                    TOLERANCE[str(dtype)[6:]],
                )


FAULTY = [name for name, info in MODULES.items() if info.module_error_inputs_func is not None]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FAULTY)
def test_errors_of_a_module(name: str) -> None:
    info = MODULES[name]
    for training in (True, False):
        options = {"dtype": torch.float32, "requires_grad": False, "training": training}
        for case in info.module_error_inputs_func(info, device="cpu", **options):
            made_of, given = case.module_error_input.constructor_input, case.module_error_input
            if case.error_regex in IN_OTHER_WORDS:
                continue
            with pytest.raises(case.error_type) as raised:
                module = class_of(info)(*opinfo.ours(made_of.args), **opinfo.ours(made_of.kwargs))
                module.train(training)
                given = given.forward_input
                module(*opinfo.ours(given.args), **opinfo.ours(given.kwargs))
            assert re.search(case.error_regex, str(raised.value)), case.error_regex
