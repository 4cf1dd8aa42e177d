"""Every optimizer of PyTorch's own database: steps, states, representation and errors."""

from __future__ import annotations

import importlib.util
import re
import warnings
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
    from torch.testing._internal.common_optimizers import optim_db

OPTIMIZERS = {info.optim_cls.__name__: info for info in optim_db}
# LBFGS adds up what it has found in an order of its own
LOOSE = {"LBFGS"}


def shapes_of(name: str) -> list[tuple[int, ...]]:
    return [(3, 4), (4, 2)] if name == "Muon" else [(3, 4), (4,), (1,)]


def numbers(rng: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    drawn = rng.standard_normal(shape)
    return torch.tensor(drawn + 1j * drawn[::-1] if dtype.is_complex else drawn).to(dtype)


def plain(value: Any) -> Any:
    """A state dict of either library's, with arrays in the place of tensors."""
    if isinstance(value, (torch.Tensor, cugrad.Tensor)):
        return str(value.dtype)[6:], value.detach().numpy()
    if isinstance(value, dict):
        return {name: plain(x) for name, x in value.items()}
    return [plain(x) for x in value] if isinstance(value, (list, tuple)) else value


def check_same(mine: Any, theirs: Any, rtol: float) -> None:
    if isinstance(theirs, dict):
        assert list(mine) == list(theirs)
        mine, theirs = list(mine.values()), list(theirs.values())
    if isinstance(theirs, (list, tuple)):
        assert len(mine) == len(theirs)
        for a, b in zip(mine, theirs, strict=True):
            check_same(a, b, rtol)
    elif isinstance(theirs, (float, complex, np.ndarray)):
        np.testing.assert_allclose(mine, theirs, rtol, rtol)
    else:
        assert mine == theirs


def stepped(lib: Any, name: str, kwargs: Any, dtype: Any, apart: bool) -> Any:
    """What four steps make of parameters, with a rate that changes; or an error's type."""

    def here(x: Any) -> Any:
        return x if lib is torch else opinfo.ours(x)

    rng = np.random.default_rng(0)
    params = [lib.nn.Parameter(here(numbers(rng, s, dtype))) for s in shapes_of(name)]
    groups: Any = params
    if apart:
        groups = [{"params": params[:1]}, {"params": params[1:], "lr": 0.02}]
    try:
        optimizer = getattr(lib.optim, name)(groups, **here(dict(kwargs)))
        for step in range(4):
            if step == 2:
                for group in optimizer.param_groups:
                    group["lr"] = group["lr"] * 0.5
            for p in params:
                p.grad = here(numbers(rng, tuple(p.shape), dtype))
            optimizer.step(lambda: sum((p.abs() ** 2).sum() for p in params))
    except Exception as error:
        return type(error)
    return repr(optimizer), plain(params), plain(optimizer.state_dict())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizer(name: str) -> None:
    for number, case in enumerate(OPTIMIZERS[name].optim_inputs_func(device="cpu")):
        for dtype in (torch.float64, torch.complex128, torch.float32)[: 3 if number == 0 else 2]:
            given = (name, case.kwargs, dtype, bool(number % 2) and name != "LBFGS")
            theirs, mine = stepped(torch, *given), stepped(cugrad, *given)
            if isinstance(theirs, type) or isinstance(mine, type):
                assert mine == theirs, case
                continue
            assert mine[0] == theirs[0]
            check_same(mine[1:], theirs[1:], 1e-3 if name in LOOSE else 1e-5)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_errors_of_an_optimizer(name: str) -> None:
    info = OPTIMIZERS[name]
    for case in info.optim_error_inputs_func(device="cpu", dtype=torch.float32):
        given = case.optimizer_error_input
        if name == "LBFGS" and "across param groups" in given.desc:
            continue  # it takes one group, and says so: as PyTorch's does
        params, known = given.params, {}

        def here(x: Any, known: Any = known) -> Any:
            """The same tensor each time."""
            if isinstance(x, torch.Tensor):
                if x.layout is not torch.strided:
                    x = cugrad.tensor(x.detach().to_dense().numpy()).to_sparse()
                    return x.requires_grad_()
                return known.setdefault(id(x), (x, opinfo.ours(x)))[1]
            if isinstance(x, dict):
                return {key: here(value) for key, value in x.items()}
            return type(x)(map(here, x)) if type(x) in (list, tuple) else opinfo.ours(x)

        def attempt(params: Any = params, given: Any = given, here: Any = here) -> None:
            optimizer = getattr(cugrad.optim, name)(here(params), **here(given.kwargs))
            for tensor in params if isinstance(params, list) else []:
                if isinstance(tensor, torch.Tensor) and tensor.grad is not None:
                    here(tensor).grad = opinfo.ours(tensor.grad)
            optimizer.step(lambda: cugrad.tensor(0.0))

        if issubclass(case.error_type, Warning):
            with pytest.warns(case.error_type, match=case.error_regex):
                attempt()
            continue
        with warnings.catch_warnings(), pytest.raises(case.error_type) as raised:
            warnings.simplefilter("ignore")
            attempt()
        assert re.search(case.error_regex, str(raised.value)), (given.desc, raised.value)
