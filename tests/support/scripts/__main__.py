"""Looks for news: `python -m tests.support.scripts --seed 1 --count 100`, or `--seconds 600`."""

from __future__ import annotations

import argparse
import time

from .drawing import draw
from .running import difference_of, shortened


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.support.scripts", description=__doc__)
    parser.add_argument("--seed", type=int, default=time.time_ns() // 1_000_000_000)
    parser.add_argument("--count", type=int, default=10**9)
    parser.add_argument("--seconds", type=float, default=0)
    parser.add_argument("--show", action="store_true", help="print each script")
    options = parser.parse_args()
    began, done, differences = time.monotonic(), 0, 0
    while done < options.count:
        if options.seconds and time.monotonic() - began > options.seconds:
            break
        script = draw(options.seed + done)
        if options.show:
            print("\n".join(script))
        found = difference_of(script)
        if found is not None:
            differences += 1
            script, found = shortened(script, found)
            print(f"# seed {options.seed + done}: {found}", *script, "", sep="\n", flush=True)
        done += 1
    print(f"from seed {options.seed}: {done} scripts, {differences} differences")
    return 1 if differences else 0


if __name__ == "__main__":
    raise SystemExit(main())
