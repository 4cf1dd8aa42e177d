"""What rows launch on the CUDA device that NumPy plays, beside what the simulated one charges.

`python -m tests.support.charged_rows` prints, for each row that CUDA has kernels for, the fewest
launches among some cases in float32, forward and backward, and those that are charged for that one.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

os.environ["CUGRAD_DEVICE"] = "cuda"

from tests.support import fake_launches

fake_launches.install()

import numpy as np  # noqa: E402

import cugrad as torch  # noqa: E402
from cugrad.autograd.recording.recorded import recorded  # noqa: E402
from cugrad.backends import get, simulated  # noqa: E402
from cugrad.backends.cupy.written.registry import BACKWARDS, FORWARDS  # noqa: E402
from cugrad.ops.table import ELEMENTWISE, TABLE  # noqa: E402
from cugrad.tensor import Tensor, make  # noqa: E402
from tests.backends.written_cases_placed import CASES  # noqa: E402
from tests.ops import samples  # noqa: E402
from tests.ops.sampling import LINES  # noqa: E402

assert samples  # whose import fills LINES
MOST = 12  # cases of a row, in other shapes: those behind them launch no fewer
# of a backend: operands, parameters, and the inputs that gradients are asked for
Case = Callable[[Any], tuple[list[Any], dict[str, Any], set[str]]]
Counts = list[int | None]  # forward, backward


def cases(name: str) -> Iterator[Case]:
    """Those of the tests of written kernels, else the row's sample lines."""
    written = [case for case in CASES if case.name == name]
    for case in written:
        yield lambda backend, case=case: (
            placed(case.make(np.random.default_rng(0)), backend), case.params,
            {name for names in case.gradients for name in names},
        )  # fmt: skip
    for line in () if written else LINES[name]:
        line = replace(line, dtype="float32")
        yield lambda backend, line=line: (
            list(line.arrays(backend)), line.params_on(backend), set(TABLE[name].inputs)
        )  # fmt: skip


def placed(value: Any, backend: Any) -> Any:
    if isinstance(value, list):
        return [placed(part, backend) for part in value]
    if not isinstance(value, np.ndarray):
        return value
    return backend.asarray(value.astype(np.float32) if value.dtype.kind == "f" else value)


def tensors(value: Any, wanted: bool) -> Any:
    if isinstance(value, list):
        return [tensors(part, wanted) for part in value]
    if not hasattr(value, "ndim"):
        return value
    return make(value).requires_grad_(wanted and value.dtype.kind == "f")


def members(value: Any) -> Iterator[Tensor]:
    for part in value if isinstance(value, (list, tuple)) else [value]:
        if isinstance(part, (list, tuple)):
            yield from members(part)
        elif isinstance(part, Tensor) and part.requires_grad:
            yield part


def counts(name: str, case: Case, device: str) -> Counts:
    """Launches of the second call: the first makes what is kept."""
    called(name, case, device)
    return called(name, case, device)


def called(name: str, case: Case, device: str) -> Counts:
    operands, params, wanted = case(get(device))
    inputs, results = TABLE[name].inputs, []
    args = [tensors(x, n in wanted) for n, x in zip(inputs, operands, strict=False)]
    row = getattr(recorded, name)
    forward = launched(device, lambda: results.append(row(*args, **params)))
    outputs, leaves = list(members(results)), list(members(args))
    if not outputs:
        return [forward, None]
    grads = [torch.ones_like(t) for t in outputs]
    return [forward, launched(
        device, lambda: torch.autograd.grad(outputs, leaves, grads, allow_unused=True)
    )]  # fmt: skip


def launched(device: str, run: Callable[[], Any]) -> int:
    if device == "cuda":
        with fake_launches.counted() as counted:
            run()
        return counted.count
    with simulated.record() as timeline:
        run()
    return sum(r.kind in ("kernel", "h2d", "d2d") for r in timeline.records)


def compared(name: str) -> list[list[int | None]]:
    """Launches on CUDA and on the simulated device, of the case with the fewest on CUDA."""
    every = [(case, counts(name, case, "cuda")) for case in islice(cases(name), MOST)]
    pairs = []
    for way in (0, 1):
        some = [(found[way], k) for k, (_, found) in enumerate(every) if found[way] is not None]
        if some:
            fewest, k = min(some)
            pairs.append([fewest, counts(name, every[k][0], "simulated")[way]])
    return pairs


def main() -> int:
    warnings.simplefilter("ignore")
    get("cuda")
    fake_launches.count_plans()
    written = {*FORWARDS, *BACKWARDS, *[n for n in TABLE if any(TABLE[n].kernels)]}
    names = [n for n in TABLE if TABLE[n].kind == ELEMENTWISE or n in written]
    json.dump({name: compared(name) for name in names}, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
