"""What ops make of tensors of another memory order can be seen in another shape, as PyTorch's."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch, the oracle, is not installed")

import cugrad  # noqa: E402
from tests.support.programs.drawing import Draw  # noqa: E402
from tests.support.programs.running import GUARDS, strides_of  # noqa: E402
from tests.support.programs.table import INDEXING, MATRICES, POINTWISE, REDUCING, Row  # noqa: E402
from tests.support.programs.table_rare import RARE  # noqa: E402
from tests.support.programs.text import HELPERS, helper_code  # noqa: E402

INPUTS = {
    "turned": lambda t, x: x.mT,
    "a copy of turned": lambda t, x: x.mT.clone(),
    "expanded": lambda t, x: x[0].expand(3, 4),
    "stepped": lambda t, x: x[:, ::2].mT,
    "permuted": lambda t, x: x.view(3, 2, 2).permute(2, 0, 1),
}
OPS = {
    "cat": lambda t, x: t.cat([x, x], 0),
    "cat along the last": lambda t, x: t.cat([x, x], -1),
    "stack": lambda t, x: t.stack([x, x], 0),
    "index": lambda t, x: x[t.tensor([1, 0])],
    "index of the last": lambda t, x: x[..., t.tensor([1, 0])],
    "masked_fill": lambda t, x: x.masked_fill(x > 0, 1.0),
    "clone": lambda t, x: x.clone(),
    "double": lambda t, x: x.to(t.float64),
    "roll": lambda t, x: x.roll(1, 0),
    "triu": lambda t, x: x.triu(),
    "softmax": lambda t, x: x.softmax(0),
    "log_softmax": lambda t, x: x.log_softmax(-1),
    "logsigmoid": lambda t, x: t.nn.functional.logsigmoid(x),
    "cumsum": lambda t, x: x.cumsum(0),
    "cumprod": lambda t, x: x.cumprod(0),
    "logcumsumexp": lambda t, x: x.logcumsumexp(0),
    "cummax": lambda t, x: x.cummax(0).values,
    "sum": lambda t, x: x.sum(0),
    "mean": lambda t, x: x.mean(0),
    "prod": lambda t, x: x.prod(0),
    "amax": lambda t, x: x.amax(0),
    "var": lambda t, x: x.var(0),
    "std": lambda t, x: x.std(0),
    "logsumexp": lambda t, x: x.logsumexp(0),
    "rms_norm": lambda t, x: t.nn.functional.rms_norm(x, x.shape[-1:]),
    "batch_norm": lambda t, x: t.nn.functional.batch_norm(x, None, None, training=True),
    "batch_norm in evaluation": lambda t, x: t.nn.functional.batch_norm(
        x, t.zeros(x.shape[1]), t.ones(x.shape[1])
    ),
    "group_norm": lambda t, x: t.nn.functional.group_norm(x, 1),
}


@pytest.mark.parametrize("name", OPS)
def test_a_result_can_be_seen_where_torchs_can(name: str) -> None:
    for made, turn in INPUTS.items():

        def flat(t: Any) -> Any:
            x = t.arange(12.0).view(3, 4) * 0.1 - 0.5
            return OPS[name](t, turn(t, x)).view(-1)  # noqa: B023

        try:
            want = flat(torch)
        except RuntimeError:
            continue
        got = flat(cugrad)
        assert torch.allclose(torch.tensor(got.tolist()), want.float(), atol=1e-5), made


CHANNELS_LAST: dict[str, Any] = {
    "conv2d": lambda t, x: t.nn.functional.conv2d(x, t.ones(6, 4, 3, 3), t.ones(6), padding=1),
    "conv2d, weight last": lambda t, x: t.nn.functional.conv2d(
        x.contiguous(), t.ones(6, 4, 3, 3).to(memory_format=t.channels_last)),
    "depthwise": lambda t, x: t.nn.functional.conv2d(x, t.ones(4, 1, 3, 3), groups=4),
    "conv_transpose2d": lambda t, x: t.nn.functional.conv_transpose2d(x, t.ones(4, 6, 3, 3)),
    "batch_norm": lambda t, x: t.nn.functional.batch_norm(x, None, None, training=True),
    "group_norm": lambda t, x: t.nn.functional.group_norm(x, 2),
    "relu": lambda t, x: t.relu(x),
    "gelu": lambda t, x: t.nn.functional.gelu(x),
    "max_pool2d": lambda t, x: t.nn.functional.max_pool2d(x, 2),
    "its indices": lambda t, x: t.nn.functional.max_pool2d(x, 2, return_indices=True)[1],
    "avg_pool2d": lambda t, x: t.nn.functional.avg_pool2d(x, 2),
    "adaptive_avg_pool2d": lambda t, x: t.nn.functional.adaptive_avg_pool2d(x, 2),
    "adaptive_max_pool2d": lambda t, x: t.nn.functional.adaptive_max_pool2d(x, 2),
    "lp_pool2d": lambda t, x: t.nn.functional.lp_pool2d(x, 2, 2),
    "pad": lambda t, x: t.nn.functional.pad(x, (1, 1, 1, 1)),
    "reflect": lambda t, x: t.nn.functional.pad(x, (1, 1, 1, 1), "reflect"),
    "dropout": lambda t, x: t.nn.functional.dropout(x, 0.5),
    "add": lambda t, x: x + x,
    "add_": lambda t, x: x.clone().add_(1),
    "a channel's": lambda t, x: x * t.ones(1, 4, 1, 1),
    "cat": lambda t, x: t.cat([x, x], 1),
    "to": lambda t, x: x.to(t.float64),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANNELS_LAST)
def test_channels_last_stays(name: str, device: str) -> None:
    """And an input's gradient lies as the input does."""
    results = []
    for t, place in ((torch, "cpu"), (cugrad, device)):
        with t.device(place):
            x = t.ones(2, 4, 6, 6).to(memory_format=t.channels_last).requires_grad_()
            y = CHANNELS_LAST[name](t, x)
            if y.requires_grad:
                (grad,) = t.autograd.grad(y, x, t.ones_like(y))
                assert grad.shape == x.shape
        results.append((tuple(y.shape), tuple(y.stride())))
    assert results[0] == results[1]


