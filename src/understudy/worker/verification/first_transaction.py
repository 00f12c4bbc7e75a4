"""Compares what the ranks issue in the first transactions after a recovery, before a newcomer that computes something else does harm.

A newcomer's state is proven when it arrives; what it will do with it is not. If its collectives are not the survivors' (another branch,
another size, another layout of buckets), the best that could happen is a wrong result, and the library may end the process of a healthy
survivor. So in every generation that has newcomers, in the first transaction of each function (a step, an evaluation, ...),

- every collective is announced before it runs (`announcing`), and a difference is a message that names both sides;
- or, if it is a step and a drill has passed for all of them (`Recover.proven`), no rank waits: each keeps one number for each group
  (`verification.call_sequences`), and these are compared with the vote.

Either way nothing of that transaction is committed, on any rank, if there is a difference. Other transactions have none of these
checks.
"""

from __future__ import annotations

from understudy.core.commands import Recover
from understudy.worker.encoding.messages import CallSequences, pack, unpack
from understudy.worker.errors import UnderstudyError
from understudy.worker.generation.context import RankContext
from understudy.worker.participant import Participant, Step
from understudy.worker.transport.channel import SEQUENCES, Channel
from understudy.worker.transport.rendezvous import Rendezvous
from understudy.worker.verification.announcements import unlike_sequences
from understudy.worker.verification.announcing import Announcing
from understudy.worker.verification.call_sequences import Sequences
from understudy.worker.verification.deadlocks import BlockedCalls, explained


class FirstTransaction(Participant):
    def __init__(self, context: RankContext) -> None:
        self._progress, self._membership, self._notices = context.progress, context.membership, context.notices
        self._recovery: Recover | None = None  # the last one, if it has newcomers
        self._compared: set[tuple[str, str]] = set()  # kinds and functions of transactions since then
        self._calls: BlockedCalls | None = None
        self._announcing: Announcing | None = None
        self._sequences: Sequences | None = None

    def recovered(self, recovery: Recover) -> None:
        """Note that this worker is attached to that generation."""
        self._recovery = recovery if recovery.newcomers else None
        self._compared.clear()

    def attempt(self, step: Step) -> None:
        recovery, who = self._recovery, (self._progress.rank, self._membership.control.worker)
        if recovery is None or (step.kind, step.function) in self._compared:
            return
        self.end()
        if step.skipped:
            return  # it issues nothing, and the next one is the first
        if recovery.proven and step.kind == "step":
            self._sequences = Sequences(who)
            self._sequences.install()
            return

        def connect() -> Rendezvous:
            return self._membership.open_another_store(recovery, f"g{recovery.generation}-first-{self._progress.transaction}")

        self._calls = BlockedCalls(who[0], recovery.newcomers, connect, self._membership.groups.abort, self._notices.tell)
        self._announcing = Announcing(who, self._calls, connect)
        self._announcing.install()

    def before_vote(self, step: Step) -> None:
        """Check that all is issued. Raises `UnderstudyError` if something did not match, and the script has swallowed that."""
        if self._announcing is not None:
            self._announcing.let_go()
        self.refuse()

    def failed(self, step: Step, error: BaseException) -> None:
        try:
            if not isinstance(error, UnderstudyError):
                self.refuse()
        except UnderstudyError as raised:
            raise raised from error
        finally:
            self.end()

    def refuse(self) -> None:
        """Raise `UnderstudyError` if something did not match, in place of the error that followed from it."""
        if self._calls is not None:
            self._calls.refuse()

    def vote(self, channel: Channel) -> None:
        """Compare in a vote. Raises `UnderstudyError` if the ranks have not issued the same, `GenerationAborted` and `PeerLost`."""
        if self._announcing is not None:
            self._announcing.vote()
        if self._sequences is not None and self._recovery is not None:
            sequences = channel.gather(pack(self._sequences.message()), SEQUENCES)
            if found := unlike_sequences([unpack(CallSequences, data) for data in sequences]):
                raise UnderstudyError(explained(found, self._recovery.newcomers))

    def passed(self, step: Step) -> None:
        if self._recovery is None or (step.kind, step.function) in self._compared:
            return
        self.end()
        if not step.skipped:
            self._compared.add((step.kind, step.function))

    def end(self) -> None:
        """Note the end of the attempt."""
        if self._calls is not None:
            self._calls.end()
        for kernels in (self._announcing, self._sequences):
            if kernels is not None:
                kernels.remove()
        self._calls = self._announcing = self._sequences = None
        self._membership.more_meetings.clear()
