"""Where the state of a lost rank comes from: for each entry, the first of some sources that has it.

A source is asked for one entry at a time, and answers the same on every member of a recovery: it uses only what all of them know. There
are two: the copy that the rank handed to its buddies, and its replicas. A further one (a neighbour that keeps a base copy of a shard)
is a class with `find`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from understudy.core.coverage import Replicas
from understudy.core.judgement import sides_of
from understudy.messages import registered
from understudy.worker.encoding.messages import BuddyCopy, CopyDigests, TensorDescription
from understudy.worker.errors import DonorMismatch
from understudy.worker.state.rank_local import kept_locally
from understudy.worker.state.unregistered import is_unregistered


class NoDonor(Enum):
    """The results for an entry that no member gives."""

    IN_COPY = 0
    NOT_NEEDED = 1  # the rank does not have it


@dataclass(frozen=True)
class EntryHolders:
    """Members that each have the entry, with the same content."""

    numbers: Sequence[int]
    digest: int


class DonorView(Protocol):
    """What a member has reported about itself."""

    descriptions: dict[str, TensorDescription]
    digests: dict[str, int]
    values: dict[str, bytes]
    versions: list[CopyDigests]  # at its last vote, at later points, and now


class StateSource(Protocol):
    """A source of the state of one lost rank."""

    def find(self, entry: str, description: TensorDescription | None) -> EntryHolders | NoDonor | None:
        """Return the holders of `entry`, None if this source does not have it. `description`: of a tensor, None for a value.

        Raises `DonorMismatch` if members that should have the same do not.
        """
        ...


class CopySource:
    """The copy of a rank, for entries that no other rank has."""

    def __init__(self, rank: int, copy: BuddyCopy, replicas: Replicas, donors: Mapping[int, DonorView]) -> None:
        self.entries = kept_locally(copy, rank, replicas, [version for donor in donors.values() for version in donor.versions])

    def find(self, entry: str, description: TensorDescription | None) -> NoDonor | None:
        return NoDonor.IN_COPY if entry in self.entries else None


class ReplicaSource:
    """The replicas of a rank, and its old worker if it is being moved."""

    def __init__(self, rank: int, copy: BuddyCopy, replicas: Replicas, donors: Mapping[int, DonorView], leaver: int | None) -> None:
        """`leaver`: the old worker's number."""
        self._rank = rank
        self._copy = copy.digests
        self._replicas = replicas
        self._donors = donors
        self._leaver = leaver

    def find(self, entry: str, description: TensorDescription | None) -> EntryHolders | NoDonor | None:
        gradient = entry.endswith("/gradient") and description is not None
        if gradient and entry not in self._copy.tensors:
            return NoDonor.NOT_NEEDED  # this rank had none
        classes = self._replicas.classes
        row = entry if entry in classes and not gradient else (description.owner if description else "")
        if row in classes and classes[row][self._rank] < 0:
            return NoDonor.NOT_NEEDED
        known = self._replicas.of(row, self._rank) if row in classes else self._donors  # too new to be known: all must agree
        who = [member for member in known if member in self._donors and entry in self._donors[member].digests]
        if self._leaver is not None and entry in self._donors[self._leaver].digests:
            who = [self._leaver] if is_unregistered(entry) else [*who, self._leaver]
        who = [member for member in who if self._had(member, entry, description is None)]
        if is_unregistered(entry) and len({self._donors[member].digests[entry] for member in who}) > 1:
            return NoDonor.NOT_NEEDED  # it differs from rank to rank, and that of this rank is lost
        return EntryHolders(who, self._common_digest(entry, who)) if who else None

    def _had(self, member: int, entry: str, value: bool) -> bool:
        """Return whether a member had this value. A member without it since the last vote is no replica, nor is one with another buffer,
        or, with equal parameters, another gradient."""
        versions = self._donors[member].versions
        if value:
            return entry not in self._copy.values or any(v.values.get(entry) == self._copy.values[entry] for v in versions)
        return entry not in self._copy.tensors or any(v.tensors.get(entry) == self._copy.tensors[entry] for v in versions)

    def _common_digest(self, entry: str, who: Sequence[int]) -> int:
        found = {member: self._donors[member].digests[entry] for member in who}
        if len(set(found.values())) > 1:
            raise DonorMismatch(registered.DONORS_DIFFER(entry=entry, rank=self._rank), sides_of(found))
        return found[who[0]]
