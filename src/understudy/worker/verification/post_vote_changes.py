"""Rank-local values that change after the vote: found, reported, and handed over again where that happens.

A copy goes to the buddies with the vote. Changes between the vote and the next begin (a random number drawn by the optimizer, or
between two steps) would be lost with their rank. So at fixed points after the vote each rank checks whether its rank-local state has
changed. The first time it reports that to the user; its next vote reports it to the other ranks, and from then on every rank hands its
copy over again at that point. A loss in between loses that one change of what is registered; so after the first transactions, when this
is not known yet, every rank hands over at every point. One such point is right before each transaction, for changes in the body of a
loop: a newcomer runs that code too, but the copy overwrites its results.

Unregistered values, the streams and the positions of iterators belong to one moment: that of the vote, or of the last point after it,
except the points before a transaction. A newcomer sets them where it passes that moment, and runs on from there (`recovery.newcomer`).

Nothing changes after the vote of most scripts, and reading values costs time. So after a number of transactions without a finding a
rank checks its values only where it reads them anyway, before a transaction. If it finds something, it checks at every point from then
on.

Each copy lists the points at which it was handed over again. A newcomer compares them with those of the donors, and reports the points that
its rank had not reached. Donors publish digests of their values at the vote, at each such point and now: a rank that had the lost rank's
value of a shared entry at one of these is its replica.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum

from understudy.messages import transactions
from understudy.worker.census.stores import called
from understudy.worker.encoding.messages import BuddyCopy, ScriptPosition
from understudy.worker.generation.context import RankContext
from understudy.worker.participant import Participant, Reduce, Step, VoteField, VoteResult
from understudy.worker.state.rank_local import POSITION, STREAM
from understudy.worker.state.unregistered import PREFIX

POINTS = 16  # points of a script that are distinguished
EARLY = 2  # transactions after whose votes all ranks hand over at every point
CLOSELY = 16  # transactions in which values are checked at every point, at first
_CHANGES = "changes after votes"
_NOWHERE = (VoteField(_CHANGES, Reduce.ANY, 0),)


class Look(Enum):
    """What is always checked at a point."""

    AT_STREAMS = 0
    AFTER = 2  # after a transaction: what has changed was changed in it; streams, too
    AT_VALUES = 1  # never streams: a newcomer draws again what its rank has drawn on the way to this point


def after(function: str) -> str:
    """Return the point right after a transaction."""
    return f"after {function}"


TOP = "between the last transaction and the top of the next iteration"


def is_inside(point: str) -> bool:
    """Return whether a change seen at `point` was made in the transaction itself."""
    return point.startswith(after(""))


class PostVoteChanges(Participant):
    """The points that this rank knows, numbered in order of appearance, which is the same on every rank; and the work there."""

    def __init__(self, context: RankContext, place: Callable[[], ScriptPosition] = list) -> None:
        """Take the context. `place`: returns that of the next transaction."""
        self._progress, self._membership = context.progress, context.membership
        self._local, self._notices = context.rank_state.local, context.notices
        self._place = place
        self.numbers: dict[str, int] = {}
        self.agreed: set[int] = set()  # all ranks hand over there
        self._found: set[int] = set()  # this rank has seen a change there
        self._seen = -1  # the transaction after which this rank has seen a change last
        self._committed = 0
        self.owed = False  # a loop has ended, and left names to hand over: right before the next transaction, where no rank is still in it
        self._passed: set[int] = set()  # points after the last vote, whether there was a hand-over or not

    def begin(self, step: Step) -> None:
        self.look(step.before, Look.AT_VALUES, step.values)

    def again(self, step: Step) -> None:
        """A newcomer passes here, too."""
        self.look(step.before, Look.AT_VALUES, step.values)

    def closed(self, step: Step) -> None:
        """Check also after a transaction that a loss has rolled forward: else its changes would be attributed to a later point."""
        self.look(after(step.function), Look.AFTER)

    def look(self, point: str, look: Look, values: Mapping[str, bytes] | None = None) -> None:
        """Hand over again what has changed since the vote, at points where that is known to happen; find new such points.

        `values`: present ones, as far as known.
        """
        copy = self._last_copy()
        if copy is None or self._progress.world_size == 1:
            return
        number = self.numbers.setdefault(point, len(self.numbers))
        if number >= POINTS:
            return
        self._passed.add(number)
        transaction = self._progress.transaction
        if number not in self.agreed and self._seen != transaction and (changed := self._changed(copy, point, look, values or {})):
            self._seen = transaction  # later points see this same change
            self._found.add(number)
            again = not is_inside(point) and all(name.startswith((STREAM, POSITION, PREFIX)) for name in changed)
            message = transactions.CHANGES_AND_RUNS_AGAIN if again else transactions.CHANGES_AFTER_VOTE
            self._notices.tell(message(names=", ".join(map(called, changed)), point=point))
        owed = self.owed and look is Look.AT_VALUES
        if number in self.agreed or transaction <= EARLY or owed:
            self.owed = self.owed and not owed
            self._hand_over(copy, look, number)

    def _changed(self, copy: BuddyCopy, point: str, look: Look, values: Mapping[str, bytes]) -> list[str]:
        closely, local = self._committed < CLOSELY or bool(self._found), self._local
        changed = [] if look is Look.AT_VALUES else local.drawn(copy)
        if not closely and look is not Look.AT_VALUES:
            return changed
        return [*changed, *local.changed(copy, values, look is Look.AFTER, self._came_by(copy, point))]

    def _came_by(self, copy: BuddyCopy, point: str) -> bool:
        """Return whether a loop of the job has begun since the `copy`: a newcomer itself runs what the script does before that loop."""
        if not copy.place or not (now := self._place()):
            return False
        inside = now[1] >= 0 or point == TOP
        return copy.place[0] != now[0] or (copy.place[1] < 0 and inside)

    def hand_over(self) -> None:
        """Hand over the last copy once more, because more belongs to it than was known at its vote. On all ranks at the same point."""
        copy = self._last_copy()
        if copy is not None:
            self._hand_over(copy, Look.AT_VALUES, POINTS)

    def _last_copy(self) -> BuddyCopy | None:
        return self._local.sealed.get(self._progress.transaction - 1)

    def _hand_over(self, copy: BuddyCopy, look: Look, number: int) -> None:
        membership, step = self._membership, self._progress.step
        earlier = copy if look is Look.AT_VALUES else None
        points = sorted({*copy.behind, number})
        fresh = self._local.make(copy.transaction, copy.place, step, copy.boundary, copy.results, after_vote=points, earlier=earlier)
        fresh.top = copy.top
        if membership.channel is None:
            return  # the generation is over: the copy is handed over after the recovery, like one that is lost on the way here
        try:
            membership.hand_over(fresh)
            membership.channel.receipt()
        except RuntimeError as error:
            if not membership.is_failure(error):
                raise
            membership.broken = membership.newest  # the next begin takes part in the recovery, and hands it over after that

    def committed(self, step: Step) -> None:
        self._committed += 1
        self._passed.clear()

    def after_vote(self) -> list[int]:
        """Return the points after the last vote, as far as the script has come, at which something is known to change."""
        return sorted(self._passed & (self._found | self.agreed))

    def missed(self, copy: BuddyCopy, after_vote: list[int]) -> list[str]:
        """Return those of `after_vote`, of another rank, that the rank of `copy` had not reached when it was lost."""
        return [point for point, number in self.numbers.items() if number in set(after_vote).difference(copy.behind)]

    def moment(self, copy: BuddyCopy) -> Look:
        """Return the last kind of point at which the copy of a rank was made again; AFTER also for one that is of the vote."""
        points = {number: point for point, number in self.numbers.items()}
        after_vote = [points.get(number, "") for number in copy.behind if not is_inside(points.get(number, ""))]
        return Look.AFTER if not after_vote else Look.AT_STREAMS if set(after_vote) == {TOP} else Look.AT_VALUES

    def vote_fields(self) -> Sequence[VoteField]:
        """Return a bit for every point at which this rank has seen a change."""
        if not self._found:
            return _NOWHERE
        return (VoteField(_CHANGES, Reduce.ANY, sum(1 << number for number in self._found)),)

    def voted(self, result: VoteResult) -> None:
        if bits := result[_CHANGES]:
            self.agreed |= {number for number in range(POINTS) if bits >> number & 1}
            self._found |= self.agreed

    def adopt(self, numbers: dict[str, int], agreed: list[int], after_vote: list[int], owed: bool) -> None:
        """Adopt, after a recovery, what one of the ranks knew: all must hand over at the same points."""
        self.owed = owed
        self.numbers = dict(numbers)
        self.agreed = set(agreed)
        self._passed = set(after_vote)
        self._found |= self.agreed
