"""Links on which anything may come, between a real orchestrator, real agents and workers: nothing of it is accepted, nothing ends."""

from __future__ import annotations

import asyncio
import json
import queue
import random
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.integration.processes import marked
from tests.integration.service import Service
from tests.integration.tampering import Tamperer
from tests.integration.training import Outcome, survived

from understudy.agent.link import WorkerLink
from understudy.common.page_view import UNKNOWN
from understudy.core import commands, events
from understudy.core.events import FromWorker
from understudy.core.model import Position, VotePhase
from understudy.links.lifeline import Lifeline
from understudy.links.messages import LIMIT, encode
from understudy.links.page import PageWriter
from understudy.worker.process.control import Control

RANKS = ["--nnodes", "2", "--nproc-per-node", "1", "--spares", "3"]


@pytest.mark.timeout(600)
def test_forged_messages_are_not_accepted(tmp_path: Path, undisturbed_spread: Callable[[int], Outcome]) -> None:
    """Two ranks are lost one after the other meanwhile. Two incidents, and the same end, bit for bit, as without tampering."""
    with marked() as mark:
        service = Service(tmp_path, mark)
        with Tamperer(service.url, seed=3) as between:
            for name in "ab":
                service.start_agent(name, 3, None, "--orchestrator", between.url)
            service.wait_for_nodes(2)
            job = service.run("job", RANKS, "spread.py", HELD="1:6,0:10")
            for rank, step in ((1, 6), (0, 10)):
                job.wait_for(f"held {step}")
                job.kill_rank(rank)
            incidents = survived(job.ends(), undisturbed_spread(2), losses=2)
        assert [incident["rank"] for incident in incidents] == [1, 0]
        assert all(incident["seconds"] is not None for incident in incidents)
        kinds = {kind.partition(" ")[0] for kind in between.sent}
        assert {"again", "stale", "foreign", "not", "elsewhere", "unknown", "cut", "other", "deep"} <= kinds, between.sent
        assert service.orchestrator.poll() is None
        assert all(agent.poll() is None for agent in service.agents.values())
        assert (tmp_path / "orchestrator.txt").read_text().count("\n") < 500, "each complaint once"


GOOD: list[events.Event] = [
    events.Committed("w1", 3, 7, 7),
    events.Finished("w1", 3),
    events.Quiesced("w1", 4, Position(3, VotePhase.VOTED), (), 2),
    events.Notice("w1", 0, "é\n[{"),
]
FOREIGN: list[events.Event] = [
    events.Committed("w2", 3, 7, 7),
    events.StopAsked("now", 1),
    events.NodesLost((events.LostNode("n0", "gone"),)),
    events.WorkerStarted("w1", "n0", 5),
]
good = st.sampled_from(GOOD)
junk = st.one_of(
    st.binary(max_size=200).map(lambda data: data.replace(b"\n", b"")),
    st.sampled_from(FOREIGN).map(lambda event: encode(event).encode()),
    good.flatmap(lambda event: st.integers(1, len(encode(event)) - 1).map(lambda at: encode(event)[:at].encode())),
    st.sampled_from([b"[" * 5000, b'{"type":"Committed"}', b'{"type":"Committed","worker":"w1","generation":"x"}', b"x" * (LIMIT + 5)]),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(good, junk), max_size=12), st.randoms(use_true_random=False))
def test_a_workers_socket_takes_what_is_right_and_drops_the_rest(sequence: list[events.Event | bytes], chance: random.Random) -> None:
    """Complete lines of the worker's own events arrive in order, however the stream is cut; everything else is refused."""
    stream = b"".join((item if isinstance(item, bytes) else encode(item).encode()) + b"\n" for item in sequence)
    heard: list[FromWorker] = []
    refused: list[str] = []
    closed: list[bool] = []

    async def talk() -> None:
        ours, theirs = socket.socketpair()
        link = WorkerLink(ours, "w1", heard.append, refused.append, lambda: closed.append(True))
        rest = memoryview(stream)
        while rest:
            size = chance.choice([1, 7, 100, 1 << 16, 1 << 20])
            sent = await asyncio.to_thread(theirs.send, rest[: min(size, 1 << 15)])
            rest = rest[sent:]
            link.drain()
        assert not closed
        theirs.close()
        link.drain()

    asyncio.run(talk())
    assert heard == [item for item in sequence if not isinstance(item, bytes)]
    assert len(refused) == sum(isinstance(item, bytes) and item != b"" for item in sequence)
    assert closed == [True]


class Quiet:
    """Handlers that count how often they were asked to break communicators."""

    def __init__(self) -> None:
        self.broken: list[int] = []
        self.published: queue.Queue[tuple[int, ...]] = queue.Queue()

    def break_communicators(self, abort: commands.Abort) -> None:
        self.broken.append(abort.generation)

    def called(self) -> None: ...

    def publish(self, generation: int, store: str, ranks: tuple[int, ...]) -> None:
        self.published.put(ranks)

    def publish_rest(self, abort: commands.Abort) -> None: ...

    def collectives(self) -> int:
        return 0

    def waits(self, still: float) -> int:
        return UNKNOWN

    def at_work(self) -> None:
        return None

    def own_share(self) -> None:
        return None

    def answers_alone(self, abort: commands.Abort) -> None:
        return None


class Lonely(Control):
    """Keeps still when its agent is gone, and does not end the process."""

    def _reattach(self) -> None:
        threading.Event().wait()


def test_a_worker_obeys_the_newest_generation_only(tmp_path: Path) -> None:
    """Junk is ignored, messages of an older generation are dropped. An abort that is repeated is answered again,
    but not executed; once its recovery is decided, it is not even answered.
    """
    ours, theirs = socket.socketpair()
    page = tmp_path / "w1.page"
    writer = PageWriter(page)
    control = Lonely(theirs, "w1", writer, Lifeline(page), (0, 0), tmp_path)
    quiet = Quiet()
    control.serve(quiet)
    control.start()
    abort = commands.Abort("w1", 5, "host:1", (0,), "lost")
    stale: list[commands.Command] = [
        commands.Abort("w1", 4, "host:1", (0,), "older"),
        commands.Recover("w1", 4, 3, "redo", "host:1", (0,), (1,), ()),
        commands.Assign("w1", 3, 0, True, False, "host:1", {}),
        commands.Pause("w1", 2, "host:1", ()),
    ]
    recover = commands.Recover("w1", 5, 7, "redo", "host:1", (0,), (1,), ())
    ours.sendall(encode(abort).encode() + b"\n")
    answer = events.Quiesced("w1", 5, Position(7, VotePhase.RUNNING), (), 6)
    assert control.wait_for(lambda: control.announcement == abort, 30)
    assert quiet.published.get(timeout=30) == (0,)
    control.send(answer)
    for text in (b"", b"junk", b'{"type":"Abort"}', b"[" * 3000, *(encode(command).encode() for command in stale)):
        ours.sendall(text + b"\n")
    ours.sendall(encode(abort).encode() + b"\n" + encode(recover).encode() + b"\n")
    assert control.wait_for(lambda: control.recovery is not None, 30)
    ours.sendall(encode(abort).encode() + b"\n" + encode(commands.Publish("w1", 5, "host:1", (3,))).encode() + b"\n")
    assert [quiet.published.get(timeout=30) for _ in range(2)] == [(0,), (3,)]  # all before it is handled
    assert (control.generation, control.announcement, control.recovery, control.assignment) == (5, abort, recover, None)
    assert quiet.broken == [5]
    heard = ours.recv(1 << 16)
    ours.close()
    assert [json.loads(line) for line in heard.splitlines()] == [json.loads(encode(answer))] * 2
