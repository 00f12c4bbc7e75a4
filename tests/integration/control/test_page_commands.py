"""The commands of the pages in docs/operate as printed, by a reader with one machine: with a job that runs, and with a service.

Addresses and folders of the examples become those of the test, and so do numbers of GPUs (`SMALLER`). Lines that start a server go on in
the background, as in a terminal of their own.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.processes import Mark, marked, wait_until
from tests.integration.training import LONG
from tests.pages import ROOT, Commands, blocks, commands, quickstart_script

from understudy.cli.client import Server, of_job
from understudy.cli.run_directory import RunDirectory
from understudy.links.messages import ONLY
from understudy.messages import orchestrators, service_jobs

OPERATE = ROOT / "docs" / "operate"
HERE = str(Path(__file__).relative_to(ROOT))
SMALLER = {"--slots 8": "--slots 4", "--nnodes 2": "--nnodes 1", "--nproc-per-node 8": "--nproc-per-node 2"}


def claimed(page: str) -> list[Commands]:
    """Return the blocks of a page that this test runs."""
    found = [block for block in commands(OPERATE / page) if block.about == f"run by {HERE}"]
    assert found, f"{page} has nothing for {HERE}"
    return found


class Reader:
    """Types commands in a folder that has the quickstart's train.py."""

    def __init__(self, folder: Path, mark: Mark) -> None:
        self.folder = folder
        self.replaced: dict[str, str] = {}
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        self._environment = mark.environment(COLUMNS="200", PYTHONUNBUFFERED="1", PATH=path, UNDERSTUDY_DRILL="off")
        (folder / "train.py").write_text(quickstart_script())

    def starts(self, line: str, output: str) -> subprocess.Popen[bytes]:
        with (self.folder / output).open("wb") as file:
            return subprocess.Popen(
                ["bash", "-c", f"exec {self._typed(line)}"], cwd=self.folder, env=self._environment, stdout=file, stderr=subprocess.STDOUT
            )

    def runs(self, line: str, limit: float = LONG) -> str:
        command = ["bash", "-euo", "pipefail", "-c", self._typed(line)]
        done = subprocess.run(command, cwd=self.folder, env=self._environment, capture_output=True, text=True, timeout=limit)
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def waits_for(self, process: subprocess.Popen[bytes], output: str, words: str) -> None:
        def there() -> bool:
            text = (self.folder / output).read_text()
            assert process.poll() is None, text
            return words in text

        wait_until(there, f"{words} in {output}", LONG)

    def waits_for_warm_spares(self) -> None:
        def warm() -> bool:
            (run,) = (self.folder / "understudy-runs").iterdir()
            status = Server.of(RunDirectory(run)).call("GET", of_job(ONLY, "status"), limit=LONG)
            return status["state"] == "training" and len([spare for spare in status["spares"] if spare["state"] == "warm"]) >= 2

        wait_until(warm, "warm spares", LONG)

    def _typed(self, line: str) -> str:
        for old, new in self.replaced.items():
            line = line.replace(old, new)
        return line


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    with marked() as mark:
        yield Reader(tmp_path, mark)


@pytest.mark.timeout(1800)
def test_commands_for_a_running_job(reader: Reader) -> None:
    start, chaos = claimed("chaos.md")
    (run,) = start.lines
    job = reader.starts(run, "job.txt")
    reader.waits_for(job, "job.txt", "step 100: ")
    reader.replaced["NODE"] = "node0"
    topology = claimed("racks-and-hosts.md")[-1]
    assert topology.lines == ["understudy status --topology"]
    evidence, *rest = [block for block in claimed("detectors-and-policy.md") if "token" not in block.text][::-1]
    for block in (*claimed("index.md"), *claimed("watch.md"), topology, evidence, *rest, *claimed("drain-and-patch.md")):
        for line in block.lines:
            reader.waits_for_warm_spares()
            shown = reader.runs(line)
            assert shown.strip() or "taint" in line, line
    (plan, *_) = blocks(OPERATE / "chaos.md", "toml")
    (reader.folder / "plan.toml").write_text(plan)
    for line in chaos.lines:
        reader.waits_for_warm_spares()
        shown = reader.runs(line, 1200)
    assert "packet_drop" in shown, shown
    reader.runs("understudy stop")
    job.wait(LONG)


@pytest.mark.timeout(1200)
def test_commands_of_a_service(reader: Reader) -> None:
    service, tokens, certificates = claimed("access.md")
    (journal,) = claimed("upgrade.md")
    (evidence,) = [block for block in claimed("detectors-and-policy.md") if "token" in block.text]
    key = claimed("racks-and-hosts.md")[0]
    state, copy = reader.folder / "state", reader.folder / "copy"
    copy.mkdir()
    reader.replaced |= {"/var/lib/understudy": str(state), "/backup": str(copy), "10.0.0.5:29400": "127.0.0.1:0", "gpu-07": "n1", **SMALLER}

    secret, *others = tokens.lines
    assert "openssl" in secret
    reader.runs(secret)
    orchestrator, agent, run = service.lines
    serving = reader.starts(orchestrator, "orchestrator.txt")
    address = _address(reader, serving, "orchestrator.txt")
    reader.replaced |= {"10.0.0.5:29400": address, "10.0.0.5": "127.0.0.1"}
    node = reader.starts(f"{agent}-agent --name n1", "agent.txt")
    reader.waits_for(serving, "orchestrator.txt", service_jobs.NODE_HERE.code)
    job = reader.starts(run, "job.txt")
    reader.waits_for(job, "job.txt", "step 100: ")
    for line in (*others, evidence.text):
        reader.runs(line)
    assert "llama-7b" not in reader.runs(others[-1]), "the list of jobs has the one that runs"
    backup, verify, restore = journal.lines
    assert reader.runs(backup) and reader.runs(verify)
    for process in (serving, node, job):
        process.terminate()
        process.wait(LONG)
    assert reader.runs(restore)

    *made, orchestrator, agent, jobs = certificates.lines
    for line in made:
        reader.runs(line)
    reader.replaced["10.0.0.5:29400"] = "127.0.0.1:0"
    serving = reader.starts(orchestrator, "orchestrator.txt")
    reader.replaced["10.0.0.5:29400"] = _address(reader, serving, "orchestrator.txt")
    reader.starts(agent, "agent.txt")
    reader.waits_for(serving, "orchestrator.txt", service_jobs.NODE_HERE.code)
    reader.runs(jobs)
    reader.runs(key.lines[0])
    assert (reader.folder / "cert.pem").exists()


def _address(reader: Reader, serving: subprocess.Popen[bytes], output: str) -> str:
    reader.waits_for(serving, output, orchestrators.SERVING.code)
    found = re.search(r"https?://(127\.0\.0\.1:\d+)", (reader.folder / output).read_text())
    assert found is not None
    return found[1]
