"""The part of a survivor or a leaver in a recovery: it describes its state, and gives newcomers theirs."""

from __future__ import annotations

from understudy.core.events import ReplicasDiffer, Uncovered
from understudy.messages import newcomers
from understudy.worker import hooks
from understudy.worker.encoding.messages import DonorState, pack
from understudy.worker.errors import DonorMismatch, GenerationAborted, StateMismatch, UnderstudyError
from understudy.worker.frameworks.base import disagreement
from understudy.worker.generation.context import RankContext
from understudy.worker.generation.donors import Donors
from understudy.worker.generation.members import Members
from understudy.worker.generation.plan import Plan
from understudy.worker.generation.transfer import connect, send
from understudy.worker.process.exits import finish_handed_over, flush_appended, leave
from understudy.worker.recovery.agreed_state import AgreedState
from understudy.worker.recovery.attachment import Attachment, read_job
from understudy.worker.state.rank_local import seal
from understudy.worker.state.registry import Tensors
from understudy.worker.transport.peers import Peers
from understudy.worker.transport.rendezvous import Rendezvous
from understudy.worker.verification.verification import Verification


class Donation:
    """Donates state to newcomers. Raises `GenerationAborted` when the generation ends meanwhile."""

    def __init__(self, context: RankContext, agreed: AgreedState, attachment: Attachment, verification: Verification) -> None:
        self._progress, self._membership, self._rank_state = context.progress, context.membership, context.rank_state
        self._agreed, self._attachment = agreed, attachment
        self._comparison, self._judge, self._order = verification.comparison, verification.judge, verification.order

    def run(self) -> None:
        hooks.fire("donate")
        recovery = self._membership.pending
        assert recovery is not None
        members = Members(recovery, self._progress.world_size)
        meeting = self._membership.meet(recovery.store, recovery.generation)
        self._rank_state.frameworks.meet_newcomers()
        leaver = members.leaver_of(self._progress.rank)
        member = self._progress.rank if leaver is None else leaver
        tensors = self._publish(members, meeting, member)

        job = read_job(meeting)
        self._agreed.adopt(job)
        donors = Donors(members, meeting)
        for _, donor in donors:
            self._rank_state.pre_vote.adopt(donor.summary.pre_vote)
        self._end_if_they_differ(donors)
        plans = self._plans(donors)
        started = self._attachment.connect(
            *(members, meeting, member),
            lambda peers: connect(peers, plans, member),
            lambda peers: self._give(peers, tensors, plans, member),
        )
        if leaver is not None:
            self._leave(recovery.generation)
        self._order.refuse(self._progress.rank, recovery.newcomers)
        for rank in recovery.newcomers:
            meeting.get(f"verified/{rank}")
        self._membership.phase_of(recovery.generation, "transfer", started)
        self._attachment.complete(members)

    def _publish(self, members: Members, meeting: Rendezvous, member: int) -> Tensors:
        """Publish what this member has: of the job, of the lost ranks, of its own state. Return its tensors."""
        rank, before, state = self._progress.rank, members.recovery.start - 1, self._rank_state.state
        copy = self._rank_state.copy_of(before)
        state.kept_gradients.withhold(listed=copy is not None and copy.gradients)
        if rank == members.lead:
            meeting.put("job", self._agreed.message())
        for newcomer in members.recovery.newcomers:
            stored = self._membership.store.get(newcomer, before)
            if stored is not None:
                data = hooks.filter("copy", stored.data, store=self._membership.store, rank=newcomer, transaction=before)
                meeting.put(f"copy/{newcomer}/{rank}", data)
                meeting.put(f"trail/{newcomer}/{rank}", self._membership.store.trail(newcomer))
                meeting.put(f"result/{newcomer}/{rank}", self._membership.store.result(newcomer))
        state.reshard()
        tensors = state.all_tensors()
        digests = state.digests(tensors, self._rank_state.digest_cache.take(tensors))
        if member != rank and copy is not None:
            meeting.put(f"copy/{rank}/leaver", seal(copy))
        published = DonorState(
            self._progress.transaction,
            self._progress.step,
            state.descriptions(tensors),
            self._comparison.summary(digests).message(),
            state.encoded_values(),
            self._rank_state.local.versions.get(before, []),
            self._membership.groups.describe(),
            self._order.began,
            self._rank_state.frameworks.described(),
        )
        meeting.put(f"state/{member}", pack(published))
        return tensors

    def _end_if_they_differ(self, donors: Donors) -> None:
        summaries = donors.summaries()
        if found := self._judge.differences(summaries):
            generation = donors.members.recovery.generation
            self._judge.end_generation(generation, found, {rank: there.digests for rank, there in summaries.items()})

    def _plans(self, donors: Donors) -> dict[int, Plan]:
        """Return the plan of each newcomer. If there can be none, report why, and wait until the generation is over for that."""
        members, control, replicas = donors.members, self._membership.control, self._rank_state.local.replicas
        generation = members.recovery.generation
        assert replicas is not None
        try:
            if different := disagreement(donors.frameworks()):
                raise UnderstudyError(newcomers.DONORS_PARTED(different=different))
            return {rank: donors.plan_for(rank, replicas) for rank in members.recovery.newcomers}
        except DonorMismatch as error:
            sides = tuple(tuple(members.rank_of(member) for member in side) for side in error.sides)
            control.send(ReplicasDiffer(control.worker, generation, (), sides, str(error)))
            control.wait_for(lambda: self._membership.superseded(generation))
            raise GenerationAborted("the donors differ") from error
        except UnderstudyError as error:
            if not isinstance(error, StateMismatch):  # which the newcomer finds and reports itself, and another one may succeed
                control.send(Uncovered(control.worker, generation, str(error)))
            control.wait_for(lambda: self._membership.superseded(generation))
            raise GenerationAborted("no rank can go on") from error

    def _give(self, peers: Peers, tensors: Tensors, plans: dict[int, Plan], member: int) -> None:
        send(peers, hooks.filter("give", tensors, plans=plans, member=member), plans, member)

    def _leave(self, generation: int) -> None:
        """Leave the generation: this worker has given its rank away, or the generation is over."""
        control = self._membership.control
        flush_appended()
        control.wait_for(lambda: control.released is not None or self._membership.superseded(generation))
        if control.released is not None:
            finish_handed_over()
            leave(control.released.exit_code)
        raise GenerationAborted("this worker has given its rank away")
