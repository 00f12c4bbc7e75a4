"""The published state of the donors of a recovery, and the plan that follows from it for a newcomer: every member computes the same."""

from __future__ import annotations

from collections.abc import Iterator

from understudy.core.coverage import Replicas
from understudy.messages import newcomers
from understudy.worker.encoding.messages import BuddyCopy, CopyDigests, DonorState, LastResult, name_of_place, unpack
from understudy.worker.errors import StateMismatch
from understudy.worker.frameworks.base import Described
from understudy.worker.generation.members import Members
from understudy.worker.generation.plan import Plan, make_plan
from understudy.worker.generation.rank_state import StateSummary
from understudy.worker.state.rank_local import unseal
from understudy.worker.state.sources import CopySource, ReplicaSource
from understudy.worker.state.unregistered import is_unregistered
from understudy.worker.transport.rendezvous import Rendezvous


class Donor:
    """What a member has published of its state."""

    def __init__(self, state: DonorState) -> None:
        """Decode the state. Raises `BadMessage`."""
        self.state = state
        self.summary = StateSummary.of(state.state)
        self.descriptions = state.descriptions
        self.digests = self.summary.digests
        self.values = state.values
        # Of its values and small tensors: at the vote before the transaction in which the job goes on, at later points, and now.
        self.versions = [*state.versions, CopyDigests(self.digests, self.digests)]


class Donors:
    """The donors of a recovery, by member number. Reading them waits for all: raises `GenerationAborted` or `PeerLost`."""

    def __init__(self, members: Members, meeting: Rendezvous) -> None:
        self.members = members
        self._meeting = meeting
        self._found: dict[int, Donor] = {}
        for member in members.donors:
            self._found[member] = Donor(unpack(DonorState, meeting.get(f"state/{member}")))

    def __iter__(self) -> Iterator[tuple[int, Donor]]:
        return iter(self._found.items())

    def summaries(self) -> dict[int, StateSummary]:
        """Return the summaries by rank."""
        return {self.members.rank_of(member): donor.summary for member, donor in self}

    def frameworks(self) -> dict[int, Described]:
        """Return, by rank, the facts that steer the collectives of DDP and the like."""
        return {self.members.rank_of(member): donor.state.frameworks for member, donor in self}

    def not_handed_over(self, copy: BuddyCopy) -> list[str]:
        """Return the unregistered entries that change on donors, and that are missing in the `copy` of a lost rank: their change began
        after the last look of the lost worker, so that its own values are unknown.
        """
        found = {entry for donor in self._found.values() for entry in donor.values if is_unregistered(entry)}
        return sorted(found - copy.digests.values.keys())

    def plan_for(self, rank: int, replicas: Replicas) -> Plan:
        """Return the plan for `rank`: which entry comes from which member. Raises `UnderstudyError` if no source has a part of its state,
        or its donors disagree.
        """
        copy = read_copy(self.members, rank, self._meeting)
        donors, own = self._found, CopySource(rank, copy, replicas, self._found)
        return make_plan(rank, donors, [own, ReplicaSource(rank, copy, replicas, donors, self.members.leaver_of(rank))], own.entries)


def read_copy(members: Members, rank: int, meeting: Rendezvous) -> BuddyCopy:
    """Read the buddy copy of a newcomer's rank, with the result of its transaction if the lost worker had sent that, too. Raises
    `StateMismatch` if the copy is damaged, or one of another transaction.
    """
    holder = members.holder_of(rank)
    copy, start = unseal(meeting.get(f"copy/{rank}/{holder}")), members.recovery.start
    if copy.transaction != start - 1:
        raise StateMismatch(newcomers.OTHER_COPY(rank=rank, transaction=copy.transaction, wanted=start - 1))
    if holder != "leaver" and (sent := meeting.get(f"result/{rank}/{holder}")):
        last = unpack(LastResult, sent)
        if last.transaction == copy.transaction:
            copy.results[name_of_place(copy.place)] = last.data
    return copy


def read_trail(members: Members, rank: int, meeting: Rendezvous) -> bytes:
    """Read the trail of a newcomer's lost worker from the rank that has its copy; empty if there is none."""
    holder = members.holder_of(rank)
    return b"" if holder == "leaver" else meeting.get(f"trail/{rank}/{holder}")
