"""Form a job: start workers, warm them, assign ranks. And start all of them again from scratch.

Ranks are numbered node by node. All workers start the same way; those that were started for a rank take it in the order of their names once
enough of them are warm on every node.

A loss before the first transaction is handled here, too: nothing was done yet, so every rank's worker is started again, at most
`max_restarts` times.
"""

from __future__ import annotations

from understudy.core.membership import fence, give_back, give_rank, start_worker, top_up
from understudy.core.preparation import TIMER
from understudy.core.state import JobState, Node, Worker
from understudy.core.transitions import Phase, WorkerState
from understudy.messages import forming


def give_out_ranks(state: JobState) -> None:
    """Assign every rank, once enough workers are warm on every node."""
    wanted = state.spec.workers_per_node

    def ready(rank: int) -> bool:
        return rank in state.places and len(_warm(state.places[rank])) >= wanted

    if not state.all_of("warm", state.spec.nodes, ready):
        return
    chosen = [worker for node in state.hosts() for worker in _warm(node)[:wanted]]
    state.store = chosen[0].store
    state.set_phase(Phase.TRAINING)
    state.all_committed = False
    for rank, worker in enumerate(chosen):
        give_rank(state, worker, rank, state.generation, state.store, newcomer=False)
        state.ranks[rank] = worker.name
        if state.incident is not None and any(lost.rank == rank for lost in state.incident.ranks):
            state.incident.assigned(rank, worker.name, state.now)


def restart_all(state: JobState, reason: str) -> None:
    """End every holder and start the ranks again in a new generation, because nothing was done yet."""
    if state.restarts >= state.spec.max_restarts:
        state.end(1, forming.STARTED_TOO_OFTEN(restarts=state.restarts, most=state.spec.max_restarts, reason=reason))
        return
    state.restarts += 1
    state.generation = state.next_generation()
    starts = forming.RESTARTS if state.protected else forming.RESTARTS_UNPROTECTED
    state.report(starts(reason=reason, restarts=state.restarts, most=state.spec.max_restarts))
    for worker in state.members():
        fence(state, worker, "the job restarts")
    for worker in state.newcomers():
        give_back(state, worker, "the job restarts")
    for worker in state.idle(WorkerState.WARM):
        if worker.prepare is not None:
            fence(state, worker, "the job restarts")
    state.ranks.clear()
    state.ranks_ever_lost.clear()
    state.finished_then_lost.clear()
    state.broken = ""
    state.recovery = state.migration = state.dispute = state.crashes = None
    state.cancel("quiesce", "hold", "resume", "communication", "migration", TIMER)
    state.set_phase(Phase.FORMING)
    if any(node.lost for node in state.hosts()):
        state.end(1, forming.NODES_MISSING(reason=reason))
        return
    start_ranks(state)
    top_up(state)


def _warm(node: Node) -> list[Worker]:
    return [worker for worker in node.idle(WorkerState.WARM) if not worker.spare]


def start_ranks(state: JobState) -> None:
    for node in state.hosts():
        for _ in range(state.spec.workers_per_node):
            start_worker(state, node, spare=False)
