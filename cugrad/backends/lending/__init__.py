"""Memory that is not used again while someone still uses it.

`slab.py` has page-locked memory in large chunks. `pinned.py` gives parts of it to programs and
keeps them while a copy reads or writes them. `streams.py` keeps a device's memory that more
streams use than the one it was made on, and `ahead.py` copies from the first to that, on a
stream beside the one that waits. Rooms above import `pinned_memory`, `lent_memory` and the
classes of the slab from these files. Begin with `pinned.py`.
"""
