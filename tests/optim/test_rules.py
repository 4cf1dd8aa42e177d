"""Drawn update rules: the text that changes arrays in place computes what the rule says."""

from __future__ import annotations

import random
import threading
from typing import Any

import numpy as np
import pytest

import cugrad
from cugrad.optim.rules import advance, blocks, rule, steps
from tests.optim.starts import host

ARRAYS = ("param", "grad", "first", "second")


class Plain:
    """The functions of a rule in NumPy, on whole arrays, with nothing in place."""

    sqrt, sign, abs = staticmethod(np.sqrt), staticmethod(np.sign), staticmethod(np.abs)
    maximum, minimum = staticmethod(np.maximum), staticmethod(np.minimum)
    equal = staticmethod(np.equal)

    @staticmethod
    def where(condition: Any, a: Any, b: Any) -> Any:
        return np.where(condition, a, b)


def drawn(seed: int) -> Any:
    """A function of arrays and a number by random steps, each of which reads what came before."""
    draw = random.Random(seed)
    plan = [
        (draw.randrange(9), *(draw.random() for _ in range(3))) for _ in range(draw.randint(1, 9))
    ]
    ends = [draw.random() for _ in range(3)]

    def body(m: Any, param: Any, grad: Any, first: Any, second: Any, *, rate: Any) -> Any:
        values = [param, grad, first, second]
        for kind, *places in plan:
            a, b, c = (values[int(place * len(values))] for place in places)
            made = [
                lambda a, b, c: a + b,
                lambda a, b, c: a - rate * b,
                lambda a, b, c: a * b,
                lambda a, b, c: m.maximum(a, b) - c,
                lambda a, b, c: m.minimum(a, b),
                lambda a, b, c: m.where(a > b, c, 0.5),
                lambda a, b, c: m.where(rate > 0.3, a, b),
                lambda a, b, c: m.sqrt(m.abs(a) + 1.0) / (2.0 + b * b),
                lambda a, b, c: m.sign(a) * (1 - rate) + (-b),
            ][kind](a, b, c)
            values.append(made)
        results = [values[int(end * len(values))] for end in ends]
        return dict(zip(("param", "first", "second"), results, strict=True))

    return body


@pytest.mark.parametrize("seeds", [range(n, n + 50) for n in range(0, 200, 50)], ids=str)
def test_updates_in_place_are_what_rules_say(seeds: range) -> None:
    rng = np.random.default_rng(seeds[0])
    for seed in seeds:
        body = drawn(seed)
        start = {name: rng.standard_normal(5) for name in ARRAYS}
        rate = float(rng.random())
        wanted = body(Plain(), *(start[name].copy() for name in ARRAYS), rate=rate)
        tensors = {name: cugrad.tensor(value) for name, value in start.items()}
        states = {name: [tensors[name]] for name in ("first", "second")}
        advance(rule()(body), [tensors["param"]], [tensors["grad"]], states, {"rate": rate})
        for name in ARRAYS:
            want = wanted.get(name, start[name])
            np.testing.assert_allclose(
                host(tensors[name]), np.broadcast_to(want, 5), rtol=1e-12, err_msg=f"{seed}: {name}"
            )


def test_a_state_may_become_a_number() -> None:
    @rule()
    def body(m: Any, param: Any, grad: Any, state: Any, *, rate: Any) -> dict[str, Any]:
        return {"param": state, "state": rate * 2}

    param, state = cugrad.ones(2), cugrad.zeros(2)
    advance(body, [param], [param], {"state": [state]}, {"rate": 0.25})
    assert param.tolist() == [0.0, 0.0] and state.tolist() == [0.5, 0.5]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_threads_take_the_same_step(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large arrays are shared out; where a thread fails, the caller hears of it."""
    for module in (blocks, steps):
        monkeypatch.setattr(module, "BLOCK", 1 << 9)
    used = set()
    part = blocks._part

    def noted(*args: Any) -> None:
        used.add(threading.current_thread().name)
        part(*args)

    monkeypatch.setattr(blocks, "_part", noted)
    results, values = [], np.random.default_rng(0).standard_normal((3, 1111))
    for count in (1, 3):
        monkeypatch.setattr(blocks, "get_num_threads", lambda count=count: count)
        param = cugrad.tensor(values).to(getattr(cugrad, dtype)).requires_grad_()
        optimizer = cugrad.optim.AdamW([param], lr=0.1, amsgrad=True)
        for k in range(3):
            param.grad = (param.detach() * (k - 1.3)).exp()
            optimizer.step()
        states = [state.numpy() for state in optimizer.state[param].values()]
        results.append([param.detach().numpy().tobytes(), *[s.tobytes() for s in states]])
    assert results[0] == results[1] and len(used) > 1  # one worker may take all of the rest

    def failing(*args: Any) -> None:
        if threading.current_thread() is not threading.main_thread():
            raise ZeroDivisionError

    monkeypatch.setattr(blocks, "_part", failing)
    with pytest.raises(ZeroDivisionError):
        optimizer.step()


@pytest.mark.parametrize("behind", [0, 4, 12])
@pytest.mark.parametrize("count", [129, 500, 512, 513, 1111])
def test_blocks_begin_with_a_line_of_the_cache(
    count: int, behind: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All but the first, wherever an array begins; and they are the whole of it."""
    monkeypatch.setattr(blocks, "BLOCK", 1 << 9)
    memory = np.zeros(count + 32, np.float32)
    first = -memory.ctypes.data % 64 // 4 + behind
    array, starts = memory[first : first + count], list[int]()

    def add_one(x: Any, scratch: Any) -> None:
        starts.append(x.ctypes.data)
        scratch[...] = 1
        x += scratch

    blocks.run(add_one, [array], [], 1, [0], np, True)
    assert len(starts) > 1 and not any(start % 64 for start in starts[1:])
    assert (array == 1).all() and memory.sum() == count


@pytest.mark.parametrize("differentiable", [False, True])
def test_the_sign_of_what_is_no_number_is_zero(differentiable: bool) -> None:
    """As that of a tensor: an element whose gradient is nan stays where it is, in each way."""

    def follow(m: Any, param: Any, grad: Any) -> dict[str, Any]:
        return {"param": param - m.sign(grad) * 0.5}

    param = cugrad.ones(5)
    grad = cugrad.tensor([2.0, -2.0, 0.0, -0.0, float("nan")])
    with cugrad.no_grad() if not differentiable else cugrad.enable_grad():
        advance(rule()(follow), [param], [grad], {}, {}, differentiable)
    assert param.tolist() == [0.5, 1.5, 1.0, 1.0, 1.0]