@pytest.mark.parametrize("last", [(), (0,), (1,), (0, 1)])
@pytest.mark.parametrize("sizes", [(1, 4), (4, 1), (2, 3)])
def test_joined_channels_lie_last_where_all_do(
    sizes: tuple[int, int], last: tuple[int, ...], device: str
) -> None:
    """Else in the order of the dims, which `view` can see in another shape."""
    strides = []
    for t, place in ((torch, "cpu"), (cugrad, device)):
        with t.device(place):
            whole = [t.ones(4, n, 2, 2) for n in sizes]
            parts = [
                t.ones(4, n + 1, 2, 2).to(memory_format=t.channels_last)[:, :n] if i in last else x
                for i, (n, x) in enumerate(zip(sizes, whole))
            ]
        strides.append(tuple(t.cat(parts, 1).stride()))
    assert strides[0] == strides[1]


PRODUCTS = [
    "bts,bcs->bct", "hnd,bd->bhn", "bhij,bhjd->bihd", "ibnd,jbnd->ijbn", "bhnd,hde->bhne",
    "nkctv,kvw->nctw", "bhwc,kc->bkhw", "ij,kj->ki",
]  # fmt: skip


@pytest.mark.parametrize("equation", PRODUCTS)
def test_a_product_by_letters_can_be_seen_where_torchs_can(equation: str, device: str) -> None:
    """Whatever the operands do."""
    sizes = dict(zip("bhnijdcstekvw", itertools.cycle((2, 3, 4))))
    shapes = [[sizes[n] for n in term] for term in equation.partition("->")[0].split(",")]
    for orders in itertools.product(*[(range(len(s)), range(len(s))[::-1]) for s in shapes]):
        views = []
        for t, place in ((torch, "cpu"), (cugrad, device)):
            with t.device(place):
                parts = [_lying(t, s, [*o]) for s, o in zip(shapes, orders)]
                views.append(t.einsum(equation, *parts).is_contiguous())
        assert views[1] or not views[0], orders


def _lying(t: Any, shape: list[int], order: list[int]) -> Any:
    """A tensor that lies in this order of its dims."""
    places = sorted(range(len(order)), key=order.__getitem__)
    return t.ones([shape[d] for d in order]).permute(places)


def test_other_products_and_what_is_gathered_lie_in_order(device: str) -> None:
    with cugrad.device(device):
        a, b = (
            _lying(cugrad, [2, 3, 4, 5], [1, 0, 3, 2]),
            _lying(cugrad, [2, 3, 5, 2], [1, 0, 2, 3]),
        )
        places = _lying(cugrad, [3, 4], [1, 0]).long()
        x = cugrad.ones(3, 4)
        results = [a @ b, x.gather(1, places), cugrad.take_along_dim(x, places, 0)]
    assert [r.is_contiguous() for r in results] == [True] * 3


def test_which_empty_tensors_lie_in_a_format() -> None:
    """Where channels lie last, a copy is made of those that do not, though there is no element."""
    for shape in itertools.product((0, 1, 2, 3), repeat=4):
        formats = [
            (x.is_contiguous(), x.is_contiguous(memory_format=t.channels_last))
            for t in (torch, cugrad) for x in [t.zeros(shape)]
        ]  # fmt: skip
        assert formats[0] == formats[1], shape


