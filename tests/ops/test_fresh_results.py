"""Results of functions that are no views are memory of their own; beside PyTorch's database in
tests/ops/opinfo.py, what its samples have not: dims of one element."""

from __future__ import annotations

import pytest

import cugrad as torch

ONE = {
    "repeat_interleave": lambda x: x.repeat_interleave(3, 0),
    "repeat_interleave, flat": lambda x: x.repeat_interleave(2),
    "repeat_interleave, once": lambda x: x.repeat_interleave(1, 1),
    "interpolate": lambda x: torch.nn.functional.interpolate(x, (4, 4)),
    "pixel_shuffle": lambda x: torch.pixel_shuffle(x, 1),
    "pixel_unshuffle": lambda x: torch.pixel_unshuffle(x, 1),
    "channel_shuffle": lambda x: torch.channel_shuffle(x, 1),
    "kron": lambda x: torch.kron(x, x),
    "tile": lambda x: x.tile(1, 1),
    "repeat": lambda x: x.repeat(2, 1, 1, 1),
    "roll": lambda x: x.roll(1),
    "flip": lambda x: x.flip(0),
    "cat": lambda x: torch.cat([x]),
    "stack": lambda x: torch.stack([x]),
    "masked_select": lambda x: x.masked_select(x == x),
    "index": lambda x: x[torch.tensor([0])],
    "take": lambda x: x.take(torch.tensor(0)),
    "take_along_dim": lambda x: x.take_along_dim(torch.tensor([[[[0]]]]), 0),
    "sum": lambda x: x.sum(0),
    "mean": lambda x: x.mean((0, 1)),
    "amax": lambda x: x.amax(0, keepdim=True),
    "prod": lambda x: x.prod(0),
    "cumsum": lambda x: x.cumsum(0),
    "sort": lambda x: x.sort(0)[0],
    "quantile": lambda x: x.quantile(0.5, 0),
    "pad": lambda x: torch.nn.functional.pad(x, (0, 0)),
    "clamp": lambda x: x.clamp(-9, 9),
    "broadcast mul": lambda x: x * torch.ones(3, 1, 1, 2),
    "where": lambda x: torch.where(torch.tensor(True), x, x),
    "gather": lambda x: x.gather(0, torch.zeros(1, 1, 1, 1, dtype=torch.long)),
    "tril": lambda x: x.tril(),
    "block_diag": lambda x: torch.block_diag(x[0, 0]),
    "cartesian_prod": lambda x: torch.cartesian_prod(x.reshape(-1), x.reshape(-1)),
    "combinations": lambda x: torch.combinations(x.reshape(-1), 1),
    "nan_to_num": lambda x: x.nan_to_num(),
    "renorm": lambda x: x.renorm(2, 0, 99.0),
    "cummax of one number": lambda x: x.reshape(()).cummax(0)[0],
    "stft": lambda x: torch.stft(
        x.reshape(1).repeat(4), 2, 1, window=torch.ones(2), center=False, return_complex=True),
    "avg_pool": lambda x: torch.nn.functional.avg_pool2d(x, 1),
    "max_pool": lambda x: torch.nn.functional.max_pool2d(x, 1),
    "unfold": lambda x: torch.nn.functional.unfold(x, 1),
    "softmax": lambda x: x.softmax(0),
    "normal": lambda x: torch.normal(x.sum().detach(), x.sum().detach()),
    "rand_like": lambda x: torch.rand_like(x.sum()),
    "bernoulli": lambda x: torch.bernoulli(x.sum().detach() * 0),
    "unravel_index": lambda x: torch.unravel_index(torch.tensor(1), (2, 2))[0],
}  # fmt: skip


@pytest.mark.parametrize("name", ONE)
def test_a_result_may_be_written_to_and_changes_nothing_else(name: str, device: str) -> None:
    x = torch.full((1, 1, 1, 1), 2.0, requires_grad=True)
    for given in (x.detach().clone(), x * 1):
        with torch.no_grad():
            quiet = ONE[name](given)
        out = ONE[name](given)
        for result in (quiet, out):
            assert result._array.shape == tuple(result.shape)
            result.copy_(result * 0 + 1)
            assert given.item() == 2.0, "the argument has changed with the result"
        quiet.requires_grad_() if quiet.is_floating_point() else quiet
        out.detach_()


