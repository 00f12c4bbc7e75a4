"""The groups of ranks that a script has made. Rank 0 reports them to the orchestrator, which keeps some of them together in the network.

In a full comparison every rank lists the named groups whose first member it is; all of these are the groups of the job.

Known limits: a group is known from the first comparison after it was made. If very many ranks are in very many groups, the largest
groups are left out, because a message has a limit.
"""

from __future__ import annotations

from collections.abc import Iterable

from understudy.core.events import RankGroup
from understudy.worker.encoding.messages import GroupMembers

MOST = 100_000  # members of all groups together


def groups_of(heard: Iterable[list[GroupMembers]]) -> tuple[RankGroup, ...]:
    """Return the groups that all ranks have named: those with the fewest members first, each once."""
    found = {RankGroup(group.name, tuple(sorted(group.ranks))) for groups in heard for group in groups}
    fit: list[RankGroup] = []
    room = MOST
    for group in sorted(found, key=lambda group: (len(group.ranks), group.name, group.ranks)):
        room -= len(group.ranks)
        if room >= 0:
            fit.append(group)
    return tuple(fit)
