"""An operator's checks of nodes, in jobs and in a service: ranks leave a node that fails one, and a broken check harms no job."""

from __future__ import annotations

import errno
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.integration.control.test_hosts import Spread
from tests.integration.hosts import Host, needs_hosts, network
from tests.integration.processes import marked, wait_until
from tests.integration.service import Service
from tests.integration.sights import RULE, Fan, fan
from tests.integration.training import LONG, Outcome, Training
from tests.message_texts import has

from understudy.messages import agents, node_programs, policies

FAN = node_programs.FINDING(check="fan", finding="the fan is loud")
WHY = policies.DECIDED(detail=FAN, detector="command:fan", rule=RULE)


def network_of(host: Host) -> str:
    command = ["ip", "netns", "exec", host.namespace, "readlink", "/proc/self/ns/net"]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=LONG).stdout.strip()


def nodes(status: dict[str, Any]) -> list[str]:
    return [rank["node"] for rank in status["ranks"]]


@needs_hosts
def test_a_rank_leaves_the_node_that_fails_a_check_until_it_does_no_more(
    tmp_path: Path, undisturbed_spread: Callable[[int], Outcome]
) -> None:
    file = fan(tmp_path, "$(readlink /proc/self/ns/net)")
    with marked() as mark, network(2) as hosts:
        job = Spread(hosts, tmp_path / "job", mark, "--drill", "off", "--detectors", str(file), HELD="1:6", WAIT="1")
        job.wait_for("held 6")
        wait_until(lambda: [spare["state"] for spare in job.ask("status")["spares"]] == ["warm"] * 2, "warm spares", LONG)
        flag = tmp_path / f"flag of {network_of(hosts[1])}"
        flag.touch()
        wait_until(lambda: job.ask("status")["state"] == "recovering", "a spare that has set up, and the pause", LONG)
        assert job.ask("status")["taints"] == {"node1": WHY}
        (job.folder / "let go").touch()
        wait_until(lambda: nodes(job.ask("status")) == ["node0", "node0"], "no rank on that node", LONG)
        flag.unlink()
        wait_until(lambda: job.ask("status")["taints"] == {}, "the end of the taint", LONG)
        (job.folder / "end").touch()
        ended = job.ends()
    assert ended.code == 0, ended.output
    assert ended.record == undisturbed_spread(2).record
    (incident,) = ended.incidents
    assert (incident["planned"], incident["cause"], incident["rank"]) == (True, "migrated", 1)
    for number in (0, 1):
        output = (job.folder / f"output{number}.txt").read_text()
        assert has(output, agents.DETECTORS_LOOK, node=f"node{number}", detectors="command:fan looks")


def test_all_jobs_leave_a_node_that_fails_a_check_of_its_agent(tmp_path: Path, undisturbed_spread: Callable[[int], Outcome]) -> None:
    """The check runs in the node's agent: once for all jobs, and without the environment of a job."""
    with marked() as mark, ExitStack() as stack:
        service = Service(tmp_path, mark)
        Fan(tmp_path, stack).begin(service, "ab", 4)
        jobs = []
        for name in ("first", "second"):
            jobs.append(service.held(name, SECRET_OF_A_JOB="1"))
        (bad,) = {nodes(job.status())[1] for job in jobs}
        flag = tmp_path / f"flag of {bad}"
        flag.touch()
        for job in jobs:
            job.wait_for_pause()
            assert job.status()["taints"] == {bad: WHY}
            job.let("let go")
        for job in jobs:
            job.wait_until(lambda status: bad not in nodes(status), "no rank on that node")
        assert "the fan is loud" in next(node["taint"] for node in service.ask("nodes") if node["node"] == bad)
        flag.unlink()
        for job in jobs:
            job.wait_until(lambda status: status["taints"] == {}, "the end of the taint")
            job.let("end")
        for job in jobs:
            ended = job.ends()
            assert ended.code == 0, ended.output
            assert ended.record == undisturbed_spread(2).record
        wait_until(lambda: not any(node["taint"] for node in service.ask("nodes")), "trusted nodes", LONG)
        ran = set(map(int, (tmp_path / "parents").read_text().split()))
        assert ran == {agent.pid for agent in service.agents.values()}
        assert "SECRET_OF_A_JOB" not in (tmp_path / "environment").read_text()


WRONG = {
    "hangs": ("echo x >> runs; exec sleep 1000", node_programs.TIMEOUT(check="hangs", seconds=0.3, printed="")),
    "floods": ("echo x >> runs; exec yes", node_programs.TOO_MUCH_OUTPUT(check="floods", most=65536, printed="")),
    "raises": ("echo x >> runs; exit 7", node_programs.BAD_EXIT(check="raises", exit_code=7, printed="")),
}


@pytest.fixture
def training(tmp_path: Path) -> Iterator[Training]:
    with marked() as mark:
        yield Training(tmp_path, mark)
        mark.wait_until_none()  # no check outlives the job


def test_broken_checks_are_reported_once_and_training_goes_on(training: Training, tmp_path: Path) -> None:
    text = '[[command]]\nname = "absent"\nargv = ["/no/such/program"]\nevery = 0.1\n'
    for name, (script, _) in WRONG.items():
        argv = json.dumps(["/bin/sh", "-c", script.replace("runs", str(tmp_path / name))])
        text += f'[[command]]\nname = "{name}"\nargv = {argv}\nevery = 0.1\nlimit = 0.3\n'
    (tmp_path / "detectors.toml").write_text(text)
    flags = ["--nproc-per-node", "1", "--spares", "0", "--run-dir", "FOLDER/run", "--detectors", str(tmp_path / "detectors.toml")]
    job = training.start(["-m", "understudy.cli", "run", *flags], "spread.py", WAIT="1", OMP_NUM_THREADS="1")
    reported = [what for _, what in WRONG.values()]
    reported.append(node_programs.NOT_STARTED(check="absent", reason=os.strerror(errno.ENOENT)))
    wait_until(lambda: all(words in job.output for words in reported), "the reports", LONG)
    wait_until(lambda: all((tmp_path / name).stat().st_size > 8 for name in WRONG), "more runs", LONG)
    (job.folder / "end").touch()
    ended = job.succeeds()
    assert [ended.output.count(words) for words in reported] == [1] * len(reported), ended.output
    assert ended.incidents == [] and ended.ask("status")["taints"] == {}
