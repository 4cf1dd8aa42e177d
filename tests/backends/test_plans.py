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
    import cupy
    import numpy as np

    from cugrad.backends.cupy.launches.starting import made
    from cugrad.backends.cupy.written import registry
    from cugrad.backends.cupy.written.launch import int32, kernel
    from cugrad.ops.table import TABLE

    def add(x: Any, y: Any, number: int = 1) -> Any:
        """A launch that writes x + number to y."""
        run = kernel(SOURCE, "told", "float32")
        run((1,), (256,), (x, y, int32(x.size), int32(number)))
        return y

    def of_a_sum(x: Any) -> Any:
        """It reads what was not launched here."""
        return add(x + x, cupy.ndarray(x.shape, x.dtype))

    def of_a_block(x: Any) -> Any:
        """It reads two parts as the one array that they are."""
        block = cupy.ndarray((2, *x.shape), x.dtype)
        add(x, block[0]), add(x, block[1], 2)
        return add(block, cupy.ndarray(block.shape, x.dtype))

    def first_of_a_block(x: Any) -> Any:
        """It answers with the beginning of what it writes."""
        first, second = cupy.ndarray((2, *x.shape), x.dtype), cupy.ndarray((2, *x.shape), x.dtype)
        return add(add(x, first), second)[0]

    def made_together(x: Any) -> Any:
        """It writes to the halves of one piece of memory."""
        halves = made(lambda: list(cupy.ndarray((2, *x.shape), x.dtype)))
        return tuple([add(x, half, k) for k, half in enumerate(halves)])

    def turned_around(x: Any) -> Any:
        """What it answers lies in another order than that of its dims."""
        return add(x, cupy.ndarray(x.shape, x.dtype)).transpose()

    PLANTED = {of_a_sum: False, of_a_block: False, first_of_a_block: False, made_together: True,
               turned_around: True}  # fmt: skip

    @pytest.mark.parametrize("row", PLANTED, ids=lambda row: row.__name__)
    def test_what_a_row_does_again_is_what_it_did(row: Any, monkeypatch: Any) -> None:
        """Or it does nothing again: where it does more than launch for whole operands."""
        monkeypatch.setitem(registry.FORWARDS, "abs", row)
        monkeypatch.setattr(registry, "KEPT", {row})
        run = registry.forward_of(TABLE["abs"], lambda x: None)
        answers = []
        for k in range(3):
            x = get("cuda").asarray(k + np.arange(6, dtype="f4").reshape(2, 3))
            answers.append((row(x), run(x)))
        assert bool(run.kept.launches) == PLANTED[row]
        for expected, got in answers:  # later runs have written over nothing
            pairs = zip(expected, got) if type(got) is tuple else [(expected, got)]
            for a, b in pairs:
                np.testing.assert_array_equal(a.get(), b.get())
                assert (a.shape, a.strides) == (b.shape, b.strides)

    @pytest.mark.parametrize("owner, name", list(settings()), ids=IDS)
    def test_a_row_that_reads_a_setting_is_not_stale(
        owner: Any, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A row is planted that does another thing under each value of a setting."""
        value = getattr(owner, name)
        launched: list[int] = []

        def row(x: Any) -> Any:
            other = getattr(owner, name) != value
            launched.append(other)
            return add(x, cupy.ndarray(x.shape, x.dtype), 1 + other)

        monkeypatch.setitem(registry.FORWARDS, "abs", row)
        monkeypatch.setattr(registry, "KEPT", {row})
        run = registry.forward_of(TABLE["abs"], lambda x: x + 9)
        x = get("cuda").asarray(np.zeros(4, "f4"))
        try:
            for is_other in (False, True, False, True, True):
                setattr(owner, name, changed(value) if is_other else value)
                found = float(run(x).get()[0])
                assert found == (9 if not wanted.fused else 1 + is_other), is_other
        finally:
            setattr(owner, name, value)
        assert len(launched) == (1 if name == "fused" else 2), "plans are kept for each"
