"""Words that come twice, words of a generation that is over, and agents that connect again, at any point of long orders of events."""

from __future__ import annotations

import pickle
import random
from collections.abc import Iterator
from typing import Any

import pytest
from tests.core.core_job import of
from tests.core.test_machine import KINDS, Said, check

from understudy.core import commands, events
from understudy.core.machine import Machine
from understudy.core.model import JobSpec, Position, Timeouts, VotePhase
from understudy.core.state import JobState, Stage, Worker
from understudy.core.transitions import Phase, WorkerState

SEEDS = (*range(8), 17)  # in the last one a dispute holds the job
DIFFERS = (events.Expired, events.PhaseDone)  # a timer may have been set again; how long something took and what it moved is a sum
REPEATED = (commands.StartWorker, commands.Assign, commands.Prepare, commands.Publish, commands.Abort, commands.Pause, commands.Recover)


class Walk:
    """Events as they could come, some of them not, of a seed; and the last command of each kind to each worker."""

    def __init__(self, seed: int) -> None:
        chance = random.Random(seed)
        nodes = 1 + seed % 2
        spec = JobSpec("job", 4, 4 // nodes, nodes, 2 + seed % 3, seed % 4 != 1, 99, 99, min(seed % 3, 2))
        self.machine = Machine(spec, Timeouts())
        self.chance, self.now = chance, 0.0
        self.sent: dict[tuple[str, type], commands.Command] = {}
        self.order: dict[str, type] = {}  # which of Abort, Pause and Recover was the last one
        for node in range(nodes):
            self.submit(events.NodeJoined(f"n{node}", "10.0.0.1", node))
        for worker in list(self.machine.state.workers.values()):
            self.submit(events.WorkerStarted(worker.name, worker.node, 9))
            self.submit(events.WorkerWarm(worker.name, "10.0.0.1:7000"))
        for name in list(self.machine.state.ranks.values()):
            self.submit(events.Committed(name, 0, 0, 1))

    def submit(self, event: events.Event) -> list[commands.Command]:
        answer = self.machine.handle(event, self.now)
        for command in answer:
            if isinstance(command, REPEATED):
                self.sent[command.worker, type(command)] = command
            if isinstance(command, commands.Abort | commands.Pause | commands.Recover):
                self.order[command.worker] = type(command)
        return answer

    def goes_on(self, count: int) -> Iterator[events.Event]:
        for _ in range(count):
            if self.chance.random() < 0.5 and (kind := self._next_step()):
                self.now += 1.0
                state = self.machine.state
                yield Said(state, (KINDS.index(kind), self.chance.randrange(256), 1, 2 * self.chance.randrange(8) * 4)).event()
                continue
            numbers = [self.chance.randrange(256) for _ in range(4)]
            numbers[3] &= 254 if self.chance.random() < 0.8 else 255  # most of them as they could come
            if self.machine.state.ended is not None:
                return
            self.now += 1.0
            yield Said(self.machine.state, (numbers[0], numbers[1], numbers[2], numbers[3])).event()

    def _next_step(self) -> str:
        """The kind of event with which the job gets on."""
        state = self.machine.state
        if state.phase is Phase.QUIESCING:
            waiting = state.recovery is not None and state.recovery.waiting
            return "Quiesced" if waiting else "WorkerWarm"
        if state.phase is Phase.FORMING:
            return "WorkerWarm"
        if state.newcomers():
            return "Verified"
        if not state.all_committed:
            return "Committed"
        if state.migration is not None:
            return "NewcomerReady"
        return self.chance.choice(("MigrationAsked", "Prepared", "WorkerWarm", ""))

    def unchanged(self, event: events.Event) -> list[commands.Command]:
        """What it answers to an event that must change nothing."""
        state = self.machine.state
        before = pickle.dumps(state, -1)
        heard = {worker.name: worker.last_seen_generation for worker in state.workers.values()}
        answer = self.submit(event)
        for name, generation in heard.items():
            state.workers[name].last_seen_generation = generation
        assert state == pickle.loads(before), event
        return answer


@pytest.mark.parametrize("seed", SEEDS)
def test_what_comes_twice_counts_once(seed: int) -> None:
    walk = Walk(seed)
    for event in walk.goes_on(70):
        walk.submit(event)
        if not isinstance(event, DIFFERS) and walk.machine.state.ended is None:
            again = walk.unchanged(event)
            repeated = (*REPEATED, commands.Release) if isinstance(event, events.NodeJoined) else ()
            assert not [command for command in again if not isinstance(command, (commands.Tell, commands.KillWorker, *repeated))], event
        check(walk.machine.state)


def _stale(worker: str, generation: int) -> list[events.Event]:
    stands: list[tuple[int, ...]] = [(0,), (1,)]
    return [
        events.Committed(worker, generation, 3, 4),
        events.Uncovered(worker, generation, "nowhere"),
        events.CommunicationBroken(worker, generation, "reset"),
        events.ReplicasDiffer(worker, generation, (0,), (), "differs"),
        events.ReplicasDiffer(worker, generation, (), tuple(stands), "differs"),
        events.RedoDiffers(worker, generation, 3, 3, "differs"),
        events.SectionFailed(worker, generation, "no space"),
        events.Quiesced(worker, generation, Position(3, VotePhase.RUNNING), (), 3),
        events.NewcomerReady(worker, generation),
        events.Verified(worker, -1, 3),
        events.VerifyFailed(worker, -1, "differs"),
    ]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_generation_that_is_over_is_over(seed: int) -> None:
    """Except for a rank that has not quiesced: on its way to a boundary it may still report of the generation before that its replicas
    differ, and always that a redo does.
    """
    walk = Walk(seed)
    for event in walk.goes_on(70):
        walk.submit(event)
        state = walk.machine.state
        boundary = state.phase is Phase.QUIESCING and state.recovery is not None and state.recovery.planned
        if state.ended is None and walk.chance.random() < 0.4:
            worker = walk.chance.choice([*state.workers, *state.ranks.values(), *state.ranks.values()])
            for late in _stale(worker, state.generation - 1):
                on_its_way = state.recovery is not None and worker in state.recovery.waiting and isinstance(late, events.RedoDiffers)
                if not on_its_way and not (boundary and isinstance(late, events.ReplicasDiffer | events.SectionFailed)):
                    assert walk.unchanged(late) == []


@pytest.mark.parametrize("seed", SEEDS)
def test_a_reconnected_agent_gets_what_is_under_way_and_nothing_else(seed: int) -> None:
    walk = Walk(seed)
    for event in walk.goes_on(70):
        walk.submit(event)
        state = walk.machine.state
        for node in [] if state.ended is not None else [node for node in state.nodes.values() if not node.lost]:
            again = walk.unchanged(events.NodeJoined(node.name, node.address, node.rank))
            mine = list(node.workers.values())
            assert _known(again) == sorted(map(repr, _under_way(walk, mine))), (state.phase, node.name)


def _known(said: list[commands.Command]) -> list[str]:
    return sorted(repr(command) for command in said)


def _under_way(walk: Walk, there: list[Worker]) -> list[commands.Command]:
    """What these workers may not have heard, from their side: the last message of each kind, if it still waits for something."""
    state, found = walk.machine.state, []

    def last(worker: Worker, kind: type[Any]) -> Any:
        return walk.sent[worker.name, kind]

    for worker in there:
        ranked = worker.state in (WorkerState.NEWCOMER, WorkerState.MEMBER, WorkerState.LEAVING)
        if worker.state is WorkerState.STARTING and not worker.pid:
            found.append(last(worker, commands.StartWorker))
        if worker.state is WorkerState.RELEASED:
            found.append(commands.Release(worker.name, 0))
        if worker.state is WorkerState.WARM and worker.prepare is not None and not worker.ready:
            found.append(last(worker, commands.Prepare))
        if ranked and worker.last_seen_generation < last(worker, commands.Assign).generation:
            found.append(last(worker, commands.Assign))
        if worker.state is WorkerState.MEMBER:
            found += _records(state, worker)
        if ranked and state.recovery is not None and worker.committed < state.generation and worker.name in state.recovery.sent:
            word = last(worker, walk.order[worker.name])
            if not isinstance(word, commands.Abort) or worker.name in state.recovery.waiting:
                found.append(word)
    return found


def _records(state: JobState, member: Worker) -> list[commands.Command]:
    """For whom it publishes the record of its set-up: the newcomer of a migration and spares, as long as they set up."""
    found: list[commands.Command] = []
    if state.migration is not None and state.migration.stage is Stage.PREPARING:
        assign = state.workers[state.migration.moves[0].newcomer].assign
        assert assign is not None
        found.append(commands.Publish(member.name, assign.generation, assign.store, state.migration.ranks))
    for spare in state.idle(WorkerState.WARM):
        if spare.prepare is not None and not spare.ready:
            found.append(commands.Publish(member.name, spare.prepare.generation, spare.prepare.store, (spare.prepare.rank,)))
    return found


def test_the_walks_meet_what_they_are_for() -> None:
    """Else nothing would be reported about it."""
    met: set[object] = set()
    for seed in SEEDS:
        walk = Walk(seed)
        for event in walk.goes_on(70):
            answer = walk.submit(event)
            state = walk.machine.state
            met |= {state.phase, *(type(command) for command in answer), *(worker.state for worker in state.workers.values())}
            met |= {state.migration.stage} if state.migration is not None else set()
            met |= {"held"} if state.dispute is not None else set()
            met |= {"ready"} if any(worker.ready for worker in state.idle(WorkerState.WARM)) else set()
            assert len(of(commands.EndJob, answer)) <= 1
    wanted = {*WorkerState} - {WorkerState.DRILLING}  # drills are in the scenarios
    wanted |= {*Stage, "held", "ready", commands.Recover, commands.Pause, commands.Prepare, commands.Publish}
    assert wanted <= met, wanted - met
