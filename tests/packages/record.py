"""Writes references.json: what the programs compute with PyTorch. Run it where both are installed.

PYTHONPATH=. python tests/packages/record.py [NAME ...]
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

FILE = Path(__file__).with_name("references.json")


def main(names: list[str]) -> None:
    from tests.packages.programs import PROGRAMS

    references = json.loads(FILE.read_text()) if FILE.exists() else {}
    for name in names or PROGRAMS:
        run = subprocess.run([sys.executable, "-m", "tests.packages.programs", name],
                             capture_output=True, text=True)  # fmt: skip
        lines = [line for line in run.stdout.splitlines() if line.startswith('{"name"')]
        line = json.loads(lines[-1]) if lines else {"error": run.stderr}
        if "error" in line:
            raise SystemExit(f"{name}: {line['error']}")
        references[name] = {what: [float(f"{x:.7g}") for x in numbers]
                            for what, numbers in line["numbers"].items()}  # fmt: skip
    FILE.write_text(json.dumps(references, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
