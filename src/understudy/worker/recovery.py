"""Attaching to a new generation, and bringing newcomers up to date. All members run this together, between two transactions.

They meet in the generation's store. Survivors say where the job continues, describe their state and give its digests; who gives
what to the newcomers is worked out from that by every member alike (`core.coverage`), so nobody has to be asked. When all are ready,
the state flows from donors to newcomers over connections of the runtime's own, the process groups are connected at the same time, and each
newcomer compares the digests of what it now holds with those of its donors. Nobody goes on before every newcomer has said that they agree.

Members are numbered: ranks by themselves, and the old worker of a rank that is being moved (a leaver, healthy, a donor only) as
world_size + its place among the leavers.
"""

from __future__ import annotations

import atexit
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from understudy.core.commands import Recover
from understudy.core.coverage import Replicas
from understudy.core.events import ReplicasDiffer, Uncovered
from understudy.core.judgement import Difference
from understudy.worker.codec import decode, encode
from understudy.worker.comparison import Told, end_for, judged
from understudy.worker.copies import Digests, LocalCopy, kept_locally, seal, unseal
from understudy.worker.errors import DonorsDiffer, GenerationAborted, NotTheSame, UnderstudyError
from understudy.worker.frameworks.base import Described, disagreement, pack, unpack
from understudy.worker.loops import END
from understudy.worker.tensors import Description
from understudy.worker.transfer import Plan, knock, make_plan, send
from understudy.worker.transport.groups import Replacement
from understudy.worker.transport.peers import Peers
from understudy.worker.transport.rendezvous import Rendezvous

if TYPE_CHECKING:
    from understudy.worker.runtime import Runtime


@dataclass
class Donor:
    """What a member has published of its state."""

    descriptions: dict[str, Description]
    digests: dict[str, int]
    values: dict[str, bytes]
    versions: list[Digests]  # of its values and small tensors, at the vote before `start`, at later points, and now
    told: Told  # for the judgement of replicas
    counters: list[int]  # the next transaction, and committed steps
    groups: list[list[Any]]
    sums: dict[str, int]  # of its groups, as they were when training began
    frameworks: Described  # what steers the collectives of DDP and the like


def lead_of(recovery: Recover, world_size: int) -> int:
    """The rank that speaks for all survivors where one is enough."""
    return next(rank for rank in range(world_size) if rank not in recovery.newcomers)


def donors_of(recovery: Recover, world_size: int) -> list[int]:
    """Member numbers of all that can give state."""
    survivors = [rank for rank in range(world_size) if rank not in recovery.newcomers]
    return survivors + [world_size + number for number in range(len(recovery.leavers))]