def test_no_index_that_a_function_answers_is_a_view() -> None:
    x, F = torch.rand(1, 2, 5, 5), torch.nn.functional
    for pair in (
        F.adaptive_max_pool2d(x, 2, return_indices=True),
        F.fractional_max_pool2d(x, 2, output_size=2, return_indices=True),
        F.max_pool2d(x, 2, return_indices=True),
        torch.cummin(x.sum(), 0),
        torch.sort(x.sum()),
        torch.topk(x.sum(), 1, 0),
    ):
        assert not any(part._is_view() for part in pair)


@pytest.mark.parametrize("name", ONE)
def test_a_tangent_of_such_a_result_may_be_written_to(name: str, device: str) -> None:
    fw = torch.autograd.forward_ad
    with fw.dual_level():
        x = fw.make_dual(torch.full((1, 1, 1, 1), 2.0), torch.full((1, 1, 1, 1), 3.0))
        tangent = fw.unpack_dual(ONE[name](x)).tangent
        if tangent is not None:
            tangent.detach_().zero_()
            assert fw.unpack_dual(x).tangent.item() == 3.0, "that of the argument has changed"


def test_bin_edges_are_a_copy(device: str) -> None:
    edges = torch.tensor([0.0, 1.0, 2.0])
    found = torch.histogram(torch.tensor([0.5, 1.5]), edges)
    found.bin_edges.zero_()
    assert edges.tolist() == [0.0, 1.0, 2.0]


PLACES = {
    "expanded": lambda t: t.arange(6.0).view(2, 1, 3).expand(2, 2, 3),
    "turned": lambda t: t.arange(6.0).view(2, 3).T,
    "turned within": lambda t: t.arange(12.0).view(2, 2, 3).mT,
    "in steps": lambda t: t.arange(24.0).view(4, 6)[::2, ::2],
}
LAID_OUT = {
    "clone": lambda t, x: x.clone(), "to": lambda t, x: x.double(), "zeros": lambda t, x: x * 0,
    "zeros_like": lambda t, x: t.zeros_like(x), "contiguous": lambda t, x: x.contiguous(),
    "index": lambda t, x: x[..., t.tensor([0, 1])], "mask": lambda t, x: x[:, t.tensor([True] * 2)],
    "index_put": lambda t, x: x.index_put((t.tensor([0]),), t.tensor(1.0)),
    "index_fill": lambda t, x: x.index_fill(0, t.tensor([0]), 1.0),
    "index_copy": lambda t, x: x.index_copy(0, t.tensor([0]), x[:1]),
    "masked_fill": lambda t, x: x.masked_fill(x > 0, 1), "flip": lambda t, x: x.flip(0),
    "select_scatter": lambda t, x: t.select_scatter(x.contiguous(), x[0], 0, 0),
    "cat": lambda t, x: t.cat([x, x]), "stack": lambda t, x: t.stack([x, x]),
    "cumsum": lambda t, x: x.cumsum(0), "cumprod": lambda t, x: x.cumprod(0),
    "logcumsumexp": lambda t, x: x.logcumsumexp(0), "cummax": lambda t, x: x.cummax(0)[0],
    "softmax": lambda t, x: x.softmax(0), "log_softmax": lambda t, x: x.log_softmax(0),
    "logsigmoid": lambda t, x: t.nn.functional.logsigmoid(x), "roll": lambda t, x: x.roll(1, 0),
    "tril": lambda t, x: x.tril(),
    "batch_norm": lambda t, x: t.nn.functional.batch_norm(x, None, None, training=True),
}  # fmt: skip


@pytest.mark.parametrize("name", LAID_OUT)
def test_results_lie_in_memory_as_pytorchs_do(name: str, device: str) -> None:
    """So that `view` and `reshape` of them answer alike."""
    oracle = pytest.importorskip("torch")
    for place in PLACES.values():
        if name == "mask" and place(torch).shape[1] != 2:
            continue
        want, got = (LAID_OUT[name](t, place(t)) for t in (oracle, torch))
        places = [[s for n, s in zip(x.shape, x.stride()) if n > 1] for x in (want, got)]
        assert places[0] == places[1], f"{tuple(place(torch).stride())}: {places}"
