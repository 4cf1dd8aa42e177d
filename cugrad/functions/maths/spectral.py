"""Short-time Fourier transforms: a spectrum for each window of a signal, and the signal again."""

from __future__ import annotations

import warnings

from ...autograd.recording.record import recorded
from ...tensor import Tensor
from ..calls.arguments import array_of, as_own
from ..creation.factories import ones
from ..shapes.padding import pad

__all__ = ["istft", "stft"]

LEAST_WEIGHT = 1e-11  # of a place of the signal, of which istft divides by it: PyTorch's constant
FREQUENCIES, FRAMES, SAMPLES = -2, -1, -1  # dims of spectra, and of signals


def stft(
    input: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    pad_mode: str = "reflect",
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
    align_to_window: bool | None = None,
) -> Tensor:
    """The spectrum of each of the overlapping windows of a signal.

    Args:
        input: signals of shape (L,) or (B, L), floating-point or complex.
        n_fft: samples of a window, which are the frequencies of its spectrum.
        hop_length: samples from one window to the next, by default n_fft // 4.
        win_length: samples that `window` has, by default n_fft; it is centred in n_fft.
        window: a vector of weights, by default ones, with a warning.
        center: whether window t is centred at sample t * hop_length; the signal gets a border of
            n_fft // 2 of the kind `pad_mode` for it. Else the window begins there.
        normalized: divides by the root of n_fft.
        onesided: the n_fft // 2 + 1 frequencies that say all of a real signal; by default of real
            signals and windows.
        return_complex: must be given for real signals. False, deprecated, makes pairs of real and
            imaginary parts.
        align_to_window: without `center`, whether as many windows are taken as `window` fits in.

    Returns a tensor of shape (B, frequencies, windows), without B if the input had none.
    Raises RuntimeError for arguments that do not fit.

    >>> import cugrad as torch
    >>> spectra = torch.stft(torch.ones(16), 4, window=torch.ones(4), return_complex=True)
    >>> spectra.shape, spectra[:, 2].abs().tolist()
    (torch.Size([3, 17]), [4.0, 0.0, 0.0])
    """
    hop, width = _lengths(n_fft, hop_length, win_length)
    is_complex = array_of(input, "stft").dtype.kind == "c"
    windowed = is_complex or window is not None and window.dtype.is_complex
    if return_complex is None and not windowed:
        raise RuntimeError(
            "stft requires the return_complex parameter be given for real inputs, and will further "
            "require that return_complex=True in a future PyTorch release."
        )
    if center and align_to_window is not None:
        raise RuntimeError("stft align_to_window should only be set when center = false")
    if center:
        input = _centred(input, n_fft, pad_mode)
    if not (input.dtype.is_floating_point or is_complex) or input.dim() not in (1, 2):
        raise RuntimeError(
            "stft: expected a 1D or 2D tensor of floating point or complex values, got "
            f"{input.dtype} of shape {tuple(input.shape)}"
        )
    length = input.shape[-1]
    if not 0 < n_fft <= length:
        raise RuntimeError(f"stft: expected 0 < n_fft < {length}, but got n_fft={n_fft}")
    if hop <= 0:
        raise RuntimeError(f"stft: expected hop_length > 0, but got hop_length={hop}")
    _check_width("stft", n_fft, width)
    onesided = not windowed if onesided is None else onesided
    if onesided and windowed:
        raise RuntimeError("Cannot have onesided output if window or input is complex")
    weights = _weights("stft", window, input, n_fft, width)
    if align_to_window:
        border = (n_fft - width) // 2
        input = pad(input, (border, border))
    frames = input.unfold(SAMPLES, n_fft, hop)
    if window is not None or width < n_fft:
        frames = frames * weights
    spectra = _spectra(frames, normalized, onesided).transpose(-1, -2)
    if return_complex is False:
        warnings.warn(
            "stft with return_complex=False is deprecated. In a future pytorch release, stft will "
            "return complex tensors for all inputs, and return_complex=False will raise an error.\n"
            "Note: you can still call torch.view_as_real on the complex output to recover the old "
            "return format.",
            stacklevel=3,
        )
        return recorded.view_as_real(spectra)
    return as_own(spectra, ())


