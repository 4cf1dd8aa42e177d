"""Writes the type stubs in cugrad-stubs/.

`python -m tests.documents.stubs --write` after public functions, methods or names have changed; a
test fails until then, and what is out of date is listed. `--record`, where PyTorch is installed,
writes down its signatures anew.
"""

from __future__ import annotations

import argparse
import sys

from tests.documents.stubs.files import files
from tests.documents.stubs.recording import record
from tests.support import ROOT

STUBS = ROOT / "cugrad-stubs"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.documents.stubs", description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"write {STUBS.name}")
    parser.add_argument("--record", action="store_true", help="write down PyTorch's signatures")
    options = parser.parse_args()
    if options.record:
        record()
    texts = files()
    there = {p.relative_to(STUBS).as_posix(): p for p in STUBS.rglob("*") if p.is_file()}
    for path in there.keys() - texts.keys():
        print(f"{path} has no text any more")
    for path, text in texts.items():
        if path not in there or there[path].read_text() != text:
            print(f"{path} is out of date")
            if options.write:
                (STUBS / path).parent.mkdir(parents=True, exist_ok=True)
                (STUBS / path).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