def donate(runtime: Runtime) -> None:
    """On a survivor or a leaver. Raises `GenerationAborted` when the generation ends meanwhile."""
    recovery = runtime.pending
    assert recovery is not None
    meeting = runtime.meet(recovery.store, recovery.generation)
    runtime.frameworks.meet_newcomers()
    lead = lead_of(recovery, runtime.world_size)
    leaving = runtime.rank in recovery.leavers
    member = runtime.world_size + recovery.leavers.index(runtime.rank) if leaving else runtime.rank

    if runtime.rank == lead:
        meeting.put("job", _describe_job(runtime))
    for rank in recovery.newcomers:
        handed = runtime.shelf.get(rank, recovery.start - 1)
        if handed is not None:
            meeting.put(f"copy/{rank}/{runtime.rank}", handed.data)
    runtime.state.reshard()
    tensors = runtime.state.all_tensors()
    digests = runtime.state.digests(tensors, runtime.known.take(tensors))
    copy = runtime.own_copy(recovery.start - 1)
    if leaving and copy is not None:
        meeting.put(f"copy/{runtime.rank}/leaver", seal(copy))
    versions = [list(version) for version in runtime.local.versions.get(recovery.start - 1, [])]
    published = [
        *(runtime.state.descriptions(tensors), runtime.comparison.told(digests).packed(), runtime.state.encoded_values(), versions),
        *([runtime.transaction, runtime.step], runtime.groups.describe(), runtime.sums, pack(runtime.frameworks.described())),
    ]
    meeting.put(f"state/{member}", encode(published))

    job = decode(meeting.get("job"))
    runtime.local.replicas = Replicas(job["replicas"])
    runtime.local.comparisons = job["comparisons"]
    runtime.late.adopt(job["late_points"], job["late_agreed"])
    donors = read_donors(recovery, runtime.world_size, meeting)
    for donor in donors.values():
        runtime.early.adopt(donor.told.early)
    tables = {rank: there.digests for rank, there in told_by(recovery, runtime.world_size, donors).items()}
    found = judge(runtime, recovery, donors)
    if found:
        end_for(runtime, recovery.generation, found, tables)
    try:
        if different := disagreement(frameworks_of(recovery, runtime.world_size, donors)):
            raise UnderstudyError(f"the survivors would not compute together any more: {different}")
        plans = {rank: plan_for(runtime, rank, recovery, donors, meeting) for rank in recovery.newcomers}
    except DonorsDiffer as error:
        sides = tuple(tuple(rank_of(recovery, runtime.world_size, member) for member in side) for side in error.sides)
        runtime.control.send(ReplicasDiffer(runtime.control.worker, recovery.generation, (), sides, str(error)))
        runtime.control.wait_for(lambda: runtime.superseded(recovery.generation))
        raise GenerationAborted("the donors differ") from error
    except UnderstudyError as error:
        if not isinstance(error, NotTheSame):  # which the newcomer finds and tells itself, and another one may fare better
            runtime.control.send(Uncovered(runtime.control.worker, recovery.generation, str(error)))
        runtime.control.wait_for(lambda: runtime.superseded(recovery.generation))
        raise GenerationAborted("nobody can go on") from error
    started = connect(
        *(runtime, recovery, meeting, member),
        lambda peers: knock(peers, plans, member),
        lambda peers: send(peers, tensors, plans, member),
    )
    if not leaving:
        _compare_sums(runtime, recovery)
    if leaving:
        runtime.control.wait_for(lambda: runtime.control.released is not None or runtime.superseded(recovery.generation))
        if runtime.control.released is not None:
            leave(runtime.control.released.exit_code)
        raise GenerationAborted("this worker has given its rank away")
    for rank in recovery.newcomers:
        meeting.get(f"verified/{rank}")
    runtime.phase_of(recovery.generation, "transfer", started)
    attached(runtime, recovery)


def leave(exit_code: int) -> None:
    """Ends this process: exit handlers run, but nothing waits for the threads of dead communicators."""
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(exit_code)


def attached(runtime: Runtime, recovery: Recover) -> None:
    """The end of an attachment, on every rank."""
    runtime.generation = recovery.generation
    runtime.pending = None
    runtime.new_buddies |= set(recovery.newcomers)
    runtime.unshared = runtime.unshared or bool(recovery.newcomers)
    runtime.comparison.recovered(recovery.newcomers)
    runtime._collectives_at_end = runtime.collectives_at_recovery = runtime.groups.collectives()
    runtime._redo_started = time.time()


def _describe_job(runtime: Runtime) -> bytes:
    replicas, gradients = runtime.local.replicas, runtime.state.kept_gradients
    return encode(
        {
            "place": runtime.place_now(),
            "transaction": runtime.transaction,
            "step": runtime.step,
            "steps_here": runtime.loops.steps_here,
            "steps_after": runtime.loops.steps_after,
            "replicas": dict(replicas.classes) if replicas else {},
            "comparisons": runtime.local.comparisons,
            "results": runtime.results.encoded(),
            "gradients": [gradients.matter, gradients.kept, gradients.dropped],
            "late_points": runtime.late.numbers,
            "late_agreed": sorted(runtime.late.agreed),
            "compare": [runtime.comparison.every, sorted(runtime.comparison.came)],
        }
    )


