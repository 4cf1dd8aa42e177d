"""Every function of PyTorch's own database on the fake CUDA: whether the host waits for the device,
or copies something to it, and by which name a capture refuses that.
"""

from __future__ import annotations

import gc
import importlib.util
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support import fake_cuda
from tests.support.pinned_torch import skip_module

pytestmark = pytest.mark.host_only

pytest.importorskip("cupy", reason="CuPy is not installed")
pytest.importorskip("torch", reason="PyTorch, whose database it is, is not installed")
for _name in ("expecttest", "scipy", "ml_dtypes"):
    if importlib.util.find_spec(_name) is None:
        pytest.skip(f"{_name}, which PyTorch's database needs, is not installed",
                    allow_module_level=True)  # fmt: skip

skip_module()  # PyTorch's database imports its compiler, which opinfo.py keeps out

if fake_cuda.REAL is None:

    def test_over_the_fake_cuda() -> None:
        fake_cuda.passed(__file__)

else:
    import torch

    import cugrad
    from cugrad import Tensor
    from tests.ops import opinfo
    from tests.ops.test_opinfo import PRESENT

    STATE = fake_cuda.STATE
    SAMPLES = 2  # of each function, from all over its list
    # What copies something to the device, as what PyTorch does there.
    COPIES = {
        "__getitem__": "lists of indices are the host's",
        "combinations": "PyTorch counts what it has chosen, and waits for that",
        "nn.functional.ctc_loss": "lengths are the host's",
    }
    # How often a call waits, as PyTorch's does: for a number, a shape, or whether all went well.
    WAITS = {
        **dict.fromkeys((
            "__getitem__", "allclose", "argwhere", "equal", "istft", "item",
            "linalg.cond",
            "linalg.eigh", "linalg.eigvalsh", "linalg.inv", "linalg.matrix_power",
            "linalg.matrix_norm", "linalg.matrix_rank", "linalg.norm",
            "linalg.pinv", "linalg.solve", "linalg.svd",
            "linalg.svdvals", "linalg.tensorinv", "linalg.tensorsolve", "masked_select",
            "narrow", "nn.functional.embedding", "nn.functional.embedding_bag",
            "nn.functional.one_hot",
            "nonzero", "norm", "pca_lowrank", "pinverse",
            "repeat_interleave", "svd", "svd_lowrank",
        ), 1),
        **dict.fromkeys((
            "bincount", "histc", "index_put", "linspace", "logspace", "matrix_exp",
            "nn.functional.ctc_loss",
            "unique", "unique_consecutive",
        ), 2),
        "histogram": 3, "histogramdd": 12,  # which PyTorch has on the CPU alone
        # More often than PyTorch's:
        "cholesky": 2, "linalg.cholesky": 2,  # whether cuSOLVER takes nan for positive is not known
        "linalg.cholesky_ex": 2,  # CuPy keeps the status for itself
        "linalg.eig": 4, "linalg.eigvals": 4, "linalg.lstsq": 3,  # by singular values
        **{f"special.{x}_polynomial_{y}": 1 for x, y in (  # the highest degree
            *(("chebyshev", y) for y in "tuvw"), *(("shifted_chebyshev", y) for y in "tuvw"),
            ("hermite", "h"), ("hermite", "he"), ("laguerre", "l"), ("legendre", "p"),
        )},
    }  # fmt: skip
    DTYPES = (torch.float32, torch.complex64, torch.int64, torch.bool)  # the first that is there

    def on_device(value: Any) -> Any:
        """A value of cugrad's, or what holds such, with its tensors on the device."""
        if isinstance(value, Tensor):
            return value.detach().cuda().requires_grad_(value.requires_grad)
        if type(value) in (list, tuple):
            return type(value)(map(on_device, value))
        if type(value) is dict:
            return {k: on_device(v) for k, v in value.items()}
        return "cuda" if value == "cpu" else value

    def calls(op: Any) -> Iterator[Any]:
        """Calls of cugrad's function with some of the samples, each of which has been done once."""
        function = opinfo.function_of(op)
        dtype = next((d for d in DTYPES if d in op.dtypes), None)
        if function is None or dtype is None:
            return
        samples = opinfo.samples_of(op, dtype, False, None)
        for sample in samples[:: max(1, len(samples) // SAMPLES)]:
            try:
                args = on_device(opinfo.ours([sample.input, *sample.args]))
                options = on_device(opinfo.ours(sample.kwargs))
            except NotImplementedError:
                continue
            call = lambda a=args, o=options: function(*a, **o)
            _, error = opinfo.attempt(call)
            if error is None:
                yield call

    def noted(call: Any) -> tuple[list[str], list[Any]]:
        """What a call waited for, and the shapes of what it copied to the device."""
        STATE.syncs.clear()
        STATE.copies.clear()
        call()
        return list(STATE.syncs), list(STATE.copies)

    def name_in_a_capture(call: Any) -> str:
        """The name that the error of a capture begins with; "" where there is none."""
        gc.freeze()  # a capture begins with a collection, which is not to walk through PyTorch
        try:
            with cugrad.cuda.graph(cugrad.cuda.CUDAGraph()):
                call()
        except RuntimeError as error:
            found = re.match(r"cuda graph: (\S+) \(line", str(error))
            return found[1] if found else str(error)
        return ""

    @pytest.mark.parametrize("name", PRESENT)
    @pytest.mark.filterwarnings("ignore")
    def test_what_the_host_has_to_do_with_a_function(name: str) -> None:
        for op in opinfo.database()[name]:
            is_named = False
            for call in calls(op):
                waits, copies = noted(call)
                assert name in COPIES or not copies, copies
                assert len(waits) <= WAITS.get(name, 0), waits
                if (waits or copies) and not is_named:
                    assert_named(op, name_in_a_capture(call))
                    is_named = True

    def assert_named(op: Any, found: str) -> None:
        own = {op.name.rpartition(".")[2], getattr(opinfo.function_of(op), "__name__", "")}
        if not opinfo.is_composed(op):
            assert found in own | {""}
        elif found:
            rooms = (cugrad, Tensor, cugrad.linalg, cugrad.nn.functional)
            assert any(found in dir(room) for room in rooms), found
