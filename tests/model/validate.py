"""Check that a real run followed the protocol: its journal is replayed, and every message of every worker is compared with those that the
model allows the worker after the commands that it has received.

The rules are those of `world.py`, seen from outside: actions of a worker between two messages do not show here. A message may come twice
(agents repeat themselves); then the second one must be the same as the first.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tests.model.machines import machine_key
from understudy.common.names import JOURNAL
from understudy.core import commands, events
from understudy.core.machine import Machine
from understudy.core.model import Position, VotePhase
from understudy.core.transitions import HAS_STATE, Phase, WorkerState
from understudy.orchestrator import journal
from understudy.orchestrator.settings import Settings


class NotAllowed(AssertionError):
    """The model has no such transition."""


@dataclass
class _Told:
    """The commands that a worker has received, and its messages, by generation."""

    assigned: commands.Assign | None = None
    prepared: set[int] = field(default_factory=set)  # ranks
    drills: set[int] = field(default_factory=set)
    quiesce: set[int] = field(default_factory=set)
    recover: dict[int, commands.Recover] = field(default_factory=dict)
    said: set[events.Event] = field(default_factory=set)
    places: dict[int, Position] = field(default_factory=dict)
    commits: dict[int, int] = field(default_factory=dict)


class Validator:
    def __init__(self, settings: Settings, *, killed: bool = False) -> None:
        """`killed`: an orchestrator of the job was, and may have begun generations that are not in the journal."""
        self.machine = Machine(settings.spec, settings.timeouts)
        self._workers: dict[str, _Told] = {}
        self._starts: dict[int, int] = {}  # of each generation that was decided
        self._steps: dict[int, int] = {}  # after the first transaction of each
        self._killed = killed
        self._unwritten: set[int] = set()  # such generations
        self._committed = -1  # the highest transaction that somebody is known to have committed

    def run(self, recorded: Iterable[tuple[float, events.Event]]) -> None:
        """Raises `NotAllowed`."""
        for now, event in recorded:
            self.take(event, now)
        state = self.machine.state
        if state.ended is not None and state.ended.exit_code == 0 and state.spec.world_size:
            _must(all(state.holder(rank).finished for rank in state.ranks), "the job ended well although not every rank had finished")

    def take(self, event: events.Event, now: float = 0.0) -> None:
        state = self.machine.state
        name = getattr(event, "worker", "")
        worker = state.workers.get(name)
        fenced = worker is not None and worker.state is WorkerState.LOST
        if isinstance(event, events.FromWorker) and not fenced and state.phase is not Phase.ENDED:
            told = self._workers.setdefault(name, _Told())
            if event not in told.said:
                self._check(told, event)
                told.said.add(event)
        before = machine_key(self.machine, heard=False) if fenced else None
        generation = state.generation
        answer = self.machine.handle(event, now)
        if isinstance(event, events.Quiesced) and event.generation > generation and worker is not None and worker.state in HAS_STATE:
            _must(state.generation > event.generation, f"generation {event.generation} has begun twice, for different reasons")
        _must(state.generation >= generation, "the generation went back")
        if fenced:
            _must(machine_key(self.machine, heard=False) == before, f"{event} of a fenced worker has changed something")
        for command in answer:
            self._note(command)

    def _note(self, command: commands.Command) -> None:
        told = self._workers.setdefault(getattr(command, "worker", ""), _Told())
        match command:
            case commands.Assign():
                if command != told.assigned and command.newcomer:
                    _must(not told.drills, f"{command.worker} was told to compute a step beside a rank, and gets one")
                told.assigned = command
                if not command.newcomer:
                    self._starts.setdefault(command.generation, 0)
            case commands.Prepare():
                told.prepared.add(command.rank)
            case commands.Drill():
                told.drills.add(command.number)
            case commands.Abort() | commands.Pause():
                told.quiesce.add(command.generation)
            case commands.Recover():
                told.recover[command.generation] = command
                if command.generation not in self._starts:  # else it is a repeat, or another worker's
                    undone = f"generation {command.generation} undoes transaction {self._committed}, which was committed"
                    _must(command.start > self._committed, undone)
                start = self._starts.setdefault(command.generation, command.start)
                _must(start == command.start, f"generation {command.generation} starts at {start} and at {command.start}")

    def _check(self, told: _Told, event: events.FromWorker) -> None:
        match event:
            case events.Quiesced():
                self._check_position(told, event)
            case events.NewcomerReady():
                _must(told.assigned is not None and told.assigned.newcomer, f"{event.worker} is no newcomer, and says that it is ready")
            case events.Prepared():
                _must(self._killed or event.rank in told.prepared, f"{event.worker} is prepared for rank {event.rank}, unasked")
            case events.Drilled() | events.DrillBroken():
                _must(self._killed or event.drill in told.drills, f"{event.worker} speaks of drill {event.drill}, of which it was not told")
            case events.Verified():
                known = told.assigned is not None and told.assigned.newcomer and event.generation in told.recover
                _must(known, f"{event.worker} is verified in generation {event.generation}, for which it was told nothing")
            case events.Committed():
                self._check_commit(told, event)
            case events.ReplicasDiffer() | events.RedoDiffers():
                joined = told.assigned is not None and (event.generation in told.recover or event.generation == told.assigned.generation)
                _must(joined, f"{event.worker} compares in generation {event.generation}, to which it does not belong")
            case events.Finished():
                _must(told.assigned is not None, f"{event.worker} has finished without a rank")
            case _:
                pass

    def _check_position(self, told: _Told, event: events.Quiesced) -> None:
        if self._killed and event.generation > self.machine.state.generation:
            self._unwritten.add(event.generation)  # others may stop for it, too; the next orchestrator must end it (`take`)
        asked = event.generation in told.quiesce or event.generation in self._unwritten
        _must(asked, f"{event.worker} has come to rest for generation {event.generation}, unasked")
        _must(event.generation not in told.places, f"{event.worker} says twice, and differently, where it stands")
        place = told.places[event.generation] = event.position
        earlier = [start for generation, start in self._starts.items() if generation in told.recover and generation < event.generation]
        _must(place.transaction >= max(earlier, default=-1) - 1, f"{event.worker} is at {place}, behind the start of its generation")
        if place.stand is not VotePhase.VOTED:
            _must(place.transaction > max(told.commits.values(), default=-2), f"{event.worker} is at {place}, which it has committed")
        for copy in event.copies:
            _must(copy.transaction <= place.transaction + 1, f"{event.worker} at {place} keeps a copy of the future: {copy}")

    def _check_commit(self, told: _Told, event: events.Committed) -> None:
        generation = event.generation
        joined = told.assigned is not None and (generation in told.recover or generation == told.assigned.generation)
        _must(joined, f"{event.worker} commits in generation {generation}, to which it does not belong")
        start = self._starts.get(generation)
        _must(
            start == event.transaction,
            f"{event.worker} commits {event.transaction} first in generation {generation}, which starts at {start}",
        )
        step = self._steps.setdefault(generation, event.step)
        _must(step == event.step, f"after transaction {event.transaction} {event.worker} is at step {event.step}, and others at {step}")
        _must(generation not in told.commits, f"{event.worker} commits twice for the first time in generation {generation}")
        told.commits[generation] = event.transaction
        self._committed = max(self._committed, event.transaction)


def _must(true: bool, why: str) -> None:
    if not true:
        raise NotAllowed(why)


def validate(place: Path | str, *, killed: bool = False) -> int:
    """All journals below a folder, or the one in a database; gives how many jobs there were in them. `killed` as in `Validator`. Raises
    `NotAllowed`.
    """
    count = 0
    for one in sorted(place.rglob(JOURNAL)) if isinstance(place, Path) else [place]:
        for recorded in journal.read_all(one).values():
            Validator(recorded.settings, killed=killed).run(recorded.events)
            count += 1
    return count
