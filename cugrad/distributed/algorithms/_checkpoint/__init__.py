"""torch.distributed.algorithms._checkpoint: layers that are checkpointed by being wrapped.

`checkpoint_wrapper.py` names what stands in a higher room: begin there.
"""
