"""Spares that have been through the script's set-up as a likely rank before that is lost: `JobSpec.prepared` of them.

Until it can be given its rank's state, a newcomer runs the script up to its first transaction: the model, its optimizer, the data. In
a spare that is *prepared* for a rank that has happened already; what is left are the attachment and the state. The price: its process
is that rank's and can take no other, and the set-up's own effects (files, prints, memory) happen beside those of the rank, which is
alive.

    prepare      Publish to all, Prepare to a spare, on each node to one at a time
    prepared     it is ready: the next one
    start_over   a rank is lost for which nobody is prepared, and no other spare is left: one that is prepared for another rank is ended,
                 so that a fresh one starts in its place
    make_room    the same for a rank that is to leave its node
    keep         a loss calls a drill off whose spare is in a rank's set-up: it is one more of these, until the incident is over

Ranks that are to leave their node come first, then those on tainted nodes, then those on the spare's own node; last come ranks whose group
is kept together in another NVLink domain. A preparation costs nobody anything when it fails: the spare is replaced, and a rank in whose
set-up two have failed is left alone.
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
IN_A_ROW = 8  # of any rank, without one that came through: then it is the script that cannot be set up twice at a time


def prepare(state: JobState) -> None:
    """In plain training: lets spares that have nothing to do set up for a rank, and those whose generation has ended ask again."""
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
        if bounded(state, node) and node.idle(WorkerState.REHEARSING):
            continue  # that has the place until the drill is over
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
    """Those that are in a rank's set-up, or have been through it."""
    return [worker for worker in state.idle(WorkerState.WARM) if worker.prepare is not None]


def keep(state: JobState, spare: Worker) -> None:
    """The spare of a drill that a loss calls off before it has begun. If another one is prepared for the rank, it stays that of the drill,
    and ends with it.
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
    """Spares of drills that were kept, and that nobody has needed: they can take one rank only, and nobody has asked for so many."""
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
    """The rank for which this spare should be prepared: of those for which nobody is."""
    covered = {spare.prepare.rank for spare in state.idle(WorkerState.WARM) if spare.prepare is not None and _serves(state, spare)}
    open_ranks = [rank for rank in state.ranks if rank not in covered and state.unprepared.get(rank, 0) < ATTEMPTS]

    def order(rank: int) -> tuple[bool, bool, bool, bool, int]:
        node = state.nodes[state.holder(rank).node]
        outside = splits(state, rank, state.nodes[worker.node])
        return outside, not _is_left(state, rank), not node.taint, node.name != worker.node, rank

    return min(open_ranks, key=order, default=None)


def _serves(state: JobState, spare: Worker) -> bool:
    """Not a rank that is to leave the node on which the spare is, or that would come to another one that is tainted."""
    assert spare.prepare is not None
    return not (_is_left(state, spare.prepare.rank) and state.nodes[spare.node].taints)


def prepared(state: JobState, event: Prepared) -> None:
    worker = state.workers[event.worker]
    if worker.prepare is None or worker.prepare.rank != event.rank:
        fence(state, worker, f"it is prepared for rank {event.rank}, and the journal knows nothing of that")
        if state.incident is None:
            top_up(state)
        return
    if worker.state is WorkerState.REHEARSING:
        drill.ready(state, worker)
        return
    worker.ready = True
    state.unprepared_in_a_row = 0
    state.unprepared.pop(event.rank, None)
    if all(spare.prepare is None or spare.ready for spare in state.idle(WorkerState.WARM)):
        state.cancel(TIMER)
    prepare(state)


def failed(state: JobState, worker: Worker, rank: int, why: str) -> None:
    """The script raised in a spare's set-up as `rank`, ahead of time. In the rank's own it did not: the job goes on."""
    missed(state, rank)
    fence(state, worker, f"it could not be prepared for rank {rank}")
    told = drills.NOT_PREPARED if state.unprepared[rank] < ATTEMPTS else drills.NOT_PREPARED_ANY_MORE
    state.report(told(spare=worker.name, node=worker.node, rank=rank, why=why))
    if state.incident is None:
        top_up(state)


def missed(state: JobState, rank: int) -> None:
    """A spare did not come through the set-up of `rank`."""
    state.unprepared[rank] = state.unprepared.get(rank, 0) + 1
    state.unprepared_in_a_row += 1
    if state.unprepared_in_a_row == IN_A_ROW:
        state.report(drills.FAILED_IN_A_ROW(count=IN_A_ROW))


def overdue(state: JobState) -> None:
    """Spares that are still in their set-up after the limit of every set-up are ended, and others are started."""
    for worker in state.idle(WorkerState.WARM):
        if worker.prepare is not None and not worker.ready:
            failed(state, worker, worker.prepare.rank, drills.NOT_PREPARED_IN_TIME(seconds=state.timeouts.hang_first))


def publish_again(state: JobState, member: Worker) -> None:
    """To a rank whose agent has connected again: for whom it should publish records."""
    for spare in prepared_spares(state):
        if spare.prepare is not None and not spare.ready:
            state.emit(Publish(member.name, spare.prepare.generation, spare.prepare.store, (spare.prepare.rank,)))


def start_over(state: JobState, vacant: list[int]) -> None:
    """These ranks wait for a spare, and those that are warm are prepared for others, or are not where the ranks may go."""
    domains = Counter(held_to(state, rank) for rank in vacant)
    starting = state.idle(WorkerState.STARTING)
    others = prepared_spares(state)
    others.sort(key=lambda worker: not state.trusted(state.nodes[worker.node]))  # stable
    for domain in sorted(domains, reverse=True):  # those that may go anywhere last
        coming = [worker for worker in starting if _is_in(state, worker, domain)][: domains[domain]]
        starting = [worker for worker in starting if worker not in coming]
        for worker in [other for other in others if _is_in(state, other, domain)][: domains[domain] - len(coming)]:
            others.remove(worker)
            _anew(state, worker, "a rank is lost for which it is not prepared")


def make_room(state: JobState, rank: int) -> bool:
    """A rank is to leave its node, and the spares elsewhere are prepared for others: one of them is started over for it. False: none is
    there, or one starts that may take it.
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
    _anew(state, staying[-1], f"rank {rank} leaves node {home}, and it is not prepared for that")
    top_up(state)
    return True


def _is_left(state: JobState, rank: int) -> bool:
    """Whether it is to leave its node, and has not been tried in vain."""
    holder = state.holder(rank)
    node = state.nodes[holder.node]
    of_device = [taint for taint in node.device_taints.values() if holder.device and taint.device == holder.device]
    leaves = any(taint.leave for taint in (*node.taints.values(), *of_device))
    return leaves and state.failed_moves.get(rank, 0) < MOVES


def _is_in(state: JobState, worker: Worker, domain: str) -> bool:
    """Whether it is in this NVLink domain; "": any will do."""
    return not domain or nvlink_domain(state.nodes[worker.node]) == domain


def _anew(state: JobState, worker: Worker, why: str) -> None:
    assert worker.prepare is not None
    node = state.nodes[worker.node]
    fence(state, worker, why)
    there = [one for one in node.idle(WorkerState.STARTING, WorkerState.WARM) if one.spare]
    if not state.trusted(node) or len(there) >= node.spares:  # else it is topped up; more are there only behind a drill (`keep`)
        start_worker(state, node, spare=True)
    state.report(drills.STARTED_OVER(spare=worker.name, node=worker.node, rank=worker.prepare.rank))
