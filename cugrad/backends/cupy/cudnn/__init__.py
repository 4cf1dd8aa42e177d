"""Convolutions by cuDNN, through the package nvidia-cudnn-frontend, where that is installed.

`frontend` finds the package and gives handles; `convolutions` makes graphs of one convolution each
and keeps them. Begin with `convolutions`. `cugrad/backends/cupy/written/convolution.py` asks for
them unless the environment says CUGRAD_CUDNN=0, and uses kernels of its own for the rest.
"""
