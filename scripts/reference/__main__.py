"""Writes the pages of docs/reference from the sources: `python -m scripts.reference`, or `make reference`.

Each module of this package makes one page, or several that belong together, as text. With `--check` nothing is written, and the exit
code is 1, after a diff, if a page is stale. A page that no module makes any more is removed; `index.md` is written by hand.
"""

from __future__ import annotations

import sys

from scripts.generated import ROOT, put, wants_check
from scripts.reference import cli, environment, exit_codes, http_interface, journal_events, messages, metrics, python_api

FOLDER = ROOT / "docs" / "reference"
MODULES = (cli, python_api, http_interface, environment, journal_events, metrics, exit_codes, messages)
BY_HAND = "index.md"
COMMAND = "make reference (python -m scripts.reference)"
NOTE = "<!-- Written by `make reference` from the sources. Change these, not this page. -->"


def pages() -> dict[str, str]:
    """The text of each page, by its path in docs/reference."""
    made = {name: text for module in MODULES for name, text in module.pages().items()}
    return {name: _noted(text) for name, text in made.items()}


def _noted(text: str) -> str:
    title, _, rest = text.partition("\n")
    return f"{title}\n\n{NOTE}\n{rest.rstrip()}\n"


def main() -> int:
    check = wants_check(__doc__)
    made = pages()
    stale = [name for name, text in made.items() if put(FOLDER / name, text, check=check, command=COMMAND)]
    for page in FOLDER.rglob("*.md"):
        if (name := page.relative_to(FOLDER).as_posix()) not in {*made, BY_HAND}:
            stale.append(name)
            print(f"{page.relative_to(ROOT)} is not made any more")
            if not check:
                page.unlink()
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
