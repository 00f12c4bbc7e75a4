"""A node is trusted again: it passes its check first, its ranks go home, and one that comes and goes moves them once. Bit by bit."""

from __future__ import annotations

import signal
from collections.abc import Callable

import psutil
from tests.integration.lamps import lamp, lamps
from tests.integration.processes import send, wait_for_end, wait_until
from tests.integration.service import Service, Submitted
from tests.integration.training import LONG, Outcome
from tests.message_texts import has

from understudy.messages import losses, moves, policies

__all__ = ["lamps"]

POLICY = """
[trust]
check = {check}
return_home = true
after = "{after}"

[[rule]]
name = "lamps"
detector = "lamp"
action = "leave"
"""


def held(service: Service, *, check: bool, after: str = "1s") -> tuple[Submitted, str]:
    """Start a job and wait for its step 6, with warm spares; return the node of its rank 1. It pauses once more in step 9."""
    policy = service.folder / "policy.toml"
    policy.write_text(POLICY.format(check=str(check).lower(), after=after))
    job = service.held("job", "--policy", str(policy), HELD="1:6,1:9", EACH="1")
    return job, job.node_of(1)


def test_a_node_passes_its_check_and_its_rank_goes_home(lamps: Service, undisturbed_spread: Callable[[int], Outcome]) -> None:
    job, node = held(lamps, check=True)
    light = lamp(lamps, node)
    light.touch()
    job.moves("let go 6", away_from=node)
    job.wait_for("held 9")
    assert [(one["source"], one["part"], one["leave"]) for one in job.status()["tainted"]] == [("lamp", "lamp0", True)]
    assert [(one["detector"], one["kind"], one["until"]) for one in job.status()["evidence"]] == [("lamp", "lamp", None)]
    light.unlink()
    wait_until(lambda: has(job.output, moves.CHECKED_FIRST, node=node), "the check", LONG)
    wait_until(lambda: has(job.output, moves.TRUSTED_AGAIN, node=node), "that it has passed", LONG)
    job.moves("let go 9", to=node)
    left, home = job.ends_like(undisturbed_spread(2)).incidents
    assert left["ranks"][0]["detail"].endswith(policies.DECIDED(detail="it burns", detector="lamp", rule="lamps"))
    assert home["ranks"][0]["detail"] == moves.RETURNS(node=node)


def test_one_that_comes_and_goes_moves_its_rank_once(lamps: Service, undisturbed_spread: Callable[[int], Outcome]) -> None:
    job, node = held(lamps, check=False, after="30s")
    light = lamp(lamps, node)
    light.touch()
    job.moves("let go 6", away_from=node)
    job.wait_for("held 9")
    for _ in range(8):
        light.unlink()
        job.wait_until(lambda status: status["taints"] == {}, "it is out")
        light.touch()
        job.wait_until(lambda status: list(status["taints"]) == [node], "it burns")
        assert job.status()["incidents"] == 1
    light.unlink()
    job.moves("let go 9", to=node)
    assert [incident["rank"] for incident in job.ends_like(undisturbed_spread(2)).incidents] == [1, 1], "away, and home"


def test_a_node_that_was_patched_serves_again(lamps: Service, undisturbed_spread: Callable[[int], Outcome]) -> None:
    """It is drained, all processes there end at once as in a reboot, and its agent comes back."""
    job, node = held(lamps, check=True)
    drained = lamps.command("drain", node, "--reason", "a new kernel")
    assert drained.returncode == 0, drained
    job.moves("let go 6", away_from=node)
    job.wait_for("held 9")
    waited = lamps.command("drain", node, "--reason", "a new kernel", "--wait")
    assert waited.returncode == 0, waited
    folder = str(lamps.folder / f"agent-{node}")
    for process in psutil.process_iter(["pid", "cmdline"]):
        if any(word.startswith(folder) for word in process.info["cmdline"] or ()):
            send(process.info["pid"], signal.SIGKILL)
            if process.info["pid"] != lamps.agents[node].pid:
                wait_for_end(process.info["pid"])
    wait_until(lambda: has(job.output, losses.NODE_LOST, node=node), "that it is away", LONG)
    lamps.restart_agent(node)
    lamps.wait_for_nodes(2)
    back = lamps.command("undrain", node)
    assert back.returncode == 0, back
    wait_until(lambda: has(job.output, moves.TRUSTED_AGAIN, node=node), "its check", LONG)
    job.moves("let go 9", to=node)
    assert [incident["planned"] for incident in job.ends_like(undisturbed_spread(2)).incidents] == [True, True]
