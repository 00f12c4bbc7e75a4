"""Copies of rank-local state are complete again as the first thing after a recovery, before any rank has voted once more."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.integration.processes import marked
from tests.integration.service import Service
from tests.integration.training import Outcome


def test_the_rank_that_held_the_copy_is_lost_and_then_the_one_whose_copy_it_was(
    tmp_path: Path, undisturbed_spread: Callable[[int], Outcome]
) -> None:
    """Rank 0 is lost with the only copy of rank 1. Rank 1 is lost as it redoes the step: by then rank 0's newcomer has its copy."""
    with marked() as mark:
        service = Service(tmp_path, mark)
        service.start_nodes("abcd", 1)
        job = service.held("job", spares=2, PHASES="next attempt:6")
        job.kill_rank(0)
        job.wait_until(lambda status: status["state"] == "recovering", "recovery")
        job.let("let go")
        job.wait_for("next attempt")
        job.kill_rank(1)
        ended = job.ends_like(undisturbed_spread(2))
        (incident,) = ended.incidents
        assert sorted(rank["rank"] for rank in incident["ranks"]) == [0, 1] and incident["decision"] == "redo"
        assert 0 < incident["without_copies"] <= incident["seconds"]
        assert "copies complete again after" in service.command("report", "--job", "job").stdout
