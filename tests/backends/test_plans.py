"""Launches that are kept are those of the settings in force, whichever settings a row reads."""

from __future__ import annotations

from collections.abc import Iterator
from types import MappingProxyType
from typing import Any

import pytest

pytest.importorskip("cupy", reason="CuPy is not installed")

from cugrad.backends import get
from cugrad.backends.wanted import Settings, wanted
from tests.support import fake_cuda

pytestmark = pytest.mark.host_only

SOURCE = """
extern "C" __global__ void __launch_bounds__(256) told(const T* x, T* y, int n, int number) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] + T(number);
}
"""


def settings() -> Iterator[tuple[Any, str]]:
    """Every field of `wanted`, and of what is in it."""
    for name in wanted.__slots__:
        value = getattr(wanted, name)
        if isinstance(value, Settings):
            yield from ((value, field) for field in value.__slots__)
        elif name != "number":
            yield wanted, name


def changed(value: Any) -> Any:
    if isinstance(value, (dict, MappingProxyType)):
        return MappingProxyType({name: not on for name, on in value.items()})
    return 7 if value is None else not value


IDS = [f"{type(owner).__name__}.{name}" for owner, name in settings()]


@pytest.mark.parametrize("owner, name", list(settings()), ids=IDS)
def test_a_number_stands_for_the_settings(owner: Any, name: str) -> None:
    before, value = wanted.number, getattr(owner, name)
    try:
        setattr(owner, name, changed(value))
        assert wanted.number != before
    finally:
        setattr(owner, name, value)
    assert wanted.number == before


if fake_cuda.REAL is None:

    def test_over_the_fake_cuda() -> None:
        fake_cuda.passed(__file__, fused=True)

else:

    @pytest.mark.parametrize("owner, name", list(settings()), ids=IDS)
    def test_a_row_that_reads_a_setting_is_not_stale(
        owner: Any, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A row is planted that does another thing under each value of a setting."""
        import cupy

        from cugrad.backends.cupy.written import registry
        from cugrad.backends.cupy.written.launch import int32, kernel
        from cugrad.ops.table import TABLE

        value = getattr(owner, name)
        launched: list[int] = []

        def row(x: Any) -> Any:
            other = getattr(owner, name) != value
            launched.append(other)
            y = cupy.ndarray(x.shape, x.dtype)
            run = kernel(SOURCE, "told", "float32")
            run((1,), (256,), (x, y, int32(x.size), int32(1 + other)))
            return y

        monkeypatch.setitem(registry.FORWARDS, "abs", row)
        monkeypatch.setattr(registry, "KEPT", {row})
        run = registry.forward_of(TABLE["abs"], lambda x: x + 9)
        x = get("cuda").asarray(__import__("numpy").zeros(4, "f4"))
        try:
            for is_other in (False, True, False, True, True):
                setattr(owner, name, changed(value) if is_other else value)
                found = float(run(x).get()[0])
                assert found == (9 if not wanted.fused else 1 + is_other), is_other
        finally:
            setattr(owner, name, value)
        assert len(launched) == (1 if name == "fused" else 2), "plans are kept for each"
