"""Documentation that a script writes: whole pages, or parts of pages between two markers. The tests check that it is not stale."""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MOST = 40  # lines of a diff that are printed


def put(page: Path, new: str, *, check: bool, command: str) -> bool:
    """Write `page`. With `check`, write nothing, and print how it differs. `command`: writes it. Return whether it was stale."""
    old = page.read_text() if page.exists() else ""
    if old == new:
        return False
    if not check:
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(new)
        return True
    name = page.relative_to(ROOT) if page.is_relative_to(ROOT) else page
    lines = old.splitlines(), new.splitlines()
    diff = list(difflib.unified_diff(*lines, f"{name} as it is", f"{name} as it would be", lineterm="", n=0))
    print("\n".join(diff[:MOST]), *(["..."] if len(diff) > MOST else []), f"run: {command}", sep="\n")
    return True


def wants_check(description: str | None, argv: list[str] | None = None) -> bool:
    """Return whether the command line has `--check`."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a page is stale")
    return bool(parser.parse_args(argv).check)


def write(script: str, page: Path, made: Callable[[], str], description: str | None, argv: list[str] | None = None) -> int:
    """Put what `made` returns between the markers of `script` (its path in the project) in `page`. With `--check` nothing is written,
    and the exit code is 1, after a diff, if the page is stale.
    """
    check = wants_check(description, argv)
    begin, end = f"<!-- from here to the next marker: {script} -->", f"<!-- end of what {script} writes -->"
    before, found, rest = page.read_text().partition(begin)
    _, ended, after = rest.partition(end)
    if not (found and ended):
        sys.exit(f"{page} lacks the line {end if found else begin}")
    stale = put(page, f"{before}{begin}\n\n{made()}\n\n{end}{after}", check=check, command=f"python {script}")
    return int(check and stale)
