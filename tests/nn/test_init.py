"""nn.init's less usual fillings: what they are made for holds, and errors are PyTorch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cugrad as torch

init = torch.nn.init


@pytest.mark.parametrize("shape", [(4, 4), (3, 7), (7, 3), (4, 3, 2, 2), (0, 3)])
@pytest.mark.parametrize("device", ["cpu", "simulated"])
def test_orthogonal(shape: tuple[int, ...], device: str) -> None:
    w = torch.empty(shape, device=device, requires_grad=True)
    assert init.orthogonal_(w, gain=2.0) is w and w.is_leaf
    matrix = w.detach().cpu().numpy().reshape(shape[0], int(np.prod(shape[1:])))
    product = matrix @ matrix.T if matrix.shape[0] <= matrix.shape[1] else matrix.T @ matrix
    np.testing.assert_allclose(product, 4 * np.eye(len(product)), atol=1e-5)


@pytest.mark.parametrize(
    ("name", "shape", "args"),
    [("eye_", (3, 5), ()), ("eye_", (5, 3), ()), ("dirac_", (4, 3, 3), ()),
     ("dirac_", (4, 2, 3, 4), (2,)), ("dirac_", (6, 3, 2, 3, 5), (3,))],
)  # fmt: skip
def test_fixed_fillings_are_pytorch_s(name: str, shape: Any, args: Any) -> None:
    theirs = pytest.importorskip("torch")
    ours = getattr(init, name)(torch.ones(shape), *args)
    assert ours.tolist() == getattr(theirs.nn.init, name)(theirs.ones(shape), *args).tolist()


def test_truncated_normal_stays_inside_and_has_its_spread() -> None:
    from math import erf, sqrt

    generator = torch.Generator().manual_seed(1)
    x = init.trunc_normal_(torch.empty(20000), 0.5, 0.7, -0.4, 1.1, generator=generator).numpy()
    assert x.min() >= np.float32(-0.4) and x.max() <= np.float32(1.1)
    cut = [0.5 * erf((end - 0.5) / 0.7 / sqrt(2)) for end in (-0.4, 1.1)]
    for quantile in (-0.2, 0.1, 0.5, 0.9):
        want = (0.5 * erf((quantile - 0.5) / 0.7 / sqrt(2)) - cut[0]) / (cut[1] - cut[0])
        assert abs((x < quantile).mean() - want) < 0.015
    with pytest.warns(UserWarning, match="mean is more than 2 std"):
        init.trunc_normal_(torch.empty(3), 9.0)


def test_sparse_has_its_zeros_in_each_column() -> None:
    x = init.sparse_(torch.empty(10, 6), 0.25)
    assert (x == 0).sum(0).tolist() == [3] * 6


@pytest.mark.parametrize(
    ("name", "shape", "args"),
    [("orthogonal_", (3,), ()), ("eye_", (3,), ()), ("dirac_", (3, 3), ()),
     ("dirac_", (3, 3, 3), (2,)), ("sparse_", (3,), (0.5,))],
)  # fmt: skip
def test_errors_are_pytorch_s(name: str, shape: Any, args: Any) -> None:
    theirs = pytest.importorskip("torch")
    texts = []
    for lib in (torch, theirs):
        with pytest.raises(ValueError) as said:
            getattr(lib.nn.init, name)(lib.zeros(shape), *args)
        texts.append(str(said.value))
    assert texts[0] == texts[1]
