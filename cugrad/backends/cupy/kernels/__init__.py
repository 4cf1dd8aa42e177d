"""CUDA sources, one module each: `SOURCE` is the text, `NAMES` are the kernels in it.

A module here holds strings and imports nothing of CuPy, so that tests compile every source without
a GPU. Device functions use nothing that a host compiler could not be given, so that tests run
their numbers too.
"""

from __future__ import annotations
