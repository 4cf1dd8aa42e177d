"""Who moves the data of collectives: MPI in host memory, NCCL between GPUs, one process by itself.

`protocol.py` is the seam: begin there. `mpi.py` is on mpi4py, `streams.py` on the communicators of
a backend, NCCL's on CUDA, and `alone.py` is a group of one process.
Groups choose an engine by the device of the tensors.
"""
