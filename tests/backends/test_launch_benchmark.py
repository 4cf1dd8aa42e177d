"""benchmarks/launches.py starts the kernel that it means, both ways."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("cupy", reason="CuPy is not installed")

from tests.support import fake_cuda

pytestmark = pytest.mark.host_only

if fake_cuda.REAL is None:

    def test_over_the_fake_cuda() -> None:
        fake_cuda.passed(__file__, fused=True)

else:
    from benchmarks import launches

    def test_both_kernels_do_the_same() -> None:
        import cupy

        for start in launches.kernels(cupy):
            np.testing.assert_array_equal(start().get(), np.ones(launches.COUNT, np.float32))

    def test_each_pair_is_measured() -> None:
        lines = launches.measured(rounds=2, launches=2)
        assert [line.name for line in lines] == ["launch_of_a_kernel", "exp_of_1024"]
        assert all(len(line.ours) == len(line.theirs) == 2 for line in lines)
        assert all(value > 0 for line in lines for value in (*line.ours, *line.theirs))
