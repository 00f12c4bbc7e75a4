"""`python -m scripts.evidence`: write the pages of `docs/evidence` from their results (`store.py`) and their templates (`page.py`).

With `--check` nothing is written, and the exit code is 1, after a diff, if a page is stale.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from scripts.evidence.page import write
from scripts.evidence.store import FOLDER, PAGES


def main(argv: list[str] | None = None, folder: Path = FOLDER) -> int:
    parser = argparse.ArgumentParser(prog="python -m scripts.evidence", description="Write the pages of docs/evidence.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a page is stale")
    check: bool = parser.parse_args(argv).check
    stale = [write(page, check, folder) for page in PAGES]
    return int(any(stale))


if __name__ == "__main__":
    sys.exit(main())
