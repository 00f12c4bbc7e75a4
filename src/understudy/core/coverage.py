"""Find the replicas of each part of the state, and split it among the donors.

Every rank names the *entries* of its state (a parameter, a moment, a scheduler) and gives a digest of each. Two ranks are replicas in an
entry as long as all comparisons found equal digests. Once they have differed, they are never replicas in it again. Equality may be a
coincidence (freshly zeroed moments). So comparisons are repeated, and the replicas of a lost rank must agree with each other when the state
is sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Digests = Mapping[str, int]  # entry -> digest, of one rank


@dataclass(frozen=True)
class Replicas:
    """For each entry, a class number per rank: equal numbers are replicas, -1 is a rank that does not have the entry."""

    classes: dict[str, tuple[int, ...]]

    def of(self, entry: str, rank: int) -> tuple[int, ...]:
        """Return the other ranks that hold the same content of `entry` as `rank`; empty if it is unknown or unique."""
        numbers = self.classes.get(entry)
        if numbers is None or numbers[rank] < 0:
            return ()
        return tuple(other for other, number in enumerate(numbers) if number == numbers[rank] and other != rank)

    def entries(self, rank: int) -> list[str]:
        return [entry for entry, numbers in self.classes.items() if numbers[rank] >= 0]

    def parted(self, later: Replicas) -> list[str]:
        """Return the entries in which replicas have diverged in `later`."""
        return [
            entry
            for entry, numbers in self.classes.items()
            if entry in later.classes and len(set(later.classes[entry]) - {-1}) > len(set(numbers) - {-1})
        ]

    def roles(self) -> tuple[tuple[int, ...], str]:
        """Return a role number for each rank, and the names of the entries with their holders.

        Ranks that hold entries of the same names have the same number. Gradients do not count, because they come and go.
        """
        holders = {entry: tuple(number >= 0 for number in row) for entry, row in self.classes.items() if not entry.endswith("/gradient")}
        kinds: dict[tuple[bool, ...], int] = {}
        roles = tuple(kinds.setdefault(held, len(kinds)) for held in zip(*set(holders.values()), strict=True))
        return roles, "\n".join(f"{entry} {held}" for entry, held in sorted(holders.items()))

    def local(self, rank: int) -> list[str]:
        """Return the entries of `rank` that no other rank has: its rank-local state."""
        return [entry for entry in self.entries(rank) if not self.of(entry, rank)]


def refine(known: Replicas | None, digests: Sequence[Digests]) -> Replicas:
    """Return the replica classes after one more comparison. `digests[r]` are those of rank r, all taken at the same boundary."""
    names: dict[str, None] = {name: None for table in digests for name in table}
    classes = {}
    for name in names:
        before = known.classes.get(name) if known else None
        numbers: dict[tuple[int, int], int] = {}
        row = []
        for rank, table in enumerate(digests):
            if name not in table:
                row.append(-1)
                continue
            key = (before[rank] if before else 0, table[name])
            row.append(numbers.setdefault(key, len(numbers)))
        classes[name] = tuple(row)
    return Replicas(classes)


@dataclass(frozen=True)
class Piece:
    """A range of bytes of one entry."""

    entry: str
    start: int
    stop: int


@dataclass(frozen=True)
class TransferMessage:
    """The pieces that one donor sends at once to one newcomer."""

    donor: int
    newcomer: int
    pieces: tuple[Piece, ...]

    @property
    def size(self) -> int:
        return sum(piece.stop - piece.start for piece in self.pieces)


def stripe(newcomer: int, sizes: Mapping[str, int], donors: Mapping[str, Sequence[int]], chunk: int, small: int) -> list[TransferMessage]:
    """Split the entries (sizes in bytes) evenly over all donors that have them, in messages of at most `chunk` bytes.

    Entries with the same donors form one run of bytes, which is cut into as many equal parts as there are donors. A range of at least
    `small` bytes is its own message, so that it needs no packing; smaller ones share messages. The result is the same on every rank,
    so donors and newcomer need not exchange it.
    """
    runs: dict[tuple[int, ...], list[str]] = {}
    for entry, who in donors.items():
        runs.setdefault(tuple(sorted(who)), []).append(entry)
    messages: list[TransferMessage] = []
    for who, entries in sorted(runs.items()):
        total = sum(sizes[entry] for entry in entries)
        share = -(-total // len(who)) if total else 0
        for number, donor in enumerate(who):
            low, high = number * share, min((number + 1) * share, total)
            messages += _cut(donor, newcomer, _ranges(entries, sizes, low, high), chunk, small)
    return messages


def _ranges(entries: Sequence[str], sizes: Mapping[str, int], low: int, high: int) -> list[Piece]:
    """Return the parts of the concatenated `entries` that lie in the bytes [low, high)."""
    found = []
    offset = 0
    for entry in entries:
        start, stop = max(low - offset, 0), min(high - offset, sizes[entry])
        offset += sizes[entry]
        if start < stop:
            found.append(Piece(entry, start, stop))
    return found


def _cut(donor: int, newcomer: int, ranges: Sequence[Piece], chunk: int, small: int) -> list[TransferMessage]:
    messages: list[TransferMessage] = []
    packed: list[Piece] = []
    filled = 0
    for whole in ranges:
        if whole.stop - whole.start >= small:
            for start in range(whole.start, whole.stop, chunk):
                messages.append(TransferMessage(donor, newcomer, (Piece(whole.entry, start, min(start + chunk, whole.stop)),)))
            continue
        packed.append(whole)
        filled += whole.stop - whole.start
        if filled + small > chunk:
            messages.append(TransferMessage(donor, newcomer, tuple(packed)))
            packed, filled = [], 0
    if packed:
        messages.append(TransferMessage(donor, newcomer, tuple(packed)))
    return messages
