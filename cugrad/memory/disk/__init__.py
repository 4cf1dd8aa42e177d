"""Saved tensors that wait in files.

`context` has `save_on_disk`; begin there. A `store` takes bytes and answers a `span` for them. It
keeps them in `files`, and in memory while they are on their way (`transfers`). `direct_storage`
goes from the GPU to the disk without the host. The other rooms of `memory` import `store`.
"""
