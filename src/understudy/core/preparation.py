"""Prepared spares: they have run the script's set-up as a likely rank before it is lost (`JobSpec.prepared`).

A newcomer runs the script up to its first transaction (the model, its optimizer, the data) before it can receive its rank's state. A spare
that is *prepared* for a rank has done this already; only the attachment and the state are left. The price: its process belongs to that rank
and can take no other, and the set-up's side effects (files, prints, memory) happen while the rank itself is alive.

    prepare      Publish to all, Prepare to a spare, on each node to one at a time
    prepared     it is ready: the next one
    start_over   a rank is lost for which no spare is prepared, and no other spare is left: one that is prepared for another rank is
                 ended, so that a fresh one starts in its place
    make_room    the same for a rank that must leave its node
    keep         a loss calls off a drill whose spare is in a rank's set-up: it stays as a prepared spare until the incident is over

Ranks that must leave their node come first, then those on tainted nodes, then those on the spare's own node; last come ranks whose group is
kept together in another NVLink domain. A preparation that fails does no harm: the spare is replaced, and no further spare is prepared for a
rank in whose set-up two have failed.

`Prepare` is sent only when it is in the journal, and a worker that is asked to be two different ranks ends itself. At the end of the job a
prepared spare is killed and not asked to end: exit handlers of a rank that it has never been might write over the files of that rank. It is
off by default, because the script's own effects before its first transaction happen alongside the live rank.
"""

from __future__ import annotations

from collections import Counter

from understudy.core import drill
from understudy.core.assignment import environment, held_to
from understudy.core.commands import Prepare, Publish
from understudy.core.drain import ATTEMPTS as MOVES
from understudy.core.events import Prepared
from understudy.core.membership import fence, start_worker, top_up
from understudy.core.places import bounded, local_rank, open_places
from understudy.core.state import JobState, Worker
from understudy.core.topology import nvlink_domain, splits
from understudy.core.transitions import WorkerState
from understudy.messages import drills

ATTEMPTS = 2  # for each rank
TIMER = "prepare"
_COMING = (WorkerState.STARTING, WorkerState.WARM)
IN_A_ROW = 8  # of any rank, without one success: then the script cannot be set up twice at a time


def prepare(state: JobState) -> None:
    """In plain training, let idle spares set up for a rank, and let those whose generation has ended ask again."""
    if not (state.spec.prepared or prepared_spares(state)) or state.unsettled():
        return
    _end_surplus(state)
    if not state.spec.prepared or state.unprepared_in_a_row >= IN_A_ROW:
        return
    idle = state.idle(WorkerState.WARM)
    chosen = [(worker, worker.prepare) for worker in idle if worker.prepare is not None]
    for worker, asked in chosen:
        if not worker.ready and asked.generation != state.generation:
            _ask(state, worker, asked.rank)
    busy = {worker.node for worker, _ in chosen if not worker.ready}
    missing = state.spec.prepared - len(chosen)
    for worker in idle:
        if missing <= 0:
            return
        node = state.nodes[worker.node]
        if worker.prepare is not None or not worker.spare or worker.node in busy or not state.trusted(node) or node.claim >= 0:
            continue
        if bounded(state, node) and node.idle(WorkerState.DRILLING):
            continue  # the drill uses the place until it is over
        rank = _likely(state, worker)
        if rank is None:
            return
        local = local_rank(state, worker, rank)
        if local < 0:
            continue
        worker.local_rank = local
        _ask(state, worker, rank)
        busy.add(worker.node)
        missing -= 1


def prepared_spares(state: JobState) -> list[Worker]:
    """Return the spares that are in a rank's set-up, or have completed it."""
    return [worker for worker in state.idle(WorkerState.WARM) if worker.prepare is not None]


