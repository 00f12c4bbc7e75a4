"""Drill: a spare computes a rank's next step in parallel with it, and compares the bits. Training does not depend on it.

    asked       Publish to all, Prepare to a warm spare: it runs the script's set-up as the rank
    ready       it has: Drill to the rank and to the spare, which meet and both compute the rank's next step
    drilled     the spare's verdict; it is ended, because its process belongs to that rank

During the drill the spare is `DRILLING`: neither member nor donor, and not counted as a spare. So a fresh one is started in its place at
once. Any other incident (a loss, a migration, the end of the job) calls the drill off: nothing waits for it.

The spare is ended then, with one exception: before both were told to begin, a loss keeps a spare that is still in the rank's set-up as a
prepared spare (`preparation.keep`). A spare that was told to begin may have received state, and never takes a rank.

A verdict is valid for the script, the state and the devices as they were at that step.

`Drill` is sent only when its event is in the journal: an orchestrator that did not know of it would give the rank to a spare that never
takes it.

Known limit: if a node has room for one spare only, and a rank is lost while the agent is about to report that there is no room for another
one, that report counts although the room is there a moment later. Without another spare the job ends.
"""

from __future__ import annotations

from understudy.core import grades, proofs
from understudy.core.assignment import choose_spare, environment
from understudy.core.commands import Drill, DrillOver, Prepare, Publish
from understudy.core.events import DrillAsked, DrillBroken, Drilled
from understudy.core.membership import fence, top_up
from understudy.core.model import DrillResult, DrillVerdict
from understudy.core.places import local_rank
from understudy.core.state import DrillUnderWay, JobState, Worker
from understudy.core.transitions import RefusalReason, WorkerState
from understudy.messages import drills, moves, set_up
from understudy.messages.base import CODE, Text

TIMER = "drill"
KEPT = 200  # number of results
PATIENCE = 10.0  # seconds that a rank waits for its spare at most; always less than the limit of the hang detector
NOT_SURVIVABLE = 3  # the exit code of a job that has to be survivable, as of `understudy drill`


def refusal(state: JobState, rank: int) -> str:
    """Return why no spare can be drilled for `rank` (-1: any) now; empty if one can."""
    if rank not in range(-1, state.spec.world_size):
        return moves.NO_SUCH_RANK(rank=rank, last=state.spec.world_size - 1)
    if why_not := state.unsettled():
        return why_not
    if state.drill is not None:
        return drills.UNDER_WAY(rank=state.drill.rank)
    if not state.spec.replenish:
        return drills.NOT_REPLACED()
    spare = choose_spare(state, proofs.turn(state) if rank < 0 else rank)
    if spare is None or state.nodes[spare.node].claim >= 0:
        return moves.NO_SPARE_WARM() if state.idle(WorkerState.STARTING) else moves.NO_SPARE()
    return ""


def due(state: JobState, step: int, now: float) -> bool:
    """Return whether an automatic drill should begin when every rank has committed `step` steps. `now`: unix time."""
    wanted = state.spec.drill_at
    return bool(wanted) and step >= max(wanted, state.drill_next) and now >= state.drill_after and not refusal(state, -1)


def asked(state: JobState, event: DrillAsked) -> None:
    why_not = refusal(state, event.rank)
    if why_not:
        state.report(drills.NO_DRILL(rank=event.rank, why=why_not) if event.rank >= 0 else drills.NO_DRILL_OF_ANY(why=why_not))
        return
    rank = proofs.turn(state) if event.rank < 0 else event.rank
    spare = choose_spare(state, rank)
    assert spare is not None, "else it is refused"
    state.drilled += 1
    state.drill = DrillUnderWay(state.drilled, rank, spare.name, state.holder(rank).name, event.reason, event.step)
    state.report(drills.BEGINS(number=state.drilled, spare=spare.name, node=spare.node, rank=rank))
    state.set_worker_state(spare, WorkerState.DRILLING)
    state.timer(TIMER, state.timeouts.hang_first)
    if spare.prepare is None:
        spare.local_rank = local_rank(state, spare, rank)
        for member in state.members():
            state.emit(Publish(member.name, state.generation, state.store, (rank,)))
        spare.prepare = Prepare(spare.name, state.generation, rank, state.store, environment(state, rank, spare.local_rank, state.store))
        state.emit(spare.prepare)
    elif spare.ready:
        ready(state, spare)
    top_up(state)


def ready(state: JobState, spare: Worker) -> None:
    """Begin the comparison, because the spare has completed the set-up."""
    drill = state.drill
    assert drill is not None, "else no spare is drilling"
    if drill.running:
        return
    if state.workers[drill.holder].state is not WorkerState.MEMBER:  # its script had ended, so that was no loss
        _conclude(state, drill, DrillVerdict.BROKEN, drills.FINISHED_AND_GONE())
        return
    spare.ready = drill.running = True
    drill.changing = proofs.changing(state)
    for command in _commands(state, drill):
        state.emit(command)


def _commands(state: JobState, drill: DrillUnderWay) -> list[Drill]:
    store, patience = state.workers[drill.holder].store, min(PATIENCE, state.timeouts.hang_floor / 2)
    return [Drill(name, state.generation, drill.number, drill.rank, store, patience) for name in (drill.holder, drill.worker)]


