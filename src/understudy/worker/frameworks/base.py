"""The port to frameworks of distributed training: what a `FrameworkAdapter` does for one, and what ranks send each other about it.

A framework keeps objects between the calls of a script that steer collectives: a layout of buckets, a schedule, switches. For a redo
they have to be as they were at begin, on a newcomer as the others have them. An adapter reads them from the objects, at moments that
are the same on all ranks:

- *Before each vote* (`settle`) pending changes happen, so that nothing is pending between two transactions.
- *At each begin* the adapter notes how each object is that can still change. A redo starts from there (`reset`, `restore`).
- *In a recovery* every donor publishes what it has `described`: all that steers a collective. Newcomers make theirs the same as the
  others that use the same object (`adopt`). Donors are checked for a `disagreement` before anything is given, and each newcomer before
  it is verified: nothing may be missing, nothing extra.
- *In each full comparison* all ranks compare the same once more.

Descriptions are compared among the ranks that use an object together: those of a DDP's process group, or of the mesh of `fully_shard`.
Other ranks may have others, as with pipelines.

Other packages add adapters by entry points of the group `understudy.frameworks`, each of which is a class derived from
`FrameworkAdapter`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol

import torch
from torch.distributed import ProcessGroup
from torch.optim import Optimizer

from understudy.messages import frameworks
from understudy.worker.encoding.codec import encode
from understudy.worker.encoding.digests import digest_bytes
from understudy.worker.encoding.messages import SharedObject as SharedObject  # which adapters make

Facts = dict[str, Any]
Described = dict[str, SharedObject]  # by a name that is the same on all ranks that use it


class Registered(Protocol):
    """What the script has registered, by name."""

    @property
    def modules(self) -> Mapping[str, torch.nn.Module]: ...
    @property
    def optimizers(self) -> Mapping[str, Optimizer]: ...
    @property
    def tensors(self) -> Mapping[str, torch.Tensor]: ...
    @property
    def values(self) -> Mapping[str, Any]: ...


class Memberships(Protocol):
    """The process groups that have this rank as a member."""

    def members(self) -> list[tuple[ProcessGroup, str, list[int]]]:
        """Return the groups in the order in which they were made: group, name, global ranks."""


class FrameworkAdapter:
    """The adapter of one framework; a method that is not overridden does nothing. All of them are called on the main thread.

    One is made for each rank, before the script has registered anything.
    """

    passing: frozenset[str] = frozenset()  # names of facts that may change with every transaction

    def __init__(self, registered: Registered, groups: Memberships) -> None:
        self.registered = registered
        self.groups = groups

    # -- set-up ----------------------------------------------------------------------------------------------------------

    def watch(self, training: Callable[[], bool]) -> None:
        """Watch, once in a process, before the script makes anything, so that the framework reports objects as they are made. `training`:
        whether the first transaction has begun. An object that is made later, and that a spare could not make in the same state, is
        refused then (`UsageError`).
        """

    def uncovered(self) -> str:
        """Return, at the end of the set-up, what could not be redone, or not done on a newcomer, in words for a person; "" if nothing."""
        return ""

    # -- parameters ------------------------------------------------------------------------------------------------------

    @staticmethod
    def shards_of(module: torch.nn.Module) -> dict[tuple[int, str], torch.Tensor]:
        """Return the shards of a module whose attributes are not always its parameters, as while a whole one is gathered: by part of
        `module` (its id) and name in it, the tensor that this rank keeps and its optimizer steps. The same at every moment.
        """
        return {}

    @staticmethod
    def reshard(module: torch.nn.Module) -> None:
        """Free gathered parameters, in a recovery, between two transactions, as a newcomer has gathered nothing."""

    @staticmethod
    def keeps_attributes(part: torch.nn.Module) -> bool:
        """Return whether the attributes of this one module, except its mode, are the framework's own, which the adapter handles."""
        return False

    @staticmethod
    def keeps_parameters(part: torch.nn.Module) -> bool:
        """Return whether the framework binds the parameters of this one module again, so that a redo must leave them as they are bound."""
        return False

    def replaces_parameters(self) -> bool:
        """Return whether other tensors may be in the place of parameters in the middle of a step: then they are not read there."""
        return False

    # -- an attempt ------------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Let pending changes happen: inside a transaction, before its vote, and in the set-up's. All ranks are here, and collectives are
        allowed. Raises `RuntimeError` when a peer is lost, and `UsageError` for what could not be redone from the next begin.
        """

    def begin(self) -> None:
        """Note, at the begin of an attempt, of a redo too, the state from which the next redo has to start. It may be changed here to one
        that a redo can start from, where that changes no result.
        """

    def reset(self) -> None:
        """Drop what a failed attempt that is redone has left under way, before tensors and gradients are restored."""

    def restore(self) -> None:
        """Restore, after that, everything as it was at begin. Groups have no peers at this time. `begin` may not have been reached."""

    # -- newcomers -------------------------------------------------------------------------------------------------------

    def meet_newcomers(self) -> None:
        """Bring a survivor, before it describes itself, from what only a first step does to the state of a newcomer. Groups have no peers.
        Raises `UnderstudyError` if that is impossible.
        """

    def not_drilled(self) -> str:
        """Return why a spare cannot compute a step in parallel with this rank, in words for a person, "" if it can. In a drill no groups
        meet: so if `meet_newcomers` would change what the rank does.
        """
        return ""

    def redoes_otherwise(self) -> bool:
        """Return, right before `begin`, whether a redo of this attempt issues other collectives, so that the two cannot be compared."""
        return False

    def described(self) -> Described:
        """Return all that steers collectives, in names that no other adapter uses. Between two transactions, and on a newcomer at its end
        of the set-up.
        """
        return {}

    def adopt(self, reports: Mapping[int, Described]) -> None:
        """Make everything, on a newcomer, as the other users of it have it. Called without peers yet, once its gradients exist. `reports`:
        by rank, what its donors have described, of all frameworks.
        """


def described_by_users(reports: Mapping[int, Described], name: str, users: tuple[int, ...] | None = None) -> SharedObject | None:
    """Return the object `name` as the first rank has it that is one of its `users` (None: any rank) and has reported it."""
    return next((reports[rank][name] for rank in sorted(reports) if (users is None or rank in users) and name in reports[rank]), None)


def disagreement(reports: Mapping[int, Described]) -> str:
    """Return what the ranks in `reports` do not have in common and should, in words for a person; "" if nothing.

    Each is compared with the first one that uses the same object: as many comparisons as there are ranks.
    """
    for rank in sorted(reports):
        for name, shared in reports[rank].items():
            users = [user for user in shared.ranks if user in reports]
            if not users:
                continue
            if lacking := [user for user in (users if users[0] == rank else users[:1]) if name not in reports[user]]:
                return frameworks.NOT_MADE_THERE(rank=rank, title=shared.title, other=lacking[0])
            if found := _between(users[0], reports[users[0]][name], rank, shared):
                return found
    return ""


def _between(one: int, mine: SharedObject, other: int, theirs: SharedObject) -> str:
    for fact in mine.facts.keys() | theirs.facts.keys():
        left, right = mine.facts.get(fact), theirs.facts.get(fact)
        if left != right:
            values = {"one": _short(left), "rank": one, "two": _short(right), "other": other}
            return frameworks.FACT_DIFFERS(title=mine.title, fact=fact, **values)
    return ""


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 120 else text[:117] + "..."


def without(facts: Collection[str], described: Described) -> Described:
    """Return the same without some facts."""
    return {
        name: SharedObject(shared.ranks, shared.title, {fact: value for fact, value in shared.facts.items() if fact not in facts})
        for name, shared in described.items()
    }


def brief(described: Described) -> Described:
    """Return the same with a digest in place of long values: enough to compare two for equality."""

    def short(value: Any) -> Any:
        data = encode(value)
        return value if len(data) <= 64 else digest_bytes(data)

    return {
        name: SharedObject(shared.ranks, shared.title, {fact: short(value) for fact, value in shared.facts.items()})
        for name, shared in described.items()
    }
