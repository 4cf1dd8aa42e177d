"""Saved tensors that wait in host memory, and come back by asynchronous copies, ahead of need.

`context` has `offload` and `save_on_cpu`; begin there, and then read `span`: the life of what is
saved, as a diagram, from one of the `places` to the next. `engine` moves spans: `outbound` is the
way to the host, `inbound` the way back. `session` knows the spans of one step, and has a book of
what earlier steps have taught. `nested_spans` and `coalescing` make sure that each byte leaves
once. `slab` and `staging` have the host's memory. From outside, `memory` alone imports from here,
and the profiler, what a node has saved.
"""
