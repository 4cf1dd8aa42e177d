"""Arrays of CuPy: the backend of NVIDIA's GPUs.

`backend` is what the protocol asks for, and the place to begin reading; `namespace` is CuPy as the
op table sees it; `stream` and `memory` are streams, events and pools; `gemm`, `windows`, `codecs`,
`random` and `nvtx` are what CuPy does not have, with CUDA sources in `kernels`; `probe` says why a
GPU cannot be used. Only here is CuPy imported.
"""
