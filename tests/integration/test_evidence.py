"""What a detector has seen on a node moves the rank that is there, bit by bit the same as without; the limits of a policy hold it back."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests import packages
from tests.integration.processes import marked, wait_until
from tests.integration.service import Service, Submitted
from tests.integration.training import LONG, Outcome

from understudy.detectors.base import GROUP

RANKS = ["--nnodes", "2", "--nproc-per-node", "1", "--spares", "2", "--drill", "off"]
FLAG = '''
import sys
from pathlib import Path
from understudy.detectors.base import Evidence, NodeDetector, Severity, Subject


class Flag(NodeDetector):
    """A flag is a file beside the folder of the node's agent."""

    name, every = "flag", 0.1

    def look(self):
        agent = next(Path(word) for word in sys.argv if Path(word).name.startswith("agent-"))
        flag = agent.with_name(f"flag of {agent.name.removeprefix('agent-')}")
        if flag.exists():
            yield Evidence(self.name, Subject.DEVICE, "", Severity.SUSPECT, flag.read_text(), flag.stat().st_mtime, "flag", "fan0")
'''


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    """With two nodes, each of which has a detector of another package."""
    installed = tmp_path / "packages"
    installed.mkdir()
    packages.install(installed, "flags", GROUP, "flags:Flag", FLAG)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(installed), *filter(None, [os.environ.get("PYTHONPATH")])]))
    with marked() as mark:
        made = Service(tmp_path, mark)
        for name in "ab":
            made.start_agent(name, 2)
        made.wait_for_nodes(2)
        yield made


def held(service: Service, *flags: str) -> tuple[Submitted, str]:
    """A job in its step 6, with warm spares, and the node of its rank 1."""
    job = service.run("job", [*RANKS, *flags], "spread.py", HELD="1:6", WAIT="1")
    job.wait_for("held 6")
    wait_until(lambda: [spare["state"] for spare in job.status()["spares"]] == ["warm"] * 2, "warm spares", LONG)
    return job, str(job.status()["ranks"][1]["node"])


def test_a_rank_leaves_the_node_of_a_suspect_device(service: Service, undisturbed_spread: Callable[[int], Outcome]) -> None:
    job, node = held(service)
    (service.folder / f"flag of {node}").write_text("the fan is loud")
    wait_until(lambda: job.status()["state"] == "recovering", "a spare that has set up, and the pause", LONG)
    (why,) = job.status()["taints"].values()
    assert why == "the fan is loud (flag), by rule 'a node or a part of it that is suspected'"
    job.let("let go")
    wait_until(lambda: all(rank["node"] != node for rank in job.status()["ranks"]), "no rank on that node", LONG)
    job.let("end")
    ended = job.ends()
    assert ended.code == 0, ended.output
    assert ended.record == undisturbed_spread(2).record
    (incident,) = ended.ask("report")["incidents"]
    assert (incident["planned"], incident["cause"], incident["rank"], incident["decision"]) == (True, "migrated", 1, "boundary")
    assert incident["ranks"][0]["detail"] == f"node {node} is tainted: {why}"


def test_a_policy_of_the_job_holds_it_back(service: Service, undisturbed_spread: Callable[[int], Outcome]) -> None:
    policy = service.folder / "policy.toml"
    policy.write_text('[limits]\nspares_left = 5\n[[rule]]\nname = "flags"\ndetector = "flag"\naction = "leave"')
    job, node = held(service, "--policy", str(policy))
    (service.folder / f"flag of {node}").write_text("the fan is loud")
    told = f"ranks do not leave node {node} yet: 1 warm spares are on trusted nodes (spares_left = 5, and one is taken)"
    wait_until(lambda: told in job.output, told, LONG)
    wait_until(lambda: node in job.status()["taints"], "the taint", LONG)
    job.let("let go")
    job.let("end")
    ended = job.ends()
    assert ended.code == 0, ended.output
    assert ended.record == undisturbed_spread(2).record
    assert ended.ask("report")["incidents"] == []
