"""`python -m scripts.evidence`: write the pages of `docs/evidence` from their results (`store.py`) and their templates (`page.py`).

With `--check` nothing is written, and the exit code is 1, after a diff, if a page is stale.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from scripts.evidence.page import document
from scripts.evidence.store import FOLDER, PAGES, load
from scripts.generated import difference


def main(argv: list[str] | None = None, folder: Path = FOLDER) -> int:
    parser = argparse.ArgumentParser(prog="python -m scripts.evidence", description="Write the pages of docs/evidence.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a page is stale")
    check: bool = parser.parse_args(argv).check
    stale = [write(page, check, folder) for page in PAGES]
    return int(any(stale))


def write(page: str, check: bool = False, folder: Path = FOLDER) -> bool:
    """Return whether the page is stale, which it only is with `check`."""
    path, new = folder / f"{page}.md", document(page, load(page, folder))
    if check:
        old = path.read_text() if path.exists() else ""
        return difference(f"docs/evidence/{page}.md", old, new, "python -m scripts.evidence")
    path.write_text(new)
    return False


if __name__ == "__main__":
    sys.exit(main())
