"""The state that all ranks agree on, and that a newcomer is given: where the job goes on, and the results of comparisons so far."""

from __future__ import annotations

from understudy.core.coverage import Replicas
from understudy.messages import newcomers
from understudy.worker.data.loops import END, Loops
from understudy.worker.data.results import Results
from understudy.worker.encoding.messages import BuddyCopy, JobProgress, pack
from understudy.worker.generation.context import RankContext
from understudy.worker.verification.post_vote_changes import Look, is_inside
from understudy.worker.verification.verification import Verification


class AgreedState:
    def __init__(self, context: RankContext, loops: Loops, results: Results, verification: Verification) -> None:
        self._progress, self._rank_state = context.progress, context.rank_state
        self._loops, self._results = loops, results
        self._post_vote, self._comparison = verification.post_vote, verification.comparison

    def message(self) -> bytes:
        """Return a `JobProgress`, on the survivor that speaks for all."""
        local, gradients, unregistered = self._rank_state.local, self._rank_state.state.kept_gradients, self._rank_state.state.unregistered
        now = unregistered.encoded(None, closely=True)
        unseen = dict.fromkeys(now, b"") if unregistered.exact else now  # if it is unknown what they were, as they are
        return pack(
            JobProgress(
                place=END if self._progress.finished else self._loops.next_place(),
                transaction=self._progress.transaction,
                step=self._progress.step,
                steps_here=self._loops.steps_here,
                steps_before=self._loops.steps_before,
                steps_after=self._loops.steps_after,
                drained=self._loops.drained,
                results=self._results.encoded(),
                replicas=dict(local.replicas.classes) if local.replicas else {},
                comparisons=local.comparisons,
                compare_every=self._comparison.every,
                came=sorted(self._comparison.came),
                gradients_matter=gradients.matter,
                gradients_kept=gradients.kept,
                gradients_dropped=gradients.dropped,
                post_vote_points=self._post_vote.numbers,
                post_vote_agreed=sorted(self._post_vote.agreed),
                post_vote_behind=self._post_vote.after_vote(),
                post_vote_owed=self._post_vote.owed,
                ends=unregistered.ends,
                left=unregistered.left,
                top={**unseen, **unregistered.top},
                after={**unseen, **unregistered.after},
            )
        )

    def adopt(self, job: JobProgress) -> None:
        """Adopt the results of comparisons, on every member: after a failure some may know of one comparison more, and all must go on with
        the same.
        """
        self._rank_state.local.replicas = Replicas(job.replicas)
        self._rank_state.local.comparisons = job.comparisons
        self.adopt_points(job)

    def adopt_points(self, job: JobProgress) -> None:
        """Adopt the points of hand-overs after a vote: a newcomer uses them on its way, too."""
        self._post_vote.adopt(job.post_vote_points, job.post_vote_agreed, job.post_vote_behind, job.post_vote_owed)

    def missed(self, copy: BuddyCopy, job: JobProgress, again: bool) -> list[str]:
        """Return, one line each, what may have changed on the lost rank after its last vote, and is lost with it. On a newcomer with the
        `copy` of its rank. `again`: this newcomer has run what follows the transaction of the copy.
        """
        found = self._post_vote.missed(copy, job.post_vote_behind)
        inside = [point for point in found if not again or is_inside(point)]
        return [
            *(newcomers.CHANGE_LOST(point=point, transaction=copy.transaction) for point in inside),
            *(newcomers.CHANGE_RUN_AGAIN(point=point, transaction=copy.transaction) for point in found if point not in inside),
        ]

    def is_missed(self, copy: BuddyCopy, job: JobProgress) -> bool:
        """Return whether some of that was changed between two transactions, where a newcomer can run it again."""
        missed = self._post_vote.missed(copy, job.post_vote_behind)
        return self._post_vote.moment(copy) is Look.AFTER and not all(map(is_inside, missed))

    def is_of_begin(self, copy: BuddyCopy) -> bool:
        """Return whether the values in the `copy` of a rank are those with which it began the transaction that follows."""
        return self._post_vote.moment(copy) is Look.AT_VALUES

    def adopt_position(self, job: JobProgress) -> None:
        """Adopt the position, on a newcomer before it is brought up to date."""
        self._progress.transaction, self._progress.step = job.transaction, job.step
        gradients = self._rank_state.state.kept_gradients
        gradients.matter, gradients.kept, gradients.dropped = job.gradients_matter, job.gradients_kept, job.gradients_dropped

    def adopt_habits(self, job: JobProgress) -> None:
        """Adopt what the ranks have learned of the script, on a newcomer that is a rank like the others from now on."""
        self._comparison.every = job.compare_every
        self._comparison.came |= set(job.came)
        self._rank_state.state.unregistered.join(job.top, job.after, job.transaction)
