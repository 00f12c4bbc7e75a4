"""A node of spares with as many places as it has spares: no rank goes there beyond them, and the job trains on where it can."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.integration.parallel import Parallel
from tests.integration.processes import marked, pid_of, send, wait_until
from tests.integration.service import Service
from tests.integration.training import LONG
from tests.said import said

from understudy.messages import moves


def test_a_rank_starts_again_on_its_own_node_when_the_node_of_spares_is_full(tmp_path: Path) -> None:
    """Node a is lost, and both places of c have ranks from then on. A worker that is killed on b has none there, and its own on b."""
    with marked() as mark:
        service = Service(tmp_path, mark)
        service.start_nodes("abc", 2)
        job = Parallel(service, "ddp", 2)
        job.trains()
        job.has_spares(2)
        lost, kept = job.node_of(0), job.node_of(2)
        pids = [pid_of(lambda rank=rank: job.status()["ranks"][rank]) for rank in (0, 1)]  # type: ignore[misc]
        service.agents[lost].kill()
        for pid in pids:
            send(pid, signal.SIGKILL)
        wait_until(lambda: {job.node_of(0), job.node_of(1)}.isdisjoint((lost, kept)), "ranks 0 and 1 on the node of spares", LONG)
        job.goes_on()
        assert job.status()["spares"] == [], "a third worker on a node of two places"

        send(pid_of(lambda: job.status()["ranks"][2]), signal.SIGKILL)
        wait_until(lambda: len(service.get("report", job="job")["incidents"]) == 2, "that it is noticed", LONG)
        job.goes_on()
        assert job.node_of(2) == job.node_of(3) == kept
        assert [incident["decision"] for incident in job.ends_as_undisturbed()] == ["redo", "redo"]


def test_two_nodes_are_not_drained_onto_the_places_of_one(tmp_path: Path) -> None:
    with marked() as mark:
        service = Service(tmp_path, mark)
        service.start_nodes("abc", 2)
        job = Parallel(service, "ddp", 2)
        job.trains()
        job.has_spares(2)
        first, second = job.node_of(0), job.node_of(2)
        both = service.command("drain", first, second, "--wait", "--json")
        assert both.returncode != 0 and said(both.stdout + both.stderr, moves.TOO_FEW_PLACES, room=2), both

        drained = service.command("drain", first, "--wait", "--deadline", "10m", "--json")
        assert drained.returncode == 0, drained
        job.goes_on()
        assert job.status()["spares"] == []
        other = service.command("drain", second, "--wait", "--json")
        assert other.returncode != 0 and said(other.stdout + other.stderr, moves.NOWHERE_TO_GO), other
        assert len(job.ends_as_undisturbed()) == 1
