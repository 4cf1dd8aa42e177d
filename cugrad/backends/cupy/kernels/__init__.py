"""CUDA sources, one module each: `SOURCE` is the text, `NAMES` are the kernels in it.

A module here holds strings and imports nothing of CuPy, so tests compile every source without a
GPU. Device functions are also valid C++ for the host, so tests run them, too. Begin with
`codecs.py`. Only `cugrad/backends/cupy` imports from here.
"""

from __future__ import annotations
