"""The arrival of a newcomer: it attaches where the job continues, receives its state and proves it."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from typing import NoReturn

import torch

from understudy.core.commands import Recover
from understudy.core.events import Verified, VerifyFailed
from understudy.core.model import VotePhase
from understudy.messages import newcomers
from understudy.worker import hooks
from understudy.worker.census.stores import called
from understudy.worker.collectives.setup_record import SetUpReplayer
from understudy.worker.data.loops import restore_streams
from understudy.worker.data.results import Results
from understudy.worker.encoding.messages import BuddyCopy, GroupMembers, JobProgress
from understudy.worker.errors import DonorMismatch, GenerationAborted, PeerLost, StateMismatch, UnderstudyError
from understudy.worker.frameworks.base import disagreement
from understudy.worker.generation import transfer
from understudy.worker.generation.context import RankContext
from understudy.worker.generation.donors import Donors, read_copy, read_trail
from understudy.worker.generation.members import Members
from understudy.worker.generation.plan import Plan
from understudy.worker.guards.file_access import FileAccessGuard
from understudy.worker.recovery.agreed_state import AgreedState
from understudy.worker.recovery.attachment import Attachment, read_job
from understudy.worker.recovery.script_names import ScriptNames
from understudy.worker.state.attributes import is_of_module
from understudy.worker.state.unregistered import is_unregistered
from understudy.worker.transport.peers import Peers
from understudy.worker.transport.rendezvous import Rendezvous
from understudy.worker.verification.verification import Verification


class Arrival:
    def __init__(
        self,
        context: RankContext,
        results: Results,
        agreed: AgreedState,
        attachment: Attachment,
        verification: Verification,
        opened: FileAccessGuard,
    ) -> None:
        self._progress, self._membership, self._rank_state = context.progress, context.membership, context.rank_state
        self._results, self._agreed, self._attachment = results, agreed, attachment
        self._verification = verification
        self.names = ScriptNames(context.rank_state.state)
        self._aside: list[str] = []  # names of the script that it could not set
        self.opened = opened
        self._given: dict[str, bytes] = {}  # at the end of the job: values as the donors have them there

    def run(self, at_end: bool, streams_set: bool, replayer: SetUpReplayer) -> None:
        """Arrive, as often as there is a newer generation, until the state is here and proven. `at_end`: no transaction follows.
        `streams_set`: the random streams are already those of the place. Raises `UnderstudyError`; a worker whose state is wrong does
        not return.
        """
        groups = self._membership.groups
        while True:
            recovery = self.recovery()
            try:
                with torch.inference_mode(False):
                    replayer.remove()
                    self._attach(recovery, at_end, streams_set, replayer)
                return
            except StateMismatch as error:
                self.reject(recovery.generation, str(error))
            except DonorMismatch as error:
                self.await_next(recovery.generation, GenerationAborted(str(error)))  # the survivors report it
            except UnderstudyError:
                raise
            except RuntimeError as error:
                known = isinstance(error, GenerationAborted | PeerLost) or self._membership.superseded(recovery.generation)
                if not known and not groups.is_broken():
                    raise  # not an error of the network: it would fail again
                self.await_next(recovery.generation, error)
                self._membership.let_go()

    def recovery(self) -> Recover:
        """Wait for the decision of the newest generation."""
        control = self._membership.control

        def known() -> bool:
            return control.recovery is not None and not self._membership.superseded(control.recovery.generation)

        control.wait_for(known)
        assert control.recovery is not None
        return control.recovery

    def await_next(self, generation: int, error: RuntimeError) -> None:
        """Wait, after a failure in `generation`, until it is over, and report why it must be if that is not known yet."""
        membership = self._membership
        if not isinstance(error, GenerationAborted) and not membership.superseded(generation):
            membership.report_broken(generation, str(error))
        membership.control.wait_for(lambda: membership.superseded(generation))

    def reject(self, generation: int, detail: str) -> NoReturn:
        """Report that this newcomer's state is wrong, and never go on. The orchestrator ends this worker.

        It reports that in each generation that it is to join: by the time a report arrives, the generation may be over because of another
        newcomer, and then the orchestrator takes no notice of it.
        """
        control = self._membership.control
        while True:
            answered = control.recovery.generation if control.recovery is not None else -1
            control.send(VerifyFailed(control.worker, max(generation, answered), self.opened.explained(detail)))
            control.wait_for(lambda answered=answered: control.recovery is not None and control.recovery.generation > answered)  # type: ignore[misc]

    def put_back(self) -> None:
        """Restore what donors have given at the end of the job, and the script has changed again: they had the change already, as of a
        schedule that is stepped after the last loop. Not attributes of modules, which a script sets for a while (eval mode).
        """
        state = self._rank_state.state
        now = state.encoded_values(self._given.keys())
        for entry, data in self._given.items():
            if now.get(entry) != data:
                state.load_value(entry, data)

    # -- one generation ----------------------------------------------------------------------------------------------------

    def _attach(self, recovery: Recover, at_end: bool, streams_set: bool, replayer: SetUpReplayer) -> None:
        membership, progress, generation = self._membership, self._progress, recovery.generation
        members = Members(recovery, progress.world_size)
        meeting = membership.meet(recovery.store, generation)
        job = read_job(meeting)
        arrived = 0.0

        def receive(plan: Plan) -> None:
            nonlocal arrived
            self._receive(plan, members, meeting)
            arrived = time.time()

        plan, copy, donors = self.take_over(job, members, meeting, at_end, streams_set, receive)
        membership.phase_of(generation, "verify", arrived)
        if at_end:
            self._given = {entry: data for entry, data in plan.values.items() if not is_of_module(entry)}
        notes = (*self._agreed.missed(copy, job, self.names.again), *self._notes(replayer), *self._unknown(donors, plan, copy, job))
        count = len(plan.expected) + len(plan.local) + len(copy.streams) + 1
        membership.control.page.committed(progress.step, 0.0)  # of the job, and so of this rank
        self._agreed.adopt_habits(job)
        self._verification.issued.adopt(read_trail(members, progress.rank, meeting))
        self._verification.comparison.moved = set().union(*(donor.summary.moved for _, donor in donors)) & plan.expected.keys()
        for _, donor in donors:
            self._verification.order.adopt(donor.state.sums)
        self._rank_state.local.adopt(copy)
        membership.control.send(Verified(membership.control.worker, generation, count, notes))
        hooks.fire("verified")
        progress.phase, progress.generation = VotePhase.IDLE, generation
        self._publish_verified(meeting)
        hooks.fire("attached")
        self._attachment.complete(members)

    def _publish_verified(self, meeting: Rendezvous) -> None:
        """Report to the donors that this worker is a rank like them. If the generation is over, it answers as one at its next begin: the
        orchestrator has its `Verified`, and waits for that answer."""
        membership = self._membership
        try:
            meeting.put(f"verified/{self._progress.rank}", b"1")
        except RuntimeError as error:
            if not membership.is_failure(error):
                raise
            membership.broken = membership.newest

    def take_over(
        self,
        job: JobProgress,
        members: Members,
        meeting: Rendezvous,
        at_end: bool,
        streams_set: bool,
        receive: Callable[[Plan], None],
    ) -> tuple[Plan, BuddyCopy, Donors]:
        """Take over the state that donors have described in `meeting`, and prove it. `receive` fetches what a plan names into this rank's
        tensors. Raises `StateMismatch` if the state is different then, `UnderstudyError` if no newcomer could take it over.
        """
        state, progress = self._rank_state.state, self._progress
        self._agreed.adopt_position(job)
        self._agreed.adopt(job)
        donors = self._read_donors(members, meeting, at_end)
        replicas = self._rank_state.local.replicas
        assert replicas is not None
        plan, copy = donors.plan_for(progress.rank, replicas), read_copy(members, progress.rank, meeting)
        self._make_room(plan, copy, donors, at_end)
        receive(plan)
        for entry, data in plan.values.items():
            state.load_value(entry, data)
        own = self.names.are_set and not self._agreed.is_of_begin(copy)
        self._rank_state.local.apply(copy, {entry for entry in plan.local if not (own and is_unregistered(entry))})
        state.attributes.undo(plan.values.keys() | plan.local)
        if not streams_set:
            restore_streams(state.randomness, copy, progress.rank)
        hooks.fire("prove")
        self._verify(plan, copy, donors)
        if not at_end:
            self._compare_frameworks(donors)
        return plan, copy, donors

    def _read_donors(self, members: Members, meeting: Rendezvous, at_end: bool) -> Donors:
        donors = Donors(members, meeting)
        for _, donor in donors:
            self._rank_state.pre_vote.adopt(donor.summary.pre_vote)
        if not at_end:
            self._compare_groups(donors)
        if self._verification.judge.differences(donors.summaries()):
            raise GenerationAborted("the donors differ: the survivors report it")
        return donors

    def _make_room(self, plan: Plan, copy: BuddyCopy, donors: Donors, at_end: bool) -> None:
        """Create what the donors have and this newcomer does not have yet."""
        state = self._rank_state.state
        state.reshard()
        state.match_groups(plan.values | copy.values)
        self._rank_state.preallocation.make(plan.descriptions)
        if not at_end:  # after gradients are made, which become views of buckets here
            self._rank_state.frameworks.adopt(donors.frameworks())
        self._compare_entries(plan, copy, state.all_tensors().keys())

    def _receive(self, plan: Plan, members: Members, meeting: Rendezvous) -> None:
        tensors = self._rank_state.state.all_tensors()

        def take(peers: Peers) -> None:
            started = time.time()
            transfer.receive(peers, hooks.filter("take", tensors, plan=plan), plan)
            self._membership.phase_of(members.recovery.generation, "transfer", started, plan.size)
            hooks.fire("taken", tensors=tensors)

        self._attachment.connect(members, meeting, self._progress.rank, lambda peers: transfer.accept(peers, plan), take)

    def _compare_entries(self, plan: Plan, copy: BuddyCopy, mine: Collection[str]) -> None:
        """Compare the entries, in both directions. Raises `UnderstudyError`: another newcomer would fail, too."""
        theirs = plan.descriptions.keys() | copy.tensors.keys()
        if unknown := sorted(plan.descriptions.keys() - mine):
            raise UnderstudyError(newcomers.NOT_MADE(rank=self._progress.rank, entry=unknown[0]))
        if extra := sorted(entry for entry in mine if entry not in theirs and "/state/" not in entry and not entry.endswith("/gradient")):
            raise UnderstudyError(newcomers.MADE_MORE(rank=self._progress.rank, entry=extra[0]))

    def _verify(self, plan: Plan, copy: BuddyCopy, donors: Donors) -> None:
        """Verify the state, just before this newcomer is a rank like the others. Raises `StateMismatch`."""
        local, progress = self._rank_state.local, self._progress
        now = self._rank_state.digests()
        different = sorted(entry for entry, value in plan.expected.items() if now.get(entry) != value)
        wrong, self._aside = [e for e in different if not is_unregistered(e)], [e for e in different if is_unregistered(e)]
        wrong += local.differences(copy, plan.local)
        if wrong:
            more = f" and {', '.join(wrong[1:4])}{', ...' if len(wrong) > 4 else ''}" if len(wrong) > 1 else ""
            count = len(plan.expected) + len(plan.local)
            raise StateMismatch(newcomers.DIGESTS_DIFFER(rank=progress.rank, wrong=len(wrong), count=count, entries=f"{wrong[0]}{more}"))
        for member, donor in donors:
            mine, theirs = [progress.transaction, progress.step], [donor.state.transaction, donor.state.step]
            if mine != theirs:
                other = donors.members.rank_of(member)
                raise StateMismatch(newcomers.COUNTERS_DIFFER(rank=progress.rank, mine=mine, other=other, theirs=theirs))
            for name in self._verification.order.changed(donor.state.sums):
                raise StateMismatch(newcomers.OTHER_ORDER(rank=progress.rank, group=name))

    def _compare_groups(self, donors: Donors) -> None:
        """Compare the members of every group, and their order in it, with those of the other members."""
        rank, described = self._progress.rank, self._membership.groups.describe()
        for member, donor in donors:
            other = donors.members.rank_of(member)
            mine = [group for group in described if other in group.ranks]
            theirs = [group for group in donor.state.groups if rank in group.ranks]
            if mine != theirs and other != rank and donor.state.groups:
                raise UnderstudyError(newcomers.OTHER_GROUPS(rank=rank, mine=_shown(mine), other=other, theirs=_shown(theirs)))

    def _compare_frameworks(self, donors: Donors) -> None:
        """Compare what steers the collectives of DDP and the like. Raises `StateMismatch`."""
        rank = self._progress.rank
        if different := disagreement({**donors.frameworks(), rank: self._rank_state.frameworks.described()}):
            raise StateMismatch(newcomers.FRAMEWORKS_DIFFER(rank=rank, difference=different))

    def _unknown(self, donors: Donors, plan: Plan, copy: BuddyCopy, job: JobProgress) -> list[str]:
        """Return the notes about unregistered values that the lost rank has not handed over."""
        if donors.members.leaver_of(self._progress.rank) is not None:
            return []  # which gives its own
        unregistered = self._rank_state.state.unregistered
        missing = [entry for entry in donors.not_handed_over(copy) if not unregistered.is_set_by_a_loop(entry)]
        assumed = assumed_alike(plan.expected, copy, job.replicas, len(list(donors)))
        notes: list[str] = [newcomers.NOT_HANDED_OVER(name=called(entry)) for entry in missing]
        return notes + [newcomers.OF_ANOTHER_RANK(what=called(entry)) for entry in assumed if entry not in missing]

    def _notes(self, replayer: SetUpReplayer) -> tuple[str, ...]:
        notes: list[str] = [newcomers.RESULT_OF_ANOTHER(place=key) for key in self._results.replaced]
        notes += [newcomers.OF_ANOTHER_RANK(what=what) for what in self.names.of_others]
        different = replayer.differences(self._rank_state.state.storages())
        notes += [newcomers.NOT_SET(name=entry.rpartition(":")[2]) for entry in self._aside]
        notes += [newcomers.LARGE_RESULT(what=text) for text in different]
        if read := self.opened.otherwise():
            notes.append(read)
        return tuple(notes)


def assumed_alike(expected: Mapping[str, int], copy: BuddyCopy, replicas: Mapping[str, object], donors: int) -> list[str]:
    """Return the unregistered entries that come from the only donor, although nothing shows that the lost rank had the same: no comparison
    of the ranks had them, and the `copy` of the rank has not what the donor has now. `expected`: the digests of what donors give.

    Such a value has changed for the first time since the last comparison. Two donors that agree count as evidence.
    """
    if donors > 1:
        return []
    unknown = (entry for entry in expected if is_unregistered(entry) and entry not in replicas)
    return sorted(entry for entry in unknown if copy.digests.values.get(entry) != expected[entry])


def _shown(groups: list[GroupMembers]) -> list[tuple[str, list[int]]]:
    return [(group.name, group.ranks) for group in groups]