def istft(
    input: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: int | None = None,
    return_complex: bool = False,
) -> Tensor:
    """The signal of which `stft`, with the same arguments, makes the spectra `input`.

    The least-squares estimate of D. W. Griffin and J. S. Lim, "Signal estimation from modified
    short-time Fourier transform", 1984: windows are added up, and divided by the sum of the squares
    of the weights.

    Args:
        input: complex spectra of shape (frequencies, windows) or (B, frequencies, windows).
        length: samples of the result; more than there are become zeros, with a warning.
        return_complex: whether the signal was complex.

    The others are those of `stft`. Raises RuntimeError for arguments that do not fit, and where the
    windows leave a sample without weight.

    >>> import cugrad as torch
    >>> x, w = torch.arange(16.), torch.hann_window(8)
    >>> y = torch.istft(torch.stft(x, 8, window=w, return_complex=True), 8, window=w)
    >>> torch.allclose(x, y, atol=1e-5)
    True
    """
    hop, width = _lengths(n_fft, hop_length, win_length)
    if array_of(input, "istft").dtype.kind != "c":
        raise RuntimeError(
            "istft requires a complex-valued input tensor matching the output from stft with "
            "return_complex=True."
        )
    has_complex_window = window is not None and window.dtype.is_complex
    onesided = _is_onesided(input, n_fft, onesided)
    _check_spectra(input, n_fft, hop, width, onesided)
    if return_complex and onesided:
        raise RuntimeError("Cannot have onesided output if window or input is complex")
    if has_complex_window and not return_complex:
        raise RuntimeError("Complex windows are incompatible with return_complex=False")
    weights = _weights("istft", window, input, n_fft, width, inverse=True)
    spectra = input.transpose(-1, -2)
    last = (spectra.dim() - 1,)
    how = 1 if normalized else 2
    if return_complex:
        frames = recorded.fft_c2c(spectra, last, how, False)
    else:
        if not onesided:
            spectra = spectra[..., : n_fft // 2 + 1]
        frames = recorded.fft_c2r(spectra, last, how, n_fft)
    count = frames.shape[-2]
    size = n_fft + hop * (count - 1)
    signal = _added_up(frames * weights, size, hop)
    squares = recorded.expand(weights * weights, (count, n_fft))
    envelope = _added_up(squares, size, hop)
    start = n_fft // 2 if center else 0
    end = size - n_fft // 2 if center else size
    if length is not None:
        end = start + length
    signal, envelope = signal[..., start:end], envelope[start:end]
    least = float(envelope.detach().abs().min()) if envelope.numel() else 0.0
    if least < LEAST_WEIGHT:
        raise RuntimeError(
            f"istft: window overlap add min: {least:g}; want more than {LEAST_WEIGHT:g} at every "
            "sample: use a shorter hop_length, or center=True"
        )
    signal = signal / envelope
    if end > size:
        warnings.warn(
            "The length of signal is shorter than the length parameter. Result is being padded "
            "with zeros in the tail. Please check your center and hop_length settings.",
            stacklevel=3,
        )
        signal = pad(signal, (0, end - size))
    return signal


# Arguments ----------------------------------------------------------------------------------------


def _lengths(n_fft: int, hop_length: int | None, win_length: int | None) -> tuple[int, int]:
    hop = n_fft // 4 if hop_length is None else hop_length
    return hop, n_fft if win_length is None else win_length


def _check_width(name: str, n_fft: int, width: int) -> None:
    if not 0 < width <= n_fft:
        raise RuntimeError(f"{name}: expected 0 < win_length <= n_fft, but got win_length={width}")


def _centred(input: Tensor, n_fft: int, pad_mode: str) -> Tensor:
    """The signal with a border of half a window; borders are made of dims (B, C, L)."""
    lead = (1,) * (3 - input.dim())
    bordered = pad(input.reshape((*lead, *input.shape)), (n_fft // 2, n_fft // 2), pad_mode)
    return bordered.reshape((*input.shape[:-1], bordered.shape[-1]))


def _weights(
    name: str, window: Tensor | None, input: Tensor, n_fft: int, width: int, inverse: bool = False
) -> Tensor:
    """`window` with zeros around it, n_fft numbers."""
    if window is None:
        warnings.warn(
            "A window was not provided. A rectangular window will be applied"
            + (".Please provide the same window used by stft to make the inversion lossless."
               if inverse else
               ",which is known to cause spectral leakage. Other windows such as torch.hann_window "
               "or torch.hamming_window are recommended to reduce spectral leakage.")
            + "To suppress this warning and use a rectangular window, explicitly set "
            "`window=torch.ones(n_fft, device=<device>)`.",
            stacklevel=4,
        )  # fmt: skip
        window = ones(width, dtype=input.dtype.to_real(), device=input.device)
    if window.dim() != 1 or window.shape[0] != width:
        raise RuntimeError(
            f"{name}: expected a 1D window tensor of size equal to win_length={width}, but got "
            f"window with size {list(window.shape)}"
        )
    if width == n_fft:
        return window
    left = (n_fft - width) // 2
    return pad(window, (left, n_fft - width - left))


def _is_onesided(input: Tensor, n_fft: int, onesided: bool | None) -> bool:
    if onesided is not None:
        return onesided
    return input.dim() < 2 or input.shape[FREQUENCIES] != n_fft


def _check_spectra(input: Tensor, n_fft: int, hop: int, width: int, onesided: bool) -> None:
    if input.dim() not in (2, 3):
        raise RuntimeError(f"istft: expected a tensor of 2 or 3 dims, but got {input.dim()}")
    if not input.numel():
        raise RuntimeError("istft: input tensor cannot be empty.")
    frequencies = n_fft // 2 + 1 if onesided else n_fft
    if input.shape[FREQUENCIES] != frequencies:
        raise RuntimeError(
            "istft: expected the frequency dimension (3rd to the last) of the input tensor to "
            f"match n_fft{' / 2 + 1' if onesided else ''} when onesided={onesided}, but got "
            f"{input.shape[FREQUENCIES]}, want {frequencies}"
        )
    if not 0 < hop <= width:
        raise RuntimeError(f"istft: expected 0 < hop_length <= win_length, but got {hop}")
    _check_width("istft", n_fft, width)


# Transforms ---------------------------------------------------------------------------------------


def _spectra(frames: Tensor, normalized: bool, onesided: bool) -> Tensor:
    last, how = (frames.dim() - 1,), int(normalized)
    if frames.dtype.is_complex:
        return recorded.fft_c2c(frames, last, how, True)
    return recorded.fft_r2c(frames, last, how, onesided)


def _added_up(frames: Tensor, size: int, hop: int) -> Tensor:
    """Windows (..., count, n_fft) added where they lie in a signal (..., size)."""
    lead, n_fft = frames.shape[:-2], frames.shape[-1]
    return recorded.unfold_backward(frames, (*lead, size), len(lead), n_fft, hop)


METHODS = {"stft": stft, "istft": istft}
