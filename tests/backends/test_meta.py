"""The device "meta": shapes, orders and dtypes are the host's; there are no values, nor memory."""

from __future__ import annotations

import resource
from dataclasses import replace
from typing import Any

import pytest

import cugrad
from cugrad import backends, nn
from cugrad.ops.table import TABLE
from tests.ops.row_cases import Call, is_array
from tests.ops.sampling import LINES

# Rows that want values: the shapes of their results depend on them, or zeros have no answer.
REFUSED = set(
    """
    bincount linalg_cholesky linalg_eig linalg_eigvals linalg_inv
    linalg_matrix_exp linalg_solve nonzero special_chebyshev_polynomial_t
    special_chebyshev_polynomial_u special_chebyshev_polynomial_v
    special_chebyshev_polynomial_w special_hermite_polynomial_h
    special_hermite_polynomial_he special_laguerre_polynomial_l
    special_legendre_polynomial_p special_shifted_chebyshev_polynomial_t
    special_shifted_chebyshev_polynomial_u special_shifted_chebyshev_polynomial_v
    special_shifted_chebyshev_polynomial_w to_device unique unique_consecutive
    """.split()  # noqa: SIM905
)
# Rows whose results lie in another order than the host's, which depends on how they are computed.
OTHER_ORDER = {"im2col", "linalg_distances", "linalg_solve_triangular"}


def layouts(case: Any, device: str) -> Any:
    """Shape, dtype and order of each result, or the error of a row that cannot run."""
    try:
        results = Call(case, backends.get(device)).results
    except (NotImplementedError, cugrad.linalg.LinAlgError) as error:
        return type(error)
    except RuntimeError as error:
        if "cannot be called on meta tensors" in str(error):
            return type(error)
        raise
    in_order = case.row not in OTHER_ORDER
    return [
        (tuple(r.shape), r.dtype, in_order and bool(r.flags.c_contiguous)) if is_array(r) else r
        for r in results
    ]


def test_rows_have_the_shapes_dtypes_and_orders_of_the_host() -> None:
    refused, wrong = set(), []
    for name in sorted(TABLE.keys() & LINES.keys()):
        for line in LINES[name]:
            for case in (line, replace(line, variant="strided", dtype="float32")):
                if case.variant == "strided" and not line.strided:
                    continue
                try:
                    want = layouts(case, "cpu")
                except Exception:  # a dtype that the row does not take
                    continue
                try:
                    got = layouts(case, "meta")
                except Exception as error:
                    got = [repr(error)]
                if isinstance(got, type):
                    refused.add(name)
                elif got != want and not isinstance(want, type):
                    wrong.append((case.id, case.variant, want, got))
    assert not wrong, "\n".join(map(str, wrong))
    assert refused == REFUSED


def test_a_model_without_memory() -> None:
    """Made, run forward and backward, and given memory: 3 GB are not taken."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with cugrad.device("meta"):
        model = nn.Sequential(nn.Linear(20_000, 10_000), nn.ReLU(), nn.Linear(10_000, 20_000))
        loss = model(cugrad.randn(8, 20_000)).square().mean()
    loss.backward()
    weight = model[0].weight
    assert loss.shape == () and weight.grad.shape == (10_000, 20_000) and weight.is_meta
    assert (weight + weight.T.T * 2).mT.stride() == (1, 20_000)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # KiB
    small = nn.Linear(3, 2, device="meta")
    with pytest.raises(NotImplementedError, match="no data! Please use torch.nn.Module.to_empty"):
        small.to("cpu")
    assert small.to_empty(device="cpu").weight.device.type == "cpu"
    empty = nn.Linear(3, 2, device="meta")
    empty.load_state_dict({"weight": cugrad.ones(2, 3), "bias": cugrad.ones(2)}, assign=True)
    assert empty(cugrad.ones(3)).tolist() == [4.0, 4.0]


@pytest.mark.parametrize("how", [{}, {"is_causal": True}, {"dropout_p": 0.5}, {"attn_mask": ...}])
def test_attention_without_memory(how: dict[str, Any]) -> None:
    q = cugrad.empty(2, 3, 4, 5, device="meta", requires_grad=True)
    k, v = q[..., :2, :].repeat(1, 1, 4, 1), cugrad.empty(2, 3, 8, 7, device="meta")
    if "attn_mask" in how:
        how = {"attn_mask": cugrad.ones(4, 8, dtype=cugrad.bool, device="meta")}
    result = nn.functional.scaled_dot_product_attention(q, k, v, **how)
    result.sum().backward()
    assert (result.shape, q.grad.shape, result.device) == ((2, 3, 4, 7), q.shape, q.device)
    layer = nn.TransformerEncoderLayer(8, 2, device="meta")
    assert layer(cugrad.empty(2, 3, 8, device="meta")).shape == (2, 3, 8)


def test_what_meta_tensors_say_beside_pytorch() -> None:
    torch = pytest.importorskip("torch")
    said = []
    for lib in (cugrad, torch):
        x = lib.ones(2, 3, device="meta", requires_grad=True)
        words = [repr(x), repr(lib.nn.Parameter(x.detach().half())), str(x.device), x.is_meta]
        words += [tuple(y.shape) for y in (x[0], x[:, None], x @ x.mT, x.sum(0), lib.cat([x, x]))]
        for read in (lambda x: x.sum().item(), lambda x: bool(x.sum()), lambda x: x.nonzero(),
                     lambda x: x.cpu(), lambda x: x.tolist(), lambda x: x.detach().numpy(),
                     lambda x, lib=lib: x + lib.ones(2, 3)):  # fmt: skip
            with pytest.raises((RuntimeError, TypeError)) as refused:
                read(x)
            words.append(type(refused.value))
        said.append(words)
    assert said[0] == said[1]


def test_operands_are_of_one_device() -> None:
    x = cugrad.ones(2, device="meta")
    with pytest.raises(RuntimeError, match="device"):
        x * cugrad.ones(2)
    x.copy_(cugrad.ones(2))
    assert x[cugrad.tensor([0, 1, 0])].shape == (3,) and (x + 1).device.type == "meta"
    with pytest.raises(RuntimeError, match="broadcast|match"):
        x += cugrad.ones(3, device="meta")


def test_there_is_nothing_to_copy(lib: Any) -> None:
    """A tensor stays as it was, and a state dict of the meta device loads nothing in silence."""
    x = lib.ones(2)
    with pytest.raises(NotImplementedError, match="Cannot copy out of meta tensor; no data"):
        x.copy_(lib.zeros(2, device="meta"))
    assert x.tolist() == [1, 1]
    net = lib.nn.Linear(2, 3)
    with pytest.raises(RuntimeError, match="While copying the parameter named .weight."):
        net.load_state_dict(lib.nn.Linear(2, 3, device="meta").state_dict())
