"""Leaves, views, inference tensors: every action in every mode does what it does in PyTorch."""

from __future__ import annotations

import re
import warnings

import pytest

import cugrad
from tests.autograd.contract_cases import ACTIONS, MODES, PYTORCH_CRASHES, SUBJECTS, outcome
from tests.autograd.contract_reasons import REASONS
from tests.support.pinned_torch import cases

torch = pytest.importorskip("torch", reason="compares with PyTorch")

used: set[int] = set()
ran: set[str] = set()


def number(line: str) -> str:
    """A line whose numbers are rounded as float32 deserves."""
    return re.sub(r"-?\d+\.\d+", lambda found: f"{float(found[0]):.5g}", line)


def is_explained(case: tuple[str, str, str]) -> bool:
    found = {
        i for i, reason in enumerate(REASONS)
        if all(re.fullmatch(r, c) for r, c in zip(reason[:3], case, strict=True))
    }  # fmt: skip
    used.update(found)
    return bool(found)


# An error names the op that made the view: PyTorch 2.13 says "View", those before "ViewBackward0".
NEWER = [
    "one_of_many_of_leaf", "one_of_many_of_computed", "view_of_one_of_many_of_leaf",
    "view_of_one_of_many_of_computed", "no_grad_view_of_leaf", "inference_view_of_leaf",
    "enabled_view_of_leaf", "no_grad_view_of_computed", "inference_view_of_computed",
    "enabled_view_of_computed", "no_grad_one_of_many_of_leaf", "inference_one_of_many_of_leaf",
    "no_grad_one_of_many_of_computed", "inference_one_of_many_of_computed",
    "view_of_no_grad_view_of_leaf", "view_of_inference_view_of_leaf",
    "view_of_no_grad_view_of_computed", "view_of_inference_view_of_computed",
    "no_grad_view_of_inference_view", "no_grad_view_of_view", "function_view",
    "function_identity", "function_identity_of_leaf", "function_of_view",
    "view_of_function_view", "no_grad_function_view",
]  # fmt: skip


@pytest.mark.parametrize("subject", cases(SUBJECTS, NEWER))
def test_every_action_in_every_mode(subject: str) -> None:
    """The result, its gradient, and what the tensor is then; errors by type and first sentence.

    Of the two modes within inference mode each action has one, its neighbour the other.
    """
    wrong, turn = [], list(SUBJECTS).index(subject)
    ran.add(subject)
    for k, action in enumerate(ACTIONS):
        if (subject, action) in PYTORCH_CRASHES:
            continue
        for mode in MODES:
            if mode == ("enabled", "off_again")[(k + turn) % 2]:
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                theirs = outcome(torch, subject, action, mode)
                ours = outcome(cugrad, subject, action, mode)
            if all(a == b or number(a).startswith(number(b))
                   for a, b in zip(ours, theirs, strict=True)):  # fmt: skip
                continue
            if not is_explained((subject, action, mode)):
                wrong.append(f"{action} in {mode}:")
                for a, b in zip(ours, theirs, strict=True):
                    if not number(a).startswith(number(b)):
                        wrong.append(f"  cugrad:  {a}\n  PyTorch: {b}")
    assert not wrong, f"{subject}\n" + "\n".join(wrong)


def test_every_reason_is_needed() -> None:
    if ran != set(SUBJECTS):
        pytest.skip("not all of the cases above ran in this process")
    assert [reason for i, reason in enumerate(REASONS) if i not in used] == []
