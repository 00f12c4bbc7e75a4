"""Reports the roles of ranks to the orchestrator, from rank 0. Ranks of one role have the same entries and issue the same collectives."""

from __future__ import annotations

from collections.abc import Sequence

from understudy.core.coverage import Replicas
from understudy.core.events import Registered
from understudy.worker.encoding.codec import encode
from understudy.worker.encoding.digests import digest_bytes
from understudy.worker.frameworks.base import Described
from understudy.worker.generation.context import RankContext
from understudy.worker.state.unregistered import is_unregistered


class RoleReports:
    def __init__(self, context: RankContext) -> None:
        self._progress, self._membership = context.progress, context.membership
        self._layouts, self._sequences = b"", list[int]()
        self._reported: tuple[tuple[int, ...], str] | None = None

    def heard(self, layouts: Sequence[Described], sequences: Sequence[int]) -> None:
        """Take the reports of all ranks, in order: the facts that steer their collectives for good, and a digest of those of their last
        step.
        """
        self._layouts, self._sequences = encode(list(layouts)), list(sequences)

    def report(self, replicas: Replicas) -> None:
        """Report roles, and a fingerprint of names and layouts, where they have changed. Nothing while a newcomer has committed no step."""
        if not replicas.classes or 0 in self._sequences:
            return
        roles, names = Replicas({entry: row for entry, row in replicas.classes.items() if not is_unregistered(entry)}).roles()
        kinds: dict[tuple[int, int], int] = {}
        roles = tuple(kinds.setdefault(one, len(kinds)) for one in zip(roles, self._sequences, strict=True))
        report = roles, f"{digest_bytes(names.encode() + self._layouts):016x}"
        if report != self._reported:
            self._reported = report
            control = self._membership.control
            control.send(Registered(control.worker, self._progress.generation, self._progress.step, *report))
