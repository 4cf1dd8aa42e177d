"""Looks for news: `python -m tests.support.scripts --seed 1 --count 100`, or `--seconds 600`."""

from __future__ import annotations

import argparse
import time
from functools import partial

from tests.support.programs.__main__ import play_cuda


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.support.scripts", description=__doc__)
    parser.add_argument("--seed", type=int, default=time.time_ns() // 1_000_000_000)
    parser.add_argument("--count", type=int, default=10**9)
    parser.add_argument("--seconds", type=float, default=0)
    parser.add_argument("--show", action="store_true", help="print each script")
    parser.add_argument("--device", choices=["cpu", "simulated", "cuda"], default="cpu",
                        help="where cugrad runs; cuda is the CuPy that NumPy plays")  # fmt: skip
    parser.add_argument("--contexts", action="store_true",
                        help="beside itself in a context that changes no number")  # fmt: skip
    options = parser.parse_args()
    if options.device == "cuda":
        play_cuda()
    from .drawing import draw, draw_context
    from .running import difference_in, difference_of, shortened

    began, done, differences = time.monotonic(), 0, 0
    while done < options.count:
        if options.seconds and time.monotonic() - began > options.seconds:
            break
        seed = options.seed + done
        script, look = draw(seed), partial(difference_of, device=options.device)
        if options.contexts:
            context = draw_context(seed)
            look = partial(
                difference_in, context=context, device=options.device, looks=seed % 2 == 0
            )
        if options.show:
            print("\n".join(script))
        found = look(script)
        if found is not None:
            differences += 1
            script, found = shortened(script, found, look)
            if options.contexts:
                print(f"# in {context}")
            print(f"# seed {seed}: {found}", *script, "", sep="\n", flush=True)
        done += 1
    print(f"from seed {options.seed}: {done} scripts, {differences} differences")
    return 1 if differences else 0


if __name__ == "__main__":
    raise SystemExit(main())
