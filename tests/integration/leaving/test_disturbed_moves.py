"""A rank leaves a node that is suspected, and something else happens on the way: it dies, or the spare that is to take it, in each phase of
the move; another node is suspected, too; a recovery is under way. Bit by bit as undisturbed.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.integration.processes import marked, pid_of, send, wait_for_end, wait_until
from tests.integration.service import Service, Submitted
from tests.integration.sights import Fan
from tests.integration.training import LONG, Outcome
from tests.message_texts import has

from understudy.chaos.armed import HOLD, Armed, Folder
from understudy.messages import moves, policies, recoveries

# Where the processes that move rank 1 are when one of them is killed: points of `understudy.chaos.points`. Before these it sets up.
SET_UP = "newcomer"
PAUSE = "between"  # it is waited for: the newcomer is ready, and rank 1 in the middle of a step
MOVE = ("donate", "transfer", "verify", "verified", "attached")
CELLS = [(point, victim) for point in (SET_UP, PAUSE, *MOVE) for victim in ("leaver", "newcomer")]
# After these the old worker is released: whether its death still counts as one is left open.
RELEASED = [("verified", "leaver"), ("attached", "leaver")]


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with marked() as mark:
        yield Service(tmp_path, mark)


@pytest.fixture
def sight(service: Service) -> Iterator[Fan]:
    """On each of three nodes a check looks at a fan."""
    with ExitStack() as stack:
        made = Fan(service.folder, stack)
        made.begin(service, "abc", 4)
        yield made


class Held:
    """Pause the worker that has, or is to have, rank 1 when it reaches `point`, on whichever node."""

    def __init__(self, service: Service, point: str) -> None:
        self._name = f"held at {point}"
        self._folders = [Folder(path) for path in service.folder.glob("agent-*/parts/job")]
        assert len(self._folders) == 3
        for folder in self._folders:
            folder.arm(Armed(self._name, HOLD, 1, point))

    def wait(self) -> int:
        """Gives the pid of who is there."""
        wait_until(lambda: any(folder.has_fired(self._name) for folder in self._folders), f"a rank is {self._name}", LONG)
        (pid,) = [fired["pid"] for folder in self._folders if (fired := folder.fired(self._name)) is not None]
        return int(pid)

    def let_go(self) -> None:
        for folder in self._folders:
            folder.disarm(self._name)


def kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):  # it is not needed any more, and has ended
        send(pid, signal.SIGKILL)
    wait_for_end(pid)


def begin(service: Service, **variables: str) -> Submitted:
    """A job in the middle of a step, with warm spares on a third node. It stops once more in step 9."""
    return service.held("job", "--chaos", spares=4, HELD="1:6,1:9", EACH="1", **variables)


def nodes_of(job: Submitted) -> list[str]:
    return [rank["node"] for rank in job.service.get("status", job=job.name)["ranks"]]


@pytest.mark.parametrize(("point", "victim"), CELLS)
def test_who_dies_on_the_way(service: Service, sight: Fan, undisturbed_spread: Callable[[int], Outcome], point: str, victim: str) -> None:
    job = begin(service)
    node, old = nodes_of(job)[1], pid_of(lambda: job.status()["ranks"][1])
    begins, held = Held(service, SET_UP), Held(service, point)
    sight.appears(node)
    new = begins.wait()
    if point != SET_UP:
        begins.let_go()
        job.wait_for_pause()
    if point in MOVE:
        job.let("let go 6")
    if point != PAUSE:
        held.wait()
    kill(old if victim == "leaver" else new)
    begins.let_go()
    held.let_go()
    job.let("let go 6")
    job.wait_for("held 9")
    job.wait_until(lambda now: now["state"] == "recovering" or now["ranks"][1]["node"] != node, "another spare, or that it has gone")
    job.let("let go 9")
    job.wait_until(lambda now: now["ranks"][1]["node"] != node, "no rank on that node")
    assert job.status()["taints"] == {node: sight.why}
    incidents = job.ends_like(undisturbed_spread(2)).incidents
    parts = [(part["rank"], part["cause"]) for incident in incidents for part in incident["ranks"]]
    if (point, victim) == (SET_UP, "newcomer") or ((point, victim) in RELEASED and len(parts) == 1):
        assert parts == [(1, "migrated")]  # no rank was lost
    elif point == SET_UP:
        assert parts == [(1, "killed")] and has(incidents[0]["notes"][0], moves.MIGRATING_ALREADY, rank=1)
    else:
        assert parts[:2] == [(1, "migrated"), (1, "killed")] and has(incidents[0]["notes"][0], recoveries.BECAME_RECOVERY)


def test_two_nodes_are_suspected_at_once(service: Service, sight: Fan, undisturbed_spread: Callable[[int], Outcome]) -> None:
    """As ranks leave one failure domain at a time, the second waits until the first is empty."""
    job = begin(service)
    before = nodes_of(job)
    for node in before:
        sight.appears(node)
    job.wait_until(lambda now: set(now["taints"]) == set(before), "both taints")
    job.wait_for_pause()
    job.let("let go 6")
    job.wait_for("held 9")
    assert sum(old != new for old, new in zip(before, nodes_of(job), strict=True)) == 1
    job.wait_for_pause()
    job.let("let go 9")
    job.wait_until(lambda now: not set(before) & {rank["node"] for rank in now["ranks"]}, "no rank on these nodes")
    incidents = job.ends_like(undisturbed_spread(2)).incidents
    assert [(incident["planned"], incident["cause"], incident["decision"]) for incident in incidents] == [
        (True, "migrated", "boundary")
    ] * 2
    assert {incident["rank"] for incident in incidents} == {0, 1}
    assert has(job.output, policies.OTHERS_LEAVE, most=1)


def test_a_node_is_suspected_during_a_recovery(service: Service, sight: Fan, undisturbed_spread: Callable[[int], Outcome]) -> None:
    """Rank 1 is lost; while its newcomer sets up, the node of rank 0 is suspected. Rank 0 leaves after the recovery."""
    job = begin(service, PHASES="setup:6")
    node = nodes_of(job)[0]
    job.kill_rank(1)
    job.wait_for("setup")
    sight.appears(node)
    job.wait_until(lambda now: now["taints"] == {node: sight.why}, "the taint")
    assert job.status()["state"] == "recovering" and nodes_of(job)[0] == node
    job.let("go on setup")
    job.wait_for("held 9")
    job.wait_for_pause()
    job.let("let go 9")
    job.wait_until(lambda now: now["ranks"][0]["node"] != node, "no rank on that node")
    lost, moved = job.ends_like(undisturbed_spread(2)).incidents
    assert (lost["planned"], lost["rank"], lost["cause"], moved["planned"], moved["rank"]) == (False, 1, "killed", True, 0)
