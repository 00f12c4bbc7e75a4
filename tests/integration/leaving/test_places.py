"""A node of spares with as many places as it has spares: no rank goes there beyond them, and the job trains on where it can."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.integration.parallel import Parallel
from tests.integration.processes import marked, pid_of, send, wait_until
from tests.integration.service import Service
from tests.integration.training import LONG
from tests.message_texts import has

from understudy.messages import moves


def test_spares_that_took_ranks_are_replaced_where_the_ranks_left_places(tmp_path: Path) -> None:
    """Both places of the node of spares have ranks, so the next loss finds a warm spare on the node that they left."""
    with marked() as mark:
        service = Service(tmp_path, mark)
        service.start_nodes("abc", 2)
        job = Parallel(service, "ddp", 2)
        job.trains()
        job.has_spares(2)
        left, kept = job.node_of(0), job.node_of(2)
        for pid in [pid_of(lambda rank=rank: job.status()["ranks"][rank]) for rank in (0, 1)]:  # type: ignore[misc]
            send(pid, signal.SIGKILL)
        wait_until(lambda: {job.node_of(0), job.node_of(1)}.isdisjoint((left, kept)), "ranks 0 and 1 on the node of spares", LONG)
        job.has_spares(2)
        assert {spare["node"] for spare in job.status()["spares"]} == {left}, "not a third worker on a node of two places"

        send(pid_of(lambda: job.status()["ranks"][2]), signal.SIGKILL)
        wait_until(lambda: job.node_of(2) == left, "rank 2 on the node that ranks 0 and 1 have left", LONG)
        job.goes_on()
        assert {incident["decision"] for incident in job.ends_as_undisturbed()} == {"redo"}


def test_two_nodes_are_not_drained_onto_the_places_of_one(tmp_path: Path) -> None:
    with marked() as mark:
        service = Service(tmp_path, mark)
        service.start_nodes("abc", 2)
        job = Parallel(service, "ddp", 2)
        job.trains()
        job.has_spares(2)
        first, second = job.node_of(0), job.node_of(2)
        both = service.command("drain", first, second, "--wait", "--json")
        assert both.returncode != 0 and has(both.stdout + both.stderr, moves.TOO_FEW_PLACES, room=2), both

        drained = service.command("drain", first, "--wait", "--deadline", "10m", "--json")
        assert drained.returncode == 0, drained
        job.goes_on()
        assert job.status()["spares"] == []
        other = service.command("drain", second, "--wait", "--json")
        assert other.returncode != 0 and has(other.stdout + other.stderr, moves.NOWHERE_TO_GO), other
        assert len(job.ends_as_undisturbed()) == 1
