"""The pages of the documentation, and what is read from them: blocks of code, headings, the commands of the quickstart."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
QUICKSTART = ROOT / "docs" / "quickstart.md"
PAGES = [README, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TESTED = "runs the commands from here on -->"  # in the quickstart


@dataclass(frozen=True)
class Commands:
    """A block of shell commands, and the comment above it: `run by PATH` of a test, or `not run: REASON`."""

    page: Path
    text: str
    about: str

    @property
    def lines(self) -> list[str]:
        """The commands without comments; one that goes on in the next line is one."""
        joined = self.text.replace("\\\n", "")
        return [line for line in (re.sub(r"\s+#.*", "", line).rstrip() for line in joined.splitlines()) if line]


def commands(page: Path) -> list[Commands]:
    """Return all blocks of shell commands of a page."""
    text, found = page.read_text(), []
    for match in re.finditer(r"^```(?:sh|bash)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        before = text[: match.start()].rstrip().rpartition("\n")[2]
        about = re.fullmatch(r"<!-- (.*) -->", before)
        if page == QUICKSTART and TESTED in text[: match.start()]:
            found.append(Commands(page, match[1], "run by tests/integration/control/test_quickstart.py"))
        else:
            found.append(Commands(page, match[1], about[1] if about else ""))
    return found


def blocks(page: Path, language: str) -> list[str]:
    return [text for kind, text in FENCE.findall(page.read_text()) if kind == language]


def prose(page: Path) -> str:
    return FENCE.sub("", page.read_text())


def anchors(page: Path) -> set[str]:
    """Return the anchors that headings get, as GitHub makes them: a heading that comes again gets a number."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE):
        anchor = re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-")
        number = 0
        while (unique := anchor + f"-{number}" * bool(number)) in found:
            number += 1
        found.add(unique)
    return found


def quickstart_commands() -> list[str]:
    """Return the commands that the quickstart promises are tested, without comments."""
    text = QUICKSTART.read_text().partition(TESTED)[2]
    lines = [line for kind, block in FENCE.findall(text) if kind == "sh" for line in block.splitlines()]
    return [line.partition(" #")[0].strip() for line in lines]


def quickstart_script() -> str:
    (script,) = blocks(QUICKSTART, "python")
    return script


def script_for_torchrun() -> str:
    """Return the quickstart's script without what the README's diff adds and with what it removes."""
    (diff,) = blocks(README, "diff")
    script = quickstart_script()
    lines = script.splitlines()
    for removed, added in _changes(diff):
        assert script.count(added) == 1, f"the quickstart's script should have this once:\n{added}"
        script = script.replace(added, removed)
    for line in diff.splitlines():
        unchanged = line.startswith(" ") and "..." not in line
        assert not unchanged or line[1:] in lines, f"the README's diff has a line that the quickstart's script lacks: {line}"
    return script


def _changes(diff: str) -> list[tuple[str, str]]:
    """Return what each place of a diff removes and adds."""
    found = []
    for place in re.findall(r"(?:^[-+].*\n)+", diff, re.MULTILINE):
        sides = ["".join(line[1:] + "\n" for line in place.splitlines() if line.startswith(sign)) for sign in "-+"]
        found.append((sides[0], sides[1]))
    return found
