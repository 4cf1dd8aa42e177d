"""FlopCounterMode counts as PyTorch's: products and convolutions, both ways, by module."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import pytest

import cugrad
from cugrad.utils import collect_env

torch = pytest.importorskip("torch")


def leaf(t: Any, *shape: int) -> Any:
    return t.ones(*shape, requires_grad=True)


def network(t: Any) -> None:
    class Two(t.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = t.nn.Linear(5, 6), t.nn.Linear(6, 7, bias=False)

        def forward(self, x: Any) -> Any:
            return self.second(self.first(x)).relu()

    Two()(leaf(t, 2, 5)).sum().backward()


CASES: dict[str, Callable[[Any], Any]] = {
    "mm": lambda t: leaf(t, 4, 6) @ leaf(t, 6, 7),
    "mm backward": lambda t: (leaf(t, 4, 6) @ leaf(t, 6, 7)).sum().backward(),
    "one operand": lambda t: (t.ones(4, 6) @ leaf(t, 6, 7)).sum().backward(),
    "bmm": lambda t: t.bmm(leaf(t, 3, 4, 6), leaf(t, 3, 6, 7)).sum().backward(),
    "addmm": lambda t: t.addmm(leaf(t, 7), leaf(t, 4, 6), leaf(t, 6, 7)).sum().backward(),
    "linear": lambda t: t.nn.functional.linear(leaf(t, 2, 3), leaf(t, 4, 3), leaf(t, 4)),
    "conv": lambda t: t.conv2d(leaf(t, 2, 3, 8, 8), leaf(t, 5, 3, 3, 3)).sum().backward(),
    "transposed": lambda t: t.conv_transpose2d(leaf(t, 2, 3, 8, 8), leaf(t, 3, 5, 3, 3)),
    "elements": lambda t: (leaf(t, 3) * leaf(t, 3) + 1).exp(),
    "network": network,
    "checkpoint": lambda t: t.utils.checkpoint.checkpoint(
        lambda a: (a @ a).sum(), leaf(t, 4, 4), use_reentrant=False).backward(),
}  # fmt: skip


def counts(t: Any, run: Callable[[Any], Any]) -> dict[str, int]:
    counter = importlib.import_module(f"{t.__name__}.utils.flop_counter").FlopCounterMode(
        display=False
    )
    with counter:
        run(t)
    assert counter.get_total_flops() == sum(counter.get_flop_counts().get("Global", {}).values())
    return {name: sum(ops.values()) for name, ops in counter.get_flop_counts().items() if ops}


@pytest.mark.parametrize("case", CASES)
def test_counts_are_pytorchs(case: str) -> None:
    assert counts(cugrad, CASES[case]) == counts(torch, CASES[case])


def test_a_table_and_a_formula(capsys: pytest.CaptureFixture[str]) -> None:
    with cugrad.utils.flop_counter.FlopCounterMode(custom_mapping={
        "exp": lambda shape, out_shape=None: 1000 * shape[0]}) as counter:  # fmt: skip
        network(cugrad)
        cugrad.ones(3).exp()
    lines = capsys.readouterr().out.splitlines()
    assert counter.get_flop_counts()["Global"]["exp"] == 3000
    assert lines[2].split() == ["Global", "3.864K", "100.00%"]
    assert any(line.split()[:2] == ["Two.first", "0.360K"] for line in lines)
    with pytest.raises(ValueError, match="is no op"):
        cugrad.utils.flop_counter.register_flop_formula("nothing")


def test_a_report_names_versions() -> None:
    assert f"numpy {collect_env.np.__version__}" in collect_env.get_pretty_env_info()
