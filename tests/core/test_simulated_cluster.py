"""The machine in a simulated cluster in which anything may die at any time."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.test_machine import check
from tests.message_texts import has

from understudy.core import commands, events
from understudy.core.machine import Machine
from understudy.core.model import BuddyCopyRef, JobSpec, LossCause, Position, Timeouts, VotePhase
from understudy.core.transitions import WorkerState
from understudy.messages import recoveries


@dataclass
class _Process:
    """A worker as the protocol wants it. Its events travel in order, but at their own pace."""

    name: str
    rank: int = -1
    generation: int = -1
    newcomer: bool = False
    aborted: bool = False
    transaction: int = -1
    verified: bool = False
    outbox: deque[events.Event] = field(default_factory=deque)


class Cluster:
    """Workers that play by the rules around one machine. Every rank holds a copy of every other's last vote."""

    def __init__(self, spec: JobSpec) -> None:
        self.machine = Machine(spec, Timeouts())
        self.now = 0.0
        self.processes: dict[str, _Process] = {}
        self.ended: commands.EndJob | None = None
        self.journal: list[tuple[float, events.Event]] = []
        self.submit(events.NodeJoined("n0", "10.0.0.1", 0))

    def submit(self, event: events.Event) -> None:
        self.now += 0.001
        self.journal.append((self.now, event))
        for command in self.machine.handle(event, self.now):
            self._obey(command)
        check(self.machine.state)

    def _obey(self, command: commands.Command) -> None:
        if isinstance(command, commands.EndJob):
            self.ended = command
        if isinstance(command, commands.StartWorker):
            process = self.processes[command.worker] = _Process(command.worker)
            process.outbox.append(events.WorkerWarm(command.worker, f"10.0.0.1:7{command.worker[1:]}"))
            return
        process = self.processes.get(getattr(command, "worker", ""), _Process(""))
        match command:
            case commands.KillWorker() | commands.Release():
                self.processes.pop(command.worker, None)
            case commands.Assign():
                process.rank, process.generation, process.newcomer = command.rank, command.generation, command.newcomer
                if command.planned:
                    process.outbox.append(events.NewcomerReady(process.name, command.generation))
                if not command.newcomer:
                    process.transaction, process.verified = 0, True
            case commands.Abort() | commands.Pause():
                process.aborted = True
                process.generation = command.generation
                if process.verified:
                    held = tuple(BuddyCopyRef(rank, process.transaction - 1) for rank in range(9))
                    place = Position(process.transaction, VotePhase.RUNNING)
                    if isinstance(command, commands.Pause):
                        place = Position(process.transaction, VotePhase.IDLE)
                    process.outbox.append(events.Quiesced(process.name, command.generation, place, held, process.transaction))
            case commands.Recover():
                process.aborted, process.generation = False, command.generation
                process.transaction = command.start
                if (process.rank in command.newcomers and process.rank not in command.leavers) or not process.verified:
                    process.verified = True
                    process.outbox.append(events.Verified(process.name, command.generation, 3))
            case _:
                pass

    def commit(self) -> bool:
        """One step, if everybody is there for it."""
        holders = {process.rank: process for process in self.processes.values() if process.rank >= 0}
        current = [process for process in holders.values() if process.verified and not process.aborted]
        generations = {process.generation for process in current}
        if len(current) < self.machine.state.spec.world_size or len(generations) > 1:
            return False
        if len({process.transaction for process in current}) > 1:
            return False
        for process in current:
            process.transaction += 1
            process.outbox.append(events.Committed(process.name, process.generation, process.transaction - 1, process.transaction))
        return True

    def deliver(self, name: str) -> None:
        self.submit(self.processes[name].outbox.popleft())

    def speaking(self) -> list[str]:
        return sorted(name for name, process in self.processes.items() if process.outbox)

    def kill(self, name: str) -> None:
        for event in self.processes.pop(name).outbox:  # the agent reads what is left before it reports the end
            self.submit(event)
        self.submit(events.WorkerLost(name, LossCause.KILLED, "signal 9", self.now))

    def settle(self) -> None:
        """Let all send until there are no more messages."""
        for _ in range(1000):
            if self.speaking():
                self.deliver(self.speaking()[0])
            elif self.machine.state.all_committed and self.machine.state.migration is None:
                return
            elif not self.commit():
                break
        state = self.machine.state
        pytest.fail(f"stuck: {state.phase}, {state.recovery}, {state.migration}, {self.processes}")


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_a_cluster_recovers_from_kills_at_any_moment(data: st.DataObject) -> None:
    spec = JobSpec("job", 3, 3, spares=2, max_losses_per_transaction=99, max_restarts=99)
    cluster = Cluster(spec)
    cluster.settle()
    for _ in range(data.draw(st.integers(1, 25))):
        if cluster.ended is not None:
            break
        members = {worker.name for worker in cluster.machine.state.members()}
        choices = ["commit", "migrate", *cluster.speaking()]
        for name in sorted(cluster.processes):
            if members - {name}:  # a rank must be left to recover with
                choices.append(f"kill {name}")
        choice = data.draw(st.sampled_from(choices))
        if choice == "commit":
            cluster.commit()
        elif choice == "migrate":
            cluster.submit(events.MigrationAsked(data.draw(st.integers(0, 2)), ""))
        elif choice.startswith("kill "):
            cluster.kill(choice.removeprefix("kill "))
        else:
            cluster.deliver(choice)
    if cluster.ended is None:
        cluster.settle()
        state = cluster.machine.state
        assert [worker.rank for worker in state.members()] == [0, 1, 2]
        assert len(state.idle(WorkerState.WARM, WorkerState.STARTING)) == 2
    else:
        # Everybody whose state was good was lost before a newcomer was verified: the only way in which this may end.
        assert has(cluster.ended.message, recoveries.NO_STATE_LEFT)

    again = Machine(spec, Timeouts())
    for then, event in cluster.journal:
        again.handle(event, then)
    assert again.state == cluster.machine.state
