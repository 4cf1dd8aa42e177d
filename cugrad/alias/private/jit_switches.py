"""Switches of jit's compiler, which scripts turn before they train: each keeps what it is told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["SWITCHES", "optimized_execution"]


def _switch(kept: Any) -> Callable[[Any], Any]:
    def told(value: Any) -> Any:
        """Takes a value, of which nothing follows: nothing is compiled. What it was before."""
        nonlocal kept
        kept, before = value, kept
        return before

    return told


_debug_set_autodiff_subgraph_inlining = _switch(True)
_jit_override_can_fuse_on_cpu = _switch(False)
_jit_override_can_fuse_on_gpu = _switch(False)
_jit_set_autocast_mode = _switch(True)
_jit_set_bailout_depth = _switch(20)
_jit_set_num_profiled_runs = _switch(1)
_jit_set_nvfuser_enabled = _switch(False)
_jit_set_profiling_executor = _switch(True)
_jit_set_profiling_mode = _switch(True)
_jit_set_texpr_fuser_enabled = _switch(True)

SWITCHES = [name for name in globals() if name.startswith(("_jit_", "_debug_set_"))]


@contextmanager
def optimized_execution(should_optimize: bool) -> Iterator[None]:
    """A context in which jit would compile, or not: nothing is compiled."""
    yield