def connect(
    runtime: Runtime, recovery: Recover, meeting: Rendezvous, member: int, reach: Callable[[Peers], None], move: Callable[[Peers], None]
) -> float:
    """Waits until every member is ready, and connects the script's groups. State moves meanwhile, and when it began to is the result.

    `reach` opens the connections that `move` uses: a socket that is opened while a group is made is taken for the group's.
    """
    peers = runtime.peers = Peers(meeting, member)
    places = peers.meet(range(runtime.world_size + len(recovery.leavers)))
    reach(peers)
    started = time.time()
    if member >= runtime.world_size:
        move(peers)
    else:
        runtime.open_channel(peers, places[: runtime.world_size])
        alone = decode(meeting.get("job"))["place"] == END  # no collective will follow
        made: list[Replacement] = []

        def attach() -> None:
            made.extend([] if alone else runtime.groups.connect(runtime.rank, meeting))
            runtime.phase_of(recovery.generation, "attach", started)

        wait = runtime.beside(recovery.generation, attach)
        move(peers)
        wait()
        if not alone:
            assert runtime.channel is not None
            runtime.channel.agree([])  # a group's operations have a timeout, and a large state may take longer
            runtime.groups.adopt(made, meeting)
            runtime.sums_now = runtime.groups.sums()
    if runtime.superseded(recovery.generation):  # an abort from now on finds what it has to break
        raise GenerationAborted(f"generation {recovery.generation} ended as its groups were connected")
    return started


def read_donors(recovery: Recover, world_size: int, meeting: Rendezvous) -> dict[int, Donor]:
    found = {}
    for member in donors_of(recovery, world_size):
        descriptions, packed, values, versions, counters, groups, sums, described = decode(meeting.get(f"state/{member}"))
        told = Told.unpacked(packed)
        every = [*((v[0], v[1]) for v in versions), (told.digests, told.digests)]
        found[member] = Donor(descriptions, told.digests, values, every, told, counters, groups, sums, unpack(described))
    return found


def rank_of(recovery: Recover, world_size: int, member: int) -> int:
    return member if member < world_size else recovery.leavers[member - world_size]


def judge(runtime: Runtime, recovery: Recover, donors: Mapping[int, Donor]) -> list[Difference]:
    """Differences among the donors that are not a chance. Nobody gives state before there are none."""
    return judged(runtime, told_by(recovery, runtime.world_size, donors))


def told_by(recovery: Recover, world_size: int, donors: Mapping[int, Donor]) -> dict[int, Told]:
    """By rank."""
    return {rank_of(recovery, world_size, member): donor.told for member, donor in donors.items()}


def frameworks_of(recovery: Recover, world_size: int, donors: Mapping[int, Donor]) -> dict[int, Described]:
    """By rank."""
    return {rank_of(recovery, world_size, member): donor.frameworks for member, donor in donors.items()}


def _compare_sums(runtime: Runtime, recovery: Recover) -> None:
    """On a survivor: whether its groups add up in the order in which they did. Where newcomers take part, they find it out and leave."""
    for name, changed in changed_sums(runtime.sums, runtime.sums_now):
        members = next(ranks for known, ranks in runtime.groups.describe() if known == name)
        if changed and set(members).isdisjoint(recovery.newcomers):
            raise UnderstudyError(f"rank {runtime.rank}: {other_order(name)}")


def changed_sums(before: Mapping[str, int], now: Mapping[str, int]) -> list[tuple[str, bool]]:
    return [(name, before[name] != value) for name, value in sorted(now.items()) if name in before]


def other_order(name: str) -> str:
    return (
        f"process group {name} adds up in another order than when training began: a sum over its ranks is not the same, bit for bit, "
        "although every rank gives the same numbers"
    )


def read_copy(runtime: Runtime, rank: int, recovery: Recover, meeting: Rendezvous) -> LocalCopy:
    """The buddy copy of a newcomer's rank. Raises `NotTheSame` if it is damaged, or one of another transaction."""
    number = recovery.newcomers.index(rank)
    holder = "leaver" if rank in recovery.leavers else str(recovery.holders[number])
    copy = unseal(meeting.get(f"copy/{rank}/{holder}"))
    if copy.transaction != recovery.start - 1:
        raise NotTheSame(f"rank {rank}: the buddy copy is of transaction {copy.transaction}, not of {recovery.start - 1}")
    return copy


def plan_for(runtime: Runtime, rank: int, recovery: Recover, donors: Mapping[int, Donor], meeting: Rendezvous) -> Plan:
    """What `rank` gets from whom. Raises `UnderstudyError` if something of its state is nowhere, or its donors disagree."""
    copy = read_copy(runtime, rank, recovery, meeting)
    assert runtime.local.replicas is not None
    local = kept_locally(copy, rank, runtime.local.replicas, [version for donor in donors.values() for version in donor.versions])
    leaver = runtime.world_size + recovery.leavers.index(rank) if rank in recovery.leavers else None
    return make_plan(rank, runtime.local.replicas, donors, copy, local, leaver)
