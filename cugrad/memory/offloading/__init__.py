"""Saved tensors that wait in host memory, and come back by asynchronous copies, ahead of need.

`context` has `offload` and `save_on_cpu`; begin there. `engine` moves storages, by `outbound` to
the host and by `transfers` back; `session` knows the storages of one step, and what the last one
like it has taught (`learning`); `families` and `pieces` see to it that each byte leaves once;
`slab` and `staging` have the host's memory. `memory` alone is imported from outside, and `stats`.
"""
