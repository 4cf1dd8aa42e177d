"""Saved tensors that wait in host memory, and come back by asynchronous copies, ahead of need.

`context` has `offload` and `save_on_cpu`; begin there, and then read `span`: the life of what is
saved, as a diagram, from one of the `places` to the next. `engine` moves spans, by `outbound` to
the host, and back; `session` knows the spans of one step, and what the last step like it has taught
(`learning`); `nested_spans` and `coalescing` see to it that each byte leaves once; `slab` and
`staging` have the host's memory, `transfers` the threads that read and write files. From outside,
`memory` alone imports from here, and the profiler: `usage`, and what a node has saved.
"""
