"""Decide which of several diverged replicas is odd, if that can be decided.

Ranks that share an entry (`coverage.Replicas`) may diverge for two reasons. They were equal by chance (a moment that was still zero, a bias
of one pipeline stage and of another) and are simply different; or one of them is corrupt. So a difference is judged only if chance is ruled
out: these ranks have seen the entry's content change and were equal before and after, and they share the parameter to which it belongs,
because ranks that update another parameter may well update differently.

Of the ranks that shared an entry, the odd ones are those whose content differs from that of more than half of all. Half is not enough: of
two replicas, or of four that diverge in pairs, either may be right.

Known limits: an entry that never changes (a frozen parameter) is not judged; a majority that is corrupt in the same way, by the same cause,
is accepted as right.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from understudy.core.coverage import Digests, Replicas


@dataclass(frozen=True)
class Difference:
    """An entry that differs between ranks that shared it. `sides`: the ranks grouped by their content, the largest group first."""

    entry: str
    sides: tuple[tuple[int, ...], ...]

    @property
    def odd(self) -> tuple[int, ...]:
        """Return the ranks that differ from more than half of all; empty if there is no such majority."""
        first, *others = self.sides
        total = sum(map(len, self.sides))
        return tuple(sorted(rank for side in others for rank in side)) if 2 * len(first) > total else ()


def sides_of(digests: Mapping[int, int]) -> tuple[tuple[int, ...], ...]:
    """Group ranks by their digest."""
    groups: dict[int, list[int]] = {}
    for rank in sorted(digests):
        groups.setdefault(digests[rank], []).append(rank)
    return tuple(tuple(group) for group in sorted(groups.values(), key=lambda group: (-len(group), group)))


def differences(
    known: Replicas, tables: Mapping[int, Digests], moved: Mapping[int, Collection[str]], owners: Mapping[int, Mapping[str, str]]
) -> list[Difference]:
    """Return the entries in which replicas among the ranks of `tables` differ, and not by chance.

    `moved`: for each rank, the entries that it has seen change while they were equal on all its replicas. `owners`: for each rank, the
    parameter to which a moment belongs.

    A rank that should have an entry and does not differs from the others.
    """
    found = []
    parameters = [row for entry, row in known.classes.items() if is_parameter(entry)]
    whole = {rank: tuple(row[rank] for row in parameters) for rank in tables}
    proven: set[str] = set().union(*moved.values())
    for entry in sorted(proven):
        row = known.classes.get(entry)
        if row is None:
            continue
        shared: dict[object, dict[int, int]] = {}
        for rank, table in tables.items():
            if row[rank] >= 0:
                owner = owners[rank].get(entry, "")
                belongs = None if is_parameter(entry) else (owner, known.classes[owner][rank]) if owner in known.classes else whole[rank]
                shared.setdefault((row[rank], belongs), {})[rank] = table.get(entry, -1)
        for digests in shared.values():
            if len(set(digests.values())) > 1 and any(entry in moved.get(rank, ()) for rank in digests):
                found.append(Difference(entry, sides_of(digests)))
    return found


def is_training_state(entry: str) -> bool:
    """Return whether replicas keep this entry equal: parameters, moments, hyper-parameters; not gradients, buffers and the user's
    values.
    """
    return not entry.endswith("/gradient") and (is_parameter(entry) or "/state/" in entry or entry.endswith("/settings"))


def is_parameter(entry: str) -> bool:
    return "/parameter/" in entry and not entry.endswith("/gradient")
