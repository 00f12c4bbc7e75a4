"""The machine under events in any order."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.message_texts import refused

from understudy.core import commands, drain, events, floating, home, preparation
from understudy.core.assignment import choose_spare
from understudy.core.machine import Machine
from understudy.core.model import BuddyCopyRef, JobSpec, LossCause, Position, Timeouts, VotePhase
from understudy.core.places import bounded, open_places
from understudy.core.state import CHECK, JobState, Node, Stage
from understudy.core.topology import splits
from understudy.core.transitions import Phase, RefusalReason, WorkerState
from understudy.messages import forming, recoveries
from understudy.messages.base import code_of

KINDS = (
    "NodeJoined", "NodesLost", "WorkerStarted", "StartRefused", "WorkerWarm", "WorkerWarm", "WorkerWarm", "WorkerWarm", "WorkerLost",
    "CommunicationBroken", "Quiesced", "Quiesced", "Quiesced", "Quiesced", "NewcomerReady", "Prepared", "PhaseDone", "Verified",
    "Verified", "VerifyFailed", "DeviceFailed", "UsesDevice", "Committed", "Committed", "Committed", "StateListed", "Finished", "Notice",
    "MigrationAsked", "ReplicasDiffer", "RedoDiffers", "SectionFailed", "Believed", "NodeTainted", "Expired",
)  # fmt: skip
CLAIMING = ("ClaimEnded", "ClaimedNodeJoined", "ClaimedNodeJoined", "NodeToBeLeft", "Committed", "WorkerWarm")  # of a job that claims nodes
PLACED = ("GroupsListed", "NodeLabelled", "WorkerWarm", "Committed")  # of a job that keeps groups together
ENDING = ("Uncovered", "ScriptFailed", "StopAsked")  # no job is long after one of these, so at most one comes, at the end
PARTS = ("", "", "gpu0", "GPU-1", "eth0")
BYTE = st.integers(0, 255)


class Said:
    """Makes an event of a few numbers: half of them as they could come now, the others of any worker, of any generation."""

    def __init__(self, state: JobState, numbers: tuple[int, int, int, int]) -> None:
        self.state = state
        self.kind, self.subject, self.detail, self.more = numbers
        self.likely = self.more % 2 == 0

    def pick(self, among: Sequence[Any], number: int) -> Any:
        return among[number % len(among)]

    def worker(self, *states: WorkerState) -> str:
        known = [worker.name for worker in self.state.workers.values() if worker.state in states] if self.likely else []
        return str(self.pick(known or [f"w{number}" for number in range(self.state.started + 1)], self.subject))

    def generation(self) -> int:
        return self.state.generation + (0 if self.likely else self.pick((0, -1, 1, 2), self.detail))

    def event(self, ending: bool = False) -> events.Event:
        kinds = (*KINDS, *(CLAIMING if self.state.spec.floating else ()), *(PLACED if self.state.spec.keep_together else ()))
        kind = self.pick(ENDING if ending else kinds, self.kind)
        made: events.Event = getattr(self, f"_{kind}")()
        return made

    def _NodeJoined(self) -> events.Event:
        node = self.pick((0, 1, 2), self.subject)
        known = self.state.nodes.get(f"n{node}")
        there = tuple(known.workers) if known is not None and self.likely else ()
        spares, workers = self.pick((-1, 1), self.detail), self.pick((None, there), self.more // 2)
        return events.NodeJoined(f"n{node}", "10.0.0.1", node, "", spares, workers, labels_of(self.state.spec, node))

    def _ClaimedNodeJoined(self) -> events.Event:
        """For a claim that is open, or for any; as before, if one serves it."""
        claims = list(self.state.claims.values()) if self.likely else []
        claim = self.pick(claims, self.subject) if claims else None
        name = claim.node if claim is not None and claim.node else f"n{self.pick((7, 8), self.detail)}"
        number = claim.number if claim is not None else self.pick(range(-1, self.state.claimed + 2), self.subject)
        known = self.state.nodes.get(name)
        there = tuple(known.workers) if known is not None and self.detail % 4 else ()
        place = self.pick((7, 8), self.more // 2)
        return events.NodeJoined(name, "10.0.0.7", place, spares=self.pick((1, 2, 0), self.detail // 2), workers=there, claim=number)

    def _ClaimEnded(self) -> events.Event:
        claims = list(self.state.claims) if self.likely else []
        return events.ClaimEnded(self.pick(claims or range(self.state.claimed + 2), self.subject), "preempted")

    def _NodeToBeLeft(self) -> events.Event:
        reason = self.pick(("", "loud"), self.detail)
        return events.NodeTainted(self.pick(("n0", "n1", "n7", "n8"), self.subject), reason, "detector", leave=True)

    def _NodesLost(self) -> events.Event:
        count = self.pick((1, 1, 1, 2), self.detail)
        names = [f"n{(self.subject + one) % 3}" for one in range(count)]
        if all(worker.node in names for worker in self.state.members()) and self.more % 8:
            names = ["n2"]  # with the last rank that has its state the job would end, as a rule
        return events.NodesLost(tuple(events.LostNode(name, "gone") for name in names))

    def _WorkerStarted(self) -> events.Event:
        return events.WorkerStarted(self.worker(WorkerState.STARTING), self.pick(("n0", "n1"), self.detail), 9)

    def _StartRefused(self) -> events.Event:
        return events.StartRefused(self.worker(WorkerState.STARTING), "n0", "no room")

    def _WorkerWarm(self) -> events.Event:
        rank = -1 if self.likely else self.pick((-1, 0, 1), self.detail)
        return events.WorkerWarm(self.worker(WorkerState.STARTING), "10.0.0.1:7000", rank)

    def _WorkerLost(self) -> events.Event:
        alive = (WorkerState.NEWCOMER, WorkerState.WARM, WorkerState.STARTING, WorkerState.LEAVING)
        members = self.state.members()
        name = self.worker(*alive, *([WorkerState.MEMBER] if len(members) > 1 else []))
        if [worker.name for worker in members] == [name] and self.more % 8:
            name = "w99"
        return events.WorkerLost(name, self.pick(tuple(LossCause), self.detail), "signal 9", float(self.more))

    def _CommunicationBroken(self) -> events.Event:
        return events.CommunicationBroken(self.worker(WorkerState.MEMBER), self.generation(), "reset")

    def _Quiesced(self) -> events.Event:
        recovery = self.state.recovery
        waiting = sorted(recovery.waiting) if recovery is not None and self.likely else []
        name = str(self.pick(waiting, self.subject)) if waiting else self.worker(WorkerState.MEMBER)
        step = self.state.step()
        transaction = step if self.likely else self.pick((step - 1, step, step + 1), self.detail)
        stand = VotePhase.RUNNING if self.likely else self.pick(tuple(VotePhase), self.detail // 3)
        held = range(self.state.spec.world_size) if self.detail % 8 else ()
        copies = tuple(BuddyCopyRef(rank, transaction - back) for rank in held for back in (0, 1))
        return events.Quiesced(name, self.generation(), Position(transaction, stand), copies, step)

    def _NewcomerReady(self) -> events.Event:
        migration = self.state.migration
        if migration is not None and self.likely:
            move = next((move for move in migration.moves if not move.ready), migration.moves[0])
            return events.NewcomerReady(move.newcomer, migration.generation)
        return events.NewcomerReady(self.worker(WorkerState.NEWCOMER), self.generation())

    def _Prepared(self) -> events.Event:
        asked = [worker for worker in self.state.workers.values() if worker.prepare is not None and not worker.ready]
        if asked and self.likely:
            one = self.pick(asked, self.subject)
            return events.Prepared(one.name, one.prepare.rank)
        return events.Prepared(self.worker(WorkerState.WARM), self.pick((0, 1), self.detail))

    def _PhaseDone(self) -> events.Event:
        name = self.worker(WorkerState.NEWCOMER, WorkerState.MEMBER)
        return events.PhaseDone(name, self.generation(), "attach", float(self.subject), float(self.detail))

    def _Verified(self) -> events.Event:
        return events.Verified(self.worker(WorkerState.NEWCOMER), self.generation(), self.detail)

    def _VerifyFailed(self) -> events.Event:
        return events.VerifyFailed(self.worker(WorkerState.NEWCOMER), self.generation(), "differs")

    def _Committed(self) -> events.Event:
        step = self.state.step() + self.detail % 2
        late = [w.name for w in self.state.members() if w.committed != self.state.generation] if self.likely else []
        name = str(self.pick(late, self.subject)) if late else self.worker(WorkerState.MEMBER)
        return events.Committed(name, self.generation(), step, step + 1)

    def _Finished(self) -> events.Event:
        return events.Finished(self.worker(WorkerState.MEMBER), self.generation())

    def _Notice(self) -> events.Event:
        return events.Notice(self.worker(WorkerState.MEMBER), self.pick((-1, 0, 1), self.detail), "read this")

    def _StateListed(self) -> events.Event:
        item = events.StateItem("counter", "train.py", "adopted", True, self.detail)
        return events.StateListed(self.worker(WorkerState.MEMBER), self.state.step(), (item,), self.more)

    def _GroupsListed(self) -> events.Event:
        world = range(self.state.spec.world_size)
        ranks = (tuple(world), tuple(world[:2]), tuple(world[1:]), (0,))
        groups = [events.RankGroup(name, self.pick(ranks, self.detail + number)) for number, name in enumerate(("tp", "cp"))]
        return events.GroupsListed(self.worker(WorkerState.MEMBER), self.state.step(), tuple(groups[: 1 + self.more // 2 % 2]))

    def _NodeLabelled(self) -> events.Event:
        labels = (("nvlink-domain", self.pick("ab", self.detail)),) if self.detail % 5 else ()
        return events.NodeLabelled(self.pick(("n0", "n1", "n2", "n7", "n9"), self.subject), labels)

    def _MigrationAsked(self) -> events.Event:
        return events.MigrationAsked(self.pick((0, 1, -1, 7), self.subject), "why not")

    def _ReplicasDiffer(self) -> events.Event:
        odd = self.pick(((), (0,), (1,), (0, 1) if self.more % 8 == 0 else (0,)), self.detail)
        sides = self.pick((((0,), (1,)), ()), self.detail // 4)
        return events.ReplicasDiffer(self.worker(WorkerState.MEMBER), self.generation(), odd, sides, "differs")

    def _RedoDiffers(self) -> events.Event:
        step = self.state.step()
        return events.RedoDiffers(self.worker(WorkerState.MEMBER), self.generation() - self.detail % 2, step, step, "differs")

    def _SectionFailed(self) -> events.Event:
        return events.SectionFailed(self.worker(WorkerState.MEMBER), self.generation(), "section save: no space")

    def _Believed(self) -> events.Event:
        return events.Believed(self.pick((0, 1, -1, 7), self.subject), "")

    def _NodeTainted(self) -> events.Event:
        node, reason, part = self.pick(("n0", "n1", "n9"), self.subject), self.pick(("", "loud"), self.detail), self.pick(PARTS, self.more)
        return events.NodeTainted(
            node,
            reason,
            self.pick(("operator", "nvml"), self.more // 8),
            part,
            leave=self.more % 5 == 0,
            also=self.pick(((), ("n1", "n7"), ("n0",)), self.subject // 4),
        )

    def _Expired(self) -> events.Event:
        timers = sorted(self.state.timers - ({"hold", "quiesce"} if self.more % 8 else set())) if self.likely else []
        return events.Expired(self.pick(timers or ("quiesce", "resume", "communication", "migration", "prepare"), self.subject))

    def _Uncovered(self) -> events.Event:
        return events.Uncovered(self.worker(WorkerState.MEMBER), self.generation(), "nowhere")

    def _ScriptFailed(self) -> events.Event:
        return events.ScriptFailed(self.worker(*WorkerState), self.pick((-1, 0, 1), self.detail), 1, "ValueError", "...")

    def _UsesDevice(self) -> events.Event:
        name = self.worker(WorkerState.MEMBER, WorkerState.NEWCOMER)
        return events.UsesDevice(name, f"gpu{self.detail % 3}", (f"GPU-{self.detail % 3}",))

    def _DeviceFailed(self) -> events.Event:
        name = self.worker(*WorkerState)
        members = self.state.members()
        if [worker.name for worker in members] == [name] and self.more % 8:
            name = "w99"  # as in `_WorkerLost`
        error, device = f"error {self.detail % 8}", self.pick(("", "gpu0", "gpu1"), self.more)  # many: two of a kind end the job
        transaction, certain, blamed = self.detail // 8 % 8 - 1, self.more % 2 == 0, self.more % 3 != 0
        rank = self.state.workers[name].rank if name in self.state.workers else 0
        return events.DeviceFailed(name, rank, transaction, 1, error, certain, blamed, device, float(self.more), "it failed", "...")

    def _StopAsked(self) -> events.Event:
        return events.StopAsked("enough", self.detail % 4)


def labels_of(spec: JobSpec, node: int) -> tuple[tuple[str, str], ...]:
    """Two nodes in one NVLink domain, and the third in another; of a job that keeps groups together."""
    return (("nvlink-domain", "aab"[node]),) if spec.keep_together else ()


def check(state: JobState) -> None:
    """What must hold after every event."""
    assert state.generation <= state.highest_announced_generation
    assert not [what for what, why in state.refused if why is RefusalReason.TRANSITION], state.refused
    for rank in range(state.spec.world_size):
        holding = [w for w in state.workers.values() if w.rank == rank]
        members = [w for w in holding if w.state is WorkerState.MEMBER]
        newcomers = [w for w in holding if w.state is WorkerState.NEWCOMER]
        leaving = [w for w in holding if w.state is WorkerState.LEAVING]
        assert len(members) <= 1 and len(newcomers) <= 1 and len(leaving) <= 1
        migration = state.migration
        if members and newcomers:
            assert migration is not None and rank in migration.ranks and migration.stage is not Stage.MOVING
        if leaving and state.phase is not Phase.ENDED:
            assert migration is not None and rank in migration.ranks and migration.stage is Stage.MOVING and not members
        for worker in holding:
            assert worker.prepare is None or worker.prepare.rank == rank, "it is another rank's"
        for worker in members:
            assert state.ranks[rank] == worker.name
    if state.phase is Phase.RESUMING:
        assert not state.vacant()
    if state.dispute is not None:
        assert state.phase in (Phase.QUIESCING, Phase.ENDED), "no rank goes on while it is open which is right"
    if state.phase is Phase.TRAINING and state.all_committed:
        assert state.incident is None and state.recovery is None
    prepared = [worker.prepare.rank for worker in state.idle(WorkerState.WARM) if worker.prepare is not None]
    more = 1 if state.unsettled() else 0  # the spare of a drill that a loss has called off
    assert len(prepared) == len(set(prepared)) <= state.spec.prepared + more
    check_drill(state)
    check_taints(state)
    check_floating(state)
    check_places(state)
    check_timers(state)
    check_indexes(state)
    check_end(state)


def check_end(state: JobState) -> None:
    """No job ends for want of a spare while one could take the rank, wherever it is."""
    if state.ended is not None and code_of(state.ended.message) in (recoveries.NO_SPARE_LEFT.code, recoveries.WAITED_FOR_SPARE.code):
        there = [worker for worker in state.idle(WorkerState.WARM) if not state.nodes[worker.node].lost]
        assert not [worker.name for worker in there if worker.prepare is None], state.ended.message


def check_drill(state: JobState) -> None:
    """A spare in a drill has no other role, and no rule counts it."""
    drilling = [worker for worker in state.workers.values() if worker.state is WorkerState.DRILLING]
    if state.phase is Phase.ENDED:
        return
    drill = state.drill
    assert [worker.name for worker in drilling] == ([drill.worker] if drill is not None else [])
    if drill is None:
        return
    assert state.phase is Phase.TRAINING and state.all_committed and state.migration is None, "something more important is under way"
    (spare,) = drilling
    assert spare.rank < 0 and spare.assign is None and spare.recovered < 0, "it has, or had, a rank"
    assert spare.name not in state.ranks.values() and spare not in state.idle(*WorkerState)
    assert spare.prepare is not None and spare.prepare.rank == drill.rank and spare.ready == drill.running
    assert state.ranks[drill.rank] == drill.holder, "the rank was given to another one, and its drill goes on"
    for node in state.nodes.values():
        idle = [worker for worker in node.idle(WorkerState.STARTING, WorkerState.WARM) if worker.spare]
        wanted = min(node.spares, len(open_places(node))) if bounded(state, node) else node.spares
        assert len(idle) >= wanted or not state.trusted(node), "it is counted as a spare"


def check_taints(state: JobState) -> None:
    """In plain training every rank is on its way that is to leave its node, or to go home, and can."""
    assert not any(node.taints and node.home_at for node in state.nodes.values()), "ranks go home to a node that is not trusted"
    calm = state.incident is None and state.phase is Phase.TRAINING and not state.finished_then_lost
    for node in state.nodes.values() if calm else ():
        there = [worker for worker in node.workers.values() if worker.state is not WorkerState.RELEASED]
        if node.drain is not None and not node.lost and not any(worker.rank >= 0 for worker in there):
            assert node.drain.done and not there, f"there are spares on node {node.name}, which is drained"
    if state.phase is not Phase.TRAINING or state.unsettled():
        return
    for rank, name in state.ranks.items():
        node = state.nodes[state.workers[name].node]
        if any(taint.leave for taint in node.taints.values()) and state.failed_moves.get(rank, 0) < drain.ATTEMPTS:
            spare = choose_spare(state, rank)
            assert spare is None or state.nodes[spare.node].taint, f"rank {rank} stays on a node that is to be left"
            assert state.unprepared.get(rank, 0) >= preparation.ATTEMPTS or not _room(state, node), f"no worker makes room for rank {rank}"
    for node in state.nodes.values():
        for rank in range(node.rank * state.spec.workers_per_node, (node.rank + 1) * state.spec.workers_per_node):
            away = rank in state.ranks and state.holder(rank).node != node.name
            if away and node.home_at < 0 and not node.lost and state.failed_moves.get(rank, 0) < home.ATTEMPTS:
                fit = [spare for spare in node.idle(WorkerState.WARM) if spare.prepare is None or spare.prepare.rank == rank]
                assert not fit or node.taints, f"rank {rank} does not go home"


def _room(state: JobState, home: Node) -> bool:
    """Whether a spare elsewhere is prepared for a rank that stays, and none starts there."""
    elsewhere = [
        one for one in state.idle(WorkerState.WARM, WorkerState.STARTING) if one.node != home.name and not state.nodes[one.node].taint
    ]
    left = {rank for rank in state.ranks if any(taint.leave for taint in state.nodes[state.holder(rank).node].taints.values())}
    stays = [one for one in elsewhere if one.prepare is not None and one.prepare.rank not in left]
    return bool(stays) and not any(one.state is WorkerState.STARTING for one in elsewhere)


def check_floating(state: JobState) -> None:
    """What is claimed is within its limit, serves, and is needed."""
    assert len(state.claims) <= state.spec.floating and (state.ended is None or not state.claims)
    serving = {claim.node: claim.number for claim in state.claims.values() if claim.node}
    if state.ended is None:
        assert serving == {node.name: node.claim for node in state.nodes.values() if node.claim >= 0 and not node.lost}
    for name in serving:
        assert len(state.nodes[name].workers) <= state.nodes[name].room, "more workers than accelerators"
    if state.phase is not Phase.TRAINING or state.unsettled() or not state.spec.floating:
        return
    leaving = [node for node in state.nodes.values() if any(taint.leave for taint in node.taints.values())]
    left = [w.rank for node in leaving for w in node.workers.values() if w.state is WorkerState.MEMBER]
    left = [rank for rank in left if state.failed_moves.get(rank, 0) < drain.ATTEMPTS]
    for name in serving:
        there = [w for w in state.nodes[name].workers.values() if w.state not in (WorkerState.STARTING, WorkerState.WARM)]
        assert there or left, f"no rank needs {name}, and it is not given back"
        for worker in there:
            spare = choose_spare(state, worker.rank) if worker.state is WorkerState.MEMBER and worker.moves < drain.ATTEMPTS else None
            where = state.nodes[spare.node] if spare is not None else None
            stays = where is None or where.taint or where.claim >= 0 or splits(state, worker.rank, where)
            assert stays, "a rank stays on a claimed node"
    assert left or len(serving) == len(state.claims), "no rank needs the node that is claimed"
    room = [w for w in state.idle(WorkerState.STARTING, WorkerState.WARM) if not state.nodes[w.node].taint]
    more = len(state.claims) < state.spec.floating and floating.TIMER not in state.timers
    ending = [w for name in serving for w in state.nodes[name].workers.values() if w.state is WorkerState.RELEASED]
    coming = ending or len(serving) < len(state.claims)
    assert not left or room or coming or not more, "ranks are to leave, and no node is claimed"


def check_places(state: JobState) -> None:
    """On a node of spares no two ranks have one place, and none has a place that is not there."""
    holding = (WorkerState.NEWCOMER, WorkerState.MEMBER, WorkerState.LEAVING)
    for node in state.nodes.values():
        if node.rank < state.spec.nodes and node.claim < 0:
            continue
        places = [worker.local_rank for worker in node.workers.values() if worker.state in holding]
        assert len(places) == len(set(places)), f"two ranks have one place on {node.name}: {places}"
        assert all(0 <= place < node.room for place in places), f"{node.name} has {node.room} places, and ranks are at {places}"
        for worker in node.workers.values():
            if worker.state in holding and worker.assign is not None and node.room <= state.spec.workers_per_node:
                environment = worker.assign.environment
                assert int(environment["LOCAL_RANK"]) < int(environment["LOCAL_WORLD_SIZE"]), (
                    f"{worker.name} has a local rank that no device has"
                )


def check_timers(state: JobState) -> None:
    """Every wait has a limit, and no timer runs for something that is over."""
    if state.phase is Phase.ENDED:
        return
    waited_for = state.recovery.waiting if state.recovery is not None else set()
    quiescing, resuming = state.phase is Phase.QUIESCING, state.phase is Phase.RESUMING
    preparing = state.migration is not None and state.migration.stage is Stage.PREPARING
    asked = [worker for worker in state.idle(WorkerState.WARM) if worker.prepare is not None and not worker.ready]
    vacant = bool(state.vacant())
    assert "hold" not in state.timers or (quiescing and vacant)
    coming = state.idle(WorkerState.STARTING) or any(not claim.node for claim in state.claims.values())
    assert "hold" in state.timers or not (quiescing and vacant and coming), "a rank waits without a limit"
    wanted = {
        "quiesce": quiescing and bool(waited_for),
        "resume": resuming and bool(state.newcomers()),
        "communication": bool(state.broken),
        "migration": preparing,
        "drill": state.drill is not None,
        "taint": any(taint.until > 0 for node in state.nodes.values() for taint in node.taints.values()),
        "drain": any(node.drain is not None and node.drain.deadline > 0 for node in state.nodes.values()),
        "check": any(CHECK in node.taints and not node.lost for node in state.nodes.values()),
        "home": any(node.home_at > 0 for node in state.nodes.values()),
    }
    assert state.timers - {"prepare", "hold", "claim"} == {name for name, needed in wanted.items() if needed}, (state.phase, state.timers)
    assert not asked or "prepare" in state.timers
    assert not state.broken or state.phase in (Phase.TRAINING, Phase.RESUMING)


def check_indexes(state: JobState) -> None:
    """The indexes of workers, nodes and ranks agree with them."""
    gone = (WorkerState.LOST, WorkerState.RELEASED)
    assert list(state.ranks) in ([], list(range(state.spec.world_size)))
    assert state.places == {node.rank: node for node in state.nodes.values() if node.claim < 0 or not node.lost}
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
    filled = state.finished_then_lost | {worker.rank for worker in state.workers.values() if worker.state is WorkerState.LEAVING}
    if state.phase is not Phase.ENDED:
        assert state.vacant() == [w.rank for w in holders if w.state in gone and w.rank not in filled]
    if holders:
        here = [worker.state is WorkerState.MEMBER or worker.rank in state.finished_then_lost for worker in holders]
        finished = [worker.finished for worker in holders]
        committed = [worker.finished or worker.committed == state.generation for worker in holders]
        assert state.all_finished() == all(map(all, zip(here, finished, strict=True)))
        assert state.everyone_committed() == all(map(all, zip(here, committed, strict=True)))


def walk(spec: JobSpec, steps: Sequence[tuple[int, int, int, int]], last: tuple[int, int, int, int]) -> int:
    """Handles an event for each of these numbers, and one that ends the job; how many it had handled when the job ended."""
    machine = Machine(spec, Timeouts())
    state = machine.state
    generation, killed, handled = 0, set(), 0
    nodes = [(node, labels_of(spec, node)) for node in range(spec.nodes)]
    start: list[events.Event] = [events.NodeJoined(f"n{node}", "10.0.0.1", node, labels=labels) for node, labels in nodes]
    start += [events.WorkerWarm(f"w{number}", f"10.0.0.1:{number}") for number in range(spec.world_size + spec.spares)]
    journal: list[tuple[float, events.Event]] = []
    for number, numbers in enumerate([*[last] * len(start), *steps, last]):
        ending = number == len(start) + len(steps)
        event = start[number] if number < len(start) else Said(state, numbers).event(ending)
        was = {worker.name: worker.state for worker in state.workers.values()}
        handled += state.ended is None
        journal.append((float(number), event))
        for command in machine.handle(event, float(number)):
            if isinstance(command, commands.KillWorker):
                killed.add(command.worker)
            elif isinstance(command, commands.Assign | commands.Abort | commands.Recover | commands.Pause):
                assert command.worker not in killed
                assert command.generation >= generation or isinstance(command, commands.Assign)
        assert state.generation >= generation
        generation = state.generation
        for name, before in was.items():
            if before is WorkerState.LOST:
                assert state.workers[name].state is WorkerState.LOST, "it came back"
        check(state)
    again = Machine(spec, Timeouts())
    for then, event in journal:
        again.handle(event, then)
    assert again.state == state and again.state.refused == state.refused
    return handled


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(BYTE, BYTE, BYTE, BYTE), min_size=60, max_size=150),
    st.tuples(BYTE, BYTE, BYTE, BYTE),
    st.booleans(),
    st.integers(0, 2),
    st.sampled_from([(2, 1), (2, 2), (4, 2)]),
)
def test_any_order_of_events_keeps_the_rules(
    steps: list[tuple[int, int, int, int]], last: tuple[int, int, int, int], replenish: bool, prepared: int, size: tuple[int, int]
) -> None:
    ranks, nodes = size
    walk(JobSpec("job", ranks, ranks // nodes, nodes, 2, replenish, 99, 99, prepared), steps, last)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(BYTE, BYTE, BYTE, BYTE), min_size=60, max_size=150),
    st.tuples(BYTE, BYTE, BYTE, BYTE),
    st.booleans(),
    st.sampled_from([(2, 1), (2, 2), (4, 2)]),
    st.sampled_from([(0, 1), (0, 2), (1, 1), (2, 2)]),
)
def test_any_order_of_events_keeps_the_rules_of_claims(
    steps: list[tuple[int, int, int, int]], last: tuple[int, int, int, int], replenish: bool, size: tuple[int, int], spares: tuple[int, int]
) -> None:
    ranks, nodes = size
    walk(JobSpec("job", ranks, ranks // nodes, nodes, spares[0], replenish, 99, 99, min(1, spares[0]), floating=spares[1]), steps, last)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(BYTE, BYTE, BYTE, BYTE), min_size=60, max_size=150),
    st.tuples(BYTE, BYTE, BYTE, BYTE),
    st.booleans(),
    st.sampled_from([(2, 1), (2, 2), (4, 2)]),
    st.sampled_from([(2, 0, 0), (2, 1, 0), (3, 2, 0), (2, 0, 1), (1, 1, 2)]),
)
def test_any_order_of_events_keeps_the_rules_of_groups(
    steps: list[tuple[int, int, int, int]],
    last: tuple[int, int, int, int],
    replenish: bool,
    size: tuple[int, int],
    spares: tuple[int, int, int],
) -> None:
    ranks, nodes = size
    kept = ("tp", "cp")
    walk(
        JobSpec("job", ranks, ranks // nodes, nodes, spares[0], replenish, 99, 99, spares[1], floating=spares[2], keep_together=kept),
        steps,
        last,
    )


def test_the_orders_that_are_tried_are_long() -> None:
    """Otherwise the test above could shrink to nothing without notice."""
    source = random.Random(1)
    lengths = []
    for _ in range(100):
        drawn = [tuple(source.randrange(256) for _ in range(4)) for _ in range(120)]
        lengths.append(walk(JobSpec("job", 4, 2, 2, 2, True, 99, 99, 1), drawn, drawn[0]))  # type: ignore[arg-type]
    assert sum(lengths) / len(lengths) > 40, lengths


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
    with refused(ValueError, forming.WORLD_SIZE, world_size=3, nodes=1, workers_per_node=2):
        Machine(JobSpec("job", 3, 2), Timeouts())
