"""Registers, spilled registers and shared memory of each written kernel, as NVRTC compiles them.

No GPU is needed. A source is compiled for the dtypes and sizes of its module's `SOURCE`; what is
compiled for others is checked in tests, a part of it each.

    python -m benchmarks.resources [--check] [--only REGEX] [--json FILE]

--check fails where a kernel spills registers, or has more than 48 KiB of shared memory.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path

from benchmarks.common import provenance
from tests.backends import cuda_toolchain as toolchain


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="fail where a limit is passed")
    parser.add_argument("--only", default="", help="modules whose name has this")
    parser.add_argument("--json", help="a file for the numbers")
    options = parser.parse_args()
    lines, failures = [], []
    architectures = toolchain.ARCHITECTURES
    heads = [f"sm_{arch} {what}" for arch in architectures
             for what in ("registers", "stack", "spilled", "shared")]  # fmt: skip
    print("| kernel | " + " | ".join(heads) + " |\n|---|" + "---|" * len(heads))
    for module in toolchain.kernel_modules():
        short = module.__name__.partition(".kernels.")[2]
        if not re.search(options.only, short):
            continue
        for source in toolchain.sources_of(module).values():
            needs = [toolchain.resources(toolchain.compiled(source, arch)[1])
                     for arch in architectures]  # fmt: skip
            for name in needs[0]:
                row = [each[name] for each in needs]
                cells = [str(x) for each in row for x in each]
                print(f"| {short}: {name} | " + " | ".join(cells) + " |")
                for arch, each in zip(architectures, row):
                    lines.append({"module": short, "kernel": name, "arch": arch, **each._asdict()})
                    try:
                        toolchain.check(f"{name} for sm_{arch}", each)
                    except AssertionError as error:
                        failures.append(str(error))
    if options.json:
        Path(options.json).write_text(json.dumps({**provenance(), "kernels": lines}, indent=1))
    print(*failures, sep="\n", end="\n" * bool(failures))
    return int(options.check and bool(failures))


if __name__ == "__main__":
    sys.exit(main())
