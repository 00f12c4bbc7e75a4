"""The machine under events in any order, and in a simulated cluster in which anything may die at any time."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from understudy.core import commands, events
from understudy.core.machine import Machine
from understudy.core.nouns import Copy, JobSpec, LossCause, Position, Stand, Timeouts
from understudy.core.state import JobState, Phase, Stage, WorkerState

names = st.sampled_from([f"w{number}" for number in range(9)])
generations = st.integers(0, 4)
lost_nodes = st.lists(st.builds(events.LostNode, st.sampled_from(["n0", "n1"]), st.just("gone")), min_size=1, max_size=3).map(tuple)
copies = st.lists(st.builds(Copy, st.integers(0, 2), st.integers(-1, 3)), max_size=6).map(tuple)
positions = st.builds(Position, st.integers(-1, 3), st.sampled_from(Stand))
some_ranks = st.sampled_from([(), (0,), (1,), (0, 1)])
any_event: st.SearchStrategy[events.Event] = st.one_of(
    st.builds(events.NodeJoined, st.sampled_from(["n0", "n1"]), st.just("10.0.0.1"), st.integers(0, 1)),
    st.builds(events.NodesLost, lost_nodes),
    st.builds(events.WorkerStarted, names, st.just("n0"), st.integers(1, 9)),
    st.builds(events.StartRefused, names, st.just("n0"), st.just("no room")),
    st.builds(events.WorkerWarm, names, st.just("10.0.0.1:7000")),
    st.builds(events.WorkerLost, names, st.sampled_from(LossCause), st.just("signal 9"), st.floats(0, 10)),
    st.builds(events.CommunicationBroken, names, generations, st.just("reset")),
    st.builds(events.Quiesced, names, generations, positions, copies, st.integers(0, 3)),
    st.builds(events.NewcomerReady, names, generations),
    st.builds(events.Prepared, names, st.integers(0, 1)),
    st.builds(events.PhaseDone, names, generations, st.just("attach"), st.floats(0, 10), st.floats(0, 10)),
    st.builds(events.Verified, names, generations, st.integers(0, 9)),
    st.builds(events.VerifyFailed, names, generations, st.just("differs")),
    st.builds(events.Committed, names, generations, st.integers(0, 3), st.integers(0, 3)),
    st.builds(events.Finished, names, generations),
    st.builds(events.Notice, names, st.integers(-1, 2), st.just("read this")),
    st.builds(events.MigrationAsked, st.integers(-1, 3), st.just("why not")),
    st.builds(events.ReplicasDiffer, names, generations, some_ranks, st.sampled_from([(), ((0,), (1,))]), st.just("differs")),
    st.builds(events.Believed, st.integers(-1, 2), st.just("")),
    st.builds(events.NodeTainted, st.sampled_from(["n0", "n1"]), st.sampled_from(["", "loud"])),
    st.builds(events.Expired, st.sampled_from(["quiesce", "hold", "resume", "communication", "migration", "prepare"])),
)
rare_event: st.SearchStrategy[events.Event] = st.one_of(
    st.builds(events.Uncovered, names, generations, st.just("nowhere")),
    st.builds(events.ScriptFailed, names, st.integers(-1, 2), st.just(1), st.just("ValueError"), st.just("...")),
    st.builds(events.StopAsked, st.just("enough"), st.integers(0, 3)),
)


def check(state: JobState) -> None:
    """What must hold after every event."""
    assert state.generation <= state.promised
    for rank in range(state.spec.world_size):
        holding = [w for w in state.workers.values() if w.rank == rank]
        members = [w for w in holding if w.state is WorkerState.MEMBER]
        newcomers = [w for w in holding if w.state is WorkerState.NEWCOMER]
        leaving = [w for w in holding if w.state is WorkerState.LEAVING]
        assert len(members) <= 1 and len(newcomers) <= 1 and len(leaving) <= 1
        migration = state.migration
        if members and newcomers:
            assert migration is not None and migration.rank == rank and migration.stage is not Stage.MOVING
        if leaving and state.phase is not Phase.ENDED:
            assert migration is not None and migration.stage is Stage.MOVING and not members
        for worker in holding:
            assert worker.prepare is None or worker.prepare.rank == rank, "it is another rank's"
        for worker in members:
            assert state.ranks[rank] == worker.name
    if state.phase is Phase.RESUMING:
        assert not state.vacant()
    if state.dispute is not None:
        assert state.phase in (Phase.QUIESCING, Phase.ENDED), "nobody goes on while it is open who is right"
    if state.phase is Phase.TRAINING and state.settled:
        assert state.incident is None and state.recovery is None
    prepared = [worker.prepare.rank for worker in state.idle(WorkerState.WARM) if worker.prepare is not None]
    assert len(prepared) == len(set(prepared)) <= state.spec.prepared
    check_indexes(state)


def check_indexes(state: JobState) -> None:
    """What is kept beside workers, nodes and ranks says the same as they do."""
    gone = (WorkerState.LOST, WorkerState.RELEASED)
    assert list(state.ranks) in ([], list(range(state.spec.world_size)))
    assert state.places == {node.rank: node for node in state.nodes.values()}
    assert [node.rank for node in state.hosts()] == sorted(node.rank for node in state.nodes.values() if node.rank < state.spec.nodes)
    assert state.complete() == (len(state.hosts()) == state.spec.nodes)
    for node in state.nodes.values():
        there = [worker for worker in state.workers.values() if worker.node == node.name and worker.state is not WorkerState.LOST]
        assert list(node.workers.values()) == there
        for one in (WorkerState.STARTING, WorkerState.WARM):
            assert node.idle(one) == [worker for worker in there if worker.rank < 0 and worker.state is one]
    idle = [worker for worker in state.workers.values() if worker.state in (WorkerState.STARTING, WorkerState.WARM)]
    assert state.idle(WorkerState.STARTING, WorkerState.WARM) == idle and all(worker.rank < 0 for worker in idle)
    holders = [state.workers[name] for name in state.ranks.values()]
    assert state.members() == [worker for worker in holders if worker.state is WorkerState.MEMBER]
    assert state.newcomers() == [worker for worker in holders if worker.state is WorkerState.NEWCOMER]
    assert state.unverified == {worker.name: worker for worker in state.workers.values() if worker.state is WorkerState.NEWCOMER}
    assert state.vacant() == [w.rank for w in holders if w.state in gone and w.rank not in state.departed]
    if holders:
        here = [worker.state is WorkerState.MEMBER or worker.rank in state.departed for worker in holders]
        finished = [worker.finished for worker in holders]
        committed = [worker.finished or worker.committed == state.generation for worker in holders]
        assert state.all_finished() == all(map(all, zip(here, finished, strict=True)))
        assert state.all_committed() == all(map(all, zip(here, committed, strict=True)))


@settings(max_examples=300, deadline=None)
@given(st.lists(st.one_of(any_event, any_event, any_event, rare_event), max_size=60), st.booleans(), st.integers(0, 2))
def test_any_order_of_events_keeps_the_rules(sequence: list[events.Event], replenish: bool, prepared: int) -> None:
    machine = Machine(JobSpec("job", 2, 2, spares=2, replenish=replenish, prepared=prepared), Timeouts())
    start: list[events.Event] = [events.NodeJoined("n0", "10.0.0.1", 0)]
    start += [events.WorkerWarm(f"w{number}", f"10.0.0.1:{number}") for number in range(4)]
    generation, killed = 0, set()
    for number, event in enumerate(start + sequence):
        for command in machine.handle(event, float(number)):
            if isinstance(command, commands.KillWorker):
                killed.add(command.worker)
            elif isinstance(command, commands.Assign | commands.Abort | commands.Recover | commands.Pause):
                assert command.worker not in killed
                assert command.generation >= generation or isinstance(command, commands.Assign)
        assert machine.state.generation >= generation
        generation = machine.state.generation
        check(machine.state)


@dataclass
class _Process:
    """A worker as the protocol wants it. What it says travels in order, but at its own pace."""

    name: str
    rank: int = -1
    generation: int = -1
    newcomer: bool = False
    aborted: bool = False
    transaction: int = -1
    verified: bool = False
    says: deque[events.Event] = field(default_factory=deque)


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
            process.says.append(events.WorkerWarm(command.worker, f"10.0.0.1:7{command.worker[1:]}"))
            return
        process = self.processes.get(getattr(command, "worker", ""), _Process(""))
        match command:
            case commands.KillWorker() | commands.Release():
                self.processes.pop(command.worker, None)
            case commands.Assign():
                process.rank, process.generation, process.newcomer = command.rank, command.generation, command.newcomer
                if command.planned:
                    process.says.append(events.NewcomerReady(process.name, command.generation))
                if not command.newcomer:
                    process.transaction, process.verified = 0, True
            case commands.Abort() | commands.Pause():
                process.aborted = True
                process.generation = command.generation
                if process.verified:
                    held = tuple(Copy(rank, process.transaction - 1) for rank in range(9))
                    place = Position(process.transaction, Stand.RUNNING)
                    if isinstance(command, commands.Pause):
                        place = Position(process.transaction, Stand.IDLE)
                    process.says.append(events.Quiesced(process.name, command.generation, place, held, process.transaction))
            case commands.Recover():
                process.aborted, process.generation = False, command.generation
                process.transaction = command.start
                if (process.rank in command.newcomers and process.rank not in command.leavers) or not process.verified:
                    process.verified = True
                    process.says.append(events.Verified(process.name, command.generation, 3))
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
            process.says.append(events.Committed(process.name, process.generation, process.transaction - 1, process.transaction))
        return True

    def deliver(self, name: str) -> None:
        self.submit(self.processes[name].says.popleft())

    def speaking(self) -> list[str]:
        return sorted(name for name, process in self.processes.items() if process.says)

    def kill(self, name: str) -> None:
        for event in self.processes.pop(name).says:  # the agent reads what is left before it reports the end
            self.submit(event)
        self.submit(events.WorkerLost(name, LossCause.KILLED, "signal 9", self.now))

    def settle(self) -> None:
        """Let everybody speak until there is nothing more to say."""
        for _ in range(1000):
            if self.speaking():
                self.deliver(self.speaking()[0])
            elif self.machine.state.settled and self.machine.state.migration is None:
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
            if members - {name}:  # somebody must be left to recover with
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
        assert "no worker is left" in cluster.ended.message

    again = Machine(spec, Timeouts())
    for then, event in cluster.journal:
        again.handle(event, then)
    assert again.state == cluster.machine.state


def test_environment_is_torchruns() -> None:
    machine = Machine(JobSpec("run-1", 4, 2, nodes=2, spares=1), Timeouts())
    machine.handle(events.NodeJoined("b", "10.0.0.2", 1), 0.0)
    machine.handle(events.NodeJoined("a", "10.0.0.1", 0), 0.0)
    assigned: list[commands.Assign] = []
    for number in range(5):
        node = machine.state.workers[f"w{number}"].node
        warm = machine.handle(events.WorkerWarm(f"w{number}", f"{machine.state.nodes[node].address}:{7000 + number}"), 0)
        assigned += [command for command in warm if isinstance(command, commands.Assign)]
    assert [command.worker for command in assigned] == ["w0", "w1", "w2", "w3"]
    assert machine.state.workers["w3"].node == "b"
    assert assigned[3].environment == {
        "RANK": "3",
        "LOCAL_RANK": "1",
        "WORLD_SIZE": "4",
        "LOCAL_WORLD_SIZE": "2",
        "GROUP_RANK": "1",
        "GROUP_WORLD_SIZE": "2",
        "ROLE_RANK": "3",
        "ROLE_NAME": "default",
        "ROLE_WORLD_SIZE": "4",
        "MASTER_ADDR": "10.0.0.1",
        "MASTER_PORT": "7000",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "3",
        "TORCHELASTIC_RUN_ID": "run-1",
    }


def test_a_spec_that_does_not_add_up_is_refused() -> None:
    with pytest.raises(ValueError, match="world_size 3 is not nodes 1 x workers_per_node 2"):
        Machine(JobSpec("job", 3, 2), Timeouts())
