"""The command line: `python -m cugrad.as_torch program.py ...`."""

import sys

from ..alias.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
