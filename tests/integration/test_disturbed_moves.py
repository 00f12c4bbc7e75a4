"""A rank leaves a node that is suspected, and something else happens on the way: it dies, or the spare that is to take it, in each phase of
the move; another node is suspected, too; a recovery is under way. Bit by bit as undisturbed.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.integration.processes import marked, wait_for_end, wait_until
from tests.integration.service import Service, Submitted
from tests.integration.test_detectors import WHY, detectors, nodes_of
from tests.integration.training import LONG, Outcome

from understudy.chaos.armed import HOLD, Armed, Folder

RANKS = ["--nnodes", "2", "--nproc-per-node", "1", "--spares", "4", "--drill", "off", "--chaos"]
# Where whoever is in the way of rank 1 stands when one of them is killed: points of `understudy.chaos.points`. Before these it sets up.
SET_UP = "newcomer"
PAUSE = "between"  # it is waited for: the newcomer is ready, and rank 1 in the middle of a step
MOVE = ("donate", "transfer", "verify", "verified", "attached")
CELLS = [(point, victim) for point in (SET_UP, PAUSE, *MOVE) for victim in ("leaver", "newcomer")]
# Deaths that are no loss of a rank: it is not there yet, or not any more.
UNSEEN = [("newcomer", "newcomer"), ("verified", "leaver"), ("attached", "leaver")]
QUICK = ("newcomer", "leaver")


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    """With three nodes, on each of which a check looks for a flag."""
    file = detectors(tmp_path, "$NODE")
    with marked() as mark:
        made = Service(tmp_path, mark)
        for name in "abc":
            monkeypatch.setenv("NODE", name)
            made.start_agent(name, 4, None, "--detectors", str(file))
        monkeypatch.delenv("NODE")
        made.wait_for_nodes(3)
        yield made


class Held:
    """Holds whoever has, or is to have, rank 1 and comes to `point`, on whichever node."""

    def __init__(self, service: Service, point: str) -> None:
        self._name = f"held at {point}"
        self._folders = [Folder(path) for path in service.folder.glob("agent-*/parts/job")]
        assert len(self._folders) == 3
        for folder in self._folders:
            folder.arm(Armed(self._name, HOLD, 1, point))

    def wait(self) -> int:
        """Gives the pid of who is there."""
        wait_until(lambda: any(folder.has_fired(self._name) for folder in self._folders), f"somebody is {self._name}", LONG)
        (pid,) = [fired["pid"] for folder in self._folders if (fired := folder.fired(self._name)) is not None]
        return int(pid)

    def let_go(self) -> None:
        for folder in self._folders:
            folder.disarm(self._name)


def kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):  # it is not needed any more, and has ended
        os.kill(pid, signal.SIGKILL)
    wait_for_end(pid)


def begin(service: Service, **variables: str) -> Submitted:
    """A job in the middle of a step, with warm spares on a third node. It stops once more in step 9."""
    job = service.run("job", RANKS, "spread.py", HELD="1:6,1:9", EACH="1", WAIT="1", **variables)
    job.wait_for("held 6")
    wait_until(lambda: [spare["state"] for spare in job.status()["spares"]] == ["warm"] * 4, "warm spares", LONG)
    return job


def ends(job: Submitted, undisturbed: Callable[[int], Outcome]) -> Outcome:
    job.let("end")
    ended = job.ends()
    assert ended.code == 0, ended.output
    assert ended.record == undisturbed(2).record
    return ended


def flag(service: Service, node: str) -> None:
    (service.folder / f"flag of {node}").touch()


def wait_for_pause(job: Submitted) -> None:
    wait_until(lambda: job.status()["state"] == "recovering", "a spare that has set up, and the pause", LONG)


@pytest.mark.parametrize(("point", "victim"), [cell if cell == QUICK else pytest.param(*cell, marks=pytest.mark.whole) for cell in CELLS])
def test_who_dies_on_the_way(service: Service, undisturbed_spread: Callable[[int], Outcome], point: str, victim: str) -> None:
    job = begin(service)
    node, old = nodes_of(job)[1], job.status()["ranks"][1]["pid"]
    begins, held = Held(service, SET_UP), Held(service, point)
    flag(service, node)
    new = begins.wait()
    if point != SET_UP:
        begins.let_go()
        wait_for_pause(job)
    if point in MOVE:
        job.let("let go 6")
    if point != PAUSE:
        held.wait()
    kill(old if victim == "leaver" else new)
    begins.let_go()
    held.let_go()
    job.let("let go 6")
    job.wait_for("held 9")
    wait_until(lambda: job.status()["state"] == "recovering" or nodes_of(job)[1] != node, "another spare, or that it has gone", LONG)
    job.let("let go 9")
    wait_until(lambda: nodes_of(job)[1] != node, "no rank on that node", LONG)
    assert job.status()["taints"] == {node: WHY}
    incidents = ends(job, undisturbed_spread).incidents
    parts = [(part["rank"], part["cause"]) for incident in incidents for part in incident["ranks"]]
    if (point, victim) in UNSEEN:
        assert parts == [(1, "migrated")]
    elif point == SET_UP:
        assert parts == [(1, "killed")] and "rank 1 was migrating already" in incidents[0]["notes"][0]
    else:
        assert parts[:2] == [(1, "migrated"), (1, "killed")] and "turned into a recovery" in incidents[0]["notes"][0]


@pytest.mark.whole
def test_two_nodes_are_suspected_at_once(service: Service, undisturbed_spread: Callable[[int], Outcome]) -> None:
    """As ranks leave one failure domain at a time, the second waits until the first is empty."""
    job = begin(service)
    before = nodes_of(job)
    for node in before:
        flag(service, node)
    wait_until(lambda: set(job.status()["taints"]) == set(before), "both taints", LONG)
    wait_for_pause(job)
    job.let("let go 6")
    job.wait_for("held 9")
    assert sum(old != new for old, new in zip(before, nodes_of(job), strict=True)) == 1
    wait_for_pause(job)
    job.let("let go 9")
    wait_until(lambda: not set(before) & set(nodes_of(job)), "no rank on these nodes", LONG)
    incidents = ends(job, undisturbed_spread).incidents
    assert [(incident["planned"], incident["cause"], incident["decision"]) for incident in incidents] == [
        (True, "migrated", "boundary")
    ] * 2
    assert {incident["rank"] for incident in incidents} == {0, 1}
    assert "(domains_at_a_time = 1)" in job.output


@pytest.mark.whole
def test_a_node_is_suspected_during_a_recovery(service: Service, undisturbed_spread: Callable[[int], Outcome]) -> None:
    """Rank 1 is lost; while its newcomer sets up, the node of rank 0 is suspected. It leaves behind the recovery."""
    job = begin(service, PHASES="setup:6")
    node = nodes_of(job)[0]
    job.kill_rank(1)
    job.wait_for("setup")
    flag(service, node)
    wait_until(lambda: job.status()["taints"] == {node: WHY}, "the taint", LONG)
    assert job.status()["state"] == "recovering" and nodes_of(job)[0] == node
    job.let("go on setup")
    job.wait_for("held 9")
    wait_for_pause(job)
    job.let("let go 9")
    wait_until(lambda: nodes_of(job)[0] != node, "no rank on that node", LONG)
    lost, moved = ends(job, undisturbed_spread).incidents
    assert (lost["planned"], lost["rank"], lost["cause"], moved["planned"], moved["rank"]) == (False, 1, "killed", True, 0)