def repeat(state: JobState, worker: Worker) -> None:
    """Repeat the commands of a drill to a worker whose agent has reconnected."""
    drill = state.drill
    if drill is not None and not drill.running and worker.state is WorkerState.MEMBER:
        prepare = state.workers[drill.worker].prepare
        assert prepare is not None
        state.emit(Publish(worker.name, prepare.generation, prepare.store, (drill.rank,)))
    if drill is not None and drill.running:
        for command in _commands(state, drill):
            if command.worker == worker.name:
                state.emit(command)


def drilled(state: JobState, event: Drilled) -> None:
    drill = state.drill
    assert drill is not None, "else no spare is drilling"
    if (drill.number, drill.rank) != (event.drill, event.rank):
        state.ignore(event, RefusalReason.OVER)
        return
    _conclude(state, drill, event.verdict, event.detail, event)


def broken(state: JobState, event: DrillBroken) -> None:
    drill = state.drill
    if drill is None or (drill.holder, drill.number) != (event.worker, event.drill):
        state.ignore(event, RefusalReason.OVER)
        return
    _conclude(state, drill, DrillVerdict.BROKEN, event.detail)


def failed(state: JobState, worker: Worker, why: str) -> bool:
    """Handle an exception of the script in this spare; return whether it was in a drill.

    A fault of the spare while the rank is not there is no verdict.
    """
    drill = state.drill
    if drill is None or drill.worker != worker.name:
        return False
    if set_up.PORT_TAKEN.code in CODE.findall(why):
        _conclude(state, drill, DrillVerdict.BROKEN, why)
    else:
        _conclude(state, drill, DrillVerdict.DIFFERENT, drills.COULD_NOT_COME(why=why))
    return True


def lost(state: JobState, worker: Worker, why: str) -> None:
    """End the drill of a spare that is gone and already fenced."""
    if state.drill is not None and state.drill.worker == worker.name:
        _conclude(state, state.drill, DrillVerdict.BROKEN, drills.DRILL_SPARE_LOST(why=why))


def overdue(state: JobState) -> None:
    if state.drill is not None:
        late = drills.NOTHING_CAME if state.drill.running else drills.NOT_READY
        _conclude(state, state.drill, DrillVerdict.BROKEN, late(seconds=state.timeouts.hang_first))


def in_set_up(state: JobState) -> Worker | None:
    """Return the spare of a drill if it is alive and was not told to begin."""
    if state.drill is None or state.drill.running:
        return None
    spare = state.workers[state.drill.worker]
    return spare if spare.state is WorkerState.DRILLING else None


def call_off(state: JobState, why: str) -> None:
    """End the drill, because something more important happens."""
    if state.drill is not None:
        _conclude(state, state.drill, DrillVerdict.BROKEN, drills.DRILL_CALLED_OFF(why=why), fresh=False)


def _conclude(
    state: JobState, drill: DrillUnderWay, verdict: DrillVerdict, detail: str, figures: Drilled | None = None, fresh: bool = True
) -> None:
    state.drill = None
    state.cancel(TIMER)
    of = figures or Drilled(drill.worker, drill.number, drill.rank, verdict, state.step(), detail)
    result = DrillResult(
        *(drill.number, drill.rank, drill.worker, verdict, of.step, detail, state.now),
        *(of.compared, of.collectives, of.left_out, of.bytes_moved, of.pause),
        frozenset(of.changing) | drill.changing,
        proofs.since(state, drill.holder),
    )
    state.drills = [*state.drills, result][-KEPT:]
    state.report(describe(result))
    grades.drilled(state, result)
    proofs.concluded(state, result)
    if drill.running and fresh:  # called off: the rank is informed by the other event
        state.emit(DrillOver(drill.holder, state.generation, drill.number))
    if state.spec.require_drill and verdict in (DrillVerdict.DIFFERENT, DrillVerdict.NOT_REPRODUCIBLE):
        state.end(NOT_SURVIVABLE, drills.REQUIRED(result=describe(result)))
        return
    spare = state.workers[drill.worker]
    if spare.state is WorkerState.DRILLING:
        fence(state, spare, f"drill {drill.number} is over")
    node = state.nodes[spare.node]
    node.spares, node.refused = node.spares + node.refused, 0  # there may be room again
    if fresh and state.incident is None:
        top_up(state)


def advice(verdict: str, rank: int) -> str:
    """Return the remedy; empty if there is none, or if the verdict itself names it."""
    return drills.TRY_AGAIN(rank=rank) if verdict == DrillVerdict.BROKEN else ""


def describe(result: DrillResult) -> Text:
    """Describe the result for the user."""
    number, rank, step = result.number, result.rank, result.step
    more = f": {result.detail}" if result.detail else ""
    match result.verdict:
        case DrillVerdict.SAME:
            return drills.SAME(number=number, rank=rank, step=step, spare=result.worker, more=more)
        case DrillVerdict.PARTLY:
            left_out = f", {result.left_out} were too much to be sent" if result.left_out else ""
            return drills.PARTLY(number=number, rank=rank, step=step, collectives=result.collectives, left_out=left_out, more=more)
        case DrillVerdict.DIFFERENT:
            return drills.NOT_SURVIVABLE(number=number, rank=rank, step=step, more=more)
        case DrillVerdict.NOT_REPRODUCIBLE:
            return drills.NOT_REPRODUCIBLE(number=number, rank=rank, step=step, more=more)
        case DrillVerdict.BROKEN:
            return drills.NOT_PROVEN(number=number, rank=rank, more=more)
