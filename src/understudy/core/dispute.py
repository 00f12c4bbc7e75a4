"""Replicas that differ: the odd one is replaced if most of its replicas speak against it, else the job is held; and taints of nodes.

The workers compare (`worker/protocol/comparison.py`, and in every recovery) and say what they found; nobody of them goes on in that
generation.

    replicas_differ   who is odd: it is lost (or had finished, and is gone), its node is tainted, a spare takes its rank like after any loss
                      nobody can tell: everyone comes to rest, and `quiesce.advance` decides nothing as long as there is a dispute
    believed          somebody has said who is right: those that hold something else are lost, and the job goes on

A loss in a job that is held is a loss like others (the next generation, a spare sets up), but it settles nothing: that one of two
replicas is gone does not make the other one right. Held is a state of the machine, so it is in the journal like all others.

A tainted node still works and is not trusted. It gets no new spares, and a spare there takes a rank only where the job has no other; of
a job that has no other node it keeps nothing away.

Known limit: the rank-local state of an odd rank (random streams, data position) has no replica. Its newcomer gets what the odd worker
handed to its buddies, and the incident says so.
"""

from __future__ import annotations

from understudy.core.events import Believed, NodeTainted, ReplicasDiffer
from understudy.core.loss import Loss, finished_then_lost_needed, lose
from understudy.core.membership import open_incident
from understudy.core.migration import disrupted
from understudy.core.model import LossCause
from understudy.core.quiesce import advance, begin, want_more
from understudy.core.state import Dispute, JobState, Stage, Worker
from understudy.core.transitions import Phase, Why, WorkerState


def replicas_differ(state: JobState, event: ReplicasDiffer) -> None:
    now = state.phase in (Phase.TRAINING, Phase.RESUMING) and event.generation == state.generation
    recovery = state.recovery
    on_the_way_to_a_boundary = recovery is not None and recovery.planned and event.worker in recovery.waiting
    if not now and not (state.phase is Phase.QUIESCING and on_the_way_to_a_boundary):
        state.refuse(event, Why.GENERATION)
        return
    odd = [_at(state, rank) for rank in event.odd if rank in state.ranks]
    sides = [tuple(rank for rank in side if rank in state.ranks) for side in event.sides]
    if odd:
        _replace(state, odd, event.detail)
    elif sides := [side for side in sides if side]:
        _hold(state, tuple(sides), event.detail)


def _at(state: JobState, rank: int) -> Worker:
    """Who holds the state of `rank` that was compared: while a rank moves that is its old worker."""
    migration = state.migration
    if migration is not None and migration.stage is Stage.MOVING and migration.rank == rank:
        return state.workers[migration.leaver]
    return state.holder(rank)


def _replace(state: JobState, odd: list[Worker], detail: str) -> None:
    for worker in odd:
        _taint(state, worker.node, f"rank {worker.rank} (worker {worker.name}): {detail}")
    there = [worker for worker in odd if worker.state is not WorkerState.LOST]
    if there:
        lose(state, [Loss(worker, LossCause.CORRUPT, detail, state.now) for worker in there])
    else:  # all of them had finished and are gone: the others, which have found it, stand still
        finished_then_lost_needed(state, detail)
    if state.incident is not None and state.ended is None:
        for worker in odd:
            state.incident.note(
                f"rank {worker.rank}: random streams and data position have no replica; they are what {worker.name} handed over with its "
                "last vote (the batch is drawn again and compared)"
            )


def _hold(state: JobState, sides: tuple[tuple[int, ...], ...], found: str) -> None:
    told = " or ".join(f"rank {_list(side)}" if len(side) == 1 else f"ranks {_list(side)}" for side in sides)
    detail = (
        f"{found}. It cannot be told who is right, {told}: the job is held. `understudy believe --rank RANK` goes on with what "
        "that rank holds, `understudy stop` ends the job"
    )
    workers = tuple(_at(state, rank).name for side in sides for rank in side)
    state.dispute = Dispute(sides, workers, detail)
    state.tell(detail)
    incident = open_incident(state, state.now, found)
    incident.note(detail)
    incident.disputed = True
    disrupted(state, set(), "replicas differ")
    begin(state, found, [])


def refusal(state: JobState, rank: int) -> str:
    """Why nobody can say now that `rank` is right; empty if somebody can."""
    dispute = state.dispute
    if dispute is None or state.phase is Phase.ENDED:
        return "the job is not held: its replicas do not differ"
    if not any(rank in side for side in dispute.sides):
        return f"rank {rank} is not one of those that differ: {', '.join(_list(side) for side in dispute.sides)}"
    holder = state.holder(rank)
    if holder.name not in dispute.workers or holder.state is not WorkerState.MEMBER:
        return f"the worker that held rank {rank} when it was compared is lost: believe another one"
    return ""


def believed(state: JobState, event: Believed) -> None:
    dispute, why_not = state.dispute, refusal(state, event.rank)
    if why_not or dispute is None:
        state.tell(f"rank {event.rank} cannot be believed: {why_not}")
        return
    state.dispute = None
    said = f"rank {event.rank} is believed" + (f": {event.reason}" if event.reason else "")
    state.tell(said)
    if state.incident is not None:
        state.incident.note(said)
    others = [state.holder(rank) for side in dispute.sides if event.rank not in side for rank in side]
    wrong = [worker for worker in others if worker.name in dispute.workers and worker.state is WorkerState.MEMBER]
    if wrong:
        _replace(state, wrong, f"it holds something else than rank {event.rank}, which is believed ({dispute.detail.partition('. ')[0]})")
    else:
        advance(state)


def node_tainted(state: JobState, event: NodeTainted) -> None:
    node = state.nodes.get(event.node)
    if node is None:
        state.refuse(event, Why.UNKNOWN)
        return
    if event.reason:
        _taint(state, event.node, event.reason)
        return
    if node.taint:
        node.taint = ""
        state.tell(f"node {node.name} is trusted again")
    if state.phase not in (Phase.FORMING, Phase.ENDED):
        want_more(state)


def _taint(state: JobState, name: str, reason: str) -> None:
    node = state.nodes[name]
    if not node.taint:
        node.taint = reason
        state.tell(f"node {name} is tainted: {reason}")


def _list(ranks: tuple[int, ...]) -> str:
    return ", ".join(map(str, ranks))
