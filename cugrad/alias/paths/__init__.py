"""PyTorch's import paths that exist only while cugrad is called torch, and their contents.

A file is called as the path is. What it has either needs nothing of PyTorch's engines, or gives
back what it gets. Begin with `torch_version.py`.
"""
