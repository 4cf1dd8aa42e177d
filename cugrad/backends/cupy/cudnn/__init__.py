"""Convolutions and attention by cuDNN, through the package nvidia-cudnn-frontend, where that is
installed.

`frontend` finds the package and gives handles; `graphs` builds graphs and keeps them by form;
`convolutions` and `attention` say what is in them. Begin with `convolutions`. Unless the
environment says CUGRAD_CUDNN=0, `cugrad/backends/cupy/written/sliding/convolution.py` asks for
them where there is cuDNN, and `cugrad/backends/cupy/written/attention.py` where a user puts it
first; kernels of our own do the rest.
"""
