"""stft and istft beside PyTorch's: values, gradients, warnings, errors; and that they invert."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import cugrad

torch = pytest.importorskip("torch")

RNG = np.random.default_rng(3)
SIGNALS = {"real": RNG.standard_normal((2, 30)), "one": RNG.standard_normal(30),
           "complex": RNG.standard_normal((2, 30)) + 1j * RNG.standard_normal((2, 30))}  # fmt: skip
WINDOWS: dict[str, Any] = {"none": None, "hann": np.hanning(10)[1:-1], "ones": np.ones(8),
                           "short": np.hanning(7)[1:-1]}  # fmt: skip
OPTIONS: list[dict[str, Any]] = [
    {}, {"hop_length": 3}, {"normalized": True}, {"center": False},
    {"center": False, "align_to_window": True}, {"onesided": False}, {"pad_mode": "constant"},
    {"hop_length": 4, "pad_mode": "replicate"},
]  # fmt: skip
WRONG: list[dict[str, Any]] = [
    {"n_fft": 0}, {"n_fft": 80}, {"hop_length": 0}, {"win_length": 9}, {"win_length": 4},
    {"align_to_window": True}, {"n_fft": 50, "center": False}, {"return_complex": None},
]  # fmt: skip


@pytest.fixture(autouse=True)
def each_warning() -> Iterator[None]:
    """PyTorch gives some warnings once in a process, but for this switch."""
    torch.set_warn_always(True)
    yield
    torch.set_warn_always(False)


def made(library: Any, value: Any, grad: bool = False) -> Any:
    if value is None:
        return None
    return library.tensor(np.asarray(value), requires_grad=grad)


def outcome(library: Any, call: Any) -> tuple[Any, list[str]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result: Any = call(library)
        except Exception as error:
            result = type(error).__name__
    return result, [str(w.message).partition(" (Triggered")[0] for w in caught]


def arguments(window: str) -> dict[str, Any]:
    return {"win_length": 5} if window == "short" else {}


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("signal", SIGNALS)
def test_spectra_are_pytorchs(signal: str, window: str, options: dict[str, Any]) -> None:
    results = {}

    def call(library: Any) -> Any:
        x = made(library, SIGNALS[signal], grad=True)
        w = made(library, WINDOWS[window], grad=window != "none")
        spectra = library.stft(x, 8, window=w, return_complex=True, **arguments(window), **options)
        library.view_as_real(spectra).pow(2).cumsum(0).sum().backward()
        results[library] = [spectra.detach(), x.grad, None if w is None else w.grad]
        return True

    (got, said), (want, theirs) = outcome(cugrad, call), outcome(torch, call)
    assert got == want
    assert said == theirs
    if got is not True:
        return
    for a, b in zip(results[cugrad], results[torch], strict=True):
        if b is not None:
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("wrong", WRONG, ids=str)
def test_what_does_not_fit_is_an_error_as_in_pytorch(wrong: dict[str, Any]) -> None:
    def call(library: Any) -> Any:
        options = {"n_fft": 8, "return_complex": True, **wrong}
        library.stft(made(library, SIGNALS["real"]), window=made(library, np.ones(8)), **options)
        return "none"

    assert outcome(cugrad, call)[0] == outcome(torch, call)[0] == "RuntimeError"


def test_pairs_are_deprecated() -> None:
    def call(library: Any) -> Any:
        x, w = made(library, SIGNALS["real"]), made(library, np.ones(8))
        return library.stft(x, 8, window=w, return_complex=False).numpy()

    (got, said), (want, theirs) = outcome(cugrad, call), outcome(torch, call)
    np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-9)
    assert said == theirs


INVERSES: list[dict[str, Any]] = [
    {}, {"length": 25}, {"length": 35}, {"normalized": True}, {"center": False},
    {"hop_length": 3}, {"hop_length": 9}, {"n_fft": 10}, {"onesided": False},
    {"return_complex": True}, {"window": np.zeros(8)}, {"window": np.ones(5)}, {"window": None},
    {"window": np.ones(5), "win_length": 5},
]  # fmt: skip


@pytest.mark.parametrize("options", INVERSES, ids=str)
def test_signals_are_pytorchs(options: dict[str, Any]) -> None:
    spectra = RNG.standard_normal((2, 5, 16)) + 1j * RNG.standard_normal((2, 5, 16))
    results = {}

    def call(library: Any) -> Any:
        given = {"n_fft": 8, "window": np.hamming(8), **options}
        x = made(library, spectra, grad=True)
        given["window"] = made(library, given["window"])
        signal = library.istft(x, **given)
        signal.pow(2).cumsum(0).sum().backward()
        results[library] = [signal.detach(), x.grad]
        return True

    (got, said), (want, theirs) = outcome(cugrad, call), outcome(torch, call)
    assert got == want
    assert said == theirs
    if got is True:
        for a, b in zip(results[cugrad], results[torch], strict=True):
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("signal", SIGNALS)
def test_a_signal_comes_back(signal: str) -> None:
    x, w = made(cugrad, SIGNALS[signal]), cugrad.hann_window(8, dtype=cugrad.float64)
    is_complex = x.dtype.is_complex
    spectra = x.stft(8, window=w, return_complex=True)
    again = spectra.istft(
        8, window=w, return_complex=is_complex, onesided=False if is_complex else None
    )
    np.testing.assert_allclose(again.numpy(), x.numpy(), rtol=1e-9, atol=1e-9)
