"""`python -m tests.conformance.fuzz FOLDER`: writes drawn scripts into a folder, for `python -m tests.conformance --scripts FOLDER`."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from tests.conformance.fuzz.composing import composed
from tests.conformance.fuzz.drawing import drawn, of_the_environment, summary, write


def main() -> None:
    count, number = of_the_environment()
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.fuzz", description="Writes drawn scripts that hide state.")
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("--count", type=int, default=count, help="how many; default: %(default)s")
    parser.add_argument("--seed", type=int, default=number, help="default: %(default)s")
    parser.add_argument("--alone", type=int, nargs="*", default=[], metavar="N", help="each state of these scripts by itself, no others")
    args = parser.parse_args()
    scripts = drawn(args.count, args.seed)
    for place, script in enumerate(scripts):
        name = f"drawn_{args.seed}_{place:03}"
        if not args.alone:
            write(composed(script), args.folder / f"{name}.py")
        elif place in args.alone:
            for state, hidden in script.names.items():
                write(composed(replace(script, hidden=(hidden,))), args.folder / f"{name}_{state}.py")
    for name, value in summary(scripts).items():
        print(f"{name}: {', '.join(value) if isinstance(value, list) else value}")


if __name__ == "__main__":
    main()
