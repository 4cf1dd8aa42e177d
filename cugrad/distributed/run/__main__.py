"""The command line: `python -m cugrad.distributed.run --nproc-per-node 2 train.py ...`."""

import sys

from .launch import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
