"""A node is suspected, and its rank or the spare that is to take it dies on the way: in each phase of the move. Bit by bit as undisturbed."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.integration.processes import marked, wait_for_end, wait_until
from tests.integration.service import Service, Submitted
from tests.integration.test_detectors import WHY, detectors
from tests.integration.training import LONG, Outcome

from understudy.chaos.armed import HOLD, Armed, Folder

RANKS = ["--nnodes", "2", "--nproc-per-node", "1", "--spares", "4", "--drill", "off", "--chaos"]
# Where whoever is in the way of rank 1 stands when one of them is killed: points of `understudy.chaos.points`. Before these it sets up.
SET_UP = "newcomer"
PAUSE = "between"  # it is waited for: the newcomer is ready, and rank 1 in the middle of a step
MOVE = ("attached", "donate", "transfer", "verify", "verified")
CELLS = [(point, victim) for point in (SET_UP, PAUSE, *MOVE) for victim in ("leaver", "newcomer")]
QUICK = [("newcomer", "leaver"), ("transfer", "newcomer")]


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    """With two nodes, on each of which a check looks for a flag."""
    file = detectors(tmp_path, "$NODE")
    with marked() as mark:
        made = Service(tmp_path, mark)
        for name in "ab":
            monkeypatch.setenv("NODE", name)
            made.start_agent(name, 4, None, "--detectors", str(file))
        monkeypatch.delenv("NODE")
        made.wait_for_nodes(2)
        yield made


class Held:
    """Holds whoever has, or is to have, rank 1 and comes to `point`, on either node."""

    def __init__(self, service: Service, point: str) -> None:
        self._name = f"held at {point}"
        self._folders = [Folder(path) for path in service.folder.glob("agent-*/parts/job")]
        assert len(self._folders) == 2
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


@pytest.mark.parametrize(("point", "victim"), [cell if cell in QUICK else pytest.param(*cell, marks=pytest.mark.whole) for cell in CELLS])
def test_who_dies_on_the_way(service: Service, undisturbed_spread: Callable[[int], Outcome], point: str, victim: str) -> None:
    job = service.run("job", RANKS, "spread.py", HELD="1:6,1:9", EACH="1", WAIT="1")
    job.wait_for("held 6")
    wait_until(lambda: [spare["state"] for spare in job.status()["spares"]] == ["warm"] * 4, "warm spares", LONG)
    node, old = job.status()["ranks"][1]["node"], job.status()["ranks"][1]["pid"]
    begins, held = Held(service, "newcomer"), Held(service, point)
    (service.folder / f"flag of {node}").touch()
    new = begins.wait()
    if point != SET_UP:
        begins.let_go()
        wait_until(lambda: job.status()["state"] == "recovering", "a spare that has set up, and the pause", LONG)
    if point in MOVE:
        job.let("let go 6")
    if point != PAUSE:
        held.wait()
    kill(old if victim == "leaver" else new)
    begins.let_go()
    held.let_go()
    job.let("let go 6")
    job.wait_for("held 9")

    def away() -> bool:
        job.let("let go 9")
        return bool(job.status()["ranks"][1]["node"] != node)

    if victim == "newcomer":
        wait_until(lambda: job.status()["state"] == "recovering" or job.status()["ranks"][1]["node"] != node, "another spare", LONG)
    wait_until(away, "no rank on that node", LONG)
    assert job.status()["taints"] == {node: WHY}
    job.let("end")
    ended = job.ends()
    assert ended.code == 0, ended.output
    assert ended.record == undisturbed_spread(2).record
    print(point, victim, [(i["planned"], i["cause"], i["decision"], [(p["rank"], p["cause"], p["old_worker"], p["new_worker"]) for p in i["ranks"]], i["notes"]) for i in ended.incidents])
