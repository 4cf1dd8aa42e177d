"""PyTorch's own databases of operators, modules and optimizers, without its compiler."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch


@contextmanager
def imported() -> Iterator[None]:
    """Within, the databases are imported. They want four names of devices from PyTorch's compiler,
    which takes as long to import as all the rest of it; a PyTorch whose databases want more of it
    skips the module that asks.
    """
    compiler = {
        name: types.ModuleType(name) for name in ("torch._inductor", "torch._inductor.utils")
    }
    compiler["torch._inductor"].__path__ = []
    compiler["torch._inductor.utils"].GPU_TYPES = ["cuda", "mps", "xpu", "mtia"]  # type: ignore[attr-defined]
    if not compiler.keys() & sys.modules.keys():
        sys.modules.update(compiler)
    try:
        yield
    except ModuleNotFoundError as absent:
        if not str(absent.name).startswith("torch._inductor."):
            raise
        pytest.skip(f"PyTorch {torch.__version__}: its databases import its compiler",
                    allow_module_level=True)  # fmt: skip
    finally:
        for name, module in compiler.items():
            if sys.modules.get(name) is module:
                del sys.modules[name]
