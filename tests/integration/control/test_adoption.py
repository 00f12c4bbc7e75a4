"""An agent is killed: its workers train on, and the agent that is started in its place takes them up."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.integration.processes import Mark, marked, send, wait_for_end, wait_until
from tests.integration.service import Service
from tests.integration.training import LONG, Outcome, Started, Training, survived
from tests.message_texts import has

from understudy.links.reattach import AWAY
from understudy.messages import agents, starting

HELD = 6
WAITING = 14  # the step after which all wait for the end


@pytest.fixture
def mark() -> Any:
    with marked() as found:
        yield found


@pytest.fixture
def undisturbed(undisturbed_spread: Callable[[int], Outcome]) -> Outcome:
    return undisturbed_spread(2)


def _kill_agent(mark: Mark) -> None:
    (pid,) = mark.pids_running("-m understudy.agent")
    send(pid, signal.SIGKILL)
    wait_for_end(pid)


def _marker(job: Started, name: str) -> None:
    wait_until(lambda: job.process.poll() is not None or (job.folder / f"marker {name}").exists(), name, LONG)
    assert job.process.poll() is None, job.output


def _pids(job: Started) -> list[int]:
    """Return the pids of the ranks, each of which has one as soon as it has a worker."""
    return [rank["pid"] for rank in Outcome(0, "", job.folder).ask("status")["ranks"]]


def test_an_agent_is_killed_and_a_rank_later(tmp_path: Path, mark: Mark, undisturbed: Outcome) -> None:
    """No rank is lost with the agent; the next agent kills, starts, leads and shows workers as the first one did."""
    job = Training(tmp_path, mark).begin("spread.py", spares=2, HELD=f"1:{HELD}", WAIT="1")
    _marker(job, f"held {HELD}")
    pids = _pids(job)
    _kill_agent(mark)
    (job.folder / "let go").touch()
    wait_until(lambda: has(job.output, starting.AGENT_RESTARTED), "the agent is started again", LONG)
    _marker(job, f"step {WAITING} on 1 in generation 0")  # between two steps: after a vote its line of the log might be lost with it
    assert _pids(job) == pids
    send(pids[1], signal.SIGKILL)
    wait_until(lambda: _pids(job)[1] != pids[1], "a spare takes the rank", LONG)
    _kill_agent(mark)  # the second one, which has taken workers up and led one to a rank
    (job.folder / "end").touch()
    (incident,) = survived(job.ends(), undisturbed)
    assert (incident["rank"], incident["cause"], incident["ranks"][0]["detail"].split(",")[0]) == (1, "killed", "SIGKILL")
    mark.wait_until_none()


def test_a_rank_is_lost_while_there_is_no_agent(tmp_path: Path, mark: Mark, undisturbed: Outcome) -> None:
    job = Training(tmp_path, mark).begin("spread.py", HELD=f"1:{HELD}")
    _marker(job, f"held {HELD}")
    (agent,) = mark.pids_running("-m understudy.agent")
    send(agent, signal.SIGSTOP)  # so that it sees nothing of what follows
    pid = _pids(job)[1]
    send(pid, signal.SIGKILL)
    send(agent, signal.SIGKILL)
    (incident,) = survived(job.ends(), undisturbed)
    assert (incident["rank"], incident["cause"]) == (1, "killed")
    assert incident["ranks"][0]["detail"] == f"SIGKILL, in transaction {HELD}"


@pytest.mark.parametrize("phase", ["setup", "survivor", "apply", "redo"])
def test_an_agent_is_killed_in_the_middle_of_an_incident(tmp_path: Path, mark: Mark, undisturbed: Outcome, phase: str) -> None:
    job = Training(tmp_path, mark).begin("spread.py", HELD=f"1:{HELD}", PHASES=f"{phase}:{HELD}")
    _marker(job, f"held {HELD}")
    send(_pids(job)[1], signal.SIGKILL)
    _marker(job, phase)
    _kill_agent(mark)
    (job.folder / f"go on {phase}").touch()
    (incident,) = survived(job.ends(), undisturbed)
    assert (incident["rank"], incident["cause"], incident["decision"]) == (1, "killed", "redo")


def test_workers_whose_agent_stays_away_end(tmp_path: Path, mark: Mark) -> None:
    """The command line is gone too, so no agent is started."""
    job = Training(tmp_path, mark).begin("spread.py", HELD=f"1:{HELD}")
    _marker(job, f"held {HELD}")
    send(job.process.pid, signal.SIGSTOP)
    (agent,) = mark.pids_running("-m understudy.agent")
    for pid in (agent, job.process.pid):
        send(pid, signal.SIGKILL)
    assert job.process.wait() == -signal.SIGKILL
    mark.wait_until_none(AWAY + LONG)


@pytest.mark.parametrize("also", ["node", ""])
def test_a_part_of_a_service_is_killed(tmp_path: Path, mark: Mark, undisturbed: Outcome, also: str) -> None:
    """Alone, or with the agent of its node, which its supervisor restarts."""
    service = Service(tmp_path, mark)
    service.start_nodes("ab", 2)
    patience = ["--node-timeout", "60"] if also else []  # else the node may be lost before its agent is back, on a slow machine
    job = service.run("job", ["--nnodes", "2", "--spares", "2", *patience], "spread.py", HELD=f"1:{HELD}", WAIT="1")
    job.wait_for(f"held {HELD}")
    before = job.status()["ranks"]
    node = before[1]["node"]
    part = json.loads((tmp_path / f"agent-{node}" / "parts" / "job" / "part.json").read_text())["pid"]
    if also:
        service.agents[node].kill()
        service.agents[node].wait()
    send(part, signal.SIGKILL)
    wait_for_end(part)
    if also:
        service.restart_agent(node)
    service.wait_for_words(f"agent-{node}.txt", agents.PART_RESTARTED_WITH_AGENT.code if also else agents.PART_RESTARTED.code)
    job.let("let go")
    job.wait_for(f"step {WAITING} on 1 in generation 0")
    send(before[1]["pid"], signal.SIGKILL)
    job.let("end")
    (incident,) = survived(job.ends(), undisturbed)
    assert (incident["rank"], incident["cause"]) == (1, "killed")
    wait_until(lambda: all(n["free"] == n["slots"] for n in service.ask("nodes")), "free slots", LONG)
