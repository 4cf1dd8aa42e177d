"""PyTorch's import paths that exist only while `torch` is cugrad, and what programs ask of them.

A file is called as the path is. What it has either needs nothing of PyTorch's engines, or gives
back what it gets. Begin with `torch_version.py`.
"""