def keep(state: JobState, spare: Worker) -> None:
    """Keep the spare of a drill that a loss calls off before it has begun.

    If another one is prepared for the rank, it stays the spare of the drill and ends with it.
    """
    prepare, node = spare.prepare, state.nodes[spare.node]
    if prepare is None or any(other.prepare is not None and other.prepare.rank == prepare.rank for other in prepared_spares(state)):
        return
    if bounded(state, node) and prepare.rank not in state.vacant() and len(node.idle(*_COMING)) >= len(open_places(node)):
        return  # the spares that were started meanwhile need its place
    state.set_worker_state(spare, WorkerState.WARM)
    state.timer(TIMER, state.timeouts.hang_first)
    state.report(drills.KEPT(spare=spare.name, node=spare.node, rank=prepare.rank))


def _end_surplus(state: JobState) -> None:
    """End the kept spares of drills that were not needed: they can take one rank only, and exceed the number that was asked for."""
    surplus = sorted(prepared_spares(state), key=lambda worker: not worker.ready)[state.spec.prepared :]  # stable
    for worker in surplus:
        fence(state, worker, "it set up for a drill, and was not needed")
    if surplus:
        top_up(state)


def _ask(state: JobState, worker: Worker, rank: int) -> None:
    for member in state.members():
        state.emit(Publish(member.name, state.generation, state.store, (rank,)))
    variables = environment(state, rank, worker.local_rank, state.store)
    worker.prepare = Prepare(worker.name, state.generation, rank, state.store, variables)
    state.emit(worker.prepare)
    state.timer(TIMER, state.timeouts.hang_first)


def _likely(state: JobState, worker: Worker) -> int | None:
    """Return the rank for which this spare should be prepared, of those without a prepared spare."""
    covered = {spare.prepare.rank for spare in state.idle(WorkerState.WARM) if spare.prepare is not None and _serves(state, spare)}
    open_ranks = [rank for rank in state.ranks if rank not in covered and state.unprepared.get(rank, 0) < ATTEMPTS]

    def order(rank: int) -> tuple[bool, bool, bool, bool, int]:
        node = state.nodes[state.holder(rank).node]
        outside = splits(state, rank, state.nodes[worker.node])
        return outside, not _is_left(state, rank), not node.taint, node.name != worker.node, rank

    return min(open_ranks, key=order, default=None)


def _serves(state: JobState, spare: Worker) -> bool:
    """Return whether the spare fits its rank: not if it is on the node that the rank must leave, or on another tainted node."""
    assert spare.prepare is not None
    return not (_is_left(state, spare.prepare.rank) and state.nodes[spare.node].taints)


def prepared(state: JobState, event: Prepared) -> None:
    worker = state.workers[event.worker]
    if worker.prepare is None or worker.prepare.rank != event.rank:
        fence(state, worker, f"it is prepared for rank {event.rank}, and the journal knows nothing of that")
        if state.incident is None:
            top_up(state)
        return
    if worker.state is WorkerState.DRILLING:
        drill.ready(state, worker)
        return
    worker.ready = True
    state.unprepared_in_a_row = 0
    state.unprepared.pop(event.rank, None)
    if all(spare.prepare is None or spare.ready for spare in state.idle(WorkerState.WARM)):
        state.cancel(TIMER)
    prepare(state)


def failed(state: JobState, worker: Worker, rank: int, why: str) -> None:
    """Record that the script raised in a spare's set-up as `rank`. In the rank's own set-up it did not, so the job goes on."""
    missed(state, rank)
    fence(state, worker, f"it could not be prepared for rank {rank}")
    message = drills.NOT_PREPARED if state.unprepared[rank] < ATTEMPTS else drills.NOT_PREPARED_ANY_MORE
    state.report(message(spare=worker.name, node=worker.node, rank=rank, why=why))
    if state.incident is None:
        top_up(state)


