"""Saved tensors that wait in files.

`context` has `save_on_disk`; begin there. `store` keeps blocks in `files`, and in memory what is on
its way (`transfers`); `direct_storage` goes from the GPU to the disk without the host. The other
rooms of `memory` import `store`.
"""
