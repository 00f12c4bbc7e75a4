"""A redo proves itself: it must come to what the attempt before the loss had come to, bit by bit, where something is left of that.

A survivor that stood in its vote when the generation ended had all its collectives behind it: its gradients, buffers, values and streams
are those with which it would have committed. Before anything is restored it keeps their digests (`keep`), and compares at the vote of the
redo (`look`). No other comparison sees as much: if something that nobody registered feeds the step, every replica and the newcomer may well
agree about a redo that is wrong.

A difference goes with the vote, so that all ranks know of it before anybody has committed (`disputed`). The orchestrator holds the job, or,
if it knows why, lets it go on; either way the vote is then rolled forward like one that a loss has interrupted. If a loss does interrupt
it, that may be decided before anybody else knew; then this rank says so before it goes on (`told`), and others may have committed.

An attempt that a loss has interrupted on its way there is compared by what it had put into its collectives (`issued`).

Of several attempts the first one that came to its vote is what all later ones are compared with: as a rule nothing had been restored before
it, so it is what would have been committed. An attempt whose generation was over before it had come to its vote is never kept: its
collectives may have been ended, and what they gave may be anything.

Known limits: what a step changes beside its gradients, buffers, values and streams is compared in drills only, and a rank that was lost has
nothing to compare.

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

    digests: int  # that are those of the attempt before
    collectives: RedoCompared
    evidence: Evidence


class RedoProof(Participant):
    def __init__(self, context: RankContext, issued: IssuedCollectives) -> None:
        self._issued = issued
        self._progress, self._membership, self._rank_state = context.progress, context.membership, context.rank_state
        self._before: DrilledMoment | None = None  # of the first attempt at this transaction that came to its vote
        self._original = False  # it was the first attempt of all: a redo is no evidence for another
        self._written: frozenset[str] = frozenset()  # what was known, then, to change in front of the vote
        self._differs = ""  # in what the running attempt does
        self._said = False  # ... and the orchestrator was told
        self._compared = 0
        self._collectives = NOTHING_COMPARED
        self._evidence = Evidence.FIRST

    def keep(self, attempt: int) -> None:
        """The attempt that stands in its vote is to be redone, and nothing is restored yet. `attempt`: its number, from 0."""
        if self._before is None:
            self._original = not attempt
            self._written = frozenset(self._rank_state.pre_vote.entries)
            self._before = moments.at_vote(self._rank_state, self._written)

    def attempt(self, step: Step) -> None:
        if step.skipped:
            self._before = None

    def before_vote(self, step: Step) -> None:
        """An attempt has come to its vote. Where the one before it had, too, what went into collectives on the way does not count: what
        they have both come to says more."""
        self._said, issued = False, self._issued
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
        """Return the evidence of this redo. `digests`: that are those of the attempt before. A newcomer's own attempts are no evidence of
        what the lost worker would have computed."""
        if self._differs:
            return Evidence.DIFFERENT
        if digests:
            return Evidence.SAME
        found = self._issued.found
        return Evidence.SAME if (found.evident if self._issued.is_new else found.compared.collectives) else Evidence.NOTHING

    def vote_fields(self) -> Sequence[VoteField]:
        return (VoteField(DIFFERS, Reduce.GREATEST, int(bool(self._differs))),)

    def disputed(self) -> None:
        """The redo of a rank, perhaps of this one, differs. Waits until the generation is over for that. Raises `GenerationAborted`."""
        generation = self._progress.generation
        self._end(generation)
        raise GenerationAborted(f"generation {generation} ended: a redo has not come to what it had come to before")

    def told(self, decision: Recover) -> Recover:
        """The vote is to be rolled forward. Gives what is decided when the orchestrator knows of a difference."""
        if self._differs and not self._said and decision.start > self._progress.transaction:
            self._end(decision.generation)
            return self._membership.quiesce()
        return decision

    def _end(self, generation: int) -> None:
        control, progress = self._membership.control, self._progress
        if self._differs:
            self._said = True
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
        """What was redone since the last report; once, at its commit."""
        found = Redone(self._compared, self._collectives, self._evidence)
        self._compared, self._collectives, self._evidence = 0, NOTHING_COMPARED, Evidence.FIRST
        return found
