"""Evidence of a detector on a node moves the rank that is there, with the same bits as without; the limits of a policy delay it."""

from __future__ import annotations

from collections.abc import Callable

from tests.integration.lamps import lamp, lamps
from tests.integration.processes import wait_until
from tests.integration.service import Service
from tests.integration.training import LONG, Outcome
from tests.message_texts import has

from understudy.messages import policies, service_jobs

__all__ = ["lamps"]


def test_a_rank_leaves_the_node_of_a_suspect_device(lamps: Service, undisturbed_spread: Callable[[int], Outcome]) -> None:
    job = lamps.held("job")
    node = job.node_of(1)
    lamp(lamps, node).touch()
    job.wait_for_pause()
    (why,) = job.status()["taints"].values()
    assert why == policies.DECIDED(detail="it burns", detector="lamp", rule="a node or a part of it that is suspected")
    job.let("let go")
    job.wait_until(lambda status: all(rank["node"] != node for rank in status["ranks"]), "no rank on that node")
    (incident,) = job.ends_like(undisturbed_spread(2)).incidents
    assert (incident["planned"], incident["cause"], incident["rank"], incident["decision"]) == (True, "migrated", 1, "boundary")
    assert incident["ranks"][0]["detail"].endswith(why)


def test_a_policy_of_the_job_holds_it_back(lamps: Service, undisturbed_spread: Callable[[int], Outcome]) -> None:
    policy = lamps.folder / "policy.toml"
    policy.write_text('[limits]\nspares_left = 5\n[[rule]]\nname = "lamps"\ndetector = "lamp"\naction = "leave"')
    job = lamps.held("job", "--policy", str(policy))
    node = job.node_of(1)
    lamp(lamps, node).touch()
    wait_until(lambda: has(job.output, service_jobs.RANKS_STAY_ON_NODE, node=node), "that they stay", LONG)
    assert has(job.output, policies.TOO_FEW_SPARES, spares=1, least=5)
    job.wait_until(lambda status: node in status["taints"], "the taint")
    job.let("let go")
    assert job.ends_like(undisturbed_spread(2)).incidents == []
