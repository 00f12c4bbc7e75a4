"""The verdict on ranks whose states should be equal and are not: which one is odd, and the end of the generation for that."""

from __future__ import annotations

from collections.abc import Mapping

from understudy.core.coverage import Digests
from understudy.core.events import ReplicasDiffer
from understudy.core.judgement import Difference, differences, is_training_state
from understudy.messages import coverage
from understudy.worker.errors import GenerationAborted
from understudy.worker.generation.context import RankContext
from understudy.worker.generation.rank_state import StateSummary


class Judge:
    """Reaches the same verdict on every rank. No rank gives state to another before there are no differences."""

    def __init__(self, context: RankContext) -> None:
        self._progress, self._membership, self._local = context.progress, context.membership, context.rank_state.local

    def differences(self, summaries: Mapping[int, StateSummary]) -> list[Difference]:
        """Return the differences among the replicas of these ranks that are not a chance."""
        known = self._local.replicas
        if known is None:
            return []
        tables = {rank: there.digests for rank, there in summaries.items()}
        moved = {rank: there.moved for rank, there in summaries.items()}
        return differences(known, tables, moved, {rank: there.owners for rank, there in summaries.items()})

    def end_generation(self, generation: int, found: list[Difference], tables: Mapping[int, Digests]) -> None:
        """Report that replicas differ, and wait until `generation` is over for that. Raises `GenerationAborted`."""
        odd, sides, detail = self._verdict(found, tables)
        control = self._membership.control
        if self._progress.rank not in odd:
            control.send(ReplicasDiffer(control.worker, generation, odd, sides, detail))
        control.wait_for(lambda: self._membership.superseded(generation))
        raise GenerationAborted(f"generation {generation} ended: {detail}")

    def _verdict(self, found: list[Difference], tables: Mapping[int, Digests]) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...], str]:
        """Return the odd ranks, else the sides of a dispute, and the message."""
        known, transaction = self._local.replicas, self._progress.transaction
        assert known is not None
        open_ones = [one for one in found if not one.odd]
        if open_ones:
            one = open_ones[0]
            ranks = _ranks(sum(one.sides, ()))
            return (), one.sides, coverage.DISPUTED(entry=one.entry, of=_of(open_ones), ranks=ranks, transaction=transaction)
        odd = tuple(sorted({rank for one in found for rank in one.odd}))
        texts = []
        for rank in odd:
            mine = [one for one in found if rank in one.odd]
            others = _ranks(mine[0].sides[0])
            what: dict[str, object] = {"entry": mine[0].entry, "of": _of(mine), "rank": rank, "others": others, "transaction": transaction}
            texts.append(coverage.ODD(**what))
            alone = [e for e in known.entries(rank) if is_training_state(e) and not set(known.of(e, rank)) & tables.keys() - set(odd)]
            if alone:
                return (), mine[0].sides, coverage.ODD_BUT_ALONE(**what, alone=alone[0])
        return odd, (), "; ".join(texts)


def _of(found: list[Difference]) -> str:
    count = len({one.entry for one in found})
    return "one entry" if count == 1 else f"one of {count} entries"


def _ranks(ranks: tuple[int, ...]) -> str:
    return ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(map(str, sorted(ranks)))
