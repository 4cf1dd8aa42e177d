"""What the pinned PyTorch was the first to say is compared with it, and with none before it."""

from __future__ import annotations

import importlib.metadata

import pytest

from tests.support import pinned_torch

pytestmark = pytest.mark.host_only


@pytest.mark.parametrize("version, reason", [
    ("2.11.0", "compares with PyTorch 2.13.0, and 2.11.0 is here"),
    ("2.9.1+cu130", "compares with PyTorch 2.13.0, and 2.9.1+cu130 is here"),
    ("2.13.0+cpu", None), ("2.13.1", None), ("2.14.0a0", None), ("3.0", None), (None, None),
])  # fmt: skip
def test_an_older_pytorch_is_a_reason_to_skip(
    monkeypatch: pytest.MonkeyPatch, version: str | None, reason: str | None
) -> None:
    def found(name: str) -> str:
        assert name == "torch"
        if version is None:
            raise importlib.metadata.PackageNotFoundError
        return version

    monkeypatch.setattr(importlib.metadata, "version", found)
    assert pinned_torch.too_old() == reason
    if reason is None:
        pinned_torch.skip_module()
    else:
        with pytest.raises(pytest.skip.Exception, match="compares with"):
            pinned_torch.skip_module()


def test_the_cases_of_a_table_that_wait_are_marked() -> None:
    first, second = pinned_torch.cases({"a": 1, "b": 2}, ["b"])
    assert (first.values, first.marks) == (("a",), [])
    assert second.values == ("b",) and second.marks[0].name == "pinned_torch"
    with pytest.raises(AssertionError, match="not there"):
        pinned_torch.cases(["a"], ["c"])