def missed(state: JobState, rank: int) -> None:
    """Count a spare that did not complete the set-up of `rank`."""
    state.unprepared[rank] = state.unprepared.get(rank, 0) + 1
    state.unprepared_in_a_row += 1
    if state.unprepared_in_a_row == IN_A_ROW:
        state.report(drills.FAILED_IN_A_ROW(count=IN_A_ROW))


def overdue(state: JobState) -> None:
    """End the spares that have exceeded the limit of every set-up; others are started."""
    for worker in state.idle(WorkerState.WARM):
        if worker.prepare is not None and not worker.ready:
            failed(state, worker, worker.prepare.rank, drills.NOT_PREPARED_IN_TIME(seconds=state.timeouts.hang_first))


def publish_again(state: JobState, member: Worker) -> None:
    """Send a rank whose agent has connected again the ranks for which it should publish records."""
    for spare in prepared_spares(state):
        if spare.prepare is not None and not spare.ready:
            state.emit(Publish(member.name, spare.prepare.generation, spare.prepare.store, (spare.prepare.rank,)))


def start_over(state: JobState, vacant: list[int]) -> None:
    """Start spares over because these ranks wait for one, and the warm ones are prepared for others or are not where the ranks may go."""
    domains = Counter(held_to(state, rank) for rank in vacant)
    starting = state.idle(WorkerState.STARTING)
    others = prepared_spares(state)
    others.sort(key=lambda worker: not state.trusted(state.nodes[worker.node]))  # stable
    for domain in sorted(domains, reverse=True):  # those that may go anywhere come last
        coming = [worker for worker in starting if _is_in(state, worker, domain)][: domains[domain]]
        starting = [worker for worker in starting if worker not in coming]
        for worker in [other for other in others if _is_in(state, other, domain)][: domains[domain] - len(coming)]:
            others.remove(worker)
            _restart(state, worker, "a rank is lost for which it is not prepared")


def make_room(state: JobState, rank: int) -> bool:
    """Start a spare over for a rank that must leave its node, because the spares elsewhere are prepared for other ranks.

    Return False if there is none, or if a starting spare may take the rank.
    """
    home, domain = state.holder(rank).node, held_to(state, rank)

    def fits(worker: Worker) -> bool:
        return state.trusted(state.nodes[worker.node]) and worker.node != home and _is_in(state, worker, domain)

    if any(map(fits, state.idle(WorkerState.STARTING))):
        return False
    there = list(filter(fits, prepared_spares(state)))
    staying = [worker for worker in there if worker.prepare is not None and not _is_left(state, worker.prepare.rank)]
    if not staying or state.unprepared.get(rank, 0) >= ATTEMPTS:
        return False
    _restart(state, staying[-1], f"rank {rank} leaves node {home}, and it is not prepared for that")
    top_up(state)
    return True


def _is_left(state: JobState, rank: int) -> bool:
    """Return whether the rank must leave its node, and has not been tried too often."""
    holder = state.holder(rank)
    node = state.nodes[holder.node]
    of_device = [taint for taint in node.device_taints.values() if holder.device and taint.device == holder.device]
    leaves = any(taint.leave for taint in (*node.taints.values(), *of_device))
    return leaves and state.failed_moves.get(rank, 0) < MOVES


def _is_in(state: JobState, worker: Worker, domain: str) -> bool:
    """Return whether the worker is in this NVLink domain; "" matches any."""
    return not domain or nvlink_domain(state.nodes[worker.node]) == domain


def _restart(state: JobState, worker: Worker, why: str) -> None:
    assert worker.prepare is not None
    node = state.nodes[worker.node]
    fence(state, worker, why)
    there = [one for one in node.idle(WorkerState.STARTING, WorkerState.WARM) if one.spare]
    if not state.trusted(node) or len(there) >= node.spares:  # otherwise it is topped up; there are more only after a drill (`keep`)
        start_worker(state, node, spare=True)
    state.report(drills.STARTED_OVER(spare=worker.name, node=worker.node, rank=worker.prepare.rank))
