"""Proof of a redo: it must produce what the attempt before the loss had produced, bit by bit, as far as something is left of that.

A survivor that was in its vote when the generation ended had completed all its collectives: its gradients, buffers, values and streams
are those with which it would have committed. Before anything is restored it keeps their digests (`keep`), and compares at the vote of
the redo (`look`). No other comparison sees as much: if something unregistered feeds the step, every replica and the newcomer may well
agree about a redo that is wrong.

A difference goes with the vote, so that all ranks know of it before any has committed (`disputed`). The orchestrator pauses the job,
or, if it knows the reason, lets it go on; either way the vote is then rolled forward like one that a loss has interrupted. If a loss
does interrupt it, that may be decided before another rank knew; then this rank reports it before it goes on (`reported`), and others may
have committed.

An attempt that a loss has interrupted before its vote is compared by the inputs of its collectives (`issued`).

Of several attempts all later ones are compared with the first that reached its vote: as a rule nothing had been restored before it, so
it is what would have been committed. An attempt whose generation was over before it had reached its vote is never kept: its collectives
may have been ended, with any result.

Known limits: what a step changes in addition to its gradients, buffers, values and streams is compared in drills only, and a rank that
was lost has nothing to compare.

A redo is not disputed if the cause is known: the last drill of the role found it not reproducible, a rank of the incident was corrupt, or
communication broke without a loss. `Committed` carries the number of equal digests, and the incident lists the ranks that have proven the
redo.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from understudy.core.commands import Recover
from understudy.core.events import RedoDiffers
from understudy.core.model import WORST_FIRST, Evidence
from understudy.worker.encoding.messages import DrilledMoment
from understudy.worker.errors import GenerationAborted
from understudy.worker.generation.context import RankContext
from understudy.worker.participant import Participant, Reduce, Step, VoteField
from understudy.worker.verification import step_digests as moments
from understudy.worker.verification.entries import NOTHING_COMPARED, RedoCompared
from understudy.worker.verification.issued import IssuedCollectives

DIFFERS = "a redo differs"
CAUSES = 3  # that are named with a difference


class Redone(NamedTuple):
    """What a rank has redone, as far as it was compared."""

    digests: int  # that equal those of the attempt before
    collectives: RedoCompared
    evidence: Evidence


class RedoProof(Participant):
    def __init__(self, context: RankContext, issued: IssuedCollectives) -> None:
        self._issued = issued
        self._progress, self._membership, self._rank_state = context.progress, context.membership, context.rank_state
        self._before: DrilledMoment | None = None  # of the first attempt at this transaction that reached its vote
        self._original = False  # it was the first attempt of all: a redo is no evidence for another
        self._written: frozenset[str] = frozenset()  # the entries known, then, to change before the vote
        self._differs = ""  # the difference of the running attempt
        self._reported = False  # ... and it was reported to the orchestrator
        self._compared = 0
        self._collectives = NOTHING_COMPARED
        self._evidence = Evidence.FIRST

    def keep(self, attempt: int) -> None:
        """Keep the digests of an attempt that is in its vote and will be redone, before anything is restored. `attempt`: from 0."""
        if self._before is None:
            self._original = not attempt
            self._written = frozenset(self._rank_state.pre_vote.entries)
            self._before = moments.at_vote(self._rank_state, self._written)

    def attempt(self, step: Step) -> None:
        if step.skipped:
            self._before = None

    def before_vote(self, step: Step) -> None:
        """Compare an attempt that has reached its vote. If the one before had, too, the inputs of collectives on the way do not count: the
        results of both are better evidence.
        """
        self._reported, issued = False, self._issued
        if step.skipped:  # nothing is computed
            self._differs = ""
            return
        self._collectives = issued.found.compared if issued.found.compared.of else self._collectives
        digests = 0
        if self._before is None:
            self._differs = issued.found.difference
        else:
            now = moments.at_vote(self._rank_state, self._written)
            found = moments.differences(now, self._before, moments.REDONE)
            self._differs = moments.joined(found)
            digests = self._compared = 0 if found or not self._original or issued.is_new else len(now.digests)
        if step.attempt or issued.is_new:
            self._evidence = min(self._evidence, self._found(digests), key=WORST_FIRST.index)

    def _found(self, digests: int) -> Evidence:
        """Return the evidence of this redo. `digests`: those that equal the attempt before. A newcomer's own attempts are no evidence of
        what the lost worker would have computed.
        """
        if self._differs:
            return Evidence.DIFFERENT
        if digests:
            return Evidence.SAME
        found = self._issued.found
        return Evidence.SAME if (found.evident if self._issued.is_new else found.compared.collectives) else Evidence.NOTHING

    def vote_fields(self) -> Sequence[VoteField]:
        return (VoteField(DIFFERS, Reduce.GREATEST, int(bool(self._differs))),)

    def disputed(self) -> None:
        """Report that the redo of a rank, perhaps of this one, differs, and wait until the generation is over for that. Raises
        `GenerationAborted`.
        """
        generation = self._progress.generation
        self._end(generation)
        raise GenerationAborted(f"generation {generation} ended: a redo differs from the attempt before")

    def reported(self, decision: Recover) -> Recover:
        """Report a difference before the vote is rolled forward. Returns the decision that takes it into account."""
        if self._differs and not self._reported and decision.start > self._progress.transaction:
            self._end(decision.generation)
            return self._membership.quiesce()
        return decision

    def _end(self, generation: int) -> None:
        control, progress = self._membership.control, self._progress
        if self._differs:
            self._reported = True
            partly, sure = self._before is None, self._before is None and self._issued.found.sure
            detail = f"{self._differs}{self._likely()}"
            control.send(RedoDiffers(control.worker, generation, progress.transaction, progress.step, detail, partly, sure))
        control.wait_for(lambda: self._membership.superseded(generation))

    def _likely(self) -> str:
        """Name the likely causes that the census knows."""
        known = self._rank_state.state.unregistered.uncovered(CAUSES)
        return f" (likely cause: {', '.join(known)}, changed by the script but not carried over)" if known else ""

    def committed(self, step: Step) -> None:
        self._before, self._differs = None, ""

    def report(self) -> Redone:
        """Return what was redone since the last report; once, at its commit."""
        found = Redone(self._compared, self._collectives, self._evidence)
        self._compared, self._collectives, self._evidence = 0, NOTHING_COMPARED, Evidence.FIRST
        return found