@pytest.mark.parametrize("part", [..., (..., slice(None, None, 2)), (slice(None), slice(1))])
def test_which_tensors_have_a_format_already(part: Any) -> None:
    """What `to` makes of the others has the strides of that format, also along dims of one."""
    formats = {4: ("contiguous_format", "channels_last"), 5: ("channels_last_3d",)}
    shapes = [*itertools.product((1, 2), repeat=4), (2, 3, 1, 2, 2), (1, 1, 2, 1, 1)]
    for shape in shapes:
        for order in itertools.permutations(range(len(shape))):
            back = sorted(range(len(shape)), key=order.__getitem__)
            results = []
            for t in (torch, cugrad):
                x = t.zeros([shape[d] for d in order]).permute(back)[part]
                for format in formats[len(shape)]:
                    y = x.to(memory_format=getattr(t, format))
                    results.append((y is x, tuple(y.stride())))
            count = len(results) // 2
            assert results[:count] == results[count:], (shape, order)


@pytest.mark.parametrize("name", [*INPUTS, "channels last"])
def test_a_tensor_moves_in_its_order(name: str, device: str) -> None:
    """It lies there as a copy of PyTorch's does, whether or not the host waits."""
    results = []
    for t in (torch, cugrad):
        with t.device("cpu"):
            x = t.arange(12.0).reshape(3, 4) if name in INPUTS else t.ones(2, 3, 4, 5)
            x = INPUTS[name](t, x) if name in INPUTS else x.to(memory_format=t.channels_last)
        places = [(device, "cpu")] if t is cugrad and device != "cpu" else []
        moved = [x.clone(), *[x.to(there).to(back) for there, back in places]]
        moved += [x.to(there) for there, _ in places]
        if places:
            for source in (x, x.pin_memory()):
                moved += [source.to(there, non_blocking=wait) for there, _ in places
                          for wait in (False, True)]  # fmt: skip
                moved += [each.to("cpu", non_blocking=True) for each in moved[-2:]]
            moved.append(x.pin_memory())
        results += [tuple(each.stride()) for each in moved]
        assert all(each.tolist() == x.tolist() for each in moved)
    assert len(set(results)) == 1


def test_a_view_of_no_memory() -> None:
    x = cugrad.zeros((2, 0), dtype=cugrad.complex128, requires_grad=True)
    y = cugrad.view_as_real(x.unflatten(-2, (1, -1)).unbind(1)[1])
    y.sum().backward()
    assert y.shape == (1, 0, 2) and x.grad.shape == (2, 0)
    assert cugrad.zeros(2, 0).broadcast_to((2, 2, 0)).diagonal(1).shape == (0, 1)


TURNED = {
    "transposed": lambda t, x: x.mT.contiguous().mT,
    "expanded": lambda t, x: x[:1].expand(x.shape),
    "in steps": lambda t, x: t.stack([x.mT.contiguous()] * 2, -1)[..., 0].mT,
}
# Where operands of two orders meet within, and where NumPy, or LAPACK, lays a result out.
OPEN = (
    "normalize(", "local_response_norm(", "cholesky_solve(", "vhp(", "_scatter(", "t.linalg.",
    "t.fft.", "{y}",
)  # fmt: skip


def environment(t: Any, turned: str, shape: tuple[int, ...]) -> dict[str, Any]:
    values = torch.rand(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    env: dict[str, Any] = {"t": t, **GUARDS}
    for name in HELPERS:
        exec(helper_code(name), env)
    env["v1"] = TURNED[turned](t, t.tensor((values + 0.2).tolist(), dtype=t.float64))
    return env


@pytest.mark.parametrize("rows", [POINTWISE, REDUCING, INDEXING, MATRICES, RARE])
def test_functions_of_one_tensor_lay_out_their_results_as_pytorch(rows: tuple[Row, ...]) -> None:
    wrong = []
    for turned in TURNED:
        for shape in (2, 3), (3, 3), (2, 3, 3):
            envs = [environment(t, turned, shape) for t in (torch, cugrad)]
            draw = Draw(1)
            draw.env = envs[0]
            for row in rows:
                if any(part in row.text for part in OPEN) or not draw.fits(row)(envs[0]["v1"]):
                    continue
                if row.text in ("{x}[{j}]", "{x}[..., {j0}]") and len(shape) > 2:
                    continue
                text, _ = draw.filled(row, "v1") or ("", ())
                try:
                    want = eval(text, envs[0])
                except Exception:  # not of this shape
                    continue
                got = eval(text, envs[1])
                if isinstance(want, torch.Tensor) and strides_of(want) != strides_of(got):
                    wrong.append(f"{text} of {shape}, {turned}: {got.stride()}")
    assert not wrong
