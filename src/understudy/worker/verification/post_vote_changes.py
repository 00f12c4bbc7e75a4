"""Rank-local values that change behind the vote: found, told, and handed over again where that happens.

A copy goes to the buddies with the vote. What changes between the vote and the next begin (a random number drawn by the optimizer,
or between two steps) would be lost with its rank. So at fixed points behind the vote each rank looks whether its rank-local
state has changed. The first time it tells the user; its next vote tells the other ranks, and from then on every rank hands its
copy over again at that point. A loss in between loses what was registered of that one change; so behind the first transactions,
when nobody can know yet, every rank hands over at every point. One such point is right before each transaction, for what the
body of a loop changes there: a newcomer runs that code too, but what it computes is overwritten by the copy.

What nobody has registered, the streams and the positions of iterators belong to one moment: that of the vote, or of the last point behind
it but those before a transaction. A newcomer sets them where it comes by that moment, and runs on from there (`recovery.newcomer`).

Nothing changes behind the vote of most scripts, and reading values costs. So after a number of transactions without a finding a rank looks
at its values only where it reads them anyway, before a transaction. If it finds something, it looks at every point from then on.

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

POINTS = 16  # how many such points of a script are told apart
EARLY = 2  # transactions behind whose votes all ranks hand over at every point
CLOSELY = 16  # transactions in which values are looked at at every point, at first
_CHANGES = "changes after votes"
_NOWHERE = (VoteField(_CHANGES, Reduce.ANY, 0),)


class Look(Enum):
    """What is looked at in any case."""

    AT_STREAMS = 0
    AFTER = 2  # a transaction: what has changed was changed in it; and at streams
    AT_VALUES = 1  # and never at streams: a newcomer draws again what its rank has drawn on the way to this point


def after(function: str) -> str:
    """The point right behind a transaction."""
    return f"after {function}"


TOP = "between the last transaction and the top of the next iteration"


def is_inside(point: str) -> bool:
    """Whether what has changed by then was changed in the transaction itself."""
    return point.startswith(after(""))


class PostVoteChanges(Participant):
    """The points that this rank knows of, by number in order of appearance, which is the same on every rank; and what is done there."""

    def __init__(self, context: RankContext, place: Callable[[], ScriptPosition] = list) -> None:
        """`place`: of the next transaction."""
        self._progress, self._membership = context.progress, context.membership
        self._local, self._notices = context.rank_state.local, context.notices
        self._place = place
        self.numbers: dict[str, int] = {}
        self.agreed: set[int] = set()  # all ranks hand over there
        self._found: set[int] = set()  # this rank has seen a change there
        self._seen = -1  # the transaction behind which this rank has seen a change last
        self._committed = 0
        self.owed = False  # a loop has ended, and left names to hand over: right before the next transaction, where no rank is still in it
        self._passed: set[int] = set()  # points behind the last vote, whether it was handed over there or not

    def begin(self, step: Step) -> None:
        self.look(step.before, Look.AT_VALUES, step.values)

    def again(self, step: Step) -> None:
        """A newcomer comes along here, too."""
        self.look(step.before, Look.AT_VALUES, step.values)

    def closed(self, step: Step) -> None:
        """Look also after a transaction that a loss has rolled forward: else its changes would be attributed to a later point."""
        self.look(after(step.function), Look.AFTER)

    def look(self, point: str, look: Look, values: Mapping[str, bytes] | None = None) -> None:
        """Hands over again what has changed since the vote, at points where that is known to happen; finds new such points.

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
            told = transactions.CHANGES_AND_RUNS_AGAIN if again else transactions.CHANGES_AFTER_VOTE
            self._notices.tell(told(names=", ".join(map(called, changed)), point=point))
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
        """Whether a loop of the job has begun since the `copy`: a newcomer runs by itself what the script does in front of it."""
        if not copy.place or not (now := self._place()):
            return False
        inside = now[1] >= 0 or point == TOP
        return copy.place[0] != now[0] or (copy.place[1] < 0 and inside)

    def hand_over(self) -> None:
        """The last copy once more, because more belongs to it than was known at its vote. On all ranks at the same point."""
        copy = self._last_copy()
        if copy is not None:
            self._hand_over(copy, Look.AT_VALUES, POINTS)

    def _last_copy(self) -> BuddyCopy | None:
        return self._local.sealed.get(self._progress.transaction - 1)

    def _hand_over(self, copy: BuddyCopy, look: Look, number: int) -> None:
        membership, step = self._membership, self._progress.step
        earlier = copy if look is Look.AT_VALUES else None
        behind = sorted({*copy.behind, number})
        fresh = self._local.make(copy.transaction, copy.place, step, copy.boundary, copy.results, behind=behind, earlier=earlier)
        fresh.top = copy.top
        if membership.channel is None:
            return  # the generation is over: the copy is handed over behind the recovery, as one that comes no further than this
        try:
            membership.hand_over(fresh)
            membership.channel.receipt()
        except RuntimeError as error:
            if not membership.is_failure(error):
                raise
            membership.broken = membership.newest  # the next begin takes part in the recovery, and hands it over behind that

    def committed(self, step: Step) -> None:
        self._committed += 1
        self._passed.clear()

    def behind(self) -> list[int]:
        """The points behind the last vote, as far as the script has come, at which something is known to change."""
        return sorted(self._passed & (self._found | self.agreed))

    def missed(self, copy: BuddyCopy, behind: list[int]) -> list[str]:
        """Those of `behind`, of another rank, that the rank of `copy` had not come to when it was lost."""
        return [point for point, number in self.numbers.items() if number in set(behind).difference(copy.behind)]

    def moment(self, copy: BuddyCopy) -> Look:
        """The last kind of point at which the copy of a rank was made anew; AFTER also for one that is of the vote."""
        points = {number: point for point, number in self.numbers.items()}
        behind = [points.get(number, "") for number in copy.behind if not is_inside(points.get(number, ""))]
        return Look.AFTER if not behind else Look.AT_STREAMS if set(behind) == {TOP} else Look.AT_VALUES

    def vote_fields(self) -> Sequence[VoteField]:
        """A bit for every point at which this rank has seen a change."""
        if not self._found:
            return _NOWHERE
        return (VoteField(_CHANGES, Reduce.ANY, sum(1 << number for number in self._found)),)

    def voted(self, result: VoteResult) -> None:
        if bits := result[_CHANGES]:
            self.agreed |= {number for number in range(POINTS) if bits >> number & 1}
            self._found |= self.agreed

    def adopt(self, numbers: dict[str, int], agreed: list[int], behind: list[int], owed: bool) -> None:
        """After a recovery all ranks go on with what one of them knew: they must hand over at the same points."""
        self.owed = owed
        self.numbers = dict(numbers)
        self.agreed = set(agreed)
        self._passed = set(behind)
        self._found |= self.agreed
