"""Compare what the ranks of two runs have recorded after their commits (`worker.recorder`).

Both runs are undisturbed up to the kill. What differs before it shows nothing about a recovery: if the training itself differs, there is
no verdict; if only unregistered entries differ, such as a result that is a time, they are left out after the kill, too, and are named.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from understudy.common.names import RECORD
from understudy.messages import script_check

UNREGISTERED = "script:"  # prefix of entries that are not registered
STREAM = "the random stream "
_TRAINED = ("/parameter/", "/state/", "/buffer/", "/tensor", "/gradient")


@dataclass(frozen=True)
class Commit:
    """One commit of one rank. `digests`: by entry; `shown`: short values, as text; `opaque`: the type of a result that cannot be read."""

    rank: int
    transaction: int
    step: int
    kind: str
    function: str
    opaque: str
    digests: dict[str, int]
    shown: dict[str, str]

    @property
    def place(self) -> tuple[int, int]:
        return self.rank, self.transaction

    @property
    def what(self) -> str:
        return f"{self.kind} {self.function}, with {self.step} steps committed"


@dataclass(frozen=True)
class Records:
    """All records of one run."""

    commits: tuple[Commit, ...]
    registered: dict[str, str]  # names and types
    tensors: int = 0
    bytes: int = 0
    # Files that a set-up has read and that have changed since the check began, with the time of the change in ns since the epoch.
    read: tuple[tuple[str, int], ...] = ()

    @staticmethod
    def of(run_dir: Path) -> Records:
        lines = [line for path in sorted((run_dir / RECORD).glob("*.jsonl")) for line in _lines(path)]
        about: dict[str, Any] = next((line for line in lines if "registered" in line), {"registered": {}})
        read = tuple((line["read"], line["changed"]) for line in lines if "read" in line)
        return Records(tuple(Commit(**line) for line in lines if "rank" in line), **about, read=read)

    def read_before(self, began: int) -> list[str]:
        """Return the files that this run has read and an earlier run has written. `began`: start of this run, in ns since the epoch."""
        return sorted({path for path, changed in self.read if changed < began})

    @property
    def steps(self) -> int:
        """The last step that every recorded rank has committed."""
        last: dict[int, int] = {}
        for commit in self.commits:
            last[commit.rank] = max(commit.step, last.get(commit.rank, 0))
        return min(last.values(), default=0)

    @property
    def adopted(self) -> list[str]:
        """The unregistered entries that the runtime has adopted, because the training may depend on them."""
        entries = sorted({entry for commit in self.commits for entry in commit.digests})
        found = [entry.rpartition(":")[2] for entry in entries if entry.startswith(UNREGISTERED)]
        return [*found, *(entry.removeprefix(STREAM) for entry in entries if entry.startswith(STREAM) and "in the script: " in entry)]


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_text().splitlines(keepends=True):
        if line.endswith("\n"):  # else its writer was killed in the middle of a line
            yield json.loads(line)


def called(entry: str) -> str:
    """Return an entry's name for people."""
    return f"{entry.rpartition(':')[2]} of the script" if entry.startswith(UNREGISTERED) else entry


@dataclass(frozen=True)
class Difference:
    """A difference at one commit of one rank. `there`: the text in the reference, `here`: in the run with the kill; empty if it is not
    short.
    """

    rank: int
    step: int
    entry: str
    there: str = ""
    here: str = ""

    @property
    def text(self) -> str:
        values = f" ({self.there or '...'} undisturbed, {self.here or '...'} with the kill)" if self.there or self.here else ""
        return script_check.VALUE_DIFFERS(rank=self.rank, step=self.step, entry=called(self.entry), values=values)

    @property
    def of_training(self) -> bool:
        return self.entry.startswith(STREAM) or any(part in self.entry for part in _TRAINED)


@dataclass
class Comparison:
    digests: int = 0  # equal ones after the kill
    steps: set[int] = field(default_factory=set)  # steps in which equal digests were recorded
    before: list[Difference] = field(default_factory=list)
    after: list[Difference] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)  # in words: what only one of the two runs has recorded
    left_out: set[str] = field(default_factory=set)  # entries that differ without a recovery, and results that cannot be read

    @property
    def irreproducible(self) -> list[Difference]:
        """The differences that make the comparison worthless: those before the kill."""
        return [found for found in self.before if found.of_training]


def unlike_unregistered(one: Records, other: Records, last: int) -> set[str]:
    """Return the unregistered entries that differ between two runs up to step `last`."""
    there = {commit.place: commit for commit in one.commits if commit.step <= last}
    pairs = [(there[commit.place], commit) for commit in other.commits if commit.place in there]
    return {found.entry for pair in pairs for found in _differences(*pair) if found.entry.startswith(UNREGISTERED)}


def compare(
    reference: Records,
    found: Records,
    transaction: int,
    last: int,
    left_out: Collection[str] = (),
    unrecorded: Collection[tuple[int, int]] = (),
) -> Comparison:
    """Compare two runs from the first commit up to step `last`.

    `transaction`: the one in which a rank was killed and the recovery began. `left_out`: entries that differ between two undisturbed runs.
    `unrecorded`: commits, by rank and transaction, of ranks that were killed after their vote; the newcomer continues after
    them, and its state is recorded with its next commit.
    """
    result = Comparison()
    there = {commit.place: commit for commit in reference.commits if commit.step <= last}
    here = [commit for commit in found.commits if commit.step <= last]
    for place in sorted((there.keys() ^ {commit.place for commit in here}).difference(unrecorded)):
        run = "undisturbed" if place in there else "with the kill"
        result.missing.append(script_check.RECORDED_ONCE(rank=place[0], transaction=place[1], run=run))
    both = sorted(((there[commit.place], commit) for commit in here if commit.place in there), key=lambda pair: pair[1].transaction)
    for one, other in both:
        if (one.kind, one.function, one.step) != (other.kind, other.function, other.step):
            where = {"rank": one.rank, "transaction": one.transaction}
            result.missing.append(script_check.RECORDED_OTHERWISE(there=one.what, here=other.what, **where))
        elif one.transaction < transaction:
            result.before += _differences(one, other)
    result.left_out = {difference.entry for difference in result.before if not difference.of_training} | set(left_out)
    for one, other in both:
        if one.transaction >= transaction:
            unlike = [difference for difference in _differences(one, other) if difference.entry not in result.left_out]
            result.after += unlike
            result.digests += len(one.digests.keys() & other.digests.keys() - result.left_out) - len(unlike)
            result.steps |= {one.step} if one.kind == "step" else set()
            opaque = one.opaque or other.opaque
            result.left_out |= {f"what {one.function} returns, a {opaque}"} if opaque else set()
    return result


def _differences(one: Commit, other: Commit) -> list[Difference]:
    """Return the differences of two commits. Unregistered entries count only if both have them: the runtime discovers them at different
    times.
    """
    entries = dict.fromkeys([*one.digests, *other.digests])
    unlike = [entry for entry in entries if one.digests.get(entry) != other.digests.get(entry)]
    both = one.digests.keys() & other.digests.keys()
    return [
        Difference(one.rank, one.step, entry, _text(one, entry), _text(other, entry))
        for entry in unlike
        if entry in both or not entry.startswith(UNREGISTERED)
    ]


def _text(commit: Commit, entry: str) -> str:
    return commit.shown.get(entry, "") if entry in commit.digests else "missing"
