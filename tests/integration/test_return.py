"""A node is trusted again: it passes its check first, its ranks go home, and one that comes and goes moves them once. Bit by bit."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from tests import packages
from tests.integration.processes import marked, wait_for_end, wait_until
from tests.integration.service import Service, Submitted
from tests.integration.training import LONG, Outcome

from understudy.detectors.base import GROUP

RANKS = ["--nnodes", "2", "--nproc-per-node", "1", "--spares", "2", "--drill", "off"]
LAMP = '''
import socket
import sys
import time
from pathlib import Path
from understudy.detectors.base import Evidence, NodeDetector, Severity, Subject


class Lamp(NodeDetector):
    """A lamp is a file beside the folder of the node's agent. When it goes out, that is told as well."""

    name, every = "lamp", 0.1

    def __init__(self):
        agent = next(Path(word) for word in sys.argv if Path(word).name.startswith("agent-"))
        self.file = agent.with_name(f"lamp of {agent.name.removeprefix('agent-')}")
        self.since = 0.0

    def look(self):
        burns = self.file.exists()
        if burns and not self.since:
            self.since = time.time()
        if self.since:
            until = 0.0 if burns else time.time()
            yield Evidence(self.name, Subject.DEVICE, "", Severity.SUSPECT, "it burns", self.since, "lamp", "lamp0", until)
        if not burns:
            self.since = 0.0
'''
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


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    """With two nodes, each of which has a lamp."""
    installed = tmp_path / "packages"
    installed.mkdir()
    packages.install(installed, "lamps", GROUP, "lamps:Lamp", LAMP)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(installed), *filter(None, [os.environ.get("PYTHONPATH")])]))
    with marked() as mark:
        made = Service(tmp_path, mark)
        for name in "ab":
            made.start_agent(name, 2)
        made.wait_for_nodes(2)
        yield made


def held(service: Service, *, check: bool, after: str = "1s") -> tuple[Submitted, str]:
    """A job in its step 6, with warm spares, and the node of its rank 1. It stops once more in step 9."""
    policy = service.folder / "policy.toml"
    policy.write_text(POLICY.format(check=str(check).lower(), after=after))
    words = [*RANKS, "--policy", str(policy)]
    job = service.run("job", words, "spread.py", HELD="1:6,1:9", EACH="1", WAIT="1")
    job.wait_for("held 6")
    wait_until(lambda: [spare["state"] for spare in job.status()["spares"]] == ["warm"] * 2, "warm spares", LONG)
    return job, str(job.status()["ranks"][1]["node"])


def moves(job: Submitted, step: int, *, to: str = "", away_from: str = "") -> None:
    """Rank 1, which is held in this step."""
    wait_until(lambda: job.status()["state"] == "recovering", "a spare that has set up, and the pause", LONG)
    job.let(f"let go {step}")

    def there() -> bool:
        node = job.status()["ranks"][1]["node"]
        return bool(node == to if to else node != away_from)

    wait_until(there, "another node", LONG)


def ends(job: Submitted, undisturbed: Callable[[int], Outcome]) -> Outcome:
    job.let("end")
    ended = job.ends()
    assert ended.code == 0, ended.output
    assert ended.record == undisturbed(2).record
    return ended


def test_a_node_passes_its_check_and_its_rank_goes_home(service: Service, undisturbed_spread: Callable[[int], Outcome]) -> None:
    job, node = held(service, check=True)
    lamp = service.folder / f"lamp of {node}"
    lamp.touch()
    moves(job, 6, away_from=node)
    job.wait_for("held 9")
    assert [(one["source"], one["part"], one["leave"]) for one in job.status()["tainted"]] == [("lamp", "lamp0", True)]
    assert [(one["detector"], one["kind"], one["until"]) for one in job.status()["evidence"]] == [("lamp", "lamp", None)]
    lamp.unlink()
    wait_until(lambda: f"node {node} is checked before it is trusted again" in job.output, "the check", LONG)
    wait_until(lambda: f"node {node} is trusted again" in job.output, "that it has passed", LONG)
    moves(job, 9, to=node)
    left, home = ends(job, undisturbed_spread).incidents
    assert left["ranks"][0]["detail"] == f"node {node} is tainted: it burns (lamp), by rule 'lamps'"
    assert home["ranks"][0]["detail"] == f"node {node}, where it was at first, is trusted again"


@pytest.mark.whole
def test_one_that_comes_and_goes_moves_its_rank_once(service: Service, undisturbed_spread: Callable[[int], Outcome]) -> None:
    job, node = held(service, check=False, after="30s")
    lamp = service.folder / f"lamp of {node}"
    lamp.touch()
    moves(job, 6, away_from=node)
    job.wait_for("held 9")
    for _ in range(8):
        lamp.unlink()
        wait_until(lambda: job.status()["taints"] == {}, "it is out", LONG)
        lamp.touch()
        wait_until(lambda: list(job.status()["taints"]) == [node], "it burns", LONG)
        assert job.status()["incidents"] == 1
    lamp.unlink()
    moves(job, 9, to=node)
    assert [incident["rank"] for incident in ends(job, undisturbed_spread).incidents] == [1, 1], "away, and home"


@pytest.mark.whole
def test_a_node_that_was_patched_serves_again(service: Service, undisturbed_spread: Callable[[int], Outcome]) -> None:
    """It is drained, everything there ends at once as when it is started anew, and its agent comes back."""
    job, node = held(service, check=True)
    drained = service.command("drain", node, "--reason", "a new kernel")
    assert drained.returncode == 0, drained
    moves(job, 6, away_from=node)
    job.wait_for("held 9")
    waited = service.command("drain", node, "--reason", "a new kernel", "--wait")
    assert waited.returncode == 0, waited
    folder = str(service.folder / f"agent-{node}")
    for process in psutil.process_iter(["pid", "cmdline"]):
        if any(word.startswith(folder) for word in process.info["cmdline"] or ()):
            os.kill(process.info["pid"], signal.SIGKILL)
            if process.info["pid"] != service.agents[node].pid:
                wait_for_end(process.info["pid"])
    wait_until(lambda: f"node {node} was lost" in job.output, "that it is away", LONG)
    service.restart_agent(node)
    service.wait_for_nodes(2)
    back = service.command("undrain", node)
    assert back.returncode == 0, back
    wait_until(lambda: f"node {node} is trusted again" in job.output, "its check", LONG)
    moves(job, 9, to=node)
    assert [incident["planned"] for incident in ends(job, undisturbed_spread).incidents] == [True, True]
