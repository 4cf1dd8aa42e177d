"""Of several values that go to one place the last stays, where results are to be deterministic: on
CUDA too, where threads write in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import cugrad as torch
from tests.support import fake_cuda

F: Any = torch.nn.functional
INDEX = [3, 1, 3, 0, 1, 3, 3]


def at(x: Any) -> Any:
    return torch.tensor(INDEX, device=x.device)


def grid(x: Any) -> Any:
    return at(x)[:, None].expand(7, 3)


def written(x: Any, v: Any) -> Any:
    x[at(x)] = v
    return x


def written_in_parts(x: Any, v: Any) -> Any:
    x[:, at(x) % 3] = v[:5, 0].new_tensor(np.arange(35.0).reshape(5, 7))
    return x


WAYS: dict[str, Callable[[Any, Any], Any]] = {
    "setitem": written,
    "setitem in parts": written_in_parts,
    "index_put": lambda x, v: x.index_put((at(x),), v),
    "index_put of two": lambda x, v: x.index_put((at(x), at(x) % 3), v[:, 0]),
    "scatter": lambda x, v: x.scatter(0, grid(x), v),
    "scatter, of a smaller index": lambda x, v: x.scatter(0, grid(x)[:4, :2], v),
    "index_copy": lambda x, v: x.index_copy(0, at(x), v),
    "put": lambda x, v: x.put(at(x), v[:, 1]),
    "max_unpool": lambda x, v: F.max_unpool1d(v.T[None], (at(x) * 2)[None, None].expand(1, 3, 7),
                                              2),
}  # fmt: skip


@pytest.fixture
def any_stays(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A device on which of several values the first stays: threads write in any order."""
    if fake_cuda.REAL is None:
        yield
        return
    write = fake_cuda.ndarray.__setitem__

    def setitem(self: Any, index: Any, value: Any) -> None:
        items = index if isinstance(index, tuple) else (index,)
        if any(isinstance(i, fake_cuda.ndarray) and i.dtype.kind != "b" for i in items):
            bare = tuple([fake_cuda.bare(i) for i in items])
            places = np.arange(self.size).reshape(self.shape)[bare]
            values = np.broadcast_to(fake_cuda.bare(value), places.shape).reshape(-1)
            flat = self._host.reshape(-1)
            flat[places.reshape(-1)[::-1]] = values[::-1]
            self._host[...] = flat.reshape(self.shape)
        else:
            write(self, index, value)

    monkeypatch.setattr(fake_cuda.ndarray, "__setitem__", setitem)
    yield


@pytest.fixture(autouse=True)
def deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "complex64"])
@pytest.mark.parametrize("way", WAYS)
def test_the_last_stays(way: str, dtype: str, device: str, any_stays: None) -> None:
    if way == "max_unpool" and dtype == "complex64":
        pytest.skip("of floats")
    x = torch.zeros(5, 3).to(getattr(torch, dtype))
    v = torch.arange(21.0).reshape(7, 3).to(getattr(torch, dtype))
    found = WAYS[way](x.to(device, copy=True), v.to(device))
    torch.use_deterministic_algorithms(False)
    wanted = WAYS[way](x.cpu().clone(), v.cpu())
    assert found.cpu().tolist() == wanted.tolist()


def test_each_example_of_a_vmap_has_its_last(device: str, any_stays: None) -> None:
    x, v = torch.zeros(4, 5, 3, device=device), torch.randn(4, 7, 3, device=device)
    both = torch.vmap(lambda x, v: x.index_put((at(x),), v))(x, v)
    for i in range(4):
        one = x[i].cpu().numpy().copy()
        one[INDEX] = v[i].cpu().numpy()
        assert both[i].tolist() == one.tolist()


if fake_cuda.REAL is None and not torch.cuda.is_available():

    def test_over_the_fake_cuda() -> None:
        pytest.importorskip("cupy", reason="CuPy is not installed")
        fake_cuda.passed(__file__, fused=True)
