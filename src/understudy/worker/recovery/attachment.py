"""The way into a new generation, which survivors, leavers and newcomers go together, between two transactions.

They meet in the generation's store. Survivors report where the job continues, describe their state and give its digests. Every member
computes from that, by itself and alike, who gives what to the newcomers (`core.coverage`). When all are ready, the state flows from
donors to newcomers over the runtime's own connections, the process groups are connected at the same time, and each newcomer compares
the digests of its state with those of its donors. No member goes on before every newcomer has reported that they agree.
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
        """Wait until every member is ready, and connect the script's groups. State moves meanwhile, and the time at which that began is
        returned.

        `reach` opens the connections that `move` uses: a socket that is opened while a group is made would count as the group's.
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
        """Complete an attachment, on every rank."""
        membership, newcomers = self._membership, members.recovery.newcomers
        self._progress.generation = members.recovery.generation
        membership.pending = None
        membership.unshared = True
        membership.collectives_at_attach = membership.groups.collectives()
        self._count.end()
        self._comparison.recovered(newcomers)
        self._first.recovered(members.recovery)
        self._progress.recovery.attached = time.time()


def read_job(meeting: Rendezvous) -> JobProgress:
    """Return what the survivor that speaks for all has published. Raises `GenerationAborted` or `PeerLost`."""
    return unpack(JobProgress, meeting.get("job"))
