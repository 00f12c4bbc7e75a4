"""A machine in plain training, for tests that ask it one question."""

from __future__ import annotations

from typing import TypeVar

from understudy.core import commands, events
from understudy.core.machine import Machine
from understudy.core.model import BuddyCopyRef, JobSpec, LossCause, Position, Timeouts, VotePhase
from understudy.core.state import Stage
from understudy.core.transitions import WorkerState

Asked = TypeVar("Asked")


class Job:
    """All workers are warm, the ranks are given out, and one step is committed; with `forming`, only the nodes have joined."""

    def __init__(
        self, spec: JobSpec, domains: tuple[str, ...] = (), spares: dict[int, int] | None = None, *, forming: bool = False
    ) -> None:
        """`spares`: wanted on the node of this rank; nodes beyond the job's have nothing else."""
        self.now = 0.0
        self.machine = Machine(spec, Timeouts())
        for number in range(max([spec.nodes, *(rank + 1 for rank in spares or ())])):
            domain = domains[number] if number < len(domains) else ""
            self.submit(events.NodeJoined(f"n{number}", f"h{number}", number, domain, (spares or {}).get(number, -1)))
        if not forming:
            self.warm()
            self.commit(0)

    def submit(self, event: events.Event) -> list[commands.Command]:
        self.now += 0.01
        return self.machine.handle(event, self.now)

    def warm(self, *only: str) -> list[commands.Command]:
        """All that start come through, or only these workers."""
        said = []
        for worker in list(self.machine.state.workers.values()):
            if worker.state is WorkerState.STARTING and (not only or worker.name in only):
                said += self.submit(events.WorkerStarted(worker.name, worker.node, 100))
                said += self.submit(events.WorkerWarm(worker.name, f"{worker.node}:7000"))
        return said

    def commit(self, transaction: int) -> list[commands.Command]:
        generation = self.machine.state.generation
        members = [worker.name for worker in self.machine.state.members()]
        return [c for name in members for c in self.submit(events.Committed(name, generation, transaction, transaction + 1))]

    def lose(self, *workers: str) -> list[commands.Command]:
        return [c for name in workers for c in self.submit(events.WorkerLost(name, LossCause.KILLED, "signal 9", self.now))]

    def rest(self, transaction: int = 1) -> list[commands.Command]:
        """Let all survivors quiesce in `transaction`, before its vote, with every rank's copy of the one before."""
        state = self.machine.state
        assert state.recovery is not None
        copies = tuple(BuddyCopyRef(rank, transaction - 1) for rank in range(state.spec.world_size))
        place = Position(transaction, VotePhase.RUNNING)
        waiting = sorted(state.recovery.waiting)
        return [c for name in waiting for c in self.submit(events.Quiesced(name, state.generation, place, copies, transaction))]

    def verify(self) -> list[commands.Command]:
        newcomers = [worker.name for worker in self.machine.state.newcomers()]
        return [c for name in newcomers for c in self.submit(events.Verified(name, self.machine.state.generation, 3))]

    def node_of(self, worker: str) -> str:
        return self.machine.state.workers[worker].node


def of(kind: type[Asked], said: list[commands.Command]) -> list[Asked]:
    return [command for command in said if isinstance(command, kind)]


def assigned(said: list[commands.Command]) -> commands.Assign:
    (one,) = of(commands.Assign, said)
    return one


def moving(job: Job, rank: int = 1) -> str:
    """Begin to move this rank, and return the name of its newcomer: all workers have reached the boundary."""
    newcomer = assigned(job.submit(events.MigrationAsked(rank, "asked"))).worker
    migration = job.machine.state.migration
    assert migration is not None
    job.submit(events.NewcomerReady(newcomer, migration.generation))
    for name in sorted(job.machine.state.recovery.waiting if job.machine.state.recovery else ()):
        job.submit(events.Quiesced(name, migration.generation, Position(1, VotePhase.IDLE), (), 1))
    assert migration.stage is Stage.MOVING
    return newcomer
