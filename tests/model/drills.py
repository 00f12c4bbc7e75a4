"""The allowed effects of a drill on the machine: it runs in parallel with the job, which does not depend on it. Checked after every event.

Invariants of one state alone are in `tests.core.test_machine.check_drill`. Here are the changes that an event may make to a drill, and that
the job has something to go on with when a drill has no result.
"""

from __future__ import annotations

from collections.abc import Iterable

from tests.model.world import World, Wrong
from understudy.core import commands, events
from understudy.core.machine import Machine
from understudy.core.state import DrillUnderWay, JobState
from understudy.core.transitions import WorkerState

WORDS = (events.Drilled, events.DrillBroken)
COMPUTES = "has computed the step"
BREAKS_OFF = "breaks the drill off"


def follow(before: JobState, event: events.Event, after: JobState, answer: Iterable[commands.Command]) -> None:
    """Raises `Wrong`. `before` and `after` the event, which was answered like this."""
    drill = before.drill
    for command in answer:
        _look_at(after, command)
    if after.ended is not None or drill is None:
        return
    if isinstance(event, WORDS) and event.drill != drill.number and after.drill != drill:
        raise Wrong(f"{event} ends drill {drill.number}, which is another one")
    if after.drill is None or after.drill.number != drill.number:
        _is_over(before, drill, after)


def _look_at(after: JobState, command: commands.Command) -> None:
    """Check that a command goes to a worker that can receive it."""
    worker = after.workers.get(getattr(command, "worker", ""))
    if worker is None:
        return
    if isinstance(command, commands.Drill):
        drill = after.drill
        if drill is None or (drill.number, drill.rank) != (command.number, command.rank) or not drill.running:
            raise Wrong(f"{command} is of no drill that is under way")
        state = {drill.worker: WorkerState.DRILLING, drill.holder: WorkerState.MEMBER}.get(worker.name)
        if worker.state is not state:
            raise Wrong(f"{command} is told to one that is {worker.state}")
    elif worker.state is WorkerState.DRILLING and not isinstance(command, commands.Prepare):
        raise Wrong(f"{command} is told to the spare of a drill")


def _is_over(before: JobState, drill: DrillUnderWay, after: JobState) -> None:
    """Its spare is fenced, or it has begun nothing, a rank is lost, and it is a spare that is prepared for the rank, or takes it."""
    spare = after.workers[drill.worker]
    if spare.state is WorkerState.LOST:
        return
    if drill.running:
        raise Wrong(f"{spare.name} was told to compute a step, and is {spare.state} behind the drill")
    if after.generation == before.generation or not (after.vacant() or after.newcomers()):
        raise Wrong(f"{spare.name} is {spare.state} behind a drill that no loss has called off")
    rank = spare.prepare.rank if spare.prepare is not None else -1
    if rank != drill.rank or spare.state not in (WorkerState.WARM, WorkerState.NEWCOMER) or spare.rank not in (-1, rank):
        raise Wrong(f"{spare.name}, in the set-up of rank {drill.rank} for a drill, is {spare.state} for rank {rank} behind it")


def waits(world: World, machine: Machine, steps: Iterable[str]) -> bool:
    """Whether all that can happen without a fault are steps of the drill that is under way: then the job waits for it."""
    drill = machine.state.drill
    if drill is None:
        return False
    own = set()
    for w in world.workers:
        if w.name in (drill.worker, drill.holder):
            if all(isinstance(word, (*WORDS, events.Prepared)) for word in w.up):  # else they are in the way of others, and arrive
                own |= {f"{type(word).__name__} of {w.name} arrives" for word in w.up}
            if all(order[0] in ("drill", "prepare", "publish") for order in w.down):
                own |= {f"{w.name} is told to {order[0]} {order[1:2]}" for order in w.down}
            own |= {f"{w.name} {what}" for what in ("is prepared", COMPUTES, BREAKS_OFF)}
    return own.issuperset(steps)
