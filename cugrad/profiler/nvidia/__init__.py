"""What NVIDIA's tools see and know: ranges by NVTX, kernels and copies by CUPTI.

Each file has a context manager that observes ops and nodes. Begin with `nvtx.py`; `../itt.py`,
whose path is PyTorch's, does the same for Intel. `cugrad.profiler` gives both to users.
"""

from __future__ import annotations
