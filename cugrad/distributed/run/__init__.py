"""`python -m cugrad.distributed.run`: starts one script in several processes, as torchrun does.

`options.py` reads the command line, `launch.py` starts what it asks for: begin there. Scripts need
no change: each process has RANK, LOCAL_RANK, WORLD_SIZE and what else torchrun sets.
"""

from ...runtime.absent import explain
from .launch import main as main
from .options import get_args_parser as get_args_parser

__all__ = ["get_args_parser", "main"]

explain(__name__)
