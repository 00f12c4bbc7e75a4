"""The way into a new generation, which survivors, leavers and newcomers go together, between two transactions.

They meet in the generation's store. Survivors say where the job continues, describe their state and give its digests; who gives
what to the newcomers is worked out from that by every member alike (`core.coverage`), so nobody has to be asked. When all are ready,
the state flows from donors to newcomers over connections of the runtime's own, the process groups are connected at the same time, and each
newcomer compares the digests of what it now holds with those of its donors. Nobody goes on before every newcomer has said that they agree.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from understudy.worker import hooks
from understudy.worker.data.loops import END
from understudy.worker.encoding.messages import JobProgress, unpack
from understudy.worker.errors import GenerationAborted
from understudy.worker.generation.context import RankContext
from understudy.worker.generation.members import Members
from understudy.worker.transport.groups import Replacement
from understudy.worker.transport.peers import Peers
from understudy.worker.transport.rendezvous import Rendezvous
from understudy.worker.verification.verification import Verification


class Attachment:
    def __init__(self, context: RankContext, verification: Verification) -> None:
        self._progress, self._membership = context.progress, context.membership
        self._comparison, self._order = verification.comparison, verification.order
        self._count, self._first = verification.count, verification.first

    def connect(
        self, members: Members, meeting: Rendezvous, member: int, reach: Callable[[Peers], None], move: Callable[[Peers], None]
    ) -> float:
        """Waits until every member is ready, and connects the script's groups. State moves meanwhile, and when it began to is the result.

        `reach` opens the connections that `move` uses: a socket that is opened while a group is made is taken for the group's.
        """
        hooks.fire("attach")
        membership, generation = self._membership, members.recovery.generation
        peers = membership.peers = Peers(meeting, member)
        places = peers.meet(range(members.count))
        reach(peers)
        started = time.time()
        if member >= members.world_size:
            move(peers)
        else:
            membership.open_channel(peers, places[: members.world_size])
            alone = read_job(meeting).place == END  # no collective will follow
            made: list[Replacement] = []

            def attach() -> None:
                made.extend([] if alone else membership.groups.connect(self._progress.rank, meeting))
                membership.phase_of(generation, "attach", started)

            wait = membership.in_background(generation, attach)
            move(peers)
            wait()
            if not alone:
                assert membership.channel is not None
                sections = self._progress.sections
                # All meet here first, because a group's operations have a timeout, and a large state may take longer.
                (sections.agreed,) = membership.channel.agree([sections.failed])
                membership.groups.adopt(made, meeting)
                self._order.look()
        if membership.superseded(generation):  # an abort from now on finds what it has to break
            raise GenerationAborted(f"generation {generation} ended as its groups were connected")
        return started

    def complete(self, members: Members) -> None:
        """The end of an attachment, on every rank."""
        membership, newcomers = self._membership, members.recovery.newcomers
        self._progress.generation = members.recovery.generation
        membership.pending = None
        membership.new_buddies |= set(newcomers)
        membership.unshared = True
        membership.collectives_at_attach = membership.groups.collectives()
        self._count.end()
        self._comparison.recovered(newcomers)
        self._first.recovered(members.recovery)
        self._progress.recovery.attached = time.time()


def read_job(meeting: Rendezvous) -> JobProgress:
    """What the survivor that speaks for all has published. Raises `GenerationAborted` or `PeerLost`."""
    return unpack(JobProgress, meeting.get("job"))
