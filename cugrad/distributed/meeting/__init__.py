"""Where the ranks of a job meet: a few words over TCP, beside the engines that move data.

Rank 0 runs `server.py` in a thread, and each rank is a `member.py`. Ranks exchange what engines
need to begin, NCCL's identifier for one. A rank that waits in vain asks where the others are, and
the answer, or the end of a process, comes to all. Begin with `member.py`; `messages.py` is the
format, and `report.py` words what is told. `stores.py` has PyTorch's stores of keys and
values, and `agent.py` speaks with that of torchrun's.
"""
