"""Several orchestrators on one PostgreSQL: one leads, another takes over, and two never lead at once."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
import sqlalchemy as sa
from tests.integration.hosts import Host, needs_hosts, network
from tests.integration.postgres import Postgres, needs_postgres, postgres
from tests.integration.processes import marked, send, wait_for_end, wait_until
from tests.integration.service import Service, Submitted
from tests.integration.training import LONG, Outcome, survived
from tests.message_texts import has
from tests.model.validate import validate

from understudy.messages import orchestrators
from understudy.orchestrator import database, journal

pytestmark = [needs_hosts, needs_postgres]
HELD = 6


@dataclass
class Scene:
    """Two hosts with orchestrators, one with PostgreSQL's socket being everywhere, two that train; a job that waits in a step."""

    service: Service
    hosts: list[Host]
    database: Postgres
    job: Submitted

    @property
    def leaders(self) -> list[str]:
        """Return the messages of each of the two orchestrators."""
        return [(self.service.folder / f"orchestrator{number}.txt").read_text() for number in range(2)]

    def pid_of_orchestrator(self, number: int) -> int:
        (pid,) = [pid for pid in self.hosts[number].pids() if b"understudy.orchestrator" in Path(f"/proc/{pid}/cmdline").read_bytes()]
        return pid


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with marked() as mark, network(4) as hosts, postgres(tmp_path / "database") as database:
        service = Service(tmp_path, mark, hosts[1])
        service.start_several(hosts[:2], database.url)
        for number in (2, 3):
            service.start_agent(f"node{number}", 2, hosts[number])
        service.wait_for_nodes(2)
        job = service.run("job", ["--nnodes", "2", "--spares", "2"], "spread.py", HELD=f"1:{HELD}", WAIT="1")
        job.wait_for(f"held {HELD}")
        yield Scene(service, hosts, database, job)
        assert validate(database.url, killed=True) == 1


def test_the_leaders_host_vanishes_and_a_rank_is_lost_meanwhile(scene: Scene, undisturbed_spread: Callable[[int], Outcome]) -> None:
    before = scene.job.status()["ranks"]
    scene.hosts[0].vanish()
    send(before[1]["pid"], signal.SIGKILL)
    wait_for_end(before[1]["pid"])
    scene.job.wait_for(f"step {HELD + 1} on 1 in generation 1")
    assert has(scene.leaders[1], orchestrators.SERVING)
    scene.job.let("end")
    (incident,) = survived(scene.job.ends(), undisturbed_spread(2))
    assert (incident["rank"], incident["cause"]) == (1, "killed")
    assert scene.job.status()["ranks"][0]["pid"] == before[0]["pid"]
    recorded = journal.read(scene.database.url, "job")
    assert recorded is not None and journal.replay(recorded.settings, recorded.events).state.ended is not None


def test_a_leader_that_was_stopped_steps_down_when_it_wakes_up(scene: Scene, undisturbed_spread: Callable[[int], Outcome]) -> None:
    pid = scene.pid_of_orchestrator(0)
    send(pid, signal.SIGSTOP)
    scene.service.wait_for_words("orchestrator1.txt", orchestrators.SERVING.code)
    scene.service.wait_for_nodes(2)  # the agents have gone over to it
    send(pid, signal.SIGCONT)
    scene.service.wait_for_words("orchestrator0.txt", orchestrators.LEAD_LOST.code)
    scene.service.wait_for_words("orchestrator0.txt", orchestrators.ANOTHER_LEADS())
    assert scene.pid_of_orchestrator(0) == pid
    scene.job.let("let go")
    scene.job.let("end")
    assert survived(scene.job.ends(), undisturbed_spread(2), losses=0) == []


@pytest.mark.parametrize("begun", ["renew", "take"])
def test_an_orchestrator_that_is_stopped_in_the_middle_of_a_transaction(
    begun: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It holds a lock in the database, and goes on when another one leads."""
    led = threading.Event()
    within = threading.Event()
    now = database._now

    def stopped(connection: sa.Connection) -> float:
        if threading.current_thread() is not threading.main_thread() and not led.is_set():
            within.set()
            assert led.wait(LONG)
        return now(connection)

    with postgres(tmp_path / "database") as server, ThreadPoolExecutor(1) as threads:
        mine, another = (database.Lease(server.url, name, 0.5) for name in ("mine", "another"))
        assert mine.take() == 1
        monkeypatch.setattr(database, "_now", stopped)
        call = threads.submit(mine.take if begun == "take" else lambda: mine.renew(1))
        assert within.wait(LONG)
        wait_until(lambda: another.take() == 2, "another one leads", LONG)
        led.set()
        assert isinstance(call.exception(LONG), sa.exc.SQLAlchemyError)
        with pytest.raises(database.Deposed):
            mine.renew(1)


def _holder(scene: Scene) -> int | None:
    """The pid of rank 1's worker; None while no orchestrator leads."""
    done = scene.service.command("status", "--job", "job", "--json")
    return int(json.loads(done.stdout)["ranks"][1]["pid"]) if done.returncode == 0 else None


def test_training_outlives_the_database(scene: Scene, undisturbed_spread: Callable[[int], Outcome]) -> None:
    before = scene.job.status()["ranks"]
    scene.database.stop()
    scene.service.wait_for_words("orchestrator0.txt", orchestrators.LEASE_UNRENEWED.code)
    scene.job.let("let go")
    for rank in range(2):
        scene.job.wait_for(f"step 14 on {rank} in generation 0")
    send(before[1]["pid"], signal.SIGKILL)
    wait_for_end(before[1]["pid"])
    scene.database.start()
    wait_until(lambda: _holder(scene) not in (None, before[1]["pid"]), "a spare has taken the rank", LONG)
    scene.job.let("end")
    (incident,) = survived(scene.job.ends(), undisturbed_spread(2))
    assert (incident["rank"], incident["cause"]) == (1, "killed")
    assert not any("a%20password" in said or "a password" in said for said in scene.leaders)
