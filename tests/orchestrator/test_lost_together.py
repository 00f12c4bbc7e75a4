"""Nodes that are lost at the same moment: one event, one generation, and a reason that stays readable."""

from __future__ import annotations

import asyncio

import pytest
from tests.message_texts import has

from understudy.core import commands, events
from understudy.core.machine import Machine
from understudy.core.model import JobSpec, Timeouts
from understudy.messages import losses, service_jobs
from understudy.messages.base import Message
from understudy.orchestrator.chain import Chain
from understudy.orchestrator.journal import JobJournal
from understudy.orchestrator.service import Service

LONG = 60.0
NODES = [f"n{number}" for number in range(3)]


@pytest.mark.parametrize(("how", "message"), [("disconnected", service_jobs.DISCONNECTED), ("silent", service_jobs.SILENT)])
def test_nodes_whose_time_runs_out_together_are_one_event(how: str, message: Message, monkeypatch: pytest.MonkeyPatch) -> None:
    journalled: list[events.Event] = []

    async def job() -> int:
        loop = asyncio.get_running_loop()
        limits = Timeouts(heartbeat=0.1, node_lost=0.3)
        machine = Machine(JobSpec("job", len(NODES), 1, len(NODES), spares=0), limits)
        journal = JobJournal(lambda entry: journalled.append(entry[1]) if isinstance(entry, tuple) else None, Chain())
        service = Service(machine, journal, tell=lambda text: None, far=True)
        now = loop.time()
        with monkeypatch.context() as patch:
            patch.setattr(loop, "time", lambda: now)  # all of it at the same moment
            links = [service.attach(events.NodeJoined(node, "127.0.0.1", number)) for number, node in enumerate(NODES)]
            if how == "disconnected":
                for link in links:
                    service.detach(link)
        return await asyncio.wait_for(service.run(), LONG)

    assert asyncio.run(job()) == 1, "before there are ranks this is the end"
    (lost,) = (event for event in journalled if isinstance(event, events.NodesLost))
    assert [gone.node for gone in lost.nodes] == NODES
    assert all(has(gone.detail, message) for gone in lost.nodes)


def test_a_reason_names_some_of_many_losses() -> None:
    """It goes to every worker of the job."""
    machine = Machine(JobSpec("job", 60, 20, 3, spares=0), Timeouts())
    reported: list[commands.Command] = []
    for number, node in enumerate(NODES):
        reported += machine.handle(events.NodeJoined(node, "127.0.0.1", number), 0.0)
    for worker in [command.worker for command in reported if isinstance(command, commands.StartWorker)]:
        machine.handle(events.WorkerWarm(worker, "127.0.0.1:7000"), 0.0)
    for rank in range(60):
        machine.handle(events.Committed(machine.state.ranks[rank], 0, 0, 1), 0.0)
    answer = machine.handle(events.NodesLost((events.LostNode("n1", "gone"), events.LostNode("n2", "gone"))), 1.0)
    aborts = [command for command in answer if isinstance(command, commands.Abort)]
    assert {abort.generation for abort in aborts} == {1} and {abort.lost for abort in aborts} == {tuple(range(20, 60))}
    (reason,) = {abort.reason for abort in aborts}
    all_reported = [losses.LOST_WITH_NODE(rank=rank, worker=f"w{rank}", node=NODES[rank // 20], detail="gone") for rank in range(20, 60)]
    assert reason == "; ".join([*all_reported[:16], "and 24 more"])
    reported_now = [command.text for command in answer if isinstance(command, commands.Tell)]
    assert set(all_reported) <= set(reported_now), "all are reported"
