"""Write generated parts of the documentation: between two markers, checked by the tests."""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def write(script: str, page: Path, made: Callable[[], str], description: str | None, argv: list[str] | None = None) -> int:
    """Write the result of `made` between the markers of `script` (its path in the project) in `page`. With `--check` nothing is written,
    and the exit code is 1, after a diff, if the page is stale.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if the page is stale")
    check: bool = parser.parse_args(argv).check
    begin, end = f"<!-- from here to the next marker: {script} -->", f"<!-- end of what {script} writes -->"
    old = page.read_text()
    before, found, rest = old.partition(begin)
    _, ended, after = rest.partition(end)
    if not (found and ended):
        sys.exit(f"{page} lacks the line {end if found else begin}")
    new = f"{before}{begin}\n\n{made()}\n\n{end}{after}"
    if check:
        name = page.relative_to(ROOT)
        diff = list(
            difflib.unified_diff(old.splitlines(), new.splitlines(), f"{name} as it is", f"{name} as it would be", lineterm="", n=0)
        )
        if diff:
            print("\n".join(diff[:40]), *(["..."] if len(diff) > 40 else []), f"run: python {script}", sep="\n")
        return int(bool(diff))
    page.write_text(new)
    return 0
