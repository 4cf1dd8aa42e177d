"""Anomaly detection: the forward call of what fails in backward, its parents, and nan."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

ENABLED = (
    "Anomaly Detection has been enabled. This mode will increase the runtime and should only be "
    "enabled for debugging."
)


@pytest.fixture(autouse=True)
def off_again(lib: Any) -> Iterator[None]:
    yield
    assert not lib.is_anomaly_enabled() and lib.is_anomaly_check_nan_enabled()


def leaf(lib: Any, *values: float) -> Any:
    return lib.tensor([float(v) for v in values], requires_grad=True)


def function(lib: Any, name: str, backward: Callable[[Any, Any], Any]) -> Any:
    """A custom Function whose forward copies its arguments' first."""
    body = {
        "forward": staticmethod(lambda ctx, x, *more: x.clone()),
        "backward": staticmethod(backward),
    }
    return type(name, (lib.autograd.Function,), body)


def fails(ctx: Any, g: Any) -> Any:
    raise RuntimeError("Some error in backward")


def failure(run: Callable[[], Any]) -> tuple[str, list[str]]:
    """The error that `run` raises, and the warnings that come with it."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("error")
        warnings.simplefilter("always", UserWarning)
        with pytest.raises(RuntimeError) as error:
            run()
    assert all(w.category is UserWarning for w in caught)
    return str(error.value), [str(w.message) for w in caught]


def test_the_documented_example(lib: Any) -> None:
    my = function(lib, "MyFunc", fails)

    def run_fn(a: Any) -> Any:
        out = my.apply(a)  # the line in question
        return out.sum()

    def run() -> None:
        with lib.autograd.detect_anomaly():
            run_fn(lib.rand(10, 10, requires_grad=True)).backward()

    error, (enabled, detected) = failure(run)
    assert error == "Some error in backward" and enabled == ENABLED
    assert detected.startswith(
        "Error detected in MyFuncBackward. Traceback of forward call that caused the error:\n"
        '  File "'
    )
    assert (
        detected.index("in run\n")
        < detected.index("in run_fn\n")
        < detected.index("out = my.apply(a)  # the line in question\n")
    )


def test_without_it_nothing_is_said(lib: Any) -> None:
    my = function(lib, "MyFunc", fails)
    error, said = failure(lambda: my.apply(leaf(lib, 1)).sum().backward())
    assert (error, said) == ("Some error in backward", [])


def test_a_forward_that_ran_outside(lib: Any) -> None:
    y = function(lib, "MyFunc", fails).apply(leaf(lib, 1)).sum()

    def run() -> None:
        with lib.autograd.set_detect_anomaly(True):
            y.backward()

    _, (said,) = failure(run)
    assert said.startswith(
        "Error detected in MyFuncBackward. No forward pass information available. Enable detect "
        "anomaly during forward pass for more information."
    )


@pytest.mark.parametrize("how", ["op", "function", "hook", "post hook", "incoming", "recorded"])
def test_nan(lib: Any, how: str) -> None:
    """Where a node returns it, from whatever source; leaves may get what they get."""
    nan, x = float("nan"), leaf(lib, 1, -1)
    name, nr, gradient, create = "MulBackward0", 0, None, how == "recorded"

    def run() -> None:
        nonlocal name, nr, gradient
        with lib.autograd.set_detect_anomaly(True):
            if how in ("op", "recorded"):
                y, name = x.sqrt(), "SqrtBackward0"
            elif how == "function":
                y = function(lib, "Nan", lambda ctx, g: (None, g * nan)).apply(x, x)
                name, nr = "NanBackward", 1
            else:
                y = x * 2
            if how == "hook":
                y.register_hook(lambda g: g * nan)
            elif how == "post hook":
                y.grad_fn.register_hook(lambda gi, go: (gi[0] * nan, *gi[1:]))
            gradient = lib.tensor([nan, 1]) if how == "incoming" else lib.ones(2)
            lib.autograd.grad(y, x, gradient, create_graph=create)

    error, (said,) = failure(run)
    assert error == f"Function '{name}' returned nan values in its {nr}th output."
    assert said.startswith(f"Error detected in {name}. Traceback of forward call") and "y" in said


def test_nan_unchecked(lib: Any) -> None:
    x = leaf(lib, 1)
    with lib.autograd.set_detect_anomaly(True, check_nan=False):
        assert lib.is_anomaly_enabled() and not lib.is_anomaly_check_nan_enabled()
        (x * 2).backward(lib.tensor([float("nan")]))
    assert x.grad.isnan().all()


def test_nan_from_the_hook_of_a_leaf_is_the_users(lib: Any) -> None:
    x = leaf(lib, 1)
    x.register_hook(lambda g: g * float("nan"))
    with lib.autograd.set_detect_anomaly(True):
        (x * 2).sum().backward()
    assert x.grad.isnan().all()


def test_an_error_in_a_hook_is_reported(lib: Any) -> None:
    def run() -> None:
        with lib.autograd.set_detect_anomaly(True):
            y = leaf(lib, 1) * 2
            y.register_hook(lambda g: fails(None, g))
            y.sum().backward()

    error, (said,) = failure(run)
    assert error == "Some error in backward" and said.startswith("Error detected in MulBackward0.")


def test_a_change_in_place(lib: Any) -> None:
    def run() -> None:
        with lib.autograd.set_detect_anomaly(True, check_nan=False):
            y = leaf(lib, 1).exp()  # saved here
            y.add_(1)
            y.sum().backward()

    error, (said,) = failure(run)
    assert "is at version 1; expected version 0 instead. Hint: the backtrace further above" in error
    assert said.startswith("Error detected in ExpBackward0.") and "# saved here" in said
    hint = "with torch.autograd.set_detect_anomaly(True, check_nan=False)."
    x = leaf(lib, 1)
    y = x.exp()
    y.add_(1)
    assert failure(y.sum().backward)[0].endswith(hint)


def test_double_backward_names_the_chain_of_parents(lib: Any) -> None:
    def run() -> None:
        x = leaf(lib, 0, 1)
        with lib.autograd.set_detect_anomaly(True):
            y = x.pow(1.5)  # the first
            (g,) = lib.autograd.grad(y.sum(), x, create_graph=True)  # the second
            (h,) = lib.autograd.grad(g.sum(), x, create_graph=True)  # the third
            lib.where(lib.tensor([True, False]), h * 0, h).sum().backward()

    error, said = failure(run)
    assert error == "Function 'PowBackward0' returned nan values in its 0th output."
    starts = ["Error detected in PowBackward0. Traceback of forward call that caused the error:\n"]
    starts += [
        "\n\nPrevious calculation was induced by PowBackward0. Traceback of forward call that "
        "induced the previous calculation:\n"
    ] * 2
    for text, start, where in zip(said, starts, ("third", "second", "first"), strict=True):
        assert text.startswith(start) and text.count("# the") == 1 and f"# the {where}" in text


def test_a_parent_whose_forward_ran_outside(lib: Any) -> None:
    inner = function(lib, "Inner", fails)
    outer = function(lib, "Outer", lambda ctx, g: inner.apply(g))

    def run() -> None:
        x, v = leaf(lib, 1), leaf(lib, 1)
        y = outer.apply(x)
        with lib.autograd.set_detect_anomaly(True):
            lib.autograd.grad(y, x, v, create_graph=True)[0].sum().backward()

    _, (detected, induced) = failure(run)
    assert "in backward" in detected or "in <lambda>" in detected
    assert induced.startswith(
        "Error detected in OuterBackward. No forward pass information available. Enable detect "
        "anomaly during forward pass for more information."
    )


def test_metadata(lib: Any) -> None:
    x, v = leaf(lib, 1), leaf(lib, 1)
    with lib.autograd.set_detect_anomaly(True):
        y = x * 2
        (g,) = lib.autograd.grad(y, x, v, create_graph=True)
    assert (x * 2).grad_fn.metadata == {}
    assert list(y.grad_fn.metadata) == ["traceback_"]
    assert y.grad_fn.metadata["traceback_"][-1].endswith("in test_metadata\n    y = x * 2\n")
    assert sorted(g.grad_fn.metadata) == ["parent_", "traceback_"]
    assert g.grad_fn.metadata["parent_"] is y.grad_fn


def test_the_switches(lib: Any) -> None:
    def now() -> tuple[bool, bool]:
        return lib.is_anomaly_enabled(), lib.is_anomaly_check_nan_enabled()

    assert now() == (False, True)
    with lib.autograd.set_detect_anomaly(True, False):
        assert now() == (True, False)
        with lib.autograd.set_detect_anomaly(False):
            assert now() == (False, True)
        with pytest.warns(UserWarning, match="has been enabled"), lib.autograd.detect_anomaly():
            assert now() == (True, True)
        assert now() == (True, False)
    lib.autograd.set_detect_anomaly(True)
    assert now() == (True, True)
    lib.autograd.set_detect_anomaly(False)
    lib.set_anomaly_enabled(True, check_nan=False)
    assert now() == (True, False)
    lib.set_anomaly_enabled(False)
    with pytest.raises(TypeError, match="argument 'enabled' .position 1. must be bool, not int"):
        lib.autograd.set_detect_anomaly(1)
    with pytest.raises(TypeError, match="argument 'check_nan' .position 2. must be bool, not str"):
        lib.autograd.set_detect_anomaly(True, "no")


def test_it_is_on_in_all_threads(lib: Any) -> None:
    found: list[Any] = []

    def work() -> None:
        y = leaf(lib, 1) * 2
        found.append((lib.is_anomaly_enabled(), sorted(y.grad_fn.metadata)))

    for enabled in (True, False):
        with lib.autograd.set_detect_anomaly(enabled):
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
    assert found == [(True, ["traceback_"]), (False, [])]


def test_every_kind_of_node_is_noted(lib: Any) -> None:
    """Ops in place and of several outputs, views, hooks that pack, integer and empty tensors."""
    x = leaf(lib, 1, 2)
    keep = lib.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t)
    with lib.autograd.set_detect_anomaly(True):
        y = x * 1
        y[0].mul_(2)
        with keep:
            z = y.exp()
        parts = z.unbind(0)
        empty = z[:0].sum()
        total = parts[0] + parts[1] + empty
        total.backward()
    for t in (y, z, parts[1], empty, total):
        assert "traceback_" in t.grad_fn.metadata
    assert x.grad is not None


def test_gradients_computed_in_batches(lib: Any) -> None:
    if lib.__name__ == "torch":
        pytest.skip("PyTorch cannot look for nan there")
    x = leaf(lib, 1, 2)
    with lib.autograd.set_detect_anomaly(True):
        y = x * x
        (g,) = lib.autograd.grad(y, x, lib.eye(2), is_grads_batched=True)
    assert g.tolist() == [[2, 0], [0, 4]]


def test_the_librarys_own_frames_are_left_out(lib: Any) -> None:
    """But for those of layers, which say where in a model it was."""
    if lib.__name__ == "torch":
        pytest.skip("PyTorch shows its own Python frames")
    model = lib.nn.Sequential(lib.nn.Linear(2, 2), lib.nn.ReLU())
    with lib.autograd.set_detect_anomaly(True):
        y = model(lib.ones(1, 2))
    text = "".join(y.grad_fn.metadata["traceback_"])
    assert (
        "nn/modules/container.py" in text
        and "cugrad/autograd/" not in text
        and "fast path" not in text
    )


def test_the_warning_stands_at_the_line_that_runs_backward(lib: Any) -> None:
    if lib.__name__ == "torch":
        pytest.skip("PyTorch warns at its own line")
    with lib.autograd.set_detect_anomaly(True):
        y = leaf(lib, -1).sqrt()
        with pytest.warns(UserWarning) as caught, pytest.raises(RuntimeError):
            y.backward()
    assert caught[0].filename == __file__
