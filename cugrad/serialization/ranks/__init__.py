"""Checkpoints that many ranks write together, in PyTorch's format, and any number of ranks reads.

`saving.py` and `loading.py` have `save` and `load`: begin with them. What a rank writes and reads
is planned (`planner.py`, `default_planner.py`), and then done by a storage (`storage.py`,
`filesystem.py`); `metadata.py` is what a checkpoint knows of itself. Users import the names from
`cugrad.distributed.checkpoint`, at PyTorch's paths.
"""
