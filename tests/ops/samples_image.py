"""Sample lines of rows that turn windows of images into columns, and back."""

from __future__ import annotations

import itertools

import numpy as np

from tests.ops.sampling import sample


def _walk(size, kernel_size, dilation, padding, stride):
    """For each kernel element and window: its row, its column, and the pixel that it reads."""
    both = [v if isinstance(v, tuple) else (v, v) for v in (kernel_size, dilation, padding, stride)]
    kernel, dilations, paddings, strides = both
    counts = [
        (s + 2 * p - d * (k - 1) - 1) // step + 1
        for s, k, d, p, step in zip(size, kernel, dilations, paddings, strides)
    ]
    for row, cell in enumerate(itertools.product(*map(range, kernel))):
        for column, window in enumerate(itertools.product(*map(range, counts))):
            at = [w * step + c * d - p for w, step, c, d, p in
                  zip(window, strides, cell, dilations, paddings)]  # fmt: skip
            yield row, column, at, all(0 <= a < s for a, s in zip(at, size)), counts


def _im2col(xp, x, kernel_size, dilation, padding, stride):
    walk = list(_walk(x.shape[2:], kernel_size, dilation, padding, stride))
    columns = np.zeros((*x.shape[:2], np.prod(kernel_size), np.prod(walk[0][4])), x.dtype)
    for row, column, at, inside, _ in walk:
        if inside:
            columns[:, :, row, column] = x[:, :, at[0], at[1]]
    return columns.reshape(x.shape[0], -1, columns.shape[3])


def _col2im(xp, x, output_size, kernel_size, dilation, padding, stride):
    columns = x.reshape(x.shape[0], -1, np.prod(kernel_size), x.shape[2])
    result = np.zeros((*columns.shape[:2], *output_size), x.dtype)
    for row, column, at, inside, _ in _walk(output_size, kernel_size, dilation, padding, stride):
        if inside:
            result[:, :, at[0], at[1]] += columns[:, :, row, column]
    return result


def _torch_im2col(torch, x, kernel_size, dilation, padding, stride):
    return torch.nn.functional.unfold(x, kernel_size, dilation, padding, stride)


def _torch_col2im(torch, x, output_size, kernel_size, dilation, padding, stride):
    return torch.nn.functional.fold(x, output_size, kernel_size, dilation, padding, stride)


for _kernel, _dilation, _padding, _stride, _count in (
    ((2, 3), 1, 0, 1, 12), ((1, 2), 1, (1, 0), (2, 1), 12), ((2, 2), (2, 1), 1, (2, 3), 4),
    ((1, 1), 1, 0, 1, 20),
):  # fmt: skip
    _how = {"dilation": _dilation, "padding": _padding, "stride": _stride}
    _size = (5, 5) if _kernel == (2, 3) else (4, 5)
    sample("im2col", (2, 3, *_size), kernel_size=_kernel, **_how, reference=_im2col,
           torch=_torch_im2col)  # fmt: skip
    sample("col2im", (2, 2 * _kernel[0] * _kernel[1], _count), output_size=_size,
           kernel_size=_kernel, **_how, reference=_col2im, torch=_torch_col2im)  # fmt: skip
